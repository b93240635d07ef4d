"""What is looked at: layers, settings, and a sample of the data, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom import nn
from loom.activations import ELU, LeakyReLU
from loom.diagnosis import thresholds
from loom.engine import Engine
from loom.engine.endings import last_cell

__all__ = [
    "HANDED_ON",
    "SIGMOIDS",
    "SOFTMAXES",
    "Case",
    "Ending",
    "Rows",
    "Stage",
    "ending",
    "ending_at",
    "ending_of",
    "stages",
]

HANDED_ON = frozenset({"dropout", "flatten", "permute", "reshape"})
"""Layers that change no number in inference."""

_RANGES = {
    "sigmoid": (0.0, 1.0),
    "hardsigmoid": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "relu": (0.0, np.inf),
    "relu_squared": (0.0, np.inf),
    "scaled_relu": (0.0, np.inf),
    "softplus": (0.0, np.inf),
    "silu": (-0.279, np.inf),
    "gelu": (-0.17, np.inf),
    "gelu_tanh": (-0.171, np.inf),
    "mish": (-0.309, np.inf),
    "hardswish": (-0.375, np.inf),
    "selu": (-1.759, np.inf),
}

SIGMOIDS = frozenset({"sigmoid", "hardsigmoid"})
"""Activations that make probabilities of single scores."""

SOFTMAXES = frozenset(
    {
        "adaptive_softmax",
        "entmax",
        "grid_softmax",
        "gumbel_softmax",
        "hierarchical_softmax",
        "masked_softmax",
        "mixture_softmax",
        "softmax",
        "sparsemax",
    }
)


@dataclass(frozen=True)
class Stage:
    """A layer of a cell.

    Args:
        path: Its name, "z.y.x.l".
        config: Its configuration.
        input_shape: One sample's extents as they come in.
        moves: How many parameters training may move.
        holds: How many it has.
    """

    path: str
    config: nn.Layer
    input_shape: tuple[int, ...]
    moves: int
    holds: int


@dataclass(frozen=True)
class Ending:
    """What an output went through last.

    Args:
        path: The layer's name.
        name: The activation, or the kind of a layer without parameters.
        low: What it never falls below.
        high: What it never exceeds.
        absorbed: Whether it is the last layer and a plain softmax, which a cross-entropy behind it takes into
            itself.
    """

    path: str
    name: str
    low: float
    high: float
    absorbed: bool = False


@dataclass(frozen=True)
class Rows:
    """Samples with their targets.

    Args:
        x: (rows, ...) the samples.
        y: (rows, ...) their targets.
        complete: Whether that is the whole data set, and not its first batch.
    """

    x: NDArray[Any]
    y: NDArray[Any]
    complete: bool = True

    def __len__(self) -> int:
        return len(self.x)

    @cached_property
    def sample(self) -> NDArray[np.float64]:
        """(rows, elements) some samples, evenly spread over the data."""
        return _spread(self.x, thresholds.SAMPLE_ELEMENTS, thresholds.SAMPLE_ROWS)

    @cached_property
    def targets(self) -> NDArray[np.float64]:
        """(rows, elements) the targets of as many rows, as numbers."""
        return _spread(self.y, thresholds.SAMPLE_ELEMENTS, 16 * thresholds.SAMPLE_ROWS)

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """(rows, ...) the targets as whole numbers, of very many a sample."""
        kept = max(thresholds.LABEL_ELEMENTS // max(self.y[:1].size, 1), 1)
        return np.asarray(self.y if len(self.y) <= kept else self.y[_places(len(self.y), kept)], np.int64)


@dataclass(frozen=True)
class Case:
    """Everything that the findings are read from.

    Args:
        stages: The layers of cells, in the order data flows.
        ending: What the output goes through last; None where that is not known.
        output_shape: One sample's output.
        loss: The loss's name.
        rows: The data.
        held_out: What is validated on; None without any.
        indices: Whether the network reads whole numbers.
        batch_size: How many samples make one batch.
        shuffle: Whether samples are shuffled.
        validation_split: The share that is held out.
        weighted: Whether classes have weights.
        chosen: Whether nobody has named the loss, so that the targets chose it.
        hints: Whether what may be meant so is looked for, too.
        metrics: The names of what is measured.
        labels: What the classes are called; nothing where they are numbered.
    """

    stages: tuple[Stage, ...]
    ending: Ending | None
    output_shape: tuple[int, ...]
    loss: str
    rows: Rows
    held_out: Rows | None = None
    indices: bool = False
    batch_size: int = 32
    shuffle: bool = True
    validation_split: float = 0.0
    weighted: bool = False
    chosen: bool = False
    hints: bool = True
    metrics: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()

    def called(self, number: int) -> str:
        """Returns what a class is called: its label, or its number."""
        return self.labels[number] if self.labels else str(number)

    @property
    def takes_logits(self) -> bool:
        """Whether the loss applies the softmax or the sigmoid by itself."""
        return self.loss in ("cross_entropy", "focal", "dice") or self.answers_yes_or_no

    @property
    def absorbs(self) -> bool:
        """Whether the loss takes the softmax that the network ends in into its own."""
        return self.classifies and self.ending is not None and self.ending.absorbed

    @property
    def classifies(self) -> bool:
        """Whether the loss takes classes."""
        return self.loss in ("cross_entropy", "focal", "nll")

    @property
    def regresses(self) -> bool:
        """Whether the loss compares outputs with numbers of the same kind."""
        return self.loss in ("mse", "mae", "huber", "log_cosh", "quantile")

    @property
    def answers_yes_or_no(self) -> bool:
        """Whether the loss takes the logits of a sigmoid, and targets from 0 to 1."""
        return self.loss in ("binary_cross_entropy", "binary_focal")

    @property
    def classes(self) -> int:
        """How many classes the output has: the last axis, or the channels of an image."""
        shape = self.output_shape
        return shape[0] if len(shape) == 3 else shape[-1] if shape else 1

    @property
    def labelled(self) -> bool:
        """Whether the targets are class indices that the loss takes."""
        y = self.rows.y
        return self.classifies and y.dtype.kind in "iub" and y.ndim == len(self.output_shape)


def stages(engine: Engine) -> tuple[Stage, ...]:
    """Returns the layers of a network's cells; builds it."""
    engine.build()
    native, found = engine.native, []
    for at, place in engine.layer_places():
        full = (*at, place)
        names = native.parameter_names(full)
        kept = native.frozen(full)
        beside = engine.adapter_parameters(full)
        own = sum(name not in kept and name not in beside for name in names)
        moves = sum(beside.values()) + (own if native.trainable(full) else 0)
        moves = moves if native.rate_factor(full) > 0 else 0
        config = engine.layer_config(at, place)
        shape = tuple(native.layer_shapes(full)[0])
        found.append(Stage(".".join(map(str, full)), config, shape, moves, len(names)))
    return tuple(found)


def ending(engine: Engine, found: tuple[Stage, ...]) -> Ending | None:
    """Returns what the output goes through last, where one layer alone makes it."""
    if not found:
        return None
    last_cell = tuple(map(int, found[-1].path.split(".")[:3]))
    if any(tuple(link.target) > last_cell for link in engine.config.links):  # type: ignore[union-attr]
        return None
    return ending_of(found)


def ending_at(engine: Engine, cell: Sequence[int] | None = None) -> Ending | None:
    """Returns what the output of a cell goes through last, where one layer alone makes it.

    Args:
        engine: The network's; it is built.
        cell: The cell, in whose place one without layers hands on what came before; the last one where None.
    """
    last = last_cell(engine, cell)
    if last is None:
        return None
    made = [
        Stage(".".join(map(str, (*at, place))), engine.layer_config(at, place), (), 0, 0)
        for at, place in engine.layer_places()
        if at == last
    ]
    return ending_of(tuple(made))


def ending_of(found: tuple[Stage, ...]) -> Ending | None:
    """Returns what the output of some layers goes through last, where one of them alone makes it."""
    if found and found[-1].config.kind == "softmax":
        return Ending(found[-1].path, "softmax", 0.0, 1.0, absorbed=True)
    for stage in reversed(found):
        config = _last(stage.config)
        if config is None or config.kind not in HANDED_ON:
            return None if config is None else _ending(stage.path, config)
    return None


def _last(config: nn.Layer) -> nn.Layer | None:
    """The layer that the numbers of another one come from; itself, unless it is a row of layers."""
    while config.kind in ("sequential", "checkpoint", "spectral_norm", "weight_norm"):
        inside: Any = config
        layers = inside.layers() if callable(inside.layers) else inside.layers
        rest = [layer for layer in layers if layer.kind not in HANDED_ON]
        if not rest:
            return None
        config = rest[-1]
    return config


def _ending(path: str, config: nn.Layer) -> Ending | None:
    kind: str = config.kind
    if kind in SOFTMAXES:
        return Ending(path, kind, 0.0, 1.0)
    if kind in ("lstm", "gru", "l2_norm"):
        return Ending(path, kind, -1.0, 1.0)
    if kind == "soft_cap":
        cap: float = getattr(config, "cap", np.inf)
        return Ending(path, kind, -cap, cap)
    activation = getattr(config, "function" if kind == "activation" else "activation", "linear")
    if isinstance(activation, ELU):
        return Ending(path, "elu", -activation.alpha, np.inf)
    if isinstance(activation, LeakyReLU):
        return Ending(path, "leaky_relu", -np.inf, np.inf)
    name = activation if isinstance(activation, str) else getattr(activation, "kind", "linear")
    return Ending(path, name, *_RANGES.get(name, (-np.inf, np.inf)))


def _places(rows: int, kept: int) -> NDArray[np.intp]:
    return np.linspace(0, rows - 1, kept).astype(np.intp)


def _spread(values: NDArray[Any], elements: int, most: int) -> NDArray[np.float64]:
    rows = len(values)
    size = max(values[:1].size, 1)
    kept = min(rows, most, max(elements // size, thresholds.FEW_ROWS))
    part = values if kept == rows else values[_places(rows, kept)]
    return np.asarray(part, np.float64).reshape(kept, -1)
