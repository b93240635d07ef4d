"""Products with a constant, however their elements are arranged afterwards; gated layers made of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from loom import nn
from loom.models.onnx.importing.checking import accept
from loom.models.onnx.importing.graph import Graph, Made, Node, is_movement

__all__ = ["Projection", "chosen", "find_gates", "following", "origin", "projection"]


@dataclass
class Projection:
    """`x W^T + b`.

    Args:
        source: The value x.
        value: The result.
        weight: (units, features).
        bias: (units,); None without.
    """

    source: str
    value: str
    weight: NDArray[np.float32]
    bias: NDArray[np.float32] | None


def origin(graph: Graph, value: str) -> str:
    """Returns the first value whose samples are these, in the same order of elements and extents."""
    shape = graph.sample(value)
    while True:
        node = graph.producer.get(value)
        if node is None or node.op not in ("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
            return value
        before = graph.data(node)[0]
        if graph.sample(before) != shape:
            return value
        value = before


def projection(graph: Graph, value: str) -> Projection | None:
    """Returns the product that makes a value, with a bias that is added to it; None where none does."""
    node = graph.producer.get(value)
    if node is None:
        return None
    bias: NDArray[np.float32] | None = None
    if node.op == "Add" and len(graph.data(node)) == 1:
        (added,) = (graph.constant(name) for name in node.inputs if name in graph.constants)
        shape = graph.sample(value)
        if added is None or shape is None or added.size != shape[-1] or added.shape[-1:] != shape[-1:]:
            return None
        bias = np.asarray(added, np.float32).reshape(-1)
        node = graph.producer.get(origin(graph, graph.data(node)[0]))
    if node is None or node.op not in ("MatMul", "Gemm") or graph.data(node) != node.inputs[:1]:
        return None
    weight = graph.constant(node.inputs[1])
    if weight is None or weight.ndim != 2 or node.attributes.get("transA"):
        return None
    weight = np.asarray(weight if node.attributes.get("transB") else weight.T, np.float32)
    weight = weight * np.float32(node.attributes.get("alpha", 1.0))
    if len(node.inputs) > 2 and node.inputs[2]:
        own = np.asarray(graph.constant(node.inputs[2]), np.float32) * np.float32(
            node.attributes.get("beta", 1.0)
        )
        own = np.broadcast_to(own.reshape(-1), weight.shape[:1])
        bias = own if bias is None else bias + own
    return Projection(origin(graph, node.inputs[0]), value, weight, bias)


def following(graph: Graph, value: str) -> tuple[str, Projection] | None:
    """Returns the product that a value goes into, elements arranged otherwise at most, and what it reads."""
    for _ in range(12):
        readers = graph.consumers.get(value, [])
        if len(readers) != 1 or value == graph.output:
            return None
        node = readers[0]
        if node.op in ("MatMul", "Gemm"):
            after = node.outputs[0]
            made = projection(graph, after)
            # A bias may come at once, or once rows have their extents again.
            last = after
            for _ in range(2):
                readers = graph.consumers.get(last, [])
                if len(readers) != 1 or last == graph.output or readers[0].op not in ("Add", "Reshape"):
                    break
                last = readers[0].outputs[0]
                whole = projection(graph, last)
                if whole is not None:
                    return value, whole
            return None if made is None else (value, made)
        if not is_movement(graph, node):
            return None
        value = node.outputs[0]
    return None


def chosen(graph: Graph, value: str) -> Projection | None:
    """Returns the product that a value is some of the units of."""
    end = value
    while projection(graph, value) is None:
        node = graph.producer.get(value)
        if node is None or not is_movement(graph, node):
            return None
        value = graph.data(node)[0]
    found = projection(graph, value)
    before, after = graph.sample(value), graph.sample(end)
    if found is None or value == end or before is None or after is None:
        return found
    places = graph.moved(value, end).reshape(-1, after[-1])
    units = places[0]
    if before[:-1] != after[:-1] or (places != units + before[-1] * np.arange(len(places))[:, None]).any():
        return None
    return Projection(
        found.source, end, found.weight[units], None if found.bias is None else found.bias[units]
    )


def find_gates(graph: Graph) -> None:
    """Puts SwiGLU and GeGLU in the place of what computes them."""
    for node in list(graph.nodes):
        if node.op == "Mul" and len(set(graph.data(node))) == 2 and node in graph.nodes:
            _gate(graph, node)


def _gate(graph: Graph, node: Node) -> None:
    after = following(graph, node.outputs[0])
    if after is None:
        return
    down = after[1]
    for first, up_value in (node.inputs, node.inputs[::-1]):
        bent = graph.producer.get(first)
        if bent is None or len(bent.made) != 1 or not isinstance(bent.made[0].layer, nn.Activation):
            continue
        kinds = {"silu": nn.SwiGLU, "gelu": nn.GeGLU}
        function = bent.made[0].layer.function
        gate, up = chosen(graph, bent.inputs[0]), chosen(graph, up_value)
        if gate is None or up is None or gate.source != up.source:
            continue
        if down.weight.shape[0] != gate.weight.shape[1] or graph.sample(down.value) != graph.sample(
            gate.source
        ):
            continue
        parts = {"gate": gate, "up": up, "down": down}
        bias = any(part.bias is not None for part in parts.values())
        hidden = len(gate.weight)
        if function in kinds:
            layer = kinds[function](hidden, bias=bias)
        else:
            layer = nn.SwiGLU(hidden, bias=bias, activation=function)
        tensors = {f"{name}_weight": part.weight for name, part in parts.items()}
        if bias:
            for name, part in parts.items():
                zeros = np.zeros(part.weight.shape[0], np.float32)
                tensors[f"{name}_bias"] = zeros if part.bias is None else part.bias
        if accept(graph, down.value, gate.source, [Made(layer, tensors)]):
            return
