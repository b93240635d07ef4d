"""Windows of time series."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import whole
from loom._typing import ArrayLike
from loom.convert import as_numpy
from loom.errors import DataError

__all__ = ["windows"]


def windows(
    series: ArrayLike,
    length: int,
    horizon: int = 1,
    stride: int = 1,
    *,
    target: int | None = None,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Cuts a series into windows, and what follows each of them.

    Both are views of the series' own memory: nothing is copied until samples are needed. For a series in a
    file, `loom.data.stream(*loom.data.windows(np.load(path, mmap_mode="r"), 24))` reads them batch by batch.

    Args:
        series: (time,) or (time, features), in order; numbers.
        length: How many moments a window has.
        horizon: How many moments after it are the target; 0 for windows alone, whose target is empty.
        stride: How many moments lie between the beginnings of two windows.
        target: The feature that is told ahead; all where None.

    Returns:
        The windows, (windows, length, features), features being 1 for a series without; and what follows
        them: (windows, horizon) of a series without features or with `target`, otherwise (windows, horizon,
        features). Neither can be written to.

    Raises:
        DataError: The series is shorter than a window with what follows, or has another number of axes.
        ConfigError: A number is out of range.

    Examples:
        >>> x, y = loom.data.windows(np.arange(10.0), length=4, horizon=2)
        >>> x.shape, y.shape
        ((5, 4, 1), (5, 2))
        >>> x[0, :, 0].tolist(), y[0].tolist()
        ([0.0, 1.0, 2.0, 3.0], [4.0, 5.0])
    """
    size = whole("windows", "length", length, least=1)
    ahead = whole("windows", "horizon", horizon, least=0)
    step = whole("windows", "stride", stride, least=1)
    values = as_numpy(series, what="windows: series")
    if values.ndim not in (1, 2):
        raise DataError(
            f"windows: a series is (time,) or (time, features), got shape {values.shape}; cut each series of "
            "a batch by itself and put the windows together with np.concatenate"
        )
    if len(values) < size + ahead:
        raise DataError(
            f"windows: {len(values)} moments are fewer than a window of {size} and the {ahead} after it"
        )
    flat = values.ndim == 1
    columns = values[:, None] if flat else values
    if target is not None:
        features = columns.shape[1]
        column = whole("windows", "target", target, least=0, most=features - 1)
    count = (len(values) - size - ahead) // step + 1
    view = np.lib.stride_tricks.sliding_window_view
    x = view(columns, size, axis=0)[::step][:count].transpose(0, 2, 1)
    if ahead == 0:
        return x, np.empty((count, 0), columns.dtype)
    y = view(columns[size:], ahead, axis=0)[::step][:count].transpose(0, 2, 1)
    if flat:
        return x, y[:, :, 0]
    return x, y if target is None else y[:, :, column]
