"""Files of ONNX that lie, ask for too much, or hold what loom has no layer for."""

from __future__ import annotations

import contextlib
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
from onnx_models import built, reread


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "missing", "", "link"])
def test_external_data_stays_in_its_folder(location: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(4096))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    net = loom.Sequential([nn.Dense(16)], input_shape=16)
    loom.save_onnx(net, folder / "net.onnx", external_data=True)
    model = onnx.load(folder / "net.onnx", load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(loom.SerializationError, match="in the folder of the model"):
        load(folder / "net.onnx")


def damaged(change: Any) -> bytes:
    model = onnx_model(loom.Sequential([nn.Dense(4), nn.Dense(2)], input_shape=3))
    change(model)
    return bytes(model.SerializeToString())


def test_files_that_lie_are_refused() -> None:
    def huge(model: Any) -> None:
        model.graph.initializer[0].dims[:] = [2**40, 2**40]

    def short(model: Any) -> None:
        model.graph.initializer[0].raw_data = b"1234"

    def negative(model: Any) -> None:
        model.graph.initializer[0].dims[0] = -4

    def twice(model: Any) -> None:
        model.graph.initializer.append(model.graph.initializer[0])

    def backwards(model: Any) -> None:
        model.graph.node[0].input[0] = model.graph.node[-1].output[0]

    def missing(model: Any) -> None:
        model.graph.node[1].input[0] = "nowhere"

    for change in (huge, short, negative, twice, backwards, missing):
        with pytest.raises(loom.SerializationError):
            load(damaged(change))
    for data in (b"", b"not a model", b"\x08\x08" * 1000):
        with pytest.raises(loom.SerializationError):
            load(data)
    with pytest.raises(loom.FileError):
        load("/nowhere/at/all.onnx")


def test_a_few_numbers_do_not_ask_for_all_memory() -> None:
    extents = numpy_helper.from_array(np.array([2**20, 2**20, 2**10], np.int64), "extents")
    nodes = [
        helper.make_node("ConstantOfShape", ["extents"], ["bomb"]),
        helper.make_node("ReduceSum", ["bomb"], ["sum"], keepdims=0),
        helper.make_node("Add", ["input", "sum"], ["y"]),
    ]
    with pytest.raises(loom.SerializationError, match="ConstantOfShape"):
        load(built(nodes, [extents]))


def test_random_bytes_are_refused() -> None:
    rng = np.random.default_rng(0)
    whole = damaged(lambda model: None)
    for _ in range(150):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), rng.integers(1, 6)):
            data[place] = rng.integers(0, 256)
        data = data[: rng.integers(1, len(data) + 1)] if rng.random() < 0.3 else data
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.suppress(loom.LoomError):
                load(bytes(data))


def test_operators_that_are_not_read_are_told_at_once() -> None:
    nodes = [
        helper.make_node("Tan", ["input"], ["a"], "first"),
        helper.make_node("TopK", ["a", "k"], ["b", "c"], "second"),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    k = numpy_helper.from_array(np.array([2], np.int64), "k")
    with pytest.raises(loom.SerializationError, match=r'Tan "first"(.|\n)*TopK "second"'):
        load(built(nodes, [k]))


@pytest.mark.parametrize("op", ["If", "Loop", "Scan"])
def test_what_is_decided_while_a_model_runs_is_told_before_anything_else(op: str) -> None:
    inside = helper.make_graph(
        [helper.make_node("Relu", ["input"], ["z"])], "g", [], [helper.make_tensor_value_info("z", 1, None)]
    )
    settings: dict[str, Any] = {
        "If": {"then_branch": inside, "else_branch": inside},
        "Loop": {"body": inside},
        "Scan": {"body": inside, "num_scan_inputs": 1},
    }[op]
    nodes = [
        # Which would be refused as well.
        helper.make_node("Tan", ["input"], ["a"], "first"),
        helper.make_node(op, ["a"] if op != "Loop" else ["", "", "a"], ["y"], "steering", **settings),
    ]
    with pytest.raises(loom.SerializationError, match=f'{op} "steering"') as told:
        load(built(nodes, []))
    assert "Tan" not in str(told.value)


def test_rows_that_are_mixed_are_told() -> None:
    shape = numpy_helper.from_array(np.array([-1, 4, 3], np.int64), "shape")
    nodes = [
        helper.make_node("Transpose", ["input"], ["turned"], perm=[1, 0, 2]),
        helper.make_node("Reshape", ["turned", "shape"], ["mixed"], "mixes"),
        helper.make_node("Relu", ["mixed"], ["y"]),
    ]
    with pytest.raises(loom.SerializationError, match='"mixes"'):
        load(built(nodes, [shape], shape=(4, 3)))


def test_functions_within_functions_do_not_ask_for_all_memory() -> None:
    model = onnx.ModelProto()
    model.ParseFromString(built([helper.make_node("f40", ["input"], ["y"], domain="local")]))
    for level in range(41):
        op, domain = (f"f{level - 1}", "local") if level else ("Relu", "")
        body = [
            helper.make_node(op, ["x"], ["m"], domain=domain),
            helper.make_node(op, ["m"], ["z"], domain=domain),
        ]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
        model.functions.append(helper.make_function("local", f"f{level}", ["x"], ["z"], body, opsets))
    model.opset_import.append(helper.make_opsetid("local", 1))
    with pytest.raises(loom.SerializationError, match="too many nodes"):
        reread(model)


def test_constants_of_constants_do_not_ask_for_all_memory() -> None:
    nodes = [helper.make_node("Concat", [f"c{k}", f"c{k}"], [f"c{k + 1}"], axis=0) for k in range(40)]
    nodes += [
        helper.make_node("ReduceSum", ["c40"], ["sum"], keepdims=0),
        helper.make_node("Add", ["input", "sum"], ["y"]),
    ]
    with pytest.raises(loom.SerializationError):
        load(built(nodes, [numpy_helper.from_array(np.ones(8, np.float32), "c0")]))


def test_external_data_of_attributes_is_refused() -> None:
    outside = TensorProto(name="value", data_type=1, dims=[1], data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="secret")
    extents = numpy_helper.from_array(np.array([3], np.int64), "extents")
    nodes = [
        helper.make_node("ConstantOfShape", ["extents"], ["filled"], value=outside),
        helper.make_node("Add", ["input", "filled"], ["y"]),
    ]
    with pytest.raises(loom.SerializationError, match="external data"):
        load(built(nodes, [extents]))
