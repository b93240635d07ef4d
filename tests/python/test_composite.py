"""Layers made of layers, links across the grid, sessions, and layers that users compose."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import loom
from loom import nn

RNG = np.random.default_rng(5)


def test_a_residual_adds_what_it_skips() -> None:
    net = loom.Sequential([nn.Residual(nn.Dense(4))], input_shape=4)
    x = RNG.normal(size=(3, 4)).astype(np.float32)
    layer = net[0, 0, 0, 0]
    expected = x @ layer["layers.0.weight"].T + layer["layers.0.bias"] + x
    np.testing.assert_allclose(net.predict(x), expected, rtol=1e-5, atol=1e-6)


def test_a_residual_projects_images_where_shapes_differ() -> None:
    block = nn.Residual([nn.Conv2D(8, 3, stride=2, padding=1, activation="relu"), nn.Conv2D(8, 3, padding=1)])
    net = loom.Sequential([block], input_shape=(3, 9, 8))
    assert net.output_shape == (8, 5, 4)
    assert net[0, 0, 0, 0]["projection.0.weight"].shape == (8, 3, 1, 1)


def test_a_residual_projects_a_last_axis_that_no_stride_makes() -> None:
    net = loom.Sequential([nn.Residual(nn.Dense(4))], input_shape=(2, 3, 6), precision="float64")
    x = RNG.normal(size=(5, 2, 3, 6))
    layer = net[0, 0, 0, 0]
    expected = x @ layer["layers.0.weight"].T + layer["layers.0.bias"] + x @ layer["projection.0.weight"].T
    np.testing.assert_allclose(net.predict(x), expected, rtol=1e-12, atol=1e-12)


def test_a_product_repeats_what_has_one_number_for_many() -> None:
    gate = [nn.AdaptiveAvgPool2D(1), nn.Conv2D(4, 1, activation="sigmoid")]
    plane = [nn.Conv2D(1, 1, activation="tanh")]
    layer = nn.Parallel([[], gate, plane], combine="multiply")
    net = loom.Sequential([layer], input_shape=(4, 5, 6), precision="float64", seed=2)
    x, state = RNG.normal(size=(7, 4, 5, 6)), net.state_dict()

    def product(name: str, x: np.ndarray) -> np.ndarray:
        weight, bias = (state[f"0.0.0.0.branches.{name}.{of}"] for of in ("weight", "bias"))
        return np.einsum("oc,nchw->nohw", weight[:, :, 0, 0], x) + bias[:, None, None]

    def whole(x: np.ndarray) -> np.ndarray:
        excited = 1 / (1 + np.exp(-product("1.1", x.mean(axis=(2, 3), keepdims=True))))
        return x * excited * np.tanh(product("2.0", x))

    np.testing.assert_allclose(net.predict(x), whole(x), atol=1e-12)
    above, step = RNG.normal(size=x.shape), RNG.normal(size=x.shape)
    net.forward(x)
    slope = (net.backward(above) * step).sum()
    expected = ((whole(x + 1e-6 * step) - whole(x - 1e-6 * step)) * above).sum() / 2e-6
    np.testing.assert_allclose(slope, expected, rtol=1e-7)


def test_factors_that_do_not_fit_are_told() -> None:
    layer = nn.Parallel([[], nn.Conv2D(3, 1)], combine="multiply")
    with pytest.raises(loom.ShapeError, match="the same extent or 1"):
        loom.Sequential([layer], input_shape=(4, 5, 6)).build()
    layer = nn.Parallel([[], nn.GlobalAvgPool2D()], combine="multiply")
    with pytest.raises(loom.ShapeError, match="as many axes"):
        loom.Sequential([layer], input_shape=(4, 5, 6)).build()


@pytest.mark.parametrize("axes", [1, 2, 3, 4])
def test_a_residual_projects_any_last_axis(axes: int) -> None:
    for before in range(1, 8):
        for after in range(1, 8):
            shape = (*RNG.integers(1, 4, axes - 1).tolist(), before)
            net = loom.Sequential([nn.Residual(nn.Dense(after))], input_shape=shape)
            assert net.output_shape == (*shape[:-1], after)
            assert net.predict(np.ones((2, *shape))).shape == (2, *shape[:-1], after)


def test_a_filter_mixes_branches_by_its_gate() -> None:
    net = loom.Sequential([nn.Parallel([nn.Dense(2), nn.Dense(2)], combine="filter")], input_shape=3)
    x = RNG.normal(size=(5, 3)).astype(np.float32)
    layer = net[0, 0, 0, 0]
    scores = x @ layer["gate.1.weight"].T + layer["gate.1.bias"]
    weights = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    made = [x @ layer[f"branches.{i}.0.weight"].T + layer[f"branches.{i}.0.bias"] for i in range(2)]
    expected = sum(weights[:, i : i + 1] * made[i] for i in range(2))
    np.testing.assert_allclose(net.predict(x), expected, rtol=1e-4, atol=1e-5)


def test_a_filter_learns_to_route() -> None:
    """One branch can only be right for one half of the inputs: the gate has to tell them apart.

    From some starts both branches settle on a compromise, in any engine; this one finds the way.
    """
    x = RNG.normal(size=(512, 2)).astype(np.float32)
    y = np.where(x[:, :1] > 0, 3 * x[:, 1:], -3 * x[:, 1:]).astype(np.float32)
    experts = nn.Parallel([nn.Dense(1), nn.Dense(1)], combine="filter", gate=nn.Dense(2))
    net = loom.Sequential([experts], input_shape=2, seed=3)
    config = loom.TrainingConfig(epochs=60, batch_size=32, learning_rate=0.03, loss="mse", device="cpu")
    result = loom.train(net, (x, y), config)
    assert result.final_loss < 0.1 * float((y**2).mean())


def test_branches_stand_on_a_grid() -> None:
    layer = nn.Parallel([[], []], combine="grid_scatter", grid=(2, 2), places=[(0, 1), (1, 0)])
    net = loom.Sequential([layer], input_shape=3)
    x = RNG.normal(size=(2, 3)).astype(np.float32)
    expected = np.zeros((2, 2, 2, 3), np.float32)
    expected[:, 0, 1] = expected[:, 1, 0] = x
    np.testing.assert_array_equal(net.predict(x), expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Parallel([]), "at least one"),
        (lambda: nn.Parallel([nn.Dense(1)], combine="sum"), "combine"),
        (lambda: nn.Parallel([nn.Dense(1)], axis=0, combine="add"), "axis"),
        (lambda: nn.Parallel([nn.Dense(1)], combine="grid_scatter"), "grid"),
        (lambda: nn.Parallel([nn.Dense(1)], gate=nn.Dense(1)), "gate"),
        (
            lambda: nn.Parallel([[]], combine="grid_scatter", grid=(1, 1), places=[(0, 1)]),
            "a place of its own",
        ),
        (lambda: nn.Residual([]), "at least one"),
        (lambda: nn.Residual("relu"), "expected a layer"),
        (lambda: nn.Permute((0, 2)), "axes"),
        (lambda: nn.Masked(nn.Dense(1), value=float("nan")), "finite"),
    ],
)
def test_wrong_settings_are_refused(make: object, message: str) -> None:
    with pytest.raises(loom.ConfigError, match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.Parallel([nn.Dense(2), nn.Dense(3)], combine="add"), "branch 1 makes"),
        (nn.Parallel([nn.Dense(2)], combine="filter", gate=nn.Dense(2)), "the gate makes"),
        (nn.Residual([nn.Flatten(), nn.Dense(3)]), "give a projection"),
        (nn.Sequential([nn.Conv2D(2, 3)]), "layer 0 inside it"),
    ],
)
def test_what_does_not_fit_is_named(layer: nn.Layer, message: str) -> None:
    with pytest.raises((loom.ShapeError, loom.ConfigError), match=message):
        loom.Sequential([layer], input_shape=(2, 4)).build()


def grid_with_skips(seed: int = 0) -> loom.Network:
    net = loom.Network(input_shape=6, grid=(3, 4, 5), seed=seed)
    for cell in net.cells:
        cell.add(nn.Residual(nn.Dense(6, activation="tanh")))
    net.link((0, 0, 0), (1, 2, 3))
    net.link((0, 3, 1), (2, 0, 0), combine="add")
    net.link((1, 1, 1), (2, 3, 4), combine="concat")
    net[2, 3, 4].add(nn.Dense(2))
    return net


def test_links_cross_a_grid_of_sixty_cells(tmp_path: Path) -> None:
    net = grid_with_skips()
    x = RNG.normal(size=(4, 6)).astype(np.float32)
    values: dict[tuple[int, ...], np.ndarray] = {}
    value = x
    joins = {(1, 2, 3): (0, 0, 0), (2, 0, 0): (0, 3, 1), (2, 3, 4): (1, 1, 1)}
    for cell in net.cells:
        source = joins.get(cell.at)
        if source is not None:
            held = values[source]
            value = np.concatenate([value, held], axis=1) if cell.at == (2, 3, 4) else value + held
        for layer in cell:
            if layer.kind == "residual":
                made = np.tanh(value @ layer["layers.0.weight"].T + layer["layers.0.bias"])
                skip = layer.parameters.get("projection.0.weight")
                value = made + (value if skip is None else value @ skip.T)
            else:
                value = value @ layer.weight.T + layer.bias
        values[cell.at] = value
    np.testing.assert_allclose(net.predict(x), value, rtol=1e-4, atol=1e-4)

    net.save(tmp_path / "grid.loom")
    np.testing.assert_array_equal(loom.load(tmp_path / "grid.loom").predict(x), net.predict(x))
    again = loom.Network.from_json(net.to_json())
    assert again.config == net.config
    assert len(again.config.links) == 3


def test_gradients_flow_through_links() -> None:
    net = loom.Network(input_shape=3, grid=(1, 3), precision="float64")
    for column in range(3):
        net[0, column].add(nn.Dense(3, activation="tanh"))
    net.link((0, 0), (0, 2)).link((0, 0), (0, 2), combine="concat")
    x = RNG.normal(size=(2, 3))
    weights = RNG.normal(size=(2, 3))

    def objective(x: np.ndarray) -> float:
        return float((net.predict(x) * weights).sum())

    net.forward(x)
    found = net.backward(weights)
    for index in np.ndindex(*x.shape):
        moved = [x.copy(), x.copy()]
        moved[0][index] += 1e-5
        moved[1][index] -= 1e-5
        assert found[index] == pytest.approx((objective(moved[0]) - objective(moved[1])) / 2e-5, rel=1e-6)


def test_links_that_cannot_be_are_refused() -> None:
    net = loom.Network(input_shape=3, grid=(1, 2))
    net[0, 0].add(nn.Dense(3))
    net[0, 1].add(nn.Dense(3))
    with pytest.raises(loom.CellIndexError):
        net.link((0, 0), (0, 2))
    with pytest.raises(loom.ConfigError, match="combine"):
        net.link((0, 0), (0, 1), combine="subtract")
    with pytest.raises(loom.ConfigError, match="axis"):
        net.link((0, 0), (0, 1), axis=0)
    with pytest.raises(loom.StateError, match="clock mode"):
        net.link((0, 1), (0, 0)).predict(np.zeros((1, 3), np.float32))
    net = loom.Network(input_shape=3, grid=(1, 3))
    net[0, 0].add(nn.Dense(4))
    net[0, 1].add(nn.Dense(5))
    with pytest.raises(loom.ShapeError, match="link from cell"):
        net.link((0, 0), (0, 2)).build()


def test_a_softmax_before_a_link_keeps_its_jacobian() -> None:
    """A link that arrives after the last layer: the loss cannot be computed from the softmax's input."""
    net = loom.Network(input_shape=3, grid=(1, 3), seed=3)
    net[0, 0].add(nn.Dense(3))
    net[0, 1].add(nn.Softmax())
    net.link((0, 0), (0, 2))
    x, y = RNG.normal(size=(8, 3)), RNG.integers(0, 3, 8)
    before = net.evaluate((x, y), loss="cross_entropy")["loss"]
    logits = net.predict(x).astype(np.float64)
    expected = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(8), y]
    assert before == pytest.approx(expected.mean(), rel=1e-5)


def linked_behind(combine: str) -> loom.Network:
    """A link that arrives in an empty cell behind the last layer, and one more empty cell behind that."""
    net = loom.Network(input_shape=3, grid=(1, 4), precision="float64", seed=3)
    net[0, 0].add(nn.Dense(4, activation="tanh"))
    net[0, 1].add(nn.Dense(4))
    return net.link((0, 0), (0, 2), combine)


@pytest.mark.parametrize(("combine", "shape"), [("concat", (8,)), ("add", (4,))])
def test_links_behind_the_last_layer_make_the_output(combine: str, shape: tuple[int, ...]) -> None:
    net = linked_behind(combine)
    assert net.output_shape == shape
    x = RNG.normal(size=(6, 3))
    first = np.tanh(x @ net[0, 0, 0, 0].weight.T)
    second = first @ net[0, 0, 1, 0].weight.T
    expected = np.concatenate([second, first], axis=1) if combine == "concat" else second + first
    np.testing.assert_allclose(net.predict(x), expected, rtol=1e-12)
    np.testing.assert_allclose(net.predict(x, batch_size=2), expected, rtol=1e-12)
    y = RNG.normal(size=(6, *shape))
    result = net.fit((x, y), loom.TrainingConfig(epochs=60, learning_rate=0.05, verbose=False))
    assert result.loss_history[0] == pytest.approx(((expected - y) ** 2).mean(), rel=1e-9)
    assert result.final_loss < 0.8 * result.loss_history[0]


def test_the_network_s_input_may_be_linked_to_its_output() -> None:
    net = loom.Network(input_shape=3, grid=(1, 3), precision="float64")
    net[0, 1].add(nn.Dense(2))
    net.link((0, 0), (0, 2), combine="concat").link((0, 1), (0, 2), combine="concat")
    x = RNG.normal(size=(5, 3))
    made = x @ net[0, 0, 1, 0].weight.T
    np.testing.assert_allclose(net.predict(x), np.concatenate([made, x, made], axis=1), rtol=1e-12)
    net.forward(x)
    weights = RNG.normal(size=(5, 7))
    expected = weights[:, 2:5] + (weights[:, :2] + weights[:, 5:]) @ net[0, 0, 1, 0].weight
    np.testing.assert_allclose(net.backward(weights), expected, rtol=1e-12)


def test_a_link_after_building_changes_the_output_s_shape() -> None:
    net = loom.Network(input_shape=3, grid=(1, 3))
    net[0, 0].add(nn.Dense(4))
    net[0, 1].add(nn.Dense(2))
    assert net.output_shape == (2,)
    assert net.link((0, 0), (0, 2), combine="concat").output_shape == (6,)
    with pytest.raises(loom.InvalidValueError, match="no layer"):
        loom.Network(input_shape=3, grid=(1, 2)).link((0, 0), (0, 1)).build()


def test_a_context_that_nothing_reads_is_refused() -> None:
    net = loom.Network(input_shape=(4, 3), grid=(1, 3))
    net[0, 0].add(nn.Dense(3))
    net[0, 1].add(nn.Dense(3))
    for target in ((0, 1), (0, 2)):
        with pytest.raises(loom.InvalidValueError, match="second input"):
            loom.Network.from_json(net.to_json()).link((0, 0), target, combine="context").build()


def test_indices_are_not_added() -> None:
    net = loom.Network(input_shape=4, grid=(1, 2))
    net[0, 1].add(nn.Embedding(5, 2))
    # The last index twice is none.
    with pytest.raises(loom.InvalidValueError, match="whole numbers"):
        loom.Network.from_json(net.to_json()).link((0, 0), (0, 1)).build()
    net.link((0, 0), (0, 1), combine="concat")
    x = np.array([[4, 0, 1, 2]])
    np.testing.assert_array_equal(net.predict(x)[0], net[0, 0, 1, 0].weight[[4, 0, 1, 2, 4, 0, 1, 2]])


def test_sessions_pass_links_step_by_step() -> None:
    net = loom.Network(input_shape=(5, 3), grid=(1, 3), precision="float64")
    net[0, 0].add(nn.GRU(4, return_sequences=True))
    net[0, 1].add(nn.Dense(2))
    other = loom.Network.from_json(net.to_json())
    net.link((0, 0), (0, 2), combine="concat")
    x = RNG.normal(size=(2, 5, 3))
    session = net.session(5, rows=2)
    parts = [session(part) for part in (x[:, :3], x[:, 3:])]
    np.testing.assert_allclose(np.concatenate(parts, axis=1), net.predict(x), rtol=1e-12)
    # One sequence behind the other: what comes first is not known before the end.
    other[0, 1].add(nn.Dense(4))
    other.link((0, 0), (0, 2), combine="concat", axis=0)
    assert other.predict(x).shape == (2, 10, 4)
    with pytest.raises(loom.StateError, match="one behind the other"):
        other.session(5)


@dataclass(frozen=True)
class Block(nn.Composed, name="test_block"):
    """A block of this module's own."""

    width: int
    depth: int = 1

    def layers(self) -> list[nn.Layer]:
        return [nn.Residual(nn.Dense(self.width, activation="gelu")) for _ in range(self.depth)]


def test_composed_layers_keep_their_name(tmp_path: Path) -> None:
    net = loom.Sequential([Block(4, depth=2), nn.Dense(1)], input_shape=4)
    x = RNG.normal(size=(2, 4))
    net.save(tmp_path / "net.loom")
    loaded = loom.load(tmp_path / "net.loom")
    np.testing.assert_array_equal(loaded.predict(x), net.predict(x))
    assert loaded[0, 0, 0, 0].config == Block(4, depth=2)
    kinds = {entry.kind: entry for entry in loom.layers()}
    assert kinds["test_block"].settings == {"width": ..., "depth": 1}
    assert set(loom._native.layer_kinds()) <= set(kinds)


def test_composed_layers_are_read_where_they_are_not_known() -> None:
    described = json.loads(loom.Sequential([Block(4)], input_shape=4).to_json())
    layer = described["cells"][0]["layers"][0]
    layer["name"] = "somebody_elses"
    net = loom.Network.from_config(described)
    assert net.output_shape == (4,)
    assert net.config.to_config()["cells"] == described["cells"]


def test_sessions_go_step_by_step() -> None:
    net = loom.Sequential([nn.Dense(3, activation="relu"), nn.Dense(2)], input_shape=(8, 2))
    x = RNG.normal(size=(2, 8, 2)).astype(np.float32)
    session = net.session(capacity=11, rows=2)
    pieces = [session(x[:, :3]), session(x[:, 3:4]), session(x[:, 4:])]
    np.testing.assert_array_equal(np.concatenate(pieces, axis=1), net.predict(x))
    assert session.position == 8
    with pytest.raises(loom.StateError, match="capacity"):
        session(x[:, :4])
    with pytest.raises(loom.ShapeError):
        session(x[:1])
    net[0, 0, 0, 0].weight = net[0, 0, 0, 0].weight * 2
    with pytest.raises(loom.StateError, match="changed"):
        session(x[:, :1])
    session.reset()
    np.testing.assert_array_equal(session(x), net.predict(x))


def test_sessions_refuse_layers_that_need_whole_sequences() -> None:
    net = loom.Sequential([nn.Flatten(), nn.Dense(2)], input_shape=(8, 2))
    with pytest.raises(loom.StateError, match=r"layer 0 \(flatten\).*whole sequences"):
        net.session(capacity=8)


def test_a_transformer_block_of_grid_cells_is_one_of_residuals() -> None:
    attention = nn.MultiHeadAttention(2, causal=True, rotary=nn.Rotary(), bias=False)
    grid = loom.Network(input_shape=7, grid=(1, 6), seed=2)
    grid[0, 0].add(nn.Embedding(11, 8))
    grid[0, 1].add(nn.RMSNorm(), attention)
    grid[0, 3].add(nn.RMSNorm(), nn.SwiGLU(12))
    grid[0, 5].add(nn.Dense(11))
    grid.link((0, 0), (0, 2)).link((0, 2), (0, 4))
    blocks = [nn.Residual([nn.RMSNorm(), attention]), nn.Residual([nn.RMSNorm(), nn.SwiGLU(12)])]
    row = loom.Sequential([nn.Embedding(11, 8), *blocks, nn.Dense(11)], input_shape=7)
    places = {
        "0.0.0.0": "0.0.0.0",
        "0.0.1": "0.0.0.1.layers",
        "0.0.3": "0.0.0.2.layers",
        "0.0.5.0": "0.0.0.3",
    }
    state = {}
    for name, values in grid.state_dict().items():
        start = next(start for start in places if name.startswith(start + "."))
        state[places[start] + name.removeprefix(start)] = values
    row.load_state_dict(state)
    x = RNG.integers(0, 11, (3, 7))
    np.testing.assert_array_equal(grid.predict(x), row.predict(x))

    session = grid.session(capacity=7)
    pieces = [session(x[:1, :4]), session(x[:1, 4:5]), session(x[:1, 5:])]
    np.testing.assert_allclose(np.concatenate(pieces, axis=1), grid.predict(x[:1]), rtol=1e-5, atol=1e-6)

    config = loom.TrainingConfig(epochs=2, batch_size=3, loss="cross_entropy", device="cpu", verbose=False)
    y = RNG.integers(0, 11, (3, 7))
    losses = [loom.train(net, (x, y), config).loss_history for net in (grid, row)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_indices_must_be_whole_numbers_in_range() -> None:
    net = loom.Sequential([nn.Embedding(5, 3), nn.Flatten(), nn.Dense(1)], input_shape=2)
    assert net.predict([[0, 4]]).shape == (1, 1)
    with pytest.raises(loom.DTypeError, match="whole numbers"):
        net.predict(np.array([[0.0, 1.0]]))
    with pytest.raises(loom.InvalidValueError, match="from 0 to 4"):
        net.predict([[0, 5]])
    with pytest.raises(loom.InvalidValueError, match="from 0 to 4"):
        net.fit(([[0, -1]], [[1.0]]), loom.TrainingConfig(loss="mse", device="cpu"))
    with pytest.raises(loom.InvalidValueError, match="whole numbers"):
        loom.Sequential([nn.Dense(2), nn.Embedding(5, 3)], input_shape=2).build()


@pytest.mark.parametrize("branches", [1, 2, 4])
def test_products_of_branches_are_numpys_with_their_gradients(branches: int) -> None:
    rng = np.random.default_rng(branches)
    layers = nn.Parallel([nn.Dense(3) for _ in range(branches)], combine="multiply")
    net = loom.Sequential([layers], input_shape=4, seed=1, precision="float64")
    x, dy = rng.normal(size=(5, 4)), rng.normal(size=(5, 3))
    parameters = {name: np.array(values) for name, values in net.build().layers[0].parameters.items()}

    def value(x: np.ndarray, **moved: np.ndarray) -> np.ndarray:
        own = {**parameters, **moved}
        parts = [
            x @ own[f"branches.{each}.0.weight"].T + own[f"branches.{each}.0.bias"]
            for each in range(branches)
        ]
        return np.asarray(np.prod(parts, axis=0))

    np.testing.assert_allclose(net.forward(x), value(x), rtol=1e-12)
    dx = net.backward(dy)
    way = rng.normal(size=x.shape)
    difference = (dy * (value(x + 1e-6 * way) - value(x - 1e-6 * way))).sum() / 2e-6
    assert (dx * way).sum() == pytest.approx(difference, rel=1e-6)
    for name, gradient in net.layers[0].gradients.items():
        way = rng.normal(size=gradient.shape)
        ends = [value(x, **{name: parameters[name] + by * way}) for by in (1e-6, -1e-6)]
        difference = (dy * (ends[0] - ends[1])).sum() / 2e-6
        assert (gradient * way).sum() == pytest.approx(difference, rel=1e-6, abs=1e-7), name
