"""Looking in: what a layer shows is the newest pass's, or nothing; training passes draw anew."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import losses, nn
from loom.engine import engine_of
from networks import blobs, mlp, quiet, weights

Array = NDArray[Any]

SEED = 0x1234_5678_9ABC


@pytest.fixture(params=["cpu", "gpu"])
def device(request: pytest.FixtureRequest) -> str:
    """Each of the devices."""
    return "cpu" if request.param == "cpu" else str(request.getfixturevalue("gpu"))


def normalised(device: str, seed: int = 3) -> loom.Network:
    """Two dense layers around a normalisation whose statistics have moved, and dropout."""
    net = loom.Sequential(
        [nn.Dense(5, activation="tanh"), nn.BatchNorm(), nn.Dropout(0.4), nn.Dense(3)],
        input_shape=4,
        seed=seed,
    ).to(device)
    net.forward(np.random.default_rng(1).normal(1.0, 2.0, size=(16, 4)))
    return net


def by_hand(net: loom.Network, x: Array) -> list[tuple[Array, Array, Array]]:
    """What each layer of it reads, makes before its activation, and makes at inference, in float64."""
    first, norm, _, last = net.layers
    z = x @ first.weight.astype(np.float64).T + first.bias
    a = np.tanh(z)
    mean, variance = norm.states["running_mean"], norm.states["running_var"]
    n = (a - mean) / np.sqrt(variance.astype(np.float64) + 1e-5) * norm.weight + norm.bias
    y = n @ last.weight.astype(np.float64).T + last.bias
    return [(x, z, a), (a, n, n), (n, n, n), (n, y, y)]


def test_a_pass_of_inference_shows_its_layers_and_moves_nothing(device: str) -> None:
    net, twin = normalised(device), normalised(device)
    x = np.random.default_rng(2).normal(size=(5, 4))
    output = net.forward(x, training=False)
    np.testing.assert_allclose(net.predict(x), output, rtol=1e-5, atol=1e-6)
    again = net.forward(x, training=False)
    np.testing.assert_array_equal(again, output)
    for layer, (read, before_it, made) in zip(net.layers, by_hand(net, x), strict=True):
        for found, expected in [
            (layer.input, read),
            (layer.preactivation, before_it),
            (layer.activation, made),
        ]:
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(net.layers[-1].activation, output)
    assert weights(net) == weights(twin)
    # The next draws are those that would have been.
    np.testing.assert_array_equal(net.forward(x), twin.forward(x))


def test_gradients_of_inference_are_those_of_what_was_computed(device: str) -> None:
    net = normalised(device)
    x = np.random.default_rng(2).normal(size=(5, 4))
    net.forward(x, training=False)
    inwards = net.backward(np.ones((5, 3)))
    norm, last = net.layers[1], net.layers[3]
    slope = norm.weight / np.sqrt(norm.states["running_var"].astype(np.float64) + 1e-5)
    made = by_hand(net, x)
    above = (np.ones((5, 3)) @ last.weight) * slope * (1 - made[0][2] ** 2)
    np.testing.assert_allclose(inwards, above @ net.layers[0].weight, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(net.layers[0].gradients["weight"], above.T @ x, rtol=1e-4, atol=1e-4)


CALLS: dict[str, Callable[[loom.Network], Any]] = {
    "predict": lambda net: net.predict(np.ones((2, 6))),
    "predict in batches": lambda net: net.predict(np.ones((20, 6)), batch_size=3),
    "evaluate": lambda net: net.evaluate(blobs(30), quiet()),
    "calibrate": lambda net: net.calibrate(np.ones((2, 6))),
    "train": lambda net: loom.train(net, blobs(30), quiet(epochs=1)),
    "tick": lambda net: loom.Mesh(net, rows=2).tick(),
    "tweening": lambda net: loom.TweenState(net, loom.TweenConfig.tween()).forward(np.ones((2, 6))),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_other_calls_leave_nothing_to_look_at(call: Callable[[loom.Network], Any], device: str) -> None:
    net = mlp().to(device)
    net.forward(np.ones((2, 6)), training=False)
    assert net[0, 0, 0, 0].activation.shape == (2, 24)
    call(net)
    for name in ("input", "preactivation", "activation"):
        with pytest.raises(loom.StateError, match=r"forward\(x, training=False\)"):
            getattr(net[0, 0, 0, 0], name)
    net.forward(np.ones((3, 6)), training=False)
    assert net[0, 0, 0, 0].activation.shape == (3, 24)


def test_a_session_leaves_nothing_to_look_at(device: str) -> None:
    net = loom.Sequential([nn.GRU(4, return_sequences=True)], input_shape=(6, 2)).to(device)
    net.forward(np.ones((1, 6, 2)), training=False)
    net.session(capacity=9)(np.ones((1, 3, 2)))
    with pytest.raises(loom.StateError, match=r"forward\(x, training=False\)"):
        _ = net.layers[0].activation


def test_predicting_in_between_leaves_the_way_back_open(device: str) -> None:
    net, other = mlp(seed=4).to(device), mlp(seed=4).to(device)
    x, y = blobs(8)
    found = []
    for looks in (True, False):
        one = net if looks else other
        output = one.forward(x)
        assert one[0, 0, 0, 1].activation.shape == (8, 24)
        if looks:
            one.predict(np.zeros((3, 6)))
            # Those rows are the older batch's.
            with pytest.raises(loom.StateError, match=r"forward\(x, training=False\)"):
                _ = one[0, 0, 0, 1].activation
        one.backward(losses.cross_entropy(output, y)[1])
        found.append(one[0, 0, 0, 0].gradients["weight"])
    np.testing.assert_array_equal(*found)


def test_callbacks_look_at_the_network_that_is_training(device: str) -> None:
    x, y = blobs(60)
    seen: list[Array] = []

    class Look(loom.Callback):
        def on_epoch_end(self, *_: Any) -> None:
            with pytest.raises(loom.StateError, match="forward"):
                _ = net[0, 0, 0, 0].activation
            output = net.forward(x[:4], training=False)
            np.testing.assert_array_equal(net[0, 0, 1, 0].activation, output)
            seen.append(output)

    net, plain = mlp().to(device), mlp().to(device)
    loom.train(net, (x, y), quiet(epochs=3, device=device), callbacks=[Look()])
    loom.train(plain, (x, y), quiet(epochs=3, device=device))
    assert len(seen) == 3
    np.testing.assert_array_equal(net.predict(x), plain.predict(x))


def test_networks_without_masters_show_their_layers() -> None:
    net = mlp().morph("int8")
    x = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)
    net.drop_master()
    np.testing.assert_array_equal(net.forward(x, training=False), net.predict(x))
    net.forward(x, training=False)
    first = net[0, 0, 0, 0]
    expected = np.tanh(x @ first.decoded("weight").T + first.decoded("bias"))
    np.testing.assert_allclose(first.activation, expected, atol=1e-5)


# Draws


def philox(index: Array, words: tuple[int, int, int], seed: int) -> Array:
    """The blocks of Philox4x32-10 at these indices, by its authors' description."""
    low = np.uint64(0xFFFF_FFFF)
    counter = [index.astype(np.uint64), *(np.full(index.shape, word, np.uint64) for word in words)]
    key = [np.uint64(seed & 0xFFFF_FFFF), np.uint64(seed >> 32)]
    for _ in range(10):
        first = np.uint64(0xD251_1F53) * counter[0]
        second = np.uint64(0xCD9E_8D57) * counter[2]
        counter = [
            (second >> np.uint64(32)) ^ counter[1] ^ key[0],
            second & low,
            (first >> np.uint64(32)) ^ counter[3] ^ key[1],
            first & low,
        ]
        key = [(key[0] + np.uint64(0x9E37_79B9)) & low, (key[1] + np.uint64(0xBB67_AE85)) & low]
    return np.stack(counter, axis=-1)


def path_hash(path: tuple[int, ...]) -> int:
    """FNV-1a over the numbers of a layer's path, four bytes each."""
    found = 0x811C_9DC5
    for number in path:
        for byte in number.to_bytes(4, "little"):
            found = ((found ^ byte) * 0x0100_0193) & 0xFFFF_FFFF
    return found


def mask(step: int, forwards: int, first_row: int, shape: tuple[int, int], path: tuple[int, ...]) -> Array:
    """The mask of dropout at a rate of one half, as the documentation of the draws has it."""
    mirrored = int(f"{forwards:056b}"[::-1], 2)
    number = step ^ mirrored
    first = first_row * shape[1]
    index = np.arange(first, first + shape[0] * shape[1])
    words = (number & 0xFFFF_FFFF, path_hash(path), (number >> 32) << 8 | 2)
    blocks = philox(index // 4, words, SEED)
    drawn = blocks[np.arange(index.size), index % 4]
    return np.where(drawn < 1 << 31, 0.0, 2.0).reshape(shape)


def ones(rows: int) -> Array:
    return np.ones((rows, 7), np.float32)


def test_masks_are_those_of_the_documented_key(device: str) -> None:
    net = loom.Sequential([nn.Dense(7), nn.Dropout(0.5)], input_shape=7, seed=SEED).to(device)
    net.layers[0].weight = np.eye(7)
    path = (0, 0, 0, 1)
    np.testing.assert_array_equal(net.forward(ones(4)), mask(0, 0, 0, (4, 7), path))
    np.testing.assert_array_equal(net.forward(ones(2)), mask(0, 1, 0, (2, 7), path))
    np.testing.assert_array_equal(net.forward(ones(3)), mask(0, 2, 0, (3, 7), path))
    # The newest pass's masks; passes after it draw for the rows behind.
    np.testing.assert_array_equal(net.backward(ones(3)), mask(0, 2, 0, (3, 7), path))
    np.testing.assert_array_equal(net.forward(ones(5)), mask(0, 2, 3, (5, 7), path))
    np.testing.assert_array_equal(net.backward(ones(5)), mask(0, 2, 3, (5, 7), path))
    net.apply_gradients(0.0)
    np.testing.assert_array_equal(net.forward(ones(4)), mask(1, 0, 0, (4, 7), path))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Dropout(0.3),
        nn.GumbelSoftmax(0.7),
        nn.LSTM(5, layers=2, dropout=0.5, return_sequences=True),
    ],
    ids=["dropout", "gumbel", "lstm"],
)
def test_repeated_passes_draw_anew_and_a_saved_network_goes_on(
    layer: nn.Layer, device: str, tmp_path: Path
) -> None:
    net = loom.Sequential([layer], input_shape=(4, 6), seed=5).to(device)
    x = np.random.default_rng(0).normal(size=(3, 4, 6)).astype(np.float32)
    made = [net.forward(x) for _ in range(4)]
    for number, one in enumerate(made):
        assert all(np.abs(one - other).max() > 1e-3 for other in made[:number])
    net.save(tmp_path / "net.loom", optimizer=True)
    following = [net.forward(x) for _ in range(2)]
    loaded = loom.load(tmp_path / "net.loom").to(device)
    for expected in following:
        np.testing.assert_array_equal(loaded.forward(x), expected)
    # The same on the other device, but for what it rounds.
    host = loom.load(tmp_path / "net.loom")
    for expected in following:
        np.testing.assert_allclose(host.forward(x), expected, rtol=1e-4, atol=1e-5)
    # At inference nothing is drawn.
    np.testing.assert_array_equal(net.forward(x, training=False), net.forward(x, training=False))
    np.testing.assert_array_equal(loaded.forward(x), net.forward(x))


def test_monte_carlo_dropout_has_the_moments_of_its_masks(device: str) -> None:
    net = loom.Sequential([nn.Dropout(0.25), nn.Dense(1)], input_shape=8, seed=2).to(device)
    x = np.arange(1.0, 9.0, dtype=np.float32)[None]
    weight = net.layers[1].weight.astype(np.float64)[0]
    count = 600
    drawn = np.stack([net.forward(x)[0, 0] for _ in range(count)])
    terms = x[0] * weight
    variance = (terms**2).sum() * 0.25 / 0.75
    assert abs(drawn.mean() - terms.sum()) < 5 * np.sqrt(variance / count)
    assert 0.75 < drawn.var() / variance < 1.3


def test_passes_that_nobody_goes_back_through_change_no_draw_of_later_steps() -> None:
    x, y = blobs(40)
    nets = [mlp(seed=1) for _ in range(2)]
    for number, net in enumerate(nets):
        net.set_optimizer(loom.SGD())
        for start in range(0, 40, 10):
            rows = slice(start, start + 10)
            net.backward(losses.cross_entropy(net.forward(x[rows]), y[rows])[1])
            net.apply_gradients(0.1)
            for _ in range(3 * number):
                net.forward(x[rows])
            net.zero_gradients()
            if number:
                net.forward(x[rows], training=False)
            # A new step begins its draws anew.
            _commit(net)
    np.testing.assert_array_equal(nets[0].predict(x), nets[1].predict(x))


def _commit(net: loom.Network) -> None:
    net.backward(np.zeros_like(net.forward(np.zeros((1, 6), np.float32))))
    net.apply_gradients(0.0)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_the_manual_loop_draws_what_training_draws(accumulate: int, device: str) -> None:
    x, y = blobs(90)
    trained, manual = mlp(seed=6).to(device), mlp(seed=6).to(device)
    config = quiet(
        epochs=2,
        batch_size=15,
        accumulate=accumulate,
        shuffle=False,
        optimizer=loom.SGD(),
        learning_rate=0.3,
        seed=6,
        device=device,
    )
    loom.train(trained, (x, y), config)
    manual.set_optimizer(loom.SGD())
    for _ in range(2):
        for step in range(0, 90, 15 * accumulate):
            for start in range(step, step + 15 * accumulate, 15):
                rows = slice(start, start + 15)
                gradient = losses.cross_entropy(manual.forward(x[rows]), y[rows])[1]
                # Looking in between moves no draw.
                manual.predict(x[:1])
                manual.backward(gradient / accumulate)
            manual.apply_gradients(0.3)
    for name, expected in trained.state_dict().items():
        np.testing.assert_allclose(manual.state_dict()[name], expected, rtol=1e-4, atol=1e-6)


def test_tweening_by_hand_draws_anew(device: str) -> None:
    net = loom.Sequential([nn.Dropout(0.5), nn.Dense(3)], input_shape=50, seed=1).to(device)
    state = loom.TweenState(net, loom.TweenConfig.tween())
    x = np.ones((2, 50), np.float32)
    made = []
    for _ in range(3):
        state.forward(x)
        made.append(state.forward_acts[0])
    assert not np.array_equal(made[0], made[1])
    assert not np.array_equal(made[1], made[2])


def test_values_of_a_layer_are_called_by_their_names() -> None:
    net = loom.Sequential([nn.Dense(3)], input_shape=2)
    net.forward(np.ones((1, 2)))
    with pytest.raises(loom.LoomError, match='unknown value of a layer "outputs"'):
        engine_of(net).native.layer_value((0, 0, 0, 0), "outputs")
