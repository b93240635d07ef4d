"""The learning rate falls where a log no longer improves."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import loom
from loom import callbacks, nn
from loom.network import Network
from networks import blobs, mlp, quiet, weights


def plateau(**settings: object) -> loom.ReduceLROnPlateau:
    """One that is content with nothing: no epoch but the first is an improvement."""
    chosen = {"monitor": "loss", "factor": 0.5, "patience": 1, "min_delta": 1e6, **settings}
    return loom.ReduceLROnPlateau(**chosen)  # type: ignore[arg-type]


def scales(watcher: loom.ReduceLROnPlateau, values: list[float]) -> list[float]:
    """Returns what the rate is multiplied by after each epoch."""
    hooks = callbacks.CallbackList([watcher], mlp(), {})
    hooks.run("on_train_begin")
    found = []
    for epoch, value in enumerate(values):
        hooks.run("on_epoch_end", epoch, {watcher.monitor: value})
        found.append(watcher.scale)
        assert watcher.network[0, 0, 0, 0].rate_factor == watcher.scale
    hooks.run("on_train_end")
    assert watcher.network[0, 0, 0, 0].rate_factor == 1.0
    return found


def test_it_waits_for_as_long_as_its_patience_says() -> None:
    values = [1.0, 1.0, 1.0, 0.5, 0.5, math.nan, 0.5, 0.5]
    assert scales(plateau(patience=2, min_delta=0.1), values) == [1, 1, 0.5, 0.5, 0.5, 0.5, 0.25, 0.25]


def test_epochs_of_cooling_down_do_not_count() -> None:
    assert scales(plateau(cooldown=2), [1.0] * 6) == [1, 0.5, 0.5, 0.5, 0.25, 0.25]


def test_there_is_a_least_rate() -> None:
    assert scales(plateau(min_scale=0.2), [1.0] * 5) == [1, 0.5, 0.25, 0.2, 0.2]


def test_accuracies_are_to_rise() -> None:
    values = [0.1, 0.2, 0.3, 0.3]
    assert scales(plateau(monitor="accuracy", min_delta=0.0), values) == [1, 1, 1, 0.5]


def test_a_reduced_rate_is_that_rate() -> None:
    by_itself, by_hand = mlp(), mlp()
    by_itself[0, 0, 0, 0].rate_factor = by_hand[0, 0, 0, 0].rate_factor = 3.0
    rate = {"optimizer": "sgd", "learning_rate": 0.125}
    loom.train(by_itself, blobs(), quiet(epochs=3, **rate), callbacks=[plateau()])
    loom.train(by_hand, blobs(), quiet(epochs=2, **rate))
    loom.train(by_hand, blobs(), quiet(epochs=3, optimizer="sgd", learning_rate=0.0625), resume=True)
    assert by_itself[0, 0, 0, 0].rate_factor == 3.0
    assert weights(by_itself) == weights(by_hand)


@pytest.mark.parametrize("source", ["memory", "file at the end", "checkpoint"])
def test_a_resumed_run_goes_on_with_reduced_rates(tmp_path: Path, source: str) -> None:
    whole, part = mlp(), mlp()
    expected, went_on = plateau(), plateau()
    loom.train(whole, blobs(), quiet(epochs=5), callbacks=[expected])
    began = [plateau(), loom.ModelCheckpoint(tmp_path / "checkpoint.loom")]
    loom.train(part, blobs(), quiet(epochs=3), callbacks=began)
    part.save(tmp_path / "file at the end.loom", optimizer=True)
    net: Network = part if source == "memory" else loom.load(tmp_path / f"{source}.loom")
    loom.train(net, blobs(), quiet(epochs=5), callbacks=[went_on], resume=True)
    assert went_on.scale == expected.scale == 0.0625
    assert [layer.rate_factor for layer in net.layers] == [layer.rate_factor for layer in whole.layers]
    assert weights(net) == weights(whole)


@pytest.mark.parametrize("broken", [False, True])
def test_two_reduce_one_rate_together_and_leave_none_of_it(broken: bool) -> None:
    net, found = mlp(), []

    def both() -> list[loom.ReduceLROnPlateau]:
        return [plateau(), plateau(factor=0.25, patience=2, mode="min")]

    def look(epoch: int, logs: object) -> None:
        found.append(net[0, 0, 0, 0].rate_factor)

    watch = loom.LambdaCallback(on_epoch_end=look)
    if broken:
        loom.train(net, blobs(), quiet(epochs=3), callbacks=[*both(), watch])
    loom.train(net, blobs(), quiet(epochs=6), callbacks=[*both(), watch], resume=broken)
    assert found == [1, 1 / 2, 1 / 4 / 4, 1 / 8 / 4, 1 / 16 / 16, 1 / 32 / 16]
    assert [layer.rate_factor for layer in net.layers] == [1.0] * len(net.layers)


def test_what_is_set_while_rates_are_reduced_stays() -> None:
    net, found = mlp(), []
    layer = net[0, 0, 0, 0]

    def slow_down(epoch: int, logs: object) -> None:
        if epoch == 2:
            layer.rate_factor *= 0.25
        found.append(layer.rate_factor)

    callbacks = [plateau(), loom.LambdaCallback(on_epoch_end=slow_down)]
    loom.train(net, blobs(), quiet(epochs=5), callbacks=callbacks)
    assert found == [1, 1 / 2, 1 / 16, 1 / 32, 1 / 64]
    assert (layer.rate_factor, net.layers[-1].rate_factor) == (0.25, 1.0)


def test_a_run_that_begins_anew_forgets() -> None:
    watcher = plateau()
    assert scales(watcher, [1.0, 1.0]) == scales(watcher, [1.0, 1.0]) == [1, 0.5]


def test_an_error_gives_the_factors_back() -> None:
    def fails(epoch: int, logs: object) -> None:
        if epoch == 2:
            raise KeyError("mine")

    net, watcher = mlp(), plateau()
    with pytest.raises(KeyError):
        loom.train(
            net, blobs(), quiet(epochs=4), callbacks=[watcher, loom.LambdaCallback(on_epoch_end=fails)]
        )
    assert watcher.scale < 1.0
    np.testing.assert_array_equal([layer.rate_factor for layer in net.layers], 1.0)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"factor": 1.0}, "factor must be a finite number above 0 and below 1"),
        ({"patience": -1}, "patience must be a whole number that is not negative"),
        ({"mode": "most"}, "unknown ReduceLROnPlateau mode"),
        ({"min_scale": 2}, "min_scale must be a finite number at least 0 and at most 1"),
    ],
)
def test_settings_are_checked(setting: dict[str, object], message: str) -> None:
    with pytest.raises(loom.ConfigError, match=message):
        plateau(**setting)


def test_the_rate_of_a_shared_table_falls_where_it_belongs() -> None:
    x = np.random.default_rng(0).integers(0, 7, (12, 3))

    def trained(watcher: loom.Callback) -> Network:
        layers = [nn.Embedding(7, 4), nn.Dense(4), nn.TiedHead(7, tied_to=(0, 0, 0, 0))]
        net = loom.Sequential(layers, input_shape=3, seed=2)
        loom.train(net, (x, np.roll(x, 1, axis=1)), quiet(epochs=4, learning_rate=0.05), callbacks=[watcher])
        assert [layer.rate_factor for layer in net.layers] == [1.0, 1.0, 1.0]
        return net

    class ByHand(loom.Callback):
        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            for layer in self.network.layers[:2]:
                layer.rate_factor = 0.5**epoch

        def on_train_end(self, logs: object = None) -> None:
            for layer in self.network.layers[:2]:
                layer.rate_factor = 1.0

    assert weights(trained(plateau())) == weights(trained(ByHand()))
