"""Learning by targets: what is set, what is refused, what can be looked at."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import Observe, TweenConfig, TweenState, nn
from networks import Arrays, blobs, cnn, stripes, weights

MODES = ("chain_rule", "layerwise", "difference", "difference_reconstruction")


def mlp(seed: int = 0, precision: str = "float32") -> loom.Network:
    layers = [nn.Dense(12, activation="tanh"), nn.Dense(8, activation="tanh"), nn.Dense(3)]
    return loom.Sequential(layers, input_shape=6, precision=precision, seed=seed)


def batch(rows: int = 20) -> Arrays:
    x, y = blobs(rows)
    return x, y


# Settings


def test_presets() -> None:
    assert TweenConfig.tween() == TweenConfig()
    assert (TweenConfig().link_budget, TweenConfig().depth_scale) == ("gain", "inv_sqrt")
    assert (TweenConfig().base_rate, TweenConfig().momentum, TweenConfig().gradient_scale) == (0.01, 0.9, 0.1)
    propagation = TweenConfig.target_prop(local_steps=2)
    assert (propagation.link_budget, propagation.depth_scale) == ("alignment", "geometric")
    assert propagation.local_steps == 2
    assert TweenConfig.target_prop(depth_scale="none").depth_scale == "none"


@pytest.mark.parametrize(
    "config",
    [
        TweenConfig(),
        TweenConfig.target_prop(),
        TweenConfig(
            mode="difference", optimizer=loom.Adam(beta1=0.8), feedback_optimizer="rmsprop", history=5
        ),
        Observe(),
        Observe(history=3, detect_explosions=True, link_budget="alignment"),
    ],
)
def test_settings_to_json_and_back(config: TweenConfig | Observe) -> None:
    assert type(config).from_config(json.loads(json.dumps(config.to_config()))) == config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "chainrule"}, 'did you mean "chain_rule"'),
        ({"local_steps": 0}, "local_steps must be a positive whole number, got 0"),
        ({"base_rate": -1}, "base_rate must be a finite number at least 0"),
        ({"momentum": 1.0}, "momentum must be a finite number at least 0 and below 1"),
        ({"gradient_scale": 0}, "gradient_scale must be a finite number above 0"),
        ({"gap_metric": "l1"}, "Known: mse, rms"),
        ({"link_budget": "gains"}, 'did you mean "gain"'),
        ({"link_budget_scale": math.nan}, "link_budget_scale"),
        ({"depth_scale": "linear"}, "depth_scale"),
        ({"activation_clamp": -1}, "activation_clamp"),
        ({"detect_explosions": 1}, "detect_explosions must be True or False"),
        ({"gap_threshold": -0.1}, "gap_threshold"),
        ({"explosion_limit": 1.0}, "explosion_limit must be a finite number above 1"),
        ({"recovery_rate": 1.5}, "recovery_rate must be a finite number above 0 and at most 1"),
        ({"optimizer": "momentum"}, "unknown optimizer"),
        ({"target_rate": 0}, "target_rate"),
        ({"feedback_optimizer": "sdg"}, 'did you mean "sgd"'),
        ({"feedback_rate": -1}, "feedback_rate"),
        ({"feedback_noise": math.inf}, "feedback_noise"),
        ({"feedback_steps": 0}, "feedback_steps"),
        ({"feedback_schedule": "epochs"}, "feedback_schedule"),
        ({"history": 0}, "history must be a positive whole number"),
        ({"history_limit": 1}, "history_limit must be a whole number of at least 2"),
        ({"mode": "difference_reconstruction", "feedback_noise": 0}, "feedback_noise must be above 0"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    for make in (TweenConfig, TweenConfig.tween, TweenConfig.target_prop):
        with pytest.raises(loom.ConfigError) as caught:
            make(**settings)
        assert message in str(caught.value)
    if set(settings) <= set(Observe().to_config()):
        with pytest.raises(loom.ConfigError, match="Observe"):
            Observe(**settings)


def test_an_unknown_setting_is_named() -> None:
    with pytest.raises(loom.ConfigError, match='did you mean "base_rate"'):
        TweenConfig.tween(base_rat=1.0)


def test_a_learning_rate_that_is_given_replaces_the_base_rate() -> None:
    config = TweenConfig(base_rate=0.07)
    assert TweenState(mlp(), config).adaptive_rate == 0.07
    assert TweenState(mlp(), config, loom.TrainingConfig(learning_rate=0.02)).adaptive_rate == 0.02
    assert TweenState(mlp(), config, loom.TrainingConfig(learning_rate=1e-3)).adaptive_rate == 1e-3


# Calls


@pytest.mark.parametrize("mode", MODES)
def test_four_calls_are_a_step(mode: str) -> None:
    x, y = batch()
    whole, parts = (TweenState(mlp(), TweenConfig(mode=mode), "cross_entropy") for _ in range(2))
    for _ in range(3):
        loss = whole.step(x, y)
        assert parts.forward(x).shape == (20, 3)
        assert parts.backward(y) == loss
        parts.measure()
        assert parts.apply()
    assert weights(whole.network) == weights(parts.network)
    assert whole.steps == 3
    np.testing.assert_array_equal(whole.loss_history, parts.loss_history)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [TweenConfig.tween, TweenConfig.target_prop])
def test_every_mode_learns(mode: str, make: Callable[..., TweenConfig]) -> None:
    x, y = batch(90)
    state = TweenState(mlp(), make(mode=mode, base_rate=0.05), "cross_entropy")
    losses = [state.step(x, y) for _ in range(60)]
    assert losses[-1] < 0.5 * losses[0]


def test_a_network_in_which_nothing_is_recurrent_has_no_cell_gaps() -> None:
    state = TweenState(mlp())
    assert np.isnan(state.gaps).all()
    assert math.isnan(state.mean_gap)
    state.step(*blobs_as_values())
    assert np.isfinite(state.gaps).all()
    assert np.isnan(state.cell_gaps).all()
    assert np.isnan(state.reconstruction_errors).all()
    assert state.mean_gap == pytest.approx(state.gaps.mean(), rel=1e-6)


def blobs_as_values() -> Arrays:
    x, y = batch()
    return x, np.eye(3)[y]


@pytest.mark.parametrize("mode", ["chain_rule", "layerwise"])
@pytest.mark.parametrize("layer", [nn.LSTM(5), nn.GRU(5)], ids=["lstm", "gru"])
def test_gated_layers_report_the_gap_of_their_cell_state_too(layer: nn.Layer, mode: str) -> None:
    net = loom.Sequential([layer, nn.Dense(2)], input_shape=(4, 3))
    state = TweenState(net, TweenConfig(mode=mode))
    state.step(np.random.default_rng(0).normal(size=(6, 4, 3)), np.zeros((6, *net.output_shape)))
    assert state.gaps[0] > 0
    assert state.cell_gaps[0] > 0
    assert math.isnan(state.cell_gaps[1])


@pytest.mark.parametrize("loss", ["binary_cross_entropy", "binary_focal"])
def test_the_last_gap_of_yes_and_no_is_that_of_probabilities(loss: str) -> None:
    net = loom.Sequential([nn.Dense(4), nn.Dense(2)], input_shape=3, precision="float64", seed=1)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(9, 3)), rng.integers(0, 2, (9, 2)).astype(float)
    state = TweenState(net, loss=loss)
    state.step(x, y)
    probabilities = 1 / (1 + np.exp(-state.forward_acts[-1]))
    assert state.gaps[-1] == pytest.approx(np.sqrt(np.mean((probabilities - y) ** 2)))


def test_velocities_are_named_by_layer() -> None:
    state = TweenState(loom.Sequential([nn.LSTM(5), nn.Dense(2)], input_shape=(4, 3)))
    state.step(np.ones((2, 4, 3)), np.zeros((2, *state.network.output_shape)))
    lstm, dense = state.weight_velocity["0.0.0.0"], state.weight_velocity["0.0.0.1"]
    assert isinstance(lstm, dict)
    assert isinstance(dense, np.ndarray)
    assert {name: values.shape for name, values in lstm.items()} == {
        name: values.shape
        for name, values in state.network.layers[0].parameters.items()
        if "bias" not in name
    }
    assert dense.shape == (2, 5)
    assert np.abs(dense).max() > 0
    biases = state.bias_velocity["0.0.0.1"]
    assert isinstance(biases, np.ndarray)
    assert biases.shape == (2,)
    adam = TweenState(mlp(), TweenConfig(optimizer="adam"))
    adam.step(*blobs_as_values())
    with pytest.raises(loom.InvalidValueError, match="velocity"):
        _ = adam.weight_velocity


def test_an_optimizer_instead_of_momentum() -> None:
    x, y = batch(90)
    state = TweenState(mlp(), TweenConfig(optimizer=loom.Adam(), base_rate=0.01), "cross_entropy")
    losses = [state.step(x, y) for _ in range(60)]
    assert losses[-1] < 0.3 * losses[0]


def test_a_gated_layer_is_not_updated() -> None:
    net = mlp(precision="float64")
    before = weights(net)
    config = TweenConfig(link_budget="alignment", link_budget_scale=0.19)
    state = TweenState(net, config)
    for _ in range(3):
        state.step(*blobs_as_values())
    assert weights(net) == before
    assert (state.link_budgets < 0.2).all()


def test_layerwise_keeps_targets_where_weights_are_next_to_nothing() -> None:
    net = mlp(precision="float64")
    weight = np.array(net.layers[1].weight)
    weight[:, 3] = 1e-4
    net.layers[1].weight = weight
    state = TweenState(net, TweenConfig(mode="layerwise"))
    x, y = blobs_as_values()
    state.forward(0.05 * x)
    state.backward(y)
    same = (state.backward_targets[0] == state.forward_acts[0]).all(axis=0)
    np.testing.assert_array_equal(np.flatnonzero(same), [3])
    assert np.abs(state.backward_targets[0]).max() <= 0.95


def test_a_rate_of_one_s_own() -> None:
    x, y = blobs_as_values()
    slow, fast = (TweenState(mlp(precision="float64"), TweenConfig(momentum=0.0)) for _ in range(2))
    moves = []
    for state, rate in ((slow, 0.001), (fast, 0.004)):
        before = np.array(state.network.layers[0].weight)
        state.forward(x)
        state.backward(y)
        state.measure()
        assert state.apply(rate)
        moves.append(state.network.layers[0].weight - before)
    np.testing.assert_allclose(moves[1], 4 * moves[0], rtol=0, atol=1e-15)


def test_sample_weights_count() -> None:
    x, y = batch()
    keep = (np.arange(20) < 10).astype(np.float64)
    some, all_of_them = (TweenState(mlp(precision="float64"), loss="cross_entropy") for _ in range(2))
    assert some.step(x, y, weight=keep) == pytest.approx(all_of_them.step(x[:10], y[:10]), rel=1e-12)
    for layer, other in zip(some.network.layers, all_of_them.network.layers, strict=True):
        np.testing.assert_allclose(layer.weight, other.weight, rtol=0, atol=1e-12)


def test_weights_that_are_set_between_steps_count() -> None:
    x, y = blobs_as_values()
    state = TweenState(mlp(precision="float64"))
    state.step(x, y)
    state.network.layers[0].trainable = False
    state.network.layers[1].weight = state.network.layers[1].weight * 0.5
    kept, velocity = np.array(state.network.layers[0].weight), state.weight_velocity["0.0.0.1"]
    state.step(x, y)
    np.testing.assert_array_equal(state.network.layers[0].weight, kept)
    assert state.steps == 2
    assert np.abs(velocity).max() > 0  # type: ignore[arg-type]


# Refused


def test_calls_out_of_order() -> None:
    x, y = blobs_as_values()
    state = TweenState(mlp())
    for call, before in (
        (lambda: state.backward(y), "forward"),
        (state.measure, "backward"),
        (state.apply, "measure"),
        (lambda: state.forward_acts, "forward"),
        (lambda: state.backward_targets, "backward"),
    ):
        with pytest.raises(loom.StateError, match=f"call {before} first"):
            call()
    state.forward(x)
    with pytest.raises(loom.StateError, match="call backward first"):
        state.measure()
    state.backward(y)
    with pytest.raises(loom.StateError, match="call measure first"):
        state.apply()
    state.measure()
    state.apply()
    with pytest.raises(loom.StateError):
        state.apply()


def test_weights_moved_between_forward_and_backward() -> None:
    x, y = blobs_as_values()
    state = TweenState(mlp())
    state.forward(x)
    state.network.layers[0].weight = np.zeros((12, 6))
    with pytest.raises(loom.StateError, match="call forward again"):
        state.backward(y)


def test_only_chain_rule_has_chain_gradients() -> None:
    state = TweenState(mlp(), TweenConfig(mode="layerwise"))
    state.step(*blobs_as_values())
    with pytest.raises(loom.StateError, match="chain_rule"):
        _ = state.chain_gradients


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda state: state.forward(np.ones((2, 5))), loom.ShapeError),
        (lambda state: state.forward(np.full((2, 6), np.nan)), loom.NonFiniteError),
        (lambda state: state.forward([["a"] * 6]), loom.DTypeError),
        (lambda state: state.forward(np.empty((0, 6))), loom.LoomError),
        (lambda state: state.step(np.ones((2, 6)), np.array([0, 3])), loom.InvalidValueError),
        (lambda state: state.step(np.ones((2, 6)), np.array([0, 1, 1])), loom.LoomError),
        (lambda state: state.step(np.ones((2, 6)), np.zeros((2, 4))), loom.ShapeError),
        (lambda state: state.step(np.ones((2, 6)), np.array([0.5, 1])), loom.DTypeError),
        (lambda state: state.step(np.ones((2, 6)), [0, 1], weight=[1, -1]), loom.InvalidValueError),
        (lambda state: state.step(np.ones((2, 6)), [0, 1], weight=[0, 0]), loom.InvalidValueError),
        (lambda state: state.step(np.ones((2, 6)), [0, 1], weight=[1]), loom.LoomError),
        (lambda state: state.apply(-1.0), loom.ConfigError),
        (lambda state: state.apply("fast"), loom.ConfigError),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(
    call: Callable[[TweenState], Any], error: type[Exception]
) -> None:
    x, y = batch()
    state = TweenState(mlp(), loss="cross_entropy")
    state.step(x, y)
    before = weights(state.network)
    with pytest.raises(error):
        call(state)
    assert weights(state.network) == before
    assert np.isfinite(state.step(x, y))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TweenState(mlp(), {"mode": "layerwise"}), "must be a loom.TweenConfig"),  # type: ignore[arg-type]
        (lambda: TweenState(mlp(), loss="cross"), "unknown loss"),
        (lambda: TweenState(mlp(), resume="yes"), "resume must be True or False"),  # type: ignore[arg-type]
        (lambda: loom.TweenTrainer(mlp(), Observe()), "must be a loom.TweenConfig"),  # type: ignore[arg-type]
        (lambda: loom.TweenTrainer(mlp()).fit(batch(), TweenConfig()), "TrainingConfig"),  # type: ignore[arg-type]
        (lambda: loom.Trainer(mlp(), observe="all"), "observe must be True, False or a loom.Observe"),  # type: ignore[arg-type]
        (lambda: loom.train(mlp(), batch(), observe=TweenConfig()), "observe must be"),  # type: ignore[arg-type]
    ],
)
def test_bad_arguments(make: Callable[[], object], message: str) -> None:
    with pytest.raises(loom.ConfigError) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize("mode", ["difference", "difference_reconstruction"])
def test_a_layer_without_a_feedback_map_is_named(mode: str) -> None:
    net = loom.Sequential([nn.Dense(6), nn.LayerNorm(), nn.Dense(3)], input_shape=6)
    with pytest.raises(loom.StateError, match=r"0\.0\.0\.1|\(0, 0, 0\)"):
        TweenState(net, TweenConfig(mode=mode))


# Feedback maps


def test_feedback_maps_are_read_and_set() -> None:
    state = TweenState(mlp(), TweenConfig(mode="difference"))
    assert list(state.feedback) == ["0.0.0.1"]
    feedback = state.feedback["0.0.0.1"]
    assert set(feedback) == {"weight", "bias"}
    assert feedback["weight"].shape == (12, 8)
    feedback["weight"] = np.full((12, 8), 0.25)
    np.testing.assert_array_equal(state.feedback["0.0.0.1"]["weight"], np.full((12, 8), 0.25))
    assert "0.0.0.2" not in state.feedback
    with pytest.raises(ValueError, match="read-only"):
        feedback["weight"][0, 0] = 1
    with pytest.raises(loom.ConfigError, match="feedback map"):
        _ = state.feedback["0.0.0.2"]
    with pytest.raises(loom.ConfigError, match='did you mean "weight"'):
        _ = feedback["weights"]
    with pytest.raises(loom.ShapeError):
        feedback["weight"] = np.zeros((8, 12))
    with pytest.raises(loom.NonFiniteError):
        feedback["bias"] = np.full(12, np.inf)
    assert len(TweenState(mlp()).feedback) == 0


@pytest.mark.parametrize("mode", ["difference", "difference_reconstruction"])
def test_a_convolutional_network_has_feedback_maps(mode: str) -> None:
    net = loom.Sequential(
        [
            nn.Conv2D(4, kernel_size=3, padding=1, activation="tanh"),
            nn.Conv2D(6, kernel_size=3, activation="tanh"),
            nn.MaxPool2D(2),
            nn.Flatten(),
            nn.Dense(8, activation="tanh"),
            nn.Dense(4),
        ],
        input_shape=(1, 8, 8),
    )
    x, y = stripes(64)
    state = TweenState(net, TweenConfig(mode=mode, base_rate=0.02, feedback_rate=0.01), "cross_entropy")
    losses = [state.step(x, y) for _ in range(40)]
    assert losses[-1] < losses[0]
    assert {"0.0.0.1", "0.0.0.4"} <= set(state.feedback)
    assert np.isfinite(state.reconstruction_errors[[1, 4]]).all()


# Report


def test_a_report_says_how_targets_pass_and_where_little_gets_through() -> None:
    state = TweenState(cnn(), TweenConfig(mode="layerwise"), "cross_entropy")
    x, y = stripes(32)
    state.step(x, y)
    report = state.report()
    assert [layer.path for layer in report] == list(state.layers)
    assert [layer.kind for layer in report] == [
        "conv2d",
        "max_pool2d",
        "conv2d",
        "global_avg_pool2d",
        "dense",
    ]
    assert {layer.targets for layer in report} <= {"rule", "unchanged", "stopped"}
    assert report[4].targets == "rule"
    np.testing.assert_allclose([layer.gap for layer in report], state.gaps)
    for layer in report:
        assert layer.bottleneck == (layer.mean_budget < 0.5)
        assert (f"bottleneck: layer {layer.path} ({layer.kind})" in str(report)) == layer.bottleneck
    assert str(report).splitlines()[0].split()[:3] == ["layer", "kind", "targets"]


def test_a_bottleneck_is_below_a_half_on_average_over_the_history() -> None:
    net = mlp()
    net.layers[1].weight = net.layers[1].weight * 0.05
    state = TweenState(net, TweenConfig(history=1, base_rate=0.0))
    for _ in range(4):
        state.step(*blobs_as_values())
    means = state.history.link_budgets.mean(axis=0)
    np.testing.assert_allclose([layer.mean_budget for layer in state.report()], means)
    assert "0.0.0.1" in {layer.path for layer in state.report().bottlenecks}


# History


def test_history_is_strided_and_bounded() -> None:
    x, y = blobs_as_values()
    state = TweenState(mlp(), TweenConfig(history=2, history_limit=8))
    gaps = []
    for _ in range(50):
        state.step(x, y)
        gaps.append(state.gaps)
    history = state.history
    assert 2 <= len(history) <= 8
    stride = history.steps[1] - history.steps[0]
    np.testing.assert_array_equal(history.steps, np.arange(len(history)) * stride)
    np.testing.assert_array_equal(history.gaps, np.array(gaps)[history.steps])
    assert history.alignments.shape == history.gains.shape == history.link_budgets.shape == history.gaps.shape
    assert len(state.loss_history) == 50
    assert history.layers == state.layers
    nothing = TweenState(mlp())
    nothing.step(x, y)
    assert len(nothing.history) == 0
    assert nothing.history.gaps.shape == (0, 3)


def test_heat_maps_show_steps_by_layer_and_explosions(tmp_path: Path) -> None:
    x, y = blobs_as_values()
    state = TweenState(mlp(), TweenConfig(history=1, explosion_limit=1.5))
    for number in range(10):
        state.forward(x)
        state.backward(y)
        state.measure()
        state.apply(50.0 if number == 5 else None)
    assert state.explosion_count == 1
    figure = loom.plot.tween(state, tmp_path / "tween.png")
    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == ["gap, 1 explosion", "link budget, 1 explosion"]
    np.testing.assert_array_equal(panels[1].collections[0].get_array(), state.history.link_budgets.T)
    assert [line.get_xdata()[0] for line in panels[0].lines] == [6]
    assert (tmp_path / "tween.png").stat().st_size > 1000
    loom.plot.tween(state.network)
    with pytest.raises(loom.DataError, match=r"no history was kept; .*observe=loom\.Observe\(history=1\)"):
        loom.plot.tween(mlp())


def test_a_last_softmax_is_one_with_the_loss() -> None:
    layers = [nn.Dense(12, activation="tanh"), nn.Dense(3)]
    logits = loom.Sequential(layers, input_shape=6, precision="float64")
    softmax = loom.Sequential([*layers, nn.Softmax()], input_shape=6, precision="float64")
    x, y = batch()
    config = TweenConfig(depth_scale="none")
    first, second = (TweenState(net, config, "cross_entropy") for net in (logits, softmax))
    for _ in range(3):
        assert first.step(x, y) == pytest.approx(second.step(x, y), rel=1e-12)
    assert [len(first.chain_gradients), len(second.chain_gradients)] == [2, 2]
    assert [len(second.forward_acts), len(second.backward_targets)] == [3, 3]
    np.testing.assert_allclose(second.chain_gradients[1], first.chain_gradients[1], rtol=0, atol=1e-12)
    np.testing.assert_allclose(second.gaps[[0, 2]], first.gaps, rtol=1e-9)
    np.testing.assert_allclose(second.forward_acts[2].sum(axis=1), 1.0)
