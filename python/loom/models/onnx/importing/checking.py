"""What was found is compared, on drawn values, with the piece of the graph that it stands for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom import nn
from loom._typing import Precision
from loom.engine import engine_of
from loom.errors import LoomError
from loom.models.onnx.importing.folding import Folded
from loom.models.onnx.importing.graph import Graph, Made
from loom.models.onnx.importing.steps import layers_of
from loom.network import Network, Sequential

__all__ = ["LARGE", "accept", "agree", "close", "computed", "network_of"]

LARGE = 6e4
"""How large numbers are that operators of single elements are tried with: about as far as float16 goes."""
USUAL = (1e-2, 1.0, 8.0)
COSTLY, ENDLESS = 2**32, 2**38
"""Products of two numbers from which on a piece is tried once, and from which on not at all."""


def network_of(made: Sequence[Made], shape: Sequence[int], precision: Precision = "float32") -> Network:
    """Returns a network of a row of layers with their tensors."""
    net = Sequential(layers_of(made), input_shape=tuple(shape), precision=precision)
    dtype = np.float64 if precision == "float64" else np.float32
    state = {
        f"0.0.0.{place}.{name}": np.array(values, dtype)
        for place, each in enumerate(made)
        for name, values in each.tensors.items()
    }
    net.load_state_dict(state)
    return net


def computed(
    graph: Graph, given: dict[str, NDArray[Any]], value: str, folded: Folded | None = None
) -> NDArray[Any] | None:
    """Computes a value of others; None where that cannot be."""
    try:
        with np.errstate(all="ignore"):
            return graph.compute(given, value, folded)
    except Exception:  # noqa: BLE001 - what cannot be computed so is no such pattern
        return None


def close(one: NDArray[Any], other: NDArray[Any], tolerance: float = 1e-5) -> bool:
    """Whether two arrays are the same but for rounding."""
    if one.size != other.size:
        return False
    one, other = one.reshape(-1), other.reshape(-1)
    difference = float(np.abs(one - other).max(initial=0))
    return difference <= tolerance * max(1.0, float(np.abs(other).max(initial=0)))


def agree(
    graph: Graph,
    source: str,
    value: str,
    made: Sequence[Made],
    magnitudes: Sequence[float] = USUAL,
    *,
    unknown: bool = False,
    most: float = ENDLESS,
    positive: bool = False,
) -> bool:
    """Whether layers compute of one value what the graph makes another of.

    Both are computed in float64, so that what differs is no rounding.

    Args:
        graph: The graph.
        source: What the layers read.
        value: What they stand for.
        made: The layers.
        magnitudes: How large the drawn elements are, one row of samples each.
        unknown: What is returned where ONNX's evaluator cannot compute the piece, or not soon.
        most: How many products of two numbers are still soon.
        positive: Whether what is read is never below zero.
    """
    shape, whole = graph.sample(source), graph.pair.shapes.get(source)
    if shape is None or whole is None:
        return False
    cost = sum(values.size for each in made for values in each.tensors.values()) * math.prod(shape[:-1])
    if (cost := max(cost, 2**10 * math.prod(whole))) > most:
        return unknown
    rows, rng = math.prod(whole) // math.prod(shape), np.random.default_rng(0)
    try:
        net = network_of(made or [Made(nn.Activation("linear"))], shape, "float64")
        limit = engine_of(net.build()).native.index_limit()
    except LoomError:
        return False
    if graph.sample(value) not in (None, net.output_shape):
        # The same elements with other extents are another value to what reads them.
        return False
    for magnitude in magnitudes[-2:-1] if cost > COSTLY else magnitudes:
        x: NDArray[Any] = rng.integers(0, limit or 1, (rows, *shape))
        if limit is None:
            x = rng.normal(size=(rows, *shape)) * magnitude
            x = np.abs(x) if positive else x
            if len(shape) > 1 and magnitude == 1.0:
                # Steps of zeros are padding to some layers.
                x[0, -1] = x[-1, 0] = 0
        # Rows need not come first.
        given = x.reshape(rows, graph.outer.get(source, 1), -1).swapaxes(0, 1).reshape(whole)
        expected = computed(graph, {source: given}, value, graph.pair)
        if expected is None:
            return unknown
        if not np.isfinite(expected).all() or expected.size % (rows * graph.outer.get(value, 1)):
            return False
        expected = expected.reshape(graph.outer.get(value, 1), rows, -1).swapaxes(0, 1)
        if not close(net.predict(x), expected):
            return False
    return True


def accept(
    graph: Graph,
    value: str,
    source: str,
    made: Sequence[Made],
    magnitudes: Sequence[float] = USUAL,
    *,
    unknown: bool = False,
) -> bool:
    """Puts layers in the place of what makes one value of another, if both agree."""
    if not agree(graph, source, value, made, magnitudes, unknown=unknown):
        return False
    graph.replace(value, source, made)
    return True
