"""The manual loop: gradients against finite differences, updates against their definition."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import activations, losses, nn
from networks import blobs, cnn, mlp, quiet, weights

Make = Callable[[], loom.Network]


def sequential(shape: tuple[int, ...], *layers: nn.Layer) -> Make:
    return lambda: loom.Sequential(layers, input_shape=shape, precision="float64", seed=3)


LAYERS: dict[str, Make] = {
    "dense": sequential((5,), nn.Dense(4, activation="tanh"), nn.Dense(6), nn.Dense(3)),
    "dense on the last axis": sequential((3, 5), nn.Dense(4, activation="silu"), nn.Flatten(), nn.Dense(3)),
    "convolution": sequential(
        (2, 6, 5), nn.Conv2D(4, 3, padding=1, activation="tanh"), nn.Conv2D(3, 2), nn.Flatten(), nn.Dense(3)
    ),
    "strided, dilated, grouped": sequential(
        (4, 9, 8),
        nn.Conv2D(4, 3, padding="same", activation="tanh"),
        nn.Conv2D(8, (3, 2), stride=(2, 1), dilation=(1, 2), groups=2, activation="softplus"),
        nn.Flatten(),
        nn.Dense(3),
    ),
    "max pooling": sequential((2, 6, 6), nn.Conv2D(3, 3), nn.MaxPool2D(2), nn.Flatten(), nn.Dense(3)),
    "padded pooling": sequential(
        (2, 7, 7),
        nn.Conv2D(3, 3),
        nn.MaxPool2D(3, stride=2, padding=1),
        nn.AvgPool2D(2, padding=1, count_include_pad=False),
        nn.Flatten(),
        nn.Dense(3),
    ),
    "average pooling": sequential(
        (2, 6, 6), nn.Conv2D(3, 3), nn.AvgPool2D(2), nn.GlobalAvgPool2D(), nn.Dense(3)
    ),
    "reshape": sequential(
        (12,), nn.Dense(12), nn.Reshape((3, 2, 2)), nn.Conv2D(2, 2), nn.Flatten(), nn.Dense(3)
    ),
    "softmax": sequential((5,), nn.Dense(6), nn.Softmax(temperature=0.7), nn.Dense(3)),
    **{
        f"activation {name}": sequential((5,), nn.Dense(6), nn.Activation(name), nn.Dense(3))
        for name in activations.names()
    },
}


@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_gradients_match_central_differences(make: Make) -> None:
    net = make()
    random = np.random.default_rng(5)
    x = random.normal(size=(4, *net.input_shape))
    y = random.integers(0, 3, 4)

    def loss() -> float:
        return losses.cross_entropy(net.predict(x), y)[0]

    inwards = net.backward(losses.cross_entropy(net.forward(x), y)[1])
    gradients = {(layer.at, name): grad for layer in net.layers for name, grad in layer.gradients.items()}
    assert gradients
    for (at, name), gradient in gradients.items():
        layer = net[at]
        values = layer[name].copy()

        def at_changed(changed: NDArray[Any], layer: Any = layer, name: str = name) -> float:
            layer[name] = changed
            return loss()

        _compare(gradient, values, at_changed, random)
        layer[name] = values

    def with_input(changed: NDArray[Any]) -> float:
        return losses.cross_entropy(net.predict(changed), y)[0]

    _compare(inwards, x, with_input, random)


def _compare(
    gradient: NDArray[Any],
    values: NDArray[Any],
    loss: Callable[[NDArray[Any]], float],
    random: np.random.Generator,
) -> None:
    """Compares some elements of a gradient with central differences of fourth order."""
    assert gradient.shape == values.shape
    flat = random.choice(values.size, size=min(12, values.size), replace=False)
    step = 1e-4
    for index in (np.unravel_index(place, values.shape) for place in flat):
        sides = []
        for shift in (-2, -1, 1, 2):
            changed = values.copy()
            changed[index] += shift * step
            sides.append(loss(changed))
        numeric = (sides[0] - 8 * sides[1] + 8 * sides[2] - sides[3]) / (12 * step)
        assert gradient[index] == pytest.approx(numeric, rel=1e-6, abs=1e-9)


def test_the_manual_loop_learns_as_training_does() -> None:
    x, y = blobs()
    trained, manual = (
        loom.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(3)], input_shape=6) for _ in "ab"
    )
    result = loom.train(trained, (x, y), quiet(epochs=3, batch_size=50, shuffle=False, gradient_clip=0.5))
    manual.set_optimizer(loom.AdamW())
    for _ in range(3):
        total = 0.0
        for start in range(0, 300, 50):
            rows = slice(start, start + 50)
            loss, gradient = losses.cross_entropy(manual.forward(x[rows]), y[rows])
            manual.backward(gradient)
            manual.clip_gradients(0.5)
            manual.apply_gradients(1e-3)
            total += loss / 6
    assert total == pytest.approx(result.final_loss, rel=1e-6)
    for name, values in trained.state_dict().items():
        np.testing.assert_allclose(manual.state_dict()[name], values, rtol=1e-5, atol=1e-7)


def test_gradients_add_up_until_they_are_applied_or_zeroed() -> None:
    net = mlp(precision="float64")
    x = blobs()[0][:8]

    def one_pass() -> dict[str, NDArray[Any]]:
        net.forward(x, training=True)
        net.backward(np.ones((8, 3)))
        return net[0, 0, 1, 0].gradients

    once = one_pass()["bias"].copy()
    np.testing.assert_array_equal(once, np.full(3, 8.0))
    np.testing.assert_array_equal(one_pass()["bias"], 2 * once)
    net.zero_gradients()
    assert not net[0, 0, 1, 0].gradients["bias"].any()
    one_pass()
    net.set_optimizer(loom.SGD())
    before = net[0, 0, 1, 0].bias
    net.apply_gradients(0.5)
    np.testing.assert_allclose(net[0, 0, 1, 0].bias, before - 0.5 * once, rtol=1e-12)
    assert not net[0, 0, 1, 0].gradients["bias"].any()
    np.testing.assert_array_equal(one_pass()["bias"], once)


def test_clipping_scales_all_gradients_together() -> None:
    net = cnn(precision="float64")
    net.forward(np.random.default_rng(0).normal(size=(5, 1, 8, 8)))
    net.backward(np.random.default_rng(1).normal(size=(5, 4)))

    def flat() -> NDArray[Any]:
        return np.concatenate([grad.ravel() for layer in net.layers for grad in layer.gradients.values()])

    before = flat()
    norm = float(np.linalg.norm(before))
    assert net.clip_gradients(2 * norm) == pytest.approx(norm, rel=1e-12)
    np.testing.assert_array_equal(flat(), before)
    assert net.clip_gradients(norm / 4) == pytest.approx(norm, rel=1e-12)
    np.testing.assert_allclose(flat(), before / 4, rtol=1e-12)


def test_gradient_stats_describe_each_layer() -> None:
    net = mlp(precision="float64")
    net.forward(blobs()[0][:16])
    net.backward(np.full((16, 3), 1e4))
    first, last = net.gradient_stats()
    assert (first.path, last.path, last.kind) == ("0.0.0.0", "0.0.1.0", "dense")
    flat = np.concatenate([gradient.ravel() for gradient in net[0, 0, 1, 0].gradients.values()])
    assert (last.min, last.max) == (flat.min(), flat.max())
    assert last.mean == pytest.approx(flat.mean(), rel=1e-9)
    assert last.norm == pytest.approx(np.linalg.norm(flat), rel=1e-12)
    assert last.exploding
    assert not last.vanishing
    net.zero_gradients()
    net.forward(blobs()[0][:16])
    net.backward(np.full((16, 3), 1e-12))
    assert all(layer.vanishing and not layer.exploding for layer in net.gradient_stats())


def test_dropout_works_in_training_only_and_differs_from_step_to_step() -> None:
    net = loom.Sequential([nn.Dropout(0.5)], input_shape=1000)
    x = np.ones((1, 1000), np.float32)
    np.testing.assert_array_equal(net.forward(x, training=False), x)
    np.testing.assert_array_equal(net.predict(x), x)
    dropped = net.forward(x)
    assert set(np.unique(dropped)) == {0.0, 2.0}
    assert 0.4 < np.mean(dropped == 0) < 0.6
    np.testing.assert_array_equal(net.backward(x), dropped)


def test_the_duration_of_a_forward_pass_is_there() -> None:
    net = mlp()
    assert net.last_forward_time is None
    for training in (True, False):
        net.forward(blobs()[0], training=training)
        assert net.last_forward_time is not None
        assert 0 < net.last_forward_time < 10


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda net: net.backward(np.zeros((2, 3))), loom.StateError, "needs a forward pass"),
        (lambda net: net.apply_gradients(0.1), loom.StateError, "call backward first"),
        (lambda net: net.clip_gradients(1.0), loom.StateError, "call backward first"),
        (lambda net: net.gradient_stats(), loom.StateError, "call backward first"),
        (lambda net: net[0, 0, 0, 0].activation, loom.StateError, "no forward pass"),
    ],
)
def test_calls_out_of_order_are_refused(call: Any, error: type, message: str) -> None:
    net = mlp()
    before = weights(net)
    with pytest.raises(error, match=message):
        call(net)
    assert weights(net) == before


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda net: net.backward(np.zeros((3, 3))), loom.ShapeError, "3 rows, the forward pass had 2"),
        (lambda net: net.backward(np.zeros((2, 4))), loom.ShapeError, r"expected \(batch, 3"),
        (lambda net: net.backward(np.full((2, 3), np.nan)), loom.NonFiniteError, "gradient holds NaN"),
        (lambda net: net.backward(np.zeros((2, 3), complex)), loom.DTypeError, "gradient: expected real"),
        (lambda net: net.apply_gradients(-0.1), loom.ConfigError, "learning_rate"),
        (lambda net: net.apply_gradients(float("nan")), loom.ConfigError, "learning_rate"),
        (lambda net: net.clip_gradients(0), loom.ConfigError, "max_norm"),
        (lambda net: net.set_optimizer("adamm"), loom.ConfigError, 'did you mean "adam'),
    ],
)
def test_bad_arguments_change_nothing(call: Any, error: type, message: str) -> None:
    net = mlp()
    net.forward(np.ones((2, 6)))
    net.backward(np.ones((2, 3)))
    before, gradient = weights(net), net[0, 0, 1, 0].gradients["weight"]
    with pytest.raises(error, match=message):
        call(net)
    assert weights(net) == before
    np.testing.assert_array_equal(net[0, 0, 1, 0].gradients["weight"], gradient)


def test_backward_after_the_weights_moved_is_refused() -> None:
    net = mlp()
    net.forward(np.ones((2, 6)))
    net[0, 0, 0, 0].bias = np.ones(24)
    with pytest.raises(loom.StateError, match="weights have moved"):
        net.backward(np.ones((2, 3)))


def test_gradients_are_written_as_a_table() -> None:
    net = mlp()
    x, _ = blobs()
    net.backward(1e6 * net.forward(x))
    stats = net.gradient_stats()
    assert isinstance(stats, list)
    written = io.StringIO()
    stats.print(written)
    for layer in stats:
        (line,) = [line for line in written.getvalue().splitlines() if layer.path in line]
        assert {f"{layer.norm:.4g}", layer.kind} <= set(line.split())
        assert ("exploding" in line) == layer.exploding


def test_the_optimizer_can_be_read() -> None:
    net = mlp()
    assert net.optimizer is None
    net.set_optimizer("adamw")
    assert net.optimizer == loom.AdamW()
    net.set_optimizer(loom.SGD(momentum=0.5))
    assert net.optimizer == loom.SGD(momentum=0.5)
    loom.train(net, blobs(), quiet(optimizer=loom.RMSprop(alpha=0.5), device="cpu"))
    assert net.optimizer == loom.RMSprop(alpha=0.5)
    loom.TweenTrainer(net).fit(blobs(), quiet(device="cpu"))
    assert net.optimizer is None


def test_a_file_keeps_the_optimizer(tmp_path: Path) -> None:
    net = mlp()
    loom.train(net, blobs(), quiet(optimizer=loom.Lion(beta1=0.8), device="cpu"))
    for optimizer, expected in ((True, loom.Lion(beta1=0.8)), (False, None)):
        net.save(tmp_path / "net.loom", optimizer=optimizer)
        assert loom.load(tmp_path / "net.loom").optimizer == expected


def test_no_clipping_is_also_said_with_zero() -> None:
    config = quiet(epochs=2, gradient_clip=0, device="cpu")
    assert config.gradient_clip is None
    assert config == quiet(epochs=2, device="cpu")


@pytest.mark.parametrize("factor", [1.1, 0.7])
def test_the_rate_grows_with_depth_by_a_number(factor: float) -> None:
    """Plain descent: the changes of a layer grow by the factor to the power of its number."""
    x, y = blobs()
    changes = {}
    for scale in ("none", "geometric", factor):
        net = mlp()
        before = net.state_dict()
        config = quiet(
            optimizer=loom.SGD(), learning_rate=1e-2, depth_scale=scale, batch_size=len(x), device="cpu"
        )
        loom.train(net, (x, y), config)
        changes[scale] = {name: values - before[name] for name, values in net.state_dict().items()}
        assert loom.TrainingConfig.from_config(config.to_config()) == config
    places = {layer.path: number for number, layer in enumerate(net.layers)}
    for name, change in changes["none"].items():
        scaled = change * factor ** places[name.rpartition(".")[0]]
        np.testing.assert_allclose(changes[factor][name], scaled, rtol=2e-2, atol=1e-6)
    if factor == 1.1:
        assert all((changes["geometric"][name] == change).all() for name, change in changes[1.1].items())


def test_a_tween_step_has_a_rate_of_its_own() -> None:
    x, y = blobs()
    nets = [mlp(), mlp()]
    states = [loom.TweenState(net, loss="cross_entropy") for net in nets]
    states[0].step(x, y, rate=0.05)
    states[1].forward(x)
    states[1].backward(y)
    states[1].measure()
    states[1].apply(0.05)
    assert weights(nets[0]) == weights(nets[1])
    before = weights(nets[0])
    states[0].step(x, y, rate=0.0)
    # What is left of the velocity moves on; the rate of one step is for that step.
    assert weights(nets[0]) != before
    assert states[0].adaptive_rate == states[0].config.base_rate
    with pytest.raises(loom.ConfigError, match="rate must be"):
        states[0].step(x, y, rate=-1.0)
    assert loom.TweenConfig(depth_scale=1.02).depth_scale == 1.02
    with pytest.raises(loom.ConfigError, match="depth_scale must be a finite number above 0"):
        loom.TweenConfig(depth_scale=0.0)
