"""ONNX's recurrent operators, with what brings steps to the front and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom import nn
from loom.models.onnx.importing.checking import accept
from loom.models.onnx.importing.graph import Graph, Made, Node, is_movement

__all__ = ["find_recurrence"]

KINDS: dict[str, Any] = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}
# Where loom has each of ONNX's gates.
GATES = {"RNN": (0,), "LSTM": (0, 2, 3, 1), "GRU": (1, 0, 2)}
USUAL = {"LSTM": [b"Sigmoid", b"Tanh", b"Tanh"], "GRU": [b"Sigmoid", b"Tanh"]}


def find_recurrence(graph: Graph) -> list[str]:
    """Puts LSTM, GRU and RNN in the place of ONNX's; returns why some are none of loom's."""
    reasons = []
    for node in list(graph.nodes):
        if node.op in KINDS and node in graph.nodes:
            why = _recurrent(graph, node)
            if why:
                reasons.append(f'{node.op} "{node.name}": {why}')
    return reasons


def _input(graph: Graph, node: Node) -> str | None:
    """Returns the sequences that a node reads, a row each."""
    value = node.inputs[0]
    extents = graph.single.shapes.get(value) or ()
    if len(extents) != 3:
        return None
    time = extents[1] if node.attributes.get("layout") else extents[0]
    for _ in range(8):
        if graph.sample(value) == (time, extents[2]):
            moved = (
                graph.moved(value, node.inputs[0])
                if value != node.inputs[0]
                else np.arange(math.prod(extents))
            )
            if np.array_equal(moved.reshape(-1), np.arange(moved.size)):
                return value
        before = graph.producer.get(value)
        if before is None or not is_movement(graph, before):
            return None
        value = graph.data(before)[0]
    return None


def _recurrent(graph: Graph, node: Node) -> str | None:
    settings, op = node.attributes, node.op
    inputs = [*node.inputs, *[""] * (8 - len(node.inputs))]
    outputs = [*node.outputs, *[""] * (3 - len(node.outputs))]
    directions = {b"forward": 1, b"bidirectional": 2}.get(settings.get("direction", b"forward"))
    if directions is None:
        return "loom has no layer that reads a sequence from its end alone"
    activations = list(settings.get("activations") or USUAL.get(op, [b"Tanh"]) * directions)
    kinds = [USUAL[op] * directions] if op in USUAL else [[b"Tanh"] * directions, [b"Relu"] * directions]
    named = [each.capitalize() for each in activations]
    if named not in kinds or settings.get("clip") or settings.get("input_forget"):
        return "its activations are not those of loom's layer"
    given = [graph.constant(inputs[place]) if inputs[place] else None for place in (1, 2, 3)]
    if (
        given[0] is None
        or given[1] is None
        or (inputs[3] and given[2] is None)
        or (op == "LSTM" and inputs[7])
    ):
        return "its weights are not constant, or it has peepholes"
    source = _input(graph, node)
    if source is None:
        return "what it reads is no sequence with rows first"
    time = (graph.sample(source) or (0,))[0]
    lengths = graph.constants.get(inputs[4]) if inputs[4] else None
    if inputs[4] and (lengths is None or (lengths != time).any()):
        return "sequences of different lengths are for Masked to say, which differs"
    units = given[1].shape[-1]
    tensors = _tensors(op, directions, given[0], given[1], given[2])
    states = _states(graph, inputs, op, directions, units, bool(settings.get("layout")))
    if isinstance(states, str):
        return states
    read = [name for name in outputs if name and (graph.consumers.get(name) or name == graph.output)]
    if len(read) != 1 or read[0] == outputs[2]:
        return "more than one of its outputs is used, or its cell state"
    end, sequences = _end(graph, read[0], read[0] == outputs[0], directions, time, units)
    if end is None:
        return "what is done with its output is not read"
    more: dict[str, Any] = {"activation": named[0].decode().lower()} if op == "RNN" else {}
    if op == "GRU":
        more["reset_after"] = bool(settings.get("linear_before_reset"))
    if states is not None:
        more["initial_state"], tensors["state_l0"] = "learned", states
    layer = KINDS[op](
        units, bidirectional=directions == 2, return_sequences=sequences, bias=given[2] is not None, **more
    )
    # ONNX's evaluator does not know every form of these.
    if not accept(graph, end, source, [Made(layer, tensors)], (0.1, 1.0, 8.0), unknown=True):
        return "loom's layer computes something else"
    return None


def _tensors(op: str, directions: int, *given: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
    order = GATES[op]

    def gates(values: NDArray[Any]) -> NDArray[Any]:
        parts = np.split(values, len(order))
        return np.concatenate([parts[gate] for gate in order])

    tensors = {}
    for direction in range(directions):
        end = "l0_reverse" if direction else "l0"
        for name, values in zip(("weight_ih", "weight_hh"), given[:2], strict=True):
            if values is not None:
                tensors[f"{name}_{end}"] = gates(values[direction])
        if given[2] is not None:
            both = np.split(given[2][direction], 2)
            tensors |= {
                f"{name}_{end}": gates(part) for name, part in zip(("bias_ih", "bias_hh"), both, strict=True)
            }
    return tensors


def _states(
    graph: Graph, inputs: list[str], op: str, directions: int, units: int, first: bool
) -> NDArray[Any] | str | None:
    """Returns what it starts from, where that is not zeros."""
    parts = []
    for name in inputs[5:7] if op == "LSTM" else inputs[5:6]:
        value = graph.constants.get(name) if name else np.zeros((directions, 1, units), np.float32)
        if value is None:
            return "its initial state is not constant"
        value = np.asarray(value).swapaxes(0, 1) if first and name else value
        if (value != value[:, :1]).any():
            return "its initial state differs from row to row"
        parts.append(value[:, 0])
    state = np.stack(parts, axis=1)
    return state if state.any() else None


def _end(
    graph: Graph, value: str, every: bool, directions: int, time: int, units: int
) -> tuple[str | None, bool]:
    """Returns the value with rows first that the output becomes, and whether that has every step."""
    d, t, h = np.meshgrid(np.arange(directions), np.arange(time), np.arange(units), indexing="ij")
    # Where (step, direction, unit) stands in the output, for one row.
    places = (t * directions + d) * units + h
    sequences = places.transpose(1, 0, 2).reshape(time, -1)
    ends = np.concatenate([sequences[-1, :units], sequences[0, units:]])
    last = np.arange(directions * units) if not every else ends
    found: tuple[str | None, bool] = (None, True)
    for end in _reached(graph, value):
        shape = graph.sample(end)
        if shape not in (sequences.shape, last.shape):
            continue
        moved = graph.moved(value, end).reshape(-1)
        if np.array_equal(moved, last) and shape == last.shape:
            return end, False
        if (
            every
            and found[0] is None
            and shape == sequences.shape
            and np.array_equal(moved, sequences.reshape(-1))
        ):
            found = (end, True)
    return found


def _reached(graph: Graph, value: str) -> list[str]:
    """Returns a value, and what is made of it alone by movements."""
    reached = {value: None}
    for node in graph.nodes:
        data = graph.data(node)
        moves = is_movement(graph, node) or (node.op == "Concat" and len(data) == len(node.inputs))
        if moves and all(name in reached for name in data):
            reached |= dict.fromkeys(node.outputs)
    return list(reached)
