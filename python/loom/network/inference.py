"""Inference: the output for each sample, dropout off."""

from __future__ import annotations

import numpy as np

from loom._settings.checks import whole
from loom._typing import ArrayLike, RealArray
from loom.convert import as_real_array
from loom.engine import Engine

__all__ = ["Inference"]


class Inference:
    """What `Network.predict` does.

    Args:
        engine: The network's engine.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._predict = engine.native.predict

    def predict(self, x: ArrayLike, batch_size: int) -> RealArray:
        """Returns the output for each sample; see `loom.Network.predict`."""
        engine = self._engine
        if engine.direct:
            if not (type(x) is np.ndarray and x.dtype is engine.dtype and x.flags.c_contiguous):
                x = as_real_array(x, engine.precision)
            if x.ndim and x.shape[0] <= batch_size:
                return self._predict(x, batch_size)
        size = whole("predict", "batch_size", batch_size, least=1)
        return self._in_batches(engine.as_input(x), size)

    def _in_batches(self, x: RealArray, batch_size: int) -> RealArray:
        engine = self._engine
        engine.build()
        if x.ndim == 0 or x.shape[0] <= batch_size or x.shape[1:] != engine.input_shape:
            return self._batch(x, batch_size)
        # One call a batch, so that Ctrl-C is heard between them.
        output = np.empty((x.shape[0], *engine.native.output_shape()), engine.dtype)
        for start in range(0, x.shape[0], batch_size):
            rows = slice(start, start + batch_size)
            output[rows] = self._batch(x[rows], batch_size)
        return output

    def _batch(self, x: RealArray, batch_size: int) -> RealArray:
        engine = self._engine
        if not engine.observation.active:
            return self._predict(x, batch_size)
        output, passes = engine.native.predict_observed(x, batch_size)
        for figures in passes:
            engine.observation.tell(figures)
        return output
