"""Networks with normalisations, the softmax's kin and soft clusters: they learn, and come back from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loom
from loom import nn
from networks import blobs, quiet

# What stands between two dense layers of twelve units.
BETWEEN: list[nn.Layer] = [
    nn.LayerNorm(),
    nn.RMSNorm(),
    nn.GroupNorm(3),
    nn.BatchNorm(),
    nn.GridSoftmax(3, 4),
    nn.HierarchicalSoftmax(3, 9),
    nn.AdaptiveSoftmax([4]),
    nn.MixtureSoftmax(2),
    nn.GumbelSoftmax(2.0),
    nn.MaskedSoftmax([True] * 11 + [False]),
    nn.Sparsemax(),
    nn.Entmax(),
    nn.Entmax(1.25),
    nn.KMeans(5),
]


@pytest.mark.parametrize("layer", BETWEEN, ids=repr)
def test_networks_learn_and_come_back_from_files(tmp_path: Path, layer: nn.Layer) -> None:
    net = loom.Sequential([nn.Dense(12), layer, nn.Dense(3)], input_shape=6, seed=4)
    x, y = blobs()
    result = loom.train(net, (x, y), quiet(epochs=15, batch_size=30, optimizer="adam", learning_rate=0.02))
    losses = result.history["loss"]
    assert losses[-1] < 0.9 * losses[0]
    net.save(tmp_path / "net.loom")
    np.testing.assert_array_equal(loom.load(tmp_path / "net.loom").predict(x), net.predict(x))


def test_batch_norm_needs_more_than_one_row_to_train() -> None:
    net = loom.Sequential([nn.BatchNorm(), nn.Dense(3)], input_shape=6, seed=4)
    x, y = blobs(31)
    with pytest.raises(ValueError, match="more than one value a channel"):
        loom.train(net, (x, y), quiet(epochs=1, batch_size=30))


def test_what_does_not_fit_is_refused_with_what_would() -> None:
    for layer, message in [
        (nn.GridSoftmax(3, 5), r"15\), 3 rows of 5"),
        (nn.HierarchicalSoftmax(3, 12), r"15\), 3 groups and 12 leaves"),
        (nn.AdaptiveSoftmax([11]), "more than 11 words"),
        (nn.MixtureSoftmax(5), r"5 \+ 5 n"),
        (nn.MaskedSoftmax([True] * 5), "5 places on the last axis"),
        (nn.GroupNorm(5), "a multiple of 5 channels"),
    ]:
        net = loom.Sequential([nn.Dense(12), layer], input_shape=6)
        with pytest.raises(loom.ShapeError, match=message):
            net.predict(np.zeros((1, 6), np.float32))
