"""Random grids with links and empty cells: what they compute, how they learn and what a mesh of them holds,
against NumPy.

`LOOM_RANDOM_GRIDS=20` draws twenty times as many.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from grid_reference import (
    Array,
    Clock,
    Parameters,
    Plan,
    cross_entropy,
    derivative,
    draw,
    flow,
    mse,
    nll,
    shapes,
    takes_context,
)

TIMES = int(os.environ.get("LOOM_RANDOM_GRIDS", "1"))
ROWS = 3


def seeds(count: int, first: int = 0) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("seed", range(first, first + count * TIMES))


def parameters_of(net: loom.Network, rng: np.random.Generator) -> Parameters:
    """New values for all parameters, that biases and gains are none of 0 and 1; the network has them, too."""
    drawn = {name: values + rng.normal(0, 0.3, values.shape) for name, values in net.state_dict().items()}
    net.load_state_dict(drawn)
    return net.state_dict()


def directions(rng: np.random.Generator, arrays: Parameters) -> list[dict[str, Array]]:
    """One for each array by itself."""
    return [{name: rng.normal(size=values.shape)} for name, values in arrays.items()]


def check_gradients(
    rng: np.random.Generator,
    function: Callable[[Parameters], Any],
    at: Parameters,
    found: Parameters,
    tolerance: float = 1e-9,
) -> None:
    """Compares gradients with derivatives along random directions."""
    for along in directions(rng, at):
        ((name, direction),) = along.items()
        expected = derivative(function, at, along)
        got = float((found[name] * direction).sum())
        scale = max(1.0, float(np.abs(direction).sum()))
        assert got == pytest.approx(expected, rel=1e-7, abs=tolerance * scale), name


def loss_of(plan: Plan, rng: np.random.Generator, output: Array) -> tuple[str, Callable[..., Any], Array]:
    """A loss that the output may have, with targets."""
    names = ["mse"]
    if output.ndim <= 3 and output.shape[-1] > 1:
        names.append("cross_entropy")
        names += ["nll"] * bool((output > 0).all())
    name = str(rng.choice(names))
    if name == "mse":
        return name, mse, rng.normal(size=output.shape)
    functions = {"cross_entropy": cross_entropy, "nll": nll}
    # A softmax at the very end means probabilities already.
    last = [layer for cell in plan.cells for layer in cell][-1]
    behind = max(number for number, cell in enumerate(plan.cells) if cell)
    joined = any(link.target > behind for link in plan.links)
    if isinstance(last, loom.nn.Softmax) and not joined:
        functions["cross_entropy"] = nll
    return name, functions[name], rng.integers(0, output.shape[-1], output.shape[:-1])


@seeds(40)
def test_what_flows_through_a_grid(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng([seed, 1])
    plan = draw(rng)
    net = plan.build(seed=seed)
    parameters = parameters_of(net, rng)
    x = plan.inputs(rng, ROWS)
    expected = flow(plan, parameters, x)
    of_layers, of_cells = shapes(plan)
    assert [cell.output_shape for cell in net.cells] == of_cells
    assert net.output_shape == of_cells[-1]
    assert {layer.path: layer.output_shape for layer in net.layers} == of_layers
    output = net.predict(x)
    np.testing.assert_allclose(output, expected.output, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(net.predict(x, batch_size=1), output)

    net.save(tmp_path / "net.loom")
    for other in (loom.load(tmp_path / "net.loom"), pickle.loads(pickle.dumps(net))):
        assert other.config == net.config
        assert other.output_shape == net.output_shape
        np.testing.assert_array_equal(other.predict(x), output)
    assert loom.Network.from_json(net.to_json()).output_shape == net.output_shape


@seeds(40)
def test_gradients_of_a_grid(seed: int) -> None:
    rng = np.random.default_rng([seed, 2])
    plan = draw(rng)
    net = plan.build(seed=seed)
    parameters = parameters_of(net, rng)
    x = plan.inputs(rng, ROWS)
    output = net.forward(x)
    np.testing.assert_allclose(output, flow(plan, parameters, x).output, rtol=1e-9, atol=1e-12)
    weights = rng.normal(size=output.shape)
    to_input = net.backward(weights)

    def objective(of: Parameters) -> Any:
        return (flow(plan, of, of["x"]).output * weights).sum()

    found = {f"{layer.path}.{name}": g for layer in net.layers for name, g in layer.gradients.items()}
    if plan.vocabulary is None:
        check_gradients(rng, objective, {**parameters, "x": x}, {**found, "x": to_input})
    else:
        check_gradients(rng, lambda of: objective({**of, "x": x}), parameters, found)


@pytest.mark.filterwarnings("ignore::loom.DoctorWarning")
@pytest.mark.filterwarnings("ignore:little gets through")
@seeds(40)
def test_a_step_of_training_a_grid(seed: int) -> None:
    rng = np.random.default_rng([seed, 3])
    plan = draw(rng)
    net = plan.build(seed=seed)
    parameters = parameters_of(net, rng)
    x = plan.inputs(rng, ROWS)
    name, function, target = loss_of(plan, rng, flow(plan, parameters, x).output)
    frozen = [layer for layer in net.layers if layer.parameters and rng.random() < 0.2]
    for layer in frozen:
        layer.trainable = False

    def objective(of: Parameters) -> Any:
        return function(flow(plan, of, x).output, target)

    config = loom.TrainingConfig(
        epochs=1, batch_size=ROWS, learning_rate=1.0, optimizer="sgd", loss=name, verbose=False
    )
    found = net.evaluate((x, target), loss=name)["loss"]
    assert found == pytest.approx(float(objective(parameters)), rel=1e-9)
    result = net.fit((x, target), config, observe=bool(rng.random() < 0.3))
    assert result.loss_history[0] == pytest.approx(float(objective(parameters)), rel=1e-9)
    moved = {path: parameters[path] - values for path, values in net.state_dict().items()}
    for layer in frozen:
        for part in layer.parameters:
            assert not moved[f"{layer.path}.{part}"].any()
    trained = {p: v for p, v in parameters.items() if not p.startswith(tuple(f"{f.path}." for f in frozen))}
    check_gradients(rng, lambda of: objective({**parameters, **of}), trained, moved)


@seeds(25)
def test_a_session_of_a_grid(seed: int) -> None:
    """What comes piece by piece is what the sequence so far makes, or the session is refused."""
    rng = np.random.default_rng([seed, 10])
    plan = draw(rng, kind="sequence")
    net = plan.build(seed=seed)
    parameters = parameters_of(net, rng)
    layers = [layer for cell in plan.cells for layer in cell]
    along_time = any(
        link.axis == 0 and len(shape) == 2
        for link in plan.links
        for shape in [shapes(plan)[1][link.source]]
        if link.combine == "concat"
    )
    if along_time or any(isinstance(layer, loom.nn.Flatten) or takes_context(layer) for layer in layers):
        with pytest.raises((loom.StateError, loom.ShapeError)):
            net.session(9, rows=ROWS)(np.zeros((ROWS, 5, plan.input_shape[1])))
        return
    x = rng.normal(size=(ROWS, 9, plan.input_shape[1]))
    session = net.session(9, rows=ROWS)
    for start, end in [(0, 1), (1, 4), (4, 9)]:
        expected = flow(plan, parameters, x[:, :end]).output
        if len(net.output_shape) == 2:
            expected = expected[:, start:]
        np.testing.assert_allclose(session(x[:, start:end]), expected, rtol=1e-9, atol=1e-12)


# Learning by targets


@seeds(30)
def test_targets_in_a_grid(seed: int) -> None:
    """Chain-rule targets, gaps, and two local steps toward them, each by its formula."""
    rng = np.random.default_rng([seed, 4])
    plan = draw(rng)
    net = plan.build(seed=seed)
    parameters = parameters_of(net, rng)
    x = plan.inputs(rng, ROWS)
    passed = flow(plan, parameters, x)
    name, function, target = loss_of(plan, rng, passed.output)
    steps, scale, rate = int(rng.integers(1, 3)), 0.25, 0.5
    config = loom.TweenConfig(
        base_rate=rate,
        momentum=0.0,
        gradient_scale=scale,
        depth_scale="none",
        local_steps=steps,
        detect_explosions=False,
    )
    state = loom.TweenState(net, config, name)
    assert state.step(x, target) == pytest.approx(float(function(passed.output, target)), rel=1e-9)

    paths = list(passed.layers)
    last = paths[-1]
    number = max(cell for cell, layers in enumerate(plan.cells) if layers)
    ends = not any(link.target > number for link in plan.links)
    absorbed = ends and isinstance(plan.cells[number][-1], loom.nn.Softmax) and name != "mse"
    gradients = {path: gradient_of_output(plan, parameters, x, path, function, target) for path in paths}
    targets = {path: passed.layers[path] - scale * ROWS * gradients[path] for path in paths}
    # The last layer, and the one below a softmax that is one with the loss, have the real target.
    compared = paths[len(paths) - 1 - absorbed :] if ends else []
    for path, found in zip(paths, state.backward_targets, strict=True):
        wanted = one_hot(target, passed.output) if path in compared else targets[path]
        np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-9)
    for path, got in zip(paths[: len(paths) - absorbed], state.chain_gradients, strict=True):
        np.testing.assert_allclose(got, gradients[path], rtol=1e-7, atol=1e-9)
    below = layers_below_indices(plan)
    for path, gap in zip(paths, state.gaps, strict=True):
        distance = passed.layers[path] - targets[path]
        if path in compared:
            distance = meaning(name, absorbed, passed.output) - one_hot(target, passed.output)
        expected = float("nan") if path in below else float(np.sqrt((distance**2).mean()))
        assert gap == pytest.approx(expected, rel=1e-6, abs=1e-9, nan_ok=True), path

    def local(step: int, path: str) -> Callable[[Parameters], Any]:
        """A layer's own loss: the first step's is the network's, later ones go toward the target."""

        def own(of: Parameters) -> Any:
            made = flow(plan, {**parameters, **of}, x)
            if step == 0:
                return function(made.output, target)
            if ends and path == last:
                return function(made.layers[path], target)
            if absorbed and path == paths[-2]:
                return function(plan_tail(plan, made.layers[path]), target)
            return ((made.layers[path] - targets[path]) ** 2).sum() / (2 * scale * ROWS)

        return own

    current: dict[str, Array] = dict(parameters)
    for step in range(steps):
        moved = {}
        for path in paths:
            at = {key: values for key, values in current.items() if key.startswith(path + ".")}
            for key, values in at.items():
                moved[key] = values - rate * elementwise(local(step, path), at, key)
        current.update(moved)
    for key, values in net.state_dict().items():
        np.testing.assert_allclose(values, current[key], rtol=1e-6, atol=1e-8, err_msg=key)


def layers_below_indices(plan: Plan) -> list[str]:
    """Nothing comes back to them, so that nothing is measured."""
    paths = [
        (plan.path(cell, place), layer)
        for cell, layers in enumerate(plan.cells)
        for place, layer in enumerate(layers)
    ]
    embeddings = [number for number, (_, layer) in enumerate(paths) if isinstance(layer, loom.nn.Embedding)]
    return [path for path, _ in paths[: embeddings[0] if embeddings else 0]]


def elementwise(function: Callable[[Parameters], Any], at: Parameters, name: str) -> Array:
    """The gradient with respect to one array."""
    gradient = np.zeros(at[name].shape)
    for index in np.ndindex(*gradient.shape):
        along = np.zeros(gradient.shape)
        along[index] = 1.0
        gradient[index] = derivative(function, at, {name: along})
    return gradient


def plan_tail(plan: Plan, logits: Array) -> Array:
    """What the softmax at the end makes of what the layer before it has made."""
    last = [layer for cell in plan.cells for layer in cell][-1]
    assert isinstance(last, loom.nn.Softmax)
    powers = np.exp((logits - logits.real.max(axis=-1, keepdims=True)) / last.temperature)
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def gradient_of_output(
    plan: Plan, parameters: Parameters, x: Array, path: str, function: Callable[..., Any], target: Array
) -> Array:
    """The gradient of the loss with respect to what a layer made, element by element."""
    at = {"moved": np.zeros(flow(plan, parameters, x).layers[path].shape)}

    def objective(of: Parameters) -> Any:
        return function(flow(plan, parameters, x, {path: of["moved"]}).output, target)

    return elementwise(objective, at, "moved")


def meaning(name: str, absorbed: bool, output: Array) -> Array:
    if name == "cross_entropy" and not absorbed:
        powers = np.exp(output - output.max(axis=-1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
    return output


def one_hot(target: Array, output: Array) -> Array:
    return target if target.shape == output.shape else np.eye(output.shape[-1])[target]


# Tick by tick


def cells_match(mesh: loom.Mesh, clock: Clock, age: int = 0) -> None:
    for cell in range(len(clock.plan.cells)):
        found = mesh.output(clock.plan.at(cell), age=age)
        np.testing.assert_allclose(found, clock.hands_on(cell), rtol=1e-9, atol=1e-12, err_msg=f"cell {cell}")


@seeds(30)
def test_what_a_mesh_holds(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng([seed, 5])
    plan = draw(rng, clocked=True, loops=bool(rng.random() < 0.7))
    net = plan.build(seed=seed)
    parameters = parameters_of(net, rng)
    window = int(rng.integers(0, 4))
    mesh = loom.Mesh(net, rows=ROWS, window=window)
    clock = Clock(plan, parameters, ROWS)
    past: list[list[Array]] = []
    for tick in range(6):
        if tick == 0 or rng.random() < 0.5:
            x = plan.inputs(rng, ROWS)
            mesh.set_input(x)
        mesh.tick()
        clock.tick(x)
        cells_match(mesh, clock)
        for layer in net.layers:
            np.testing.assert_allclose(mesh[layer.at], clock.held[layer.path], rtol=1e-9, atol=1e-12)
        past.append([clock.hands_on(cell) for cell in range(len(plan.cells))])
        age = int(rng.integers(0, min(tick, window) + 1))
        for cell, held in enumerate(past[-1 - age]):
            np.testing.assert_allclose(mesh.output(plan.at(cell), age=age), held, rtol=1e-9, atol=1e-12)
        if tick == 3:
            # Replacing the input moves nothing before the next tick.
            mesh.set_input(plan.inputs(rng, ROWS))
            cells_match(mesh, clock)
            mesh.set_input(x)
        if tick == 4:
            mesh.save(tmp_path / "mesh.loom")
            again = loom.Mesh.load(tmp_path / "mesh.loom")
            for age in range(min(tick, window) + 1):
                for cell in range(len(plan.cells)):
                    at = plan.at(cell)
                    np.testing.assert_array_equal(again.output(at, age=age), mesh.output(at, age=age))
            mesh = again
            net = mesh.network
    np.testing.assert_array_equal(mesh.output(), mesh.output(plan.at(len(plan.cells) - 1)))
    mesh.reset()
    assert not any(mesh.output(plan.at(cell)).any() for cell in range(len(plan.cells)))


@seeds(20)
def test_a_mesh_without_loops_settles_at_what_is_predicted(seed: int) -> None:
    rng = np.random.default_rng([seed, 6])
    plan = draw(rng, clocked=True)
    net = plan.build(seed=seed)
    parameters_of(net, rng)
    x = plan.inputs(rng, ROWS)
    mesh = loom.Mesh(net, rows=ROWS)
    mesh.set_input(x)
    mesh.tick(mesh.layers)
    np.testing.assert_array_equal(mesh.output(), net.predict(x))


@seeds(25)
def test_gradients_of_a_mesh(seed: int) -> None:
    rng = np.random.default_rng([seed, 7])
    plan = draw(rng, clocked=True, loops=bool(rng.random() < 0.7))
    net = plan.build(seed=seed)
    parameters = parameters_of(net, rng)
    window = int(rng.integers(1, 5))
    shown = np.stack([plan.inputs(rng, ROWS) for _ in range(window)])
    clock = Clock(plan, parameters, ROWS)
    # A gradient for some cells at some ticks, for the last one at the newest at least.
    given: dict[tuple[int, ...], list[Array | None]] = {}
    for cell in range(len(plan.cells)):
        last = cell == len(plan.cells) - 1
        if last or rng.random() < 0.3:
            shape = clock.hands_on(cell).shape
            parts = [rng.normal(size=shape) if rng.random() < 0.5 else None for _ in range(window - 1)]
            given[plan.at(cell)] = [*parts, rng.normal(size=shape)]

    def objective(of: Parameters) -> Any:
        clock = Clock(plan, of, ROWS)
        total: Any = 0.0
        for tick in range(window):
            clock.tick(of["x"][tick])
            for cell in range(len(plan.cells)):
                part = given.get(plan.at(cell), [None] * window)[tick]
                if part is not None:
                    total = total + (clock.hands_on(cell) * part).sum()
        return total

    mesh = loom.Mesh(net, rows=ROWS, window=window)
    for x in shown:
        mesh.set_input(x)
        mesh.tick()
    to_input = mesh.backward(given)
    found = {f"{layer.path}.{name}": g for layer in net.layers for name, g in layer.gradients.items()}
    if plan.vocabulary is None:
        check_gradients(rng, objective, {**parameters, "x": shown}, {**found, "x": to_input})
    else:
        check_gradients(rng, lambda of: objective({**of, "x": shown}), parameters, found)


@seeds(25)
def test_a_step_of_a_mesh(seed: int) -> None:
    """What a stream of two samples teaches: the mean gradient of their losses through all ticks."""
    rng = np.random.default_rng([seed, 8])
    plan = draw(rng, clocked=True, loops=bool(rng.random() < 0.7))
    net = plan.build(seed=seed)
    parameters = parameters_of(net, rng)
    ticks = int(rng.integers(1, 4))
    samples = [plan.inputs(rng, ROWS) for _ in range(2)]
    # The last cell, or any: but one that hands on the input alone teaches nothing.
    cell = len(plan.cells) - 1
    if rng.random() < 0.3:
        cell = int(rng.integers(min(number for number, layers in enumerate(plan.cells) if layers), cell + 1))
    rest = Clock(plan, parameters, ROWS).hands_on(cell)
    targets = [rng.normal(size=rest.shape) for _ in samples]

    def objective(of: Parameters) -> Any:
        clock = Clock(plan, of, ROWS)
        losses = []
        for x, target in zip(samples, targets, strict=True):
            for _ in range(ticks):
                clock.tick(x)
            losses.append(mse(clock.hands_on(cell), target))
        return sum(losses) / len(losses)

    mesh = loom.Mesh(net, rows=ROWS, window=2 * ticks)
    config = loom.TrainingConfig(learning_rate=1.0, optimizer="sgd", verbose=False)
    tween = loom.TweenConfig(
        optimizer="sgd", depth_scale="none", detect_explosions=False, local_steps=1, base_rate=1.0
    )
    result = loom.train_stepping(
        mesh,
        zip(samples, targets, strict=True),
        config,
        ticks=ticks,
        update_every=2,
        output=None if cell == len(plan.cells) - 1 else plan.at(cell),
        tween=tween if rng.random() < 0.3 else None,
        observe=False,
    )
    assert result.updates == 1
    assert np.mean(result.losses) == pytest.approx(float(objective(parameters)), rel=1e-9)
    moved = {path: parameters[path] - values for path, values in net.state_dict().items()}
    check_gradients(rng, objective, parameters, moved)


# On a GPU


@seeds(4)
def test_a_grid_on_a_gpu(seed: int, gpu: str) -> None:
    rng = np.random.default_rng([seed, 9])
    plan = draw(rng, clocked=True, loops=seed % 2 == 1)
    nets = [plan.build("float32", seed) for _ in range(2)]
    parameters_of(nets[0], np.random.default_rng(seed))
    nets[1].load_state_dict(nets[0].state_dict())
    nets[1].to(gpu)
    x = plan.inputs(rng, ROWS)
    close = {"rtol": 1e-4, "atol": 1e-5}
    weights = None
    if seed % 2 == 0:
        outputs = [net.predict(x) for net in nets]
        np.testing.assert_allclose(outputs[1], outputs[0], **close)
        weights = rng.normal(size=outputs[0].shape).astype(np.float32)
        to_input = []
        for net in nets:
            net.forward(x)
            to_input.append(net.backward(weights))
        np.testing.assert_allclose(to_input[1], to_input[0], **close)
    else:
        meshes = [loom.Mesh(net, rows=ROWS, window=3) for net in nets]
        for mesh in meshes:
            mesh.set_input(x)
            mesh.tick(4)
        for cell in range(len(plan.cells)):
            for age in range(3):
                held = [mesh.output(plan.at(cell), age=age) for mesh in meshes]
                np.testing.assert_allclose(held[1], held[0], **close)
        weights = rng.normal(size=meshes[0].output().shape).astype(np.float32)
        to_input = [mesh.backward(weights) for mesh in meshes]
        np.testing.assert_allclose(to_input[1], to_input[0], **close)
    for ours, theirs in zip(nets[0].layers, nets[1].layers, strict=True):
        for name, gradient in ours.gradients.items():
            np.testing.assert_allclose(theirs.gradients[name], gradient, **close)
