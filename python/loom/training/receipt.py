"""Receipts: what a training was made of and came to, in hashes, so that anybody can check it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from os import PathLike
from typing import TYPE_CHECKING, Any

from loom._settings.checks import file_path
from loom._settings.files import text_of
from loom.errors import ConfigError, FileError, SerializationError
from loom.training.identity import differences

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Receipt", "require_receipt"]

_FORMAT = 1


@dataclass(frozen=True)
class Receipt:
    """What a training was made of and came to: plain values, and SHA-256 hashes of what is large.

    On a processor a training has the same bits on every machine, whatever its instruction set and its number
    of threads, so that `loom.reproduce` can prove a receipt anywhere; on a GPU it has them within one
    adapter and driver.

    Args:
        network: The network's configuration, precision, numeric types and seed included.
        initial_weights: The network's fingerprint before the first step; see `Network.fingerprint`.
        final_weights: Its fingerprint as training left it.
        learning: How it learned, "backpropagation" or "tweening", with all settings.
        data: Shapes, types and hashes of what it learned from.
        validation: The same of what it was measured on; None without.
        marks: [epochs done, steps done, fingerprint] on the way, in order.
        loss_history: The mean loss of each epoch.
        device: The kind of device, "cpu" or "gpu"; of a GPU also its name and driver.
        versions: Those of loom, Python and NumPy, and the machine.
        stop_reason: Why training ended; see `TrainingResult`.
        resumed: Whether another training came before, of which this receipt knows nothing.
        format: The version of this form.
    """

    network: Mapping[str, Any]
    initial_weights: str
    final_weights: str
    learning: Mapping[str, Any]
    data: Mapping[str, Any]
    validation: Mapping[str, Any] | None
    marks: tuple[tuple[int, int, str], ...]
    loss_history: tuple[float, ...]
    device: Mapping[str, str]
    versions: Mapping[str, str]
    stop_reason: str
    resumed: bool = False
    format: int = field(default=_FORMAT)

    def to_config(self) -> dict[str, Any]:
        """Returns plain JSON values."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Builds the receipt from what `to_config` returned.

        Raises:
            SerializationError: It is none, or one of a form that this version does not know.
        """
        names = {each.name for each in fields(cls)}
        if set(config) != names:
            raise SerializationError(f"a receipt has exactly {', '.join(sorted(names))}")
        if config["format"] != _FORMAT:
            raise SerializationError(
                f"the receipt has format {config['format']!r}, and this version of loom reads {_FORMAT}"
            )
        try:
            marks = tuple((int(epoch), int(step), str(weights)) for epoch, step, weights in config["marks"])
            losses = tuple(float(loss) for loss in config["loss_history"])
            for name in ("network", "learning", "data", "device", "versions"):
                dict(config[name])
        except (TypeError, ValueError) as error:
            raise SerializationError(f"the receipt is damaged ({error})") from error
        return cls(**{**config, "marks": marks, "loss_history": losses})

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the receipt as JSON.

        Raises:
            FileError: The file cannot be written.
        """
        where = file_path("Receipt.save", path)
        try:
            where.write_text(json.dumps(self.to_config(), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise FileError(error.errno, f"cannot be written: {error.strerror}", str(path)) from error

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Reads what `save` has written.

        Raises:
            FileError: The file cannot be read.
            SerializationError: It holds no receipt.
        """
        where = file_path("Receipt.load", path)
        try:
            found = json.loads(text_of(where))
        except OSError as error:
            raise FileError(error.errno, f"cannot be read: {error.strerror}", str(path)) from error
        except (ValueError, RecursionError) as error:
            raise SerializationError(f"{path} holds no receipt: {error}") from error
        return cls.from_config(found)

    def difference(self, other: Receipt) -> str | None:
        """Says where another training of the same came to something else; None where it did not.

        Args:
            other: Its receipt.

        Returns:
            The first thing in which they differ: what went in, or the first mark on the way.
        """
        for what in ("network", "learning", "data", "validation"):
            found = differences(getattr(self, what), getattr(other, what), what)
            if found:
                return found[0]
        if self.initial_weights != other.initial_weights:
            return "the initial weights differ"
        theirs = {(epoch, step): weights for epoch, step, weights in other.marks}
        same = 0
        for epoch, step, weights in self.marks:
            if theirs.get((epoch, step), weights) != weights:
                after = f"they were the same after step {same}" if same else "no earlier step was compared"
                return f"the weights differ after step {step}, in epoch {epoch}; {after}"
            if (epoch, step) in theirs:
                same = step
        if self.final_weights != other.final_weights:
            return f"the final weights differ; they were the same after step {same}"
        return None

    def __repr__(self) -> str:
        return (
            f"Receipt({self.learning.get('learning')} on {self.device.get('kind')}, "
            f"{len(self.loss_history)} epochs, "
            f"weights {self.initial_weights[:12]} to {self.final_weights[:12]})"
        )


def require_receipt(receipt: object) -> Receipt:
    """Returns `receipt` if it is one, or reads it from the file that it names."""
    if isinstance(receipt, Receipt):
        return receipt
    if isinstance(receipt, (str, PathLike)):
        return Receipt.load(receipt)
    raise ConfigError(f"receipt must be a loom.Receipt or the path of one, got {receipt!r}")
