"""Layers of sequences: recurrence, attention, embeddings, positions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom import nn
from loom.models.angles import turning_rates
from loom.models.distances import bias_rows, slope_biases
from loom.models.onnx.exporting.graph import Graph
from loom.models.onnx.exporting.layers import bias_of, root_mean_square
from loom.models.onnx.exporting.scope import Scope, Unsayable, exports

__all__: list[str] = []

HIDDEN = np.float32(-1e30)
"""The score of what may not be seen: finite, so that a step which sees nothing has no NaN."""


@exports("embedding")
def embedding(scope: Scope, x: str) -> str:
    """A row of the table for each number."""
    places = scope.graph.add("Cast", x, to=7)
    return scope.graph.add("Gather", scope.weight("weight"), places, axis=0)


@exports("tied_head")
def tied_head(scope: Scope, x: str) -> str:
    """Products with an embedding's table, or with one of its own."""
    owner = scope
    while owner.layer.kind == "tied_head" and owner.layer.tied_to is not None:
        owner = scope.at(scope.of[tuple(owner.layer.tied_to)])
    return scope.linear(x, owner.weight("weight"), None, flat=len(scope.shape) == 1)


@exports("positional_embedding")
def positions(scope: Scope, x: str) -> str:
    """A trained vector added to each step."""
    return scope.graph.add("Add", x, scope.bake("weight", scope.values("weight")[: scope.shape[0]]))


@exports("sinusoidal_positions")
def waves(scope: Scope, x: str) -> str:
    """Sines at even and cosines at odd elements."""
    time, width = scope.shape
    element = np.arange(width)
    angles = np.arange(time)[:, None] * scope.layer.base ** (-2.0 * (element // 2) / width)
    return scope.graph.add(
        "Add", x, scope.graph.constant(np.where(element % 2 == 0, np.sin(angles), np.cos(angles)))
    )


# Where ONNX has each of loom's gates.
GATES = {"rnn": (0,), "lstm": (0, 3, 1, 2), "gru": (1, 0, 2)}


@exports("rnn", "lstm", "gru")
def recurrent(scope: Scope, x: str) -> str:
    """A stack, in one direction or in both: one node for each layer of it."""
    if scope.mask is not None:
        raise Unsayable("ONNX's recurrent operators cannot hold their state over padding inside a sequence")
    layer, graph = scope.layer, scope.graph
    directions = ["", "_reverse"] if layer.bidirectional else [""]
    settings: dict[str, Any] = {"hidden_size": layer.units}
    settings["direction"] = "bidirectional" if layer.bidirectional else "forward"
    if layer.kind == "rnn":
        settings["activations"] = [layer.activation.capitalize()] * len(directions)
    if layer.kind == "gru":
        settings["linear_before_reset"] = int(layer.reset_after)
    op, last = layer.kind.upper(), layer.layers - 1
    for number in range(layer.layers):
        names = [f"l{number}{direction}" for direction in directions]
        weights = [
            scope.bake(f"{what}_l{number}", np.stack([_gates(scope, f"{what}_{name}") for name in names]))
            for what in ("weight_ih", "weight_hh")
        ]
        bias = ""
        if layer.bias:
            both = [
                np.concatenate([_gates(scope, f"bias_{part}_{name}") for part in ("ih", "hh")])
                for name in names
            ]
            bias = scope.bake(f"bias_l{number}", np.stack(both))
        states = _states(scope, x, number, len(directions))
        read = [graph.transpose(x, 1, 0, 2), *weights, bias, "", *states]
        while not read[-1]:
            read.pop()
        outputs, ends = graph.several(op, *read, outputs=2, **settings)[:2]
        width = layer.units * len(directions)
        if number == last and not layer.return_sequences:
            return graph.reshape(graph.transpose(ends, 1, 0, 2), (width,))
        x = graph.reshape(graph.transpose(outputs, 2, 0, 1, 3), (scope.shape[0], width))
    return x


def _gates(scope: Scope, name: str) -> NDArray[np.float32]:
    """Returns a parameter with its gates in ONNX's order."""
    order = GATES[scope.layer.kind]
    parts = np.split(scope.values(name), len(order))
    return np.concatenate([parts[gate] for gate in order])


def _states(scope: Scope, x: str, number: int, directions: int) -> list[str]:
    """Writes what a layer of the stack starts from: (directions, rows, units), for an LSTM's two states."""
    layer, graph = scope.layer, scope.graph
    count = 2 if layer.kind == "lstm" else 1
    if layer.initial_state == "learned":
        values = scope.values(f"state_l{number}").reshape(directions, count, 1, layer.units)
        extents = graph.add(
            "Concat", graph.whole([directions]), graph.rows_of(x), graph.whole([layer.units]), axis=0
        )
        return [
            graph.add("Expand", scope.bake(f"state_l{number}.{part}", values[:, part]), extents)
            for part in range(count)
        ]
    if layer.initial_state == "context" and scope.context is not None:
        parts = graph.reshape(scope.context.value, (layer.layers, directions, count, layer.units))
        of_layer = graph.add("Gather", parts, graph.whole(number), axis=1)
        return [
            graph.transpose(graph.add("Gather", of_layer, graph.whole(part), axis=2), 1, 0, 2)
            for part in range(count)
        ]
    return []


@exports("multi_head_attention")
def attention(scope: Scope, x: str) -> str:
    """Every step's mean of values, weighted by a softmax of its query with the keys."""
    layer, graph = scope.layer, scope.graph
    time, width = scope.shape
    seen, seen_time = x, time
    if layer.cross and scope.context is not None:
        seen, seen_time = scope.context.value, scope.context.shape[0]
    head_dim = layer.head_dim or width // layer.heads
    groups = layer.key_value_heads or layer.heads

    def heads(name: str, x: str, time: int, count: int) -> str:
        y = scope.linear(x, scope.weight(f"{name}_weight"), bias_of(scope, f"{name}_bias"), flat=False)
        if layer.qk_norm == "width" and name != "value":
            y = root_mean_square(scope, y, layer.qk_norm_epsilon, scope.weight(f"{name}_gain"))
        y = graph.transpose(graph.reshape(y, (time, count, head_dim)), 0, 2, 1, 3)
        if name == "value":
            return y
        if layer.qk_norm is True:
            y = root_mean_square(scope, y, layer.qk_norm_epsilon, scope.weight(f"{name}_gain"))
        return _turned(scope, y, time, head_dim) if layer.rotary is not None else y

    queries = heads("query", x, time, layer.heads)
    keys, values = heads("key", seen, seen_time, groups), heads("value", seen, seen_time, groups)
    if groups != layer.heads:
        repeated = graph.whole([head // (layer.heads // groups) for head in range(layer.heads)])
        keys, values = (graph.add("Gather", each, repeated, axis=1) for each in (keys, values))
    scores = graph.add("MatMul", queries, graph.transpose(keys, 0, 1, 3, 2))
    scores = graph.add("Mul", scores, graph.constant(head_dim**-0.5 if layer.scale is None else layer.scale))
    if isinstance(layer.position_bias, nn.RelativeBias):
        rows = graph.whole(bias_rows(layer.position_bias, layer.causal, time, time).tolist())
        added = graph.add("Gather", scope.weight("relative_bias"), rows, axis=0)
        scores = graph.add("Add", scores, graph.add("Transpose", added, perm=[2, 0, 1]))
    elif layer.position_bias is not None:
        scores = graph.add("Add", scores, graph.constant(slope_biases(layer.heads, time, time)))
    if layer.soft_cap is not None:
        scores = capped(graph, scores, layer.soft_cap)
    weights = _weighed(scope, scores, _kept(layer, time, seen_time))
    gathered = graph.transpose(graph.add("MatMul", weights, values), 0, 2, 1, 3)
    gathered = graph.reshape(gathered, (time, layer.heads * head_dim))
    biased = layer.bias if layer.output_bias is None else layer.output_bias
    bias = scope.weight("output_bias") if biased else None
    y = scope.linear(gathered, scope.weight("output_weight"), bias, flat=False)
    if scope.mask is None:
        return y
    return graph.add("Where", graph.reshape(scope.mask, (time, 1)), y, graph.constant(0.0))


def _turned(scope: Scope, x: str, time: int, extent: int) -> str:
    """Turns each pair of a head's elements by its angle."""
    graph, rotary = scope.graph, scope.layer.rotary
    whole, extent = extent, rotary.dim or extent
    rates, factor = turning_rates(rotary, extent)
    angle = np.arange(time)[:, None] * rates
    cosine, sine, element = factor * np.cos(angle), factor * np.sin(angle), np.arange(extent)
    if rotary.layout == "interleaved":
        partner = element ^ 1
        cosines, sines = np.repeat(cosine, 2, axis=1), np.stack([-sine, sine], axis=2).reshape(time, extent)
    else:
        partner = (element + extent // 2) % extent
        cosines, sines = np.concatenate([cosine, cosine], axis=1), np.concatenate([-sine, sine], axis=1)
    if extent < whole:
        # The elements behind them stay as they are.
        still = np.ones((time, whole - extent))
        cosines, sines = np.concatenate([cosines, still], axis=1), np.concatenate([sines, 0 * still], axis=1)
        partner = np.concatenate([partner, np.arange(extent, whole)])
    other = graph.add("Gather", x, graph.whole(partner.tolist()), axis=-1)
    return graph.add(
        "Add",
        graph.add("Mul", x, graph.constant(cosines)),
        graph.add("Mul", other, graph.constant(sines)),
    )


def _kept(layer: Any, time: int, seen: int) -> NDArray[np.bool_]:  # noqa: ANN401 - an attention layer
    """Returns who may see whom, by the settings."""
    asking, asked = np.arange(time)[:, None], np.arange(seen)
    keep = np.ones((time, seen), bool)
    if layer.causal:
        keep &= asked <= asking
    if layer.window is not None:
        keep &= np.abs(asked - asking) < layer.window
    if layer.mask is not None:
        keep &= np.array(layer.mask, bool)[:time, :seen]
    return keep


def _weighed(scope: Scope, scores: str, keep: NDArray[np.bool_]) -> str:
    """The softmax over what each step may see; all zero where that is nothing."""
    graph = scope.graph
    padded = scope.mask is not None and not scope.layer.cross
    if keep.all() and not padded:
        return graph.add("Softmax", scores, axis=-1)
    everyone = graph.constant(keep, "bool")
    if padded and scope.mask is not None:
        everyone = graph.add("And", everyone, graph.reshape(scope.mask, (1, 1, keep.shape[1])))
    weights = graph.add("Softmax", graph.add("Where", everyone, scores, graph.constant(HIDDEN)), axis=-1)
    if keep.any(axis=1).all() and not padded:
        return weights
    return graph.add("Where", everyone, weights, graph.constant(0.0))


def capped(graph: Graph, x: str, cap: float) -> str:
    """Holds values between plus and minus a cap."""
    limit = graph.constant(cap)
    return graph.add("Mul", graph.add("Tanh", graph.add("Div", x, limit)), limit)


@exports("soft_cap")
def soft_cap(scope: Scope, x: str) -> str:
    """Held between plus and minus a cap."""
    return capped(scope.graph, x, scope.layer.cap)


@exports("scale")
def scale(scope: Scope, x: str) -> str:
    """A fixed factor."""
    return scope.graph.add("Mul", x, scope.graph.constant(scope.layer.factor))


@exports("l2_norm")
def unit_length(scope: Scope, x: str) -> str:
    """Vectors of length 1."""
    graph = scope.graph
    squares = graph.reduce("ReduceSum", graph.add("Mul", x, x), -1)
    length = graph.add("Sqrt", graph.add("Add", squares, graph.constant(scope.layer.epsilon)))
    return graph.add("Div", x, length)


@exports("class_token")
def class_token(scope: Scope, x: str) -> str:
    """Trained steps, then the sequence."""
    graph, values = scope.graph, scope.values("weight")
    extents = graph.add("Concat", graph.rows_of(x), graph.whole(list(values.shape)), axis=0)
    first = graph.add("Expand", scope.bake("weight", values[None]), extents)
    return graph.add("Concat", first, x, axis=1)


@exports("sequence_pool")
def sequence_pool(scope: Scope, x: str) -> str:
    """The first step, the last one, or the mean of all; of those that are real inside Masked."""
    graph, steps, (time, width) = scope.graph, scope.layer.steps, scope.shape
    if scope.mask is None:
        if steps == "mean":
            return graph.reshape(graph.reduce("ReduceMean", x, 1), (width,))
        return graph.add("Gather", x, graph.whole(0 if steps == "first" else time - 1), axis=1)
    real = graph.add("Cast", scope.mask, to=1)
    if steps != "mean":
        # The real step whose place, counted from the other end, is the largest.
        places = np.arange(1, time + 1) if steps == "last" else np.arange(time, 0, -1)
        ranked = graph.add("Mul", real, graph.constant(places))
        most = graph.add("Max", graph.reduce("ReduceMax", ranked, 1), graph.constant([[1.0]]))
        real = graph.add("Cast", graph.add("Equal", ranked, most), to=1)
    weights = graph.reshape(real, (time, 1))
    total = graph.reduce("ReduceSum", graph.add("Mul", x, weights), 1)
    count = graph.add("Max", graph.reduce("ReduceSum", weights, 1), graph.constant([[[1.0]]]))
    return graph.reshape(graph.add("Div", total, count), (width,))


@exports("mixture_of_experts")
def experts(scope: Scope, x: str) -> str:
    """Every expert's result, times its share where it is chosen and 0 where not."""
    layer, graph = scope.layer, scope.graph
    flat, axis = len(scope.shape) == 1, len(scope.shape)

    def expert(prefix: str, number: int | None) -> str:
        def product(name: str, read: str) -> str:
            stored = scope.weight(f"{prefix}{name}_weight")
            if number is not None:
                stored = graph.add("Gather", stored, graph.whole(number), axis=0)
            return scope.linear(read, stored, None, flat=flat)

        up = product("up", x)
        if layer.gated:
            up = graph.add("Mul", graph.activate(layer.activation, product("gate", x)), up)
        else:
            up = graph.activate(layer.activation, up)
        return product("down", up)

    logits = scope.linear(x, scope.weight("router_weight"), None, flat=flat)
    best, places = graph.several("TopK", logits, graph.whole([layer.top_k]), outputs=2, axis=-1)
    if layer.normalize:
        shares = graph.add("Softmax", best, axis=-1)
    else:
        shares = graph.add("GatherElements", graph.add("Softmax", logits, axis=-1), places, axis=axis)
    nothing = graph.add("Mul", logits, graph.constant(0.0))
    gates = graph.split(graph.add("ScatterElements", nothing, places, shares, axis=axis), [1] * layer.experts)
    parts = [graph.add("Mul", gate, expert("", number)) for number, gate in enumerate(gates)]
    if layer.shared_units:
        shared = expert("shared_", None)
        if layer.shared_gate:
            opened = scope.linear(x, scope.weight("shared_router_weight"), None, flat=flat)
            shared = graph.add("Mul", graph.add("Sigmoid", opened), shared)
        parts.append(shared)
    return graph.add("Sum", *parts)
