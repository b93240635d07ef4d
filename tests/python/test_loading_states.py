"""States that fit a network in part, or under other names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from networks import mlp, weights


def old() -> loom.Network:
    return loom.Sequential([nn.Dense(8), nn.BatchNorm(), nn.Dense(3)], input_shape=6, seed=1)


def new() -> loom.Network:
    return loom.Sequential([nn.LayerNorm(), nn.Dense(8), nn.BatchNorm(), nn.Dense(5)], input_shape=6, seed=2)


def shifted(name: str) -> str | None:
    *cell, layer, parameter = name.split(".")
    return None if layer == "2" else ".".join([*cell, str(int(layer) + 1), parameter])


RENAMINGS: list[Any] = [
    {"0.0.0.0": "0.0.0.1", "0.0.0.1": "0.0.0.2", "0.0.0.2": "head"},
    {
        "0.0.0.0.weight": "0.0.0.1.weight",
        "0.0.0.0": "0.0.0.1",
        "0.0.0.1": "0.0.0.2",
        "0.0.0.2": "head",
    },
    [(r"^0\.0\.0\.2\.", "head."), (r"^0\.0\.0\.1\.", "0.0.0.2."), (r"^0\.0\.0\.0\.", "0.0.0.1.")],
    lambda name: shifted(name) or name.replace("0.0.0.2", "head"),
]


@pytest.mark.parametrize("rename", RENAMINGS)
def test_a_renamed_state_sets_what_it_names_and_tells_the_rest(rename: Any) -> None:
    source, target = old(), new()
    head = target.layers[3].weight
    left = target.load_state_dict(source.state_dict(), strict=False, rename=rename)
    assert left.unexpected_keys == ["head.bias", "head.weight"]
    assert left.missing_keys == ["0.0.0.0.bias", "0.0.0.0.weight", "0.0.0.3.bias", "0.0.0.3.weight"]
    missing, unexpected = left
    assert (missing, unexpected) == (left.missing_keys, left.unexpected_keys)
    for number in range(2):
        for name in source.layers[number].parameters:
            np.testing.assert_array_equal(target.layers[number + 1][name], source.layers[number][name])
    np.testing.assert_array_equal(
        target.layers[2].states["running_var"], source.layers[1].states["running_var"]
    )
    np.testing.assert_array_equal(target.layers[3].weight, head)


def test_a_name_that_becomes_none_is_left_out() -> None:
    target = new()
    left = target.load_state_dict(old().state_dict(), strict=False, rename=shifted)
    assert left.unexpected_keys == []
    assert "0.0.0.3.weight" in left.missing_keys


def test_strict_and_complete_returns_the_network() -> None:
    source, target = old(), loom.Network(input_shape=6, grid=(1, 2))
    target[0, 1].add(nn.Dense(8), nn.BatchNorm(), nn.Dense(3))
    rename = [(r"^0\.0\.0", "0.0.1")]
    assert target.load_state_dict(source.state_dict(), rename=rename) is target
    x = np.ones((2, 6))
    np.testing.assert_array_equal(target.predict(x), source.predict(x))
    empty = target.load_state_dict({}, strict=False)
    assert empty.missing_keys == sorted(target.state_dict())
    np.testing.assert_array_equal(target.predict(x), source.predict(x))


def test_what_is_carried_is_never_missing() -> None:
    net = loom.Sequential([nn.GRU(3, stateful=True), nn.Dense(2)], input_shape=(5, 2))
    net.forward(np.ones((4, 5, 2)))
    state = net.state_dict()
    carried = state.pop("0.0.0.0.state_l0")
    assert net.load_state_dict(state, strict=False).missing_keys == []
    assert net.layers[0].states == {}
    assert net.load_state_dict({"0.0.0.0.state_l0": carried}, strict=False).unexpected_keys == []
    np.testing.assert_array_equal(net.layers[0].states["state_l0"], carried)


BAD: list[tuple[Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]], type[Exception], str]] = [
    (lambda state, own: {"state": state}, loom.errors.ConfigError, "missing 0.0.0.2.running_mean.*unknown"),
    (
        lambda state, own: {"state": {**own, "0.0.0.2.bias": np.ones(4)}, "strict": False},
        loom.errors.ShapeError,
        r"0\.0\.0\.2\.bias: expected shape \(8,\), got \(4,\)",
    ),
    (
        lambda state, own: {"state": {**own, "0.0.0.1.weight": np.full((8, 6), np.nan)}, "strict": False},
        loom.errors.NonFiniteError,
        r"layer 1 \(dense\).*NaN",
    ),
    (
        lambda state, own: {"state": state, "rename": {"0.0.0.1": "0.0.0.0"}},
        loom.errors.ConfigError,
        r'"0\.0\.0\.0\.\w+" and "0\.0\.0\.1\.\w+" both become',
    ),
    (lambda state, own: {"state": state, "rename": 3}, loom.errors.ConfigError, "rename is new names"),
    (lambda state, own: {"state": state, "rename": ["ab"]}, loom.errors.ConfigError, "rename is new names"),
    (
        lambda state, own: {"state": state, "rename": [("(", "")]},
        loom.errors.ConfigError,
        "regular expression",
    ),
    (lambda state, own: {"state": state, "rename": lambda name: 3}, loom.errors.ConfigError, "got 3"),
    (lambda state, own: {"state": state, "strict": "no"}, loom.errors.ConfigError, "strict"),
    (lambda state, own: {"state": [], "strict": False}, loom.errors.ConfigError, "arrays by name"),
]


@pytest.mark.parametrize(("options", "error", "text"), BAD)
def test_what_does_not_fit_leaves_the_network_as_it_was(
    options: Callable[[dict[str, Any], dict[str, Any]], dict[str, Any]], error: type[Exception], text: str
) -> None:
    net = new()
    before = weights(net)
    with pytest.raises(error, match=text):
        net.load_state_dict(**options(old().state_dict(), net.state_dict()))
    assert weights(net) == before


def test_it_works_on_a_gpu(gpu: str) -> None:
    net, source = mlp().to(gpu), mlp(seed=3)
    state = source.state_dict()
    del state["0.0.1.0.bias"]
    assert net.load_state_dict(state, strict=False).missing_keys == ["0.0.1.0.bias"]
    np.testing.assert_array_equal(net.layers[0].weight, source.layers[0].weight)
    x = np.ones((2, 6), "float32")
    np.testing.assert_allclose(net.predict(x), source.predict(x), rtol=0, atol=1e-5)
