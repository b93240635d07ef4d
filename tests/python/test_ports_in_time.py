"""Named inputs and outputs where time passes: sessions, slots, meshes; targets, and other extents."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.errors import ConfigError, DataError, InvalidValueError, ShapeError, StateError
from loom.network.slots import Slots

Arrays = dict[str, Any]


class Drawn:
    """A random network over sequences, and the networks of one input and one output that it is made of."""

    def __init__(self, seed: int, precision: str, *, recurrent: bool = True) -> None:
        rng = np.random.default_rng(seed)
        self.rng, self.precision = rng, precision
        branches = int(rng.integers(1, 4))
        inputs: dict[str, Any] = {}
        stacks: list[list[nn.Layer]] = []
        for number in range(branches):
            if rng.random() < 0.4:
                inputs[f"i{number}"] = loom.Categories(7, length=6)
                stacks.append([nn.Embedding(7, 3)])
            else:
                inputs[f"i{number}"] = (6, int(rng.integers(1, 4)))
                stacks.append([nn.Dense(3, activation="tanh")])
            if rng.random() < 0.5:
                stacks[-1].append(nn.MultiHeadAttention(1, causal=True))
            if recurrent and rng.random() < 0.5:
                stacks[-1].append(nn.GRU(4, return_sequences=True))
        self.linked = list(range(branches - 1))
        heads = int(rng.integers(1, 4))
        trunk = branches
        self.net = loom.Network(
            inputs=inputs,
            grid=(1, branches + 1 + heads),
            precision=precision,  # type: ignore[arg-type]
            seed=seed,
        )
        for number, layers in enumerate(stacks):
            self.net.enter(f"i{number}", (0, number))[0, number].add(*layers)
        for number in self.linked:
            self.net.link((0, number), (0, trunk), combine="concat")
        stacks.append([nn.Dense(5, activation="tanh"), nn.MultiHeadAttention(1, causal=True)])
        self.net[0, trunk].add(*stacks[-1])
        # Some make an output for each step, and some one of all of them.
        self.pooled = []
        for number in range(heads):
            pooled = recurrent and bool(rng.random() < 0.4)
            self.pooled.append(pooled)
            stacks.append([nn.GRU(3) if pooled else nn.Dense(int(rng.integers(1, 4)))])
            at = (0, trunk + 1 + number)
            if number:
                self.net.link((0, trunk), at, combine="replace")
            self.net[at].add(*stacks[-1])
            self.net.output(f"o{number}", at)
        self.inputs, self.branches, self.trunk = inputs, branches, trunk
        self.net.build()
        values = self.net.state_dict()
        self.parts: list[loom.Sequential] = []
        for number, layers in enumerate(stacks):
            if number < branches:
                given = inputs[f"i{number}"]
                shape = (given.length,) if isinstance(given, loom.Categories) else given
            else:
                shape = (6, self.width(values, number))
            part = loom.Sequential(layers, input_shape=shape, precision=precision)  # type: ignore[arg-type]
            part.build()
            here = f"0.0.{number}."
            own = {
                f"0.0.0.{name[len(here) :]}": value for name, value in values.items() if name.startswith(here)
            }
            self.parts.append(part.load_state_dict(own))

    def width(self, values: Arrays, cell: int) -> int:
        """What a cell's first layer reads a step."""
        if cell > self.trunk:
            return 5
        last = [self.parts[number].output_shape[-1] for number in range(self.branches)]
        return int(sum(last))

    def steps(self, rows: int, count: int) -> Arrays:
        """Draws the next steps of each input."""
        made: Arrays = {}
        for name, given in self.inputs.items():
            if isinstance(given, loom.Categories):
                made[name] = self.rng.integers(0, given.count, (rows, count))
            else:
                made[name] = self.rng.normal(size=(rows, count, given[1]))
        return made

    def chained(self, sessions: list[Any], x: Arrays, *, last: bool) -> Arrays:
        """What the parts make of steps, one after another."""
        made = [sessions[number](x[f"i{number}"]) for number in range(self.branches)]
        joined = np.concatenate([made[-1], *(made[number] for number in self.linked)], axis=2)
        held = sessions[self.trunk](joined)
        found = {}
        for number, pooled in enumerate(self.pooled):
            output = sessions[self.trunk + 1 + number](held)
            found[f"o{number}"] = output[:, -1:] if last and not pooled else output
        return found


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_session_is_that_of_hand_chained_networks(seed: int, precision: str) -> None:
    """Each call brings some steps of all inputs; pieces of any length give the same as the parts do."""
    drawn = Drawn(seed, precision)
    rows = int(drawn.rng.integers(1, 4))
    session = drawn.net.session(200, rows)
    parts = [part.session(200, rows) for part in drawn.parts]
    for count in [1, 3, 70, 2]:
        last = bool(drawn.rng.random() < 0.4)
        x = drawn.steps(rows, count)
        found: Any = session(x, last=last)
        expected = drawn.chained(parts, x, last=last)
        assert list(found) == list(expected)
        for name, value in expected.items():
            assert found[name].shape == value.shape
            if precision == "float32":
                np.testing.assert_array_equal(found[name], value, err_msg=name)
            else:
                np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-12, err_msg=name)
    assert session.position == 76


@pytest.mark.parametrize("seed", range(8))
def test_slots_are_sessions_of_their_own(seed: int) -> None:
    drawn = Drawn(seed, "float32", recurrent=False)
    slots: Any = Slots(drawn.net, 3, 100)
    sessions = [drawn.net.session(100) for _ in range(3)]
    for sequences, count in [([2], 5), ([0, 2], 1), ([1, 0, 2], 67)]:
        x = drawn.steps(len(sequences), count)
        last = bool(drawn.rng.random() < 0.5)
        found = slots(x, sequences, last=last)
        for row, number in enumerate(sequences):
            own: Any = sessions[number]({name: part[row : row + 1] for name, part in x.items()}, last=last)
            for name, value in own.items():
                np.testing.assert_array_equal(found[name][row : row + 1], value)


def test_a_session_of_named_outputs_runs_on_a_gpu(gpu: str) -> None:
    drawn = Drawn(3, "float32")
    x = [drawn.steps(2, count) for count in (5, 1, 66)]
    here = drawn.net.session(80, 2)
    expected: Any = [here(part, last=number == 2) for number, part in enumerate(x)]
    drawn.net.to(gpu)
    there = drawn.net.session(80, 2)
    for number, part in enumerate(x):
        found: Any = there(part, last=number == 2)
        for name, value in found.items():
            np.testing.assert_allclose(value, expected[number][name], rtol=0, atol=2e-4)


def speech() -> loom.Network:
    """Sounds and letters go in step by step; what is said, and whether it ends, comes out."""
    net = loom.Network(inputs={"sound": (4, 3), "letter": loom.Categories(5, length=4)}, grid=(1, 4), seed=1)
    net[0, 0].add(nn.Dense(3))
    net.enter("letter", (0, 1))[0, 1].add(nn.Embedding(5, 3))
    net.link((0, 0), (0, 2))[0, 2].add(nn.Dense(5))
    net.link((0, 1), (0, 3), combine="replace")[0, 3].add(nn.GRU(2))
    return net.output("said", (0, 2)).output("ends", (0, 3))


def test_a_session_tells_what_does_not_fit() -> None:
    session = speech().session(10)
    x = {"sound": np.ones((1, 2, 3)), "letter": np.ones((1, 2), int)}
    found: Any = session(x)
    assert {name: value.shape for name, value in found.items()} == {"said": (1, 2, 5), "ends": (1, 2)}
    with pytest.raises(DataError, match='input "sound" brings 2 steps but input "letter" 3'):
        session({**x, "letter": np.ones((1, 3), int)})
    with pytest.raises(DataError, match='input "letter" is missing'):
        session({"sound": x["sound"]})
    with pytest.raises(ShapeError, match=r'input "sound": expected shape \(rows, steps, 3\)'):
        session({**x, "sound": np.ones((1, 2, 4))})
    with pytest.raises(InvalidValueError, match='input "letter" holds 5'):
        session({**x, "letter": np.full((1, 2), 5)})
    with pytest.raises(ShapeError, match="the session holds 1 rows"):
        session({name: np.concatenate([part, part]) for name, part in x.items()})
    with pytest.raises(StateError, match="one output, of which the next step is chosen"):
        session.follow(x, 2)  # type: ignore[arg-type]
    flat = loom.Network(
        inputs={"a": loom.Categories(3, length=4), "b": loom.Categories(3, length=4)}, grid=(1, 1)
    )
    flat.enter("b", (0, 0))[0, 0].add(nn.Embedding(3, 2))
    with pytest.raises(StateError, match="inputs a, b enter one cell one behind the other"):
        flat.session(4)
    still = loom.Network(inputs={"a": (4, 2), "b": 3}, grid=(1, 2))
    still[0, 0].add(nn.Dense(2))
    still.enter("b", (0, 1))[0, 1].add(nn.Dense(2))
    still.output("a", (0, 0)).output("b", (0, 1))
    with pytest.raises(ShapeError, match=r"cell \(0, 0, 1\).* depend on the length of the sequence"):
        still.session(4)


# Clock mode


class Clocked:
    """A random grid of dense cells with links that may point back, and its ticks in NumPy."""

    def __init__(self, seed: int, *, window: int = 0, rows: int = 3) -> None:
        rng = np.random.default_rng(seed)
        self.rng, self.rows = rng, rows
        self.cells = int(rng.integers(2, 6))
        names = [f"i{number}" for number in range(int(rng.integers(1, 4)))]
        widths = {name: int(rng.integers(1, 4)) for name in names}
        self.net = loom.Network(inputs=widths, grid=(1, self.cells), precision="float64", seed=seed)
        self.entering: dict[int, list[str]] = {0: [names[0]]}
        for name in names[1:]:
            cell = int(rng.integers(0, self.cells))
            self.net.enter(name, (0, cell))
            self.entering.setdefault(cell, []).append(name)
        self.links: list[tuple[int, int, str]] = []
        for _ in range(int(rng.integers(1, 5))):
            source, target = int(rng.integers(0, self.cells)), int(rng.integers(0, self.cells))
            self.net.link((0, source), (0, target), combine="concat")
            self.links.append((source, target, "concat"))
        # What would go nowhere is said: each cell is an output.
        for cell in range(self.cells):
            self.net[0, cell].add(nn.Dense(int(rng.integers(2, 4)), activation="tanh"))
        self.outputs = [int(cell) for cell in rng.permutation(self.cells)]
        for cell in self.outputs:
            self.net.output(f"o{cell}", (0, cell))
        self.mesh = loom.Mesh(self.net, rows=rows, window=window)
        self.held = self.rest()

    def rest(self) -> list[Any]:
        return [np.zeros((self.rows, *self.net[0, 0, cell, 0].output_shape)) for cell in range(self.cells)]

    def input(self) -> Arrays:
        shapes = {entry.name: entry.shape for entry in loom.engine.engine_of(self.net).config.inputs}  # type: ignore[union-attr]
        return {name: self.rng.normal(size=(self.rows, *shape)) for name, shape in shapes.items()}

    def tick(self, x: Arrays, held: list[Any]) -> list[Any]:
        made = []
        for cell in range(self.cells):
            if cell in self.entering:
                read = np.concatenate([x[name] for name in self.entering[cell]], axis=1)
            else:
                read = held[cell - 1]
            for source, target, _ in self.links:
                if target == cell:
                    read = np.concatenate([read, held[source]], axis=1)
            own = self.net[0, 0, cell, 0].parameters
            made.append(np.tanh(read @ np.asarray(own["weight"]).T + np.asarray(own["bias"])))
        return made


@pytest.mark.parametrize("seed", range(12))
def test_ticks_of_named_inputs_are_those_of_numpy(seed: int) -> None:
    clocked = Clocked(seed)
    held = clocked.held
    for _ in range(3):
        x = clocked.input()
        clocked.mesh.set_input(x)
        for _ in range(2):
            held = clocked.tick(x, held)
        clocked.mesh.tick(2)
        found: Any = clocked.mesh.output()
        assert list(found) == [f"o{cell}" for cell in clocked.outputs]
        for cell in range(clocked.cells):
            np.testing.assert_allclose(found[f"o{cell}"], held[cell], rtol=0, atol=1e-12)
            np.testing.assert_array_equal(clocked.mesh[f"o{cell}"], found[f"o{cell}"])


@pytest.mark.parametrize("seed", range(6))
def test_gradients_of_a_mesh_are_finite_differences(seed: int, tmp_path: Path) -> None:
    """Of a loss over all outputs by every input at every tick, and through a file in between."""
    clocked = Clocked(seed, window=4, rows=2)
    xs = [clocked.input() for _ in range(4)]
    for x in xs:
        clocked.mesh.set_input(x)
        clocked.mesh.tick(1)
    clocked.mesh.save(tmp_path / "mesh.loom")
    mesh = loom.Mesh.load(tmp_path / "mesh.loom")
    last: Any = mesh.output()
    given = {name: clocked.rng.normal(size=value.shape) for name, value in last.items()}
    found: Any = mesh.backward(given)

    def loss(inputs: list[Arrays]) -> float:
        held = clocked.rest()
        for x in inputs:
            held = clocked.tick(x, held)
        return float(sum((given[f"o{cell}"] * held[cell]).sum() for cell in range(clocked.cells)))

    for tick in range(4):
        for name, value in xs[tick].items():
            for place in np.ndindex(value.shape):
                ends = []
                for step in (1e-6, -1e-6):
                    moved = value.copy()
                    moved[place] += step
                    ends.append(loss([*xs[:tick], {**xs[tick], name: moved}, *xs[tick + 1 :]]))
                assert abs((ends[0] - ends[1]) / 2e-6 - found[name][tick][place]) < 1e-8


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_settled_mesh_is_the_network(precision: str) -> None:
    """Without links that point back, what outputs hold in the end has the bits of predict."""
    net = loom.Network(
        inputs={"a": 3, "city": loom.Categories(5), "b": 2},
        grid=(1, 4),
        precision=precision,  # type: ignore[arg-type]
        seed=2,
    )
    net[0, 0].add(nn.Dense(4, activation="tanh"))
    net.enter("city", (0, 1))[0, 1].add(nn.Embedding(5, 4), nn.Flatten())
    net.enter("b", (0, 0))
    net.link((0, 0), (0, 2), combine="concat")[0, 2].add(nn.Dense(4))
    # Its cell has no layer: it hands on what arrives.
    net.link((0, 0), (0, 3), combine="add")
    net.output("trunk", (0, 2)).output("sum", (0, 3))
    rng = np.random.default_rng(0)
    x = {"a": rng.normal(size=(6, 3)), "city": rng.integers(0, 5, 6), "b": rng.normal(size=(6, 2))}
    mesh = loom.Mesh(net, rows=6)
    mesh.set_input(x)
    mesh.tick(6)
    found, expected = mesh.output(), net.predict(x)
    for name, value in expected.items():  # type: ignore[attr-defined]
        np.testing.assert_array_equal(found[name], value)  # type: ignore[index]


def test_a_mesh_with_names_ticks_on_a_gpu(gpu: str) -> None:
    clocked = Clocked(4)
    config = clocked.net.to_json().replace("float64", "float32")
    here, there = loom.Network.from_json(config), loom.Network.from_json(config)
    there.to(gpu)
    meshes = [loom.Mesh(net, rows=3, window=3) for net in (here, there)]
    x = clocked.input()
    outputs: list[Any] = []
    gradients: list[Any] = []
    for mesh in meshes:
        mesh.set_input(x)
        mesh.tick(3)
        outputs.append(mesh.output())
        gradients.append(mesh.backward({name: np.ones_like(value) for name, value in outputs[-1].items()}))
    for one, other in (outputs, gradients):
        for name, value in one.items():
            np.testing.assert_allclose(other[name], value, rtol=0, atol=1e-5)


def heads(seed: int = 5) -> loom.Network:
    net = loom.Network(
        inputs={"a": 3, "city": loom.Categories(4)}, grid=(1, 4), precision="float64", seed=seed
    )
    net[0, 0].add(nn.Dense(5, activation="tanh"))
    net.enter("city", (0, 1))[0, 1].add(nn.Embedding(4, 2), nn.Flatten())
    net.link((0, 0), (0, 2), combine="concat")[0, 2].add(nn.Dense(3))
    net.link((0, 0), (0, 3), combine="replace")[0, 3].add(nn.Dense(2))
    return net.output("kind", (0, 2)).output("place", (0, 3))


def settings(**changes: Any) -> loom.TrainingConfig:
    usual: dict[str, Any] = {
        "loss": {"kind": "cross_entropy", "place": "mse"},
        "loss_weights": {"place": 0.3},
        "class_weight": {"kind": [1.0, 4.0, 0.5]},
        "optimizer": "sgd",
        "learning_rate": 0.1,
        "verbose": False,
        "device": "cpu",
    }
    return loom.TrainingConfig(**{**usual, **changes})


@pytest.mark.parametrize("shares", [False, True])
def test_a_stepper_learns_by_output_as_train_does(shares: bool) -> None:
    """After as many ticks as there are layers a mesh is the network, and so are its steps."""
    rng = np.random.default_rng(1)
    x = {"a": rng.normal(size=(8, 3)), "city": rng.integers(0, 4, 8)}
    kinds = rng.integers(0, 3, 8)
    y: Arrays = {"kind": np.eye(3)[kinds] if shares else kinds, "place": rng.normal(size=(8, 2))}
    stepped, trained = heads(), heads()
    stepper = loom.Stepper(loom.Mesh(stepped, rows=8, window=5), settings(), ticks=5)
    loss = stepper.step(x, y)
    before = trained.predict(x)
    result = loom.train(trained, (x, y), settings(epochs=1, batch_size=8, shuffle=False))
    assert loss is not None
    assert abs(loss - result.loss_history[0]) < 1e-12
    assert not np.array_equal(before["place"], trained.predict(x)["place"])  # type: ignore[call-overload]
    for name, value in trained.state_dict().items():
        np.testing.assert_allclose(stepped.state_dict()[name], value, rtol=0, atol=1e-12, err_msg=name)


def test_a_stream_of_names_is_learned(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def stream(count: int) -> Any:
        for _ in range(count):
            x = {"a": rng.normal(size=(4, 3)), "city": rng.integers(0, 4, 4)}
            yield x, {"kind": (x["city"] > 1).astype(int), "place": x["a"][:, :2]}

    net = heads()
    mesh = loom.Mesh(net, rows=4, window=5)
    config = settings(optimizer="adam", learning_rate=0.02, class_weight=None)
    result = loom.train_stepping(mesh, stream(300), config, ticks=5)
    assert np.mean(result.losses[-20:]) < 0.15 * np.mean(result.losses[:20])
    with pytest.raises(ConfigError, match="give one loss"):
        loom.Stepper(mesh, config, output=(0, 2))
    loom.Stepper(mesh, settings(loss="mse", loss_weights=None, class_weight=None), output=(0, 2))


# Learning by targets


def test_targets_by_the_chain_rule_know_names() -> None:
    """Two outputs are learned as one that joins them, and two inputs as one."""
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(40, 3)), rng.normal(size=(40, 2))
    y = rng.normal(size=(40, 5))

    def network(*, named: bool) -> loom.Network:
        shape: dict[str, Any] = {"inputs": {"a": 3, "b": 2}} if named else {"input_shape": 5}
        net = loom.Network(**shape, grid=(1, 4), precision="float64", seed=4)
        if named:
            net.enter("b", (0, 0))
        net[0, 0].add(nn.Dense(6, activation="tanh"))
        net[0, 1].add(nn.Dense(2))
        net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Dense(3))
        if named:
            return net.output("one", (0, 1)).output("two", (0, 2))
        return net.link((0, 1), (0, 3), combine="concat")

    tween = loom.TweenConfig(base_rate=0.05, local_steps=2)
    plain: dict[str, Any] = {"epochs": 3, "batch_size": 8, "verbose": False, "device": "cpu"}
    mine, theirs = network(named=True), network(named=False)
    # A mean over five numbers is two fifths of one over two, and three fifths of one over three.
    config = loom.TrainingConfig(loss="mse", loss_weights={"one": 0.4, "two": 0.6}, **plain)
    named = {"a": a, "b": b}, {"one": y[:, 3:], "two": y[:, :3]}
    joined = np.concatenate([a, b], axis=1), y
    with warnings.catch_warnings():
        # What the measures of a few steps come to is no bottleneck.
        warnings.simplefilter("ignore", loom.BottleneckWarning)
        found = loom.TweenTrainer(mine, tween).fit(named, config)
        expected = loom.TweenTrainer(theirs, tween).fit(joined, loom.TrainingConfig(loss="mse", **plain))
    np.testing.assert_allclose(found.loss_history, expected.loss_history, rtol=0, atol=1e-12)
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(mine.state_dict()[name], value, rtol=0, atol=1e-12, err_msg=name)


def test_what_targets_cannot_know_is_refused() -> None:
    net = heads()
    data = (
        {"a": np.ones((4, 3)), "city": np.zeros(4, int)},
        {"kind": np.zeros(4, int), "place": np.ones((4, 2))},
    )
    for mode in ("layerwise", "difference", "difference_reconstruction"):
        with pytest.raises(ConfigError, match=rf'^{mode} passes targets .* use mode="chain_rule"'):
            loom.TweenTrainer(net, loom.TweenConfig(mode=mode)).fit(data, settings())  # type: ignore[arg-type]
    with pytest.raises(
        InvalidValueError,
        match=r"takes a network with one input and one output.*loom\.TweenTrainer trains it",
    ):
        loom.TweenState(net).forward(data[0])  # type: ignore[arg-type]


# Other extents


def test_named_inputs_take_other_extents() -> None:
    net = speech()
    longer = net.resized({"sound": (7, 3), "letter": 7})
    rng = np.random.default_rng(0)
    x = {"sound": rng.normal(size=(2, 7, 3)), "letter": rng.integers(0, 5, (2, 7))}
    found: Any = longer.predict(x)
    expected: Any = net.session(10, 2)(x)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
    with pytest.raises(ConfigError, match=r"give extents by name"):
        net.resized((7, 3))
    with pytest.raises(ConfigError, match=r'"sond".*sound'):
        net.resized({"sond": (7, 3)})
    with pytest.raises(ConfigError, match="one input without a name"):
        loom.Sequential([nn.Dense(2)], input_shape=(4, 2)).resized({"x": (5, 2)})
    with pytest.raises(ShapeError, match="weight"):
        net.resized({"sound": (7, 4), "letter": 7})


@pytest.mark.parametrize("kind", ["gru", "attention"])
def test_onnx_models_of_several_outputs_over_time_come_back(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("onnx")
    layers: dict[str, list[nn.Layer]] = {
        "gru": [nn.GRU(6, return_sequences=True)],
        "attention": [nn.Dense(6), nn.MultiHeadAttention(2, causal=True)],
    }
    net = loom.Network(
        inputs={"sound": (7, 3), "letter": loom.Categories(5, length=7)},
        grid=(1, 5),
        precision="float64",
        seed=4,
    )
    net[0, 0].add(*layers[kind])
    net.enter("letter", (0, 1))[0, 1].add(nn.Embedding(5, 6), *layers[kind])
    net.link((0, 0), (0, 2), combine="add")[0, 2].add(*layers[kind])
    # Ways part behind what stands with its steps first while it is computed.
    net[0, 3].add(nn.Dense(2))
    net.link((0, 2), (0, 4), combine="replace")[0, 4].add(nn.LSTM(3), nn.Dense(1))
    net.output("each", (0, 3)).output("all", (0, 4))
    rng = np.random.default_rng(4)
    x = {"sound": rng.normal(size=(5, 7, 3)), "letter": rng.integers(0, 5, (5, 7))}
    loom.save_onnx(net, tmp_path / "net.onnx")
    again: Any = loom.models.onnx.load(tmp_path / "net.onnx").predict(x)
    expected: Any = net.predict(x)
    assert set(again) == {"each", "all"}
    for name, values in expected.items():
        np.testing.assert_allclose(again[name], values, rtol=0, atol=1e-5)
    one = loom.Network((7, 3), grid=(1, 3), seed=4)
    one[0, 0].add(*layers[kind])
    one[0, 1].add(nn.Dense(2))
    one.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.GRU(3))
    one.output("each", (0, 1)).output("all", (0, 2))
    loom.save_onnx(one, tmp_path / "one.onnx")
    found: Any = loom.models.onnx.load(tmp_path / "one.onnx", output=["each", "all"]).predict(x["sound"])
    for name, values in one.predict(x["sound"]).items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-5)
