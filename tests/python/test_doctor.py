"""Every finding of `loom.doctor` is found where it is, and sound trainings hear nothing."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loom
from loom import nn

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 4))
Y = np.argmax(X[:, :3] + 0.1 * RNG.normal(size=(240, 3)), axis=1)


def config(**settings: object) -> loom.TrainingConfig:
    return loom.TrainingConfig(**{"loss": "cross_entropy", "verbose": False, **settings})  # type: ignore[arg-type]


def network(*layers: nn.Layer, inputs: int = 4) -> loom.Network:
    return loom.Sequential(layers, input_shape=inputs)


def sound() -> loom.Network:
    return network(nn.Dense(16, activation="relu"), nn.Dense(3))


def test_a_sound_training_has_no_findings() -> None:
    report = loom.doctor(sound(), (X, Y), config(validation_split=0.2))
    assert not report
    assert report.healthy
    assert str(report) == "loom.doctor: nothing found"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loom.train(sound(), (X, Y), config(validation_split=0.2))


def test_training_warns_once_where_it_was_called() -> None:
    net = network(nn.Dense(3, activation="sigmoid"))
    with pytest.warns(loom.DoctorWarning, match="^sigmoid-before-loss") as told:
        loom.train(net, (X, Y), config(epochs=3))
    assert len(told) == 1
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loom.train(net, (X, Y), config(ignore_findings="sigmoid-before-loss"))
        loom.train(net, (X, Y), config(ignore_findings="all"))
        warnings.filterwarnings("ignore", "sigmoid-before-loss", loom.DoctorWarning)
        loom.train(net, (X, Y), config())


def test_dice_takes_the_sigmoid_by_itself() -> None:
    images = RNG.normal(size=(20, 1, 4, 4))
    net = loom.Sequential([nn.Conv2D(1, 1, activation="sigmoid")], input_shape=(1, 4, 4), seed=0)
    report = loom.doctor(net, (images, (images > 0) * 1.0), config(loss="dice"))
    assert "sigmoid-before-loss" in report.names


def relu(*units: int) -> list[nn.Layer]:
    return [nn.Dense(count, activation="relu") for count in units]


TABLE = RNG.normal(size=(240, 4))
TARGET = TABLE @ [1.0, -2.0, 0.5, 1.0]


def with_nan() -> np.ndarray:
    x = X.copy()
    x[3, 1] = np.nan
    return x


# What provokes each finding: the layers, the data, the settings.
CASES = {
    "softmax-before-loss": ([nn.Dense(3), nn.Softmax(), nn.Flatten()], (X, Y), {}),
    "sigmoid-before-loss": (
        [nn.Dense(1, activation="sigmoid")],
        (X, Y % 2 * 1.0),
        {"loss": "binary_cross_entropy"},
    ),
    "relu-before-loss": (relu(16, 3), (X, Y), {}),
    "bounded-logits": ([*relu(16), nn.Dense(3, activation="tanh")], (X, Y), {}),
    "logits-with-nll": ([nn.Dense(3)], (X, Y), {"loss": "nll"}),
    "channels-last": (
        [nn.Conv2D(2, kernel_size=3, padding="same"), nn.Flatten(), nn.Dense(3)],
        (RNG.normal(size=(240, 16, 16, 3)), Y),
        {},
    ),
    "steps-for-channels": (
        [nn.Conv1D(4, kernel_size=3), nn.LSTM(4), nn.Dense(3)],
        (RNG.normal(size=(240, 4, 8)), Y),
        {},
    ),
    "batchnorm-momentum": ([*relu(16), nn.BatchNorm(momentum=0.9), nn.Dense(3)], (X, Y), {}),
    "accuracy-of-measurements": (
        [*relu(16), nn.Dense(1)],
        (TABLE, TARGET),
        {"loss": "mse", "metrics": ["accuracy"]},
    ),
    "one-class-output": ([nn.Dense(1)], (X, 0 * Y), {}),
    "targets-out-of-reach": (relu(16, 1), (TABLE, TARGET), {"loss": "mse"}),
    "unscaled-inputs": ([*relu(16), nn.Dense(3)], (X * 100, Y), {}),
    "columns-of-different-scales": ([*relu(16), nn.Dense(3)], (X * [1, 1, 1, 1e-3], Y), {}),
    "constant-input": ([*relu(16), nn.Dense(3)], (0 * X + 1, Y), {}),
    "constant-columns": ([*relu(16), nn.Dense(3)], (X * [1, 1, 1, 0], Y), {}),
    "duplicate-columns": ([*relu(16), nn.Dense(3)], (X[:, [0, 1, 2, 0]], Y), {}),
    "unscaled-targets": ([*relu(16), nn.Dense(1)], (TABLE, 1000 * TARGET), {"loss": "mse"}),
    "not-finite": ([*relu(16), nn.Dense(3)], (with_nan(), Y), {}),
    "labels-out-of-range": ([*relu(16), nn.Dense(3)], (X, Y + 1), {}),
    "output-wider-than-classes": ([*relu(16), nn.Dense(5)], (X, Y), {}),
    "class-imbalance": ([*relu(16), nn.Dense(2)], (X, (np.arange(240) % 20 == 3).astype(int)), {}),
    "classes-missing-in-training": (
        [*relu(16), nn.Dense(3)],
        (X, np.where(np.arange(240) < 200, Y % 2, 2)),
        {"validation_split": 0.2},
    ),
    "classes-missing-in-validation": (
        [*relu(16), nn.Dense(3)],
        (X, np.where(np.arange(240) < 150, Y, Y % 2)),
        {"validation_split": 0.3},
    ),
    "sorted-labels": ([*relu(16), nn.Dense(3)], (X, np.sort(Y)), {"validation_split": 0.2}),
    "class-labels-with-mse": ([*relu(16), nn.Dense(1)], (X, Y), {"loss": "mse"}),
    "zeros-with-hinge": ([*relu(16), nn.Dense(1)], (X, Y % 2 * 1.0), {"loss": "hinge"}),
    "regression-targets-with-cross-entropy": ([*relu(16), nn.Dense(3)], (TABLE, TARGET), {}),
    "validation-overlap": (
        [*relu(16), nn.Dense(3)],
        (np.concatenate([X, X[:40]]), np.concatenate([Y, Y[:40]])),
        {"validation_split": 0.2},
    ),
    "batch-larger-than-data": ([*relu(16), nn.Dense(3)], (X, Y), {"batch_size": 500}),
    "batchnorm-batch-of-one": ([*relu(16), nn.BatchNorm(), nn.Dense(3)], (X, Y), {"batch_size": 1}),
    "last-batch-of-one": ([*relu(16), nn.BatchNorm(), nn.Dense(3)], (X[:193], Y[:193]), {}),
    "training-refuses": ([*relu(16), nn.Dense(3)], (TABLE, TARGET), {"loss": "mse"}),
    "start-loss": ([*relu(16), nn.Dense(3), nn.Scale(100.0)], (X, Y), {}),
    "dead-units": (
        [nn.Dense(16, activation="relu", bias_initializer=loom.initializers.Constant(-9.0)), nn.Dense(3)],
        (X, Y),
        {},
    ),
    "saturated-units": (
        [
            nn.Dense(16, activation="tanh", bias_initializer=loom.initializers.Constant(9.0)),
            nn.Dense(3),
        ],
        (X, Y),
        {},
    ),
    "vanishing-gradients": (
        [*(nn.Dense(16, activation="sigmoid") for _ in range(9)), nn.Dense(3)],
        (X, Y),
        {},
    ),
    "exploding-gradients": ([nn.Dense(16), nn.Scale(1e4), nn.Dense(3)], (X, Y), {}),
    "learning-rate-explodes": (
        [*relu(16), nn.Dense(1)],
        (TABLE, TARGET),
        {"loss": "mse", "learning_rate": 5.0, "optimizer": "sgd"},
    ),
    "learning-rate-too-low": ([*relu(16), nn.Dense(3)], (X, Y), {"learning_rate": 1e-9}),
}


@pytest.mark.parametrize("name", CASES)
def test_each_finding_is_found(name: str) -> None:
    layers, data, settings = CASES[name]
    net = loom.Sequential(layers, input_shape=np.shape(data[0])[1:])
    before = net.build().to_bytes(optimizer=True)
    report = loom.doctor(net, data, config(**settings))
    assert name in report.names, report
    found = report[name]
    assert found.severity in ("error", "warning", "hint")
    assert found.seen.endswith(".")
    assert found.remedy.endswith(".")
    assert name not in loom.doctor(net, data, config(**settings), ignore=[name]).names
    assert net.to_bytes(optimizer=True) == before
    assert report.healthy == all(entry.severity == "hint" for entry in report)


def test_everything_frozen_is_found() -> None:
    net = sound().freeze()
    assert loom.doctor(net, (X, Y), config()).names == ("everything-frozen",)
    assert not loom.doctor(net.unfreeze("0.0.0.1"), (X, Y), config())


def test_every_finding_is_provoked_here_and_has_its_section() -> None:
    from loom.diagnosis.names import SEVERITIES

    assert {*CASES, "everything-frozen"} == set(SEVERITIES)
    text = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text()
    sections = dict(re.findall(r"^### (\S+)\n(.*?)(?=^###|\Z)", text, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(SEVERITIES)
    for name, section in sections.items():
        for part in ("What it saw", "Why it matters", "What to do"):
            assert f"**{part}.**" in section, name


def images(rows: int = 96) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(rows) % 4
    pixels = RNG.uniform(0, 0.2, size=(rows, 1, 8, 8))
    for row, label in enumerate(labels):
        pixels[row, 0, 2 * label : 2 * label + 2] += 0.7
    return pixels, labels


WORDS = RNG.integers(0, 20, size=(96, 10))
WAVES = np.sin(np.linspace(0, 6, 12)[None, :, None] * RNG.uniform(0.5, 2, size=(96, 1, 1)))
SOUND = {
    "images": (
        (1, 8, 8),
        [nn.Conv2D(8, kernel_size=3, activation="relu"), nn.MaxPool2D(2), nn.Flatten(), nn.Dense(4)],
        images(),
        {},
    ),
    "images, normalised": (
        (1, 8, 8),
        [
            nn.Conv2D(8, kernel_size=3, bias=False),
            nn.BatchNorm(),
            nn.Activation("relu"),
            nn.Residual([nn.Conv2D(8, kernel_size=3, padding=1, activation="relu")]),
            nn.GlobalAvgPool2D(),
            nn.Dense(4),
        ],
        images(97),
        {},
    ),
    "softmax": (4, [*relu(32, 32), nn.Dropout(0.5), nn.Dense(3), nn.Softmax()], (X, Y), {}),
    "probabilities": (4, [*relu(16), nn.Dense(3), nn.Softmax()], (X, Y), {"loss": "nll"}),
    "yes or no": (4, [*relu(16), nn.Dense(1)], (X, Y % 2), {"loss": "binary_cross_entropy"}),
    "soft targets": (4, [*relu(16), nn.Dense(3)], (X, np.eye(3)[Y] * 0.9 + 0.1 / 3), {}),
    "regression": (4, [*relu(16), nn.Dense(1)], (TABLE, TARGET), {"loss": "mse"}),
    "huber and SGD": (
        4,
        [*relu(16), nn.Dense(1)],
        (TABLE, TARGET),
        {"loss": "huber", "optimizer": loom.SGD(momentum=0.9), "learning_rate": 0.01},
    ),
    "scores": (4, [*relu(16), nn.Dense(1)], (X, np.where(Y > 0, 1, -1)), {"loss": "hinge"}),
    "counts": (4, [*relu(16), nn.Dense(1)], (X, Y), {"loss": "poisson"}),
    "rare": (4, [*relu(16), nn.Dense(1)], (X, 1 * (Y == 1)), {"loss": "binary_focal"}),
    "within reach": (
        4,
        [*relu(16), nn.Dense(1, activation="sigmoid")],
        (TABLE, 1 / (1 + np.exp(-TARGET))),
        {"loss": "mse"},
    ),
    "scaled by a layer": (
        (1, 8, 8),
        [nn.Scale(1 / 255), nn.Flatten(), *relu(16), nn.Dense(4)],
        (images()[0] * 255, images()[1]),
        {},
    ),
    "autoencoder": (4, [nn.Dense(3, activation="tanh"), nn.Dense(4)], (X, X), {"loss": "mse"}),
    "recurrent": ((12, 1), [nn.LSTM(16), nn.Dense(1)], (WAVES, WAVES[:, -1]), {"loss": "mse"}),
    "stateful": (
        (12, 1),
        [nn.LSTM(8, stateful=True), nn.Dense(1)],
        (WAVES, WAVES[:, -1]),
        {"loss": "mse", "batch_size": 16, "shuffle": False},
    ),
    "words": (
        10,
        [nn.Embedding(20, 8), nn.MultiHeadAttention(2, causal=True), nn.LayerNorm(), nn.Dense(20)],
        (WORDS, np.roll(WORDS, -1, axis=1)),
        {},
    ),
    "scales of its own": (4, [nn.BatchNorm(), *relu(16), nn.Dense(3)], (X * [1, 9, 99, 999], Y), {}),
    "weighted": (
        4,
        [*relu(16), nn.Dense(3)],
        (X, Y, np.linspace(0.5, 1.5, 240)),
        {"class_weight": {0: 2.0}, "label_smoothing": 0.1, "schedule": "cosine", "gradient_clip": 1.0},
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_trainings_hear_nothing(name: str) -> None:
    shape, layers, data, settings = SOUND[name]
    net = loom.Sequential(layers, input_shape=shape)
    report = loom.doctor(net, data, config(**settings))
    assert report.healthy, report
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loom.train(net, data, config(epochs=3, **settings))
    # Nor does one that has learned.
    report = loom.doctor(net, data, config(**settings))
    assert report.healthy, report


def test_digits_as_the_readme_trains_them() -> None:
    x, y = loom.datasets.digits()[0]
    net = loom.Sequential([nn.Flatten(), *relu(64), nn.Dense(10)], input_shape=x.shape[1:])
    report = loom.doctor(net, (x, y), config(batch_size=64, validation_split=0.1))
    assert report.healthy, report
    # The pixels at the edge never change.
    assert set(report.names) <= {"constant-columns", "duplicate-columns"}
    assert loom.doctor(net, (x * 255 / x.max(), y), config()).names[0] == "unscaled-inputs"


# What is asked of it, and what it leaves alone


def test_batches_are_looked_at_by_the_first() -> None:
    batches = [(X[start : start + 40] * 100, Y[start : start + 40]) for start in range(0, 240, 40)]
    assert "unscaled-inputs" in loom.doctor(sound(), batches, config()).names
    with pytest.warns(loom.DoctorWarning, match="unscaled-inputs"):
        loom.train(sound(), batches, config())
    with pytest.raises(loom.DataError, match="only once"):
        loom.doctor(sound(), iter(batches), config())
    with pytest.raises(loom.DataError, match="only once"):
        loom.find_rate(sound(), iter(batches), config())
    validation = X[:60], np.full(60, 2)
    report = loom.doctor(sound(), (X[60:], Y[60:] % 2), config(), validation=validation)
    assert "classes-missing-in-training" in report.names


def test_a_resumed_training_is_not_looked_at_again() -> None:
    net = network(nn.Dense(3, activation="sigmoid"))
    with pytest.warns(loom.DoctorWarning):
        loom.train(net, (X, Y), config())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loom.train(net, (X, Y), config(epochs=2), resume=True)


@pytest.mark.filterwarnings("ignore::loom.DoctorWarning")
def test_looking_changes_nothing_of_a_training() -> None:
    def trained(*, looks: bool) -> tuple[bytes, list[float]]:
        net = network(*relu(16), nn.BatchNorm(), nn.Dropout(0.4), nn.Dense(3))
        losses = loom.train(net, (X, Y), config(epochs=2)).loss_history
        if looks:
            assert len(loom.doctor(net, (X * 50, Y), config(learning_rate=9.0)))
            assert loom.find_rate(net, (X, Y), config(), steps=20).rates.size
        # Dropout of the manual loop, and of training that goes on, draw what they would have.
        net.forward(X[:8])
        losses += loom.train(net, (X, Y), config(epochs=4, ignore_findings="all"), resume=True).loss_history
        return net.to_bytes(optimizer=True), losses

    (one, first), (two, second) = trained(looks=True), trained(looks=False)
    assert first == second
    assert one == two


def test_a_network_on_a_gpu_stays_there(gpu: str) -> None:
    net = sound().to(gpu)
    before = net.fingerprint()
    assert not loom.doctor(net, (X, Y), config())
    assert loom.find_rate(net, (X, Y), config(), steps=12).rates.size
    assert net.device == gpu
    assert net.fingerprint() == before


def test_reports_are_tables_and_go_to_json_and_back() -> None:
    report = loom.doctor(network(nn.Dense(3, activation="sigmoid")), (X * 100, Y), config())
    assert report.names[:2] == ("unscaled-inputs", "sigmoid-before-loss")
    assert type(report).from_json(report.to_json()) == report
    assert list(report.columns()) == ["name", "severity", "layer", "seen", "remedy", "page"]
    assert "<table>" in report._repr_html_()
    assert "sigmoid-before-loss" in str(report)
    assert report["unscaled-inputs"].figures["root_mean_square"] > 50
    assert [finding.name for finding in report] == list(report.columns()["name"])
    with pytest.raises(KeyError):
        report["dead-units"]
    refused = loom.doctor(sound(), (X, Y + 1), config())
    assert not refused.healthy
    assert "start-loss" in refused.skipped
    assert "not looked at" in str(refused)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: loom.doctor(sound(), (X, Y), ignore="softmax"), loom.ConfigError, "did you mean"),
        (lambda: loom.doctor(sound(), (X, Y), ignore=3), loom.ConfigError, "names of findings"),
        (lambda: config(ignore_findings=["dead"]), loom.ConfigError, "dead-units"),
        (lambda: loom.doctor(sound(), (X[:0], Y[:0])), loom.DataError, "no samples"),
        (lambda: loom.find_rate(sound(), (X, Y), config(), steps=2), loom.ConfigError, "steps"),
        (lambda: loom.find_rate(sound(), (X, Y), config(), smallest=2, largest=1), loom.ConfigError, "above"),
        (lambda: loom.find_rate(sound(), (X, Y), config(), smallest=0), loom.ConfigError, "smallest"),
        (lambda: loom.find_rate(sound(), (with_nan(), Y), config()), loom.NonFiniteError, "NaN"),
    ],
)
def test_what_is_refused(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
    assert loom.doctor(sound(), (X, Y), config(), ignore="all").findings == ()


def test_settings_go_to_json_and_back() -> None:
    settings = config(ignore_findings=("sorted-labels", "all"))
    assert loom.TrainingConfig.from_config(settings.to_config()) == settings
    assert config(ignore_findings="sorted-labels").ignore_findings == ("sorted-labels",)


def test_what_cannot_be_computed_with_is_told() -> None:
    names = np.array(["a", "b", "c"])[Y]
    net = sound()
    before = net.to_bytes()
    assert loom.doctor(net, (X, names), config(loss="cross_entropy")).names == ()
    assert net.to_bytes() == before
    report = loom.doctor(sound(), (X, names), config(loss="mse"))
    assert report.names == ("training-refuses",)
    assert "target" in report["training-refuses"].seen
    assert loom.doctor(sound(), (X[:, :3], Y), config()).names == ("training-refuses",)


KINDS = ("float16", "float32", "float64", "int8", "uint8", "int64", "uint64", "bool")


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_looking_stops_no_training(data: st.DataObject) -> None:
    """Whatever is trained with is looked at without an exception, and what is refused is told."""
    rows = data.draw(st.integers(1, 40))
    draw = np.random.default_rng(data.draw(st.integers(0, 9)))
    scale = data.draw(st.sampled_from([0.0, 1e-9, 1.0, 200.0, 1e30]))
    inputs, outputs = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    with np.errstate(all="ignore"):
        x = (draw.normal(size=(rows, inputs)) * scale).astype(data.draw(st.sampled_from(KINDS)))
        shape = data.draw(st.sampled_from([(rows,), (rows, outputs)]))
        y = (draw.normal(size=shape) * data.draw(st.sampled_from([0.0, 1.0, 3.0, 1e30]))).astype(
            data.draw(st.sampled_from(KINDS))
        )
    ends = data.draw(st.sampled_from([[], [nn.Softmax()], [nn.Activation("relu")], [nn.BatchNorm()]]))
    chosen = {
        "loss": data.draw(st.sampled_from([name for name in loom.losses.names() if name != "expr"])),
        "batch_size": data.draw(st.integers(1, 50)),
        "validation_split": data.draw(st.sampled_from([0.0, 0.5])),
        "shuffle": data.draw(st.booleans()),
    }

    def trained(**more: object) -> str:
        net = network(nn.Dense(outputs), *ends, inputs=inputs)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", loom.DoctorWarning)
            try:
                return str(loom.train(net, (x, y), config(**chosen, **more)).loss_history)
            except loom.LoomError as error:
                return repr(error)

    expected = trained(ignore_findings="all")
    assert trained() == expected
    if "DataError" in expected:
        # There is nothing to look at.
        return
    report = loom.doctor(network(nn.Dense(outputs), *ends, inputs=inputs), (x, y), config(**chosen))
    assert str(report)
    if "Error" in expected and not any(word in expected for word in ("explod", "not finite", "NonFinite")):
        assert not report.healthy, expected


# The range test


def test_the_range_test_finds_where_the_loss_falls(tmp_path: Path) -> None:
    net = network(*relu(16), nn.Dense(1))
    settings = config(loss="mse", optimizer=loom.SGD(momentum=0.9), batch_size=24)
    before = net.build().to_bytes(optimizer=True)
    found = loom.find_rate(net, (TABLE, TARGET), settings)
    assert net.to_bytes(optimizer=True) == before
    assert found.exploded
    assert 1e-4 < found.suggestion == min(found.steepest, found.tenth_of_minimum) < 0.1
    np.testing.assert_allclose(found.rates, 1e-7 * 1e8 ** (np.arange(len(found.rates)) / 99), rtol=1e-6)
    # Smoothed as Adam's moments are: the mean of a decaying memory, corrected for its start.
    mean, smoothed = 0.0, []
    for step, loss in enumerate(found.losses, start=1):
        mean = 0.9 * mean + 0.1 * loss
        smoothed.append(mean / (1 - 0.9**step))
    np.testing.assert_allclose(found.smoothed, smoothed, rtol=1e-9)
    assert found.tenth_of_minimum == found.rates[np.argmin(smoothed)] / 10
    assert type(found).from_json(found.to_json()) == found
    assert "suggested" in str(found)
    for name in ("rate.svg", "rate.png"):
        found.plot(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    # With its suggestion the network learns; at a hundred times that it does not.
    course = loom.train(net, (TABLE, TARGET), replace(settings, learning_rate=found.suggestion, epochs=5))
    assert course.final_loss < 0.5 * course.loss_history[0]


@pytest.mark.parametrize("seed", [5, 13, 21, 29])
def test_the_range_test_is_not_about_which_batches_came_first(seed: int) -> None:
    """Their losses are most of the mean then, which goes up and down at rates that change nothing."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(256, 4))
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    layers = [nn.Dense(16), nn.BatchNorm(), nn.Activation("relu"), nn.Dropout(0.2), nn.Dense(2)]
    net = loom.Sequential(layers, input_shape=4, seed=seed)
    found = loom.find_rate(net, (x, y), config(batch_size=32, optimizer="adamw"))
    assert 1e-3 < found.suggestion < 0.3


def test_the_range_test_ends_quietly_where_nothing_explodes() -> None:
    found = loom.find_rate(sound(), (X, Y), config(), smallest=1e-5, largest=1e-3, steps=30)
    assert not found.exploded
    assert len(found.rates) == 30
    assert list(found.columns()) == ["rate", "loss", "smoothed"]
    frozen = loom.find_rate(sound().freeze(), (X[:32], Y[:32]), config(), steps=10)
    assert frozen.losses.std() == 0
    assert np.isnan(frozen.suggestion)
    batches = [(X[start : start + 40], Y[start : start + 40]) for start in range(0, 240, 40)]
    assert loom.find_rate(sound(), batches, config(), steps=20).rates.size


def test_from_a_training_that_fails_to_one_that_learns() -> None:
    """A table as it comes: prices by area, rooms and year, sorted, in dollars."""
    area, rooms = RNG.uniform(20, 200, 400), RNG.integers(1, 7, 400)
    year = RNG.integers(1900, 2020, 400)
    price = 3000 * area + 10_000 * rooms + 200 * (year - 1900) + RNG.normal(0, 5000, 400)
    order = np.argsort(price)
    x, y = np.column_stack([area, rooms, year])[order], price[order]
    net = loom.Sequential([nn.Dense(32, activation="relu"), nn.Dense(1, activation="relu")], input_shape=3)
    settings = loom.TrainingConfig(epochs=30, learning_rate=1.0, optimizer="sgd", verbose=False)
    report = loom.doctor(net, (x, y), settings)
    assert {"unscaled-inputs", "unscaled-targets", "learning-rate-explodes"} <= set(report.names)

    x, y = (x - x.mean(axis=0)) / x.std(axis=0), (y - y.mean()) / y.std()
    assert "targets-out-of-reach" in loom.doctor(net, (x, y), settings).names

    net = loom.Sequential([nn.Dense(32, activation="relu"), nn.Dense(1)], input_shape=3)
    rate = loom.find_rate(net, (x, y), settings).suggestion
    settings = replace(settings, learning_rate=rate)
    assert loom.doctor(net, (x, y), settings).healthy
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = loom.train(net, (x, y), settings)
    assert result.final_loss < 0.05


@pytest.mark.parametrize(
    "targets", [Y % 2, (Y % 2)[:, None], Y % 2 == 1, (Y % 2).astype(np.float32), (Y % 2).tolist()]
)
def test_labels_of_two_classes_that_chose_no_loss_of_classes(targets: object) -> None:
    """Users of Keras mean the cross-entropy of one sigmoid there."""

    def trained(**settings: object) -> list[str]:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            network(nn.Dense(1)).fit(X, targets, verbose=False, **settings)  # type: ignore[call-overload]
        return [str(each.message) for each in told]

    (said,) = trained()
    assert said.startswith("class-labels-with-mse")
    assert 'Train with loss="binary_cross_entropy"' in said
    report = loom.doctor(network(nn.Dense(1)), (X, targets), loom.TrainingConfig(verbose=False))  # type: ignore[arg-type]
    assert report["class-labels-with-mse"].severity == "warning"
    assert trained(loss="mse") == trained(ignore_findings="class-labels-with-mse") == []
    if np.shape(targets) == (240, 1) or np.asarray(targets).dtype.kind != "b":
        assert trained(loss="binary_cross_entropy") == []


@pytest.mark.parametrize("targets", [Y, X[:, 0], Y % 2 * 0.5, np.zeros(240)])
def test_numbers_that_are_no_labels_of_two_classes(targets: np.ndarray) -> None:
    report = loom.doctor(network(nn.Dense(1)), (X, targets), loom.TrainingConfig(verbose=False))
    assert not [each for each in report.findings if "0 and 1 alone" in each.seen]


@pytest.mark.parametrize("named", [False, True])
def test_classes_are_called_by_their_labels(named: bool) -> None:
    """A number says little to whoever gave texts."""
    places = np.where(np.arange(240) % 20 == 3, 0, 1)
    places[:2] = 2
    y = np.array(["ant", "bee", "cat"])[places]
    net = sound()
    loss: object = "cross_entropy"
    if named:
        net.output("kind", (0, 0))
        loss = {"kind": loss}
    told = loom.doctor(net, (X, {"kind": y} if named else y), config(loss=loss))
    imbalance = next(entry.seen for entry in told.findings if entry.name == "class-imbalance")
    assert "Class bee has 226 samples, class cat has 2; always answering bee is right" in imbalance
    if not named:
        # Of those that it has learned some are missing.
        net.fit(X, y, epochs=1, verbose=False, ignore_findings="all")
        known = loom.doctor(net, (X[2:], y[2:]), config(), validation=(X[:2], y[:2]))
        seen = {entry.name: entry.seen for entry in known.findings}
        assert seen["classes-missing-in-training"].endswith("has none of: cat.")


@pytest.mark.parametrize("labels", [["ant", "bee", "cat"], [3, 7, 40]])
def test_labels_that_come_in_batches_are_known(labels: list[str]) -> None:
    """Numbers were said to be out of range."""
    net = sound()
    net.card = loom.ModelCard(labels=labels)
    data = loom.data.stream(X, np.array(labels)[Y], batch_size=40)
    assert not loom.doctor(net, data, config()).findings


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((), "expected a TrainingBatch"),
        ([], "has no batches"),
        (None, "got NoneType"),
        (3, "got int"),
        ((X,), "tuple of 1"),
        ([X], "data in arrays is a tuple"),
        ({"x": X, "kind": Y}, "data must be a tuple"),
    ],
)
def test_what_is_no_data_is_refused_where_outputs_have_names(data: object, message: str) -> None:
    """StopIteration and TypeErrors came of it."""
    net = sound().output("kind", (0, 0))
    with pytest.raises(loom.DataError, match=message):
        loom.doctor(net, data, config(loss={"kind": "cross_entropy"}))  # type: ignore[arg-type]
