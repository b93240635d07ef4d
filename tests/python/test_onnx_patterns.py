"""Attention, rotations, norms and limits that ONNX writes as many operators, read as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import loom
from loom import nn
from loom.models.onnx import load
from loom.models.onnx.export import onnx_model
from onnx_models import built, computed, reread


def between_scores(nodes: list[Any]) -> Any:
    """Returns attention with nodes before its softmax, which read "scores" and make "bent"."""
    model = onnx_model(loom.Sequential([nn.MultiHeadAttention(2)], input_shape=(4, 4), seed=1))
    softmax = next(node for node in model.graph.node if node.op_type == "Softmax")
    place = list(model.graph.node).index(softmax)
    for node in nodes:
        for which, name in enumerate(node.input):
            node.input[which] = softmax.input[0] if name == "scores" else name
    softmax.input[0] = "bent"
    for tensor in ("two", "minus_two", "half"):
        value = {"two": 2.0, "minus_two": -2.0, "half": 0.5}[tensor]
        model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), tensor))
    kept = list(model.graph.node)
    del model.graph.node[:]
    # Without the note of loom's exporter it could be anyone's file.
    for node in [*kept[:place], *nodes, *kept[place:]]:
        node.doc_string = ""
        model.graph.node.append(node)
    return model


@pytest.mark.parametrize(
    ("op", "constants"),
    [
        ("Tanh", []),
        ("Relu", []),
        ("Abs", []),
        ("Sigmoid", []),
        ("Min", ["two"]),
        ("Max", ["minus_two"]),
        ("Clip", ["minus_two", "two"]),
    ],
)
def test_scores_that_are_bent_are_never_read_as_plain_attention(op: str, constants: list[str]) -> None:
    model = between_scores([helper.make_node(op, ["scores", *constants], ["bent"])])
    x = np.random.default_rng(0).normal(size=(3, 4, 4)).astype(np.float32) * 20
    if op == "Tanh":
        net = reread(model)
        assert net.layers[0].config.soft_cap == 1.0
        np.testing.assert_allclose(net.predict(x), computed(model, x), rtol=0, atol=1e-4)
        return
    with pytest.raises(loom.SerializationError, match="its scores"):
        reread(model)


def test_soft_caps_weights_behind_the_softmax_and_its_axis() -> None:
    capped = [
        helper.make_node("Mul", ["scores", "half"], ["small"]),
        helper.make_node("Tanh", ["small"], ["held"]),
        helper.make_node("Mul", ["held", "two"], ["bent"]),
    ]
    model = between_scores(capped)
    net = reread(model)
    assert net.layers[0].config.soft_cap == 2.0
    x = np.random.default_rng(0).normal(size=(3, 4, 4)).astype(np.float32) * 3
    np.testing.assert_allclose(net.predict(x), computed(model, x), rtol=0, atol=1e-5)
    model = between_scores([helper.make_node("Identity", ["scores"], ["bent"])])
    assert isinstance(reread(model).layers[0].config, nn.MultiHeadAttention)
    softmax = next(node for node in model.graph.node if node.op_type == "Softmax")
    softmax.attribute[0].i = -2
    with pytest.raises(loom.SerializationError, match="another axis than the last"):
        reread(model)


@pytest.mark.parametrize("base", [100.0, 10_000.0, 500_000.0, 1e6, 1e8])
@pytest.mark.parametrize("layout", ["interleaved", "half_split"])
def test_rotary_of_any_base_comes_back(base: float, layout: str) -> None:
    for dim in (None, 8):
        rotary = nn.Rotary(base=base, layout=layout, dim=dim)
        net = loom.Sequential([nn.MultiHeadAttention(2, rotary=rotary)], input_shape=(20, 32), seed=1)
        model = onnx_model(net)
        for node in model.graph.node:
            node.doc_string = ""
        again = reread(model)
        assert again.layers[0].config.rotary == rotary
        x = np.random.default_rng(0).normal(size=(2, 20, 32)).astype(np.float32)
        np.testing.assert_allclose(again.predict(x), net.predict(x), rtol=0, atol=1e-5)


def test_rotary_with_a_rule_comes_back_with_its_rates() -> None:
    rotary = nn.Rotary(base=500_000, scaling=8, rule=nn.Llama3Rule(16))
    net = loom.Sequential([nn.MultiHeadAttention(2, rotary=rotary)], input_shape=(20, 32), seed=1)
    model = onnx_model(net)
    for node in model.graph.node:
        node.doc_string = ""
    x = np.random.default_rng(0).normal(size=(2, 20, 32)).astype(np.float32)
    np.testing.assert_allclose(reread(model).predict(x), net.predict(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("epsilon", [1e-12, 1e-8, 1e-6, 1e-5, 1e-3])
@pytest.mark.parametrize("layer", [nn.L2Norm, nn.RMSNorm, nn.LayerNorm])
def test_norms_come_back_with_their_epsilon(layer: Any, epsilon: float) -> None:
    net = loom.Sequential([layer(epsilon=epsilon)], input_shape=(3, 4))
    again = reread(onnx_model(net))
    assert again.layers[0].config == layer(epsilon=epsilon)
    for size in (1e-7, 1e-4, 1.0, 100.0):
        x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32) * np.float32(size)
        np.testing.assert_allclose(again.predict(x), net.predict(x), rtol=0, atol=1e-5)


def test_limits_far_out_are_not_overlooked() -> None:
    limits = [
        numpy_helper.from_array(np.array(value, np.float32), name) for name, value in (("l", -50), ("h", 50))
    ]
    clip = built([helper.make_node("Clip", ["input", "l", "h"], ["y"])], limits)
    x = np.array([[-70, 3, 1000]], np.float32)
    np.testing.assert_allclose(load(clip).predict(x), [[-50, 3, 50]], atol=1e-4)
    bent = built([helper.make_node("ThresholdedRelu", ["input"], ["y"], alpha=40.0)])
    with pytest.raises(loom.SerializationError, match="no activation"):
        load(bent)
