"""What the Hub's transformers need beside plain attention: experts, rotary rules, class tokens, pooling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn

Array = NDArray[Any]
WIDTH = 6


def softmax(x: Array) -> Array:
    shares = np.exp(x - x.max(axis=-1, keepdims=True))
    return shares / shares.sum(axis=-1, keepdims=True)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def by_hand(layer: nn.MixtureOfExperts, weights: dict[str, Array], x: Array) -> Array:
    """Each step by itself, through each of its experts."""

    def expert(prefix: str, x: Array, number: Any = ...) -> Array:
        up = weights[f"{prefix}up_weight"][number] @ x
        gate = weights[f"{prefix}gate_weight"][number] @ x if layer.gated else up
        opened = gate * sigmoid(gate)
        return weights[f"{prefix}down_weight"][number] @ (opened * up if layer.gated else opened)

    y = np.zeros_like(x)
    for place in np.ndindex(x.shape[:-1]):
        logits = weights["router_weight"] @ x[place]
        chosen = np.argsort(-logits, kind="stable")[: layer.top_k]
        shares = softmax(logits[chosen]) if layer.normalize else softmax(logits)[chosen]
        for number, share in zip(chosen, shares, strict=True):
            y[place] += share * expert("", x[place], number)
        if layer.shared_units is not None:
            shared = expert("shared_", x[place])
            if layer.shared_gate:
                shared = sigmoid(weights["shared_router_weight"] @ x[place]) * shared
            y[place] += shared
    return y


MIXTURES = {
    "one": nn.MixtureOfExperts(1, 1, 3),
    "mixtral": nn.MixtureOfExperts(8, 2, 5),
    "qwen": nn.MixtureOfExperts(5, 3, 4, normalize=False, shared_units=7, shared_gate=True),
    "plain": nn.MixtureOfExperts(4, 2, 5, gated=False, shared_units=2),
    "all": nn.MixtureOfExperts(3, 3, 4),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_experts_are_those_by_hand(name: str) -> None:
    layer = MIXTURES[name]
    net = loom.Sequential([layer], input_shape=(4, WIDTH), precision="float64", seed=3)
    x = np.random.default_rng(1).normal(size=(5, 4, WIDTH))
    weights = dict(net.layers[0].parameters)
    np.testing.assert_allclose(net.predict(x), by_hand(layer, weights, x), rtol=0, atol=1e-12)
    rows = np.concatenate([net.predict(row[None]) for row in x])
    np.testing.assert_array_equal(rows, net.predict(x))


@pytest.mark.parametrize("name", ["mixtral", "qwen"])
def test_gradients_of_experts_in_the_middle_are_central_differences(name: str) -> None:
    net = loom.Sequential(
        [nn.Dense(WIDTH, activation="tanh"), MIXTURES[name], nn.Dense(2)],
        input_shape=(3, WIDTH),
        precision="float64",
        seed=4,
    )
    rng = np.random.default_rng(2)
    x, weight = rng.normal(size=(2, 3, WIDTH)), rng.normal(size=(2, 3, 2))
    net.forward(x)
    net.backward(weight)
    for layer in net.layers:
        for parameter, values in layer.parameters.items():
            found = np.asarray(layer.gradients[parameter])
            for place in list(np.ndindex(values.shape))[:: max(1, values.size // 12)]:
                sides = []
                for step in (1e-6, -1e-6):
                    moved = np.array(values)
                    moved[place] += step
                    layer.parameters[parameter] = moved
                    sides.append(float((net.predict(x) * weight).sum()))
                layer.parameters[parameter] = values
                assert found[place] == pytest.approx((sides[0] - sides[1]) / 2e-6, abs=1e-7)


def decoder(layers: list[nn.Layer], time: int = 9) -> loom.Network:
    return loom.Sequential([nn.Embedding(11, 8), *layers, nn.TiedHead(11)], input_shape=time, seed=6)


RULES: dict[str, nn.Rotary] = {
    "part": nn.Rotary(dim=4, layout="half_split"),
    "llama3": nn.Rotary(scaling=8, rule=nn.Llama3Rule(16)),
    "yarn": nn.Rotary(scaling=4, rule=nn.YarnRule(16, attention_factor=1.2), layout="half_split"),
    "dynamic": nn.Rotary(scaling=2, rule=nn.DynamicRule(4, 9)),
    "long": nn.Rotary(scaling=2, rule=nn.LongRopeRule(4, np.array([1.0, 1.5, 4.0]))),
}


@pytest.mark.parametrize("name", RULES)
def test_steps_with_a_cache_have_the_bits_of_the_whole(name: str, tmp_path: Path) -> None:
    attention = nn.MultiHeadAttention(
        2, head_dim=6, causal=True, rotary=RULES[name], soft_cap=2.0, scale=0.7, qk_norm="width"
    )
    net = decoder([nn.Residual([attention]), nn.MixtureOfExperts(4, 2, 5), nn.SoftCap(3.0)])
    tokens = np.arange(18).reshape(2, 9) ** 2 % 11
    whole = net.predict(tokens)
    session = net.session(capacity=12, rows=2)
    pieces = [session(tokens[:, start:end]) for start, end in ((0, 1), (1, 6), (6, 9))]
    np.testing.assert_array_equal(np.concatenate(pieces, axis=1), whole)
    net.save(tmp_path / "net.loom")
    loaded = loom.load(tmp_path / "net.loom")
    np.testing.assert_array_equal(loaded.predict(tokens), whole)
    assert loaded.config == net.config


def test_rules_are_read_from_their_json_and_refused_by_name() -> None:
    rotary = nn.Rotary(scaling=8, rule={"llama3": {"original_length": 64}})  # type: ignore[arg-type]
    assert rotary.rule == nn.Llama3Rule(64)
    assert nn.Rotary.from_config(rotary.to_config()) == rotary
    with pytest.raises(loom.ConfigError, match="did you mean"):
        nn.Rotary(rule={"yern": {"original_length": 64}})
    with pytest.raises(loom.ConfigError, match="high_factor"):
        nn.Llama3Rule(64, low_factor=4, high_factor=4)
    with pytest.raises(loom.ConfigError, match="even"):
        nn.Rotary(dim=3)
    attention = nn.MultiHeadAttention(1, head_dim=4, rotary=nn.Rotary(rule=nn.LongRopeRule(4, [1.0])))
    with pytest.raises(loom.ShapeError, match="1 factors does not fit 2 pairs"):
        loom.Sequential([attention], input_shape=(3, 4)).predict(np.zeros((1, 3, 4)))
    with pytest.raises(loom.ConfigError, match="qk_norm"):
        nn.MultiHeadAttention(1, qk_norm="heads")
    with pytest.raises(loom.ConfigError, match="top_k"):
        nn.MixtureOfExperts(2, 3, 4)
    with pytest.raises(loom.ConfigError, match="shared_gate"):
        nn.MixtureOfExperts(2, 1, 4, shared_gate=True)


def test_experts_are_packed_and_their_router_is_not() -> None:
    net = loom.Sequential([nn.MixtureOfExperts(4, 2, 32)], input_shape=(3, 64), seed=2)
    x = np.random.default_rng(5).normal(size=(2, 3, 64)).astype(np.float32)
    exact = net.predict(x)
    net.morph("q8_0")
    assert 0 < np.abs(net.predict(x) - exact).max() < 0.05 * np.abs(exact).max()
    with pytest.raises(loom.InvalidValueError, match="experts"):
        net.morph("int8", activations="int8")


def test_experts_and_their_router_learn() -> None:
    net = loom.Sequential([nn.MixtureOfExperts(4, 2, 8), nn.Dense(1)], input_shape=WIDTH, seed=1)
    rng = np.random.default_rng(7)
    x = rng.normal(size=(256, WIDTH))
    y = np.where(x[:, :1] > 0, x[:, 1:2], -2 * x[:, 2:3])
    before = np.array(net.layers[0].parameters["router_weight"])
    config = loom.TrainingConfig(loss="mse", optimizer="adam", learning_rate=1e-2, device="cpu")
    trainer = loom.Trainer(net, config)
    first = trainer.step(x, y)
    for _ in range(150):
        last = trainer.step(x, y)
    assert last < 0.3 * first
    assert np.abs(net.layers[0].parameters["router_weight"] - before).max() > 1e-3


def test_class_tokens_stand_before_the_sequence() -> None:
    net = loom.Sequential([nn.ClassToken(2)], input_shape=(3, WIDTH), precision="float64", seed=1)
    x = np.random.default_rng(1).normal(size=(4, 3, WIDTH))
    rows = np.broadcast_to(net.layers[0].parameters["weight"], (4, 2, WIDTH))
    np.testing.assert_array_equal(net.predict(x), np.concatenate([rows, x], axis=1))
    with pytest.raises(loom.InvalidValueError, match="ClassToken inside Masked"):
        loom.Sequential([nn.Masked([nn.ClassToken()])], input_shape=(3, WIDTH)).predict(x)


@pytest.mark.parametrize("masked", [False, True])
def test_pooling_leaves_padding_out(masked: bool) -> None:
    x = np.random.default_rng(1).normal(size=(3, 5, WIDTH))
    real = np.ones((3, 5), dtype=bool)
    if masked:
        real[0, 3:] = real[1, 0] = real[1, 2] = real[2] = False
        x[~real] = 0
    for steps in ("first", "mean", "last"):
        pool = nn.SequencePool(steps)
        net = loom.Sequential(
            [nn.Masked([pool]) if masked else pool], input_shape=(5, WIDTH), precision="float64"
        )
        expected = np.zeros((3, WIDTH))
        for row in range(3):
            there = x[row][real[row]]
            if len(there):
                expected[row] = {"first": there[0], "mean": there.mean(axis=0), "last": there[-1]}[steps]
        np.testing.assert_allclose(net.predict(x), expected, rtol=0, atol=1e-14)


def test_small_layers() -> None:
    x = np.random.default_rng(1).normal(size=(3, 5))
    for layer, expected in [
        (nn.Scale(1.5), 1.5 * x),
        (nn.SoftCap(0.7), 0.7 * np.tanh(x / 0.7)),
        (nn.L2Norm(), x / np.linalg.norm(x, axis=1, keepdims=True)),
    ]:
        net = loom.Sequential([layer], input_shape=5, precision="float64")
        np.testing.assert_allclose(net.predict(x), expected, rtol=0, atol=1e-12)
    assert not loom.Sequential([nn.L2Norm()], input_shape=5).predict(np.zeros((1, 5))).any()
