"""Attention with biases by distance and with dropout of its weights, against NumPy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn

Array = NDArray[np.float64]


def slopes(heads: int) -> list[float]:
    """The function `get_slopes` of the paper's own code (Press et al. 2022)."""

    def of_a_power(n: int) -> list[float]:
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(heads).is_integer():
        return of_a_power(heads)
    power = 2 ** math.floor(math.log2(heads))
    return of_a_power(power) + slopes(2 * power)[0::2][: heads - power]


def buckets(distance: Array, both_ways: bool, count: int, most: int) -> NDArray[np.int64]:
    """`_relative_position_bucket` of T5 (Raffel et al. 2020), for `memory_position - query_position`."""
    found = np.zeros(distance.shape, np.int64)
    n = -distance
    if both_ways:
        count //= 2
        found += (n < 0) * count
        n = np.abs(n)
    else:
        n = np.maximum(n, 0)
    exact = count // 2
    large = exact + (
        np.log(np.maximum(n, 1).astype(np.float32) / exact) / math.log(most / exact) * (count - exact)
    ).astype(np.float32).astype(np.int64)
    return found + np.where(n < exact, n, np.minimum(large, count - 1))


def added(layer: nn.MultiHeadAttention, time: int, table: Array | None) -> Array:
    """What the layer adds to scores: (heads, time, time)."""
    distance = np.arange(time) - np.arange(time)[:, None]
    if isinstance(layer.position_bias, nn.RelativeBias):
        bias = layer.position_bias
        assert table is not None
        rows = buckets(distance, not layer.causal, bias.buckets, bias.max_distance)
        return np.moveaxis(table[rows], 2, 0)
    return -np.array(slopes(layer.heads))[:, None, None] * np.abs(distance)


def attention(layer: nn.MultiHeadAttention, values: dict[str, Array], x: Array) -> tuple[Array, Array]:
    """The layer's output and weights."""
    (rows, time, width), heads = x.shape, layer.heads
    groups, head_dim = layer.key_value_heads or heads, layer.head_dim or width // heads

    def split(name: str, count: int) -> Array:
        y = x @ values[f"{name}_weight"].T + values[f"{name}_bias"]
        return np.repeat(y.reshape(rows, time, count, head_dim).swapaxes(1, 2), heads // count, axis=1)

    q, k, v = split("query", heads), split("key", groups), split("value", groups)
    scores = q @ k.swapaxes(2, 3) * (head_dim**-0.5 if layer.scale is None else layer.scale)
    scores = scores + added(layer, time, values.get("relative_bias"))
    if layer.soft_cap is not None:
        scores = layer.soft_cap * np.tanh(scores / layer.soft_cap)
    distance = np.arange(time) - np.arange(time)[:, None]
    seen = distance <= 0 if layer.causal else np.ones((time, time), bool)
    if layer.window is not None:
        seen &= np.abs(distance) < layer.window
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    y = (weights @ v).swapaxes(1, 2).reshape(rows, time, heads * head_dim)
    return y @ values["output_weight"].T + values["output_bias"], weights


def drawn(random: np.random.Generator) -> tuple[nn.MultiHeadAttention, int, int]:
    """Some layer with a bias, the steps of its sequences and their width."""
    groups, times = int(random.integers(1, 4)), int(random.integers(1, 4))
    causal = bool(random.integers(2))
    relative = nn.RelativeBias(2 * int(random.integers(2, 9)), int(random.integers(9, 40)))
    layer = nn.MultiHeadAttention(
        groups * times,
        key_value_heads=groups,
        head_dim=int(random.integers(1, 9)),
        causal=causal,
        window=int(random.integers(1, 9)) if random.integers(3) == 0 else None,
        scale=1.0 if random.integers(2) else None,
        soft_cap=1.5 if random.integers(3) == 0 else None,
        position_bias=relative if random.integers(2) else nn.ALiBi(),
    )
    return layer, int(random.integers(1, 60)), int(random.integers(1, 9))


@pytest.mark.parametrize("seed", range(40))
def test_any_attention_with_a_bias_is_that_of_numpy(seed: int) -> None:
    random = np.random.default_rng(seed)
    layer, time, width = drawn(random)
    net = loom.Sequential([layer], input_shape=(time, width), precision="float64", seed=seed)
    for name, parameter in net.layers[0].parameters.items():
        net.layers[0][name] = random.standard_normal(parameter.shape)
    values = {name: np.asarray(parameter) for name, parameter in net.layers[0].parameters.items()}
    x = random.standard_normal((3, time, width))
    expected, weights = attention(layer, values, x)
    np.testing.assert_allclose(net.predict(x), expected, rtol=0, atol=1e-11 * np.abs(expected).max())
    found = net.activations(x, attention=True).attention["0.0.0.0"]
    np.testing.assert_allclose(found, weights, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_the_table_are_those_of_numpy(causal: bool) -> None:
    random = np.random.default_rng(5)
    layer = nn.MultiHeadAttention(4, key_value_heads=2, causal=causal, position_bias=nn.RelativeBias(6, 7))
    net = loom.Sequential([layer], input_shape=(11, 8), precision="float64")
    values = {name: np.asarray(parameter) for name, parameter in net.layers[0].parameters.items()}
    x, dy = random.standard_normal((2, 11, 8)), random.standard_normal((2, 11, 8))
    net.forward(x)
    net.backward(dy)
    found = net.layers[0].gradients["relative_bias"]
    assert found.shape == (6, 4)
    for place in np.ndindex(6, 4):
        ends = []
        for step in (1e-5, -1e-5):
            table = values["relative_bias"].copy()
            table[place] += step
            ends.append((attention(layer, {**values, "relative_bias": table}, x)[0] * dy).sum())
        assert found[place] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-7)


@pytest.mark.parametrize("count", [8, 32])
@pytest.mark.parametrize("most", [20, 128, 1000])
@pytest.mark.parametrize("causal", [False, True])
def test_distances_fall_into_the_buckets_of_t5(count: int, most: int, causal: bool) -> None:
    from loom.models.distances import bias_rows

    time = 1200
    distance = np.arange(time) - np.arange(time)[:, None]
    found = bias_rows(nn.RelativeBias(count, most), causal, time, time)
    np.testing.assert_array_equal(found, buckets(distance, not causal, count, most))


@pytest.mark.parametrize("bias", ["alibi", nn.RelativeBias(6, 12)])
@pytest.mark.parametrize("window", [None, 7])
def test_steps_with_a_cache_have_the_bits_of_the_whole(bias: Any, window: int | None, tmp_path: Path) -> None:
    layer = nn.MultiHeadAttention(4, key_value_heads=2, causal=True, window=window, position_bias=bias)
    layers = [nn.Embedding(9, 16), nn.Residual([nn.RMSNorm(), layer]), nn.Dense(9)]
    net = loom.Sequential(layers, input_shape=20)
    x = np.random.default_rng(1).integers(0, 9, (2, 20))
    whole = net.predict(x)
    session = net.session(capacity=50, rows=2)
    pieces = [session(x[:, start:end]) for start, end in ((0, 1), (1, 9), (9, 10), (10, 20))]
    np.testing.assert_array_equal(np.concatenate(pieces, axis=1), whole)
    net.save(tmp_path / "net.loom")
    read = loom.load(tmp_path / "net.loom")
    assert read.layers[1].layers[1].config == layer
    np.testing.assert_array_equal(read.predict(x), whole)


@pytest.mark.parametrize("bias", [nn.ALiBi(), nn.RelativeBias(8, 20)])
def test_onnx_says_the_bias(bias: nn.PositionBias, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    layers = [nn.MultiHeadAttention(3, causal=True, soft_cap=4.0, dropout=0.3, position_bias=bias)]
    net = loom.Sequential(layers, input_shape=(10, 6), seed=4)
    loom.save_onnx(net, tmp_path / "net.onnx")
    x = np.random.default_rng(2).standard_normal((2, 10, 6), np.float32)
    reference = pytest.importorskip("onnx.reference")
    evaluator = reference.ReferenceEvaluator(str(tmp_path / "net.onnx"))
    (found,) = evaluator.run(None, {evaluator.input_names[0]: x})
    np.testing.assert_allclose(found, net.predict(x), rtol=0, atol=2e-6)
    again = loom.load(tmp_path / "net.onnx")
    np.testing.assert_allclose(again.predict(x), net.predict(x), rtol=0, atol=2e-6)


def model(dropout: float, device: str = "cpu", seed: int = 0) -> loom.Network:
    layer = nn.MultiHeadAttention(2, causal=True, dropout=dropout, position_bias=nn.RelativeBias(8, 20))
    layers = [
        nn.Embedding(7, 16),
        nn.Residual([nn.RMSNorm(), layer]),
        nn.Residual(nn.SwiGLU(32)),
        nn.Dense(7),
    ]
    return loom.Sequential(layers, input_shape=24, seed=seed).to(device)


def sequences(rows: int) -> NDArray[np.int64]:
    """Texts of a few letters, each one the letter three before plus the one before, modulo 7."""
    random = np.random.default_rng(3)
    text = random.integers(0, 7, (rows, 3))
    for _ in range(22):
        text = np.concatenate([text, (text[:, -3:-2] + text[:, -1:]) % 7], axis=1)
    return text


def test_a_model_learns_with_both_and_tells_what_comes_next() -> None:
    text = sequences(256)
    net = model(0.1)
    settings: dict[str, Any] = {"epochs": 40, "batch_size": 32, "learning_rate": 1e-2, "verbose": 0}
    net.fit(text[:, :-1], text[:, 1:], loss="cross_entropy", **settings)
    predicted = net.predict(text[:, :-1])[:, 3:].argmax(axis=-1)
    assert (predicted == text[:, 4:]).mean() > 0.9


def losses(net: loom.Network, **settings: Any) -> list[float]:
    text = sequences(32)
    settings = {"epochs": 3, "batch_size": 8, "learning_rate": 1e-3, "verbose": 0, **settings}
    return net.fit(text[:, :-1], text[:, 1:], loss="cross_entropy", **settings).loss_history


def test_dropout_is_of_training_alone_and_draws_by_seed() -> None:
    x = sequences(4)[:, :-1]
    np.testing.assert_array_equal(model(0.5).predict(x), model(0.0).predict(x))
    first, second, third = (losses(model(rate)) for rate in (0.5, 0.5, 0.0))
    assert first == second != third
    assert losses(model(0.5), seed=9) != first


def test_both_devices_leave_out_the_same(gpu: str) -> None:
    np.testing.assert_allclose(losses(model(0.4, gpu)), losses(model(0.4)), rtol=2e-4)


def test_gradients_in_parts_leave_out_what_the_whole_does() -> None:
    text, found = sequences(16), []
    for parts in (1, 2, 4):
        net = model(0.5)
        settings: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 0.1, "shuffle": False, "verbose": 0}
        settings |= {"epochs": 2, "batch_size": 8 // parts, "accumulate": parts}
        net.fit(text[:, :-1], text[:, 1:], loss="cross_entropy", **settings)
        found.append(np.asarray(net.layers[1].layers[1]["relative_bias"]))
    assert np.abs(found[0] - np.asarray(model(0.5).layers[1].layers[1]["relative_bias"])).max() > 1e-4
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"position_bias": "alibi", "cross": True}, "leave out position_bias or cross"),
        ({"position_bias": nn.RelativeBias(7)}, "even and at least 4"),
        ({"position_bias": nn.RelativeBias(1), "causal": True}, "at least 2"),
        ({"position_bias": nn.RelativeBias(32, 8)}, "above 8"),
        ({"position_bias": "alibbi"}, "alibi"),
        ({"position_bias": 3}, "position_bias"),
        ({"dropout": 1.0}, "dropout"),
        ({"dropout": -0.1}, "dropout"),
    ],
)
def test_what_has_no_meaning_is_refused_by_name(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(loom.ConfigError, match=told):
        nn.MultiHeadAttention(2, **settings)
