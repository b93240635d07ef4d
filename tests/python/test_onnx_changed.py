"""Models that are nearly what loom knows: read as what they compute, or refused; never as something else."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import loom
from loom import nn
from loom.models.onnx import load
from loom.models.onnx.export import onnx_model

GOLDEN = Path(__file__).parents[1] / "golden" / "onnx"
SOAK = os.environ.get("LOOM_SOAK") == "1"
ROTARY = nn.Rotary(base=500_000, layout="half_split")
NETWORKS: dict[str, tuple[list[nn.Layer], tuple[int, ...]]] = {
    "attention": ([nn.MultiHeadAttention(2)], (4, 4)),
    "causal": ([nn.MultiHeadAttention(2, causal=True, window=2, bias=False)], (4, 6)),
    "rotary": ([nn.MultiHeadAttention(2, key_value_heads=1, rotary=ROTARY, soft_cap=4.0)], (5, 16)),
    "heads_normed": ([nn.MultiHeadAttention(2, qk_norm=True, rotary=nn.Rotary())], (3, 8)),
    "norms": ([nn.Dense(4), nn.LayerNorm(), nn.RMSNorm(), nn.L2Norm()], (3, 4)),
    "gates": ([nn.SwiGLU(6), nn.GeGLU(5)], (2, 4)),
    "activations": (
        [nn.Dense(4, activation="gelu"), nn.Activation("hardswish"), nn.Activation("mish"), nn.SoftCap(3.0)],
        (4,),
    ),
    "softmaxes": ([nn.Dense(6), nn.HierarchicalSoftmax(leaves=4, groups=2)], (3, 5)),
    "recurrent": ([nn.LSTM(3, return_sequences=True), nn.GRU(4, bidirectional=True)], (4, 3)),
    "images": (
        [nn.Conv2D(4, 3, activation="relu"), nn.MaxPool2D(2), nn.GroupNorm(2), nn.GlobalAvgPool2D()],
        (2, 6, 6),
    ),
    "branches": ([nn.Residual([nn.LayerNorm(), nn.Dense(4)]), nn.Flatten(), nn.Dense(3)], (4, 4)),
}
BENT = ["Tanh", "Clip", "Relu", "Abs", "Min", "Max", "Sigmoid", "Neg", "Mul", "Add", "Pow", "Exp"]
BENT += ["Softmax", "Transpose"]


def model_of(name: str) -> Any:
    if name not in NETWORKS:
        model = onnx.load(GOLDEN / f"{name}.onnx")
        return onnx.inliner.inline_local_functions(model) if model.functions else model
    layers, shape = NETWORKS[name]
    net = loom.Sequential(layers, input_shape=shape, seed=1).build()
    rng = np.random.default_rng(0)
    for layer in net.layers:
        for key, values in layer.parameters.items():
            layer[key] = values + 0.1 * rng.normal(size=values.shape).astype(np.float32)
    return onnx_model(net)


def insert(model: Any, rng: np.random.Generator) -> None:
    """Puts an operator behind a node."""
    node = model.graph.node[rng.integers(len(model.graph.node))]
    (value, made), op = (node.output[0], "changed.1"), str(rng.choice(BENT))
    number = np.array(rng.choice([-1.0, 0.5, 0.9, 1.001, 2.0, 5.0, 30.0, 1e3]), np.float32)
    extra = {"Clip": 2, "Min": 1, "Max": 1, "Mul": 1, "Add": 1, "Pow": 1}.get(op, 0)
    numbers = [-abs(number), abs(number)] if extra == 2 else [number] * extra
    for place, each in enumerate(numbers):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(each), f"changed.constant{place}"))
    settings: dict[str, Any] = {"axis": int(rng.integers(-3, 3))} if op == "Softmax" else {}
    if op == "Transpose":
        rank = int(rng.integers(2, 5))
        settings = {"perm": [0, *(1 + rng.permutation(rank - 1)).tolist()]}
    for reader in model.graph.node:
        for place, name in enumerate(reader.input):
            if name == value:
                reader.input[place] = made
    for output in model.graph.output:
        if output.name == value:
            return
    constants = [f"changed.constant{place}" for place in range(len(numbers))]
    place = next(place for place, each in enumerate(model.graph.node) if each.output[:1] == [value])
    nodes = list(model.graph.node)
    nodes.insert(place + 1, helper.make_node(op, [value, *constants], [made], "changed", **settings))
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def constant(model: Any, rng: np.random.Generator) -> None:
    """Changes numbers that are constant."""
    held = [tensor for tensor in model.graph.initializer if tensor.data_type in (1, 7)]
    few = [tensor for tensor in held if np.prod(tensor.dims) <= 16]
    held = few if few and rng.random() < 0.8 else held
    if not held:
        return
    tensor = held[rng.integers(len(held))]
    values = numpy_helper.to_array(tensor).copy()
    if values.dtype == np.int64:
        values = (
            rng.permutation(values.reshape(-1)).reshape(values.shape) if rng.random() < 0.5 else values + 1
        )
    elif rng.random() < 0.5:
        values = values * np.float32(rng.choice([-1, 0, 0.1, 1.001, 1.1, 10, 1e3]))
    else:
        values = values + np.float32(rng.choice([1e-6, 1e-3, 0.1, 1])) * (rng.random(values.shape) < 0.5)
    tensor.CopyFrom(numpy_helper.from_array(values.astype(numpy_helper.to_array(tensor).dtype), tensor.name))


def setting(model: Any, rng: np.random.Generator) -> None:
    """Changes an attribute."""
    nodes = [node for node in model.graph.node if node.attribute]
    if not nodes:
        return
    node = nodes[rng.integers(len(nodes))]
    each = node.attribute[rng.integers(len(node.attribute))]
    if each.type == onnx.AttributeProto.INT:
        each.i = int(rng.choice([0, 1, 2, -1, -2, each.i + 1]))
    elif each.type == onnx.AttributeProto.FLOAT:
        each.f *= float(rng.choice([-1, 0, 0.1, 1.01, 10]))
    elif each.type == onnx.AttributeProto.INTS:
        each.ints[:] = rng.permutation(list(each.ints)).tolist()
    elif each.type == onnx.AttributeProto.FLOATS:
        each.floats[:] = rng.permutation(list(each.floats)).tolist()


def order(model: Any, rng: np.random.Generator) -> None:
    """Exchanges what a node reads, or has it read something else."""
    node = model.graph.node[rng.integers(len(model.graph.node))]
    if len(node.input) > 1 and rng.random() < 0.5:
        node.input[0], node.input[1] = node.input[1], node.input[0]
    elif node.input:
        place = list(model.graph.node).index(node)
        before = [name for each in list(model.graph.node)[:place] for name in each.output]
        names = [*before, model.graph.input[0].name]
        node.input[rng.integers(len(node.input))] = names[rng.integers(len(names))]


def operator(model: Any, rng: np.random.Generator) -> None:
    """Has a node compute something else."""
    node = model.graph.node[rng.integers(len(model.graph.node))]
    kinds = [
        ["Relu", "Tanh", "Sigmoid", "Abs", "Neg", "Sqrt", "Exp", "Erf", "Softplus", "Softsign"],
        ["Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "MatMul"],
        ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2", "ReduceSumSquare"],
        ["Softmax", "LogSoftmax", "Hardmax"],
        ["MaxPool", "AveragePool", "LpPool"],
    ]
    for group in kinds:
        if node.op_type in group:
            node.op_type = str(rng.choice(group))


def evaluated(model: Any, x: NDArray[Any]) -> NDArray[Any] | None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            name = model.graph.output[-1].name
            return np.asarray(ReferenceEvaluator(model).run([name], {model.graph.input[0].name: x})[0])
        except Exception:  # noqa: BLE001 - a model that nothing can be said of
            return None


def compared(model: Any, seed: int) -> str:
    """Reads a model and compares; says what became of it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            net = load(model.SerializeToString(), output=model.graph.output[-1].name)
    except loom.SerializationError as error:
        return "refused" if "what its operators say" not in str(error) else "damaged"
    rng = np.random.default_rng(seed)
    for size, tolerance in ((1.0, 1e-5), (1e-3, 1e-5), (20.0, 2e-3)):
        x = (rng.normal(size=(2, *net.input_shape)) * size).astype(np.float32)
        if net._engine.native.index_limit() is not None:
            x = rng.integers(0, net._engine.native.index_limit(), x.shape)
        y = evaluated(model, x)
        if y is None or y.shape[:1] != (2,):
            return "not evaluated"
        made, fine = net.predict(x).reshape(y.shape), np.isfinite(y)
        most = max(1.0, float(np.abs(y[fine]).max(initial=0)))
        assert np.abs(made - y)[fine].max(initial=0) <= tolerance * most, (size, net.summary())
    return "read"


CHANGES = (insert, insert, constant, setting, order, operator)


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_changed_a_little_is_read_as_that_or_refused(name: str) -> None:
    kept = model_of(name)
    assert compared(kept, 0) == "read"
    seen: dict[str, int] = {}
    for seed in range(3000 if SOAK else 10):
        rng = np.random.default_rng([seed, *name.encode()])
        model = onnx.ModelProto()
        model.CopyFrom(kept)
        change = CHANGES[rng.integers(len(CHANGES))]
        change(model, rng)
        try:
            became = compared(model, seed)
        except Exception as error:
            raise AssertionError(f"{name}, seed {seed}, {change.__name__}: {error}") from error
        seen[became] = seen.get(became, 0) + 1
    assert seen.get("read"), seen
