"""Callbacks that average, count, stop and write; and Python's own logs."""

from __future__ import annotations

import csv
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from named_outputs import samples, three_heads

RNG = np.random.default_rng(0)
X = RNG.normal(size=(96, 4))
Y = np.argmax(X[:, :3], axis=1)


def config(**settings: object) -> loom.TrainingConfig:
    return loom.TrainingConfig(**{"loss": "cross_entropy", "verbose": False, **settings})  # type: ignore[arg-type]


def network(*more: nn.Layer) -> loom.Network:
    return loom.Sequential([nn.Dense(8, activation="relu"), *more, nn.Dense(3)], input_shape=4, seed=1)


# The average of the weights


def test_the_average_is_that_of_the_steps() -> None:
    net, seen = network(), []
    average = loom.ExponentialMovingAverage(decay=0.8, every=2)
    watcher = loom.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(net.state_dict()))
    loom.train(net, (X, Y), config(epochs=4), callbacks=[average, watcher])
    assert len(seen) == 12
    for name in seen[0]:
        expected = np.zeros_like(seen[0][name], dtype=np.float64)
        for step, state in enumerate(seen[1::2]):
            factor = min(0.8, step / (step + 1))
            expected = factor * expected + (1 - factor) * state[name]
        np.testing.assert_allclose(average.weights[name], expected, rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(net.state_dict()[name], average.weights[name])


def test_validation_measures_the_average_and_training_goes_on_without() -> None:
    plain, averaged, kept = network(), network(), network()
    measured: list[float] = []
    watcher = loom.LambdaCallback(
        on_test_begin=lambda logs: measured.append(averaged.evaluate((X, Y), loss="cross_entropy")["loss"])
    )
    settings = config(epochs=3)
    one = loom.train(plain, (X, Y), settings, validation=(X, Y))
    average = loom.ExponentialMovingAverage(0.9)
    two = loom.train(averaged, (X, Y), settings, validation=(X, Y), callbacks=[average, watcher])
    assert two.loss_history == one.loss_history
    assert two.metrics["val_loss"] == pytest.approx(measured, rel=1e-6)
    assert two.metrics["val_loss"] != one.metrics["val_loss"]
    callbacks = [loom.ExponentialMovingAverage(0.9, validates=False, keeps=False)]
    three = loom.train(kept, (X, Y), settings, validation=(X, Y), callbacks=callbacks)
    assert three.metrics["val_loss"] == one.metrics["val_loss"]
    assert kept.fingerprint() == plain.fingerprint() != averaged.fingerprint()


@pytest.mark.parametrize("through_file", [False, True])
def test_a_resumed_run_goes_on_from_the_weights_themselves(tmp_path: Path, through_file: bool) -> None:
    whole, parts = network(), network()
    settings = {"learning_rate": 0.01}
    average = loom.ExponentialMovingAverage(0.9)
    loom.train(whole, (X, Y), config(epochs=4, **settings), callbacks=[average])
    first = loom.ExponentialMovingAverage(0.9)
    loom.train(parts, (X, Y), config(epochs=2, **settings), callbacks=[first])
    if through_file:
        parts.save(tmp_path / "net.loom", optimizer=True)
        parts = loom.load(tmp_path / "net.loom")
    second = loom.ExponentialMovingAverage(0.9)
    loom.train(parts, (X, Y), config(epochs=4, **settings), callbacks=[second], resume=True)
    assert parts.fingerprint() == whole.fingerprint()
    assert repr(second) == repr(average)


# Stopping


def test_losses_that_are_not_finite_end_the_run() -> None:
    net = network()
    x = X.copy()
    x[40:] *= 1e30
    settings = config(
        epochs=3, on_nonfinite="skip", shuffle=False, batch_size=32, ignore_findings="all", learning_rate=1e30
    )
    result = loom.train(net, (x, Y), settings, callbacks=[loom.TerminateOnNaN()])
    assert result.stop_reason == "stopped"
    assert re.search(r"the loss of batch \d is not finite", result.message)
    patient = loom.train(network(), (x, Y), settings, callbacks=[loom.TerminateOnNaN(patience=99)])
    assert patient.stop_reason == "finished"
    calm = loom.train(network(), (X, Y), config(), callbacks=[loom.TerminateOnNaN()])
    assert calm.stop_reason == "finished"


def test_steps_in_which_no_sample_counts_end_no_run() -> None:
    weight = np.ones(len(X))
    weight[16:32] = 0.0
    settings = config(epochs=2, batch_size=16, shuffle=False)
    result = loom.train(network(), (X, Y, weight), settings, callbacks=[loom.TerminateOnNaN()])
    assert result.stop_reason == "finished"
    assert result.skipped_steps == 2
    assert np.isfinite(result.loss_history).all()


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("extra", [{}, {"shards": 2}, {"accumulate": 2}], ids=str)
def test_a_step_in_which_nothing_counts_has_a_loss_of_0(device: str, extra: Any, request: Any) -> None:
    chosen = "cpu" if device == "cpu" else request.getfixturevalue("gpu")
    weight = np.ones(len(X))
    weight[:32] = 0.0
    settings = config(
        epochs=2, batch_size=16, shuffle=False, on_nonfinite="skip", device=chosen, metrics=["r2"], **extra
    )
    seen: list[float] = []
    watcher = loom.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(logs["loss"]))
    result = loom.train(network(), (X, Y, weight), settings, callbacks=[loom.TerminateOnNaN(), watcher])
    assert result.stop_reason == "finished"
    idle = 1 if extra == {"accumulate": 2} else 2
    assert result.skipped_steps == 2 * idle
    half = len(seen) // 2
    assert seen[:idle] == seen[half : half + idle] == [0.0] * idle
    assert all(loss > 0 for loss in seen[idle:half])
    assert np.isfinite(result.loss_history).all()


def test_what_mixed_precision_leaves_out_to_find_its_scale_has_its_loss(gpu: str) -> None:
    """Gradients at the first scales are too large for 16 bits; the loss is not."""
    net = loom.Sequential([nn.Dense(4)], input_shape=3, precision="mixed", seed=1)
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0.5, 1, (16, 3)), -1e4 * rng.uniform(0.5, 1, (16, 4))
    seen: list[float] = []
    watcher = loom.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(logs["loss"]))
    settings = loom.TrainingConfig(
        epochs=3,
        batch_size=16,
        loss="mse",
        on_nonfinite="skip",
        device=gpu,
        verbose=False,
        learning_rate=0.0,
        optimizer="sgd",
        ignore_findings="all",
    )
    expected = ((net.predict(x) - y) ** 2).mean()
    result = loom.train(net, (x, y), settings, callbacks=[loom.TerminateOnNaN(), watcher])
    assert result.stop_reason == "finished"
    assert result.skipped_steps > 0
    assert seen == pytest.approx([expected] * 3, rel=1e-2)


@pytest.mark.parametrize("filed", [False, True])
def test_what_bears_losses_goes_on_to_count(filed: bool, tmp_path: Path) -> None:
    x = X.copy()
    x[:] *= 1e30
    settings = config(
        epochs=3, on_nonfinite="skip", shuffle=False, batch_size=32, ignore_findings="all", learning_rate=1e30
    )
    whole = loom.train(network(), (x, Y), settings, callbacks=[loom.TerminateOnNaN(patience=3)])
    net, steps = network(), []

    def stop(batch: int, logs: Any) -> None:
        steps.append(batch)
        if len(steps) == 2:
            raise loom.StopTraining

    stops = loom.LambdaCallback(on_train_batch_end=stop)
    loom.train(net, (x, Y), settings, callbacks=[stops, loom.TerminateOnNaN(patience=3)])
    if filed:
        net.save(tmp_path / "two.loom", optimizer=True)
        net = loom.load(tmp_path / "two.loom")
    rest = loom.train(net, (x, Y), settings, callbacks=[loom.TerminateOnNaN(patience=3)], resume=True)
    assert (rest.stop_reason, rest.message) == (whole.stop_reason, whole.message)
    assert whole.stop_reason == "stopped"


# Histograms


@pytest.mark.parametrize("filed", [False, True])
def test_histograms_go_on_within_an_epoch(filed: bool, tmp_path: Path) -> None:
    whole, net, steps = loom.WeightHistograms(bins=4), network(), []
    loom.train(network(), (X, Y), config(epochs=3), callbacks=[whole])

    def stop(batch: int, logs: Any) -> None:
        steps.append(batch)
        if batch == 1 and steps.count(1) == 2:
            raise loom.StopTraining

    first = [loom.WeightHistograms(bins=4), loom.LambdaCallback(on_train_batch_end=stop)]
    assert loom.train(net, (X, Y), config(epochs=3), callbacks=first).stop_reason == "stopped"
    if filed:
        net.save(tmp_path / "within.loom", optimizer=True)
        net = loom.load(tmp_path / "within.loom")
    rest = loom.WeightHistograms(bins=4)
    loom.train(net, (X, Y), config(epochs=3), callbacks=[rest], resume=True)
    for part in ("weights", "changes"):
        for name, entries in getattr(whole, part).items():
            found = getattr(rest, part)[name]
            assert [each.epoch for each in found] == [0, 1, 2]
            for mine, other in zip(found, entries, strict=True):
                assert mine.norm == other.norm
                np.testing.assert_array_equal(mine.counts, other.counts)
                np.testing.assert_array_equal(mine.edges, other.edges)


def test_histograms_of_weights_changes_and_gradients(tmp_path: Path) -> None:
    net = network(nn.BatchNorm())
    watcher = loom.WeightHistograms(sample=(X[:20], Y[:20]), frequency=2, bins=10)
    states = [net.state_dict()]
    plain = network(nn.BatchNorm())
    keep = loom.LambdaCallback(on_epoch_end=lambda epoch, logs: states.append(net.state_dict()))
    loom.train(net, (X, Y), config(epochs=4), callbacks=[watcher, keep])
    loom.train(plain, (X, Y), config(epochs=4))
    assert plain.fingerprint() == net.fingerprint()
    name = "0.0.0.0.weight"
    assert [entry.epoch for entry in watcher.weights[name]] == [1, 3]
    newest, states = watcher.weights[name][-1], [state[name].astype(np.float64) for state in states]
    np.testing.assert_array_equal(newest.counts, np.histogram(states[-1], 10)[0])
    assert newest.norm == pytest.approx(np.linalg.norm(states[-1]))
    assert watcher.changes[name][-1].norm == pytest.approx(np.linalg.norm(states[4] - states[2]), rel=1e-5)
    # The manual loop gives the same gradients.
    output = net.forward(X[:20], training=False)
    net.backward(loom.losses.cross_entropy(output, Y[:20])[1])
    found = watcher.gradients[name][-1]
    assert found.norm == pytest.approx(np.linalg.norm(net.layers[0].gradients["weight"]), rel=1e-4)
    for of in ("weights", "changes", "gradients"):
        watcher.plot(name, of, tmp_path / f"{of}.svg")
        watcher.plot(name, of, tmp_path / f"{of}.png")
    with pytest.raises(loom.DataError, match="Kept: "):
        watcher.plot("0.0.0.9.weight")
    with pytest.raises(loom.ConfigError, match="weights, changes"):
        watcher.plot(name, "biases")


def test_histograms_of_gradients_of_outputs_with_names() -> None:
    net, held = three_heads(), samples()
    losses = {"kind": "cross_entropy", "age": "mse", "place": "huber"}
    watcher = loom.WeightHistograms(sample=held)
    settings = config(loss=losses, loss_weights={"age": 0.3}, device="cpu")
    loom.train(net, held, settings, callbacks=[watcher])
    before = net.state_dict()
    # A step of gradient descent by all samples goes by their gradient.
    loom.train(net, held, replace(settings, batch_size=len(held[0]), optimizer="sgd", learning_rate=1.0))
    for name, values in net.state_dict().items():
        norm = watcher.gradients[name][-1].norm
        assert norm == pytest.approx(np.linalg.norm(before[name] - values), rel=1e-9), name


@pytest.mark.parametrize("values", [[1.0, 1.0 + 2e-16], [3e7, 3e7], [0.0, 5e-324], [1e30, 1e30]])
def test_histograms_of_what_hardly_differs(values: list[float]) -> None:
    net = loom.Sequential([nn.Dense(1, bias=False)], input_shape=2, precision="float64")
    net.layers[0].weight = np.array([values])
    watcher = loom.WeightHistograms()
    still = config(epochs=1, learning_rate=0.0, loss="mse", optimizer="sgd")
    loom.train(net, (np.zeros((4, 2)), np.zeros((4, 1))), still, callbacks=[watcher])
    for kept in (watcher.weights, watcher.changes):
        (entry,) = kept["0.0.0.0.weight"]
        assert entry.counts.sum() == 2
        assert (np.diff(entry.edges) > 0).all()


# Files


def test_csv_with_pace_and_names_with_commas(tmp_path: Path) -> None:
    def near(outputs: np.ndarray, targets: np.ndarray) -> float:
        return float(len(outputs))

    near.__name__ = "near, in words"
    path = tmp_path / "log.csv"
    settings = config(epochs=2, metrics=[near], learning_rate=0.25)
    net = network()
    loom.train(net, (X, Y), settings, callbacks=[loom.CSVLogger(path, pace=True)])
    loom.train(
        net,
        (X, Y),
        config(epochs=3, metrics=[near], learning_rate=0.25),
        resume=True,
        callbacks=[loom.CSVLogger(path, pace=True)],
    )
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["0", "1", "2"]
    assert {row["near, in words"] for row in rows} == {"96.0"}
    assert {row["learning_rate"] for row in rows} == {"0.25"}
    assert all(float(row["samples_per_second"]) > 0 for row in rows)


@pytest.fixture
def listened(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, logger="loom"):
        yield caplog


def test_pythons_logs_tell_of_training(listened: pytest.LogCaptureFixture) -> None:
    loom.train(network(), (X, Y), config(epochs=2, learning_rate=0.25), validation=(X, Y))
    lines = [record.getMessage() for record in listened.records]
    assert len(lines) == 4
    assert lines[0] == "training begins: epochs 2, batch_size 32, device cpu"
    pattern = r"epoch 1/2: loss \S+  val_loss \S+  learning_rate 0\.2500  samples_per_second \S+"
    assert re.fullmatch(pattern, lines[1])
    assert lines[3] == "training ends after 2 epochs"
    assert {record.name for record in listened.records} == {"loom"}


def test_nobody_who_does_not_listen_hears(capfd: pytest.CaptureFixture[str]) -> None:
    loom.train(network(), (X, Y), config())
    assert capfd.readouterr() == ("", "")


def test_tensorboard_reads_what_is_written(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    from tensorboardX.event_file_writer import EventFileWriter  # noqa: F401 - it is the package meant
    from tensorboardX.proto.event_pb2 import Event

    def events() -> dict[str, list[tuple[int, float]]]:
        found: dict[str, list[tuple[int, float]]] = {}
        for file in sorted(tmp_path.glob("run/events*")):
            data, place = file.read_bytes(), 0
            while place < len(data):
                # A record: its length, a checksum of that, the event, a checksum.
                length = int.from_bytes(data[place : place + 8], "little")
                event = Event.FromString(data[place + 12 : place + 12 + length])
                place += 16 + length
                for value in event.summary.value:
                    found.setdefault(value.tag, []).append((event.step, value.simple_value))
        return found

    net = network()
    board = loom.TensorBoard(tmp_path / "run", histograms=True, batches=2)
    result = loom.train(
        net, (X, Y), config(epochs=2, learning_rate=0.25), validation=(X, Y), callbacks=[board]
    )
    found = events()
    assert [step for step, _ in found["epoch/loss"]] == [1, 2]
    np.testing.assert_allclose([loss for _, loss in found["epoch/loss"]], result.loss_history, rtol=1e-6)
    assert {"epoch/val_loss", "pace/learning_rate", "pace/samples_per_second", "0/0/0/0/weight"} <= set(found)
    assert [step for step, _ in found["batch/loss"]] == [2, 4, 6]
    assert any("network" in tag for tag in found)
    more = loom.TensorBoard(tmp_path / "run", batches=2)
    loom.train(net, (X, Y), config(epochs=3, learning_rate=0.25), resume=True, callbacks=[more])
    assert [step for step, _ in events()["epoch/loss"]] == [1, 2, 3]
    assert [step for step, _ in events()["batch/loss"]] == [2, 4, 6, 8]


def graph_of(
    net: loom.Network, data: Any, folder: Path, **settings: Any
) -> dict[str, tuple[str, list[str], list[int]]]:
    """Trains with TensorBoard; of every node of the graph that it finds: kind, sources, extents."""
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.graph_pb2 import GraphDef

    loom.train(
        net,
        data,
        config(epochs=1, device="cpu", **settings),
        callbacks=[loom.TensorBoard(folder)],
    )
    found = {}
    (file,) = folder.glob("events*")
    data, place = file.read_bytes(), 0
    while place < len(data):
        length = int.from_bytes(data[place : place + 8], "little")
        event = Event.FromString(data[place + 12 : place + 12 + length])
        place += 16 + length
        if event.graph_def:
            for node in GraphDef.FromString(event.graph_def).node:
                (told,) = node.attr["_output_shapes"].list.shape
                found[node.name] = (node.op, list(node.input), [extent.size for extent in told.dim])
    return found


def test_tensorboard_draws_the_network(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    branches = [nn.Dense(4), [nn.Dense(5), nn.Dense(6)]]
    net = loom.Network(4, grid=(1, 1, 3), seed=1)
    net[0, 0, 0].add(nn.Residual([nn.Dense(4)]), nn.Parallel(branches, combine="concat"))
    net[0, 0, 2].add(nn.Dense(3))
    net.link((0, 0, 0), (0, 0, 2), combine="concat")
    found = graph_of(net, (RNG.normal(size=(6, 4)), np.arange(6) % 3), tmp_path / "grid")
    skip, both = "0_0_0/0_residual", "0_0_0/1_parallel"
    assert found["input"] == ("input", [], [-1, 4])
    assert found[f"{skip}/layers/0_dense"] == ("dense", ["input"], [-1, 4])
    assert found[f"{skip}/add"] == ("residual", ["input", f"{skip}/layers/0_dense"], [-1, 4])
    assert found[f"{both}/branches_0/0_dense"] == ("dense", [f"{skip}/add"], [-1, 4])
    assert found[f"{both}/branches_1/1_dense"] == ("dense", [f"{both}/branches_1/0_dense"], [-1, 6])
    ends = [f"{both}/branches_0/0_dense", f"{both}/branches_1/1_dense"]
    assert found[f"{both}/concat"] == ("parallel", ends, [-1, 10])
    assert found["0_0_2/0_dense"] == ("dense", [f"{both}/concat"], [-1, 3])
    assert found["output"] == ("output", ["0_0_2/0_dense"], [-1, 3])
    assert all(source in found for _, sources, _ in found.values() for source in sources)


def test_tensorboard_draws_inputs_and_outputs_by_name(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    net = loom.Network(inputs={"size": 2, "weight": 3, "color": loom.Categories(5)}, grid=(1, 3), seed=1)
    net.enter("weight", (0, 0))[0, 0].add(nn.Dense(4))
    net.enter("color", (0, 1))[0, 1].add(nn.Embedding(5, 4), nn.Flatten())
    net.link((0, 0), (0, 2), combine="concat")[0, 2].add(nn.Dense(3))
    net.output("kind", (0, 2)).output("color", (0, 0))
    x = {"size": RNG.normal(size=(6, 2)), "weight": RNG.normal(size=(6, 3)), "color": np.arange(6) % 5}
    y = {"kind": np.arange(6) % 3, "color": RNG.normal(size=(6, 4))}
    found = graph_of(net, (x, y), tmp_path, loss={"kind": "cross_entropy", "color": "mse"})
    assert found["0_0_0/0_dense"] == ("dense", ["size", "weight"], [-1, 4])
    assert found["0_0_1/0_embedding"][1] == ["color"]
    assert found["0_0_2/0_dense"] == ("dense", ["0_0_1/1_flatten", "0_0_0/0_dense"], [-1, 3])
    assert found["output/kind"] == ("output", ["0_0_2/0_dense"], [-1, 3])
    assert found["output/color"] == ("output", ["0_0_0/0_dense"], [-1, 4])


def test_tensorboard_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with pytest.raises(loom.MissingExtraError, match=r"loom-nn\[tensorboard\]"):
        loom.train(network(), (X, Y), config(), callbacks=[loom.TensorBoard(tmp_path)])


@pytest.mark.parametrize(
    "make",
    [
        lambda: loom.ExponentialMovingAverage(decay=1.0),
        lambda: loom.ExponentialMovingAverage(every=0),
        lambda: loom.TerminateOnNaN(patience=-1),
        lambda: loom.WeightHistograms(bins=0),
        lambda: loom.WeightHistograms(sample=(X,)),
        lambda: loom.TensorBoard("run", batches=0),
        lambda: loom.CSVLogger("log.csv", pace="yes"),
    ],
)
def test_settings_out_of_range_are_refused(make: object) -> None:
    with pytest.raises(loom.ConfigError):
        make()  # type: ignore[operator]
