"""Learning by targets over data sets, and backpropagation that is observed."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import Observe, TweenConfig, TweenTrainer, nn
from networks import Arrays, blobs, cnn, mlp, quiet, stripes, weights

MODES = ("chain_rule", "layerwise", "difference", "difference_reconstruction")


@pytest.fixture(autouse=True)
def without_bottleneck_warnings() -> Iterator[None]:
    """They are tried by tests of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", loom.BottleneckWarning)
        yield


def perceptron(seed: int = 0, precision: str = "float32") -> loom.Network:
    layers = [nn.Dense(16, activation="tanh"), nn.Dense(12, activation="tanh"), nn.Dense(3)]
    return loom.Sequential(layers, input_shape=6, precision=precision, seed=seed)


@pytest.mark.parametrize("mode", MODES)
def test_fit_learns_and_gives_what_train_gives(mode: str) -> None:
    trainer = TweenTrainer(perceptron(), TweenConfig(mode=mode, base_rate=0.03))
    seen = loom.History()
    config = quiet(epochs=6, batch_size=16, metrics=["accuracy"])
    result = trainer.fit(blobs(300), config, validation=blobs(90, seed=1), callbacks=[seen])
    assert len(result.loss_history) == 6
    assert result.loss_history[-1] < 0.5 * result.loss_history[0]
    assert result.metrics["val_accuracy"][-1] > 0.9
    assert seen.history["val_accuracy"] == result.metrics["val_accuracy"]
    assert result.explosions == trainer.state.explosion_count == 0
    assert trainer.state.steps == 6 * 19
    assert len(trainer.state.loss_history) == 6 * 19


def test_batches_from_an_iterable() -> None:
    x, y = blobs(96)
    arrays, batches = perceptron(), perceptron()
    config = quiet(epochs=2, batch_size=32, shuffle=False)
    TweenTrainer(arrays).fit((x, y), config)
    TweenTrainer(batches).fit([(x[i : i + 32], y[i : i + 32]) for i in (0, 32, 64)], config)
    assert weights(arrays) == weights(batches)


def test_the_state_of_a_trainer_goes_on() -> None:
    x, y = blobs(64)
    trainer = TweenTrainer(perceptron(), TweenConfig(base_rate=0.05))
    assert np.isnan(trainer.state.gaps).all()
    result = trainer.fit((x, y), quiet(epochs=3, batch_size=64))
    state = trainer.state
    assert state.adaptive_rate == 0.05
    assert state.step(x, y) < result.loss_history[-1]
    assert state.steps == 4


@pytest.mark.parametrize("given", [None, 0.02])
def test_a_learning_rate_in_the_training_config_replaces_the_base_rate(given: float | None) -> None:
    config = quiet(epochs=2, batch_size=30, learning_rate=given)
    net, other = perceptron(), perceptron()
    trainer = TweenTrainer(net, TweenConfig(base_rate=0.005))
    trainer.fit(blobs(90), config)
    TweenTrainer(other, TweenConfig(base_rate=given or 0.005)).fit(blobs(90), quiet(epochs=2, batch_size=30))
    assert weights(net) == weights(other)
    assert trainer.state.adaptive_rate == (given or 0.005)


def _local_steps(layer: nn.Layer, device: str, precision: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What two local steps of a layer that keeps something come to, and two steps of SGD that begin alike."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(6, 3, 4)), random.normal(size=(6, 3, 3))

    def begun(precision: str) -> loom.Network:
        net = loom.Sequential([layer], input_shape=(3, 4), precision=precision, seed=1)
        net.forward(2 * x)
        return net

    told, plain = begun(precision).to(device), begun("float64")
    plain.load_state_dict(told.state_dict())
    rule = TweenConfig(
        local_steps=2, base_rate=0.05, momentum=0.0, depth_scale="none", detect_explosions=False
    )
    state = loom.TweenState(told, rule, loss="mse")
    trainer = loom.Trainer(plain, quiet(loss="mse", optimizer="sgd", learning_rate=0.05))
    for _ in range(3):
        state.step(x, y)
        before = plain.layers[0].states
        trainer.step(x, y)
        after = plain.layers[0].states
        plain.layers[0].states = before
        trainer.step(x, y)
        plain.layers[0].states = after
    return told.state_dict(), plain.state_dict()


KEEPING = [
    nn.GRU(3, stateful=True, return_sequences=True),
    nn.LSTM(3, stateful=True, return_sequences=True),
    nn.SpectralNorm(nn.Dense(3)),
]


@pytest.mark.parametrize("layer", KEEPING, ids=lambda layer: type(layer).__name__)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_local_steps_begin_where_their_batch_began(layer: nn.Layer, precision: str) -> None:
    found, expected = _local_steps(layer, "cpu", precision)
    for name, values in expected.items():
        tolerance = 1e-12 if precision == "float64" else 2e-6
        np.testing.assert_allclose(found[name], values, rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("layer", KEEPING, ids=lambda layer: type(layer).__name__)
def test_so_they_do_on_a_gpu(layer: nn.Layer, gpu: str) -> None:
    found, expected = _local_steps(layer, gpu, "float32")
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=2e-6, err_msg=name)


def test_epochs_of_feedback_and_of_forward_learning_alternate() -> None:
    config = TweenConfig(mode="difference", feedback_schedule="alternate", feedback_rate=0.02)
    trainer = TweenTrainer(perceptron(precision="float64"), config)
    found: list[tuple[bytes, bytes]] = []

    class Look(loom.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            maps = b"".join(values.tobytes() for values in trainer.state.feedback["0.0.0.1"].values())
            found.append((weights(trainer.network), maps))

    before = weights(trainer.network)
    trainer.fit(blobs(64), quiet(epochs=4), callbacks=[Look()])
    layers, maps = zip((before, b""), *found, strict=True)
    assert [layers[i] != layers[i + 1] for i in range(4)] == [False, True, False, True]
    assert [maps[i] != maps[i + 1] for i in range(1, 4)] == [False, True, False]


# Observed backpropagation


@pytest.mark.parametrize("make", [perceptron, mlp, cnn])
def test_observing_changes_no_bit(make: Any) -> None:
    data = stripes(120) if make is cnn else blobs(120)
    config = quiet(epochs=3, batch_size=16, gradient_clip=1.0, optimizer="adamw")
    plain, observed = make(), make()
    first = loom.train(plain, data, config)
    second = loom.train(observed, data, config, observe=True)
    assert weights(plain) == weights(observed)
    assert first.loss_history == second.loss_history
    assert observed.measures.steps == 24
    assert plain.measures.steps == 0
    assert (observed.measures.gaps > 0).all()


def test_observed_measures_are_those_of_the_chain_rule() -> None:
    x, y = blobs(50)
    observed, tweened = perceptron(precision="float64"), perceptron(precision="float64")
    trainer = loom.Trainer(observed, loom.TrainingConfig(loss="cross_entropy"), observe=Observe(history=1))
    trainer.step(x, y)
    state = loom.TweenState(tweened, loss="cross_entropy")
    state.step(x, y)
    for name in ("gaps", "alignments", "gains", "link_budgets"):
        np.testing.assert_array_equal(getattr(observed.measures, name), getattr(state, name))
    assert len(observed.measures.history) == 1


# Explosions


def deep(seed: int) -> loom.Network:
    """16 layers of ReLU."""
    layers = [nn.Dense(48, activation="relu", weight_initializer="he_normal") for _ in range(15)]
    return loom.Sequential([*layers, nn.Dense(3)], input_shape=8, seed=seed)


def quadrants(seed: int) -> Arrays:
    x = np.random.default_rng(seed).normal(size=(64, 8)).astype(np.float32)
    return x, np.eye(3, dtype=np.float32)[np.argmax(x[:, :3] + x[:, 3:6] ** 2, axis=1)]


def final_loss(seed: int, *, disturb: bool, detect: bool) -> tuple[float, int]:
    """The loss after 150 steps, the 20th at 1,000 times the rate where disturbed; and how many exploded."""
    x, y = quadrants(seed)
    state = loom.TweenState(deep(seed), TweenConfig(base_rate=0.02, detect_explosions=detect))
    loss = float("inf")
    for number in range(150):
        state.forward(x)
        try:
            loss = state.backward(y)
            state.measure()
            state.apply(20.0 if disturb and number == 20 else None)
        except loom.NonFiniteError:
            return float("inf"), state.explosion_count
    return loss, state.explosion_count


def test_an_explosion_is_detected_and_taken_back() -> None:
    undisturbed = [final_loss(seed, disturb=False, detect=True) for seed in range(3)]
    recovered = [final_loss(seed, disturb=True, detect=True) for seed in range(3)]
    ruined = [final_loss(seed, disturb=True, detect=False) for seed in range(3)]
    assert [count for _, count in undisturbed] == [0] * 3
    assert all(count >= 1 for _, count in recovered)
    limit = 2 * np.median([loss for loss, _ in undisturbed])
    assert np.median([loss for loss, _ in recovered]) <= limit
    assert not any(loss <= limit for loss, _ in ruined)
    assert [count for _, count in ruined] == [0] * 3


@pytest.mark.parametrize("detect", [True, False])
def test_backpropagation_takes_explosions_back_too(detect: bool) -> None:
    x, y = quadrants(0)
    net = deep(0)
    config = loom.TrainingConfig(
        learning_rate=0.02, optimizer=loom.SGD(momentum=0.9), depth_scale="inv_sqrt", on_nonfinite="skip"
    )
    trainer = loom.Trainer(net, config, observe=Observe(detect_explosions=detect, history=1))
    for number in range(300):
        for layer in net.layers if number in {20, 21} else ():
            layer.rate_factor = 1000.0 if number == 20 else 1.0
        trainer.step(x, y)
    loss = float(((net.predict(x) - y) ** 2).mean())
    assert (loss < 0.01) is detect
    assert net.measures.explosion_count == int(detect)
    np.testing.assert_array_equal(net.measures.history.explosions, [21] if detect else [])


def test_a_run_counts_its_explosions() -> None:
    x, y = quadrants(0)
    config = loom.TrainingConfig(epochs=4, batch_size=16, learning_rate=20.0, shuffle=False, verbose=False)
    trainer = TweenTrainer(deep(0), TweenConfig(history=1))
    result = trainer.fit((x, y), config)
    assert result.explosions == trainer.state.explosion_count >= 1
    assert result.skipped_steps == result.explosions
    assert trainer.state.adaptive_rate < 20.0
    assert len(trainer.state.history.explosions) == result.explosions


# Keeping work


@pytest.mark.parametrize("mode", MODES)
def test_a_saved_training_goes_on_bit_for_bit(mode: str, tmp_path: Path) -> None:
    config = TweenConfig(mode=mode, base_rate=0.02, history=3, feedback_steps=2)
    whole, halved = perceptron(), perceptron()
    TweenTrainer(whole, config).fit(blobs(90), quiet(epochs=4))
    TweenTrainer(halved, config).fit(blobs(90), quiet(epochs=2))
    halved.save(tmp_path / "half.loom", optimizer=True)
    loaded = loom.load(tmp_path / "half.loom")
    first, second = (loom.TweenState(net, config, quiet(), resume=True) for net in (halved, loaded))
    assert_same_state(first, second)
    TweenTrainer(loaded, config).fit(blobs(90), quiet(epochs=4), resume=True)
    assert weights(whole) == weights(loaded)
    assert_same_state(TweenTrainer(whole, config).state, TweenTrainer(loaded, config).state)


def assert_same_state(state: loom.TweenState, other: loom.TweenState) -> None:
    for name in ("gaps", "alignments", "gains", "link_budgets", "reconstruction_errors", "loss_history"):
        np.testing.assert_array_equal(getattr(state, name), getattr(other, name), err_msg=name)
    for name in ("steps", "prev_avg_gap", "gap_growth_rate", "explosion_count", "adaptive_rate"):
        assert getattr(state, name) == getattr(other, name), name
    np.testing.assert_array_equal(state.history.steps, other.history.steps)
    np.testing.assert_array_equal(state.history.gaps, other.history.gaps)
    for path, velocity in state.weight_velocity.items():
        np.testing.assert_array_equal(velocity, other.weight_velocity[path])
    assert list(state.feedback) == list(other.feedback)
    for path, feedback in state.feedback.items():
        for name, values in feedback.items():
            np.testing.assert_array_equal(values, other.feedback[path][name])


@pytest.mark.parametrize("calls", range(5))
@pytest.mark.parametrize("mode", MODES)
def test_a_saved_state_holds_what_layers_made(mode: str, calls: int, tmp_path: Path) -> None:
    config = TweenConfig(mode=mode, base_rate=0.02)
    x, y = blobs(20)
    state = loom.TweenState(perceptron(), config, quiet())
    state.step(x, y)
    steps = (lambda: state.forward(x[:7]), lambda: state.backward(y[:7]), state.measure, state.apply)
    for call in steps[:calls]:
        call()
    state.save(tmp_path / "state.loom")
    loaded = loom.load(tmp_path / "state.loom")
    # What a file brought goes into the next file, too, until the next forward pass.
    again = loom.TweenState(loaded, config, quiet(), resume=True)
    again.save(tmp_path / "again.loom")
    resumed = loom.TweenState(loom.load(tmp_path / "again.loom"), config, quiet(), resume=True)
    for name in ("forward_acts", "backward_targets", "chain_gradients"):
        if (calls == 1 and name != "forward_acts") or (mode != "chain_rule" and name == "chain_gradients"):
            for each in (state, resumed):
                with pytest.raises(loom.StateError):
                    getattr(each, name)
            continue
        kept = getattr(resumed, name)
        assert len(kept) == 3
        assert kept[0].shape == (7 if calls else 20, 16)
        for found, expected in zip(kept, getattr(state, name), strict=True):
            np.testing.assert_array_equal(found, expected, err_msg=name)
    if calls in {0, 4}:  # Between steps, learning goes on bit for bit.
        assert_same_state(resumed, state)
        assert resumed.step(x, y) == state.step(x, y)
        assert weights(resumed.network) == weights(state.network)
    resumed.forward(x[:5])
    assert resumed.forward_acts[0].shape == (5, 16)
    with pytest.raises(loom.StateError, match="backward"):
        _ = resumed.backward_targets


def test_a_changed_network_does_not_show_what_others_made(tmp_path: Path) -> None:
    state = loom.TweenState(perceptron(), None, quiet())
    state.step(*blobs(20))
    state.save(tmp_path / "state.loom")
    loaded = loom.load(tmp_path / "state.loom")
    loaded[0, 0].add(nn.Dense(3))
    changed = loom.TweenState(loaded, None, quiet(), resume=True)
    for name in ("forward_acts", "backward_targets", "chain_gradients"):
        with pytest.raises(loom.StateError, match=r"forward|backward"):
            getattr(changed, name)


def test_other_training_forgets_what_layers_made(tmp_path: Path) -> None:
    state = loom.TweenState(perceptron(), None, quiet())
    state.step(*blobs(20))
    state.save(tmp_path / "state.loom")
    loaded = loom.load(tmp_path / "state.loom")
    loom.train(loaded, blobs(20), quiet())
    fresh = loom.TweenState(loaded, None, quiet())
    with pytest.raises(loom.StateError, match="forward"):
        _ = fresh.forward_acts


def test_an_interrupted_epoch_goes_on_bit_for_bit(tmp_path: Path) -> None:
    class StopEarly(loom.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                raise loom.StopTraining

    config = TweenConfig(local_steps=2, base_rate=0.02, history=1)
    whole, stopped = perceptron(), perceptron()
    TweenTrainer(whole, config).fit(blobs(90), quiet(epochs=2, batch_size=16))
    TweenTrainer(stopped, config).fit(blobs(90), quiet(epochs=2, batch_size=16), callbacks=[StopEarly()])
    assert stopped.measures.steps == 2
    stopped.save(tmp_path / "stopped.loom", optimizer=True)
    loaded = loom.load(tmp_path / "stopped.loom")
    for net in (stopped, loaded):
        TweenTrainer(net, config).fit(blobs(90), quiet(epochs=2, batch_size=16), resume=True)
        assert weights(net) == weights(whole)
        np.testing.assert_array_equal(net.measures.loss_history, whole.measures.loss_history)


def test_without_the_optimizer_a_file_forgets_what_was_measured(tmp_path: Path) -> None:
    trainer = TweenTrainer(perceptron())
    trainer.fit(blobs(60), quiet(epochs=1))
    trainer.network.save(tmp_path / "net.loom")
    assert loom.load(tmp_path / "net.loom").measures.steps == 0


# What is said


@pytest.mark.filterwarnings("default::loom.BottleneckWarning")
def test_bottlenecks_are_named_once_a_fit() -> None:
    net = perceptron()
    net.layers[1].weight = net.layers[1].weight * 0.01
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        TweenTrainer(net, TweenConfig(base_rate=0.0, history=1)).fit(blobs(60), quiet(epochs=3))
    messages = [str(entry.message) for entry in caught if entry.category is loom.BottleneckWarning]
    assert len(messages) == 1
    assert "layer 0.0.0.1 (dense) with a mean link budget of 0.0" in messages[0]
    assert caught[-1].filename == __file__
    with pytest.warns(loom.BottleneckWarning, match=r"0\.0\.0\.1"):
        loom.train(net, blobs(60), quiet(learning_rate=0.0), observe=True)


def test_training_without_bottlenecks_or_measures_warns_of_nothing() -> None:
    wide = loom.Sequential([nn.Dense(12), nn.Dense(3)], input_shape=6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TweenTrainer(wide, TweenConfig(base_rate=0.0, link_budget="alignment")).fit(blobs(60), quiet())
        loom.train(perceptron(), blobs(60), quiet())


def test_progress_shows_what_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    shown = loom.TrainingConfig(loss="cross_entropy", verbose=True)
    TweenTrainer(perceptron()).fit(blobs(60), shown)
    line = capsys.readouterr().out.splitlines()[-1]
    assert "gap 0." in line
    assert "rate 0.0100" in line
    assert "explosions 0" in line
    loom.train(perceptron(), blobs(60), shown)
    assert "gap" not in capsys.readouterr().out


def test_live_progress_shows_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    shown = loom.progress.LiveProgress(stream)  # type: ignore[attr-defined]
    shown.set_params({"epochs": 1, "steps": 4, "device": "cpu"})
    shown.on_train_begin()
    shown.on_epoch_begin(0)
    shown.on_progress(2, 4, 0.75, {"gap": 0.125, "rate": 0.01, "explosions": 3})
    shown.on_epoch_end(0, {"loss": 0.5})
    shown.on_train_end()
    assert "loss 0.5000  gap 0.1250  rate 0.0100  explosions 3" in stream.getvalue()
