"""Gradients of a layer or a loss of one's own, against central differences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import real, whole
from loom._settings.suggestions import shown
from loom.errors import ConfigError, InvalidValueError
from loom.grid import as_shape

if TYPE_CHECKING:
    from loom import nn

__all__ = ["check_gradients"]

# Elements of each array that are looked at.
_MOST = 64


def check_gradients(
    of: nn.Layer | Mapping[str, Any],
    input_shape: int | Sequence[int],
    *,
    rows: int = 3,
    seed: int = 0,
    step: float = 1e-5,
    tolerance: float = 1e-5,
) -> float:
    """Compares the gradients of a layer with central differences, in float64 (Kincaid and Cheney 2009, 4.3).

    The layer stands alone in a network without dropout; inputs are drawn from a normal distribution. Up to 64
    elements of the input and of each parameter are moved.

    Args:
        of: The layer, such as an `nn.Function` of one's own.
        input_shape: One row's extents.
        rows: How many rows are computed.
        seed: What inputs, parameters and the gradient of the output are drawn from.
        step: How far an element is moved to either side.
        tolerance: How far the two may differ, as a share of the largest gradient of the same array, or of 1
            if that is larger.

    Returns:
        The largest such share.

    Raises:
        InvalidValueError: They differ by more, saying where.
        ConfigError: It is no layer.

    Examples:
        >>> class Half(nn.Function):
        ...     def forward(self, ctx, x):
        ...         return x / 2
        ...     def backward(self, ctx, dy):
        ...         return dy / 3
        >>> loom.check_gradients(Half(), (2,))  # doctest: +IGNORE_EXCEPTION_DETAIL
        Traceback (most recent call last):
        loom.errors.InvalidValueError: Half: the gradient of the input at (0, 0) is ...
    """
    from loom.network import Sequential
    from loom.nn import Layer
    from loom.nn.composite import as_layer

    if not isinstance(of, (Layer, Mapping)):
        raise ConfigError(f"check_gradients takes a layer such as an nn.Function, got {shown(of)}")
    layer = as_layer(of)
    count = whole("check_gradients", "rows", rows, least=1)
    step = real("check_gradients", "step", step, above=0.0)
    rng = np.random.default_rng(whole("check_gradients", "seed", seed, least=0))
    net = Sequential([layer], input_shape=input_shape, precision="float64", seed=seed).build()
    x = rng.normal(size=(count, *as_shape(input_shape)))
    weights = rng.normal(size=(count, *net.output_shape))
    net.forward(x, training=False)
    made = {"the input": np.array(net.backward(weights))}
    only = net.layers[0]
    made |= {f'parameter "{name}"': np.array(array) for name, array in only.gradients.items()}

    def total() -> float:
        return float((net.predict(x) * weights).sum())

    def moved(name: str) -> Callable[[NDArray[Any]], None]:
        def put(values: NDArray[Any]) -> None:
            only.parameters[name] = values

        return put

    worst = _worst(_name(layer), "the input", made["the input"], x, None, (total, rng, step, tolerance))
    for name in list(only.gradients):
        what, start = f'parameter "{name}"', np.array(only.parameters[name])
        found = _worst(_name(layer), what, made[what], start, moved(name), (total, rng, step, tolerance))
        worst = max(worst, found)
    return worst


def _name(layer: nn.Layer) -> str:
    return str(getattr(layer, "name", "")) or type(layer).__name__


def _worst(
    layer: str,
    what: str,
    gradient: NDArray[Any],
    values: NDArray[Any],
    put: Callable[[NDArray[Any]], None] | None,
    how: tuple[Callable[[], float], np.random.Generator, float, float],
) -> float:
    """Returns the largest difference of one array's gradient; the array is moved in place, then put."""
    total, rng, step, tolerance = how
    scale = max(1.0, float(np.abs(gradient).max(initial=0.0)))
    worst = 0.0
    for flat in rng.permutation(values.size)[:_MOST]:
        at = cast("tuple[int, ...]", tuple(map(int, np.unravel_index(flat, values.shape))))
        before, ends = values[at], []
        for moved in (before + step, before - step):
            values[at] = moved
            if put is not None:
                put(values)
            ends.append(total())
        values[at] = before
        if put is not None:
            put(values)
        slope = (ends[0] - ends[1]) / (2 * step)
        share = abs(slope - float(gradient[at])) / scale
        if not share <= tolerance:
            raise InvalidValueError(
                f"{layer}: the gradient of {what} at {at} is {float(gradient[at]):.6g}, but central "
                f"differences say {slope:.6g}; mend backward, or try another step if the function has corners"
            )
        worst = max(worst, share)
    return worst
