"""Functions of one's own by expression: values and derivatives, training, files, devices, errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn
from programs import require_kernels

Array = NDArray[Any]

COUNT = int(os.environ.get("LOOM_EXPRESSIONS", "200"))
"""How many random expressions are compared."""


def softplus(x: Array) -> Array:
    return np.logaddexp(x, 0.0)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


# What the names mean, by NumPy alone; the text is read by Python itself.
NUMPY: dict[str, Callable[..., Any]] = {
    "tanh": np.tanh,
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "sign": np.sign,
    "sin": np.sin,
    "cos": np.cos,
    "sigmoid": sigmoid,
    "softplus": softplus,
    "silu": lambda x: x * sigmoid(x),
    "mish": lambda x: x * np.tanh(softplus(x)),
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x, slope=0.01: np.where(x > 0, x, slope * x),
    "max": np.maximum,
    "min": np.minimum,
    "clip": np.clip,
    "where": np.where,
}


def random_text(rng: np.random.Generator, depth: int = 3) -> str:
    """Draws an expression of x, a and b whose values stay ordinary."""
    if depth == 0:
        return str(rng.choice(["x", "x", "a", "b", "0.75", "-2", "1.5e-1"]))
    p, q = random_text(rng, depth - 1), random_text(rng, depth - 1)
    forms = [
        f"{p} + {q}",
        f"({p}) - ({q}) * 0.5",
        f"tanh({p}) * ({q})",
        f"({p}) / (1 + ({q}) ** 2)",
        f"-sin({p}) ** 3 + ({q}) * (({q}) >= ({p}))",
        f"exp(-({p}) ** 2) - ({q})",
        f"sqrt(1 + ({p}) * ({p})) - log(2 + cos({q}))",
        f"max({p}, {q}) + min({p}, 0.5)",
        f"clip({p}, -0.5, 1) * softplus({q})",
        f"where(({p}) > ({q}), silu({p}), sigmoid({q}))",
        f"(1 + abs({p})) ** tanh({q})",
        f"(1 + ({p}) ** 2) ** -1.5 + log1p(({q}) ** 2) ** 0.7",
        f"mish({p}) + expm1(tanh({q})) * sign({p})",
        f"leaky_relu({p}, 0.2) - relu({q})",
    ]
    return str(rng.choice(forms))


def by_numpy(text: str, x: Array, a: Array, b: Array) -> Array:
    value: Array = eval(text, {}, {**NUMPY, "x": x, "a": a, "b": b, "pi": np.pi})
    return np.asarray(value + 0 * x)


def random_case(rng: np.random.Generator) -> tuple[str, loom.Network, tuple[Array, Array, Array]]:
    """A random expression of an input and two parameters, the network of it, and their values."""
    text = f"{random_text(rng)} + 0.1 * a * x + b"
    columns = int(rng.integers(1, 20))
    shapes = [(), (columns,), (3, 1), (3, columns)]
    a_shape, b_shape = (shapes[int(rng.integers(4))] for _ in range(2))
    own: Any = {"a": {"shape": a_shape}, "b": {"shape": b_shape}}
    net = loom.Sequential([nn.Expr(text, **own)], input_shape=(3, columns), precision="float64")
    x = rng.normal(size=(4, 3, columns))
    a, b = rng.normal(size=a_shape or 1), rng.normal(size=b_shape or 1)
    parameters = net.layers[0].parameters
    parameters["a"], parameters["b"] = a, b
    return text, net, (x, a, b)


@pytest.mark.parametrize("part", range(4))
def test_random_expressions_are_what_numpy_computes_and_their_gradients_are_differences(part: int) -> None:
    for seed in range(part, COUNT, 4):
        rng = np.random.default_rng(seed)
        text, net, (x, a, b) = random_case(rng)
        y = net.forward(x, training=True)
        np.testing.assert_allclose(y, by_numpy(text, x, a, b), rtol=1e-11, atol=1e-11, err_msg=text)

        dy = rng.normal(size=y.shape)
        dx = net.backward(dy)
        found = {"x": dx, **{name: net.layers[0].gradients[name] for name in ("a", "b")}}
        operands = {"x": x, "a": a, "b": b}
        for name, gradient in found.items():
            # Where two steps disagree, there is a corner in between.
            wide = {key: np.broadcast_to(value, x.shape) for key, value in operands.items()}

            fine, coarse = (slope(text, wide, name, step) for step in (1e-6, 3e-5))
            cornered = np.abs(fine - coarse) > 1e-5 * (1 + np.abs(fine))
            of = operands[name].shape
            if name == "x":
                good = ~cornered
                expected = dy * fine
            else:
                expected = summed(dy * fine, of)
                good = summed(cornered.astype(float), of) == 0
            np.testing.assert_allclose(
                gradient[good], expected[good], rtol=2e-6, atol=2e-6, err_msg=f"{seed}: {text}: d{name}"
            )


def slope(text: str, operands: dict[str, Array], name: str, step: float) -> Array:
    """Central differences, element by element."""
    above, below = ({**operands, name: operands[name] + by} for by in (step, -step))
    return (by_numpy(text, **above) - by_numpy(text, **below)) / (2 * step)


def summed(x: Array, shape: tuple[int, ...]) -> Array:
    """The sum of what was broadcast."""
    full = (1,) * (x.ndim - len(shape)) + shape
    axes = tuple(axis for axis, extent in enumerate(full) if extent == 1)
    return np.asarray(x.sum(axes, keepdims=True).reshape(shape))


TEXT = "where(x > 0, x, a * (exp(x) - 1)) + 0.1 * sin(3 * x) * b + max(x, a) ** 2 / (1 + (x - b) ** 2) ** 0.7"


def network(precision: Any = "float32", seed: int = 3) -> loom.Network:
    return loom.Sequential(
        [
            nn.Dense(16),
            nn.Expr(TEXT, a=(16,), b=0.5),
            nn.Dense(8),
            nn.Expr("x * tanh(softplus(x))"),
            nn.Dense(1),
        ],
        input_shape=3,
        seed=seed,
        precision=precision,
    )


def data(rows: int = 120) -> tuple[Array, Array]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(rows, 3)).astype(np.float32)
    return x, np.sin(x.sum(axis=1, keepdims=True)).astype(np.float32)


def train(net: loom.Network, epochs: int = 20, device: Any = "cpu") -> loom.TrainingResult:
    config = loom.TrainingConfig(
        epochs=epochs, batch_size=32, learning_rate=0.01, loss="mse", seed=5, device=device
    )
    return loom.train(net, data(), config)


@pytest.mark.parametrize("precision", ["float32", "float64", "mixed"])
def test_it_learns_is_saved_as_text_and_predicts_the_same_bits(precision: str, tmp_path: Path) -> None:
    net = network(precision)
    before = {name: np.array(array) for name, array in net.state_dict().items()}
    result = train(net)
    assert result.final_loss < 0.5 * result.loss_history[0]
    assert all(not np.array_equal(before[name], array) for name, array in net.state_dict().items())
    x, _ = data()
    whole = net.predict(x)
    assert np.array_equal(whole, np.concatenate([net.predict(row[None]) for row in x]))
    net.save(tmp_path / "net.loom")
    loaded = loom.load(tmp_path / "net.loom")
    assert np.array_equal(loaded.predict(x), whole)
    assert TEXT in (tmp_path / "net.loom").read_bytes().decode("latin-1")


def test_what_is_frozen_stays() -> None:
    net = network()
    net.layers[1].trainable = False
    before = {name: np.array(array) for name, array in net.layers[1].parameters.items()}
    train(net, epochs=2)
    for name, array in net.layers[1].parameters.items():
        assert np.array_equal(array, before[name])


CODE = """
import hashlib, sys
sys.path.insert(0, {folder!r})
import test_expressions as it
net = it.network()
it.train(net, epochs=3)
print(hashlib.sha256(b"".join(a.tobytes() for a in net.state_dict().values())).hexdigest())
"""


def test_weights_have_the_same_bits_on_every_instruction_set() -> None:
    require_kernels("portable")
    code = CODE.format(folder=str(Path(__file__).parent))
    found = {}
    for isa in ("portable", "avx2", "avx512"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            check=False,
            env={**os.environ, "LOOM_ISA": isa},
            capture_output=True,
            text=True,
        )
        if done.returncode == 0:
            # What training shows of itself has times in it.
            found[isa] = done.stdout.splitlines()[-1]
        else:
            assert "LOOM_ISA" in done.stderr, done.stderr
    assert "portable" in found
    assert len(set(found.values())) == 1, found


def test_a_gpu_computes_and_learns_the_same(gpu: str) -> None:
    x, _ = data()
    here, there = network(), network()
    there.to(gpu)
    np.testing.assert_allclose(there.predict(x), here.predict(x), rtol=1e-4, atol=1e-5)
    train(here, epochs=3, device="cpu")
    train(there, epochs=3, device=gpu)
    np.testing.assert_allclose(there.predict(x), here.predict(x), rtol=2e-3, atol=2e-3)


def test_an_activation_by_its_formula_has_its_bits() -> None:
    x = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32) * 4
    known: list[tuple[str, Any]] = [
        ("x * sigmoid(x)", "silu"),
        ("tanh(softplus(x)) * x", "mish"),
        ("gelu(x)", "gelu"),
    ]
    for text, name in known:
        own, built_in = (
            loom.Sequential([nn.Dense(7), layer], input_shape=7, seed=1)
            for layer in (nn.Expr(text), nn.Activation(name))
        )
        assert np.array_equal(own.predict(x), built_in.predict(x))


@pytest.mark.parametrize(
    ("text", "own", "message", "carets"),
    [
        ("x * tnh(x)", {}, 'unknown function "tnh"; did you mean "tanh"?', "        ^^^"),
        ("x + (3", {}, "a closing parenthesis was expected here", "          ^"),
        ("x ^ 2", {}, "a power is written **", "      ^"),
        ("a * x + b", {"a": 1.0}, 'unknown name "b"', "            ^"),
        ("where(x > 0, x)", {}, "where takes 3 arguments, got 2", "    ^^^^^"),
    ],
)
def test_errors_point_at_the_place(text: str, own: dict[str, Any], message: str, carets: str) -> None:
    with pytest.raises(loom.ConfigError) as refused:
        nn.Expr(text, **own)
    said = str(refused.value)
    assert said.startswith("Expr: ")
    assert message in said
    assert said.splitlines()[-2:] == [f"    {text}", carets]


@pytest.mark.parametrize(
    ("text", "own", "message"),
    [
        ("x", {"a": 1.0}, "does not depend on a"),
        ("1.5", {}, "does not depend on x"),
        ("x * tanh", {"tanh": 1.0}, '"tanh" has a meaning in expressions'),
        ("x * a", {"a": {"shap": 3}}, 'did you mean "shape"'),
        ("x * a", {"a": (0,)}, "must be"),
        ("x * a", {"a": float("nan")}, "initial"),
        ("x*a*b*c*d*e", dict.fromkeys("abcde", 1.0), "at most 4 parameters, got 5"),
        ("x" * 3000, {}, "at most 2000 characters"),
        ("(" * 500 + "x" + ")" * 500, {}, "more than 60 levels"),
        (3, {}, "expression must be text"),
    ],
)
def test_what_cannot_be_is_refused(text: Any, own: dict[str, Any], message: str) -> None:
    with pytest.raises(loom.ConfigError, match=message.replace("(", r"\(")):
        nn.Expr(text, **own)


def test_arrays_that_do_not_broadcast_are_refused() -> None:
    for shape, message in [
        ((4,), "every extent must be 1"),
        ((1, 1, 5, 1), "more axes"),
        ((3, 1, 5), "swap axes"),
    ]:
        with pytest.raises(loom.ShapeError, match=message):
            loom.Sequential([nn.Expr("a * x", a=shape)], input_shape=(3, 2, 5)).build()


def test_its_configuration_goes_through_json() -> None:
    layer = nn.Expr("a * x + b", a=(3,), b={"shape": (2, 1), "initial": 0.5})
    config = json.loads(json.dumps(layer.to_config()))
    assert config["type"] == "expr"
    assert nn.layer_from_config(config) == layer
    assert hash(nn.layer_from_config(config)) == hash(layer)


def test_what_has_parameters_is_written_as_one_would_write_it() -> None:
    layer = nn.Expr("a * x + b", a=(4,), b=1.5)
    text = str(loom.Sequential([layer, nn.Dense(2)], input_shape=4))
    (line,) = (line for line in text.splitlines() if "Expr" in line)
    assert eval(line.partition(": ")[2], {"Expr": nn.Expr}) == layer
