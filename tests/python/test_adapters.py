"""Adapters beside weights: what is computed and trained with them, and that nothing else moves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest

import loom
from loom import nn
from loom.errors import ConfigError, InvalidValueError, StateError
from networks import llama

WORDS, STEPS = 30, 12


def decoder(**settings: Any) -> loom.Network:
    """A small language model."""
    attention = nn.MultiHeadAttention(4, causal=True, rotary=nn.Rotary(), bias=True)
    layers = [
        nn.Embedding(WORDS, 16),
        nn.Residual([nn.RMSNorm(), attention]),
        nn.Residual([nn.RMSNorm(), nn.SwiGLU(24)]),
        nn.RMSNorm(),
        nn.Dense(WORDS, bias=False),
    ]
    return loom.Sequential(layers, input_shape=STEPS, seed=1, **settings)


def texts(rows: int = 32) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    x = np.random.default_rng(0).integers(0, WORDS, (rows, STEPS))
    return x, (x * 7 + 3) % WORDS


def config(**settings: Any) -> loom.TrainingConfig:
    given = {"epochs": 3, "batch_size": 8, "loss": "cross_entropy", "learning_rate": 0.01, "verbose": False}
    return loom.TrainingConfig(**{**given, **settings})


def stirred(net: loom.Network, seed: int = 0) -> loom.Network:
    """The network with adapters that change something, as if they had been trained."""
    for layer in net.layers:
        for name in layer.parameters:
            if name.endswith(".lora_b"):
                draws = np.random.default_rng(crc32(f"{seed} {layer.path} {name}".encode()))
                layer[name] = draws.normal(size=layer[name].shape) * 0.3
    return net


def dense(units: int, inputs: int, **settings: Any) -> loom.Network:
    return loom.Sequential([nn.Dense(units)], input_shape=inputs, seed=3, **settings)


# What is computed


def test_a_dense_layer_with_an_adapter_is_the_sum_of_two_products() -> None:
    net = dense(5, 7, precision="float64").add_adapter(rank=3, alpha=2.0)
    layer = stirred(net).layers[0]
    a, b = layer["weight.default.lora_a"], layer["weight.default.lora_b"]
    assert a.shape == (3, 7)
    assert b.shape == (5, 3)
    x = np.random.default_rng(1).normal(size=(4, 7))
    wanted = x @ layer.weight.T + layer.bias + 2.0 / 3 * (x @ a.T) @ b.T
    np.testing.assert_allclose(net.predict(x), wanted, rtol=1e-13, atol=1e-14)


def test_a_new_adapter_changes_no_bit_and_starts_as_it_should() -> None:
    net, (x, _) = decoder(), texts()
    before = net.predict(x)
    net.add_adapter(rank=4)
    assert (net.predict(x) == before).all()
    a = net.layers[1]["layers.1.query_weight.default.lora_a"]
    assert np.abs(a).max() <= 0.25
    assert np.abs(a).std() > 0.05
    assert not net.layers[1]["layers.1.query_weight.default.lora_b"].any()
    # Of two weights, and of two names, no two begin alike.
    other = net.layers[1]["layers.1.key_weight.default.lora_a"]
    net.add_adapter("second", rank=4)
    assert (a != other).all()
    assert (a != net.layers[1]["layers.1.query_weight.second.lora_a"]).all()


def test_the_scale_is_alpha_by_rank_or_by_its_root() -> None:
    plain = dense(2, 3).add_adapter(rank=4, alpha=8.0)
    stabilized = dense(2, 3).add_adapter(rank=4, alpha=8.0, rank_stabilized=True)
    assert plain.adapters["default"].scale == 2.0
    assert stabilized.adapters["default"].scale == 4.0
    x = np.ones((1, 3))
    own = dense(2, 3).predict(x)
    once, twice = (stirred(net).predict(x) - own for net in (plain, stabilized))
    np.testing.assert_allclose(twice, 2 * once, rtol=1e-4)


TARGETS = {
    "query": ["0.0.0.1.layers.1.query_weight"],
    "gate": ["0.0.0.2.layers.1.gate_weight"],
    "weight": ["0.0.0.4.weight"],
    "dense": ["0.0.0.4.weight"],
    "swiglu": [f"0.0.0.2.layers.1.{product}_weight" for product in ("gate", "up", "down")],
    "0.0.0.1.*": [f"0.0.0.1.layers.1.{product}_weight" for product in ("query", "key", "value", "output")],
}


@pytest.mark.parametrize("target", TARGETS)
def test_targets_are_named_by_product_kind_or_path(target: str) -> None:
    assert decoder().add_adapter(targets=target).adapters["default"].weights == tuple(TARGETS[target])


def test_without_targets_every_product_is_meant() -> None:
    assert len(decoder().add_adapter().adapters["default"].weights) == 8


@pytest.mark.parametrize(
    "layer",
    [
        nn.Dense(6, activation="gelu"),
        nn.MultiHeadAttention(2, head_dim=4, causal=True, rotary=nn.Rotary(), qk_norm=True),
        nn.SwiGLU(9),
        nn.GRU(6, return_sequences=True),
        nn.Residual([nn.LayerNorm(), nn.MultiHeadAttention(2)]),
        nn.Parallel([[nn.Dense(6)], [nn.Dense(6), nn.Dense(6)]], combine="add"),
        nn.MixtureOfExperts(experts=3, top_k=2, units=5, shared_units=4),
    ],
    ids=lambda layer: layer.kind,
)
def test_gradients_are_those_of_central_differences(layer: nn.Layer) -> None:
    layers = [nn.Dense(6, activation="tanh"), layer, nn.Dense(3)]
    net = loom.Sequential(layers, input_shape=(4, 5), seed=2, precision="float64")
    net.add_adapter(rank=2, targets="0.0.0.1.*")
    stirred(net)
    draws = np.random.default_rng(3)
    x, dy = draws.normal(size=(2, 4, 5)), draws.normal(size=(2, 4, 3))
    value = lambda: float((net.predict(x) * dy).sum())  # noqa: E731
    net.forward(x, training=False)
    net.backward(dy)
    layer_at = net.layers[1]
    names = [name for name in layer_at.parameters if "lora" in name]
    gradients = {name: layer_at.gradients[name] for name in names}
    assert names
    # What stays as it is has no gradient, in the adapted layer and in others.
    assert not any(layer_at.gradients[name].any() for name in layer_at.parameters if name not in names)
    assert not net.layers[0].gradients["weight"].any()
    for name in names:
        held = layer_at[name].copy()
        for place in np.ndindex(*held.shape):
            step = np.zeros_like(held)
            step[place] = 1e-6
            layer_at[name] = held + step
            above = value()
            layer_at[name] = held - step
            slope = (above - value()) / 2e-6
            layer_at[name] = held
            assert gradients[name][place] == pytest.approx(slope, rel=1e-5, abs=1e-8), (name, place)


# What is trained


def test_training_moves_adapters_and_nothing_else() -> None:
    net, data = decoder(), texts()
    net.add_adapter(rank=4, targets=["query", "value", "dense"], dropout=0.1)
    before = net.state_dict()
    result = loom.train(net, data, config(epochs=20))
    assert result.history["loss"][-1] < 0.8 * result.history["loss"][0]
    for name, values in net.state_dict().items():
        assert (values == before[name]).all() == ("lora" not in name), name


def test_what_is_let_go_is_trained_beside_the_adapter() -> None:
    net = decoder().add_adapter(targets="query").unfreeze("0.0.0.3")
    before = net.state_dict()
    loom.train(net, texts(), config())
    moved = {name for name, values in net.state_dict().items() if (values != before[name]).any()}
    assert moved == {"0.0.0.3.weight"} | {name for name in before if "lora" in name}


def test_norms_alone_are_let_go_without_the_adapters_being_kept() -> None:
    net = decoder().add_adapter(targets="query").unfreeze("rms_norm")
    before = net.state_dict()
    loom.train(net, texts(), config())
    moved = {name for name, values in net.state_dict().items() if (values != before[name]).any()}
    norms = {"0.0.0.1.layers.0.weight", "0.0.0.2.layers.0.weight", "0.0.0.3.weight"}
    assert moved == norms | {name for name in before if "lora" in name}


def test_one_half_of_an_adapter_is_frozen_saved_and_merged(tmp_path: Path) -> None:
    net = decoder().add_adapter(targets="query").freeze("*.lora_a")
    before = net.state_dict()
    loom.train(net, texts(), config())
    moved = {name for name, values in net.state_dict().items() if (values != before[name]).any()}
    assert moved == {name for name in before if name.endswith(".lora_b")}
    net.save(tmp_path / "net.loom")
    again = loom.load(tmp_path / "net.loom")
    assert [layer.frozen for layer in again.layers] == [layer.frozen for layer in net.layers]
    x = texts()[0]
    np.testing.assert_array_equal(again.predict(x), net.predict(x))
    np.testing.assert_allclose(again.merge_adapters().predict(x), net.predict(x), rtol=1e-4, atol=1e-5)
    assert not any(layer.frozen for layer in net.remove_adapters().layers)
    net.add_adapter(targets="query")
    assert not any(layer.frozen for layer in net.layers)


def test_without_freezing_all_moves() -> None:
    net = decoder().add_adapter(targets="query", freeze=False)
    before = net.state_dict()
    loom.train(net, texts(), config())
    assert all((values != before[name]).any() for name, values in net.state_dict().items())


def test_training_is_that_of_the_same_network_of_plain_layers() -> None:
    """A Dense with an adapter learns as a sum of branches does, of which one is frozen."""
    draws = np.random.default_rng(5)
    x, y = draws.normal(size=(32, 6)), draws.normal(size=(32, 4))
    net = loom.Sequential([nn.Dense(4)], input_shape=6, precision="float64")
    net.add_adapter(rank=2, alpha=2.0)
    low = [nn.Dense(2, bias=False), nn.Dense(4, bias=False)]
    plain = loom.Sequential([nn.Parallel([[nn.Dense(4)], low], combine="add")], 6, precision="float64")
    own, other = net.layers[0], plain.layers[0]
    for name, same in {
        "weight": "branches.0.0.weight",
        "bias": "branches.0.0.bias",
        "weight.default.lora_a": "branches.1.0.weight",
        "weight.default.lora_b": "branches.1.1.weight",
    }.items():
        other[same] = own[name]
    plain.freeze("0.0.0.0.branches.0.*")
    given = config(loss="mse", optimizer=loom.optimizers.AdamW(weight_decay=0.01), epochs=5)
    loom.train(net, (x, y), given)
    loom.train(plain, (x, y), given)
    np.testing.assert_allclose(own["weight.default.lora_b"], other["branches.1.1.weight"], rtol=1e-12)
    np.testing.assert_allclose(net.predict(x), plain.predict(x), rtol=1e-11)


@pytest.mark.parametrize("dtype", ["int4", "nf4", "q4_0", "int8"])
def test_packed_weights_without_masters_stay_packed_while_adapters_learn(dtype: str) -> None:
    net, data = decoder().morph(dtype), texts()  # type: ignore[arg-type]
    net.drop_master()
    before = net.predict(data[0])
    bits = {layer.path: layer.weights.stored for layer in net.layers}
    net.add_adapter(rank=4, targets=["query", "value", "up", "dense"])
    assert (net.predict(data[0]) == before).all()
    result = loom.train(net, data, config(epochs=15))
    assert result.history["loss"][-1] < 0.85 * result.history["loss"][0]
    assert all(net.layers[place].weights.dropped for place in (0, 1, 2, 4))
    net.use_adapters()
    assert (net.predict(data[0]) == before).all()
    assert bits.keys() == {layer.path for layer in net.layers}


def test_gradients_flow_through_packed_weights_to_what_is_before_them() -> None:
    """The adapter of the first layer learns through a second that is packed, as through its numbers."""
    layers = [nn.Dense(8, activation="tanh"), nn.Dense(32), nn.Dense(3)]
    net = loom.Sequential(layers, input_shape=4, seed=2).morph("int4")
    decoded = loom.Sequential(layers, input_shape=4, seed=2)
    for layer, packed in zip(decoded.layers, net.layers, strict=True):
        layer.weight = packed.decoded("weight")
    net.drop_master()
    x, dy = np.random.default_rng(1).normal(size=(5, 4)), np.ones((5, 3))
    found = []
    for each in (net, decoded):
        stirred(each.add_adapter(rank=2, targets="0.0.0.0.weight"))
        each.forward(x)
        each.backward(dy)
        found.append(each.layers[0].gradients["weight.default.lora_a"])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-7)


# Several, switched and merged


def test_adapters_add_up_and_are_switched() -> None:
    net, (x, _) = decoder(), texts(4)
    plain = net.predict(x)
    one = stirred(decoder().add_adapter("one", targets="dense"), 1).predict(x) - plain
    net.add_adapter("one", targets="dense").add_adapter("two", targets=["dense", "query"])
    stirred(net, 1)
    both = net.predict(x)
    net.use_adapters("one")
    np.testing.assert_allclose(net.predict(x) - plain, one, atol=1e-5)
    assert {name: adapter.active for name, adapter in net.adapters.items()} == {"one": True, "two": False}
    net.use_adapters("two")
    two = net.predict(x)
    net.use_adapters("one", "two")
    assert (net.predict(x) == both).all()
    assert (two != both).any()
    net.use_adapters()
    assert (net.predict(x) == plain).all()
    net.remove_adapters("one")
    assert list(net.adapters) == ["two"]
    assert not any("one" in name for name in net.state_dict())


def test_an_adapter_that_is_not_in_use_is_not_trained() -> None:
    net = (
        decoder().add_adapter("one", targets="query").add_adapter("two", targets="query").use_adapters("two")
    )
    before = net.state_dict()
    loom.train(net, texts(), config())
    moved = {name for name, values in net.state_dict().items() if (values != before[name]).any()}
    assert moved
    assert all(".two." in name for name in moved)


def test_merged_adapters_compute_the_same() -> None:
    net, (x, _) = stirred(decoder(precision="float64").add_adapter("a").add_adapter("b", rank=2)), texts(4)
    before = net.predict(x)
    net.merge_adapters("a")
    np.testing.assert_allclose(net.predict(x), before, rtol=1e-10, atol=1e-12)
    assert list(net.adapters) == ["b"]
    net.merge_adapters()
    np.testing.assert_allclose(net.predict(x), before, rtol=1e-10, atol=1e-12)
    assert net.adapters == {}


def test_packed_weights_are_packed_again_from_the_sum() -> None:
    net = dense(8, 32).morph("int8")
    net.drop_master()
    layer = stirred(net.add_adapter(rank=2)).layers[0]
    sum_of = layer.decoded("weight") + 2.0 * layer["weight.default.lora_b"] @ layer["weight.default.lora_a"]
    net.merge_adapters()
    assert net.layers[0].dtype == "int8"
    np.testing.assert_allclose(net.layers[0].weight, sum_of, rtol=1e-5, atol=1e-6)
    share = np.abs(sum_of).max(axis=1, keepdims=True) / 127
    assert (np.abs(net.layers[0].decoded("weight") - sum_of) <= 0.51 * share).all()


# Devices, files, copies


def test_a_gpu_learns_the_same(gpu: str) -> None:
    found = []
    for device in ("cpu", gpu):
        net = decoder().add_adapter(rank=4, targets=["query", "down", "dense"]).to(device)
        result = loom.train(net, texts(), config(epochs=4, device=device))
        found.append((result.history["loss"][-1], net.state_dict()))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-4)
    for name, values in found[0][1].items():
        np.testing.assert_allclose(found[1][1][name], values, atol=2e-4, err_msg=name)


@pytest.mark.parametrize("dtype", ["int4", "q4_0"])
def test_a_gpu_learns_the_same_beside_packed_weights(gpu: str, dtype: str) -> None:
    found = []
    for device in ("cpu", gpu):
        net = decoder().morph(dtype)  # type: ignore[arg-type]
        net.drop_master()
        net.add_adapter(rank=4, targets=["query", "up", "dense"]).to(device)
        result = loom.train(net, texts(), config(epochs=3, device=device))
        found.append((result.history["loss"][-1], net.layers[4]["weight.default.lora_b"]))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-4)
    np.testing.assert_allclose(found[1][1], found[0][1], atol=2e-4)


def test_files_and_copies_keep_adapters(tmp_path: Path) -> None:
    net, data = decoder().add_adapter("one", rank=2, dropout=0.1).add_adapter("two", targets="query"), texts()
    loom.train(net, data, config())
    net.use_adapters("one", trainable=False)
    net.save(tmp_path / "net.loom", optimizer=True)
    for other in (loom.load(tmp_path / "net.loom"), net.__class__.from_config(net.config)):
        assert other.adapters == net.adapters
        assert [layer.trainable for layer in other.layers] == [layer.trainable for layer in net.layers]
    loaded = loom.load(tmp_path / "net.loom")
    assert loaded.fingerprint() == net.fingerprint()
    assert (loaded.predict(data[0]) == net.predict(data[0])).all()


@pytest.mark.parametrize("dtype", [None, "int8", "int4"])
def test_onnx_files_compute_with_the_adapters_in_use(dtype: Any, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="the extra onnx is not installed")
    from onnx.reference import ReferenceEvaluator

    layers = [
        nn.LSTM(6, bidirectional=True, return_sequences=True),
        nn.Residual([nn.LayerNorm(), nn.MultiHeadAttention(2), nn.SwiGLU(10)]),
        nn.Dense(3),
    ]
    net = loom.Sequential(layers, input_shape=(5, 4), seed=2)
    if dtype:
        net.morph(dtype)
    net.add_adapter("first", rank=2).add_adapter("second", rank=3, alpha=1.0, rank_stabilized=True)
    stirred(net)
    x = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32)
    for used in (("first", "second"), ("second",), ()):
        net.use_adapters(*used)
        expected, before = net.predict(x), net.fingerprint()
        loom.save_onnx(net, tmp_path / "net.onnx", opset=19)
        assert net.fingerprint() == before
        (found,) = ReferenceEvaluator(onnx.load(tmp_path / "net.onnx")).run(None, {"input": x})
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("dtype", [None, "int4"])
def test_gguf_files_compute_with_the_adapters_in_use(dtype: Any, tmp_path: Path) -> None:
    net = llama()
    if dtype:
        net.morph(dtype).drop_master()
    stirred(net.add_adapter("first", rank=2).add_adapter("second", rank=3, targets=["query", "down"]))
    words = np.arange(12)[None] * 3 % 50
    for used in (("first", "second"), ("second",), ()):
        net.use_adapters(*used)
        expected = net.predict(words)
        loom.save_gguf(net, tmp_path / "net.gguf")
        found = loom.load(tmp_path / "net.gguf").predict(words)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_modules_of_pytorch_know_no_adapters() -> None:
    net = stirred(decoder().add_adapter("first", rank=2))
    with pytest.raises(StateError, match="computes with first, and modules know no adapters"):
        loom.to_torch(net)


def test_a_training_goes_on_from_a_file_bit_for_bit(tmp_path: Path) -> None:
    whole, half = (decoder().add_adapter(rank=2, dropout=0.2) for _ in range(2))
    loom.train(whole, texts(), config(epochs=4))
    loom.train(half, texts(), config(epochs=2))
    half.save(tmp_path / "half.loom", optimizer=True)
    again = loom.load(tmp_path / "half.loom")
    loom.train(again, texts(), config(epochs=4), resume=True)
    assert again.fingerprint() == whole.fingerprint()


def test_layers_take_their_adapters_along() -> None:
    net = stirred(decoder().add_adapter(targets="query"))
    other = loom.Sequential([nn.Embedding(WORDS, 16)], input_shape=STEPS)
    other[0, 0, 0].insert(1, net.layers[1])
    name = "layers.1.query_weight.default.lora_b"
    assert (other.layers[1][name] == net.layers[1][name]).all()
    assert other.adapters["default"].weights == ("0.0.0.1.layers.1.query_weight",)


def test_answers_of_a_session_are_those_of_whole_sequences() -> None:
    net, (x, _) = stirred(decoder().add_adapter()), texts(2)
    session = net.session(STEPS, rows=2)
    pieces = [session(x[:, :5]), session(x[:, 5:6]), session(x[:, 6:])]
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), net.predict(x), atol=1e-5)


# What is refused


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"rank": 0}, "rank"),
        ({"dropout": 1.0}, "dropout"),
        ({"alpha": float("nan")}, "alpha"),
        ({"targets": "qery"}, "qery"),
        ({"targets": ["query", 3]}, "targets"),
        ({"targets": []}, "targets"),
        ({"targets": "embedding"}, "embedding"),
        ({"name": ""}, "name"),
        ({"rank_stabilized": 1}, "rank_stabilized"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused_by_name(settings: dict[str, Any], told: str) -> None:
    net = decoder()
    with pytest.raises(ConfigError, match=told):
        net.add_adapter(**settings)
    assert net.adapters == {}


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    net = decoder()
    with pytest.raises(InvalidValueError, match="letters, digits"):
        net.add_adapter("a.b")
    net.add_adapter(targets="query")
    with pytest.raises(InvalidValueError, match='an adapter "default" already'):
        net.add_adapter(targets=["dense", "key"])
    assert net.adapters["default"].weights == ("0.0.0.1.layers.1.query_weight",)
    for call in (net.use_adapters, net.merge_adapters, net.remove_adapters):
        with pytest.raises(ConfigError, match='unknown adapter "defalt"; did you mean "default"'):
            call("defalt")
    with pytest.raises(ConfigError, match="no weight that takes an adapter"):
        loom.Sequential([nn.Embedding(3, 2)], input_shape=1).add_adapter()


def test_what_knows_no_adapters_says_so() -> None:
    net = dense(2, 3).add_adapter()
    with pytest.raises(StateError, match="knows no adapters"):
        loom.Mesh(net)
    with pytest.raises(StateError, match="knows no adapters"):
        loom.TweenTrainer(net).fit((np.ones((4, 3)), np.ones((4, 2))), config(loss="mse"))


CALLBACKS: dict[str, Callable[[], loom.Callback]] = {
    "early stopping": lambda: loom.EarlyStopping(patience=9, restore_best_weights=True),
    "moving average": lambda: loom.ExponentialMovingAverage(0.5),
    "mean of epochs": lambda: loom.StochasticWeightAveraging(1),
    "slow weights": lambda: loom.Lookahead(2),
    "histograms": loom.WeightHistograms,
    "checkpoint": lambda: loom.ModelCheckpoint("best.loom", save_best_only=True),
}


@pytest.mark.parametrize("name", CALLBACKS)
def test_callbacks_keep_adapters_beside_packed_weights_without_masters(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(48, 32)), random.integers(0, 3, 48)

    def made(*, dropped: bool) -> loom.Network:
        net = loom.Sequential([nn.Dense(16, activation="tanh"), nn.LayerNorm(), nn.Dense(3)], 32, seed=0)
        net.morph("int4")
        if dropped:
            net.drop_master()
        return net.add_adapter("mine", rank=2)

    config = loom.TrainingConfig(
        epochs=6, batch_size=16, loss="cross_entropy", learning_rate=0.05, verbose=False, device="cpu"
    )
    data, held = (x[:32], y[:32]), (x[32:], y[32:])
    with_masters, without = made(dropped=False), made(dropped=True)
    one = loom.train(with_masters, data, config, held, callbacks=[CALLBACKS[name]()])
    two = loom.train(without, data, config, held, callbacks=[CALLBACKS[name]()])
    assert two.history == one.history
    np.testing.assert_array_equal(without.predict(x), with_masters.predict(x))
    if name == "early stopping":
        assert without.evaluate(held)["loss"] == pytest.approx(min(two.history["val_loss"]), rel=1e-6)


def test_a_state_without_packed_weights_sets_all_else() -> None:
    net = loom.Sequential([nn.Dense(3)], input_shape=32, seed=0).morph("int4").drop_master()
    net.add_adapter("mine", rank=2)
    adapter = {"0.0.0.0.weight.mine.lora_b": np.ones((3, 2))}
    left = net.load_state_dict(adapter, strict=False)
    assert left.missing_keys == ["0.0.0.0.bias", "0.0.0.0.weight", "0.0.0.0.weight.mine.lora_a"]
    assert left.unexpected_keys == []
    assert (net.layers[0].parameters["weight.mine.lora_b"] == 1.0).all()
    before = net.fingerprint()
    for strict in (True, False):
        with pytest.raises(loom.StateError, match="master of these weights was dropped"):
            net.load_state_dict({**adapter, "0.0.0.0.weight": np.ones((3, 32))}, strict)
    assert net.fingerprint() == before
