"""Penalties on weights, noise on gradients and norms that are kept, against rules written out in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn

Array = NDArray[Any]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3))
Y = RNG.normal(size=(24, 2))


def network(precision: Any = "float64", seed: int = 1) -> loom.Network:
    return loom.Sequential([nn.Dense(4), nn.Dense(2)], input_shape=3, seed=seed, precision=precision)


def settings(**more: Any) -> dict[str, Any]:
    # One step an epoch, of all samples in order.
    return {
        "epochs": 5,
        "batch_size": 24,
        "shuffle": False,
        "loss": "mse",
        "optimizer": "sgd",
        "learning_rate": 0.1,
        "device": "cpu",
        "verbose": False,
        **more,
    }


def by_hand(
    net: loom.Network, steps: int, penalties: dict[str, tuple[float, float]], clip: float
) -> dict[str, Array]:
    """Plain gradient descent on mse and penalties, all gradients clipped together."""
    w = {name: np.array(values) for name, values in net.state_dict().items()}
    for _ in range(steps):
        hidden = X @ w["0.0.0.0.weight"].T + w["0.0.0.0.bias"]
        dy = 2 * (hidden @ w["0.0.0.1.weight"].T + w["0.0.0.1.bias"] - Y) / Y.size
        dh = dy @ w["0.0.0.1.weight"]
        g = {
            "0.0.0.0.weight": dh.T @ X,
            "0.0.0.0.bias": dh.sum(0),
            "0.0.0.1.weight": dy.T @ hidden,
            "0.0.0.1.bias": dy.sum(0),
        }
        for name, (l1, l2) in penalties.items():
            g[name] = g[name] + l1 * np.sign(w[name]) + 2 * l2 * w[name]
        norm = np.sqrt(sum(float((each**2).sum()) for each in g.values()))
        w = {name: w[name] - 0.1 * g[name] * min(1.0, clip / norm) for name in w}
    return w


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize(
    ("regularizers", "meant"),
    [
        ({"*.weight": {"l2": 0.02}}, {"0.0.0.0.weight": (0.0, 0.02), "0.0.0.1.weight": (0.0, 0.02)}),
        (
            {"0.0.0.1": {"l1": 0.03}, "*.1.bias": {"l1": 0.01, "l2": 0.1}},
            {"0.0.0.1.weight": (0.03, 0.0), "0.0.0.1.bias": (0.04, 0.1)},
        ),
        (
            {"dense": {"l1": 0.05}},
            {f"0.0.0.{layer}.{name}": (0.05, 0.0) for layer in (0, 1) for name in ("weight", "bias")},
        ),
    ],
)
def test_penalties_are_part_of_the_gradient(regularizers: Any, meant: Any, clip: float | None) -> None:
    net = network()
    expected = by_hand(net, 5, meant, np.inf if clip is None else clip)
    net.fit(X, Y, **settings(regularizers=regularizers, gradient_clip=clip))
    for name, values in net.state_dict().items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-12, atol=1e-13, err_msg=name)


def test_they_count_once_for_batches_that_are_added_up() -> None:
    whole, parts = network(), network()
    regularizers = {"*": {"l1": 0.02, "l2": 0.05}}
    whole.fit(X, Y, **settings(regularizers=regularizers))
    parts.fit(X, Y, **settings(regularizers=regularizers, batch_size=6, accumulate=4))
    for name, values in whole.state_dict().items():
        np.testing.assert_allclose(parts.state_dict()[name], values, rtol=1e-12, err_msg=name)


def test_frozen_parameters_have_none_and_adam_takes_them() -> None:
    net = network("float32")
    net.freeze("*.0.weight")
    before = np.array(net.state_dict()["0.0.0.0.weight"])
    net.fit(X, Y, **settings(optimizer="adam", regularizers={"*.weight": {"l2": 10.0}}, epochs=150))
    assert np.array_equal(net.state_dict()["0.0.0.0.weight"], before)
    assert np.abs(net.state_dict()["0.0.0.1.weight"]).max() < 0.05


def test_a_gpu_and_a_scaled_loss_learn_the_same(gpu: str) -> None:
    for precision, tolerance in (("float32", 1e-5), ("mixed", 2e-2)):
        found = []
        for device in ("cpu", gpu):
            net = network(precision)
            net.fit(X, Y, **settings(regularizers={"*": {"l1": 0.02, "l2": 0.05}}, device=device, epochs=4))
            found.append(net.predict(X))
        np.testing.assert_allclose(found[1], found[0], rtol=tolerance, atol=tolerance)


def test_noise_has_the_variance_that_it_should_and_the_same_bits_twice() -> None:
    def moved(seed: int, noise: float, epochs: int, width: int = 4000) -> Array:
        net = loom.Sequential([nn.Dense(width)], input_shape=1, seed=seed, precision="float64")
        start = np.array(net.state_dict()["0.0.0.0.weight"])
        # Targets that are met: noise alone moves the weights.
        x = np.zeros((4, 1))
        net.fit(x, np.zeros((4, width)), **settings(gradient_noise=noise, epochs=epochs, batch_size=4))
        return (np.array(net.state_dict()["0.0.0.0.weight"]) - start)[:, 0] / 0.1

    first = moved(3, 0.25, 1)
    assert abs(first.mean()) < 0.03
    assert first.std() == pytest.approx(0.5, rel=0.05)
    assert np.array_equal(first, moved(3, 0.25, 1))
    assert not np.array_equal(first, moved(4, 0.25, 1))
    four = moved(3, 0.25, 4)
    assert four.std() == pytest.approx(np.sqrt(sum(0.25 / step**0.55 for step in range(1, 5))), rel=0.05)
    assert abs(np.corrcoef(first, four - first)[0, 1]) < 0.06
    assert not moved(3, 0.0, 2).any()


def test_noise_is_the_cpus_on_a_gpu(gpu: str) -> None:
    found = []
    for device in ("cpu", gpu):
        net = network("float32")
        net.fit(X, Y, **settings(gradient_noise=0.05, device=device, epochs=3))
        found.append(net.predict(X))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-4)


def test_rows_of_weights_stay_within_their_norm() -> None:
    net = loom.Sequential(
        [nn.Conv1D(3, kernel_size=2), nn.Flatten(), nn.Dense(2)], input_shape=(2, 4), seed=0
    )
    x, y = RNG.normal(size=(20, 2, 4)), 5 * RNG.normal(size=(20, 2))
    kept = loom.MaxNorm(0.4, where="dense")
    net.fit(x, y, **{**settings(epochs=20), "callbacks": [kept]})
    weight = net.state_dict()["0.0.0.2.weight"]
    assert np.linalg.norm(weight, axis=1).max() <= 0.4001
    assert np.linalg.norm(weight, axis=1).max() > 0.39
    assert np.linalg.norm(net.state_dict()["0.0.0.0.weight"].reshape(3, -1), axis=1).max() > 0.4


def test_what_is_frozen_keeps_the_norm_that_it_has() -> None:
    class LetsGo(loom.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if epoch == 2:
                self.network.unfreeze("0.0.0.0*")

    x, y = RNG.normal(size=(20, 4)), 5 * RNG.normal(size=(20, 2))
    for callbacks, moves in (([], False), ([LetsGo()], True)):
        net = loom.Sequential([nn.Dense(6), nn.Residual([nn.Dense(6)]), nn.Dense(2)], input_shape=4, seed=0)
        net.freeze("0.0.0.0*").layers[1].freeze("layers.0.weight")
        before = net.state_dict()
        net.fit(x, y, **{**settings(epochs=4), "callbacks": [*callbacks, loom.MaxNorm(0.2)]})
        after = net.state_dict()
        still = {name for name, values in before.items() if (after[name] == values).all()}
        own = {"0.0.0.0.weight", "0.0.0.0.bias"}
        assert still == {"0.0.0.1.layers.0.weight", *(() if moves else own)}
        for name in {"0.0.0.0.weight", "0.0.0.2.weight"} - still:
            assert np.linalg.norm(after[name], axis=1).max() <= 0.2001


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"regularizers": {"*.wieght": {"l2": 0.1}}}, "names no parameter"),
        ({"regularizers": {"*": {"l3": 0.1}}}, 'did you mean "l[12]"'),
        ({"regularizers": {"*": {"l2": -1}}}, "l2 of the regularizer"),
        ({"regularizers": {"*": 0.1}}, "must be a mapping"),
        ({"regularizers": 0.1}, "penalties by pattern"),
        ({"gradient_noise": -0.1}, "gradient_noise"),
        ({"callbacks": [loom.MaxNorm(1.0, where="conv2d")]}, "means no parameter"),
    ],
)
def test_what_cannot_be_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises((loom.ConfigError, loom.InvalidValueError), match=message):
        network().fit(X, Y, **settings(**more))


def test_settings_go_through_json() -> None:
    config = loom.TrainingConfig(regularizers={"*.weight": {"l1": 0.1}}, gradient_noise=0.2)
    assert loom.TrainingConfig.from_config(config.to_config()) == config
    assert "regularizers" not in loom.TrainingConfig().to_config()
