"""Random expressions, their values and all derivatives, beside JAX's in float64.

`PYTHONPATH=python python-with-jax benches/peers/expressions_jax.py --count 2000`

The texts are those of tests/python/test_expressions.py, which compares them with NumPy and with finite
differences; here JAX reads them, by functions of its own, and derives them itself. Says the largest
differences, and ends with an error where one is larger than rounding can account for. Where JAX's derivative
is no number (infinity times 0, as of `u ** 0.7` at 0), nothing is compared; how many these are is told.

JAX compiles an operation once for each shape, so that arrays are filled up to one number of columns. The
interpreter has pytest, too, which the tests import.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import loom

jax.config.update("jax_enable_x64", True)

TESTS = Path(__file__).parents[2] / "tests" / "python" / "test_expressions.py"
UNKNOWN: list[int] = []
"""How many numbers of each array could not be compared."""
COLUMNS = 20
"""How many columns there are in JAX; no expression has more."""
VALUE, DERIVATIVE = 1e-12, 1e-9
"""What values and derivatives may differ by, of the largest there is, or of 1."""


def of_floats(name: str) -> Callable[[Any], Any]:
    """Returns a function of jax.nn that takes whole numbers, too."""
    function = getattr(jax.nn, name)
    return lambda x: function(jnp.asarray(x, jnp.float64))


FUNCTIONS: dict[str, Any] = {
    **{name: getattr(jnp, name) for name in ("tanh", "exp", "expm1", "log", "log1p", "sqrt", "abs", "sign")},
    **{name: getattr(jnp, name) for name in ("sin", "cos", "where", "clip")},
    **{name: of_floats(name) for name in ("sigmoid", "softplus", "silu", "mish", "relu")},
    "leaky_relu": lambda x, slope=0.01: jnp.where(x > 0, x, slope * x),
    "max": jnp.maximum,
    "min": jnp.minimum,
    "pi": jnp.pi,
}


def texts() -> Any:  # noqa: ANN401 - the module of the tests
    """Returns the tests' module, which draws the expressions."""
    spec = importlib.util.spec_from_file_location("test_expressions", TESTS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def relative(found: Any, expected: Any) -> float:  # noqa: ANN401 - arrays
    """The largest difference, of the largest magnitude, or of 1."""
    expected = np.asarray(expected)
    known = ~np.isnan(expected)
    UNKNOWN.append(int((~known).sum()))
    if not known.any():
        return 0.0
    found, expected = np.asarray(found)[known], expected[known]
    return float(np.abs(found - expected).max() / max(1.0, np.abs(expected).max()))


def compared(module: Any, seed: int) -> tuple[str, float, dict[str, float]]:  # noqa: ANN401
    """Returns an expression, how far its value is off, and how far its derivatives are."""
    rng = np.random.default_rng(seed)
    text, net, (x, a, b) = module.random_case(rng)
    y = net.forward(x, training=True)
    dy = rng.normal(size=y.shape)
    dx = net.backward(dy)

    def computed(x: Any, a: Any, b: Any) -> Any:  # noqa: ANN401 - arrays of JAX
        return eval(text, {}, {**FUNCTIONS, "x": x, "a": a, "b": b}) + 0 * x

    columns = x.shape[-1]
    given = {"x": x, "a": a, "b": b}
    # A parameter may have no columns, or one that all share.
    wide = {name: array.shape[-1] == columns and array.shape[-1:] != (1,) for name, array in given.items()}
    wide["x"] = True
    filled = [jnp.asarray(filled_up(array, "edge") if wide[name] else array) for name, array in given.items()]
    expected, back = jax.vjp(computed, *filled)
    # What was filled up counts nowhere.
    of_jax = dict(zip(given, map(np.asarray, back(jnp.asarray(filled_up(dy, "constant")))), strict=True))
    of_jax = {name: array[..., :columns] if wide[name] else array for name, array in of_jax.items()}
    gradients = net.layers[0].gradients
    found = {"x": dx, "a": gradients["a"], "b": gradients["b"]}
    off = {name: relative(np.reshape(found[name], of_jax[name].shape), of_jax[name]) for name in found}
    return text, relative(y, np.asarray(expected)[..., :columns]), off


def filled_up(array: Any, mode: Any) -> Any:  # noqa: ANN401 - arrays, and how NumPy fills them
    """Returns an array of `COLUMNS` columns."""
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, COLUMNS - array.shape[-1])], mode=mode)


def main() -> None:
    """Compares, and says how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    module, wrong = texts(), 0
    worst = {"value": 0.0, "x": 0.0, "a": 0.0, "b": 0.0}
    for seed in range(asked.first, asked.first + asked.count):
        text, value, derivatives = compared(module, seed)
        figures = {"value": value, **derivatives}
        if not (value <= VALUE and max(derivatives.values()) <= DERIVATIVE):
            wrong += 1
            print(f"{seed}: {text}: " + ", ".join(f"{name} {off:.1e}" for name, off in figures.items()))
        worst = {name: max(off, figures[name]) for name, off in worst.items()}
    print(f"{asked.count} expressions, jax {jax.__version__}, loom {loom.__version__}; largest differences:")
    print(", ".join(f"{'' if name == 'value' else 'd'}{name} {off:.1e}" for name, off in worst.items()))
    print(f"{sum(UNKNOWN)} derivatives of JAX are no numbers, in {sum(map(bool, UNKNOWN))} arrays")
    if wrong:
        sys.exit(f"{wrong} differ")


if __name__ == "__main__":
    main()
