"""Which parts of its input an output of a network rests on."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import whole
from loom._settings.suggestions import unknown
from loom._typing import ArrayLike
from loom.convert import as_real_array
from loom.engine import engine_of
from loom.errors import DataError, ShapeError
from loom.network import Network
from loom.network.looking import TargetLike, at_index, check_differentiable, chosen_outputs, outputs_of
from loom.reports.saliency import Saliency

__all__ = ["saliency"]

_METHODS = ("gradient", "integrated_gradients")


def saliency(
    net: Network,
    x: ArrayLike,
    *,
    target: TargetLike | None = None,
    method: Literal["gradient", "integrated_gradients"] = "gradient",
    baseline: ArrayLike | None = None,
    steps: int = 50,
    batch_size: int = 256,
) -> Saliency:
    """Tells which elements of samples an output of the network rests on, dropout off.

    "gradient" is how much the output grows with each element (Simonyan, Vedaldi and Zisserman 2013).
    "integrated_gradients" adds those gradients up on the straight way from a baseline to the sample, times
    how far it is in each element (Sundararajan, Taly and Yan 2017): the attributions sum up to the
    difference of the two outputs. It leaves no trace in the network.

    Args:
        net: The network.
        x: (samples, *input_shape) the samples.
        target: Which output, as `Network.input_gradients` takes it; each sample's largest where None.
        method: "gradient" or "integrated_gradients".
        baseline: Of integrated gradients: what says nothing, as a number, one sample, or one for each;
            zeros where None.
        steps: Of integrated gradients: at how many points of the way the gradient is taken, which are
            those of Gauss and Legendre.
        batch_size: How many samples are computed at a time.

    Returns:
        The attributions.

    Raises:
        ConfigError: The method is unknown, a setting is out of range, or the network reads whole numbers.
        ShapeError: The samples do not have the network's input shape, or the baseline does not fit.
        NonFiniteError: They hold NaN or infinity.
        DataError: There are no samples.

    Examples:
        >>> net = loom.Sequential([nn.Dense(3, activation="tanh")], input_shape=2, precision="float64")
        >>> x = np.random.default_rng(0).normal(size=(4, 2))
        >>> found = loom.analysis.saliency(net, x, target=1, method="integrated_gradients")
        >>> found.values.shape, bool(found.completeness_gaps().max() < 1e-9)
        ((4, 2), True)
    """
    if method not in _METHODS:
        raise unknown("method", str(method), _METHODS)
    count = whole("saliency", "steps", steps, least=1)
    size = whole("saliency", "batch_size", batch_size, least=1)
    engine = engine_of(net)
    samples = engine.as_input(x)
    check_differentiable(engine)
    if samples.ndim == 0 or len(samples) == 0:
        raise DataError(f"there are no samples: x has shape {samples.shape}")
    outputs = outputs_of(net, samples, batch_size=size)
    shape = outputs.shape[1:]
    if target is None:
        largest = outputs.reshape(len(outputs), -1).argmax(axis=1)
        index = np.stack(np.unravel_index(largest, shape), axis=1).astype(np.int64)
    else:
        index = chosen_outputs(target, shape, len(samples))

    def gradients(points: NDArray[Any]) -> NDArray[np.float64]:
        return net.input_gradients(points, target=index, batch_size=size).astype(np.float64)

    if method == "gradient":
        nothing = np.full(len(samples), np.nan)
        return Saliency(method, gradients(samples), index, at_index(outputs, index), nothing)
    begin = _baseline(baseline, samples)
    way = samples.astype(np.float64) - begin
    total = np.zeros_like(way)
    # The points and weights of the interval from -1 to 1.
    for point, weight in zip(*np.polynomial.legendre.leggauss(count), strict=True):
        total += weight / 2 * gradients(begin + (point + 1) / 2 * way)
    before = at_index(outputs_of(net, begin, batch_size=size), index)
    return Saliency(method, total * way, index, at_index(outputs, index), before)


def _baseline(given: ArrayLike | None, samples: NDArray[Any]) -> NDArray[np.float64]:
    if given is None:
        return np.zeros(samples.shape)
    baseline = as_real_array(given, "float64", what="baseline")
    if baseline.shape not in {(), samples.shape[1:], samples.shape}:
        raise ShapeError(
            f"baseline must be a number, one sample {samples.shape[1:]} or one for each {samples.shape}, got "
            f"shape {baseline.shape}"
        )
    return np.array(np.broadcast_to(baseline, samples.shape), np.float64)
