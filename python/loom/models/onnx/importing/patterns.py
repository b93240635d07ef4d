"""Activations and norms, found by what pieces of a graph compute rather than by how they are written."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom import activations, nn
from loom._typing import ActivationName
from loom.models.onnx.hints import HINT, HINTED, HOLDING
from loom.models.onnx.importing.checking import LARGE, agree, close, computed, network_of
from loom.models.onnx.importing.graph import Graph, Made, Node, is_movement
from loom.models.onnx.importing.steps import affine, permuted
from loom.nn import layer_from_config

__all__ = ["ELEMENTWISE", "activation_of", "find_activations", "find_indices", "find_norms", "find_noted"]

ELEMENTWISE = {
    "Abs",
    "Add",
    "And",
    "Cast",
    "Celu",
    "Clip",
    "Cos",
    "Div",
    "Elu",
    "Erf",
    "Exp",
    "Gelu",
    "Greater",
    "GreaterOrEqual",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "Max",
    "Min",
    "Mish",
    "Mul",
    "Neg",
    "Not",
    "Pow",
    "Reciprocal",
    "Relu",
    "Selu",
    "Sigmoid",
    "Sign",
    "Sin",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sub",
    "Swish",
    "Tanh",
    "ThresholdedRelu",
    "Where",
}
"""Operators of single elements."""
REDUCTIONS = {"ReduceMean", "ReduceSum", "ReduceSumSquare", "ReduceL2", "GlobalAveragePool"}
GRID = np.linspace(-9, 9, 721)


MAGNITUDES = (1e-6, 1e-4, 1e-2, 1.0, 1e2, 1e4)
# Limits and tails far out.
WIDE = np.concatenate([sign * np.geomspace(1e-6, LARGE, 241) for sign in (-1, 1)])


def values(function: activations.ActivationLike) -> NDArray[Any]:
    """Returns the values of an activation on the grid."""
    return _applied([Made(nn.Activation(function))], GRID)


@cache
def known() -> dict[ActivationName, NDArray[Any]]:
    """Returns the values of every activation without a setting, on the grid."""
    plain = [name for name in activations.names() if name not in ("linear", "leaky_relu", "elu")]
    return {name: values(name) for name in plain}


def _applied(made: Sequence[Made], x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(network_of(made, x.shape, "float64").predict(x[None])[0]) if made else x


def activation_of(graph: Graph, source: str, value: str, shape: tuple[int, ...]) -> list[Made] | None:
    """Returns the layers that make one value of another element by element; None where none do.

    Args:
        graph: The graph.
        source: What they read.
        value: What they stand for.
        shape: One sample's extents.
    """
    y, far = (computed(graph, {source: x}, value) for x in (GRID, WIDE))
    if y is None or far is None or y.dtype.kind != "f" or (y.shape, far.shape) != (GRID.shape, WIDE.shape):
        return None
    if not np.isfinite(y).all():
        return None
    for layers in _candidates(y, far):
        made, sure = _applied(layers(WIDE.shape), WIDE), np.isfinite(far)
        if bool((np.abs(made - far)[sure] <= 1e-5 * np.maximum(1, np.abs(far[sure]))).all()):
            return layers(shape)
    return None


def _candidates(y: NDArray[Any], far: NDArray[Any]) -> Iterator[Callable[[tuple[int, ...]], list[Made]]]:
    """Yields what has these values on the grid and far out, as what makes layers for a shape."""

    def is_it(other: NDArray[Any]) -> bool:
        return bool(np.abs(other - y).max() <= 1e-5 * max(1.0, float(np.abs(y).max()) / 9))

    def scaled(
        function: activations.ActivationLike, factor: float
    ) -> Callable[[tuple[int, ...]], list[Made]]:
        return lambda shape: [Made(nn.Activation(function)), *affine(shape, _number(factor), _number(0))]

    slope, middle = float(y[-1] - y[0]) / float(GRID[-1] - GRID[0]), float(y[GRID.size // 2])
    if is_it(slope * GRID + middle):
        yield lambda shape: affine(shape, _number(slope), _number(middle))
    for name, expected in known().items():
        if is_it(expected):
            yield scaled(name, 1)
    flat = float(-y[np.searchsorted(GRID, -1)])
    for function in (
        activations.LeakyReLU(flat),
        activations.ELU(-float(y[0]) / (1 - math.exp(float(GRID[0])))),
    ):
        if is_it(values(function)):
            yield scaled(function, 1)
    last = float(y[-1] / GRID[-1])
    elu = activations.ELU(-float(y[0]) / last / (1 - math.exp(float(GRID[0])))) if last else None
    if elu is not None and is_it(last * values(elu)):
        yield scaled(elu, last)
    reached = np.concatenate([y, far[np.isfinite(far)]])
    low, high = float(reached.min()), float(reached.max())
    steepest = int(np.argmax(np.diff(y)))
    rise = float(y[steepest + 1] - y[steepest]) / float(GRID[1] - GRID[0])
    begin = float(y[steepest + 1]) - rise * float(GRID[steepest + 1])
    # Wide ones would lose digits.
    if 0 < high - low < 200 and is_it(np.clip(rise * GRID + begin, low, high)):
        # hardsigmoid(x) is x / 6 + 0.5 between 0 and 1.
        width = high - low
        yield lambda shape: [
            *affine(shape, _number(6 * rise / width), _number(6 * (begin - low) / width - 3)),
            Made(nn.Activation("hardsigmoid")),
            *affine(shape, _number(width), _number(low)),
        ]
    for name, expected in known().items():
        share = float((expected * y).sum() / (expected * expected).sum())
        if is_it(share * expected):
            yield scaled(name, share)


def _number(value: float) -> NDArray[np.float32]:
    return np.asarray(value, np.float32)


def find_activations(graph: Graph) -> None:
    """Puts activations in the place of what computes them from one value, element by element."""

    def single(node: Node) -> bool:
        if node.op not in ELEMENTWISE:
            return False
        return all(
            graph.constants[name].size == 1 for name in node.inputs if name and name in graph.constants
        )

    def attempt(source: str, nodes: list[Node], value: str) -> list[Made] | None:
        shape = graph.sample(value)
        if shape is None or len(nodes) < 2 or not all(map(single, nodes)):
            return None
        return activation_of(graph, source, value, shape)

    # They have been compared on many numbers already, each by itself.
    _replace_largest(graph, attempt, single, lambda *_: True)


def _replace_largest(
    graph: Graph,
    attempt: Callable[[str, list[Node], str], list[Made] | None],
    allowed: Callable[[Node], bool],
    agrees: Callable[[str, str, list[Made]], bool],
) -> None:
    """Tries what ends at each value, the last first, from every value that all paths to it pass."""
    done = False
    tried: set[tuple[str, str]] = set()
    while not done:
        done = True
        for node in reversed(graph.nodes):
            if len(node.outputs) != 1 or not node.op or not allowed(node):
                continue
            for source in _sources(graph, node.outputs[0]):
                nodes = graph.between(source, node.outputs[0])
                if nodes is None or len(nodes) > 40 or not all(map(allowed, nodes)):
                    break
                if (source, node.outputs[0]) in tried:
                    continue
                tried.add((source, node.outputs[0]))
                made = attempt(source, nodes, node.outputs[0])
                if made is not None and agrees(source, node.outputs[0], made):
                    graph.replace(node.outputs[0], source, made)
                    done = False
                    break
            if not done:
                break


def _sources(graph: Graph, value: str) -> Iterator[str]:
    """Yields what all paths to a value pass, the nearest first."""
    for _ in range(12):
        before = graph.before.get(value)
        if before is None:
            return
        yield before
        value = before


def find_norms(graph: Graph) -> None:
    """Puts LayerNorm and RMSNorm in the place of what computes them."""

    def allowed(node: Node) -> bool:
        return (
            node.op in ELEMENTWISE
            or node.op in REDUCTIONS
            or node.op in ("Reshape", "Squeeze", "Unsqueeze", "Expand")
        )

    def attempt(source: str, nodes: list[Node], value: str) -> list[Made] | None:
        reductions = [node for node in nodes if node.op in REDUCTIONS]
        shape = graph.single.shapes.get(source)
        if not reductions or shape is None or graph.single.shapes.get(value) != shape or len(shape) < 2:
            return None
        if graph.sample(source) is None:
            return None
        axes = axes_of(graph, reductions[0], len(shape))
        if 0 in axes or any(axes_of(graph, node, len(shape)) != axes for node in reductions):
            return None
        return _norm(graph, source, value, nodes, axes)

    def agrees(source: str, value: str, made: list[Made]) -> bool:
        return agree(graph, source, value, made, MAGNITUDES)

    _replace_largest(graph, attempt, allowed, agrees)


def axes_of(graph: Graph, node: Node, rank: int) -> tuple[int, ...]:
    """Returns the axes that a reduction goes over, counted with that of the rows."""
    axes = node.attributes.get("axes")
    if node.op == "GlobalAveragePool":
        axes = range(2, rank)
    if axes is None and len(node.inputs) > 1 and node.inputs[1] in graph.constants:
        axes = graph.constants[node.inputs[1]].reshape(-1).tolist()
    return tuple(sorted(axis % rank for axis in axes)) if axes else tuple(range(rank))


def _norm(
    graph: Graph, source: str, value: str, nodes: list[Node], axes: tuple[int, ...]
) -> list[Made] | None:
    shape = graph.single.shapes[source] or ()
    rng, count = np.random.default_rng(0), math.prod(shape[axis] for axis in axes)
    # Small ones tell epsilons apart.
    if math.prod(shape) > 2**24:
        return None
    scales = (1, 1, 3e-2, 1e-3, 1e-4) if math.prod(shape) < 2**20 else (1, 1e-3)
    drawn = [rng.normal(size=shape) * scale for scale in scales]
    made = [computed(graph, {source: x}, value) for x in drawn]
    outputs = [y for y in made if y is not None and y.shape == shape and np.isfinite(y).all()]
    if len(outputs) != len(drawn):
        return None
    small = {
        float(graph.constants[name].reshape(-1)[0])
        for node in nodes
        for name in node.inputs
        if name in graph.constants and graph.constants[name].size == 1
    }
    small = {each for each in small if 0 < each <= 1}
    # Some norms add to the sum of squares rather than to their mean, some hold the root above a limit.
    small = {other for each in small for other in (each, each / count, each**2 / count)}
    for centred in (True, False):
        for epsilon in sorted(small, reverse=True):
            normal = []
            for x in drawn:
                rest = x - x.mean(axis=axes, keepdims=True) if centred else x
                normal.append(rest / np.sqrt((rest**2).mean(axis=axes, keepdims=True) + epsilon))
            with np.errstate(all="ignore"):
                gain, bias = _fitted(np.stack(normal), np.stack(outputs), axes)
            bias = np.where(np.abs(bias) < 1e-9, 0, bias)
            if not all(close(gain * n + bias, y, 1e-6) for n, y in zip(normal, outputs, strict=True)):
                continue
            if not centred and not bias.any() and axes == (len(shape) - 1,):
                lengths = gain * math.sqrt(count)
                if np.ptp(lengths) < 1e-6 and abs(lengths.flat[0] - 1) < 1e-6 and count > 1:
                    return [Made(nn.L2Norm(epsilon=float(f"{epsilon * count:.7g}")))]
            if centred or not bias.any():
                return _norm_layers(shape, axes, centred, float(f"{epsilon:.7g}"), gain, bias)
    return None


def _fitted(n: NDArray[Any], y: NDArray[Any], axes: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns gain and bias of every normalised element, by least squares over everything else."""
    over = tuple(axis for axis in range(n.ndim) if axis - 1 not in axes)
    mean_n, mean_y = n.mean(axis=over, keepdims=True), y.mean(axis=over, keepdims=True)
    gain = ((n - mean_n) * (y - mean_y)).sum(axis=over, keepdims=True)
    gain = gain / ((n - mean_n) ** 2).sum(axis=over, keepdims=True)
    return gain[0], (mean_y - gain * mean_n)[0]


def _norm_layers(
    shape: tuple[int, ...], axes: tuple[int, ...], centred: bool, epsilon: float, *affines: NDArray[Any]
) -> list[Made] | None:
    if not centred and len(axes) != 1:
        return None
    others = tuple(axis for axis in range(len(shape)) if axis not in axes)
    order = [*others[1:], *axes]
    back = [order.index(axis) for axis in range(1, len(shape))]
    gain, bias = (each.reshape([shape[axis] for axis in axes]) for each in affines)
    tensors = {"weight": gain, "bias": bias} if centred else {"weight": gain}
    layer: nn.Layer = (
        nn.LayerNorm(axes=len(axes), epsilon=epsilon) if centred else nn.RMSNorm(epsilon=epsilon)
    )
    turn = permuted([axis - 1 for axis in order])
    return [*turn, Made(layer, tensors), *permuted(back)] if turn else [Made(layer, tensors)]


def find_noted(graph: Graph) -> None:
    """Puts layers in the place of what loom has noted to be them, where they compute the same."""
    for node in list(graph.nodes):
        note = node.proto.doc_string if node.proto is not None else ""
        if not note.startswith(HINT) or len(note) > 2**20 or len(node.outputs) != 1:
            continue
        try:
            held = json.loads(note.removeprefix(HINT))
            # Files of loom 0.1 have the layer alone.
            config, path = held.get("layer", held), f"{held.get('path', '')}."
            layer = layer_from_config(config) if config["type"] in HINTED | HOLDING else None
        except (AttributeError, ValueError, KeyError, TypeError, RecursionError):
            continue
        if layer is not None:
            tensors = {
                name.removeprefix(path): values
                for name, values in graph.constants.items()
                if config["type"] in HOLDING
                and name.startswith(path)
                and not name.endswith((".int8", ".scale"))
            }
            # A note must not ask for more memory than the file brings.
            most = max([64, *(extent for values in tensors.values() for extent in values.shape)])
            # Numbers of a formula are no extents.
            said = str({name: value for name, value in config.items() if name != "expression"})
            if all(not number.isdigit() or int(number) <= most for number in re.findall(r"[\w.]+", said)):
                _noted(graph, node.outputs[0], Made(layer, tensors))


def _noted(graph: Graph, value: str, made: Made) -> None:
    # The farthest: what takes the largest element away first makes the same of what follows that.
    found: str | None = None
    for source in _sources(graph, value):
        shape = graph.sample(source)
        if shape is None or graph.rows_axis(source) != 0 or graph.between(source, value) is None:
            continue
        # But for what only moves elements, which may be what a recurrent layer before it ends in.
        nearer = None if found is None else graph.between(source, found)
        if nearer and all(is_movement(graph, node) for node in nearer):
            continue
        if agree(graph, source, value, [made]):
            found = source
    if found is not None:
        graph.replace(value, found, [made])


def find_indices(graph: Graph) -> None:
    """Leaves out what makes places in a table of whole numbers that are such places already."""
    for node in list(graph.nodes):
        table = graph.constants.get(node.inputs[0]) if node.op == "Gather" else None
        if table is None or table.ndim != 2 or node.attributes.get("axis", 0) or node not in graph.nodes:
            continue
        places = np.arange(len(table))
        for source in _sources(graph, node.inputs[1]):
            between = graph.between(source, node.inputs[1])
            if between is None or not all(each.op in ELEMENTWISE for each in between):
                break
            for dtype in (np.int64, np.int32, np.float32):
                made = computed(graph, {source: places.astype(dtype)}, node.inputs[1])
                if made is not None and np.array_equal(made, places):
                    node.inputs[1] = source
                    graph.refresh()
                    break
