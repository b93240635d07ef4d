"""Training: results, data in every form, validation, callbacks, metrics, resuming."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import loom
from loom import TrainingBatch, nn, schedules
from loom.engine import engine_of
from networks import blobs, cnn, mlp, quiet, stripes, weights


def test_a_perceptron_learns() -> None:
    net = mlp()
    config = quiet(epochs=20, learning_rate=0.01, metrics=["accuracy"])
    result = loom.train(net, blobs(), config, validation=blobs(seed=1))
    assert result.final_loss < 0.1 * result.loss_history[0]
    assert result.metrics["val_accuracy"][-1] > 0.95
    found = net.evaluate(blobs(seed=1))
    assert found == {"loss": result.metrics["val_loss"][-1], "accuracy": result.metrics["val_accuracy"][-1]}


def test_a_convolutional_network_learns() -> None:
    net = cnn()
    result = net.fit(stripes(), quiet(epochs=15, learning_rate=0.02, metrics=["accuracy"]))
    assert result.metrics["accuracy"][-1] > 0.95
    assert net.evaluate(stripes(seed=1))["accuracy"] > 0.95


def test_the_result_tells_the_course_of_the_run() -> None:
    config = quiet(epochs=3, batch_size=40, track_perf=True, metrics=["accuracy", "top_k_accuracy"])
    result = loom.train(mlp(), blobs(), config, validation=blobs(rows=50))
    assert len(result.loss_history) == len(result.epoch_times) == 3
    assert list(result.metrics) == [
        "accuracy",
        "top_k_accuracy",
        "val_loss",
        "val_accuracy",
        "val_top_k_accuracy",
    ]
    assert all(len(values) == 3 for values in result.metrics.values())
    assert len(result.step_times) == 3 * 8
    assert result.final_loss == result.loss_history[-1]
    assert result.best_loss == min(result.loss_history)
    assert 0 < sum(result.step_times) <= sum(result.epoch_times) <= result.total_time
    assert result.throughput == pytest.approx(900 / result.total_time)
    assert (result.device, result.stop_reason, result.skipped_steps, result.interrupted) == (
        "cpu",
        "finished",
        0,
        False,
    )
    assert loom.train(mlp(), blobs(), quiet()).step_times == []


def test_the_loss_of_an_epoch_is_the_sample_weighted_mean() -> None:
    x, y = blobs(rows=50)
    frozen = loom.Sequential([nn.Dense(3)], input_shape=6, precision="float64")
    frozen[0, 0, 0, 0].trainable = False
    weight = np.linspace(0.5, 2.0, 50)
    for data in ((x, y), (x, y, weight)):
        result = loom.train(frozen, data, quiet(batch_size=32, ignore_findings="everything-frozen"))
        expected = loom.losses.cross_entropy(
            frozen.predict(x), y, weight=data[2] if len(data) == 3 else None
        )[0]
        assert result.final_loss == pytest.approx(expected, rel=1e-12)
        assert frozen.evaluate(data)["loss"] == pytest.approx(expected, rel=1e-12)


def test_predict_and_evaluate_leave_the_network_as_it_is() -> None:
    net = mlp()
    before = weights(net)
    found = loom.evaluate(net, blobs(), loss="cross_entropy", metrics=["accuracy", "mae", "r2"], batch_size=7)
    assert list(found) == ["loss", "accuracy", "mae", "r2"]
    assert weights(net) == before
    scores = net.predict(blobs()[0])
    assert found["accuracy"] == pytest.approx(np.mean(scores.argmax(axis=1) == blobs()[1]))
    assert found["mae"] == pytest.approx(np.abs(scores - np.eye(3)[blobs()[1]]).mean(), rel=1e-5)


def test_evaluate_needs_a_loss() -> None:
    with pytest.raises(loom.StateError, match=r"give a config, or loss= and metrics="):
        mlp().evaluate(blobs())
    assert "accuracy" in mlp().evaluate(blobs(), quiet(metrics=["accuracy"]))


def test_settings_of_classes_do_not_stand_in_the_way_of_another_loss() -> None:
    x, y = blobs()
    net, rows = mlp(), np.eye(3)[y]
    settings = quiet(class_weight={0: 2.0}, label_smoothing=0.1)
    loom.train(net, (x, y), settings)
    expected = loom.losses.mse(net.predict(x), rows)[0]
    assert net.evaluate((x, rows), loss="mse")["loss"] == pytest.approx(expected, rel=1e-6)
    assert net.evaluate((x, rows), settings, loss="mse")["loss"] == pytest.approx(expected, rel=1e-6)
    # They count as before where the loss is one of classes.
    assert net.evaluate((x, y), loss="cross_entropy") == net.evaluate((x, y), settings)


# Data in every form


class Batches:
    """A data set that can be iterated again and again."""

    def __init__(self, size: int, weighted: bool = False) -> None:
        self.x, self.y = blobs()
        self.size = size
        self.weighted = weighted

    def __iter__(self) -> Iterator[TrainingBatch]:
        for start in range(0, len(self.x), self.size):
            rows = slice(start, start + self.size)
            weight = np.ones(len(self.x[rows])) if self.weighted else None
            yield TrainingBatch(self.x[rows], self.y[rows], weight)


def trained(data: Any, **settings: Any) -> bytes:
    net = mlp()
    result = loom.train(net, data, quiet(epochs=2, **settings))
    assert len(result.loss_history) == 2
    return weights(net)


def test_batches_from_an_iterable_give_what_arrays_give() -> None:
    x, y = blobs()
    expected = trained((x, y), batch_size=45, shuffle=False)
    assert trained(Batches(45), batch_size=45) == expected
    assert trained(list(Batches(45)), batch_size=1) == expected
    assert trained([(x[s : s + 45], y[s : s + 45]) for s in range(0, 300, 45)]) == expected
    assert trained(TrainingBatch(x, y), batch_size=45, shuffle=False) == expected
    assert trained((x.tolist(), y.tolist()), batch_size=45, shuffle=False) == expected
    assert trained((x.astype(np.float64), y.astype(np.uint8)), batch_size=45, shuffle=False) == expected


def test_weights_of_one_change_nothing_and_zeros_leave_samples_out() -> None:
    x, y = blobs()
    plain, some = mlp(), mlp()
    one = loom.train(plain, (x, y), quiet(epochs=2))
    same = loom.train(some, (x, y, np.ones(300)), quiet(epochs=2))
    assert weights(plain) == weights(some)
    assert one.loss_history == same.loss_history
    kept = loom.Sequential([nn.Dense(3)], input_shape=6)
    cut = loom.Sequential([nn.Dense(3)], input_shape=6)
    mask = np.arange(300) < 100
    loom.train(kept, (x, y, mask), quiet(batch_size=300))
    loom.train(cut, (x[:100], y[:100]), quiet(batch_size=300))
    for name, values in kept.state_dict().items():
        np.testing.assert_allclose(values, cut.state_dict()[name], rtol=1e-5, atol=1e-7)


def test_accumulation_equals_a_larger_batch() -> None:
    def run(data: Any, **settings: Any) -> dict[str, Any]:
        net = loom.Sequential(
            [nn.Dense(8, activation="tanh"), nn.Dense(3)], input_shape=6, precision="float64"
        )
        loom.train(net, data, quiet(epochs=2, shuffle=False, **settings))
        return net.state_dict()

    expected = run(blobs(), batch_size=100)
    for state in (run(blobs(), batch_size=25, accumulate=4), run(Batches(25), accumulate=4)):
        for name, values in state.items():
            np.testing.assert_allclose(values, expected[name], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("unheard", [{"accumulate": 4}, {"shards": 2}, {"exchange": "int8"}])
def test_a_trainer_refuses_what_its_single_steps_would_pass_over(unheard: dict[str, Any]) -> None:
    with pytest.raises(loom.ConfigError, match=f"does not take {next(iter(unheard))}: each step is one upd"):
        loom.Trainer(mlp(), quiet(**unheard))
    estimator = pytest.importorskip("loom.sklearn").LoomClassifier(options=unheard)
    with pytest.raises(loom.ConfigError, match=f"^partial_fit does not take {next(iter(unheard))}"):
        estimator.partial_fit(*blobs(), classes=[0, 1, 2])


def test_a_generator_gives_one_epoch_and_nothing_is_lost() -> None:
    net, other = mlp(), mlp()
    loom.train(net, iter(Batches(45)), quiet())
    loom.train(other, Batches(45), quiet())
    assert weights(net) == weights(other)
    with pytest.raises(loom.DataError, match="can be iterated only once"):
        loom.train(net, iter(Batches(45)), quiet(epochs=2))


def test_schedules_over_the_run_need_its_length() -> None:
    with pytest.raises(loom.ConfigError, match="Cosine spans the whole run"):
        loom.train(mlp(), Batches(45), quiet(schedule="cosine"))
    with pytest.raises(loom.ConfigError, match="Warmup spans the whole run"):
        loom.train(mlp(), Batches(45), quiet(schedule=schedules.Warmup(2, then="one_cycle")))
    loom.train(mlp(), Batches(45), quiet(schedule=schedules.Cosine(steps=7)))
    x, y = blobs()
    expected = trained((x, y), batch_size=45, shuffle=False, schedule="cosine")
    assert trained(list(Batches(45)), schedule="cosine") == expected


def test_one_number_a_row_needs_no_axis() -> None:
    x = np.linspace(-1, 1, 40)[:, None]
    config = loom.TrainingConfig(epochs=2, verbose=False, metrics=["r2"])
    nets = [loom.Sequential([nn.Dense(1)], input_shape=1) for _ in "ab"]
    for net, y in zip(nets, (x[:, 0] * 3, x * 3), strict=True):
        loom.train(net, (x, y), config)
    assert weights(nets[0]) == weights(nets[1])


def test_soft_rows_are_targets_too() -> None:
    x, y = blobs()
    net = loom.Sequential([nn.Dense(3)], input_shape=6)
    other = loom.Sequential([nn.Dense(3)], input_shape=6)
    one = loom.train(net, (x, y), quiet(metrics=["accuracy"]))
    two = loom.train(other, (x, np.eye(3)[y]), quiet(metrics=["accuracy"]))
    assert one.final_loss == pytest.approx(two.final_loss, rel=1e-6)
    assert one.metrics == two.metrics


# Settings


def test_class_weights_and_smoothing_reach_the_loss() -> None:
    x, y = blobs()
    net = loom.Sequential([nn.Dense(3)], input_shape=6, precision="float64")
    net[0, 0, 0, 0].trainable = False
    expected = loom.losses.cross_entropy(
        net.predict(x), y, class_weight={0: 3.0, 2: 0.5}, label_smoothing=0.1
    )[0]
    for given in ({0: 3.0, 2: 0.5}, [3.0, 1.0, 0.5]):
        config = quiet(class_weight=given, label_smoothing=0.1, ignore_findings="everything-frozen")
        result = loom.train(net, (x, y), config)
        assert result.final_loss == pytest.approx(expected, rel=1e-12)


def test_shuffling_follows_the_seed() -> None:
    results = [trained(blobs(), seed=seed) for seed in (0, 0, 1)]
    assert results[0] == results[1] != results[2]
    assert trained(blobs(), shuffle=False) != results[0]


def test_a_validation_split_takes_the_last_samples() -> None:
    x, y = blobs()
    split, given = mlp(), mlp()
    one = loom.train(split, (x, y), quiet(epochs=2, validation_split=0.2, metrics=["accuracy"]))
    two = loom.train(given, (x[:240], y[:240]), quiet(epochs=2, metrics=["accuracy"]), (x[240:], y[240:]))
    assert one.metrics == two.metrics
    assert weights(split) == weights(given)


def test_validation_now_and_then_from_batches() -> None:
    config = quiet(epochs=5, validation_frequency=2, validation_batch_size=10)
    result = loom.train(mlp(), blobs(), config, validation=Batches(64))
    values = result.metrics["val_loss"]
    assert [math.isnan(value) for value in values] == [True, False, True, False, True]


def test_early_stopping_and_its_weights() -> None:
    stopping = loom.EarlyStopping(monitor="val_loss", patience=2, restore_best_weights=True)
    x, y = blobs(rows=30)
    net = mlp()
    noise = np.random.default_rng(0).integers(0, 3, 100)
    held_out = (blobs(rows=100, seed=3)[0], noise)
    config = quiet(epochs=200, learning_rate=0.05, early_stopping=stopping)
    result = loom.train(net, (x, y), config, validation=held_out)
    assert result.stop_reason == "stopped"
    assert "val_loss has not improved since epoch" in result.message
    epochs = len(result.loss_history)
    assert epochs == stopping.best_epoch + 3 < 200
    assert net.evaluate(held_out)["loss"] == pytest.approx(min(result.metrics["val_loss"]), rel=1e-6)


def test_skipped_steps_are_counted_and_leave_the_weights() -> None:
    x, y = blobs()
    x = x.copy()
    x[5, 2] = np.nan
    net = mlp()
    before = weights(net)
    with pytest.raises(loom.NonFiniteError, match=r"input holds NaN or infinity, first in row 5"):
        loom.train(net, (x, y), quiet())
    assert weights(net) == before
    result = loom.train(net, (x, y), quiet(epochs=2, batch_size=50, on_nonfinite="skip"))
    assert result.skipped_steps == 2
    assert np.isfinite(result.loss_history).all()
    assert np.isfinite(net.predict(blobs()[0])).all()


def test_an_output_that_explodes_names_the_layer_and_keeps_the_weights() -> None:
    net = loom.Sequential([nn.Dense(4), nn.Dense(1)], input_shape=1)
    net[0, 0, 0, 0].weight = np.full((4, 1), 1e20)
    x = np.full((4, 1), 1e20, np.float32)
    before = weights(net)
    with pytest.raises(loom.NonFiniteError, match=r"cell \(0, 0, 0\), layer 0"):
        loom.train(net, (x, x), loom.TrainingConfig(verbose=False, ignore_findings="unscaled-inputs"))
    assert weights(net) == before


def test_a_run_that_diverges_keeps_the_weights_of_the_last_good_step() -> None:
    net = loom.Sequential([nn.Dense(4), nn.Dense(1)], input_shape=1)
    x = np.full((4, 1), 10.0)
    seen: list[bytes] = []
    config = loom.TrainingConfig(epochs=500, optimizer=loom.SGD(), learning_rate=10.0, verbose=False)
    watcher = loom.LambdaCallback(on_train_batch_begin=lambda batch, logs: seen.append(weights(net)))
    with pytest.raises(loom.NonFiniteError, match="lower the learning rate"):
        loom.train(net, (x, x), config, callbacks=[watcher])
    assert weights(net) == seen[-1]
    assert np.isfinite(np.frombuffer(weights(net), np.float32)).all()


# Callbacks, metrics, progress, observers


def test_hooks_run_in_order_with_logs() -> None:
    calls: list[str] = []

    class Watcher(loom.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            calls.append(f"begin {self.params['steps']} {self.network is net}")

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            calls.append(f"batch {batch} {sorted(logs)}")

        def on_test_begin(self, logs: Any = None) -> None:
            calls.append("test")

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            calls.append(f"epoch {epoch} {list(logs)}")

        def on_train_end(self, logs: Any = None) -> None:
            calls.append("end")

    net = mlp()
    loom.train(net, blobs(), quiet(epochs=1, batch_size=150), blobs(rows=20), [Watcher()])
    assert calls == [
        "begin 2 True",
        "batch 0 ['loss']",
        "batch 1 ['loss']",
        "test",
        "epoch 0 ['loss', 'val_loss']",
        "end",
    ]


def test_batch_hooks_do_not_change_the_bits() -> None:
    net = mlp()
    loom.train(net, blobs(), quiet(epochs=2), callbacks=[loom.LambdaCallback(on_batch_end=lambda *_: None)])
    assert weights(net) == trained(blobs())


def test_a_callback_may_look_save_and_change_layers_while_training(tmp_path: Any) -> None:
    accuracies: list[float] = []

    class Thaw(loom.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.network[0, 0, 0, 0].trainable = epoch >= 1

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            scores = self.network.predict(blobs()[0])
            accuracies.append(float(np.mean(scores.argmax(axis=1) == blobs()[1])))
            self.network.save(tmp_path / f"{epoch}.loom")

    net = mlp()
    first = net[0, 0, 0, 0].weight
    loom.train(net, blobs(), quiet(epochs=3), callbacks=[Thaw()])
    saved = [loom.load(tmp_path / f"{epoch}.loom")[0, 0, 0, 0].weight for epoch in range(3)]
    np.testing.assert_array_equal(saved[0], first)
    assert not np.array_equal(saved[1], first)
    assert not np.array_equal(saved[2], saved[1])
    assert len(accuracies) == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda net: net[0, 1].add(nn.Dense(2)),
        lambda net: net.forward(np.ones((1, 6))),
        lambda net: net.set_optimizer("sgd"),
        lambda net: net.zero_gradients(),
        lambda net: loom.train(net, blobs(), quiet()),
        lambda net: loom.Trainer(net, quiet()).step(*blobs()),
    ],
)
def test_a_callback_may_not_get_in_the_way(call: Callable[[loom.Network], object]) -> None:
    net = mlp()
    failed: list[str] = []

    def hook(epoch: int, logs: Any) -> None:
        with pytest.raises(loom.StateError, match="train") as raised:
            call(net)
        failed.append(str(raised.value))

    loom.train(net, blobs(), quiet(), callbacks=[loom.LambdaCallback(on_epoch_end=hook)])
    assert len(failed) == 1
    assert weights(net) == weights_after_one_epoch()


def weights_after_one_epoch() -> bytes:
    net = mlp()
    loom.train(net, blobs(), quiet())
    return weights(net)


def test_errors_in_callbacks_come_through_and_free_the_network() -> None:
    net = mlp()

    def fails(epoch: int, logs: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        loom.train(net, blobs(), quiet(), callbacks=[loom.LambdaCallback(on_epoch_end=fails)])
    assert len(loom.train(net, blobs(), quiet()).loss_history) == 1


def test_stopping_in_the_middle_of_an_epoch() -> None:
    def stop(batch: int, logs: Any) -> None:
        if batch == 2:
            raise loom.StopTraining("enough")

    net = mlp()
    result = loom.train(net, blobs(), quiet(epochs=2), callbacks=[loom.LambdaCallback(on_batch_end=stop)])
    assert (result.stop_reason, result.message, result.loss_history) == ("stopped", "enough", [])
    assert engine_of(net).native.training_state()["batch"] == 3


@pytest.mark.parametrize("accumulate", [1, 3])
def test_metrics_of_one_s_own_see_every_output(accumulate: int) -> None:
    seen: list[tuple[Any, ...]] = []

    def own(outputs: Any, targets: Any) -> float:
        seen.append((outputs.shape, targets.shape, targets.dtype.kind))
        return float(np.mean(outputs.argmax(axis=1) == targets))

    config = quiet(epochs=2, batch_size=32, accumulate=accumulate, metrics=[own, "accuracy"])
    result = loom.train(mlp(), blobs(), config, validation=blobs(rows=40))
    assert result.metrics["own"] == pytest.approx(result.metrics["accuracy"])
    assert result.metrics["val_own"] == pytest.approx(result.metrics["val_accuracy"])
    assert seen[:2] == [((300, 3), (300,), "i"), ((40, 3), (40,), "i")]


def test_observers_see_every_step() -> None:
    net = mlp()
    recorder = loom.observers.Recorder()
    net.observe(recorder)
    loom.train(net, blobs(), quiet(epochs=2, batch_size=100))
    assert len(recorder) == 6
    assert recorder.records[0][0].shape == (100, 24)
    assert 0 < recorder.records[0][1].zeros < 0.3
    assert weights(net) == trained(blobs(), batch_size=100)


def test_progress_is_a_line_an_epoch_and_silence_where_asked(capsys: pytest.CaptureFixture[str]) -> None:
    config = loom.TrainingConfig(epochs=2, loss="cross_entropy", metrics=["accuracy"], verbose=True)
    loom.train(mlp(), blobs(), config, validation=blobs(rows=20))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("training on ")
    assert lines[1].startswith("epoch 1/2  loss ")
    assert "val_accuracy" in lines[2]
    loom.train(mlp(), blobs(), quiet())
    assert capsys.readouterr() == ("", "")


def test_progress_in_a_terminal_is_live(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    loom.train(mlp(), blobs(), loom.TrainingConfig(epochs=2, loss="cross_entropy"))
    assert "epoch 2/2" in terminal.getvalue()


# Resuming


def stop_at(epoch: int, batch: int | None) -> loom.Callback:
    """Ends training in the middle of an epoch, or at its end."""

    class Stop(loom.Callback):
        now = -1

        def on_epoch_begin(self, now: int, logs: Any = None) -> None:
            self.now = now

        def on_batch_end(self, step: int, logs: Any = None) -> None:
            if (self.now, step) == (epoch, batch):
                raise loom.StopTraining

        def on_epoch_end(self, now: int, logs: Any = None) -> None:
            if now == epoch and batch is None:
                raise loom.StopTraining

    return Stop()


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "rmsprop"])
@pytest.mark.parametrize(("epoch", "batch"), [(0, None), (1, 3), (2, 0)])
def test_a_resumed_run_equals_one_that_never_stopped(
    tmp_path: Any, optimizer: str, epoch: int, batch: int | None
) -> None:
    config = quiet(
        epochs=4,
        optimizer=optimizer,
        schedule=schedules.Warmup(3, then="cosine"),
        learning_rate=0.02,
        gradient_clip=1.0,
        seed=5,
    )
    whole = mlp()
    expected = loom.train(whole, blobs(), config)
    part = mlp()
    began = loom.train(part, blobs(), config, callbacks=[stop_at(epoch, batch)])
    part.save(tmp_path / "part.loom", optimizer=True)
    resumed = loom.load(tmp_path / "part.loom")
    rest = loom.train(resumed, blobs(), config, resume=True)
    assert weights(resumed) == weights(whole)
    assert began.loss_history + rest.loss_history == expected.loss_history
    assert loom.train(resumed, blobs(), config, resume=True).loss_history == []


def test_resuming_from_batches_of_an_iterable() -> None:
    config = quiet(epochs=3, accumulate=2)
    whole, part = mlp(), mlp()
    loom.train(whole, Batches(40), config)
    loom.train(part, Batches(40), config, callbacks=[stop_at(1, 1)])
    assert loom.train(part, Batches(40), config, resume=True).stop_reason == "finished"
    assert weights(part) == weights(whole)


def test_resuming_needs_the_same_optimizer() -> None:
    net = mlp()
    loom.train(net, blobs(), quiet(optimizer="sgd"))
    before = weights(net)
    with pytest.raises(loom.StateError, match="belongs to sgd"):
        loom.train(net, blobs(), quiet(epochs=2, optimizer="adamw"), resume=True)
    assert weights(net) == before


# Packed weights


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
def test_training_goes_on_through_packed_weights(dtype: str) -> None:
    net = mlp()
    net.morph(dtype)
    config = quiet(epochs=15, learning_rate=0.01, metrics=["accuracy"])
    result = loom.train(net, blobs(), config)
    assert net[0, 0, 0, 0].dtype == dtype
    assert result.metrics["accuracy"][-1] > 0.95
    assert net.evaluate(blobs(seed=1))["accuracy"] > 0.95
    # What is computed from is the newest master, packed.
    layer = net[0, 0, 1, 0]
    packed = layer.decoded("weight")
    assert 0 < np.abs(packed - layer.weight).max() < 0.02
    again = loom.Sequential([nn.Dense(24, activation="tanh"), nn.Dense(3)], input_shape=6)
    for ours, theirs in zip(again.layers, (net[0, 0, 0, 0], layer), strict=True):
        ours.weight, ours.bias = theirs.decoded("weight"), theirs.decoded("bias")
    x = blobs(seed=1)[0]
    np.testing.assert_allclose(again.predict(x), net.predict(x), rtol=1e-4, atol=1e-5)


# The step-by-step trainer


def test_the_trainer_s_steps_are_those_of_train() -> None:
    x, y = blobs()
    net, other = mlp(), mlp()
    config = quiet(batch_size=60, shuffle=False)
    loom.train(net, (x, y), config)
    trainer = loom.Trainer(other, config)
    found = [trainer.step(x[s : s + 60], y[s : s + 60]) for s in range(0, 300, 60)]
    assert weights(net) == weights(other)
    assert found[-1] < found[0]


def test_the_trainer_follows_changes_and_other_training() -> None:
    x, y = blobs()
    net = mlp()
    trainer = loom.Trainer(net, quiet(learning_rate=0.01))
    trainer.step(x, y)
    net[0, 0, 0, 0].trainable = False
    fixed = net[0, 0, 0, 0].weight
    trainer.step(x, y)
    np.testing.assert_array_equal(net[0, 0, 0, 0].weight, fixed)
    net.morph("int8")
    assert np.isfinite(trainer.step(x, y))
    with pytest.raises(loom.DataError, match="one kind only"):
        trainer.step(x, np.eye(3)[y])
    loom.train(net, (x, y), quiet(optimizer="sgd"))
    with pytest.raises(loom.StateError, match="learned by SGD since"):
        trainer.step(x, y)
