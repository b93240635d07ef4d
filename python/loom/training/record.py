"""What a network remembers of its training."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from loom._settings.encoding import encode
from loom.errors import ConfigError
from loom.metrics import Metric

if TYPE_CHECKING:
    # A network that only predicts loads nothing of training.
    from loom.training.config import TrainingConfig
    from loom.training.receipt import Receipt

__all__ = ["HasRecord", "TrainingRecord", "portable", "record_of"]

# What changes the loss that is told, where it is set.
_WEIGHING = ("loss_weights", "class_weight", "label_smoothing")


class TrainingRecord:
    """How training judged what a network learned, and what keeps its callbacks' states while it runs."""

    def __init__(self) -> None:
        self._judged_by: TrainingConfig | None = None
        self._recalled: object = None
        self.take_notes: Callable[[], None] | None = None
        """Keeps the callbacks' states with the training state; None while no training runs."""
        self.run: str | None = None
        """The folder of the newest run that was kept in one."""
        self._receipt: Receipt | None = None
        self._told_receipt: object = None

    @property
    def judged_by(self) -> TrainingConfig | None:
        """The config of the newest training, whose loss and metrics `loom.evaluate` measures."""
        if self._judged_by is None and isinstance(self._recalled, dict):
            from loom.training.config import TrainingConfig

            told, self._recalled = self._recalled, None
            try:
                self._judged_by = TrainingConfig.from_config(
                    {name: told[name] for name in ("loss", "metrics", *_WEIGHING) if name in told}
                )
            except ConfigError:
                # Of another version, or of a metric that nobody here knows: then it is to be given again.
                return None
        return self._judged_by

    @judged_by.setter
    def judged_by(self, config: TrainingConfig | None) -> None:
        self._judged_by, self._recalled = config, None

    @property
    def receipt(self) -> Receipt | None:
        """The receipt of the newest training; None where that has none."""
        if self._receipt is None and isinstance(self._told_receipt, dict):
            from loom.training.receipt import Receipt

            told, self._told_receipt = self._told_receipt, None
            self._receipt = Receipt.from_config(told)
        return self._receipt

    @receipt.setter
    def receipt(self, receipt: Receipt | None) -> None:
        self._receipt, self._told_receipt = receipt, None

    def recall(self, judged_by: object, receipt: object) -> None:
        """Remembers what a file told, as far as somebody asks."""
        self._recalled, self._told_receipt = judged_by, receipt

    def told_receipt(self) -> object:
        """Returns the receipt as plain JSON values; None without any."""
        return self._told_receipt if self._receipt is None else self._receipt.to_config()

    def told(self) -> dict[str, Any] | None:
        """Returns what `loom.evaluate` measures as plain JSON values, without functions; None without any."""
        config = portable(self.judged_by)
        if config is None:
            return None
        try:
            told = {"loss": encode(config.loss), "metrics": encode(config.metrics)}
            set_here = [name for name in _WEIGHING if getattr(config, name)]
            return {**told, **{name: encode(getattr(config, name)) for name in set_here}}
        except ConfigError:
            return None

    def bring_up_to_date(self) -> None:
        """Has the callbacks' states kept as they are now, before the training state is written."""
        if self.take_notes is not None:
            self.take_notes()


class HasRecord(Protocol):
    """What `record_of` takes."""

    @property
    def _record(self) -> TrainingRecord: ...


def record_of(network: HasRecord) -> TrainingRecord:
    """Returns what a network remembers of its training."""
    return network._record


def portable(config: TrainingConfig | None) -> TrainingConfig | None:
    """Leaves out metrics that are functions, which need not be known elsewhere.

    Without a loss that another process can have, such as a lambda, nothing is left.
    """
    if config is None:
        return None
    try:
        pickle.dumps(config.loss)
    except Exception:  # noqa: BLE001 - pickle raises what the object's own methods do, too
        return None
    from loom.training.ported import metrics_as_given

    given = metrics_as_given(config.metrics)
    if isinstance(given, Mapping):
        return replace(config, metrics={name: _known(metrics) for name, metrics in given.items()})
    return replace(config, metrics=_known(given))


def _known(metrics: Iterable[Any]) -> list[Metric]:
    return [metric for metric in metrics if isinstance(metric, Metric)]
