"""Every finding of `loom.doctor` is found where it is, and sound trainings hear nothing."""

from __future__ import annotations

import warnings

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
