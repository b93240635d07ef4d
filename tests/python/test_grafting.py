"""Branches of several networks in one: what they compute, and that they are copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import loom
from loom import analysis, nn
from networks import cnn, mlp, quiet, weights

ROWS = 7


def samples(*shape: int) -> NDArray[Any]:
    return np.random.default_rng(3).normal(size=(ROWS, *shape))


def net(*layers: nn.Layer, seed: int = 0, shape: Any = 5, precision: str = "float64") -> loom.Network:
    made = loom.Sequential(layers, input_shape=shape, precision=precision, seed=seed)
    made.build()
    return made


def trained(seed: int, units: int = 3) -> loom.Network:
    """Layers whose running statistics and weights have moved."""
    made = net(nn.Dense(8, activation="tanh"), nn.BatchNorm(), nn.Dropout(0.2), nn.Dense(units), seed=seed)
    made.fit((samples(5), samples(units)), quiet(loss="mse", epochs=2, device="cpu"))
    return made


def sources() -> list[loom.Network]:
    """Networks of several layers, of one, and of a Parallel with two branches."""
    branches = nn.Parallel([nn.Dense(3), [nn.Dense(4, activation="relu"), nn.Dense(3)]], combine="filter")
    return [trained(1), net(nn.Dense(3), seed=2), net(branches, seed=3)]


def outputs(x: NDArray[Any]) -> list[NDArray[Any]]:
    """What each branch of the sources makes, in NumPy where it is a part of a layer."""
    one, two, three = sources()
    held = three.layers[0]
    hidden = np.maximum(x @ held["branches.1.0.weight"].T + held["branches.1.0.bias"], 0)
    return [
        one.predict(x),
        two.predict(x),
        x @ held["branches.0.0.weight"].T + held["branches.0.0.bias"],
        hidden @ held["branches.1.1.weight"].T + held["branches.1.1.bias"],
    ]


@pytest.mark.parametrize("combine", ["concat", "add", "average", "grid_scatter", "filter"])
def test_a_graft_combines_what_its_parts_make(combine: str) -> None:
    x = samples(5)
    grafted = analysis.graft(sources(), combine)
    parts = outputs(x)
    layer = grafted.layers[0]
    if combine == "concat":
        expected = np.concatenate(parts, axis=1)
    elif combine == "grid_scatter":
        expected = np.stack(parts, axis=1).reshape(ROWS, 2, 2, 3)
    elif combine == "filter":
        scores = np.exp(x @ layer["gate.1.weight"].T + layer["gate.1.bias"])
        shares = scores / scores.sum(axis=1, keepdims=True)
        expected = sum(shares[:, [number]] * part for number, part in enumerate(parts))
    else:
        expected = sum(parts) / (4 if combine == "average" else 1)
    np.testing.assert_allclose(grafted.predict(x), expected, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(
        layer.states["branches.0.1.running_mean"], sources()[0].layers[1].states["running_mean"]
    )


@pytest.mark.parametrize(("count", "side"), [(1, 1), (2, 2), (4, 2), (5, 3), (9, 3), (10, 4)])
def test_branches_are_scattered_over_the_smallest_square(count: int, side: int) -> None:
    parts = [net(nn.Dense(2), seed=seed) for seed in range(count)]
    grafted = analysis.graft(parts, "grid_scatter")
    assert grafted.output_shape == (side, side, 2)
    x = samples(5)
    made = grafted.predict(x)
    for number, part in enumerate(parts):
        np.testing.assert_allclose(made[:, number // side, number % side], part.predict(x), rtol=0, atol=1e-9)
    assert not made.reshape(ROWS, side * side, 2)[:, count:].any()


WIDTHS = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@given(WIDTHS, st.sampled_from(["concat", "add", "average", "grid_scatter", "filter"]), st.booleans())
@settings(max_examples=30, deadline=None)
def test_training_a_graft_moves_no_source_and_the_other_way_round(
    widths: list[int], combine: str, handles: bool
) -> None:
    nets = [net(nn.Dense(4), nn.BatchNorm(), nn.Dense(width), seed=width) for width in widths]
    given_: list[Any] = [part.layers[0] if handles else part for part in nets]
    grafted = analysis.graft(given_, combine)
    x = samples(5)
    before = [weights(part) for part in nets]
    target = np.ones((ROWS, *grafted.output_shape))
    config = quiet(loss="mse", epochs=2, learning_rate=0.1, device="cpu")
    untouched = grafted.state_dict()
    grafted.fit((x, target), config)
    moved = grafted.state_dict()
    assert [weights(part) for part in nets] == before
    assert any(not np.array_equal(values, untouched[name]) for name, values in moved.items())
    nets[0].fit((x, np.ones((ROWS, widths[0]))), config)
    assert all(np.array_equal(values, moved[name]) for name, values in grafted.state_dict().items())


def test_outputs_of_other_widths_are_projected() -> None:
    one, two = net(nn.Dense(3), seed=1), net(nn.Dense(4), seed=2)
    grafted = analysis.graft([one, two], "add")
    projection = grafted.layers[0]["branches.1.1.weight"]
    assert projection.shape == (3, 4)
    assert "branches.1.1.bias" not in grafted.layers[0].parameters
    x = samples(5)
    expected = one.predict(x) + two.predict(x) @ projection.T
    np.testing.assert_allclose(grafted.predict(x), expected, rtol=0, atol=1e-9)
    image = (1, 6, 6)
    few = net(nn.Conv2D(2, 3, padding=1), shape=image, seed=1)
    many = net(nn.Conv2D(5, 3, padding=1), shape=image, seed=2)
    both = analysis.graft([few, many], "average")
    assert both.output_shape == (2, 6, 6)
    kernel = both.layers[0]["branches.1.1.weight"].reshape(2, 5)
    pictures = samples(*image)
    expected = (few.predict(pictures) + np.einsum("oc,ncyx->noyx", kernel, many.predict(pictures))) / 2
    np.testing.assert_allclose(both.predict(pictures), expected, rtol=0, atol=1e-9)
    assert analysis.graft([few, many], axis=0).output_shape == (7, 6, 6)


def test_types_flags_and_factors_travel() -> None:
    one, two = trained_single(1), trained_single(2)
    x = samples(5).astype("float32")
    one.calibrate(x).morph("int4", calibration="mse", rounding="stochastic")
    two.morph("bfloat16", parameters="weight").freeze("0.0.0.0")
    one.layers[2].freeze("bias")
    for part in (one, two):
        part.scale_rates({"dense": 0.5})
    grafted = analysis.graft([one, two])
    np.testing.assert_array_equal(
        grafted.predict(x), np.concatenate([one.predict(x), two.predict(x)], axis=1)
    )
    layer = grafted.layers[0]
    stored = {name: held.dtype for name, held in layer.weights.stored.items()}
    assert stored == {
        "branches.0.0.weight": "int4",
        "branches.0.0.bias": "float32",
        "branches.0.2.weight": "int4",
        "branches.0.2.bias": "float32",
        "branches.1.0.weight": "bfloat16",
        "branches.1.0.bias": "float32",
        "branches.1.2.weight": "bfloat16",
        "branches.1.2.bias": "float32",
    }
    assert set(layer.frozen) == {"branches.0.2.bias", "branches.1.0.weight", "branches.1.0.bias"}
    assert layer.rate_factor == 0.5
    held = {name: layer[name] for name in layer.frozen}
    grafted.fit((x, np.ones((ROWS, 6))), quiet(loss="mse", epochs=1, device="cpu"))
    for name, values in held.items():
        np.testing.assert_array_equal(layer[name], values)


def trained_single(seed: int) -> loom.Network:
    return net(nn.Dense(8), nn.Activation("tanh"), nn.Dense(3), seed=seed, precision="float32")


def test_a_graft_is_saved_trained_on_and_put_elsewhere(tmp_path: Path) -> None:
    grafted = analysis.graft(sources(), "add")
    x = samples(5)
    grafted.fit((x, samples(3)), quiet(loss="mse", epochs=1, device="cpu"))
    grafted.save(tmp_path / "graft.loom", optimizer=True)
    loaded = loom.load(tmp_path / "graft.loom")
    for one in (grafted, loaded):
        one.fit((x, samples(3)), quiet(loss="mse", epochs=3, device="cpu"), resume=True)
    assert weights(loaded) == weights(grafted)
    whole = net(nn.Dense(5), nn.Dense(2))
    before = whole.layers[0].weight, whole.layers[0].bias
    whole[0, 0, 0].insert(1, grafted.layers[0])
    whole[0, 0, 0].pop()
    hidden = x @ before[0].T + before[1]
    np.testing.assert_allclose(whole.predict(x), grafted.predict(hidden), rtol=0, atol=1e-9)
    # A graft of grafts has all branches side by side.
    assert len(analysis.graft([grafted, whole.layers[1]]).config.cells[0].layers[0].branches) == 8


def test_what_stateful_layers_carry_is_carried_on() -> None:
    part = net(nn.GRU(3, stateful=True), shape=(4, 2))
    part.forward(samples(4, 2))
    grafted = analysis.graft([part, part.layers[0]])
    for name in ("branches.0.0.state_l0", "branches.1.0.state_l0"):
        np.testing.assert_array_equal(grafted.layers[0].states[name], part.layers[0].states["state_l0"])


def test_a_graft_of_networks_on_a_gpu_is_the_same(gpu: str) -> None:
    parts = [mlp(seed=seed).to(gpu) for seed in range(2)]
    x = samples(6).astype("float32")
    for part in parts:
        part.fit((x, np.arange(ROWS) % 3), quiet(epochs=1, device=gpu))
    grafted = analysis.graft(parts, "average")
    for device in ("cpu", gpu):
        expected = sum(part.to(device).predict(x) for part in parts) / 2
        np.testing.assert_allclose(grafted.to(device).predict(x), expected, rtol=0, atol=1e-5)


def linked() -> loom.Network:
    made = loom.Network(input_shape=5, grid=(1, 2), precision="float64")
    made[0, 0].add(nn.Dense(5))
    made[0, 1].add(nn.Dense(5))
    return made.link((0, 0), (0, 1))


def rated(factor: float) -> loom.Network:
    return net(nn.Dense(3)).scale_rates({"dense": factor})


@pytest.mark.parametrize(
    ("given_", "combine", "error", "text"),
    [
        ([], "concat", loom.errors.ConfigError, "at least one"),
        (net(nn.Dense(2)), "concat", loom.errors.ConfigError, "a list of networks"),
        ([net(nn.Dense(2)), 3], "concat", loom.errors.ConfigError, "source 1 is 3"),
        ([net(nn.Dense(2))], "sum", loom.errors.ConfigError, "graft combine"),
        ([loom.Network(5)], "concat", loom.errors.ConfigError, "source 0 has no layers"),
        ([net(nn.Dense(2)), mlp()], "concat", loom.errors.ConfigError, "source 0 is float64, source 1"),
        ([linked()], "concat", loom.errors.ConfigError, "source 0 has links"),
        (
            [net(nn.Dense(2)), net(nn.Dense(2), shape=4)],
            "add",
            loom.errors.ShapeError,
            r"source 0 reads \(5,\), source 1 reads \(4,\)",
        ),
        (
            [cnn(), cnn().layers[0]],
            "add",
            loom.errors.ShapeError,
            r"source 0 makes \(4,\), source 1, layer 0.0.0.0 \(conv2d\) makes \(6, 8, 8\)",
        ),
        ([cnn(), cnn().layers[0]], "concat", loom.errors.ShapeError, "parallel"),
        (
            [rated(0.5), net(nn.Flatten()), rated(0.1)],
            "concat",
            loom.errors.InvalidValueError,
            "rate factor is 0.1, that of .* is 0.5",
        ),
        (
            [trained_single(1).morph("int8").drop_master()],
            "concat",
            loom.errors.StateError,
            r"unpack\(\)",
        ),
    ],
)
def test_what_cannot_be_grafted_is_refused_by_name(
    given_: Any, combine: str, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        analysis.graft(given_, combine)


def test_a_layer_that_uses_anothers_parameters_is_no_branch() -> None:
    made = loom.Sequential([nn.Embedding(11, 4), nn.TiedHead(11, tied_to=(0, 0, 0, 0))], input_shape=5)
    with pytest.raises(loom.LoomError, match="shares another one's parameters"):
        analysis.graft([made])
