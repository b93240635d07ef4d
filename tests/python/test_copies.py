"""Copies and pickles: what a subclass adds, and handles of layers and cells."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.network.pickling import OWN_ATTRIBUTES
from networks import blobs, mlp, quiet, weights


class Named(loom.Network):
    """A network with something of its user's."""

    __slots__ = ("label",)

    def __init__(self, name: str, units: int) -> None:
        super().__init__(input_shape=6)
        self.name = name
        self.notes = {"units": units, "scale": np.arange(3.0)}
        self.label = name.upper()
        self[0, 0, 0].add(nn.Dense(units, activation="tanh"), nn.Dense(3))
        self.first = self[0, 0, 0, 0]

    def shout(self) -> str:
        return self.name.upper()


class Guarded(loom.Network):
    """One that says itself what is kept."""

    secret = "none"

    def __getstate__(self) -> dict[str, Any]:
        return {"token": "sealed " + self.secret}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.secret = state["token"].removeprefix("sealed ")


def pickled(what: Any) -> Any:
    return pickle.loads(pickle.dumps(what))


COPIES: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, pickled]


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_of_a_subclass_is_whole(copied: Callable[[Any], Any]) -> None:
    net = Named("ada", 5)
    loom.train(net, blobs(), quiet(epochs=1))
    other = copied(net)
    assert type(other) is Named
    assert (other.name, other.label, other.shout()) == ("ada", "ADA", "ADA")
    assert other.notes["units"] == 5
    np.testing.assert_array_equal(other.notes["scale"], net.notes["scale"])
    assert (other.notes is net.notes) == (copied is copy.copy)
    assert weights(other) == weights(net)
    # A place in the copy, where everything is copied.
    assert (other.first.weight == net.first.weight).all()
    assert (other.first == net[0, 0, 0, 0]) == (copied is copy.copy)
    assert (other.first == other[0, 0, 0, 0]) == (copied is not copy.copy)
    loom.train(net, blobs(), quiet(epochs=2), resume=True)
    loom.train(other, blobs(), quiet(epochs=2), resume=True)
    assert weights(other) == weights(net)


@pytest.mark.parametrize("copied", COPIES)
def test_attributes_of_a_plain_network_and_of_an_empty_one_come_along(copied: Callable[[Any], Any]) -> None:
    net = mlp()
    net.tag = ["mine"]
    assert copied(net).tag == ["mine"]
    empty = loom.Network(input_shape=3)
    empty.tag = 7
    assert copied(empty).tag == 7
    guarded = Guarded(input_shape=2)
    guarded[0, 0, 0].add(nn.Dense(1))
    guarded.secret = "key"
    assert copied(guarded).secret == "key"


@pytest.mark.parametrize("copied", COPIES)
def test_a_loss_that_only_its_process_knows_stays_behind(copied: Callable[[Any], Any]) -> None:
    def halves(output: Any, target: Any) -> tuple[float, Any]:
        return float(((output - target) ** 2).sum() / 2), output - target

    net, (x, _) = mlp(), blobs(20)
    goals = np.zeros((20, 3), np.float32)
    loom.train(net, (x, goals), quiet(loss=halves))
    other = copied(net)
    np.testing.assert_array_equal(other.predict(x), net.predict(x))
    loom.train(other, (x, goals), quiet(loss=halves))


@pytest.mark.parametrize("copied", COPIES)
def test_a_list_of_layers_is_copied(copied: Callable[[Any], Any]) -> None:
    net = mlp()
    other = copied(net.layers)
    assert [layer.config for layer in other] == [layer.config for layer in net.layers]
    assert (other[0] == net.layers[0]) == (copied is copy.copy)
    with pytest.raises(loom.ConfigError, match="changed in their cell"):
        other.append(nn.Dense(1))


@pytest.mark.parametrize("copied", COPIES)
def test_an_open_file_is_not_copied(copied: Callable[[Any], Any], tmp_path: Path) -> None:
    mlp().save_safetensors(tmp_path / "a.safetensors")
    with (
        loom.open_tensors(tmp_path / "a.safetensors") as tensors,
        pytest.raises(TypeError, match=r"loom\.open_tensors\(path\)"),
    ):
        copied(tensors)


def test_all_that_is_not_the_user_s_is_known() -> None:
    net = mlp()
    net.forward(np.zeros((1, 6)))
    net.observe(print).unobserve()
    loom.train(net, blobs(), quiet())
    assert set(vars(net)) == OWN_ATTRIBUTES


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("place", [(0, 0, 0, 0), (0, 1, 0), (0, 0, 0)])
def test_a_copy_of_a_handle_is_the_same_place(copied: Callable[[Any], Any], place: tuple[int, ...]) -> None:
    net = loom.Network(input_shape=6, grid=(1, 2, 1))
    net[0, 0, 0].add(nn.Dense(4))
    net[0, 1, 0].add(nn.Dense(3))
    handle: Any = net[place]  # type: ignore[index]
    other = copied(handle)
    assert repr(other) == repr(handle)
    if copied is copy.copy:
        assert other == handle
        return
    assert other != handle
    layer, twin = (h if len(place) == 4 else h[0] for h in (handle, other))
    np.testing.assert_array_equal(twin.weight, layer.weight)
    twin.weight = twin.weight + 1
    assert not np.array_equal(twin.weight, layer.weight)
    # What is copied together stays together.
    both = copied([net, handle])
    assert both[1] == both[0][place]


def test_an_unknown_private_name_of_a_handle_is_an_ordinary_error() -> None:
    handle = loom.handles.LayerHandle.__new__(loom.handles.LayerHandle)
    with pytest.raises(AttributeError, match="_network"):
        _ = handle._network
    with pytest.raises(AttributeError, match="no attribute '_nothing'"):
        _ = mlp()[0, 0, 0, 0]._nothing
