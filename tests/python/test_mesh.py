"""Clock mode: against NumPy, against predict, and against itself."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn
from loom.handles import LayerHandle
from programs import answer


def remembering(precision: str = "float32", seed: int = 7, units: int = 24) -> loom.Network:
    """A cell with a loop through itself, and one that reads it."""
    net = loom.Network(input_shape=1, grid=(1, 2), precision=precision, seed=seed)
    net[0, 0].add(nn.Dense(units, activation="tanh"))
    net[0, 1].add(nn.Dense(1))
    return net.link((0, 0), (0, 0), combine="concat")


def signs(
    samples: int, rows: int, delay: int
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64] | None]]:
    """Signs, each to be said again some samples later."""
    shown = np.random.default_rng(0).choice([-1.0, 1.0], (samples, rows, 1))
    for number, x in enumerate(shown):
        yield x, shown[number - delay] if number >= delay else None


def config(**settings: object) -> loom.TrainingConfig:
    return loom.TrainingConfig(
        **{"learning_rate": 0.01, "optimizer": "adam", "gradient_clip": 1.0, **settings}  # type: ignore[arg-type]
    )


def test_ticks_are_those_of_numpy() -> None:
    net = loom.Network(input_shape=3, grid=(2, 1, 2), precision="float64", seed=3)
    net[0, 0, 0].add(nn.Dense(4, activation="tanh"), nn.Dense(4, activation="sigmoid"))
    net[0, 0, 1].add(nn.Dense(4, activation="tanh"))
    net[1, 0, 1].add(nn.Dense(2))
    # Back into the first cell; from a cell without layers; around the empty one.
    net.link((0, 0, 1), (0, 0, 0), combine="concat")
    net.link((0, 0, 0), (1, 0, 0))
    mesh = loom.Mesh(net, rows=5)
    layers: dict[tuple[int, ...], LayerHandle] = {layer.at: layer for layer in net.layers}
    rng = np.random.default_rng(1)
    held = {at: np.zeros((5, 2 if at[0] else 4)) for at in layers}

    def dense(at: tuple[int, ...], x: NDArray[np.float64]) -> NDArray[np.float64]:
        made: NDArray[np.float64] = x @ layers[at]["weight"].T + layers[at]["bias"]
        return made

    for _ in range(6):
        x = rng.normal(size=(5, 3))
        mesh.set_input(x)
        mesh.tick()
        held = {
            (0, 0, 0, 0): np.tanh(dense((0, 0, 0, 0), np.hstack([x, held[0, 0, 1, 0]]))),
            (0, 0, 0, 1): 1 / (1 + np.exp(-dense((0, 0, 0, 1), held[0, 0, 0, 0]))),
            (0, 0, 1, 0): np.tanh(dense((0, 0, 1, 0), held[0, 0, 0, 1])),
            (1, 0, 1, 0): dense((1, 0, 1, 0), held[0, 0, 1, 0] + held[0, 0, 0, 1]),
        }
        for at, expected in held.items():
            np.testing.assert_allclose(mesh[at], expected, rtol=1e-12, atol=1e-14)
    assert mesh.ticks == 6
    assert mesh.layers == 4
    np.testing.assert_array_equal(mesh[0, 0, 0], mesh[0, 0, 0, -1])
    np.testing.assert_array_equal(mesh.output(), mesh[1, 0, 1])
    mesh.reset()
    assert mesh.ticks == 0
    assert not mesh.output().any()


def test_a_network_without_loops_settles_at_what_it_predicts() -> None:
    net = loom.Network(input_shape=(1, 8, 8), grid=(2, 2))
    net[0, 0].add(nn.Conv2D(3, 3, activation="relu"), nn.MaxPool2D(2))
    net[0, 1].add(nn.Flatten())
    net[1, 0].add(nn.Dense(9, activation="gelu"), nn.LayerNorm())
    net[1, 1].add(nn.Dense(4))
    x = np.random.default_rng(2).normal(size=(3, 1, 8, 8))
    mesh = loom.Mesh(net, rows=3)
    mesh.set_input(x)
    mesh.tick(mesh.layers)
    np.testing.assert_array_equal(mesh.output(), net.predict(x))


def test_gradients_are_those_of_differences() -> None:
    window, step = 4, 1e-6

    def loss(net: loom.Network, mesh: loom.Mesh) -> float:
        """Of the two newest ticks of a window of four, after two that are constants' work."""
        for number in range(window):
            mesh.set_input(np.full((2, 1), 0.3 * number - 0.5))
            mesh.tick()
        return float(mesh.output().sum() + 2 * mesh.output((0, 0), age=1).sum())

    net = remembering("float64", units=3)
    mesh = loom.Mesh(net, rows=2, window=window)
    loss(net, mesh)
    assert mesh.reach == window
    given: dict[tuple[int, int], Any] = {(0, 1): np.ones((2, 1)), (0, 0): [np.full((2, 3), 2.0), None]}
    to_input = mesh.backward(given)
    assert to_input.shape == (window, 2, 1)
    for layer in net.layers:
        for name, value in layer.parameters.items():
            found = layer.gradients[name]
            for index in np.ndindex(*value.shape):
                moved = []
                for sign in (1, -1):
                    other = remembering("float64", units=3)
                    changed = value.copy()
                    changed[index] += sign * step
                    other[layer.at][name] = changed
                    moved.append(loss(other, loom.Mesh(other, rows=2, window=window)))
                assert found[index] == pytest.approx((moved[0] - moved[1]) / (2 * step), rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("tween", [None, loom.TweenConfig(optimizer="adam", depth_scale="none")])
def test_what_was_shown_is_remembered(tween: loom.TweenConfig | None) -> None:
    net = remembering()
    mesh = loom.Mesh(net, rows=16, window=8)
    result = loom.train_stepping(mesh, signs(1200, 16, 3), config(), update_every=4, tween=tween)
    assert (result.samples, result.ticks, result.updates) == (1200, 1200, 300)
    assert len(result.losses) == 1197
    assert not result.interrupted
    assert np.mean(result.losses[-50:]) < 0.05 < 0.8 < result.losses[0]
    if tween is not None:
        assert result.explosions == 0
        assert (net.measures.gaps > 0).all()
        assert len(net.measures.gaps) == 2


@pytest.mark.parametrize(
    ("tween", "looped"),
    [
        (loom.TweenConfig(local_steps=3, depth_scale="none", gradient_scale=1.0), True),
        (loom.TweenConfig(mode="layerwise", depth_scale="none"), False),
        (loom.TweenConfig(mode="layerwise", local_steps=2, depth_scale="none", gradient_scale=1.0), False),
    ],
)
def test_targets_from_tick_to_tick(tween: loom.TweenConfig, looped: bool, tmp_path: Path) -> None:
    net = loom.Network(input_shape=1, grid=(1, 2), seed=7)
    net[0, 0].add(nn.Dense(24, activation="tanh"))
    net[0, 1].add(nn.Dense(1))
    if looped:
        net.link((0, 0), (0, 0), combine="concat")
    mesh = loom.Mesh(net, rows=16, window=4)
    # The second layer reads what the first made a tick before, so that is the least delay.
    stream = list(signs(400, 16, 1))
    settings = config(gradient_clip=None, learning_rate=0.003)
    result = loom.train_stepping(mesh, stream[:300], settings, update_every=2, tween=tween)
    assert np.mean(result.losses[-50:]) < 0.3 < result.losses[0]
    assert np.isfinite(net.measures.gaps).all()
    mesh.save(tmp_path / "mesh.loom", optimizer=True)
    losses = []
    for resumed in (mesh, loom.Mesh.load(tmp_path / "mesh.loom")):
        rest = loom.train_stepping(resumed, stream[300:], settings, update_every=2, tween=tween, resume=True)
        losses.append(rest.losses)
    assert losses[0] == losses[1]


def test_class_indices_and_an_output_in_the_middle() -> None:
    net = loom.Network(input_shape=2, grid=(1, 3))
    net[0, 0].add(nn.Dense(8, activation="tanh"))
    net[0, 1].add(nn.Dense(3))
    net[0, 2].add(nn.Dense(1))
    mesh = loom.Mesh(net, rows=3, window=4)
    x, labels = np.array([[1, 0], [0, 1], [1, 1]]), np.array([0, 1, 2])
    stepper = loom.Stepper(mesh, config(loss="cross_entropy", learning_rate=0.05), ticks=2, output=(0, 1))
    losses = [stepper.step(x, labels) or 0.0 for _ in range(60)]
    assert losses[-1] < 0.2 < losses[0]
    assert (mesh.output((0, 1)).argmax(1) == labels).all()
    assert stepper.result.losses == losses


def test_a_saved_mesh_goes_on_bit_for_bit(tmp_path: Path) -> None:
    stream = list(signs(40, 2, 2))
    mesh = loom.Mesh(remembering(), rows=2, window=5)
    stepper = loom.Stepper(mesh, config(), update_every=2)
    for sample in stream[:20]:
        stepper.step(*sample)
    path = tmp_path / "mesh.loom"
    mesh.save(path, optimizer=True)
    expected = [stepper.step(*sample) for sample in stream[20:]]
    loaded = loom.Mesh.load(path)
    assert repr(loaded) == "Mesh(rows=2, window=5, ticks=20, training, cpu)"
    stepper = loom.Stepper(loaded, config(), update_every=2, resume=True)
    assert [stepper.step(*sample) for sample in stream[20:]] == expected
    np.testing.assert_array_equal(loaded.output(), mesh.output())
    assert loom.load(path).input_shape == (1,)
    plain = tmp_path / "network.loom"
    mesh.network.save(plain)
    with pytest.raises(loom.SerializationError, match="no mesh"):
        loom.Mesh.load(plain)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(loom.SerializationError):
        loom.Mesh.load(path)


def exchanged(net: loom.Network) -> None:
    """A layer in the place of itself: nothing is another, but the optimizer starts anew."""
    net[0, 1][0] = net[0, 1][0]


def stepped(net: loom.Network) -> None:
    other = loom.Mesh(net, rows=2, window=2)
    loom.Stepper(other, config()).step(np.ones((2, 1)), np.ones((2, 1)))


@pytest.mark.parametrize("tween", [None, loom.TweenConfig(optimizer="adam")])
@pytest.mark.parametrize("change", [exchanged, stepped, lambda net: net.set_optimizer("adam")])
def test_a_stepper_goes_on_where_the_optimizer_started_anew(
    change: Callable[[loom.Network], object], tween: loom.TweenConfig | None, tmp_path: Path
) -> None:
    stream = list(signs(12, 2, 0))
    settings = config(gradient_clip=None)
    mesh = loom.Mesh(remembering(), rows=2, window=4)
    stepper = loom.Stepper(mesh, settings, update_every=2, tween=tween)
    for sample in stream[:4]:
        stepper.step(*sample)
    change(mesh.network)
    mesh.save(tmp_path / "mesh.loom", optimizer=True)
    loaded = loom.Mesh.load(tmp_path / "mesh.loom")
    expected = loom.Stepper(loaded, settings, update_every=2, tween=tween, resume=True)
    for sample in stream[4:]:
        assert stepper.step(*sample) == expected.step(*sample)
    for name, values in mesh.network.state_dict().items():
        np.testing.assert_array_equal(values, loaded.network.state_dict()[name])


def test_a_stepper_does_not_go_on_with_the_moments_of_another_optimizer() -> None:
    mesh = loom.Mesh(remembering(), rows=2, window=2)
    stepper = loom.Stepper(mesh, config(optimizer="adam"))
    sample = np.ones((2, 1)), np.ones((2, 1))
    stepper.step(*sample)
    loom.Stepper(mesh, config(optimizer="sgd")).step(*sample)
    before = mesh.network.state_dict()
    with pytest.raises(loom.StateError, match="belongs to sgd"):
        stepper.step(*sample)
    for name, values in mesh.network.state_dict().items():
        np.testing.assert_array_equal(values, before[name])


SCRIPT = """
import hashlib, json, numpy as np, loom
from loom import nn
net = loom.Network(input_shape=64, grid=(4, 4))
for row in range(4):
    for column in range(4):
        net[row, column].add(nn.Dense(64, activation="tanh"), nn.Dropout(0.1))
net.link((3, 3), (0, 0))
mesh = loom.Mesh(net, rows=8, window=6)
config = loom.TrainingConfig(learning_rate=0.01)
rng = np.random.default_rng(0)
stream = [(rng.normal(size=(8, 64)), rng.normal(size=(8, 64))) for _ in range(12)]
losses = loom.train_stepping(mesh, stream, config, ticks=3, update_every=2).losses
state = [net.state_dict()[name].tobytes() for name in sorted(net.state_dict())]
digest = hashlib.sha256(b"".join(state) + mesh.output().tobytes() + str(losses).encode())
print(json.dumps(digest.hexdigest()))
"""


def test_bits_are_the_same_for_any_number_of_threads() -> None:
    assert answer(SCRIPT, LOOM_NUM_THREADS="1") == answer(SCRIPT, LOOM_NUM_THREADS="3") != ""


def test_the_manual_loop() -> None:
    net = remembering()
    net[0, 0, 0, 0].trainable = False
    mesh = loom.Mesh(net, rows=2, window=3)
    mesh.set_input(np.ones((2, 1)))
    mesh.tick(4)
    before = net.state_dict()
    assert mesh.backward(mesh.output() - 1).shape == (3, 2, 1)
    assert mesh.clip_gradients(0.1) > 0
    mesh.apply_gradients(0.1)
    after = net.state_dict()
    moved = {name for name in before if (before[name] != after[name]).any()}
    assert moved == {"0.0.1.0.weight", "0.0.1.0.bias"}
    mesh.training = False
    mesh.tick()
    with pytest.raises(loom.StateError, match="training mode"):
        mesh.backward(mesh.output())


def test_ctrl_c_ends_a_run_and_keeps_what_was_learned() -> None:
    def interrupted() -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        for number in range(100):
            if number == 5:
                signal.raise_signal(signal.SIGINT)
            yield np.ones((1, 1)), np.ones((1, 1))

    mesh = loom.Mesh(remembering(), window=3)
    result = loom.train_stepping(mesh, interrupted(), config())
    assert result.interrupted
    assert result.samples == result.updates == 5 == mesh.ticks


def test_what_does_not_fit_is_refused() -> None:
    net = remembering()
    with pytest.raises(loom.StateError, match="clock mode"):
        net.predict(np.ones((1, 1)))
    for bad in ({"rows": 0}, {"window": -1}, {"rows": 1.5}):
        with pytest.raises(loom.ConfigError):
            loom.Mesh(net, **bad)
    mesh = loom.Mesh(net, rows=2, window=2)
    with pytest.raises(loom.ShapeError, match="rows"):
        mesh.set_input(np.ones((3, 1)))
    with pytest.raises(loom.NonFiniteError):
        mesh.set_input(np.full((2, 1), np.nan))
    with pytest.raises(loom.StateError, match="tick"):
        mesh.backward(np.ones((2, 1)))
    mesh.tick()
    with pytest.raises(loom.ShapeError):
        mesh.backward(np.ones((2, 4)))
    with pytest.raises(loom.InvalidValueError, match="only 1"):
        mesh.backward({(0, 1): [np.ones((2, 1)), np.ones((2, 1))]})
    with pytest.raises(loom.ConfigError, match="cells"):
        mesh.backward({(0, 0, 1, 0): np.ones((2, 1))})
    with pytest.raises(loom.CellIndexError):
        mesh.output((0, 5))
    with pytest.raises(loom.InvalidValueError, match="kept"):
        mesh.output((0, 0), age=9)
    with pytest.raises(loom.ConfigError):
        mesh.tick(-1)
    with pytest.raises(loom.InvalidValueError, match="window"):
        loom.Stepper(mesh, config(), ticks=2, update_every=2)
    with pytest.raises(loom.InvalidValueError, match="feedback maps"):
        loom.Stepper(mesh, config(), tween=loom.TweenConfig(mode="difference"))
    with pytest.raises(loom.StateError, match="does not know links"):
        loom.Stepper(mesh, config(), tween=loom.TweenConfig(mode="layerwise"))
    with pytest.raises(loom.ConfigError, match="on cpu"):
        loom.Stepper(mesh, config(device="gpu"))
    with pytest.raises(loom.StateError, match="training mode"):
        loom.Stepper(loom.Mesh(net), config())
    for unheard in ({"regularizers": {"*": {"l2": 0.1}}}, {"gradient_noise": 0.1}):
        with pytest.raises(loom.ConfigError, match="without regularizers and gradient_noise"):
            loom.train_stepping(mesh, [], config(**unheard))
    for name in ("accumulate", "shards"):
        with pytest.raises(loom.ConfigError, match=f"does not take {name}.*update_every="):
            loom.Stepper(mesh, config(**{name: 4}))
    with pytest.raises(loom.DataError, match="pairs"):
        loom.train_stepping(mesh, [np.ones((2, 1, 3))], config())  # type: ignore[list-item]
    net[0, 1].add(nn.Dense(1))
    with pytest.raises(loom.StateError, match="new mesh"):
        mesh.tick()
    soft = loom.Sequential([nn.Dense(2), nn.Softmax()], input_shape=1)
    with pytest.raises(loom.InvalidValueError, match="softmax"):
        loom.Stepper(loom.Mesh(soft, window=2), config(loss="cross_entropy"))


def test_a_gpu_learns_what_the_processor_does(gpu: str, tmp_path: Path) -> None:
    stream = list(signs(60, 4, 2))
    losses = {}
    for device in ("cpu", gpu):
        mesh = loom.Mesh(remembering().to(device), rows=4, window=4)
        result = loom.train_stepping(mesh, stream[:40], config(), update_every=2)
        assert result.device == device
        mesh.save(tmp_path / "mesh.loom", optimizer=True)
        mesh = loom.Mesh.load(tmp_path / "mesh.loom", device)
        rest = loom.train_stepping(mesh, stream[40:], config(), update_every=2, resume=True)
        losses[device] = result.losses + rest.losses
    np.testing.assert_allclose(losses[gpu], losses["cpu"], rtol=1e-3)


@pytest.mark.parametrize("how", ["skip", "tween", "observe"])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_loop_goes_on_after_a_sample_that_is_not_finite(
    how: str, device: str, request: pytest.FixtureRequest
) -> None:
    """Weights are taken back; what a loop holds would be NaN for good."""
    net = loom.Network(2, (1, 2), seed=1)
    net[0, 0].add(nn.Dense(3))
    net[0, 1].add(nn.Dense(1))
    net.link((0, 0), (0, 0), combine="concat")
    # Twice the input, and a calm loop.
    net[0, 0, 0, 0].weight = net[0, 0, 0, 0].weight * 0.3 + 2 * np.eye(3, 5)
    if device == "gpu":
        net.to(request.getfixturevalue("gpu"))
    mesh = loom.Mesh(net, rows=2, window=2)
    skips: Any = "skip" if how == "skip" else "raise"
    config = loom.TrainingConfig(
        loss="mse", learning_rate=0.001, optimizer="sgd", on_nonfinite=skips, verbose=False
    )
    stepper = loom.Stepper(
        mesh,
        config,
        ticks=2,
        tween=loom.TweenConfig(base_rate=0.001) if how == "tween" else None,
        observe=loom.Observe(detect_explosions=True) if how == "observe" else False,
    )
    losses = []
    for number in range(30):
        x = np.full((2, 2), 3e38) if number == 5 else np.ones((2, 2))
        losses.append(stepper.step(x, np.ones((2, 1))))
    result = stepper.result
    assert result.skipped_updates + result.explosions <= 2
    assert result.updates >= 28
    assert np.isfinite(losses[8:]).all()
    assert losses[-1] < losses[4]
    assert mesh.ticks == 60


def test_what_a_stepper_leaves_behind_another_optimizer_can_be_stored(tmp_path: Path) -> None:
    """The file said adam, of whose moments it had none, and could not be read."""
    mesh = loom.Mesh(remembering(), rows=2, window=2)
    stepper = loom.Stepper(mesh, config(optimizer="sgd"))
    sample = np.ones((2, 1)), np.ones((2, 1))
    stepper.step(*sample)
    mesh.network.set_optimizer("adam")
    stepper.step(*sample)
    mesh.save(tmp_path / "mesh.loom", optimizer=True)
    loaded = loom.Mesh.load(tmp_path / "mesh.loom")
    again = loom.Stepper(loaded, config(optimizer="sgd"), resume=True)
    assert again.step(*sample) == stepper.step(*sample)


def test_a_mesh_whose_network_gets_an_adapter_says_that_it_knows_none() -> None:
    mesh = loom.Mesh(remembering(), rows=2, window=2)
    stepper = loom.Stepper(mesh, config())
    sample = np.ones((2, 1)), np.ones((2, 1))
    stepper.step(*sample)
    mesh.network.add_adapter(rank=2)
    with pytest.raises(loom.StateError, match="knows no adapters"):
        stepper.step(*sample)
    mesh.network.merge_adapters()
    assert np.isfinite(stepper.step(*sample))
