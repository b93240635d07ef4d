"""Every configuration of the package means the same to the engine."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, cast

import numpy as np
import pytest

import loom
from loom import _native, activations, initializers, losses, nn, schedules
from loom.engine import engine_of
from loom.training.settings import engine_config
from networks import blobs, mlp, quiet, weights
from test_config import OPTIMIZERS, SCHEDULES
from test_nn import EXAMPLES

SIGNAL, IMAGE, VOLUME, SEQUENCE = (3, 12), (2, 9, 9), (3, 7, 8, 9), (2, 8)
INPUTS: dict[str, tuple[int, ...]] = {
    "conv2d": IMAGE,
    "conv_transpose2d": IMAGE,
    "max_pool2d": IMAGE,
    "avg_pool2d": IMAGE,
    "global_avg_pool2d": IMAGE,
    "global_max_pool2d": IMAGE,
    "flatten": (2, 3),
    "reshape": (2, 3),
    "permute": (2, 3),
    "masked": (2, 3),
    "parallel": (6,),
    "grid_softmax": (12,),
    "adaptive_softmax": (130,),
    "mixture_softmax": (12,),
    "layer_norm": (3, 4),
    "group_norm": (8,),
    "instance_norm": (2, 4),
    "spatial_dropout2d": IMAGE,
    "up_sampling2d": IMAGE,
    "adaptive_avg_pool2d": IMAGE,
    "adaptive_max_pool2d": IMAGE,
    "pixel_shuffle": (8, 4, 6),
    "pixel_unshuffle": (3, 4, 6),
    "crop2d": IMAGE,
    "rnn": SEQUENCE,
    "lstm": SEQUENCE,
    "gru": SEQUENCE,
    "multi_head_attention": SEQUENCE,
    "positional_embedding": SEQUENCE,
    "sinusoidal_positions": SEQUENCE,
}


def input_shape(layer: nn.Layer) -> tuple[int, ...]:
    """An input that the example fits."""
    match layer:
        case nn.HierarchicalSoftmax(groups=groups, leaves=leaves):
            return (groups + (leaves if isinstance(leaves, int) else sum(leaves)),)
        case nn.MaskedSoftmax(mask=mask):
            return (6,) if mask is None else (len(mask),)
    by_axes = SIGNAL if layer.kind.endswith("1d") else VOLUME if layer.kind.endswith("3d") else (6,)
    return INPUTS.get(layer.kind, by_axes)


@pytest.mark.parametrize("layer", [layer for layer, _ in EXAMPLES], ids=repr)
def test_layers_run_and_are_described_alike(layer: nn.Layer) -> None:
    shape = input_shape(layer)
    random = np.random.default_rng(0)
    if isinstance(layer, nn.TiedHead):
        net = loom.Sequential([nn.Embedding(layer.vocabulary, 6), layer], input_shape=shape)
    else:
        net = loom.Sequential([layer], input_shape=shape)
    reads_words = isinstance(layer, nn.Embedding | nn.TiedHead)
    x = random.integers(0, 9, (3, *shape)) if reads_words else random.normal(size=(3, *shape))
    assert net.predict(x).shape == (3, *net.output_shape)
    output = net.forward(x)
    assert net.backward(np.ones_like(output)).shape == x.shape
    described = json.loads(engine_of(net).native.config())["cells"][0]["layers"][-1]
    assert nn.layer_from_config(described) == layer


@pytest.mark.parametrize("layer", [layer for layer, _ in EXAMPLES], ids=repr)
def test_settings_that_are_left_out_are_the_engine_s_own_defaults(layer: nn.Layer) -> None:
    def described(config: dict[str, Any]) -> object:
        net = loom.Network(input_shape=input_shape(layer))
        engine_of(net).native.add((0, 0, 0), [json.dumps(config)])
        return json.loads(engine_of(net).native.config())

    fields = dataclasses.fields(cast(Any, layer))
    unset = (dataclasses.MISSING, dataclasses.MISSING)
    needed = [field.name for field in fields if (field.default, field.default_factory) == unset]
    usual = type(layer)(**{name: getattr(layer, name) for name in needed}).to_config()
    # What the package takes from other settings, as a pool's stride from its size.
    derived = [field.name for field in fields if field.default is None and usual[field.name] is not None]
    full = layer.to_config()
    stated = {"type", *needed, *derived}
    brief = {name: value for name, value in full.items() if name in stated or usual[name] != value}
    assert described(brief) == described(full)


@pytest.mark.parametrize("name", activations.names())
@pytest.mark.parametrize("layer", ["dense", "activation"])
def test_activations_are_known(name: str, layer: str) -> None:
    made = nn.Dense(4, activation=name) if layer == "dense" else nn.Activation(name)
    net = loom.Sequential([made], input_shape=4)
    assert np.isfinite(net.predict(np.linspace(-3, 3, 8).reshape(2, 4))).all()


INITIALIZERS = [
    *(
        name
        for name in initializers.names()
        if name not in {"constant", "normal", "truncated_normal", "uniform"}
    ),
    initializers.Constant(0.25),
    initializers.Normal(0.5),
    initializers.TruncatedNormal(0.5),
    initializers.Uniform(-0.25, 0.5),
    initializers.Orthogonal(2.0),
]
SPREADS = {"zeros": 0.0, "ones": 0.0, "lecun_normal": 1 / 200**0.5, "he_normal": (2 / 200) ** 0.5}


@pytest.mark.parametrize("initializer", INITIALIZERS, ids=str)
def test_initializers_are_known(initializer: Any) -> None:
    net = loom.Sequential([nn.Dense(100, weight_initializer=initializer)], input_shape=200)
    weight = net[0, 0, 0, 0].weight.astype(np.float64)
    name = initializer if isinstance(initializer, str) else initializer.kind
    expected = SPREADS.get(name)
    if name == "normal":
        expected = 0.5
    if expected is not None:
        assert weight.std() == pytest.approx(expected, rel=0.03, abs=1e-9)
    if name == "constant":
        assert (weight == 0.25).all()
    if name == "uniform":
        assert -0.25 <= weight.min() < -0.24
        assert 0.49 < weight.max() < 0.5
    if name == "truncated_normal":
        assert 0.9 < np.abs(weight).max() <= 1.0
    if name == "orthogonal":
        gain = 1.0 if isinstance(initializer, str) else initializer.gain
        np.testing.assert_allclose(weight @ weight.T, gain**2 * np.eye(100), atol=1e-5)


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS), ids=repr)
def test_optimizers_learn(optimizer: Any) -> None:
    net = mlp()
    result = loom.train(net, blobs(), quiet(epochs=4, optimizer=optimizer, learning_rate=0.01))
    assert result.final_loss < result.loss_history[0]


@pytest.mark.parametrize("schedule", list(SCHEDULES), ids=repr)
def test_schedules_are_taken(schedule: schedules.Schedule) -> None:
    result = loom.train(mlp(), blobs(), quiet(epochs=2, schedule=schedule, learning_rate=0.01))
    assert np.isfinite(result.loss_history).all()


# What is computed in Python is tested by itself, and an expression has to be given.
NAMED = [name for name in losses.names() if name != "expr" and not losses.is_own(name)]


@pytest.mark.parametrize("loss", [*NAMED, losses.Huber(0.3), losses.Expr("abs(y - t)")], ids=str)
def test_losses_learn(loss: Any) -> None:
    x, y = blobs()
    net = mlp()
    if loss == "nll":
        net[0, 1].add(nn.Softmax())
    target = y if losses.is_classification(loss) else np.eye(3)[y]
    if loss in ("hinge", "squared_hinge"):
        target = 2 * target - 1
    result = loom.train(net, (x, target), quiet(epochs=5, loss=loss, learning_rate=0.01))
    assert result.final_loss < result.loss_history[0]


def test_every_setting_reaches_the_engine() -> None:
    config = loom.TrainingConfig(
        epochs=3,
        batch_size=7,
        optimizer=loom.SGD(momentum=0.9, nesterov=True),
        schedule=schedules.Warmup(3, then="cosine"),
        loss="crossentropy",
        gradient_clip=1.0,
        clip_value=0.5,
        class_weight={2: 4.0},
        label_smoothing=0.1,
        metrics=["accuracy", {"top_k_accuracy": {"k": 2}}, "mae", "mse", "r2", lambda outputs, targets: 0.0],
        accumulate=2,
        depth_scale="inv_sqrt",
        on_nonfinite="skip",
        early_stopping=loom.EarlyStopping(),
        validation_split=0.1,
        seed=2**64 - 1,
    )
    text = engine_config(config, (3,))
    sent = json.loads(text)
    assert sent["class_weight"] == [1.0, 1.0, 4.0]
    assert sent["seed"] == 2**64 - 1
    assert sent["loss"] == "cross_entropy"
    assert len(sent["metrics"]) == 5
    x, y = blobs()
    net = mlp()
    _native.check_examples(engine_of(net).native, text, (x, y.astype(np.int32), None))


def test_depth_scale_and_rate_factor_scale_the_update() -> None:
    x, y = blobs(rows=32)
    plain = quiet(optimizer=loom.SGD(), learning_rate=0.1, batch_size=32)

    def moved(config: loom.TrainingConfig, factor: float = 1.0) -> list[float]:
        net = loom.Sequential([nn.Dense(5), nn.Dense(3)], input_shape=6, precision="float64")
        net[0, 0, 0, 0].rate_factor = factor
        before = net.state_dict()
        loom.train(net, (x, y), config)
        after = net.state_dict()
        return [float(np.abs(after[name] - before[name]).max()) for name in before if name.endswith("weight")]

    first, second = moved(plain)
    scaled = moved(quiet(optimizer=loom.SGD(), learning_rate=0.1, batch_size=32, depth_scale="geometric"))
    np.testing.assert_allclose(scaled, [first, second * 1.1], rtol=1e-9)
    scaled = moved(quiet(optimizer=loom.SGD(), learning_rate=0.1, batch_size=32, depth_scale="inv_sqrt"))
    np.testing.assert_allclose(scaled, [first / 2**0.5, second], rtol=1e-9)
    np.testing.assert_allclose(moved(plain, factor=0.25), [first / 4, second], rtol=1e-9)


def test_a_layer_that_is_not_trainable_stays() -> None:
    net = mlp()
    net[0, 0, 0, 0].trainable = False
    before = net.state_dict()
    loom.train(net, blobs(), quiet())
    after = net.state_dict()
    assert {name for name in before if not np.array_equal(before[name], after[name])} == {
        "0.0.1.0.weight",
        "0.0.1.0.bias",
    }


def test_the_machine_is_described() -> None:
    isa, threads = _native.machine()
    assert isa in {"portable", "avx2", "avx512"}
    assert threads >= 1
    assert weights(mlp())
