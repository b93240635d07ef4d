"""Softmax and its kin."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from loom.models.onnx.exporting.graph import Graph
from loom.models.onnx.exporting.scope import Scope, exports

__all__: list[str] = []


@exports("softmax", "gumbel_softmax")
def softmax(scope: Scope, x: str) -> str:
    """Over the last axis, or the channels of images."""
    axis = 1 if scope.layer.kind == "softmax" and len(scope.shape) == 3 else -1
    if scope.layer.temperature != 1.0:
        x = scope.graph.add("Div", x, scope.graph.constant(scope.layer.temperature))
    return scope.graph.add("Softmax", x, axis=axis)


@exports("grid_softmax")
def grid(scope: Scope, x: str) -> str:
    """Over each row of a grid."""
    rows = scope.graph.reshape(x, (*scope.shape[:-1], scope.layer.rows, scope.layer.columns))
    return scope.graph.reshape(scope.graph.add("Softmax", rows, axis=-1), scope.shape)


@exports("hierarchical_softmax")
def hierarchical(scope: Scope, x: str) -> str:
    """`p(group) p(leaf in group)`."""
    layer, graph = scope.layer, scope.graph
    whole = isinstance(layer.leaves, int)
    counts = [layer.leaves // layer.groups] * layer.groups if whole else list(layer.leaves)
    first, *parts = graph.split(x, [layer.groups, *counts])
    shares = graph.split(graph.add("Softmax", first, axis=-1), [1] * layer.groups)
    return _joined(graph, [], shares, parts)


@exports("adaptive_softmax")
def adaptive(scope: Scope, x: str) -> str:
    """Frequent words and clusters first, then the words of each cluster."""
    cutoffs, graph = list(scope.layer.cutoffs), scope.graph
    words = scope.shape[-1] - len(cutoffs)
    counts = [high - low for low, high in pairwise([*cutoffs, words])]
    first, *parts = graph.split(x, [cutoffs[0] + len(cutoffs), *counts])
    short, *shares = graph.split(graph.add("Softmax", first, axis=-1), [cutoffs[0], *[1] * len(cutoffs)])
    return _joined(graph, [short], shares, parts)


def _joined(graph: Graph, before: list[str], shares: list[str], parts: list[str]) -> str:
    made = [
        graph.add("Mul", share, graph.add("Softmax", part, axis=-1))
        for share, part in zip(shares, parts, strict=True)
    ]
    return graph.add("Concat", *before, *made, axis=-1)


@exports("mixture_softmax")
def mixture(scope: Scope, x: str) -> str:
    """Several, weighted by another."""
    graph, count, shape = scope.graph, scope.layer.components, scope.shape
    first, rest = graph.split(x, [count, shape[-1] - count])
    shares = graph.add("Softmax", first, axis=-1)
    classes = shape[-1] // count - 1
    each = graph.add("Softmax", graph.reshape(rest, (*shape[:-1], count, classes)), axis=-1)
    weighted = graph.add("Mul", graph.reshape(shares, (*shape[:-1], count, 1)), each)
    return graph.reshape(graph.reduce("ReduceSum", weighted, -2), (*shape[:-1], classes))


@exports("masked_softmax")
def masked(scope: Scope, x: str) -> str:
    """Over what masks leave: fixed ones over the classes, and the padding of sequences."""
    layer, graph, rank = scope.layer, scope.graph, len(scope.shape)
    axis = 1 if layer.axis == 0 else rank
    keep = None
    if layer.mask is not None:
        extents = [1] * (rank + 1)
        extents[axis] = -1
        keep = graph.constant(np.array(layer.mask).reshape(extents), "bool")
    if scope.mask is not None:
        real = graph.reshape(scope.mask, (scope.shape[0], *[1] * (rank - 1)))
        keep = real if keep is None else graph.add("And", keep, real)
    if keep is None:
        return graph.add("Softmax", x, axis=axis)
    hidden = graph.constant(np.float32(-1e30))
    powers = graph.add("Softmax", graph.add("Where", keep, x, hidden), axis=axis)
    return graph.add("Where", keep, powers, graph.constant(0.0))


@exports("sparsemax", "entmax")
def sparse(scope: Scope, x: str) -> str:
    """`max(0, (alpha - 1) x - tau) ^ (1 / (alpha - 1))`; tau by bisection, as the engine finds it."""
    graph = scope.graph
    alpha = 2.0 if scope.layer.kind == "sparsemax" else scope.layer.alpha
    power = 1.0 / (alpha - 1.0)
    z = graph.add("Sub", x, graph.reduce("ReduceMax", x, -1))
    z = graph.add("Mul", z, graph.constant(alpha - 1.0)) if alpha != 2.0 else z

    def powers(tau: str) -> tuple[str, str]:
        y = graph.add("Relu", graph.add("Sub", z, tau))
        y = graph.add("Pow", y, graph.constant(power)) if power != 1.0 else y
        return y, graph.reduce("ReduceSum", y, -1)

    # Tau lies between -1 and 0; the step is halved, and taken where the sum stays at least one.
    tau = graph.add("Mul", graph.reduce("ReduceMax", z, -1), graph.constant(0.0))
    tau = graph.add("Sub", tau, graph.constant(1.0))
    for halving in range(1, 29):
        further = graph.add("Add", tau, graph.constant(0.5**halving))
        enough = graph.add("GreaterOrEqual", powers(further)[1], graph.constant(1.0))
        tau = graph.add("Where", enough, further, tau)
    y, total = powers(tau)
    return graph.add("Div", y, total)
