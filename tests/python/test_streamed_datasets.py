"""Data sets of other packages that can only be iterated, sample by sample."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.errors import ConfigError, DataError
from networks import quiet, weights

ROWS = 50
X = np.random.default_rng(3).normal(size=(ROWS, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)


class Stream:
    """Gives samples in dictionaries, as often as it is asked."""

    def __init__(self, **columns: Any) -> None:
        self.columns = columns or {"pixels": X, "label": Y}
        self.epochs: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.epochs.append(epoch)

    def __iter__(self) -> Iterator[Any]:
        for row in range(ROWS):
            yield {name: column[row] for name, column in self.columns.items()}


class Described(Stream):
    """Says what its columns are, as Hugging Face's do."""

    features: dict[str, Any] = {"pixels": None, "label": types.SimpleNamespace(names=["low", "high"])}  # noqa: RUF012
    column_names = ("pixels", "label")


def network() -> loom.Network:
    return loom.Sequential([nn.Dense(6, activation="tanh"), nn.Dense(2)], input_shape=4, seed=1)


def trained(data: Any, **settings: Any) -> tuple[loom.Network, list[Any]]:
    net = network()
    loom.train(net, data, quiet(epochs=3, batch_size=16, loss="cross_entropy", **settings))
    return net, weights(net)


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package whose streamed data sets are of one class, which loom knows without importing it."""
    module = types.ModuleType("datasets")
    module.IterableDataset = Stream  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)


@pytest.mark.usefixtures("package")
def test_it_is_trained_on_as_arrays_are() -> None:
    stream = Stream()
    _, found = trained(stream, shuffle=False)
    _, expected = trained((X, Y), shuffle=False)
    assert found == expected
    assert stream.epochs == [0, 1, 2]


@pytest.mark.usefixtures("package")
def test_names_of_classes_are_remembered_and_the_loss_is_guessed() -> None:
    net = network()
    net.fit(Described(), epochs=2, verbose=False)
    assert net.card.labels == ("low", "high")


@pytest.mark.usefixtures("package")
def test_windows_are_shuffled_the_same_way_every_time() -> None:
    runs = [trained(Stream(), shuffle=shuffle)[1] for shuffle in (True, True, False)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_columns_are_named_and_samples_changed() -> None:
    stream = Stream(a=X, b=Y, c=Y)
    named = loom.data.samples(stream, input="a", target="c", batch_size=16, shuffle=False)
    made = loom.data.samples(stream, transform=lambda s: (2 * s["a"], s["b"]), batch_size=16, shuffle=False)
    np.testing.assert_array_equal(np.concatenate([batch.input for batch in named]), X)
    np.testing.assert_array_equal(np.concatenate([batch.input for batch in made]), 2 * X)
    assert [len(batch.target) for batch in made] == [16, 16, 16, 2]


def test_what_is_wrong_is_told_by_name() -> None:
    with pytest.raises(DataError, match=r"iterated again for each epoch, got generator"):
        loom.data.samples(iter(Stream()).__iter__())
    with pytest.raises(ConfigError, match=r"input 'd' is no column.*'pixels', 'label'"):
        loom.data.samples(Described(), input="d")
    with pytest.raises(ConfigError, match=r"which column is told"):
        list(loom.data.samples(Stream(a=X, b=Y)))
    uneven = loom.data.samples(Stream(), transform=lambda s: (X[: 1 + int(s["label"])], s["label"]))
    with pytest.raises(DataError, match=r"input of sample 0 has the shape"):
        list(uneven)
    single = loom.data.samples(Stream(), transform=lambda s: s["pixels"])
    with pytest.raises(DataError, match=r"sample 0 is no \(x, y\)"):
        list(single)
