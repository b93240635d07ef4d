"""Processes that predict with one network's weights."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import loom
from loom import nn

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nothing can be forked there")
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(203, 6)).astype("float32")


def network() -> loom.Network:
    return loom.Sequential([nn.Dense(16, activation="tanh"), nn.BatchNorm(), nn.Dense(3)], 6, seed=1)


def test_the_bits_are_those_of_the_network_whoever_computes_them() -> None:
    net = network()
    expected = net.predict(X)
    for processes, batch_size in ((1, 50), (3, 7), (4, 500)):
        with loom.Predictors(net, processes, batch_size=batch_size) as predictors:
            for rows in (203, 1, 20):
                assert predictors.predict(X[:rows]).tobytes() == expected[:rows].tobytes()


def test_errors_come_back_and_the_next_call_is_answered() -> None:
    with loom.Predictors(network(), 2, batch_size=4) as predictors:
        predictors.predict(X)
        with pytest.raises(loom.ShapeError):
            predictors.predict(X[:, :3])
        assert predictors.predict(X[:9]).shape == (9, 3)
    with pytest.raises(loom.StateError, match="closed"):
        predictors.predict(X)
    with pytest.raises(loom.DataError, match="no samples"):
        loom.Predictors(network(), 2).predict(X[:0])


def test_one_that_has_ended_is_told_of() -> None:
    with loom.Predictors(network(), 2, batch_size=4) as predictors:
        predictors.predict(X)
        predictors._workers[0][0].kill()
        predictors._workers[0][0].join()
        with pytest.raises(loom.StateError, match="has ended"):
            predictors.predict(X)
        # Others take its place.
        assert predictors.predict(X).shape == (203, 3)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at memory in /proc")
def test_weights_are_in_memory_once() -> None:
    net = loom.Sequential([nn.Dense(2048, activation="relu"), nn.Dense(2048), nn.Dense(4)], 2048, seed=1)
    weights = sum(values.nbytes for values in net.state_dict().values())
    x = RANDOM.normal(size=(8, 2048)).astype("float32")
    with loom.Predictors(net, 2, batch_size=2) as predictors:
        predictors.predict(x)
        for process, _ in predictors._workers:
            lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
            own = sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")) * 1024
            assert own < weights / 2


def test_what_cannot_be_is_refused(gpu: str) -> None:
    with pytest.raises(loom.ConfigError, match="processes"):
        loom.Predictors(network(), 0)
    with pytest.raises(loom.ConfigError, match=r'to\("cpu"\)'):
        loom.Predictors(network().to(gpu))
