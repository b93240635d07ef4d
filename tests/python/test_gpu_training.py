"""Training on a GPU: what the CPU learns, the same bits twice, every way in which data and settings come."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn, optimizers, schedules
from loom.engine import engine_of
from networks import Arrays, blobs, cnn, mlp, quiet, stripes, weights
from programs import answer, answer_when_interrupted

OPTIMIZERS: dict[str, optimizers.Optimizer] = {
    "sgd": optimizers.SGD(),
    "momentum": optimizers.SGD(momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": optimizers.Adam(),
    "adamw": optimizers.AdamW(),
    "rmsprop": optimizers.RMSprop(),
}
WORK: dict[str, tuple[Callable[[], loom.Network], Callable[[], Arrays]]] = {
    "mlp": (mlp, blobs),
    "cnn": (cnn, stripes),
}


class Losses(loom.Callback):
    """Keeps the loss of every step."""

    def __init__(self) -> None:
        self.found: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.found.append(logs["loss"])


def batches(size: int, x: Any, y: Any) -> Iterator[Arrays]:
    for start in range(0, len(x), size):
        yield x[start : start + size], y[start : start + size]


def close(one: loom.Network, other: loom.Network, tolerance: float = 2e-3) -> None:
    """Compares all parameters, to what the sums of 32-bit floats in other orders may differ."""
    for (name, values), expected in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        scale = float(np.abs(expected).max()) + 1e-6
        assert np.abs(values - expected).max() <= tolerance * scale, name


# What is learned


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("work", WORK)
def test_steps_are_those_of_the_cpu(gpu: str, work: str, optimizer: optimizers.Optimizer) -> None:
    make, data = WORK[work]
    # In fifty steps, a weight decay that was left out shows; convolutions are slow where the GPU is software.
    epochs = 10 if work == "mlp" else 4
    config = quiet(epochs=epochs, batch_size=48, optimizer=optimizer, learning_rate=5e-3, gradient_clip=5.0)
    found = {}
    for device in ("cpu", gpu):
        net, losses = make(), Losses()
        loom.train(net.to(device), tuple(part[:240] for part in data()), config, callbacks=[losses])
        assert net.device == device
        found[device] = losses.found
    assert len(found[gpu]) == 5 * epochs
    np.testing.assert_allclose(found[gpu], found["cpu"], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "mixed"])
def test_sums_of_a_transformer_are_made_by_those_who_make_what_they_add(gpu: str, precision: str) -> None:
    def transformer() -> loom.Network:
        attention = nn.MultiHeadAttention(2, causal=True, bias=False, rotary=nn.Rotary())
        blocks = (
            nn.Residual([nn.RMSNorm(), attention]),
            nn.Residual([nn.RMSNorm(), nn.SwiGLU(12)]),
            nn.Residual([nn.LayerNorm(), nn.Dense(16, activation="gelu"), nn.Dense(16)]),
        )
        return loom.Sequential([nn.Embedding(11, 16), *blocks, nn.Dense(11)], 16, seed=3, precision=precision)

    x = np.random.default_rng(5).integers(0, 11, (6, 16))
    config = quiet(epochs=2, batch_size=3, optimizer=optimizers.SGD(), learning_rate=0.1)
    trained = [transformer().to(device) for device in ("cpu", gpu, gpu)]
    timed = loom.init_gpu(gpu).timestamps
    try:
        if timed:
            loom.time_frames("kernels", gpu)
            loom.reset_frame_statistics(gpu)
        for net in trained:
            loom.train(net, (x, np.roll(x, -1, axis=1)), config)
        kernels = [kernel.label for kernel in loom.frame_statistics(gpu).kernels]
    finally:
        loom.time_frames("off", gpu)
    assert bool(kernels) == timed
    # Products of 16 bits run side by side instead, and a kernel adds up.
    assert ("sum" in kernels) == (timed and precision == "mixed")
    # In mixed precision a processor rounds to bfloat16, a GPU to float16.
    close(trained[1], trained[0], 2e-3 if precision == "float32" else 5e-2)
    for values, again in zip(trained[1].state_dict().values(), trained[2].state_dict().values(), strict=True):
        np.testing.assert_array_equal(values, again)


@pytest.mark.parametrize("work", WORK)
def test_frames_steps_and_second_runs_give_the_same_bits(gpu: str, work: str) -> None:
    make, data = WORK[work]
    config = quiet(epochs=4, batch_size=32, gradient_clip=1.0, schedule="cosine", metrics=["accuracy"])
    runs = []
    for callbacks in ([], [], [Losses()]):
        net = make().to(gpu)
        result = loom.train(net, data(), config, callbacks=callbacks)
        runs.append((weights(net), result.loss_history, result.metrics))
    # Many steps at once, the same again, and step after step.
    assert runs[0] == runs[1]
    assert runs[0][0] == runs[2][0]
    np.testing.assert_allclose(runs[0][1], runs[2][1], rtol=1e-6)
    assert runs[0][2] == runs[2][2]


# What is computed in Python is tested by itself, and an expression has to be given.
NAMED = [name for name in loom.losses.names() if name != "expr" and not loom.losses.is_own(name)]


@pytest.mark.parametrize("loss", [*NAMED, loom.losses.Huber(0.3), loom.losses.Expr("abs(y - t)")], ids=str)
def test_every_loss_learns(gpu: str, loss: Any) -> None:
    x, y = blobs()
    histories = []
    for device in ("cpu", gpu):
        net = mlp()
        if loss == "nll":
            net[0, 1].add(nn.Softmax())
        target = y if loom.losses.is_classification(loss) else np.eye(3)[y]
        if loss in ("hinge", "squared_hinge"):
            target = 2 * target - 1
        result = loom.train(net.to(device), (x, target), quiet(epochs=4, loss=loss, learning_rate=0.01))
        histories.append(result.loss_history)
    np.testing.assert_allclose(histories[1], histories[0], rtol=1e-3)
    assert histories[1][-1] < histories[1][0]


SETTINGS: dict[str, dict[str, Any]] = {
    "accumulate": {"accumulate": 3, "batch_size": 20},
    "class weights": {"class_weight": {0: 3.0, 2: 0.5}, "label_smoothing": 0.1},
    "clip value": {"clip_value": 0.01},
    "depth scale": {"depth_scale": "inv_sqrt"},
    "in order": {"shuffle": False, "batch_size": 7},
    "one step an epoch": {"batch_size": 1000},
    "schedule": {"schedule": schedules.Warmup(3, then="cosine")},
    "metrics": {"metrics": ["accuracy", {"top_k_accuracy": {"k": 2}}]},
    "split": {"validation_split": 0.2, "metrics": ["accuracy"]},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_every_setting_means_what_it_means_on_the_cpu(gpu: str, settings: dict[str, Any]) -> None:
    results, nets = [], []
    for device in ("cpu", gpu):
        net = mlp().to(device)
        results.append(loom.train(net, blobs(), quiet(epochs=3, **{"learning_rate": 5e-3, **settings})))
        nets.append(net)
    assert results[1].device == gpu
    np.testing.assert_allclose(results[1].loss_history, results[0].loss_history, rtol=1e-3)
    for name, values in results[0].metrics.items():
        np.testing.assert_allclose(results[1].metrics[name], values, rtol=1e-3, atol=0.01)
    close(nets[1], nets[0])


def test_sample_weights_count(gpu: str) -> None:
    x, y = blobs()
    weight = np.random.default_rng(1).uniform(0, 2, len(x)).astype(np.float32)
    weight[:50] = 0
    nets = [mlp().to(device) for device in ("cpu", gpu)]
    config = quiet(epochs=3, batch_size=25, shuffle=False)
    results = [loom.train(net, (x, y, weight), config) for net in nets]
    np.testing.assert_allclose(results[1].loss_history, results[0].loss_history, rtol=1e-3)
    # Batches that count for nothing are left out.
    assert [result.skipped_steps for result in results] == [6, 6]
    close(nets[1], nets[0])


def test_metrics_of_ones_own_and_validation_see_what_the_cpu_shows(gpu: str) -> None:
    def own(outputs: Any, targets: Any) -> float:
        return float((outputs.argmax(1) == targets).mean())

    config = quiet(epochs=3, batch_size=64, metrics=["accuracy", own], learning_rate=0.01)
    result = loom.train(mlp().to(gpu), blobs(), config, validation=blobs(rows=70, seed=1))
    assert result.metrics["own"] == pytest.approx(result.metrics["accuracy"])
    assert result.metrics["val_own"] == pytest.approx(result.metrics["val_accuracy"])
    assert result.metrics["val_accuracy"][-1] > 0.8


def test_data_may_come_in_batches(gpu: str) -> None:
    x, y = blobs()
    whole, one, many = (mlp().to(gpu) for _ in range(3))
    loom.train(whole, (x, y), quiet(batch_size=45, shuffle=False))
    loom.train(one, batches(45, x, y), quiet())
    loom.train(many, list(batches(45, x, y)), quiet())
    assert weights(one) == weights(whole) == weights(many)
    # Batches of several sizes, the later ones larger.
    uneven = [(x[:10], y[:10]), (x[10:150], y[10:150]), (x[150:], y[150:])]
    nets = [mlp().to(device) for device in ("cpu", gpu)]
    losses = [loom.train(net, uneven, quiet(epochs=3)).loss_history for net in nets]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)


def test_arrays_that_a_callback_changes_are_read_anew(gpu: str) -> None:
    histories = []
    for device in ("cpu", gpu):
        x, y = blobs()

        def change(epoch: int, logs: Any, x: Any = x) -> None:
            x *= 0.5

        hook = loom.LambdaCallback(on_epoch_end=change)
        net = mlp().to(device)
        histories.append(loom.train(net, (x, y), quiet(epochs=4), callbacks=[hook]).loss_history)
    np.testing.assert_allclose(histories[1], histories[0], rtol=1e-3)


def test_arrays_that_a_batch_hook_changes_are_read_anew_too(gpu: str) -> None:
    histories = []
    for device in ("cpu", gpu):
        x, y = blobs()

        def change(batch: int, logs: Any, x: Any = x) -> None:
            x *= 0.9

        hook = loom.LambdaCallback(on_train_batch_end=change)
        net = mlp().to(device)
        histories.append(loom.train(net, (x, y), quiet(epochs=2), callbacks=[hook]).loss_history)
    np.testing.assert_allclose(histories[1], histories[0], rtol=1e-3)


def test_examples_go_up_once_unless_a_callback_could_change_them(gpu: str) -> None:
    x, y = blobs(rows=3000)
    net = mlp().to(gpu)

    def bytes_up(*callbacks: loom.Callback) -> int:
        loom.reset_frame_statistics(gpu)
        loom.train(net, (x, y), quiet(epochs=5, batch_size=500), callbacks=list(callbacks))
        return loom.frame_statistics(gpu).bytes_up

    once = bytes_up()
    assert x.nbytes < once < 2.5 * x.nbytes
    assert bytes_up(loom.History()) < once + x.nbytes // 2
    assert bytes_up(loom.LambdaCallback(on_epoch_end=lambda *_: None)) > once + 3 * x.nbytes


# What goes wrong


def test_bad_steps_are_left_out_where_asked(gpu: str) -> None:
    x, y = blobs()
    x = x.copy()
    x[5, 2] = np.nan
    nets = [mlp().to(device) for device in ("cpu", gpu)]
    config = quiet(epochs=2, batch_size=50, on_nonfinite="skip")
    results = [loom.train(net, (x, y), config) for net in nets]
    assert [result.skipped_steps for result in results] == [2, 2]
    np.testing.assert_allclose(results[1].loss_history, results[0].loss_history, rtol=1e-3)
    close(nets[1], nets[0])


@pytest.mark.filterwarnings("ignore::loom.DoctorWarning")
def test_a_run_that_explodes_names_the_layer_and_keeps_the_weights(gpu: str) -> None:
    net = loom.Sequential([nn.Dense(4), nn.Dense(1)], input_shape=1).to(gpu)
    net[0, 0, 0, 0].weight = np.full((4, 1), 1e20)
    x = np.full((4, 1), 1e20, np.float32)
    before = weights(net)
    with pytest.raises(loom.NonFiniteError, match=r"cell \(0, 0, 0\), layer 0"):
        loom.train(net, (x, x), loom.TrainingConfig(verbose=False))
    assert weights(net) == before
    assert net.device == gpu


def test_a_run_that_diverges_in_a_frame_keeps_the_last_good_weights(gpu: str) -> None:
    x = np.full((4, 1), 10.0)
    config = loom.TrainingConfig(epochs=500, optimizer=loom.SGD(), learning_rate=10.0, verbose=False)
    left = []
    for callbacks in ([], [Losses()]):
        net = loom.Sequential([nn.Dense(4), nn.Dense(1)], input_shape=1).to(gpu)
        with pytest.raises(loom.NonFiniteError, match="lower the learning rate"):
            loom.train(net, (x, x), config, callbacks=callbacks)
        assert np.isfinite(np.frombuffer(weights(net), np.float32)).all()
        left.append((weights(net), engine_of(net).native.training_state()["step"]))
    assert left[0] == left[1]


def test_bad_data_changes_nothing(gpu: str) -> None:
    x, y = blobs()
    net = mlp()
    before = weights(net)
    for data, error in (
        ((x[:, :5], y), loom.ShapeError),
        ((x, y[:-1]), loom.DataError),
        ((x, y + 7), loom.LoomError),
    ):
        with pytest.raises(error):
            loom.train(net, data, quiet(device=gpu))
    assert weights(net) == before
    assert net.device == "cpu"


# Going on


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "rmsprop"])
def test_a_resumed_run_equals_one_that_never_stopped(gpu: str, tmp_path: Path, optimizer: str) -> None:
    settings: dict[str, Any] = {"optimizer": optimizer, "learning_rate": 0.02, "seed": 5, "device": gpu}
    whole = mlp()
    expected = loom.train(whole, blobs(), quiet(epochs=4, **settings))

    class Stop(loom.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_batch_end(self, batch: int, logs: Any = None) -> None:
            if (self.epoch, batch) == (1, 3):
                raise loom.StopTraining

    part = mlp()
    began = loom.train(part, blobs(), quiet(epochs=4, **settings), callbacks=[Stop()])
    part.save(tmp_path / "part.loom", optimizer=True)
    resumed = loom.load(tmp_path / "part.loom")
    rest = loom.train(resumed, blobs(), quiet(epochs=4, **settings), resume=True)
    assert weights(resumed) == weights(whole)
    np.testing.assert_allclose(began.loss_history + rest.loss_history, expected.loss_history, rtol=1e-6)


def test_training_goes_on_from_device_to_device(gpu: str) -> None:
    def run(*devices: str) -> tuple[loom.Network, list[float]]:
        net, history = mlp(), []
        for epochs, device in enumerate(devices, 1):
            config = quiet(epochs=epochs, learning_rate=0.01, device=device)
            history += loom.train(net, blobs(), config, resume=True).loss_history
        return net, history

    expected, losses = run("cpu", "cpu", "cpu", "cpu")
    for devices in ((gpu, "cpu", gpu, "cpu"), ("cpu", gpu, gpu, "cpu")):
        net, found = run(*devices)
        np.testing.assert_allclose(found, losses, rtol=1e-3)
        close(net, expected)


def test_a_network_may_move_in_the_middle_of_training(gpu: str) -> None:
    class Move(loom.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.network.to(gpu if epoch % 2 else "cpu")

    net, alone = mlp(), mlp()
    result = loom.train(net, blobs(), quiet(epochs=4, device="cpu"), callbacks=[Move()])
    expected = loom.train(alone, blobs(), quiet(epochs=4, device="cpu"))
    assert result.device == net.device == gpu
    np.testing.assert_allclose(result.loss_history, expected.loss_history, rtol=1e-3)


def test_callbacks_see_the_newest_weights(gpu: str, tmp_path: Path) -> None:
    seen: list[bytes] = []
    checkpoint = loom.ModelCheckpoint(tmp_path / "net-{epoch}.loom")
    hook = loom.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(weights(net)))
    net = mlp().to(gpu)
    loom.train(net, blobs(), quiet(epochs=3), callbacks=[hook, checkpoint])
    assert len(set(seen)) == 3
    assert seen[-1] == weights(net)
    assert checkpoint.last_path is not None
    assert weights(loom.load(checkpoint.last_path)) == seen[-1]


def test_a_callback_may_freeze_layers(gpu: str) -> None:
    fixed: list[Any] = []

    class Freeze(loom.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.network[0, 0, 0, 0].trainable = epoch == 0
            fixed.append(self.network[0, 0, 0, 0].weight)

    net = mlp().to(gpu)
    loom.train(net, blobs(), quiet(epochs=3), callbacks=[Freeze()])
    assert not np.array_equal(fixed[0], fixed[1])
    np.testing.assert_array_equal(fixed[1], net[0, 0, 0, 0].weight)


def test_early_stopping_restores_weights(gpu: str) -> None:
    stopping = loom.EarlyStopping(monitor="val_loss", patience=2, restore_best_weights=True)
    held_out = (blobs(rows=100, seed=3)[0], np.random.default_rng(0).integers(0, 3, 100))
    config = quiet(epochs=200, learning_rate=0.05, early_stopping=stopping, device=gpu)
    net = mlp()
    result = loom.train(net, blobs(rows=30), config, validation=held_out)
    assert result.stop_reason == "stopped"
    assert net.evaluate(held_out)["loss"] == pytest.approx(min(result.metrics["val_loss"]), rel=1e-5)


def test_observers_see_every_step(gpu: str) -> None:
    recorders = []
    for device in ("cpu", gpu):
        net = mlp().to(device)
        recorder = loom.observers.Recorder()
        net.observe(recorder)
        loom.train(net, blobs(), quiet(epochs=2, batch_size=100))
        recorders.append(recorder)
    assert len(recorders[1]) == 6
    for ours, theirs in zip(recorders[1].records, recorders[0].records, strict=True):
        for layer, expected in zip(ours, theirs, strict=True):
            assert (layer.path, layer.shape) == (expected.path, expected.shape)
            assert layer.mean == pytest.approx(expected.mean, rel=1e-3, abs=1e-5)
            assert layer.std == pytest.approx(expected.std, rel=1e-3, abs=1e-5)
            assert layer.zeros == pytest.approx(expected.zeros, abs=1e-3)


def test_step_times_are_kept_where_asked(gpu: str) -> None:
    result = loom.train(mlp(), blobs(), quiet(epochs=2, batch_size=50, track_perf=True, device=gpu))
    assert len(result.step_times) == 12
    assert all(seconds > 0 for seconds in result.step_times)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "uint8", "int32", "q8_0"])
def test_training_goes_through_packed_weights(gpu: str, dtype: str) -> None:
    nets = [mlp().morph(dtype).to(device) for device in ("cpu", gpu)]
    config = quiet(epochs=12, learning_rate=0.01, metrics=["accuracy"])
    results = [loom.train(net, blobs(), config) for net in nets]
    assert results[1].metrics["accuracy"][-1] > 0.95
    np.testing.assert_allclose(results[1].loss_history[:3], results[0].loss_history[:3], rtol=0.02)
    assert nets[1].evaluate(blobs(seed=1))["accuracy"] > 0.95
    # What is computed from is the newest master, packed.
    layer = nets[1][0, 0, 1, 0]
    assert layer.dtype == dtype
    here = nets[1].predict(blobs(seed=1)[0])
    np.testing.assert_allclose(nets[1].to("cpu").predict(blobs(seed=1)[0]), here, rtol=1e-3, atol=1e-4)


# The step-by-step trainer


def test_the_trainer_steps_on_the_gpu(gpu: str) -> None:
    x, y = blobs()
    net, other = mlp(), mlp()
    config = quiet(batch_size=60, shuffle=False, device=gpu)
    loom.train(net, (x, y), config)
    trainer = loom.Trainer(other, config)
    assert other.device == gpu
    found = [trainer.step(x[s : s + 60], y[s : s + 60]) for s in range(0, 300, 60)]
    assert weights(net) == weights(other)
    assert found[-1] < found[0]
    # It follows the network, and goes on where it was.
    other.to("cpu")
    assert trainer.step(x, y) < found[0]
    assert other.to(gpu).device == gpu
    assert np.isfinite(trainer.step(x, y))


# In processes of their own


PROGRAM = """
import hashlib, json
import numpy as np
import loom
from loom import nn

random = np.random.default_rng(0)
x, y = random.normal(size=(96, 3, 9, 7)).astype(np.float32), random.integers(0, 5, 96)
net = loom.Sequential(
    [nn.Conv2D(5, 3, padding=1, activation="relu"), nn.MaxPool2D(2), nn.Flatten(), nn.Dropout(0.2),
     nn.Dense(19, activation="gelu"), nn.Dense(5)], input_shape=(3, 9, 7))
config = loom.TrainingConfig(epochs=3, batch_size=20, loss="cross_entropy", gradient_clip=1.0, device="gpu",
                             verbose=False)
result = loom.train(net, (x, y), config)
digest = hashlib.sha256(b"".join(values.tobytes() for values in net.state_dict().values())).hexdigest()
print(json.dumps([result.loss_history, digest, net.predict(x).sum().item()]))
"""


def test_checked_kernels_and_other_processes_give_the_same_bits(gpu: str) -> None:
    assert gpu
    expected = answer(PROGRAM)
    assert answer(PROGRAM) == expected
    assert answer(PROGRAM, LOOM_GPU_CHECKED="1") == expected


INTERRUPTED = """
import json, sys
import numpy as np
import loom
from loom import nn
from loom.engine import engine_of

random = np.random.default_rng(0)
x, y = random.normal(size=(4000, 32)).astype(np.float32), random.integers(0, 4, 4000)

class Announce(loom.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            print("go", flush=True)

net = loom.Sequential([nn.Dense(32, activation="relu"), nn.Dense(4)], input_shape=32).to("gpu")
config = loom.TrainingConfig(epochs=1_000_000, batch_size=100, loss="cross_entropy", verbose=False)
result = loom.train(net, (x, y), config, callbacks=[Announce()])
state = engine_of(net).native.training_state()
same = loom.Sequential([nn.Dense(32, activation="relu"), nn.Dense(4)], input_shape=32).to("gpu")
class Stop(loom.Callback):
    def on_batch_end(self, batch, logs=None):
        if engine_of(self.network).native.training_state()["step"] == state["step"]:
            raise loom.StopTraining
loom.train(same, (x, y), config, callbacks=[Stop()])
equal = all(np.array_equal(a, b) for a, b in zip(net.state_dict().values(), same.state_dict().values()))
print(json.dumps([result.stop_reason, net.device, equal]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_keeps_what_was_learned(gpu: str) -> None:
    assert answer_when_interrupted(INTERRUPTED, seconds=0.3) == ["interrupted", gpu, True]
