"""Sums and means over axes in expressions: layers, losses and metrics, against NumPy and differences."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import losses, metrics, nn
from programs import require_kernels
from test_expressions import NUMPY

Array = NDArray[Any]

COUNT = int(os.environ.get("LOOM_EXPRESSIONS", "120"))
"""How many random expressions are compared."""
AXES = {
    1: ["", "-1", "0"],
    2: ["", "-1", "0", "-2", "1", "(0, 1)"],
    3: ["", "-1", "0", "1", "(1, 2)", "(0, 1)"],
}
"""Axes that sums are over, by how many a sample has."""


def random_text(rng: np.random.Generator, axes: int, depth: int = 3, sums: int = 2) -> str:
    """Draws an expression of x, a and b whose values stay ordinary; at most so many sums in each part."""
    if depth == 0:
        return str(rng.choice(["x", "x", "a", "b", "0.75"]))
    if sums and rng.random() < 0.4:
        over = str(rng.choice(AXES[axes]))
        inner = random_text(rng, axes, depth - 1, sums - 1)
        name = "mean" if not over or rng.random() < 0.7 else "sum"
        return f"{name}({inner}{', axis=' + over if over else ''})"
    p, q = (random_text(rng, axes, depth - 1, sums // 2) for _ in range(2))
    forms = [
        f"{p} + {q}",
        f"({p}) - ({q}) * 0.5",
        f"tanh({p}) * ({q})",
        f"({p}) / (1 + ({q}) ** 2)",
        f"exp(-({p}) ** 2) - ({q})",
        f"sqrt(1 + ({p}) * ({p})) - log(2 + cos({q}))",
        f"silu({p}) * sigmoid({q})",
        f"(1 + ({p}) ** 2) ** -1.5 + ({q})",
    ]
    return str(rng.choice(forms))


def by_numpy(text: str, x: Array, axes: int, **own: Array) -> Array:
    """NumPy's value of a text over (rows, ...); arrays of one's own have the axes of a sample, too."""

    def over(function: Any) -> Any:
        def reduced(value: Any, axis: Any = None) -> Any:
            value = np.asarray(value)
            if value.ndim == 0:
                return value
            places = range(axes) if axis is None else (axis if isinstance(axis, tuple) else (axis,))
            # From the last back, as the batch comes first where there is one.
            return function(value, axis=tuple(place % axes - axes for place in places), keepdims=True)

        return reduced

    names = {**NUMPY, "sum": over(np.sum), "mean": over(np.mean), "x": x, "pi": np.pi, **own}
    return np.asarray(eval(text, {}, names))


def drawn(seed: int) -> tuple[str, tuple[int, ...], dict[str, tuple[int, ...]], np.random.Generator]:
    """A text, the extents of a sample and of a and b."""
    rng = np.random.default_rng(seed)
    axes = int(rng.integers(1, 4))
    shape = tuple(int(extent) for extent in rng.integers(1, 6, axes))
    text = f"{random_text(rng, axes)} + 0.1 * a * mean(x) + b"
    own = {name: tuple(1 if rng.random() < 0.4 else extent for extent in shape) for name in "ab"}
    own = {name: shape[-1:] if 1 in extents[1:] else extents for name, extents in own.items()}
    return text, shape, own, rng


def why_not(net: loom.Network) -> str | None:
    """Why a network cannot be, if it cannot."""
    try:
        net.build()
    except loom.ShapeError as refused:
        return str(refused)
    return None


@pytest.mark.parametrize("part", range(2))
def test_random_sums_are_numpys_and_their_gradients_are_differences(part: int) -> None:
    computed = 0
    for seed in range(part, COUNT, 2):
        text, shape, own, rng = drawn(seed)
        axes = len(shape)
        layer = nn.Expr(text, **{name: {"shape": extents} for name, extents in own.items()})  # type: ignore[arg-type]
        net = loom.Sequential([layer], input_shape=shape, precision="float64")
        refused = why_not(net)
        if refused is not None:
            # Of sums over the first and third axis alone and the like.
            assert "bring the axes together" in refused
            continue
        computed += 1
        x = rng.normal(size=(3, *shape))
        values = {name: rng.normal(size=extents) for name, extents in own.items()}
        for name, array in values.items():
            net.layers[0].parameters[name] = array
        full = {
            name: array.reshape((1,) * (axes - array.ndim) + array.shape) for name, array in values.items()
        }
        y = net.forward(x, training=True)
        assert y.shape[1:] == net.output_shape
        expected = by_numpy(text, x, axes, **full)
        np.testing.assert_allclose(
            y, np.broadcast_to(expected, y.shape), rtol=1e-10, atol=1e-10, err_msg=text
        )
        dy = rng.normal(size=y.shape)
        gradients = {"x": net.backward(dy), **{name: net.layers[0].gradients[name] for name in own}}
        operands = {"x": x, **full}
        for name, gradient in gradients.items():
            way = rng.normal(size=operands[name].shape)

            def moved(by: float) -> float:
                there = {**operands, name: operands[name] + by * way}  # noqa: B023 - called at once
                return float(np.sum(dy * by_numpy(text, axes=axes, **there)))  # noqa: B023

            difference = (moved(1e-5) - moved(-1e-5)) / 2e-5
            found = float(np.sum(gradient.reshape(way.shape) * way))
            assert abs(found - difference) <= 1e-6 * (1 + np.abs(gradient).sum()), f"{seed}: {text}: d{name}"
    assert computed > COUNT // 3


NORM = "g * (x - mean(x, -1)) / sqrt(mean((x - mean(x, -1)) ** 2, -1) + 1e-5) + b"


def own_norm() -> nn.Expr:
    return nn.Expr(NORM, g=(8,), b={"shape": (8,), "initial": 0.0})


def network(norm: nn.Layer, precision: Any = "float32") -> loom.Network:
    layers = [nn.Dense(8), norm, nn.Expr("x * sigmoid(mean(x, axis=0))"), nn.Dense(1)]
    return loom.Sequential(layers, input_shape=(4, 3), seed=2, precision=precision)


def data() -> tuple[Array, Array]:
    x = np.random.default_rng(0).normal(size=(60, 4, 3)).astype(np.float32)
    return x, np.sin(x.sum(axis=2, keepdims=True)).astype(np.float32)


def train(net: loom.Network, epochs: int = 4, device: Any = "cpu", loss: Any = "mse") -> loom.TrainingResult:
    config = loom.TrainingConfig(
        epochs=epochs, batch_size=16, learning_rate=0.01, loss=loss, seed=5, device=device, verbose=False
    )
    return loom.train(net, data(), config)


@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-9), ("float32", 2e-4), ("mixed", 5e-2)])
def test_a_norm_by_its_formula_learns_as_the_built_in_one(precision: str, tolerance: float) -> None:
    own, built_in = network(own_norm(), precision), network(nn.LayerNorm(), precision)
    for net in (own, built_in):
        train(net)
    x, _ = data()
    np.testing.assert_allclose(own.predict(x), built_in.predict(x), rtol=tolerance, atol=tolerance)


def test_one_sample_and_a_batch_have_the_same_bits_also_from_a_file(tmp_path: Path) -> None:
    net = network(own_norm())
    train(net)
    x, _ = data()
    whole = net.predict(x)
    assert np.array_equal(whole, np.concatenate([net.predict(row[None]) for row in x]))
    net.save(tmp_path / "net.loom")
    assert np.array_equal(loom.load(tmp_path / "net.loom").predict(x), whole)


CODE = """
import hashlib, sys
sys.path.insert(0, {folder!r})
import test_expression_sums as it
net = it.network(it.own_norm())
it.train(net)
print(hashlib.sha256(b"".join(a.tobytes() for a in net.state_dict().values())).hexdigest())
"""


def test_weights_have_the_same_bits_on_every_instruction_set() -> None:
    require_kernels("portable")
    found = {}
    for isa in ("portable", "avx2", "avx512"):
        code = CODE.format(folder=str(Path(__file__).parent))
        environment = {**os.environ, "LOOM_ISA": isa}
        done = subprocess.run(
            [sys.executable, "-c", code], check=False, env=environment, capture_output=True, text=True
        )
        if done.returncode == 0:
            found[isa] = done.stdout.splitlines()[-1]
        else:
            assert "LOOM_ISA" in done.stderr, done.stderr
    assert "portable" in found
    assert len(set(found.values())) == 1, found


def test_a_gpu_computes_and_learns_the_same(gpu: str) -> None:
    x, _ = data()
    here, there = network(own_norm()), network(own_norm())
    there.to(gpu)
    np.testing.assert_allclose(there.predict(x), here.predict(x), rtol=1e-4, atol=1e-5)
    train(here, device="cpu")
    train(there, device=gpu)
    np.testing.assert_allclose(there.predict(x), here.predict(x), rtol=2e-3, atol=2e-3)


DISTANCE = "sqrt(sum((y - t) ** 2, axis=-1) + 1e-9)"


@pytest.mark.parametrize("weighted", [False, True])
def test_a_loss_of_whole_rows_is_numpys(weighted: bool) -> None:
    rng = np.random.default_rng(1)
    y, t = rng.normal(size=(2, 9, 3))
    weight = rng.uniform(0.5, 2, 9) if weighted else None
    by_row = np.sqrt(np.sum((y - t) ** 2, axis=-1) + 1e-9)
    value, gradient = losses.value_and_gradient(losses.Expr(DISTANCE), y, t, weight)
    assert value == pytest.approx(np.average(by_row, weights=weight), rel=1e-12)
    share = np.full(9, 1 / 9) if weight is None else weight / weight.sum()
    np.testing.assert_allclose(gradient, (y - t) / by_row[:, None] * share[:, None], rtol=1e-10)


def test_a_loss_of_whole_rows_is_trained_with(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 4)).astype(np.float32)
    y = np.stack([x.sum(1), x[:, 0]], axis=1)
    net = loom.Sequential([nn.Dense(2)], input_shape=4, seed=0)
    far = metrics.Expr("sqrt(sum((y - t) ** 2, axis=-1)) > 0.2", called="far")
    result = net.fit(
        x,
        y,
        epochs=40,
        learning_rate=0.05,
        loss=losses.Expr(DISTANCE),
        metrics=[far],
        verbose=False,
        device="cpu",
    )
    assert result.final_loss < 0.1
    assert net.evaluate((x, y))["far"] == np.mean(np.linalg.norm(net.predict(x) - y, axis=1) > 0.2)
    net.save(tmp_path / "net.loom")
    assert loom.load(tmp_path / "net.loom").evaluate((x, y))["far"] == net.evaluate((x, y))["far"]


def test_a_loss_of_whole_rows_is_trained_with_on_a_gpu(gpu: str) -> None:
    x, _ = data()
    y = np.stack([x.sum(axis=(1, 2)), x[:, 0, 0]], axis=1)
    found = []
    for device in ("cpu", gpu):
        net = loom.Sequential([nn.Flatten(), nn.Dense(2)], input_shape=(4, 3), seed=0)
        settings: Any = {"loss": losses.Expr(DISTANCE), "batch_size": 16, "device": device, "verbose": False}
        net.fit(x, y, epochs=3, learning_rate=0.02, **settings)
        found.append(net.predict(x))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-4)


def test_a_metric_takes_classes_as_rows_of_zero_and_one() -> None:
    rng = np.random.default_rng(2)
    y = rng.uniform(size=(50, 3))
    t = rng.integers(0, 3, 50)
    brier = metrics.Expr("sum((y - t) ** 2, axis=-1)", called="brier")
    assert brier(y, t) == pytest.approx(np.mean(np.sum((y - np.eye(3)[t]) ** 2, axis=1)), rel=1e-12)
    images, classes = rng.normal(size=(4, 3, 2, 2)), rng.integers(0, 3, (4, 2, 2))
    expected = np.mean(images * np.moveaxis(np.eye(3)[classes], -1, 1))
    assert metrics.Expr("y * t")(images, classes) == pytest.approx(expected, rel=1e-12)
    net = loom.Sequential([nn.Dense(3)], input_shape=4, seed=0)
    x = rng.normal(size=(50, 4)).astype(np.float32)
    result = net.fit(
        x, t, epochs=2, loss="cross_entropy", metrics=[brier, "accuracy"], validation_split=0.2, verbose=False
    )
    assert {"brier", "accuracy", "val_brier"} <= set(result.history)
    config = loom.TrainingConfig(metrics=[brier])
    assert loom.TrainingConfig.from_config(config.to_config()) == config


@pytest.mark.parametrize(
    ("text", "message", "carets"),
    [
        ("mean(x, 0.5)", "an axis was expected here", "            ^^^"),
        ("mean(x, axis)", "axis is written axis=-1", "                ^"),
        ("sum(x, -1, -1)", "stands here twice", "               ^^"),
        ("sum()", "takes what to add up", "    ^^^"),
        ("mean(x, 99)", "an axis is at least -16 and below 16", "            ^^"),
        ("x + mean", "mean is a function; write mean(...)", "        ^^^^"),
    ],
)
def test_errors_point_at_the_place(text: str, message: str, carets: str) -> None:
    with pytest.raises(loom.ConfigError) as refused:
        nn.Expr(text)
    assert message in str(refused.value)
    assert str(refused.value).splitlines()[-1] == carets


def test_axes_that_are_not_there_or_apart_are_refused() -> None:
    with pytest.raises(loom.ShapeError, match="no axis 2"):
        loom.Sequential([nn.Expr("x - mean(x, 2)")], input_shape=(3, 4)).build()
    with pytest.raises(loom.ShapeError, match="no axis -3"):
        loom.Sequential([nn.Expr("x - mean(x, -3)")], input_shape=(3, 4)).build()
    with pytest.raises(loom.ShapeError, match="bring the axes together with Permute"):
        loom.Sequential([nn.Expr("x - mean(x, 0, 2)")], input_shape=(3, 4, 5, 2)).build()


def test_what_mixes_steps_leaves_out_padding() -> None:
    by_step = nn.Expr("x - mean(x, -1)")
    net = loom.Sequential([by_step, nn.LSTM(3), nn.Dense(1)], input_shape=(None, 4), seed=0)
    rows = [np.ones((2, 4)), np.ones((5, 4))]
    alone = np.concatenate([net.predict([row]) for row in rows])
    assert np.array_equal(net.predict(rows), alone)
    across = loom.Sequential(
        [nn.Expr("x - mean(x, 0)"), nn.LSTM(3), nn.Dense(1)], input_shape=(None, 4), seed=0
    )
    mixed = across.predict(rows)
    assert np.array_equal(mixed, np.concatenate([across.predict([row]) for row in rows]))
