"""Learning by targets against a plain NumPy transcription of its formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies
from numpy.typing import NDArray

import loom
from loom import TweenConfig, TweenState, nn
from tween_reference import ACTIVATIONS, Layer, Reference

MODES = ("chain_rule", "layerwise", "difference", "difference_reconstruction")
TOLERANCE = {"float64": 1e-10, "float32": 1e-6}
Array = NDArray[Any]


def network(activation: str, precision: str, seed: int = 3, softmax: bool = False) -> loom.Network:
    """Dense 5-7-6-4, with biases that are not zero, and a softmax layer if asked for."""
    layers = [nn.Dense(7, activation=activation), nn.Dense(6, activation=activation), nn.Dense(4)]
    last = [nn.Softmax()] if softmax else []
    net = loom.Sequential([*layers, *last], input_shape=5, precision=precision, seed=seed)
    random = np.random.default_rng(seed)
    for layer in net.layers[:3]:
        layer.weight = random.normal(0, 0.6, layer.weight.shape)
        layer.bias = random.normal(0, 0.2, layer.bias.shape)
    return net


def data(loss: str, rows: int, seed: int = 4) -> tuple[Array, Array, Array]:
    """Samples, targets as one gives them, and targets as rows of numbers; all exact in float32."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 5)).astype(np.float32).astype(np.float64)
    if loss == "cross_entropy":
        classes = random.integers(0, 4, rows)
        return x, classes, np.eye(4)[classes]
    values = random.normal(size=(rows, 4)).astype(np.float32).astype(np.float64)
    return x, values, values


def transcribed(net: loom.Network, loss: str, config: TweenConfig) -> Reference:
    layers = [
        Layer(layer.weight.astype(np.float64), layer.bias.astype(np.float64), str(layer.config.activation))  # type: ignore[attr-defined]
        for layer in net.layers
        if layer.kind == "dense"
    ]
    return Reference(layers, loss, config, softmax=len(layers) < len(net.layers))


def set_feedback(state: TweenState, reference: Reference, seed: int = 6) -> None:
    """Gives both the same feedback map of the middle layer, the only one that learns."""
    (path,) = state.feedback
    assert path == "0.0.0.1"
    feedback = state.feedback[path]
    weight_name = next(name for name in feedback if name.endswith("weight"))
    bias_name = next(name for name in feedback if name.endswith("bias"))
    random = np.random.default_rng(seed)
    weight = random.normal(0, 0.5, (7, 6)).astype(np.float32).astype(np.float64)
    bias = random.normal(0, 0.1, 7).astype(np.float32).astype(np.float64)
    feedback[weight_name], feedback[bias_name] = weight, bias
    activation = ACTIVATIONS[reference.layers[1].activation][0]
    if reference.config.mode == "difference":
        reference.layers[1].feedback = lambda y: activation(y @ weight.T + bias)
    else:
        # What has the transposed Jacobian is linear in the activation's derivative, so that comes first.
        reference.layers[1].feedback = lambda y: np.asarray(activation(y) @ weight.T + bias)


def close(found: object, expected: object, tolerance: float, what: str) -> None:
    expected = np.asarray(expected, np.float64)
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(
        np.asarray(found, np.float64), expected, rtol=0, atol=tolerance * scale, err_msg=what
    )


def compare(state: TweenState, reference: Reference, tolerance: float) -> None:
    """Everything that a step leaves."""
    found = [(state.forward_acts, reference.outputs), (state.backward_targets, reference.targets)]
    if reference.config.mode == "chain_rule":
        found.append((state.chain_gradients, reference.gradients))
    for made, wanted in found:
        assert len(made) == len(wanted)
        for i, values in enumerate(made):
            close(values, wanted[i], tolerance, f"layer {i}")
    for name, expected in {
        "gaps": reference.gaps,
        "alignments": reference.alignments,
        "gains": reference.gains,
        "link_budgets": reference.budgets,
        "prev_avg_gap": reference.prev_avg_gap,
        "gap_growth_rate": reference.growth,
        "explosion_count": reference.explosions,
        "adaptive_rate": reference.adaptive_rate,
        "loss_history": reference.losses,
    }.items():
        close(getattr(state, name), expected, tolerance, name)
    learned = [layer for layer in state.network.layers if layer.kind == "dense"]
    for layer, expected_layer in zip(learned, reference.layers, strict=True):
        for name, moved, expected_values in (
            ("weight", layer.weight, expected_layer.weight),
            ("bias", layer.bias, expected_layer.bias),
            ("weight velocity", state.weight_velocity[layer.path], expected_layer.velocity),
            ("bias velocity", state.bias_velocity[layer.path], expected_layer.bias_velocity),
        ):
            close(moved, expected_values, tolerance, f"{name} of {layer.path}")


def both(
    activation: str, loss: str, precision: str, config: TweenConfig
) -> tuple[TweenState, Reference, float]:
    net = network(activation, precision)
    state = TweenState(net, config, loss)
    reference = transcribed(net, loss, config)
    if config.mode.startswith("difference"):
        set_feedback(state, reference)
    return state, reference, TOLERANCE[precision]


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("rows", [1, 64])
@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("preset", [TweenConfig.tween, TweenConfig.target_prop])
@pytest.mark.parametrize("mode", MODES)
def test_every_step_is_the_formulas(
    mode: str, preset: Any, activation: str, loss: str, rows: int, precision: str
) -> None:
    config = preset(mode=mode, base_rate=0.02, feedback_rate=0.0)
    state, reference, tolerance = both(activation, loss, precision, config)
    x, y, target = data(loss, rows)
    for _ in range(4):
        state.step(x, y)
        reference.step(x, target)
        compare(state, reference, tolerance)


def check_below_a_softmax(config: TweenConfig, loss: str, precision: str, device: str = "cpu") -> None:
    net = network("tanh", precision, softmax=True)
    state = TweenState(net, config, loom.TrainingConfig(loss=loss, device=device))
    reference = transcribed(net, "cross_entropy", config)
    if config.mode.startswith("difference"):
        set_feedback(state, reference)
    x, y, target = data("cross_entropy", 24)
    for _ in range(4):
        state.step(x, y)
        reference.step(x, target)
        compare(state, reference, 1e-5 if device != "cpu" else TOLERANCE[precision])


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("loss", ["cross_entropy", "nll"])
@pytest.mark.parametrize("local_steps", [1, 3])
@pytest.mark.parametrize("preset", [TweenConfig.tween, TweenConfig.target_prop])
@pytest.mark.parametrize("mode", MODES)
def test_below_a_softmax_layer_too_every_step_is_the_formulas(
    mode: str, preset: Any, local_steps: int, loss: str, precision: str
) -> None:
    """The logits' gap is that of what they mean, as the softmax layer's own is."""
    config = preset(mode=mode, local_steps=local_steps, base_rate=0.02, feedback_rate=0.0)
    check_below_a_softmax(config, loss, precision)


@pytest.mark.parametrize("preset", [TweenConfig.tween, TweenConfig.target_prop])
@pytest.mark.parametrize("mode", MODES)
def test_below_a_softmax_layer_on_a_gpu_every_step_is_the_formulas(mode: str, preset: Any, gpu: str) -> None:
    check_below_a_softmax(preset(mode=mode, base_rate=0.02, feedback_rate=0.0), "nll", "float32", gpu)


def check_observed(softmax: bool, device: str) -> None:
    net = network("tanh", "float32", softmax=softmax)
    config = TweenConfig(mode="chain_rule")
    reference = transcribed(net, "cross_entropy", config)
    training = loom.TrainingConfig(loss="cross_entropy", device=device)
    trainer = loom.Trainer(net, training, observe=True)
    x, y, target = data("cross_entropy", 24)
    trainer.step(x, y)
    reference.forward(x)
    reference.backward(target)
    reference.measure()
    close(net.measures.gaps, reference.gaps, 1e-5, "gaps")
    close(net.measures.alignments, reference.alignments, 1e-5, "alignments")
    close(net.measures.gains, reference.gains, 1e-5, "gains")


@pytest.mark.parametrize("softmax", [False, True])
def test_backpropagation_that_is_observed_has_the_same_measures(softmax: bool) -> None:
    check_observed(softmax, "cpu")


@pytest.mark.parametrize("softmax", [False, True])
def test_backpropagation_that_is_observed_on_a_gpu_has_the_same_measures(softmax: bool, gpu: str) -> None:
    check_observed(softmax, gpu)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("mode", MODES)
def test_several_local_steps_are_the_formulas(mode: str, loss: str, activation: str) -> None:
    config = TweenConfig.target_prop(mode=mode, local_steps=3, base_rate=0.02, feedback_rate=0.0)
    state, reference, tolerance = both(activation, loss, "float64", config)
    x, y, target = data(loss, 64)
    for _ in range(4):
        state.step(x, y)
        reference.step(x, target)
        compare(state, reference, tolerance)


@pytest.mark.parametrize("mode", MODES)
def test_settings_other_than_the_presets(mode: str) -> None:
    config = TweenConfig(
        mode=mode,
        depth_scale="none",
        gap_metric="mse",
        link_budget="alignment",
        link_budget_scale=0.7,
        momentum=0.5,
        gradient_scale=0.3,
        activation_clamp=0.4,
        target_rate=1.7,
        base_rate=0.03,
        feedback_rate=0.0,
    )
    state, reference, tolerance = both("relu", "mse", "float64", config)
    x, y, target = data("mse", 10)
    for _ in range(4):
        state.step(x, y)
        reference.step(x, target)
        compare(state, reference, tolerance)


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("local_steps", [1, 3])
@pytest.mark.parametrize("mode", ["chain_rule", "layerwise"])
def test_an_explosion_is_taken_back_as_the_formulas_say(mode: str, local_steps: int, precision: str) -> None:
    config = TweenConfig(mode=mode, base_rate=0.02, local_steps=local_steps, explosion_limit=3.0)
    state, reference, _ = both("relu", "mse", precision, config)
    # The disturbance multiplies float32's rounding errors, too.
    tolerance = {"float64": 1e-10, "float32": 1e-5}[precision]
    x, y, target = data("mse", 64)
    explosions = []
    for number in range(12):
        rate = 40.0 / local_steps if number == 4 else None
        state.forward(x)
        state.backward(y)
        state.measure()
        applied = state.apply(rate)
        reference.step(x, target, rate)
        assert applied is not reference.exploded
        explosions += [number] if reference.exploded else []
        if number == 5:
            # What an exploded network makes is far beyond float32's digits.
            close(state.gap_growth_rate / reference.growth, 1.0, 100 * tolerance, "growth")
        else:
            compare_after_explosion(state, reference, tolerance)
    assert explosions == [5]
    np.testing.assert_array_equal(state.history.explosions, [5])


def compare_after_explosion(state: TweenState, reference: Reference, tolerance: float) -> None:
    for layer, expected in zip(state.network.layers, reference.layers, strict=True):
        close(layer.weight, expected.weight, tolerance, layer.path)
        close(state.weight_velocity[layer.path], expected.velocity, tolerance, layer.path)
    close(state.adaptive_rate, reference.adaptive_rate, tolerance, "adaptive rate")
    close(state.prev_avg_gap, reference.prev_avg_gap, tolerance, "previous gap")


def test_targets_as_indices_and_as_rows_are_the_same() -> None:
    x, classes, rows = data("cross_entropy", 20)
    found = []
    for target in (classes, rows):
        state = TweenState(network("tanh", "float64"), TweenConfig(), "cross_entropy")
        found.append(([state.step(x, target) for _ in range(3)], state))
    assert found[0][0] == found[1][0]
    np.testing.assert_array_equal(found[0][1].gaps, found[1][1].gaps)
    np.testing.assert_array_equal(found[0][1].backward_targets[-1], rows)


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
def test_one_local_step_by_the_chain_rule_is_sgd_with_momentum(loss: str) -> None:
    x, y, _ = data(loss, 60)
    training = loom.TrainingConfig(
        epochs=5,
        batch_size=16,
        learning_rate=0.05,
        loss=loss,
        optimizer=loom.SGD(momentum=0.9),
        seed=2,
        verbose=False,
    )
    plain, tweened = network("tanh", "float64"), network("tanh", "float64")
    loom.train(plain, (x, y), training)
    fit(tweened, TweenConfig(depth_scale="none", detect_explosions=False), (x, y), training)
    for layer, other in zip(plain.layers, tweened.layers, strict=True):
        close(other.weight, layer.weight, 1e-12, layer.path)
        close(other.bias, layer.bias, 1e-12, layer.path)


def fit(net: loom.Network, config: TweenConfig, examples: Any, training: loom.TrainingConfig) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", loom.BottleneckWarning)
        loom.TweenTrainer(net, config).fit(examples, training)


def test_transposed_feedback_on_a_linear_network_gives_the_gradient_s_direction() -> None:
    """With G = W^T, differences carry the gradient of the layer below the last back exactly."""
    layers = [nn.Dense(units) for units in (9, 8, 7, 6, 4)]
    net = loom.Sequential(layers, input_shape=5, precision="float64", seed=1)
    config = TweenConfig(
        mode="difference", depth_scale="none", momentum=0.0, feedback_rate=0.0, detect_explosions=False
    )
    state = TweenState(net, config)
    assert list(state.feedback) == ["0.0.0.1", "0.0.0.2", "0.0.0.3"]
    for layer in net.layers[1:-1]:
        feedback = state.feedback[layer.path]
        feedback["weight"], feedback["bias"] = layer.weight.T, np.zeros(layer.weight.shape[1])
    x, y, _ = data("mse", 32)
    before = [np.array(layer.weight) for layer in net.layers]
    net.set_optimizer("sgd")
    output = net.forward(x)
    net.backward(loom.losses.mse(output, y)[1])
    gradients = [np.array(layer.gradients["weight"]) for layer in net.layers]
    net.zero_gradients()
    state.step(x, y)
    for layer, old, gradient in zip(net.layers, before, gradients, strict=True):
        move = layer.weight - old
        cosine = -(move * gradient).sum() / np.sqrt((move**2).sum() * (gradient**2).sum())
        assert cosine > 0.999999, layer.path


def test_inverses_learn() -> None:
    config = TweenConfig(
        mode="difference", base_rate=0.0, feedback_rate=0.05, feedback_noise=0.1, feedback_steps=5
    )
    state = TweenState(network("tanh", "float64"), config)
    x, y, _ = data("mse", 64)
    errors = []
    for _ in range(100):
        state.step(x, y)
        errors.append(state.reconstruction_errors)
    table = np.array(errors)
    assert np.isnan(table[:, [0, 2]]).all()
    assert table[-10:, 1].mean() < 0.6 * table[:3, 1].mean()


def test_feedback_maps_learn_the_transposed_jacobian() -> None:
    """Of a linear layer that is the transposed weight, wherever the map starts."""
    config = TweenConfig(
        mode="difference_reconstruction",
        base_rate=0.0,
        feedback_rate=0.02,
        feedback_noise=0.5,
        feedback_steps=10,
    )
    net = network("linear", "float64")
    state = TweenState(net, config)
    x, y, _ = data("mse", 64)
    for _ in range(60):
        state.step(x, y)
    wanted, found = net.layers[1].weight.T, state.feedback["0.0.0.1"]["weight"]
    close(found, wanted, 0.1, "feedback map")
    assert (found * wanted).sum() / np.sqrt((found**2).sum() * (wanted**2).sum()) > 0.995


def test_centred_rmsprop_with_epsilon_in_the_root_is_graves_rule() -> None:
    """m = .95 m + .05 g; v = .95 v + .05 g^2; u = .9 u - rate g / sqrt(v - m^2 + 1e-3); w += u."""
    rule = loom.RMSprop(alpha=0.95, epsilon=1e-3, momentum=0.9, centered=True, epsilon_in_root=True)
    net = network("tanh", "float64")
    config = TweenConfig(optimizer=rule, depth_scale="none", base_rate=0.01)
    state, reference = TweenState(net, config), transcribed(net, "mse", config)
    x, y, target = data("mse", 16)
    memory = [[np.zeros_like(values) for _ in range(3)] for values in parameters(reference)]
    for _ in range(5):
        state.step(x, y)
        reference.forward(x)
        reference.backward(target)
        gradients = [g for i in range(3) for g in reference.local_gradient(i)]
        for values, gradient, (m, v, u) in zip(parameters(reference), gradients, memory, strict=True):
            m[...] = 0.95 * m + 0.05 * gradient
            v[...] = 0.95 * v + 0.05 * gradient**2
            u[...] = 0.9 * u - 0.01 * gradient / np.sqrt(v - m**2 + 1e-3)
            values += u
        for layer, expected in zip(net.layers, reference.layers, strict=True):
            close(layer.weight, expected.weight, 1e-10, layer.path)
            close(layer.bias, expected.bias, 1e-10, layer.path)


def parameters(reference: Reference) -> list[Array]:
    return [values for layer in reference.layers for values in (layer.weight, layer.bias)]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(drawn=strategies.data())
def test_networks_of_any_size_follow_the_formulas(drawn: strategies.DataObject) -> None:
    def draw(least: int, most: int) -> int:
        return drawn.draw(strategies.integers(least, most))

    def pick(*choices: Any) -> Any:
        return drawn.draw(strategies.sampled_from(choices))

    extents = [draw(1, 18) for _ in range(draw(2, 6))]
    layers = [nn.Dense(units, activation=pick("tanh", "relu", "linear")) for units in extents[1:]]
    net = loom.Sequential(layers, input_shape=extents[0], precision="float64", seed=draw(0, 99))
    config = TweenConfig(
        mode=pick("chain_rule", "layerwise"),
        local_steps=draw(1, 3),
        base_rate=0.01,
        momentum=pick(0.0, 0.9),
        gap_metric=pick("rms", "mse"),
        link_budget=pick("gain", "alignment"),
        depth_scale=pick("none", "geometric", "inv_sqrt"),
        detect_explosions=pick(True, False),
    )
    state, reference = TweenState(net, config), transcribed(net, "mse", config)
    random = np.random.default_rng(draw(0, 99))
    for _ in range(3):
        rows = draw(1, 40)
        x, y = random.normal(size=(rows, extents[0])), random.normal(size=(rows, extents[-1]))
        # A layer that is dead has no gain.
        assume(all((output != 0).any() for output in outputs(reference, x)))
        state.step(x, y)
        reference.step(x, y)
        compare(state, reference, 1e-10)


def outputs(reference: Reference, x: Array) -> list[Array]:
    reference.forward(x)
    return reference.outputs


@pytest.mark.parametrize("units", [(4,), (7, 4)])
@pytest.mark.parametrize("mode", MODES)
def test_networks_too_short_for_feedback_maps_learn_in_every_mode(mode: str, units: tuple[int, ...]) -> None:
    layers = [nn.Dense(count, activation="tanh") for count in units]
    net = loom.Sequential(layers, input_shape=5, precision="float64")
    config = TweenConfig(mode=mode)
    state, reference = TweenState(net, config), transcribed(net, "mse", config)
    x, y, target = data("mse", 12)
    for _ in range(4):
        state.step(x, y)
        reference.step(x, target)
        compare(state, reference, 1e-10)
    assert len(state.feedback) == 0


@pytest.mark.parametrize("gap_metric", ["rms", "mse"])
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_inverses_learn_by_the_formulas(activation: str, gap_metric: str) -> None:
    """Without noise, G learns ||G(a_i) - a_(i-1)||^2; the targets of its batch come from before it has."""
    config = TweenConfig(
        mode="difference",
        base_rate=0.02,
        feedback_rate=0.03,
        feedback_noise=0.0,
        feedback_steps=2,
        feedback_optimizer=loom.SGD(momentum=0.5),
        gap_metric=gap_metric,
    )
    net = network(activation, "float64")
    state, reference = TweenState(net, config), transcribed(net, "mse", config)
    feedback = state.feedback["0.0.0.1"]
    weight, bias = np.array(feedback["weight"]), np.array(feedback["bias"])
    moments = [np.zeros_like(weight), np.zeros_like(bias)]
    function, derivative = ACTIVATIONS[activation]
    reference.layers[1].feedback = lambda y: function(y @ weight.T + bias)
    x, y, target = data("mse", 30)
    for _ in range(4):
        state.step(x, y)
        reference.step(x, target)
        wanted, given_output = reference.outputs[0], reference.outputs[1]
        for number in range(2):
            made = given_output @ weight.T + bias
            square = ((function(made) - wanted) ** 2).mean()
            if number == 0:
                error = np.sqrt(square) if gap_metric == "rms" else square
                close(state.reconstruction_errors[1], error, 1e-10, "reconstruction error")
            delta = 2 * (function(made) - wanted) / 30 * derivative(made)
            for values, moment, gradient in (
                (weight, moments[0], delta.T @ given_output),
                (bias, moments[1], delta.sum(axis=0)),
            ):
                moment[...] = 0.5 * moment + gradient
                values -= 0.03 * moment
        compare(state, reference, 1e-10)
        close(feedback["weight"], weight, 1e-10, "feedback weight")
        close(feedback["bias"], bias, 1e-10, "feedback bias")


def test_several_feedback_maps_follow_the_formulas() -> None:
    config = TweenConfig(mode="difference", base_rate=0.02, feedback_rate=0.0)
    extents = (9, 8, 7, 6, 4)
    net = loom.Sequential(
        [nn.Dense(units, activation="tanh") for units in extents], input_shape=5, precision="float64"
    )
    state, reference = TweenState(net, config), transcribed(net, "mse", config)
    assert list(state.feedback) == ["0.0.0.1", "0.0.0.2", "0.0.0.3"]
    for layer, mapped in zip(net.layers[1:-1], reference.layers[1:-1], strict=True):
        feedback = state.feedback[layer.path]
        weight, bias = np.array(feedback["weight"]), np.array(feedback["bias"])
        mapped.feedback = lambda y, weight=weight, bias=bias: np.tanh(y @ weight.T + bias)  # type: ignore[misc]
    x, y, target = data("mse", 21)
    for _ in range(4):
        state.step(x, y)
        reference.step(x, target)
        compare(state, reference, 1e-10)


def test_learned_jacobians_turn_tanh_networks_updates_toward_the_gradient() -> None:
    """Layers that are reached through feedback maps: at random before the maps learn, nearly right after."""
    units = (16, 16, 16, 4)
    layers = [nn.Dense(count, activation="tanh") for count in units[:-1]]
    net = loom.Sequential([*layers, nn.Dense(4)], input_shape=12, precision="float64")
    config = TweenConfig(
        mode="difference_reconstruction",
        base_rate=0.0,
        momentum=0.0,
        depth_scale="none",
        target_rate=0.01,
        feedback_rate=0.5,
        feedback_steps=5,
    )
    state = TweenState(net, config)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(64, 12)), random.normal(size=(64, 4))
    before = direction_cosines(state, x, y)
    for _ in range(100):
        state.step(random.normal(size=(64, 12)), y)
    after = direction_cosines(state, x, y)
    assert min(after[:2]) > 0.97 > 0.5 > max(before[:2])
    assert min(after[2:]) > 0.999999


def direction_cosines(state: TweenState, x: Array, y: Array) -> list[float]:
    """The cosine of each layer's update with the gradient of backpropagation; moves nothing."""
    net = state.network
    before = [np.array(layer.weight) for layer in net.layers]
    state.forward(x)
    state.backward(y)
    state.measure()
    assert state.apply(1e-3)
    moves = [layer.weight - old for layer, old in zip(net.layers, before, strict=True)]
    for layer, old in zip(net.layers, before, strict=True):
        layer.weight = old
    net.backward(loom.losses.mse(net.forward(x), y)[1])
    gradients = [layer.gradients["weight"] for layer in net.layers]
    net.zero_gradients()
    return [
        float(-(move * gradient).sum() / np.sqrt((move**2).sum() * (gradient**2).sum()))
        for move, gradient in zip(moves, gradients, strict=True)
    ]
