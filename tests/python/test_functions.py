"""Functions of one's own in Python: layers and losses, against the built-in ones that they are."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import losses, nn
from loom.errors import ConfigError, InvalidValueError, ShapeError

RNG = np.random.default_rng(7)


class Tanh(nn.Function, name="test_tanh"):
    def forward(self, ctx: nn.FunctionContext, x: np.ndarray) -> np.ndarray:
        ctx.y = np.tanh(x)
        return ctx.y

    def backward(self, ctx: nn.FunctionContext, dy: np.ndarray) -> np.ndarray:
        return (1 - ctx.y**2) * dy


@dataclass(frozen=True)
class Affine(nn.Function, name="test_affine"):
    """A Dense layer by hand."""

    units: int

    def output_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        return (self.units,)

    def parameters(self, input_shape: tuple[int, ...]) -> dict[str, Any]:
        return {"weight": (self.units, input_shape[0]), "bias": {"shape": (self.units,)}, "gain": 1.0}

    def forward(
        self, ctx: nn.FunctionContext, x: np.ndarray, weight: np.ndarray, bias: np.ndarray, gain: np.ndarray
    ) -> np.ndarray:
        ctx.x, ctx.weight, ctx.gain = x, weight, gain
        ctx.made = x @ weight.T + bias
        return gain * ctx.made

    def backward(self, ctx: Any, dy: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        inner = dy * ctx.gain
        gradients = {
            "gain": [(dy * ctx.made).sum()],
            "weight": inner.T @ ctx.x,
            "bias": inner.sum(axis=0),
        }
        return inner @ ctx.weight, gradients


def data(rows: int = 48) -> tuple[np.ndarray, np.ndarray]:
    x = RNG.normal(size=(rows, 5))
    return x, (x.sum(axis=1) > 0).astype(np.int64)


def learned(net: loom.Network, device: str = "cpu", **settings: Any) -> dict[str, np.ndarray]:
    x, y = np.random.default_rng(2).normal(size=(48, 5)), np.random.default_rng(3).integers(0, 3, 48)
    usual: dict[str, Any] = {"epochs": 3, "batch_size": 16, "loss": "cross_entropy", "learning_rate": 0.01}
    config = loom.TrainingConfig(**{**usual, "verbose": False, "device": device, **settings})
    loom.train(net, (x, y), config)
    return {name: np.array(array) for name, array in net.state_dict().items()}


def stack(middle: list[Any], precision: str = "float64") -> loom.Network:
    layers = [nn.Dense(6), *middle, nn.Dense(3)]
    return loom.Sequential(layers, input_shape=5, precision=precision, seed=4)  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [{}, {"accumulate": 2}, {"optimizer": "sgd", "gradient_clip": 0.1}])
def test_a_function_learns_as_the_layer_that_it_is(settings: dict[str, Any]) -> None:
    mine, theirs = (learned(stack([middle]), **settings) for middle in (Tanh(), nn.Activation("tanh")))
    for one, other in zip(mine.values(), theirs.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


def test_parameters_of_a_function_are_trained_as_a_dense_layers_are() -> None:
    mine, theirs = stack([Affine(4)]), stack([nn.Dense(4)])
    mine.build(), theirs.build()
    for name in ("weight", "bias"):
        theirs.layers[1].parameters[name] = np.array(mine.layers[1].parameters[name])
    assert mine.layers[1].parameters["gain"] == [1.0]
    mine.layers[1].trainable = True
    (x, y) = np.random.default_rng(2).normal(size=(48, 5)), np.random.default_rng(3).integers(0, 3, 48)
    for net in (mine, theirs):
        net.forward(x)
        net.backward(losses.cross_entropy(net.predict(x), y)[1])
    for name in ("weight", "bias"):
        np.testing.assert_allclose(
            mine.layers[1].gradients[name], theirs.layers[1].gradients[name], rtol=0, atol=1e-12
        )
    before = np.array(mine.layers[1].parameters["gain"])
    learned(mine)
    assert not np.array_equal(mine.layers[1].parameters["gain"], before)


def test_gradients_are_compared_with_differences() -> None:
    assert loom.check_gradients(Tanh(), (3, 4)) < 1e-8
    assert loom.check_gradients(Affine(4), 5) < 1e-8
    assert loom.check_gradients(nn.LayerNorm(), (4,)) < 1e-6

    class Wrong(nn.Function, name="test_wrong"):
        def forward(self, ctx: Any, x: np.ndarray) -> np.ndarray:
            return x * x

        def backward(self, ctx: Any, dy: np.ndarray) -> np.ndarray:
            return dy

    with pytest.raises(InvalidValueError, match="test_wrong: the gradient of the input at"):
        loom.check_gradients(Wrong(), (2,))
    with pytest.raises(ConfigError, match="takes a layer"):
        loom.check_gradients("tanh", (2,))  # type: ignore[arg-type]


def test_files_hold_names_and_settings(tmp_path: Path) -> None:
    net = stack([Affine(4), Tanh()])
    learned(net)
    net.save(tmp_path / "net.loom")
    again = loom.load(tmp_path / "net.loom")
    x = data()[0]
    assert np.array_equal(again.predict(x), net.predict(x))
    assert again.layers[1].config == Affine(4)
    config = json.loads(net.to_json())
    assert loom.Network.from_config(config).to_json() == net.to_json()
    code = f"import loom; loom.load({str(tmp_path / 'net.loom')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert '"test_affine" is a function of somebody\'s own, and files hold no code' in done.stderr


def test_precisions_and_composites() -> None:
    for precision in ("float32", "float64"):
        net = loom.Sequential(
            [nn.Residual([Tanh(), nn.Dense(5)]), nn.Sequential([Tanh()]), nn.Dense(3)],
            input_shape=5,
            precision=precision,  # type: ignore[arg-type]
        )
        other = loom.Sequential(
            [nn.Residual([nn.Activation("tanh"), nn.Dense(5)]), nn.Activation("tanh"), nn.Dense(3)],
            input_shape=5,
            precision=precision,  # type: ignore[arg-type]
        )
        for one, two in zip(learned(net).values(), learned(other).values(), strict=True):
            np.testing.assert_allclose(one, two, atol=1e-12 if precision == "float64" else 1e-6)


def test_several_threads_predict_at_once() -> None:
    net = stack([Tanh()])
    x = data()[0]
    expected, found = net.predict(x), []
    threads = [threading.Thread(target=lambda: found.append(net.predict(x))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 4
    assert all(np.array_equal(each, expected) for each in found)


def test_errors_come_back_as_they_were_and_nothing_moves() -> None:
    class Failing(nn.Function, name="test_failing"):
        calls = 0

        def forward(self, ctx: Any, x: np.ndarray) -> np.ndarray:
            type(self).calls += 1
            if type(self).calls == 4:
                raise RuntimeError("the fourth")
            return x

        def backward(self, ctx: Any, dy: np.ndarray) -> np.ndarray:
            return dy

    net = stack([Failing()])
    with pytest.raises(RuntimeError, match="the fourth"):
        learned(net, epochs=1, batch_size=8)
    before = {name: np.array(array) for name, array in net.state_dict().items()}
    assert all(np.isfinite(array).all() for array in before.values())
    learned(net, epochs=1)
    with pytest.raises(ShapeError, match=r"Shaped.forward: expected an array of shape \(48, 6\)"):
        stack([shaped("test_bad", (7,))]).predict(data()[0])
    with pytest.raises(NotImplementedError, match="Empty has no forward"):
        stack([type("Empty", (nn.Function,), {}, name="test_empty")()]).predict(data()[0])
    with pytest.raises(ConfigError, match=r"nn\.Function is a base"):
        nn.Function()
    with pytest.raises(ConfigError, match="exists already"):
        type("Other", (nn.Function,), {"__qualname__": "Elsewhere"}, name="test_tanh")


def shaped(name: str, shape: tuple[int, ...]) -> nn.Function:
    def forward(self: object, ctx: object, x: np.ndarray) -> np.ndarray:
        return np.zeros((len(x), *shape))

    return type("Shaped", (nn.Function,), {"forward": forward}, name=name)()  # type: ignore[call-overload]


def absolute(output: np.ndarray, target: np.ndarray) -> tuple[float, np.ndarray]:
    return np.abs(output - target).mean(), np.sign(output - target) / output.size


def squared_by_row(output: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    difference = output - target
    return (difference**2).mean(axis=1), 2 * difference / output.shape[1]


def entropy(output: np.ndarray, target: np.ndarray) -> tuple[float, np.ndarray]:
    return losses.cross_entropy(output, target)


def regression(loss: Any, device: str = "cpu", **settings: Any) -> tuple[list[np.ndarray], dict[str, float]]:
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(40, 5)), rng.normal(size=(40, 2))
    weight = rng.uniform(size=40) if settings.pop("weighted", False) else None
    precision = settings.pop("precision", "float64")
    net = loom.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(2)], input_shape=5, precision=precision)
    usual = {"epochs": 3, "batch_size": 16, "learning_rate": 0.01, "verbose": False}
    config = loom.TrainingConfig(**{**usual, "device": device, "loss": loss, **settings})
    given = (x, y) if weight is None else (x, y, weight)
    result = loom.train(net, given, config)
    weights = [np.array(array) for array in net.state_dict().values()]
    return weights, {**net.evaluate(given, config), "training": result.final_loss}


@pytest.mark.parametrize("settings", [{}, {"accumulate": 2}, {"precision": "float32"}])
@pytest.mark.parametrize(
    ("own", "known"),
    [
        (absolute, "mae"),
        (squared_by_row, "mse"),
        (losses.Expr("(y - t) * (y - t)"), "mse"),
        (losses.Expr("log(cosh(y - t))".replace("cosh(y - t)", "(exp(y - t) + exp(t - y)) / 2")), "log_cosh"),
    ],
)
def test_losses_of_ones_own_are_the_ones_that_they_are(
    own: Any, known: str, settings: dict[str, Any]
) -> None:
    mine, theirs = regression(own, **settings), regression(known, **settings)
    tolerance = 1e-5 if settings.get("precision") == "float32" else 1e-11
    for one, other in zip(mine[0], theirs[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance)
    for name, value in theirs[1].items():
        assert mine[1][name] == pytest.approx(value, abs=tolerance)


@pytest.mark.parametrize(("own", "known"), [(squared_by_row, "mse"), (losses.Expr("abs(y - t)"), "mae")])
def test_losses_of_ones_own_take_weights(own: Any, known: str) -> None:
    mine, theirs = regression(own, weighted=True), regression(known, weighted=True)
    for one, other in zip(mine[0], theirs[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-11)
    assert mine[1]["loss"] == pytest.approx(theirs[1]["loss"], abs=1e-11)


def test_a_function_as_loss_sees_class_indices() -> None:
    seen = []

    def own(output: np.ndarray, target: np.ndarray) -> tuple[float, np.ndarray]:
        seen.append(target.dtype.kind)
        return losses.cross_entropy(output, target)

    mine, theirs = learned(stack([]), loss=own), learned(stack([]), loss="cross_entropy")
    assert set(seen) == {"i"}
    for one, other in zip(mine.values(), theirs.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-11)
    # loom's own functions are their names.
    assert losses.resolve(losses.cross_entropy) == "cross_entropy"


@pytest.mark.parametrize("seed", range(20))
def test_random_expressions_have_their_derivatives(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [
        "abs(y - t)",
        "(y - t) ** 2",
        "sigmoid(y * t)",
        "exp(-y * y)",
        "max(y, t)",
        "tanh(y) * t",
        "y * 0.3",
    ]
    chosen = rng.choice(parts, size=3, replace=False)
    text = f"{chosen[0]} + {rng.uniform(0.1, 2):.3f} * {chosen[1]} - {chosen[2]} * t + t * 0 + y * 0"
    y, t = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    weight = rng.uniform(0.5, 1.0, 4)
    value, gradient = losses.value_and_gradient(losses.Expr(text), y, t, weight)
    step = 1e-6
    for at in np.ndindex(y.shape):
        ends = []
        for change in (step, -step):
            moved = y.copy()
            moved[at] += change
            ends.append(losses.value_and_gradient(losses.Expr(text), moved, t, weight)[0])
        assert abs((ends[0] - ends[1]) / (2 * step) - gradient[at]) < 1e-7
    assert np.isfinite(value)


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        (lambda output: 0.0, r"function of \(output, target\)"),
        (lambda output, target: 3.0, r"expected \(value, gradient\).* losses\.Expr\(.* by rule"),
        (lambda output, target: (1.0, output[:1]), "gradient must have the output's shape"),
        (lambda output, target: (np.ones(3), output), "one for each of"),
        (lambda output, target: ("a", output), "expected numbers"),
    ],
)
def test_losses_that_are_none_say_so(loss: Any, told: str) -> None:
    with pytest.raises((ConfigError, ShapeError), match=told):
        regression(loss)


def test_expressions_that_are_no_loss_say_so() -> None:
    for text, told in [
        ("y - ", "expression"),
        ("y * y", 'does not depend on t.*"mean_output"'),
        ("y - t + z", "z"),
    ]:
        with pytest.raises(ConfigError, match=told):
            losses.Expr(text)
    x, y = np.ones((8, 5)), np.ones((8, 2))
    net = loom.Sequential([nn.Dense(2)], input_shape=5)
    config = loom.TrainingConfig(loss=losses.Expr("abs(y - t)"), verbose=False, device="cpu")
    with pytest.raises(ConfigError, match="observe= wants a loss that compares each output"):
        loom.train(net, (x, y), config, observe=True)


def test_configs_with_losses_of_ones_own_are_copied() -> None:
    config = loom.TrainingConfig(loss=squared_by_row, verbose=False, device="cpu", batch_size=16)
    copied = copy.deepcopy(config)
    again = pickle.loads(pickle.dumps(config))
    assert copied == config == again
    del config
    gc.collect()
    x, y = np.ones((8, 5)), np.ones((8, 2))
    for each in (copied, again):
        loom.train(loom.Sequential([nn.Dense(2)], input_shape=5), (x, y), each)


def test_expressions_are_saved_in_configs() -> None:
    config = loom.TrainingConfig(loss=losses.Expr("abs(y - t) ** 1.5"))
    assert loom.TrainingConfig.from_config(json.loads(json.dumps(config.to_config()))) == config


def test_what_is_minimised_may_be_the_output_itself() -> None:
    x = np.random.default_rng(1).normal(size=(32, 3))
    net = loom.Sequential([nn.Dense(1), nn.Expr("(x - 2) ** 2")], input_shape=3, precision="float64")
    config = loom.TrainingConfig(
        epochs=200, learning_rate=0.05, loss="mean_output", verbose=False, device="cpu"
    )
    loom.train(net, (x, np.zeros(32)), config)
    assert net.evaluate((x, np.zeros(32)), config)["loss"] < 1e-3


def test_a_gpu_cuts_its_frames(gpu: str) -> None:
    nn.function._TOLD.clear()  # type: ignore[attr-defined]
    with pytest.warns(UserWarning, match="test_tanh is computed by Python on the CPU"):
        found = learned(stack([Tanh()], "float32"), device=gpu)
    expected = learned(stack([nn.Activation("tanh")], "float32"), device=gpu)
    for one, other in zip(found.values(), expected.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
    again = learned(stack([Tanh()], "float32"), device=gpu)  # told once
    assert all(np.array_equal(one, other) for one, other in zip(found.values(), again.values(), strict=True))


def test_a_gpu_learns_by_functions_with_parameters_and_losses(gpu: str) -> None:
    nn.function._TOLD.add("test_affine")  # type: ignore[attr-defined]
    losses.own._TOLD.update({"squared_by_row", "entropy"})  # type: ignore[attr-defined]
    for settings in ({}, {"accumulate": 2}):
        here, there = (learned(stack([Affine(4)], "float32"), device=d, **settings) for d in ("cpu", gpu))
        for one, other in zip(here.values(), there.values(), strict=True):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
        for own, known in [(squared_by_row, "mse"), (losses.Expr("(y - t) ** 2"), "mse")]:
            mine = regression(own, device=gpu, precision="float32", **settings)
            theirs = regression(known, device="cpu", precision="float32", **settings)
            for one, other in zip(mine[0], theirs[0], strict=True):
                np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
    mixed = learned(stack([Tanh()], "mixed"), device=gpu, loss=entropy)
    assert all(np.isfinite(array).all() for array in mixed.values())


def test_a_failing_function_on_a_gpu_leaves_the_steps_before_it(gpu: str) -> None:
    class Later(nn.Function, name="test_later"):
        calls = 0

        def forward(self, ctx: Any, x: np.ndarray) -> np.ndarray:
            type(self).calls += 1
            if type(self).calls == 3:
                raise RuntimeError("the third")
            return x

        def backward(self, ctx: Any, dy: np.ndarray) -> np.ndarray:
            return dy

    nn.function._TOLD.add("test_later")  # type: ignore[attr-defined]
    net = stack([Later()], "float32")
    with pytest.raises(RuntimeError, match="the third"):
        learned(net, device=gpu, epochs=1)
    Later.calls = 10
    found = {name: np.array(array) for name, array in net.state_dict().items()}
    # Two steps of sixteen rows were made.
    other = stack([Later()], "float32")
    x, y = np.random.default_rng(2).normal(size=(48, 5)), np.random.default_rng(3).integers(0, 3, 48)
    trainer = loom.Trainer(other, loom.TrainingConfig(loss="cross_entropy", learning_rate=0.01, device=gpu))
    assert trainer.step(x[:16], y[:16]) > 0
    assert all(np.isfinite(array).all() for array in found.values())
    learned(net, device=gpu, epochs=1)
