"""Samples in rows: how arrays are read that reports are made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from loom._typing import ArrayLike
from loom.convert import as_real_array
from loom.errors import ConfigError, DataError, NonFiniteError, ShapeError

__all__ = ["as_names", "as_samples", "centred"]


def as_samples(x: ArrayLike, *, what: str, least: int = 1) -> NDArray[np.float64]:
    """Lays an array out as (samples, features) in double precision.

    Args:
        x: (samples, ...) finite numbers; further axes become one.
        what: What it is, for messages.
        least: How many samples are needed.

    Returns:
        (samples, features); where possible the array itself, not to be written to.

    Raises:
        ShapeError: There is no axis beside the samples.
        DataError: It is empty, or has too few samples.
        NonFiniteError: It holds NaN or infinity.
    """
    array = np.asarray(as_real_array(x, "float64", what=what), dtype=np.float64)
    if array.ndim < 2:
        raise ShapeError(
            f"{what} must be (samples, features), got shape {array.shape}; "
            "a single feature is a column, x[:, None]"
        )
    if array.size == 0:
        raise DataError(f"{what} is empty, its shape is {array.shape}")
    samples = array.reshape(len(array), -1)
    if len(samples) < least:
        raise DataError(
            f"{what} has {len(samples)} sample{'s' * (len(samples) > 1)}, but needs {least} or more"
        )
    if not np.isfinite(samples).all():
        row, column = np.argwhere(~np.isfinite(samples))[0]
        raise NonFiniteError(f"{what}: feature {column} of sample {row} is {samples[row, column]}")
    return samples


def as_names(given: Sequence[object] | None, count: int, *, what: str, prefix: str = "") -> tuple[str, ...]:
    """Checks names, one for each thing; numbers from 0 behind a prefix where there are none.

    Args:
        given: The names, all different.
        count: How many things there are.
        what: What is named, in the plural, for messages.
        prefix: What stands before the numbers.

    Returns:
        The names.

    Raises:
        ConfigError: There are more or fewer, or two are the same.
    """
    if given is None:
        return tuple(f"{prefix}{place}" for place in range(count))
    if isinstance(given, str):
        raise ConfigError(f"the names of {what} must be a sequence, got the text {given!r}")
    names = tuple(map(str, given))
    if len(names) != count:
        raise ConfigError(f"{len(names)} names do not fit {count} {what}")
    if len(set(names)) < count:
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise ConfigError(f'two of the {what} are named "{twice}"; their names must differ')
    return names


def centred(
    samples: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intc]]:
    """Takes each feature's mean away, and scales it so that no square overflows.

    Args:
        samples: (samples, features).

    Returns:
        (samples, features) the differences from the means, between -2 and 2; (features,) the means in
        the same scale; (features,) the powers of two that both are to be multiplied by.
    """
    exponents = np.frexp(np.abs(samples).max(axis=0))[1]
    scaled = np.ldexp(samples, -exponents)
    means = scaled.mean(axis=0)
    # The second pass takes away what rounding has left of the mean.
    rest = (scaled - means).mean(axis=0)
    return scaled - means - rest, means + rest, exponents
