"""Adapters that decompose weights into lengths and directions (DoRA), beside weights of every kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.errors import ConfigError, InvalidValueError
from networks import llama
from test_adapters import WORDS, config, decoder, dense, stirred, texts

Array = np.ndarray[Any, Any]


def decomposed(net: loom.Network, seed: int = 0, **settings: Any) -> loom.Network:
    """The network with such adapters, as if they had been trained."""
    stirred(net.add_adapter(rank=2, decomposed=True, **settings), seed)
    for layer in net.layers:
        for name in layer.parameters:
            if name.endswith(".lora_magnitude"):
                draws = np.random.default_rng(len(name))
                layer[name] = layer[name] * draws.uniform(0.5, 1.5, layer[name].shape)
    return net


def parts(layer: loom.network.LayerHandle, weight: str, name: str = "default") -> list[Array]:
    return [layer[f"{weight}.{name}.{part}"] for part in ("lora_a", "lora_b", "lora_magnitude")]


def effective(layer: loom.network.LayerHandle, weight: str, scale: float = 2.0) -> Array:
    """What the paper says that the layer computes with, from its weight as it is read."""
    a, b, magnitude = parts(layer, weight)
    total = layer.decoded(weight).astype(np.float64) + scale * b @ a
    return total * (magnitude / np.linalg.norm(total, axis=1))[:, None]


# What is computed


@pytest.mark.parametrize("dtype", [None, "int8", "int4", "nf4", "q4_0", "bfloat16", "uint4"])
@pytest.mark.parametrize("dropped", [False, True])
def test_products_are_those_with_rows_of_the_lengths_that_are_said(dtype: Any, dropped: bool) -> None:
    net = dense(6, 64)
    layer, bias = net.layers[0], np.arange(6.0)
    layer["bias"] = bias
    if dtype is not None:
        net.morph(dtype)
        if dropped:
            net.drop_master()
    net.add_adapter(rank=2, decomposed=True)
    own = layer.decoded("weight").astype(np.float64)
    np.testing.assert_allclose(parts(layer, "weight")[2], np.linalg.norm(own, axis=1), rtol=1e-6)
    x = np.random.default_rng(1).normal(size=(4, 64))
    np.testing.assert_allclose(net.predict(x), x @ own.T + bias, rtol=1e-5, atol=1e-5)
    stirred(net)
    layer["weight.default.lora_magnitude"] = np.linspace(0.5, -3.0, 6)
    wanted = x @ effective(layer, "weight").T + bias
    np.testing.assert_allclose(net.predict(x), wanted, rtol=1e-5, atol=1e-5)
    assert net.adapters["default"].decomposed
    assert net.adapters["default"].parameters == 2 * (6 + 64) + 6


def test_a_row_of_zeros_stays_one() -> None:
    net = dense(3, 4)
    net.layers[0]["weight"] = np.zeros((3, 4))
    net.add_adapter(rank=1, decomposed=True)
    net.layers[0]["weight.default.lora_magnitude"] = np.ones(3)
    assert not net.predict(np.ones((2, 4))).any()


LAYERS: list[nn.Layer] = [
    nn.Dense(6, activation="gelu"),
    nn.MultiHeadAttention(2, head_dim=4, causal=True, rotary=nn.Rotary(), qk_norm=True),
    nn.SwiGLU(9),
    nn.GRU(6, return_sequences=True),
    nn.Residual([nn.LayerNorm(), nn.MultiHeadAttention(2)]),
    nn.Checkpoint([nn.Dense(7, activation="tanh"), nn.Dense(6)]),
    nn.MixtureOfExperts(experts=3, top_k=2, units=5, shared_units=4),
]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.kind)
@pytest.mark.parametrize("freeze", [True, False])
def test_gradients_are_those_of_weights_with_their_lengths_held(layer: nn.Layer, freeze: bool) -> None:
    """With c = |W + s B A| a constant, m / c times all that makes an output is a layer of other numbers.

    Its plain adapter has gradients whose proofs are elsewhere; those here are these times m / c, and that of
    m is what the gradient of the whole weight says along W + s B A, by c.
    """
    layers = [nn.Dense(6, activation="tanh"), layer, nn.Dense(3)]
    nets = [
        loom.Sequential(layers, input_shape=(4, 5), seed=2, precision="float64").add_adapter(
            rank=2, targets="0.0.0.1.*", decomposed=is_decomposed, freeze=freeze and is_decomposed
        )
        for is_decomposed in (True, False)
    ]
    net, plain = stirred(nets[0]), nets[1]
    own, other = net.layers[1], plain.layers[1]
    draws = np.random.default_rng(4)
    factors: dict[str, tuple[Array, Array, Array]] = {}
    for name in own.parameters:
        if name.endswith(".lora_magnitude"):
            own[name] = own[name] * draws.uniform(0.5, 1.5, own[name].shape)
            weight = name.removesuffix(".default.lora_magnitude")
            a, b, magnitude = parts(own, weight)
            total = own[weight] + 2.0 * b @ a
            lengths = np.linalg.norm(total, axis=1)
            factor = (magnitude / lengths)[:, None]
            factors[weight] = factor, total, lengths
            other[weight] = factor * own[weight]
            other[f"{weight}.default.lora_a"], other[f"{weight}.default.lora_b"] = a, factor * b
    assert factors
    x, dy = draws.normal(size=(2, 4, 5)), draws.normal(size=(2, 4, 3))
    inputs = []
    for each in nets:
        np.testing.assert_allclose(each.predict(x), plain.predict(x), rtol=1e-11, atol=1e-12)
        each.forward(x, training=False)
        inputs.append(each.backward(dy))
    np.testing.assert_allclose(inputs[0], inputs[1], rtol=1e-9, atol=1e-12)
    for weight, (factor, total, lengths) in factors.items():
        of_weight = other.gradients[weight]
        wanted = {
            "lora_a": other.gradients[f"{weight}.default.lora_a"],
            "lora_b": factor * other.gradients[f"{weight}.default.lora_b"],
            "lora_magnitude": (of_weight * total).sum(axis=1) / lengths,
        }
        for part, values in wanted.items():
            found = own.gradients[f"{weight}.default.{part}"]
            np.testing.assert_allclose(found, values, rtol=1e-8, atol=1e-11, err_msg=f"{weight} {part}")
        if freeze:
            assert not own.gradients[weight].any()
        else:
            np.testing.assert_allclose(own.gradients[weight], factor * of_weight, rtol=1e-8, atol=1e-11)


def test_plain_adapters_add_to_what_has_its_lengths() -> None:
    net = decomposed(dense(5, 7, precision="float64"))
    stirred(net.add_adapter("plain", rank=3, alpha=1.5), seed=1)
    layer, x = net.layers[0], np.random.default_rng(1).normal(size=(4, 7))
    a, b = layer["weight.plain.lora_a"], layer["weight.plain.lora_b"]
    wanted = x @ (effective(layer, "weight") + 0.5 * b @ a).T + layer.bias
    np.testing.assert_allclose(net.predict(x), wanted, rtol=1e-12)
    with pytest.raises(InvalidValueError, match="merge it first"):
        net.merge_adapters("plain")
    np.testing.assert_allclose(net.merge_adapters("default").predict(x), wanted, rtol=1e-12)
    np.testing.assert_allclose(net.merge_adapters("plain").predict(x), wanted, rtol=1e-12)


# What is made once is made anew when it must


def test_lengths_follow_whatever_moves() -> None:
    net, (x, y) = decomposed(decoder(), freeze=False), texts(8)

    def wanted() -> Array:
        merged = loom.Network.from_config(net.config)
        merged.load_state_dict(net.state_dict())
        return merged.merge_adapters().predict(x)

    def check() -> None:
        for _ in range(2):
            np.testing.assert_allclose(net.predict(x), wanted(), rtol=1e-3, atol=2e-5)

    check()
    loom.train(net, (x, y), config())
    check()
    layer = net.layers[1]
    for name in ("layers.1.query_weight", "layers.1.query_weight.default.lora_b"):
        layer[name] = layer[name] * 1.5 + 0.1
        check()
    before = net.session(x.shape[1], rows=8)(x[:, :5])
    layer["layers.1.value_weight"] = layer["layers.1.value_weight"] * -2.0
    check()
    after = net.session(x.shape[1], rows=8)(x[:, :5])
    np.testing.assert_allclose(after, net.predict(x)[:, :5], rtol=1e-3, atol=2e-5)
    assert np.abs(after - before).max() > 1e-3
    history = loom.train(net, (x, y), config(epochs=2), (x, y)).history
    assert history["val_loss"][-1] == pytest.approx(net.evaluate((x, y), config())["loss"], rel=1e-5)
    check()


def test_answers_of_a_session_are_those_of_whole_sequences() -> None:
    net, (x, _) = decomposed(decoder().morph("int8").drop_master()), texts(2)
    session = net.session(x.shape[1], rows=2)
    pieces = [session(x[:, :5]), *(session(x[:, [step]]) for step in range(5, 8)), session(x[:, 8:])]
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), net.predict(x), atol=1e-5)


# What is trained


def test_training_moves_all_three_parts_and_nothing_else() -> None:
    net, data = decoder(), texts()
    net.add_adapter(rank=4, targets=["query", "value", "dense"], dropout=0.1, decomposed=True)
    before = net.state_dict()
    result = loom.train(net, data, config(epochs=20))
    assert result.history["loss"][-1] < 0.8 * result.history["loss"][0]
    for name, values in net.state_dict().items():
        assert (values == before[name]).all() == ("lora" not in name), name
    assert sum("lora_magnitude" in name for name in before) == 3


@pytest.mark.parametrize("dtype", ["int4", "nf4", "q4_0"])
def test_packed_weights_without_masters_stay_packed_while_adapters_learn(dtype: Any) -> None:
    net, data = decoder().morph(dtype), texts()
    net.drop_master()
    before = net.predict(data[0])
    net.add_adapter(rank=4, targets=["query", "value", "up", "dense"], decomposed=True)
    np.testing.assert_allclose(net.predict(data[0]), before, rtol=1e-3, atol=1e-5)
    result = loom.train(net, data, config(epochs=15))
    assert result.history["loss"][-1] < 0.85 * result.history["loss"][0]
    assert all(net.layers[place].weights.dropped for place in (0, 1, 2, 4))
    assert (net.use_adapters().predict(data[0]) == before).all()


@pytest.mark.parametrize("dtype", [None, "int4", "q4_0"])
def test_a_gpu_learns_the_same(gpu: str, dtype: Any) -> None:
    found = []
    for device in ("cpu", gpu):
        net = decoder()
        if dtype is not None:
            net.morph(dtype).drop_master()
        net.add_adapter(rank=4, targets=["query", "down", "dense"], decomposed=True).to(device)
        result = loom.train(net, texts(), config(epochs=4, device=device))
        x = texts(2)[0]
        session = net.session(x.shape[1], rows=2)
        scores = [net.predict(x), np.concatenate([session(x[:, :6]), session(x[:, 6:])], axis=1)]
        lora = [(layer, name) for layer in net.layers for name in layer.parameters if "lora" in name]
        moved = {f"{layer.path}.{name}": layer[name] for layer, name in lora}
        found.append((result.history["loss"][-1], moved, scores))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-4)
    for name, values in found[0][1].items():
        np.testing.assert_allclose(found[1][1][name], values, atol=2e-4, err_msg=name)
    for scores in zip(found[0][2], found[1][2], strict=True):
        np.testing.assert_allclose(scores[1], scores[0], atol=2e-3)


def test_a_training_goes_on_from_a_file_bit_for_bit(tmp_path: Path) -> None:
    whole, half = (decoder().add_adapter(rank=2, dropout=0.2, decomposed=True) for _ in range(2))
    loom.train(whole, texts(), config(epochs=4))
    loom.train(half, texts(), config(epochs=2))
    half.save(tmp_path / "half.loom", optimizer=True)
    again = loom.load(tmp_path / "half.loom")
    loom.train(again, texts(), config(epochs=4), resume=True)
    assert again.fingerprint() == whole.fingerprint()


# Files


def test_files_and_copies_keep_lengths(tmp_path: Path) -> None:
    net, (x, _) = decomposed(decoder()), texts(4)
    net.save(tmp_path / "net.loom")
    loaded = loom.load(tmp_path / "net.loom")
    assert loaded.adapters == net.adapters
    assert loaded.fingerprint() == net.fingerprint()
    assert (loaded.predict(x) == net.predict(x)).all()


@pytest.mark.parametrize("write", ["gguf", "onnx", "state"])
def test_files_of_weights_alone_have_what_is_computed_with(write: str, tmp_path: Path) -> None:
    net = decomposed(llama())
    words = np.arange(12)[None] * 3 % 50
    expected = net.predict(words)
    if write == "gguf":
        loom.save_gguf(net, tmp_path / "net.gguf")
        found = loom.load(tmp_path / "net.gguf").predict(words)
    elif write == "onnx":
        onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
        from onnx.reference import ReferenceEvaluator

        loom.save_onnx(net, tmp_path / "net.onnx")
        given = {"input": words.astype(np.float32)}
        (found,) = ReferenceEvaluator(onnx.load(tmp_path / "net.onnx")).run(None, given)
    else:
        net.save_adapter(tmp_path / "adapter")
        found = llama().load_adapter(tmp_path / "adapter", merge=True).predict(words)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


# What is refused


def beside(net: loom.Network) -> None:
    net.add_adapter("second", rank=1, targets="query", decomposed=True)


def switched(net: loom.Network) -> None:
    net.use_adapters()
    net.add_adapter("second", rank=1, targets="query", decomposed=True)
    net.use_adapters("default", "second")


@pytest.mark.parametrize("change", [beside, switched])
def test_lengths_of_two_at_once_are_refused(change: Callable[[loom.Network], None]) -> None:
    net = decomposed(decoder(), targets=["query", "dense"])
    with pytest.raises(InvalidValueError, match=r'"(default|second)" gives the outputs of .* their lengths'):
        change(net)
    assert net.predict(texts(2)[0]).shape == (2, 12, WORDS)


def test_settings_of_other_kinds_are_refused() -> None:
    with pytest.raises(ConfigError, match="decomposed"):
        decoder().add_adapter(decomposed="yes")  # type: ignore[arg-type]
