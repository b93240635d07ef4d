"""Zero padding against numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loom
from loom import nn

LAYERS: dict[int, Any] = {1: nn.ZeroPadding1D, 2: nn.ZeroPadding2D, 3: nn.ZeroPadding3D}


@pytest.mark.parametrize("axes", LAYERS)
@pytest.mark.parametrize(("before", "after"), [(1, None), ((2, 0, 1), (0, 3, 1)), (0, 2), (0, 0)])
def test_values_and_gradients_are_those_of_numpys_pad(axes: int, before: Any, after: Any) -> None:
    rng = np.random.default_rng(axes)
    extents = (2, *(5, 3, 4)[:axes])
    first = before if isinstance(before, int) else before[:axes]
    last = after if after is None or isinstance(after, int) else after[:axes]
    net = loom.Sequential([LAYERS[axes](first, last)], input_shape=extents, precision="float64")
    widths = np.broadcast_to(first, axes), np.broadcast_to(first if last is None else last, axes)
    x = rng.normal(size=(3, *extents))
    padded = np.pad(x, [(0, 0), (0, 0), *zip(*widths, strict=True)])
    np.testing.assert_array_equal(net.predict(x), padded)
    net.forward(x)
    gradient = rng.normal(size=padded.shape)
    inside = tuple(slice(b, b + extent) for b, extent in zip(widths[0], extents[1:], strict=True))
    np.testing.assert_array_equal(net.backward(gradient), gradient[(slice(None), slice(None), *inside)])
