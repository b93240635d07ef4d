"""Networks to ONNX and back: against ONNX's own evaluator, and models of other frameworks."""

from __future__ import annotations

import importlib
import json
import warnings
from operator import lt
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import loom
from loom import _native, nn
from loom.models.onnx import load
from loom.models.onnx.export import onnx_model
from onnx_models import built, computed, reread

GOLDEN = Path(__file__).parents[1] / "golden" / "onnx"
SAMPLES: dict[str, list[dict[str, Any]]] = json.loads(_native.layer_samples())
SHAPES: list[tuple[int, ...]] = [
    (3, 4),
    (2, 4),
    (4, 6),
    (4, 8),
    (6, 4),
    (2, 6, 6),
    (4, 5, 5),
    (4, 4, 4, 4),
    *((extent,) for extent in range(2, 17)),
]
# What ONNX's own evaluator computes otherwise than its operators say; onnxruntime agrees with loom.
EVALUATED_WRONG = {
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "global_max_pool1d",
    "global_max_pool3d",
}
# What has no layer to be read as: places on a grid, one class alone.
NOT_READ = {"parallel", "hierarchical_softmax"}
# What ONNX has only where windows are alike.
NOT_SAID = {
    f"adaptive_{what}_pool{axes}d": "windows differ in length"
    for what in ("max", "avg")
    for axes in (1, 2, 3)
}


def drawn(net: loom.Network, rows: int = 3) -> NDArray[Any]:
    """Gives a network weights that no initializer draws, and returns something to read."""
    rng = np.random.default_rng(0)
    for layer in net.layers:
        for name, values in layer.parameters.items():
            layer[name] = values + 0.1 * rng.normal(size=values.shape).astype(np.float32)
        if layer.states:
            layer.states = {name: 0.5 + rng.random(values.shape) for name, values in layer.states.items()}
    limit = net._engine.native.index_limit()
    shape = (rows, *net.input_shape)
    return rng.integers(0, limit, shape) if limit else rng.normal(size=shape).astype(np.float32)


def check_both_ways(net: loom.Network, *, evaluates: bool = True) -> loom.Network:
    """Compares a network with ONNX's evaluator, and with what is read back."""
    x = drawn(net)
    model = onnx_model(net)
    onnx.checker.check_model(model, full_check=True)
    expected = net.predict(x)
    if evaluates:
        np.testing.assert_allclose(computed(model, x), expected, rtol=0, atol=1e-5)
    again = load(model.SerializeToString())
    np.testing.assert_allclose(again.predict(x), expected, rtol=0, atol=1e-5)
    return again


@pytest.mark.parametrize("kind", SAMPLES)
def test_every_kind_of_layer_goes_out_and_comes_back(kind: str) -> None:
    tried = 0
    # Bisection is unrolled, which ONNX's evaluator takes a while for.
    for sample in SAMPLES[kind][:1] if kind in ("entmax", "sparsemax") else SAMPLES[kind]:
        for shape in SHAPES:
            try:
                net = loom.Sequential([sample], input_shape=shape, seed=1).build()
            except loom.LoomError:
                continue
            tried += 1
            try:
                # Nor does it leave out windows that begin behind all there is.
                known = kind not in EVALUATED_WRONG and not sample.get("ceil_mode")
                check_both_ways(net, evaluates=known)
            except loom.SerializationError:
                assert kind in NOT_READ
            except loom.InvalidValueError as error:
                if NOT_SAID.get(kind, "nothing") not in str(error):
                    raise
            break
    # Cross-attention and the like need a link; see below.
    assert tried


@pytest.mark.parametrize("pool", [nn.MaxPool2D, nn.AvgPool2D])
def test_windows_rounded_up_go_out_without_those_that_begin_behind_the_padding(pool: Any) -> None:
    """ONNX counts these, so that shapes would not fit what follows."""
    rng = np.random.default_rng(0)
    for window, stride, extents in (((1, 1), 2, (4, 6)), ((1, 2), (2, 2), (4, 3)), ((1, 1), (3, 2), (5, 4))):
        layers = [pool(window, stride, ceil_mode=True), nn.Flatten(), nn.Dense(2)]
        net = loom.Sequential(layers, input_shape=(2, *extents), seed=1)
        model = onnx_model(net)
        onnx.checker.check_model(model, full_check=True)
        shapes = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        told = next(v for v in shapes.graph.value_info if v.name.startswith(("MaxPool", "AveragePool")))
        made = [each.dim_value for each in told.type.tensor_type.shape.dim][2:]
        assert tuple(made) == loom.Sequential(layers[:1], input_shape=(2, *extents)).output_shape[1:]
        x = rng.normal(size=(2, 2, *extents)).astype(np.float32)
        if window == (1, 1):
            np.testing.assert_allclose(reread(model).predict(x), net.predict(x), atol=1e-6)


@pytest.mark.parametrize("padding", [(0, 1), (1, 0), (1, 1)])
def test_windows_that_onnx_s_evaluator_puts_elsewhere_are_read(padding: tuple[int, int]) -> None:
    net = loom.Sequential([nn.MaxPool2D(2, 1, padding=padding)], input_shape=(2, 4, 5))
    x = np.random.default_rng(0).normal(size=(2, 2, 4, 5)).astype(np.float32)
    np.testing.assert_array_equal(reread(onnx_model(net)).predict(x), net.predict(x))
    settings: Any = {"kernel_shape": [2, 2], "strides": [1, 1], "pads": [*padding] * 2, "ceil_mode": 1}
    nodes = [helper.make_node("MaxPool", ["input"], ["y"], **settings)]
    np.testing.assert_array_equal(load(built(nodes, shape=(2, 4, 5))).predict(x), net.predict(x))


def test_even_windows_go_out_and_places_come_in_either_order() -> None:
    check_both_ways(loom.Sequential([nn.AdaptiveMaxPool2D((2, 3))], input_shape=(2, 4, 6)))
    check_both_ways(loom.Sequential([nn.AdaptiveAvgPool2D((2, 3))], input_shape=(2, 4, 6)))
    for op, settings, shape in [
        ("DepthToSpace", {}, (8, 2, 3)),
        ("DepthToSpace", {"mode": "CRD"}, (8, 2, 3)),
        ("SpaceToDepth", {}, (2, 4, 6)),
    ]:
        node = helper.make_node(op, ["input"], ["output"], blocksize=2, **settings)
        x = np.random.default_rng(0).normal(size=(3, *shape)).astype(np.float32)
        ends = [
            helper.make_tensor_value_info("input", TensorProto.FLOAT, ["n", *shape]),
            helper.make_tensor_value_info("output", TensorProto.FLOAT, None),
        ]
        graph = helper.make_graph([node], "places", ends[:1], ends[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
        found = load(model.SerializeToString()).predict(x)
        np.testing.assert_array_equal(found, computed(model, x))


@pytest.mark.parametrize(
    "text",
    [
        "2 - x ** 2 / 100",
        "where(x > 0.5, leaky_relu(x, 0.3), -elu(x, 2.0)) * (x != 0)",
        "clip(expm1(x), -1, 1) + log1p(abs(x)) + max(sin(x), min(cos(x), pi))",
        "erf(x) + sign(x) * sqrt(abs(x)) + exp(-x * x) * (x <= 1) + gelu(x) + +log(2 + x * x)",
    ],
)
def test_expressions_go_out_as_operators(text: str) -> None:
    net = loom.Sequential([nn.Dense(4), nn.Expr(text), nn.Dense(2)], input_shape=3, seed=3)
    again = check_both_ways(net)
    assert again[0, 0, 0, 1].config == nn.Expr(text)


def test_expressions_behind_recurrent_layers_leave_them_what_they_end_in() -> None:
    layers = [nn.GRU(4, return_sequences=True), nn.Expr("tanh(x) - x"), nn.Dense(2)]
    again = check_both_ways(loom.Sequential(layers, input_shape=(5, 3), seed=3))
    assert [layer.kind for layer in again.layers] == ["gru", "expr", "dense"]


def test_links_and_second_inputs_go_out() -> None:
    net = loom.Network(input_shape=(3, 4), grid=(1, 4), seed=2)
    net[0, 0].add(nn.Dense(4, activation="tanh"))
    net[0, 1].add(nn.Dense(4), nn.MultiHeadAttention(2, cross=True))
    net[0, 2].add(nn.Dense(4), nn.LayerNorm())
    net[0, 3].add(nn.Dense(3))
    net.link((0, 0), (0, 1), "context").link((0, 0), (0, 2)).link((0, 1), (0, 3), "concat")
    x = drawn(net)
    np.testing.assert_allclose(computed(onnx_model(net), x), net.predict(x), rtol=0, atol=1e-5)


def test_a_state_from_a_second_input_and_padding_go_out() -> None:
    net = loom.Network(input_shape=(2, 6), grid=(1, 2), seed=2)
    net[0, 0].add(nn.Flatten(), nn.Dense(6))
    net[0, 1].add(nn.Reshape((2, 3)), nn.LSTM(3, initial_state="context"))
    net.link((0, 0), (0, 1), "context")
    x = drawn(net)
    np.testing.assert_allclose(computed(onnx_model(net), x), net.predict(x), rtol=0, atol=1e-5)
    masked = loom.Sequential(
        [nn.Masked([nn.MultiHeadAttention(2, causal=True), nn.Dense(2)])], input_shape=(4, 6)
    )
    x = drawn(masked)
    x[0, 2:] = x[1] = 0
    np.testing.assert_allclose(computed(onnx_model(masked), x), masked.predict(x), rtol=0, atol=1e-5)


def test_what_onnx_cannot_say_is_told_at_once_and_nothing_is_written(tmp_path: Path) -> None:
    layers = [nn.Masked(nn.LSTM(3, return_sequences=True)), nn.Masked(nn.GRU(2))]
    net = loom.Sequential(layers, input_shape=(4, 2))
    with pytest.raises(loom.InvalidValueError, match=r"0\.0\.0\.0\.0 \(lstm\)(.|\n)*0\.0\.0\.1\.0 \(gru\)"):
        loom.save_onnx(net, tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())
    with pytest.raises(loom.ConfigError, match="opset"):
        loom.save_onnx(net, tmp_path / "net.onnx", opset=16)
    with pytest.raises(loom.ConfigError, match="at most"):
        loom.save_onnx(net, tmp_path / "net.onnx", opset=999)


@pytest.mark.parametrize("opset", [18, onnx.defs.onnx_opset_version()])
def test_newer_operators(opset: int) -> None:
    net = loom.Sequential(
        [nn.RMSNorm(), nn.Masked(nn.MaskedSoftmax(axis=0)), nn.GroupNorm(2)], input_shape=(4, 3)
    )
    x = drawn(net)
    np.testing.assert_allclose(computed(onnx_model(net, opset), x), net.predict(x), rtol=0, atol=1e-5)


def test_packed_weights_go_out_as_codes(tmp_path: Path) -> None:
    layers = [nn.Conv2D(4, 3), nn.Flatten(), nn.Dense(3)]
    net = loom.Sequential(layers, input_shape=(2, 5, 5), seed=1).morph("int8")
    model = onnx_model(net)
    held = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    assert held["0.0.0.0.weight.int8"] == held["0.0.0.2.weight.int8"] == TensorProto.INT8
    assert sum(node.op_type == "DequantizeLinear" for node in model.graph.node) == 2
    x = drawn(loom.Sequential(layers, input_shape=(2, 5, 5)))
    expected = net.predict(x)
    np.testing.assert_allclose(load(model.SerializeToString()).predict(x), expected, rtol=0, atol=1e-5)
    # ONNX's evaluator knows the operator from opset 19 on.
    np.testing.assert_allclose(computed(onnx_model(net, 19), x), expected, rtol=0, atol=1e-5)
    other = onnx_model(net.morph("q4_0"))
    assert not any(node.op_type == "DequantizeLinear" for node in other.graph.node)
    np.testing.assert_allclose(computed(other, x), net.predict(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("granularity", ["channel", "tensor"])
def test_codes_are_no_operator_that_quantises_activations(granularity: str) -> None:
    """From opset 21 on ONNX Runtime makes MatMulNBits of DequantizeLinear and MatMul, a hundredth apart."""
    layers = [nn.Dense(8, activation="tanh"), nn.MultiHeadAttention(2), nn.Flatten(), nn.Dense(3)]
    net = loom.Sequential(layers, input_shape=(4, 6), seed=1).morph("int8", granularity=granularity)
    for opset in (20, 21, onnx.defs.onnx_opset_version()):
        model = onnx_model(net, opset)
        held = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
        assert sum(kind == TensorProto.INT8 for kind in held.values()) == 6
        operators = [node.op_type for node in model.graph.node]
        assert operators.count("DequantizeLinear") == (6 if opset < 21 else 0)
        x = np.random.default_rng(0).normal(size=(3, 4, 6)).astype(np.float32)
        for found in (computed(model, x), load(model.SerializeToString()).predict(x)):
            np.testing.assert_allclose(found, net.predict(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("stride", "dilation", "padding", "added"),
    [
        (1, 2, 0, 1),
        (1, 2, 1, 1),
        (2, 3, 0, 2),
        (2, 3, 1, 2),
        (1, 3, 1, 2),
        (3, 1, 1, 2),
        ((1, 2), (2, 1), 0, 1),
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_what_is_added_behind_a_transposed_convolution_is_below_its_stride(
    stride: Any, dilation: Any, padding: int, added: int, bias: bool
) -> None:
    """ONNX Runtime refuses more when it runs, although ONNX and PyTorch allow it below the dilation."""
    settings = {"stride": stride, "dilation": dilation, "padding": padding, "output_padding": added}
    layer = nn.ConvTranspose2D(4, 2, groups=2, bias=bias, activation="tanh", **settings)
    net = loom.Sequential([layer], input_shape=(2, 4, 5), seed=1)
    x = drawn(net)
    model = onnx_model(net)
    onnx.checker.check_model(model, full_check=True)
    (node,) = (node for node in model.graph.node if node.op_type == "ConvTranspose")
    attributes = {each.name: list(each.ints) for each in node.attribute if each.ints}
    assert all(map(lt, attributes["output_padding"], attributes["strides"]))
    extents = [axis.dim_value for axis in model.graph.output[0].type.tensor_type.shape.dim[1:]]
    assert extents == [*net.output_shape]
    np.testing.assert_allclose(reread(model).predict(x), net.predict(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (1, 1)])
@pytest.mark.parametrize("rows", [1, 2])
def test_extents_of_one_stay_where_they_are(shape: tuple[int, ...], rows: int) -> None:
    """A softmax in one row came back with an axis more."""
    if shape[-1] % rows:
        rows = 1
    net = loom.Sequential([nn.GridSoftmax(rows, shape[-1] // rows), nn.Scale(2.0)], input_shape=shape)
    again = check_both_ways(net)
    assert again.output_shape == net.output_shape


def test_names_of_inputs_and_outputs_are_theirs_alone(tmp_path: Path) -> None:
    """A name that a value in between would get, and one that an input and an output share."""
    net = loom.Network(inputs={"Gemm_1": 3, "Tanh_3": 2}, grid=(1, 3), seed=0)
    net[0, 0].add(nn.Dense(4, activation="tanh"))
    net.enter("Tanh_3", (0, 1))[0, 1].add(nn.Dense(4, activation="tanh"))
    net.link((0, 0), (0, 2))[0, 2].add(nn.Dense(2))
    net.output("constant_1", (0, 1)).output("Add_5", (0, 2))
    rng = np.random.default_rng(0)
    x = {
        name: rng.normal(size=(3, width)).astype(np.float32) for name, width in (("Gemm_1", 3), ("Tanh_3", 2))
    }
    model = onnx_model(net)
    onnx.checker.check_model(model, full_check=True)
    wanted = net.predict(x)
    for name, found in zip(wanted, ReferenceEvaluator(model).run(None, x), strict=True):
        np.testing.assert_allclose(found, wanted[name], rtol=0, atol=1e-5)
    net.output("Gemm_1", (0, 0))
    with pytest.raises(loom.InvalidValueError, match='both called "Gemm_1"'):
        loom.save_onnx(net, tmp_path / "net.onnx")
    assert not list(tmp_path.iterdir())


def test_large_tensors_stand_beside(tmp_path: Path) -> None:
    net = loom.Sequential([nn.Dense(40), nn.Dense(30)], input_shape=20)
    path = tmp_path / "net.onnx"
    loom.save_onnx(net, path, external_data=True, metadata={"made by": "a test"})
    assert (tmp_path / "net.onnx.data").stat().st_size >= 4 * (40 * 20 + 40 * 30)
    x = drawn(loom.Sequential([nn.Dense(1)], input_shape=20))
    np.testing.assert_array_equal(load(path).predict(x), net.predict(x))
    found = {entry.key: entry.value for entry in onnx.load(path, load_external_data=False).metadata_props}
    assert found == {"made by": "a test", "loom.version": loom.__version__}
    with pytest.raises(loom.SerializationError, match="by its path"):
        load(path.read_bytes())


def test_single_functions_become_expressions() -> None:
    nodes = [
        helper.make_node("Exp", ["input"], ["a"]),
        helper.make_node("Mul", ["a", "input"], ["b"]),
        helper.make_node("Mul", ["b", "b"], ["c"]),
        helper.make_node("Sin", ["c"], ["y"]),
    ]
    net = load(built(nodes, []))
    x = np.random.default_rng(0).normal(size=(4, *net.input_shape)).astype(np.float32)
    np.testing.assert_allclose(net.predict(x), np.sin((np.exp(x) * x) ** 2), atol=1e-5)


def test_inputs_and_outputs_are_named() -> None:
    model = onnx_model(loom.Sequential([nn.Dense(2)], input_shape=3))
    model.graph.input.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, ["batch", 2]))
    model.graph.node.append(helper.make_node("Add", ["output", "more"], ["sum"]))
    model.graph.output.append(helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["batch", 2]))
    data = model.SerializeToString()
    more, x = np.array([[5.0, 7.0]], np.float32), np.ones((2, 3), np.float32)
    net = load(data, given={"more": more}, output="sum")
    both = load(data).predict({"input": x, "more": more.repeat(2, axis=0)})
    np.testing.assert_allclose(both["sum"], net.predict(x), atol=1e-5)
    np.testing.assert_allclose(
        net.predict(x) - load(data, given={"more": more}, output="output").predict(x), [[5, 7]] * 2, atol=1e-5
    )
    with pytest.raises(loom.SerializationError, match="no output"):
        load(data, given={"more": more}, output="other")
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "features"
    with pytest.raises(loom.SerializationError, match="input_shape"):
        load(model.SerializeToString(), given={"more": more})
    assert load(model.SerializeToString(), given={"more": more}, input_shape=[3]).input_shape == (3,)


MODELS = sorted(path.stem for path in GOLDEN.glob("*.onnx"))
# PyTorch's newer exporter writes every step of a plain recurrence by itself.
UNROLLED = {"torch_rnn"}


@pytest.mark.parametrize("name", [name for name in MODELS if name not in UNROLLED])
def test_models_of_other_frameworks(name: str) -> None:
    with np.load(GOLDEN / f"{name}.npz") as held:
        x, y = held["x"], held["y"]
    np.testing.assert_allclose(load(GOLDEN / f"{name}.onnx").predict(x), y, rtol=0, atol=1e-5)


def test_patterns_become_layers() -> None:
    def kinds(name: str) -> str:
        return load(GOLDEN / f"{name}.onnx").to_json()

    assert '"causal": true' in kinds("torch_gpt")
    llama = kinds("torch_llama")
    for part in ('"key_value_heads": 2', '"layout": "half_split"', '"type": "swiglu"', '"type": "rms_norm"'):
        assert part in llama
    assert kinds("torch_vit_traced").count('"multi_head_attention"') == 1
    assert kinds("torch_lstm_both").count('"bidirectional": true') == 2
    assert kinds("torch_bert").count('"layer_norm"') == 3


def test_what_has_no_layer_names_its_nodes() -> None:
    with pytest.raises(loom.SerializationError, match='Add "node_add"'):
        load(GOLDEN / "torch_rnn.onnx")


CASES = (
    "conv convtranspose elu flatten gemm globalaveragepool hardsigmoid layernormalization leakyrelu "
    "matmul pad prelu reducemean relu reshape selu sigmoid softmax softplus tanh transpose unsqueeze"
)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("norm", [nn.L2Norm(), nn.RMSNorm(), nn.LayerNorm()])
def test_norms_come_back_behind_a_relu(norm: nn.Layer, dtype: Any) -> None:
    net = loom.Sequential([nn.Dense(8, activation="relu"), norm, nn.Dense(3)], input_shape=4, seed=0)
    # The evaluator knows no DequantizeLinear of so early an opset.
    again = check_both_ways(net.morph(dtype), evaluates=dtype == "float32")
    assert [layer.config.kind for layer in again.layers] == ["dense", norm.kind, "dense"]


def test_onnx_s_own_cases() -> None:
    """What is read of them computes what they say; what they cannot be read as is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        node = importlib.import_module("onnx.backend.test.case.node")
        for name in CASES.split():
            importlib.import_module(f"{node.__name__}.{name}")
    read: dict[str, int] = {}
    for case in node._NodeTestCases:
        values, (expected, *_) = case.data_sets[0]
        if "expanded" in case.name or not all(isinstance(v, np.ndarray) for v in values):
            continue
        if not values or values[0].dtype != np.float32 or values[0].size > 5000:
            continue
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        for entry, array in list(zip(model.graph.input, values, strict=True))[1:]:
            model.graph.initializer.append(numpy_helper.from_array(array, entry.name))
        try:
            net = load(model.SerializeToString(), output=model.graph.output[0].name)
        except loom.SerializationError:
            continue
        y = net.predict(values[0]).reshape(expected.shape)
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-4, err_msg=case.name)
        kind = case.name.split("_")[1]
        read[kind] = read.get(kind, 0) + 1
    assert sum(read.values()) >= 50, read
    assert len(read) >= 16, read


def test_several_outputs_of_one_input_come_back(tmp_path: Path) -> None:
    net = loom.Network(inputs={"words": 4}, grid=(1, 3), seed=0)
    net[0, 0].add(nn.Dense(5, activation="tanh"))
    net[0, 1].add(nn.Dense(2))
    net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Dense(3))
    net.output("first", (0, 1)).output("second", (0, 2))
    loom.save_onnx(net, tmp_path / "net.onnx")
    x = {"words": np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)}
    found = loom.load(tmp_path / "net.onnx").predict(x["words"])
    for name, values in net.predict(x).items():
        np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-6)
    alone = loom.models.onnx.load(tmp_path / "net.onnx", output="first").predict(x["words"])
    np.testing.assert_allclose(alone, found["first"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("text", ["1 / x", "2.5 / x"])
def test_constants_that_are_divided_come_back(text: str) -> None:
    net = loom.Sequential(
        [nn.Dense(4, activation="softplus"), nn.Expr(text), nn.Dense(2)], input_shape=3, seed=0
    )
    x = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    np.testing.assert_allclose(
        load(onnx_model(net).SerializeToString()).predict(x), net.predict(x), rtol=1e-5
    )


def test_what_loom_wrote_comes_back_as_it_was() -> None:
    layers = [
        nn.Embedding(11, 8),
        nn.Residual([nn.RMSNorm(), nn.MixtureOfExperts(4, 2, 6)]),
        nn.Masked([nn.MultiHeadAttention(2, qk_norm="width"), nn.Dense(8)]),
        nn.TiedHead(11, tied_to=(0, 0, 0, 0)),
    ]
    net = loom.Sequential(layers, input_shape=(5,), seed=1)
    again = reread(onnx_model(net))
    assert [layer.kind for layer in again.layers] == [layer.kind for layer in net.layers]
    assert again.layers[-1].config == layers[-1]
    x = np.arange(15).reshape(3, 5) % 11
    np.testing.assert_allclose(again.predict(x), net.predict(x), rtol=0, atol=1e-5)
