"""Layers together with where a file has their parameters: what families are composed of.

A piece is a layer and, for each of its parameters and states, the tensors that it is made of. Pieces inside
others keep their tensors under the names that loom gives parameters there, so that a family says its
composition and its names at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loom import activations, nn

__all__ = [
    "Array",
    "Piece",
    "Source",
    "bare_norm",
    "batch_norm",
    "bias_of",
    "convolution",
    "dense",
    "embedding",
    "gated",
    "layer_norm",
    "masked",
    "mixed",
    "plain",
    "residual",
    "rms_norm",
    "stack",
    "take",
    "weight_and_bias",
]

Array: TypeAlias = "NDArray[Any]"


@dataclass(frozen=True)
class Source:
    """What a parameter is made of.

    Args:
        names: The file's tensors, by name; none for what the file does not have.
        make: Makes the parameter of them.
        extents: What the settings say of the tensors' first extents, so that no network is built which the
            files cannot fill.
    """

    names: tuple[str, ...]
    make: Callable[..., Array] = np.asarray
    extents: tuple[int, ...] = ()

    def then(self, change: Callable[[Array], Array]) -> Source:
        """Returns the same, changed."""
        return Source(self.names, lambda *arrays: change(self.make(*arrays)), self.extents)

    def transposed(self) -> Source:
        """Returns the same with its two axes exchanged."""
        return self.then(np.transpose)

    def part(self, start: int, stop: int, axis: int = 0) -> Source:
        """Returns some of its places along an axis."""
        places = (slice(None),) * axis + (slice(start, stop),)
        return self.then(lambda array: array[places])

    def plus(self, number: float) -> Source:
        """Returns the same with a number added to each element."""
        return self.then(lambda array: array + np.asarray(number, array.dtype))

    def times(self, number: float) -> Source:
        """Returns the same with each element multiplied by a number."""
        return self.then(lambda array: array * np.asarray(number, array.dtype))


def take(name: str, *extents: int) -> Source:
    """Returns a tensor as the file has it; `extents` are its first ones."""
    return Source((name,), extents=extents)


def stack(names: Sequence[str], *extents: int) -> Source:
    """Returns tensors of one shape, one behind the other along an axis of their own."""
    return Source(tuple(names), lambda *arrays: np.stack(arrays), extents)


@dataclass(frozen=True)
class Piece:
    """A layer, and what its parameters and states are made of.

    Args:
        layer: The layer.
        tensors: A source for each parameter and state, by the name that it has in the layer.
    """

    layer: nn.Layer
    tensors: Mapping[str, Source] = field(default_factory=dict)


def plain(layer: nn.Layer) -> Piece:
    """Returns a layer that has no parameters."""
    return Piece(layer)


def _inside(prefix: str, pieces: Iterable[Piece]) -> dict[str, Source]:
    return {
        f"{prefix}{place}.{name}": source
        for place, piece in enumerate(pieces)
        for name, source in piece.tensors.items()
    }


def residual(*pieces: Piece, projection: Sequence[Piece] = ()) -> Piece:
    """Returns pieces in a row with a skip around them, on which what brings it to their shape may stand."""
    layer = nn.Residual([piece.layer for piece in pieces], projection=[piece.layer for piece in projection])
    return Piece(layer, _inside("layers.", pieces) | _inside("projection.", projection))


def masked(padding: float, *pieces: Piece) -> Piece:
    """Returns pieces in a row that leave out padding."""
    return Piece(nn.Masked([piece.layer for piece in pieces], value=padding), _inside("", pieces))


def mixed(*branches: Iterable[Piece]) -> Piece:
    """Returns branches whose outputs are added; an empty one hands the input on."""
    rows = [list(branch) for branch in branches]
    tensors: dict[str, Source] = {}
    for place, branch in enumerate(rows):
        tensors |= _inside(f"branches.{place}.", branch)
    return Piece(nn.Parallel([[piece.layer for piece in branch] for branch in rows], combine="add"), tensors)


def weight_and_bias(name: str, bias: bool = True, *extents: int) -> dict[str, Source]:
    """Returns the usual two, or the weight alone, whose first extents may be known."""
    return {"weight": take(f"{name}.weight", *extents)} | bias_of(name, bias)


def bias_of(name: str, bias: bool) -> dict[str, Source]:
    """Returns the bias, if there is one."""
    return {"bias": take(f"{name}.bias")} if bias else {}


def dense(
    name: str,
    units: int,
    bias: bool = True,
    activation: str = "linear",
    change: Callable[[Source], Source] = lambda source: source,
) -> Piece:
    """Returns a Dense layer; `change` turns its weight into (units, features) where it is not."""
    source = take(f"{name}.weight")
    changed = change(source)
    weight = {"weight": take(f"{name}.weight", units) if changed is source else changed}
    return Piece(
        nn.Dense(units, bias=bias, activation=activations.resolve(activation)), weight | bias_of(name, bias)
    )


def embedding(name: str, vocabulary: int, width: int) -> Piece:
    """Returns an embedding."""
    return Piece(nn.Embedding(vocabulary, width), weight_and_bias(name, False, vocabulary, width))


def rms_norm(name: str, epsilon: float, offset: float = 0.0) -> Piece:
    """Returns a root-mean-square norm; `offset` is added to what the file has as its gain."""
    gain = take(f"{name}.weight")
    return Piece(nn.RMSNorm(epsilon=epsilon), {"weight": gain.plus(offset) if offset else gain})


def layer_norm(name: str, epsilon: float, bias: bool = True, offset: float = 0.0) -> Piece:
    """Returns a layer norm; `offset` is added to what the file has as its gain."""
    gain = take(f"{name}.weight")
    weight = {"weight": gain.plus(offset) if offset else gain}
    return Piece(nn.LayerNorm(epsilon=epsilon, bias=bias), weight | bias_of(name, bias))


def bare_norm(name: str, epsilon: float) -> Piece:
    """Returns a layer norm without anything trained, whatever its name."""
    return plain(nn.LayerNorm(epsilon=epsilon, gain=False, bias=False))


def gated(layer: nn.SwiGLU | nn.GeGLU, at: str, bias: bool = False) -> Piece:
    """Returns a gated feed-forward layer of three projections."""
    extents = {"gate": (layer.hidden,), "up": (layer.hidden,), "down": ()}
    tensors = {
        f"{projection}_{name}": source
        for projection, known in extents.items()
        for name, source in weight_and_bias(f"{at}.{projection}_proj", bias, *known).items()
    }
    return Piece(layer, tensors)


def convolution(name: str, filters: int, kernel: int, bias: bool = True, **settings: Any) -> Piece:  # noqa: ANN401
    """Returns a convolution over images."""
    return Piece(nn.Conv2D(filters, kernel, bias=bias, **settings), weight_and_bias(name, bias))


def batch_norm(name: str, epsilon: float = 1e-5, momentum: float = 0.1) -> Piece:
    """Returns a batch norm with its running statistics."""
    names = ("weight", "bias", "running_mean", "running_var")
    return Piece(
        nn.BatchNorm(epsilon=epsilon, momentum=momentum), {each: take(f"{name}.{each}") for each in names}
    )
