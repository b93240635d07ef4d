"""A model whose head uses the table of its embedding, against the same in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import losses, nn
from loom.tweening import TweenConfig
from networks import quiet

ROWS, TIME, VOCABULARY, WIDTH, STEPS, RATE = 20, 5, 9, 6, 6, 1e-3

# Narrow tables let little through, which is not what is tested.
pytestmark = pytest.mark.filterwarnings("ignore::loom.BottleneckWarning")

Arrays = dict[str, NDArray[np.float64]]


def model(precision: str = "float64") -> loom.Network:
    return loom.Sequential(
        [
            nn.Embedding(VOCABULARY, WIDTH),
            nn.Dense(WIDTH, activation="tanh"),
            nn.TiedHead(VOCABULARY, tied_to=(0, 0, 0, 0)),
        ],
        input_shape=TIME,
        precision=precision,
        seed=4,
    )


def text() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    letters = np.random.default_rng(8).integers(0, VOCABULARY, (ROWS, TIME + 1))
    return letters[:, :-1], letters[:, 1:]


def in_numpy(state: Arrays, x: NDArray[np.int64], y: NDArray[np.int64]) -> Arrays:
    """The weights after some steps of AdamW with its defaults."""
    table, weight, bias = (state[name].copy() for name in state)
    moments = [(np.zeros_like(values), np.zeros_like(values)) for values in (table, weight, bias)]
    for step in range(1, STEPS + 1):
        read = table[x]
        hidden = np.tanh(read @ weight.T + bias)
        scores = hidden @ table.T
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        to_scores = (shares - np.eye(VOCABULARY)[y]) / (ROWS * TIME)
        to_sums = to_scores @ table * (1 - hidden**2)
        of_table = np.einsum("rtv,rtw->vw", to_scores, hidden)
        np.add.at(of_table, x, to_sums @ weight)
        gradients = of_table, np.einsum("rto,rti->oi", to_sums, read), to_sums.sum((0, 1))
        for values, gradient, (mean, square) in zip((table, weight, bias), gradients, moments, strict=True):
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            root = np.sqrt(square / (1 - 0.999**step))
            values -= RATE * (mean / (1 - 0.9**step) / (root + 1e-8) + 0.01 * values)
    return dict(zip(state, (table, weight, bias), strict=True))


def by_default(net: loom.Network) -> None:
    loom.train(net, text(), quiet(epochs=STEPS, device="cpu"))


def observed(net: loom.Network) -> None:
    loom.train(net, text(), quiet(epochs=STEPS, device="cpu"), observe=True)


def clipped(net: loom.Network) -> None:
    loom.train(net, text(), quiet(epochs=STEPS, device="cpu", gradient_clip=1e6, clip_value=1e6))


def step_by_step(net: loom.Network) -> None:
    trainer = loom.Trainer(net, quiet(device="cpu"))
    for _ in range(STEPS):
        trainer.step(*text())


def by_hand(net: loom.Network) -> None:
    net.set_optimizer(loom.AdamW())
    x, y = text()
    for _ in range(STEPS):
        net.backward(losses.cross_entropy(net.forward(x), y)[1])
        net.apply_gradients(RATE)


def by_targets(net: loom.Network) -> None:
    config = TweenConfig(optimizer="adamw", base_rate=RATE, depth_scale="none", detect_explosions=False)
    state = loom.TweenState(net, config, quiet(device="cpu"))
    for _ in range(STEPS):
        state.step(*text())


WAYS = [by_default, observed, clipped, step_by_step, by_hand, by_targets]


@pytest.mark.parametrize("train", WAYS)
def test_a_tied_model_trains_as_in_numpy(train: Callable[[loom.Network], None]) -> None:
    net = model()
    net.build()
    before = net.state_dict()
    expected = in_numpy(before, *text())
    train(net)
    after = net.state_dict()
    assert list(after) == list(expected)
    for name, values in expected.items():
        assert np.abs(values - before[name]).max() > RATE
        np.testing.assert_allclose(after[name], values, rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", [None, "bfloat16", "int8", "int4"])
@pytest.mark.parametrize("precision", ["float32", "mixed"])
def test_a_tied_model_trains_alike_in_every_numeric_type(precision: str, dtype: str | None) -> None:
    nets = []
    for train in (by_default, step_by_step, observed, by_hand):
        net = model(precision)
        if dtype is not None:
            net.morph(dtype)
        train(net)
        nets.append(net.state_dict())
    for other in nets[1:]:
        for name, values in nets[0].items():
            np.testing.assert_allclose(other[name], values, rtol=0, atol=1e-4)


def test_a_layer_placed_twice_is_two_layers() -> None:
    """Layers are descriptions: only `tied_to` shares parameters."""

    def trained(layers: list[Any]) -> Arrays:
        net = loom.Sequential(layers, input_shape=4, seed=2)
        data = np.random.default_rng(3).normal(size=(8, 4)).astype(np.float32)
        loom.train(net, (data, data), loom.TrainingConfig(verbose=False, device="cpu"))
        return net.state_dict()

    layer = nn.Dense(4, activation="tanh")
    twice = trained([layer, layer, nn.Residual([layer])])
    apart = trained([nn.Dense(4, activation="tanh"), nn.Dense(4, activation="tanh"), nn.Residual([layer])])
    assert len(twice) == 6
    for name, values in apart.items():
        np.testing.assert_array_equal(twice[name], values)
    assert not np.array_equal(twice["0.0.0.0.weight"], twice["0.0.0.1.weight"])
