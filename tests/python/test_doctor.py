"""Every finding of `loom.doctor` is found where it is, and sound trainings hear nothing."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

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
    net = network(*layers)
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
        assert all(f"**{part}.**" in section for part in ("What it saw", "Why it matters", "What to do")), (
            name
        )
