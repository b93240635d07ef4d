"""Labels that a network has learned, as the class indices that losses take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from loom import losses
from loom._typing import Foreign
from loom.data import Classes
from loom.data.labels import KINDS, as_names
from loom.engine.engine import Engine
from loom.engine.told import classes_by_output, classes_of
from loom.losses import LossLike

__all__ = ["BINARY", "as_indices", "compares_labels", "fitting", "indexed", "known_classes"]

BINARY = ("binary_cross_entropy", "binary_focal")
"""Losses of single outputs whose targets are 0 and 1."""


def indexed(target: Foreign, classes: Classes | None) -> Foreign:
    """Returns the class indices that labels stand for; other targets as they are.

    Args:
        target: The targets.
        classes: The network's; None where nobody has named them.

    Raises:
        DataError: A label is of no class.
    """
    if classes is None:
        return target
    array = as_names(target)
    return classes.indices(array) if array.dtype.kind in f"U{KINDS[classes.kind]}" else target


def fitting(classes: Classes | None, output_shape: tuple[int, ...]) -> Classes | None:
    """Returns classes if an output tells as many; the head that told them may have given way to another.

    Args:
        classes: What the network remembers; None where nobody has named its classes.
        output_shape: One sample's output, without the batch.
    """
    told = 2 if output_shape == (1,) else losses.class_count(output_shape)
    return classes if classes is not None and len(classes.values) == told else None


def compares_labels(loss: LossLike | str, output_shape: tuple[int, ...]) -> bool:
    """Whether a loss compares an output with classes, which labels may stand for.

    Args:
        loss: The loss, or "auto", which compares several outputs with class indices, as one of the user's own
            does that has seen no target yet.
        output_shape: One sample's output, without the batch.
    """
    if loss == losses.AUTO or losses.is_undecided(loss):
        return losses.class_count(output_shape) > 1
    return losses.is_classification(loss) or (output_shape == (1,) and losses.name_of(loss) in BINARY)


def known_classes(engine: Engine) -> dict[str, Classes]:
    """Returns the classes that a network knows, by output; those of one without a name under "".

    Args:
        engine: The network's.
    """
    if not engine.native.card():
        # Nothing has been told of it. Steppers ask this in every step, so nothing more is read.
        return {}
    ports = engine.ports
    if ports is not None and ports.outputs:
        return classes_by_output(engine.native)
    engine.build()
    classes = fitting(classes_of(engine.native), tuple(engine.native.output_shape()))
    return {} if classes is None else {"": classes}


def as_indices(engine: Engine, target: Foreign, loss: object) -> Foreign:
    """Returns targets whose labels are class indices, as training reads them.

    Args:
        engine: The network's; it has been built.
        target: Targets of any kind; of named outputs a dictionary.
        loss: What compares them; of named outputs a dictionary.

    Raises:
        DataError: A label is of no class.
    """
    known = known_classes(engine)
    if not known:
        return target
    if "" in known:
        shape = tuple(engine.native.output_shape())
        return indexed(target, known[""]) if compares_labels(cast("LossLike", loss), shape) else target
    if not isinstance(target, Mapping) or not isinstance(loss, Mapping):
        return target
    shapes = cast("Any", engine.ports).output_shapes()
    return {
        name: indexed(part, known[name])
        if name in known and name in loss and compares_labels(loss[name], shapes[name])
        else part
        for name, part in target.items()
    }
