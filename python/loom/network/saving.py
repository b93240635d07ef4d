"""Networks in files, and what is told of them there."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING

from loom._settings.calls import explained
from loom._settings.checks import file_path, flag
from loom._settings.encoding import encode
from loom._settings.endings import check_ending
from loom._settings.suggestions import shown, unknown
from loom.card import ModelCard
from loom.data import Classes
from loom.engine import Engine, HasEngine, engine_of
from loom.engine.told import remember_classes, remember_classes_by_output, tell, told
from loom.errors import ConfigError, FileError, SerializationError
from loom.training.record import TrainingRecord, record_of

if TYPE_CHECKING:
    from loom import _native
    from loom.training.trainable import TrainableNetwork

__all__ = ["fingerprint", "read_card", "recall", "save", "to_bytes", "write_card"]


@explained(path='where to? net.save("model.loom")')
def save(
    self: TrainableNetwork, path: str | PathLike[str], optimizer: bool = False, deploy: bool = False
) -> None:
    """Writes the network to a file: whole, or after an error not at all.

    With it goes its `card`, and by which loss and metrics it was judged, so that `evaluate` measures them
    after `loom.load`, too. docs/format.md says what is in the file, byte for byte.

    Args:
        path: The file; an older one is replaced at the end.
        optimizer: Whether the optimizer's state, the place in the data and the callbacks'
            states are written too, so that `loom.train(..., resume=True)` goes on bit for bit.
        deploy: Whether only what inference reads is written: the masters of packed weights stay behind,
            and the file is as small as its bits. With it goes the `fingerprint` of the network it was
            made from. What `loom.load` makes of it predicts the same; `unpack` has it trained again,
            from its packed weights.

    Raises:
        FileError: The file cannot be written.
        ConfigError: Both `optimizer` and `deploy` are asked for, or the path ends as files of another format
            do.
        NonFiniteError: A weight or a layer's state is infinite or NaN, which
            `loom.load` would refuse; an older file stays as it is.
    """
    check_ending("net.save", path)
    training, alone = flag("save", "optimizer", optimizer), flag("save", "deploy", deploy)
    if training and alone:
        raise ConfigError(
            "save: deploy=True leaves the masters behind that an optimizer moves; leave one of both out"
        )
    place = file_path("save", path)
    if not place.parent.exists():
        raise FileError(
            errno.ENOENT,
            f"could not write {place}: there is no folder {place.parent}, "
            "which Path(...).mkdir(parents=True) makes",
        )
    with _telling(self, training=training, alone=alone) as native:
        native.save(place, training, alone)


def to_bytes(self: TrainableNetwork, optimizer: bool = False) -> bytes:
    """Returns the bytes that `save` would write.

    Args:
        optimizer: As in `save`.

    Raises:
        NonFiniteError: A weight or a layer's state is infinite or NaN.

    Examples:
        >>> import pathlib, tempfile
        >>> net = loom.Sequential([nn.Dense(2)], input_shape=3)
        >>> path = pathlib.Path(tempfile.mktemp())
        >>> _ = path.write_bytes(net.to_bytes())
        >>> loom.load(path).fingerprint() == net.fingerprint()
        True
    """
    training = flag("to_bytes", "optimizer", optimizer)
    with _telling(self, training=training) as native:
        return native.to_bytes(training)


@contextmanager
def _telling(self: TrainableNetwork, *, training: bool, alone: bool = False) -> Iterator[_native.Network]:
    """Gives the native network, with all that a file tells beside its weights."""
    record = record_of(self)
    if training:
        record.bring_up_to_date()
    engine = engine_of(self)
    before = engine.native.card()
    everything = told(engine.native)
    judged = record.told()
    for name in ("judged_by", "receipt"):
        everything.pop(name, None)
    if judged:
        everything["judged_by"] = judged
    receipt = record.told_receipt()
    if receipt:
        everything["receipt"] = receipt
    if alone:
        everything["fingerprint"] = fingerprint(self)
    tell(engine.native, everything)
    try:
        yield engine.native
    except BaseException:
        engine.native.set_card(before)
        raise


def fingerprint(self: HasEngine) -> str:
    """Returns a hash of the network's configuration and weights: that of another is another.

    Equal networks have equal ones on every machine. What is told of a network, its `card`, and the state of
    a training do not count.

    Returns:
        64 hexadecimal digits: SHA-256 of what `save` would write, without the card and the checksums.

    Raises:
        NonFiniteError: A weight or a layer's state is infinite or NaN.

    Examples:
        >>> net = loom.Sequential([nn.Dense(2)], input_shape=3)
        >>> before = net.fingerprint()
        >>> net.layers[0].weight = 2 * net.layers[0].weight
        >>> net.fingerprint() == before
        False
    """
    data = memoryview(engine_of(self).native.to_bytes(False))
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(bytes(data[8:end]))
    header["__metadata__"].pop("loom.card", None)
    # As files were before there were checksums: a network keeps its fingerprint.
    header["__metadata__"]["loom.format"] = "1"
    length, _ = header.pop("loom.checksums")["data_offsets"]
    found = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    found.update(data[end : end + length])
    return found.hexdigest()


def read_card(engine: Engine) -> ModelCard:
    """Returns what is told of a network.

    Args:
        engine: Its engine.

    Raises:
        SerializationError: The file that it came from tells what is no card.
    """
    try:
        return ModelCard.from_config(told(engine.native).get("card", {}))
    except ConfigError as error:
        raise SerializationError(f"the network's card is damaged: {error}") from error


def write_card(engine: Engine, card: object) -> None:
    """Tells something of a network, in place of what was told before.

    Args:
        engine: Its engine.
        card: The `ModelCard`.

    Raises:
        ConfigError: It is none.
    """
    if not isinstance(card, ModelCard):
        raise ConfigError(f"card is a loom.ModelCard, got {shown(card)}")
    if isinstance(card.labels, Mapping):
        names = engine.ports.output_names if engine.ports is not None else ()
        for name in card.labels:
            if name not in names:
                raise unknown("card: output", name, names)
    everything = told(engine.native)
    given, by_output = _numbers(card.labels), {}
    if isinstance(card.labels, Mapping):
        by_output = {name: _numbers(labels) for name, labels in card.labels.items()}
    named = _as_texts(card)
    everything["card"] = None if named == ModelCard() else encode(named)
    tell(engine.native, everything)
    if given is not None:
        remember_classes(engine.native, given)
    if told_by_number := {name: classes for name, classes in by_output.items() if classes is not None}:
        remember_classes_by_output(engine.native, told_by_number)


def _numbers(labels: object) -> Classes | None:
    """Returns the classes that labels are which targets have as numbers; None where they are texts."""
    if not isinstance(labels, tuple) or not labels or isinstance(labels[0], str):
        return None
    return Classes("integer", labels)


def _as_texts(card: ModelCard) -> ModelCard:
    """Returns a card whose labels are what classes are called."""
    labels = card.labels
    if isinstance(labels, Mapping):
        return replace(card, labels={name: [*map(str, each)] for name, each in labels.items()})
    return card if labels is None else replace(card, labels=[*map(str, labels)])


def recall(engine: Engine, record: TrainingRecord) -> None:
    """Has a network that came from a file remember by what it was judged, and its receipt.

    Args:
        engine: Its engine.
        record: Where it remembers.
    """
    if engine.native.card():
        everything = told(engine.native)
        record.recall(everything.get("judged_by"), everything.get("receipt"))
