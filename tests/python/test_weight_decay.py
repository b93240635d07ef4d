"""What `decay_exempt` leaves out of weight decay: biases and gains of norms, and nothing else."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn

Array = NDArray[Any]
DECAY = 5.0

# A large epsilon, lest a first step be little but the gradient's sign.
OPTIMIZERS = [
    loom.SGD,
    partial(loom.Adam, epsilon=1.0),
    partial(loom.AdamW, epsilon=1.0),
    partial(loom.RMSprop, epsilon=1.0),
]
NAMES = ["SGD", "Adam", "AdamW", "RMSprop"]

CASES: dict[str, tuple[nn.Layer, tuple[int, ...], set[str]]] = {
    "dense": (nn.Dense(3), (4,), {"bias"}),
    "convolution": (nn.Conv1D(2, 3), (3, 8), {"bias"}),
    "transposed convolution": (nn.ConvTranspose1D(2, 3), (3, 5), {"bias"}),
    "lstm": (nn.LSTM(3, initial_state="learned"), (4, 2), {"bias_ih_l0", "bias_hh_l0"}),
    "attention": (
        nn.MultiHeadAttention(2, qk_norm=True),
        (3, 4),
        {"query_bias", "key_bias", "value_bias", "output_bias", "query_gain", "key_gain"},
    ),
    "gated": (nn.SwiGLU(4, bias=True), (4,), {"gate_bias", "up_bias", "down_bias"}),
    "positions": (nn.PositionalEmbedding(5), (3, 4), set()),
    "centroids": (nn.KMeans(3), (4,), set()),
    "slopes": (nn.PReLU(per_channel=True), (4,), set()),
    "layer norm": (nn.LayerNorm(), (4,), {"weight", "bias"}),
    "rms norm": (nn.RMSNorm(), (4,), {"weight"}),
    "group norm": (nn.GroupNorm(2), (4, 3), {"weight", "bias"}),
    "batch norm": (nn.BatchNorm(), (4,), {"weight", "bias"}),
    "nested": (
        nn.Residual([nn.PositionalEmbedding(5), nn.LayerNorm(), nn.Dense(4), nn.KMeans(4)]),
        (3, 4),
        {"layers.1.weight", "layers.1.bias", "layers.2.bias"},
    ),
}


def parameters_after_a_step(
    layer: nn.Layer, shape: tuple[int, ...], optimizer: Any, device: str
) -> dict[str, Array]:
    net = loom.Sequential([layer], input_shape=shape, seed=2)
    random = np.random.default_rng(1)
    only = net.layers[0]
    for name, values in only.parameters.items():
        only.parameters[name] = random.normal(size=values.shape)
    x, y = random.normal(size=(6, *shape)), random.normal(size=(6, *net.output_shape))
    config = loom.TrainingConfig(learning_rate=0.01, loss="mse", optimizer=optimizer, device=device)
    loom.Trainer(net, config).step(x, y)
    return {name: np.array(values) for name, values in only.parameters.items()}


def check(case: str, optimizer: Any, device: str) -> None:
    layer, shape, exempt = CASES[case]
    found, whole, free = (
        parameters_after_a_step(layer, shape, rule, device)
        for rule in (
            optimizer(weight_decay=DECAY, decay_exempt=True),
            optimizer(weight_decay=DECAY),
            optimizer(weight_decay=0.0),
        )
    )
    assert exempt <= set(found)
    for name, values in found.items():
        assert (whole[name] != free[name]).any(), name
        expected = free if name in exempt else whole
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=NAMES)
@pytest.mark.parametrize("case", CASES)
def test_biases_and_gains_alone_are_exempt(case: str, optimizer: Any) -> None:
    check(case, optimizer, "cpu")


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=NAMES)
@pytest.mark.parametrize("case", ["positions", "centroids", "nested"])
def test_biases_and_gains_alone_are_exempt_on_a_gpu(case: str, optimizer: Any, gpu: str) -> None:
    check(case, optimizer, gpu)


def feedback_after_a_step(rule: Any, device: str) -> dict[str, Array]:
    layers = [nn.Dense(units, activation="tanh") for units in (6, 5, 4)]
    net = loom.Sequential(layers, input_shape=3, seed=4)
    config = loom.TweenConfig(mode="difference", feedback_rate=0.01, feedback_optimizer=rule)
    state = loom.TweenState(net, config, loom.TrainingConfig(loss="mse", device=device))
    (path,) = state.feedback
    random = np.random.default_rng(3)
    for name, values in state.feedback[path].items():
        state.feedback[path][name] = random.normal(size=values.shape)
    state.step(random.normal(size=(8, 3)), random.normal(size=(8, 4)))
    return {name: np.array(values) for name, values in state.feedback[path].items()}


def check_feedback(device: str) -> None:
    found, whole, free = (
        feedback_after_a_step(rule, device)
        for rule in (
            loom.SGD(weight_decay=DECAY, decay_exempt=True),
            loom.SGD(weight_decay=DECAY),
            loom.SGD(),
        )
    )
    assert (whole["bias"] != free["bias"]).any()
    np.testing.assert_array_equal(found["bias"], free["bias"])
    np.testing.assert_array_equal(found["weight"], whole["weight"])


def test_biases_of_feedback_maps_are_exempt() -> None:
    check_feedback("cpu")


def test_biases_of_feedback_maps_are_exempt_on_a_gpu(gpu: str) -> None:
    check_feedback(gpu)
