# ruff: noqa: T201 - as a program it prints
"""Models that someone has meddled with: a clear error or a network, in bounded memory and time.

Run as a program it tries mutants without end, or as many as it is told: `test_onnx_mutants.py SEED COUNT`.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import loom
from loom import nn
from loom.models.onnx import load
from loom.models.onnx.export import onnx_model

GOLDEN = Path(__file__).parents[1] / "golden" / "onnx"
SOAK = os.environ.get("LOOM_SOAK") == "1"
MEMORY = 3 << 30
SECONDS = 60.0
HUGE = [
    0,
    1,
    -1,
    2,
    7,
    255,
    2**16,
    2**20,
    2**24,
    2**28,
    2**31 - 1,
    2**31,
    2**32,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
]
NAMES = [
    "",
    "input",
    "output",
    "x" * 1000,
    "\N{SNOWMAN}",
    "../../etc/passwd",
    "0.0.0.0.weight",
    "%s%n",
    "a\0b",
]
KINDS = sorted({each.name for each in onnx.defs.get_all_schemas()})


def seeds() -> list[Any]:
    """Returns small models of many operators."""
    layers: list[tuple[list[nn.Layer], tuple[int, ...]]] = [
        ([nn.Dense(4, activation="gelu"), nn.Dense(2), nn.Softmax()], (3,)),
        ([nn.Conv2D(3, 3, padding=1), nn.MaxPool2D(2), nn.Flatten(), nn.Dense(2)], (2, 6, 6)),
        ([nn.MultiHeadAttention(2, causal=True, rotary=nn.Rotary()), nn.RMSNorm(), nn.SwiGLU(4)], (4, 8)),
        ([nn.LSTM(3, return_sequences=True), nn.GRU(2)], (4, 3)),
        ([nn.Residual([nn.LayerNorm(), nn.Dense(4)]), nn.SequencePool("mean")], (3, 4)),
        ([nn.Parallel([nn.Dense(3), nn.Dense(3)], combine="concat"), nn.ClassToken(1)], (3, 4)),
    ]
    models = [onnx_model(loom.Sequential(row, input_shape=shape, seed=1)) for row, shape in layers]
    names = (
        "torch_gpt_traced",
        "torch_vit_fixed_traced",
        "torch_lstm_both_traced",
        "torch_unet_traced",
        "keras_both",
    )
    models += [onnx.load(GOLDEN / f"{name}.onnx") for name in (*names, "torch_mobile", "sklearn_logistic")]
    return [model for model in models if len(model.SerializeToString()) < 200_000]


def pick(rng: np.random.Generator, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def extents(model: Any, rng: np.random.Generator) -> None:
    """Declares other shapes of inputs and tensors."""
    if model.graph.initializer and rng.random() < 0.7:
        tensor = pick(rng, model.graph.initializer)
        if tensor.dims and rng.random() < 0.7:
            tensor.dims[int(rng.integers(len(tensor.dims)))] = pick(rng, HUGE)
        else:
            tensor.dims.append(pick(rng, HUGE))
    else:
        value = pick(rng, [*model.graph.input, *model.graph.output])
        dims = value.type.tensor_type.shape.dim
        if dims:
            pick(rng, dims).dim_value = pick(rng, HUGE)


def numbers(model: Any, rng: np.random.Generator) -> None:
    """Changes constants of whole numbers: shapes, axes, places, pads."""
    held = [
        tensor
        for tensor in model.graph.initializer
        if tensor.data_type in (TensorProto.INT64, TensorProto.INT32)
    ]
    held += [
        a.t
        for node in model.graph.node
        for a in node.attribute
        if node.op_type == "Constant" and a.HasField("t")
    ]
    held = [tensor for tensor in held if tensor.data_type in (TensorProto.INT64, TensorProto.INT32)]
    if held:
        tensor = pick(rng, held)
        values = numpy_helper.to_array(tensor).copy()
        if values.size:
            values.reshape(-1)[rng.integers(values.size)] = np.array(pick(rng, HUGE)).astype(values.dtype)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def attributes(model: Any, rng: np.random.Generator) -> None:
    """Changes, removes or exchanges settings."""
    nodes = [node for node in model.graph.node if node.attribute]
    if not nodes:
        return
    node = pick(rng, nodes)
    each = pick(rng, node.attribute)
    if rng.random() < 0.15:
        node.attribute.remove(each)
    elif rng.random() < 0.15:
        each.CopyFrom(pick(rng, pick(rng, nodes).attribute))
    elif each.ints:
        each.ints[int(rng.integers(len(each.ints)))] = pick(rng, HUGE)
    elif rng.random() < 0.2:
        each.type = int(rng.integers(0, 16))
    else:
        each.i, each.f, each.s = (
            pick(rng, HUGE),
            float(pick(rng, [np.nan, np.inf, -1, 0, 1e38])),
            b"\xff\0junk",
        )
        if rng.random() < 0.3:
            each.name = pick(rng, ["axis", "axes", "perm", "to", "pads", "group", "epsilon", "value"])


def types(model: Any, rng: np.random.Generator) -> None:
    """Says that elements are of other types."""
    kind = int(rng.integers(-1, 27))
    if model.graph.initializer and rng.random() < 0.6:
        pick(rng, model.graph.initializer).data_type = kind
    else:
        pick(rng, [*model.graph.input, *model.graph.output]).type.tensor_type.elem_type = kind


def names(model: Any, rng: np.random.Generator) -> None:
    """Has nodes read and make other values: cycles, doubles, nothing."""
    node = pick(rng, model.graph.node)
    known = [name for each in model.graph.node for name in (*each.input, *each.output)] + NAMES
    where = node.input if rng.random() < 0.6 and node.input else node.output
    if where:
        where[int(rng.integers(len(where)))] = pick(rng, known)
    if rng.random() < 0.2:
        (node.input if rng.random() < 0.5 else node.output).append(pick(rng, known))


def operators(model: Any, rng: np.random.Generator) -> None:
    """Exchanges operators, their order and the versions that they are of."""
    node, roll = pick(rng, model.graph.node), rng.random()
    if roll < 0.5:
        node.op_type = pick(rng, KINDS)
    elif roll < 0.6:
        node.domain = pick(rng, ["ai.onnx.ml", "ai.onnx.training", "com.microsoft", "x"])
    elif roll < 0.8:
        other = pick(rng, model.graph.node)
        kept = onnx.NodeProto()
        kept.CopyFrom(node)
        node.CopyFrom(other)
        other.CopyFrom(kept)
    elif roll < 0.9:
        model.graph.node.remove(node)
    elif model.opset_import:
        pick(rng, model.opset_import).version = int(pick(rng, [0, 1, 5, 7, 9, 11, 13, 18, 23, 99, -1]))


def outside(model: Any, rng: np.random.Generator) -> None:
    """Says that a tensor is in a file elsewhere."""
    if not model.graph.initializer:
        return
    tensor = pick(rng, model.graph.initializer)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entries = {
        "location": pick(rng, ["../x", "/etc/passwd", "/dev/zero", "net.onnx", "", "a\0b", "x/../../y", "."]),
        "offset": str(pick(rng, [*HUGE, "x", ""])),
        "length": str(pick(rng, HUGE)),
    }
    for key, value in entries.items():
        if rng.random() < 0.8:
            tensor.external_data.add(key=key, value=value)


def bombs(model: Any, rng: np.random.Generator) -> None:
    """Asks for gigabytes of constants, or of the input, in a few numbers."""
    sizes = [int(2 ** rng.integers(0, 40)) for _ in range(int(rng.integers(1, 4)))]
    tensors = {"bomb.sizes": np.array(sizes, np.int64), "bomb.one": np.ones(1, np.float32)}
    tensors |= {"bomb.zero": np.zeros((), np.int64), "bomb.step": np.array(pick(rng, [1, -1, 0]), np.int64)}
    tensors |= {"bomb.end": np.array(sizes[0], np.int64), "bomb.pads": np.array(sizes * 2, np.int64)}
    source = pick(rng, ["bomb.one", model.graph.input[0].name])
    choices = [
        ("ConstantOfShape", ["bomb.sizes"]),
        ("Expand", [source, "bomb.sizes"]),
        ("Tile", [source, "bomb.sizes"]),
        ("Range", ["bomb.zero", "bomb.end", "bomb.step"]),
        ("Pad", [source, "bomb.pads"]),
        ("Resize", [source, "", "", "bomb.sizes"]),
        ("OneHot", ["bomb.zero", "bomb.end", "bomb.one"]),
        ("Reshape", [source, "bomb.sizes"]),
        ("EyeLike", ["bomb.one"]),
    ]
    op, reads = choices[int(rng.integers(len(choices)))]
    nodes = [helper.make_node(op, reads, ["bomb.0"])]
    for level in range(int(rng.integers(0, 40))):
        doubled = helper.make_node("Concat", [f"bomb.{level}"] * 2, [f"bomb.{level + 1}"], axis=0)
        nodes.append(doubled)
    if rng.random() < 0.5:
        # Every element with every other.
        nodes.append(helper.make_node("Reshape", [nodes[-1].output[0], "bomb.column"], ["bomb.up"]))
        nodes.append(helper.make_node("Equal", [nodes[-2].output[0], "bomb.up"], ["bomb.square"]))
        tensors["bomb.column"] = np.array([-1, 1], np.int64)
    total = helper.make_node("ReduceMax", [nodes[-1].output[0]], ["bomb.total"], keepdims=0)
    kept = list(model.graph.node)
    after = pick(rng, kept)
    (last,) = after.output[:1]
    after.output[0] = "bomb.before"
    place = kept.index(after)
    joined = helper.make_node(pick(rng, ["Add", "Mul", "Concat"]), ["bomb.before", "bomb.total"], [last])
    del model.graph.node[:]
    model.graph.node.extend([*kept[: place + 1], *nodes, total, joined, *kept[place + 1 :]])
    for name, values in tensors.items():
        model.graph.initializer.append(numpy_helper.from_array(values, name))


def functions(model: Any, rng: np.random.Generator) -> None:
    """Adds functions that call each other, or themselves."""
    levels = int(rng.integers(1, 60))
    for level in range(levels):
        below = f"f{level - 1}" if level else pick(rng, ["Relu", f"f{levels - 1}"])
        domain = "" if below == "Relu" else "local"
        body = [
            helper.make_node(below, ["x"], ["m"], domain=domain),
            helper.make_node(below, ["m"], ["y"], domain=domain),
        ]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
        model.functions.append(helper.make_function("local", f"f{level}", ["x"], ["y"], body, opsets))
    model.opset_import.append(helper.make_opsetid("local", 1))
    node = pick(rng, model.graph.node)
    node.op_type, node.domain = f"f{levels - 1}", "local"
    del node.attribute[:]


def nested(model: Any, rng: np.random.Generator) -> None:
    """Adds loops and branches, of constants too."""
    body = helper.make_graph([helper.make_node("Identity", ["c"], ["d"])], "body", [], [])
    node = pick(rng, model.graph.node)
    node.op_type = pick(rng, ["Loop", "If", "Scan", "SequenceMap"])
    node.attribute.append(helper.make_attribute("body", body))
    node.attribute.append(helper.make_attribute("then_branch", body))


CHANGES = (extents, numbers, attributes, types, names, operators, outside, bombs, functions, nested)


def mutant(models: list[Any], rng: np.random.Generator) -> tuple[bytes, str]:
    """Returns the bytes of a changed model, and what has been changed."""
    model = onnx.ModelProto()
    model.CopyFrom(pick(rng, models))
    done = []
    for _ in range(int(rng.choice([1, 1, 1, 2, 3, 6]))):
        change = CHANGES[int(rng.integers(len(CHANGES)))]
        try:
            change(model, rng)
        except Exception:  # noqa: BLE001 - what was changed before it leaves nothing to change
            continue
        done.append(change.__name__)
    data = bytearray(model.SerializeToString())
    if rng.random() < 0.1:
        for place in rng.integers(0, len(data), 4):
            data[place] = int(rng.integers(256))
        done.append("bytes")
    return bytes(data), "+".join(done)


def tried(models: list[Any], seed: int) -> str:
    """Loads a mutant; anything else than a network or an error of loom's goes on."""
    rng = np.random.default_rng([17, seed])
    data, done = mutant(models, rng)
    begin = time.process_time()
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            net = load(data)
            shape = net.input_shape
            if np.prod(shape) < 10_000:
                net.predict(np.zeros((2, *shape), np.float32))
        became = "read"
    except loom.LoomError as error:
        became = type(error).__name__
    except BaseException as error:
        raise AssertionError(f"seed {seed}, {done}: {type(error).__name__}: {error}") from error
    if time.process_time() - begin > SECONDS:
        raise AssertionError(f"seed {seed}, {done}: {time.process_time() - begin:.0f} s")
    return became


def main(first: int, count: int) -> int:
    """Tries mutants with little memory, and prints what was wrong."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    models, seen, wrong = seeds(), {}, 0
    for seed in range(first, first + count):
        print(f"\r{seed}", end="", file=sys.stderr, flush=True)
        try:
            became = tried(models, seed)
        except AssertionError as error:
            became, wrong = "wrong", wrong + 1
            print(str(error)[:1500], flush=True)
        seen[became] = seen.get(became, 0) + 1
        if seed % 1000 == 999:
            print(seed + 1, seen, flush=True)
    print(seen, flush=True)
    return int(wrong > 0)


def test_a_few_mutants() -> None:
    models, seen = seeds(), {}
    for seed in range(60):
        became = tried(models, seed)
        seen[became] = seen.get(became, 0) + 1
    assert len(seen) > 1


@pytest.mark.skipif(not SOAK, reason="takes hours: LOOM_SOAK=1")
def test_many_mutants() -> None:
    command = [sys.executable, __file__, "1000", "20000"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
