"""Inference: the output for each sample, dropout off; and who is shown what layers make."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import cast

import numpy as np

from loom._settings.calls import explained
from loom._settings.checks import whole
from loom._typing import ArrayLike, RealArray
from loom.convert import as_real_array
from loom.engine import Engine, HasEngine, NetworkT, engine_of
from loom.engine.told import encoded
from loom.observers import Observer

__all__ = ["observe", "predict", "unobserve"]


@explained()
def predict(self: HasEngine, x: ArrayLike | Mapping[str, ArrayLike], batch_size: int = 256) -> RealArray:
    """Returns the output for each sample, dropout off.

    On the CPU a sample's result is the same bits alone and in any batch; on a GPU it is
    the same bits each time, and may round differently in batches of other sizes.
    Several threads may predict at once.

    Args:
        x: (rows, *input_shape) the samples; or a frame, where the network has learned from a table of
            `loom.data.columns`; of named inputs a dictionary of arrays, or a frame; of open extents also a
            list of arrays, or `loom.data.Padded`.
        batch_size: How many are computed at a time.

    Returns:
        (rows, *output_shape) in the network's precision; of named outputs a dictionary of arrays. Of samples
        in a list whose outputs have extents of their own, a list of arrays.

    Raises:
        ShapeError: The samples do not have the network's input shape.
        NonFiniteError: They hold NaN or infinity.
        StateError: The network is training in another thread.
    """
    engine = engine_of(self)
    if engine.direct:
        if not (
            type(x) is np.ndarray and x.dtype is engine.dtype and x.flags.c_contiguous and x.flags.aligned
        ):
            x = as_real_array(cast("ArrayLike", encoded(engine.native, x)), engine.precision)
        if type(batch_size) is int and x.ndim and x.shape[0] <= batch_size < 1 << 63:
            return engine.native.predict(x, batch_size)
    size = whole("predict", "batch_size", batch_size, least=1)
    sizing = engine.sizing
    if sizing is not None:
        engine.check_thread()
        made = sizing.predict(x, size, partial(_batch, engine), exact=engine.observation.active)
        return cast("RealArray", made)
    array = engine.as_input(x)
    ports = engine.ports
    if ports is not None and ports.outputs:
        # Type checkers know networks with a single output.
        return cast("RealArray", ports.unpack(_in_batches(engine, array, size)))
    return _in_batches(engine, array, size)


def _in_batches(engine: Engine, array: RealArray, size: int) -> RealArray:
    if array.ndim == 0 or array.shape[0] <= size or array.shape[1:] != engine.input_shape:
        return _batch(engine, array, size)
    # One call a batch, so that Ctrl-C is heard between them.
    output = np.empty((array.shape[0], *engine.native.output_shape()), engine.dtype)
    for start in range(0, array.shape[0], size):
        rows = slice(start, start + size)
        output[rows] = _batch(engine, array[rows], size)
    return output


def _batch(engine: Engine, x: RealArray, batch_size: int) -> RealArray:
    if not engine.observation.active:
        return engine.native.predict(x, batch_size)
    output, passes = engine.native.predict_observed(x, batch_size, engine.observation.levels)
    for figures in passes:
        engine.observation.tell(figures)
    return output


def observe(self: NetworkT, observer: Observer, depth: int = 1) -> NetworkT:
    """Shows each layer's activation statistics to an observer after each forward pass.

    Args:
        observer: `loom.observers.Console()`, `Recorder()`, or any callable that takes
            a list of `LayerActivation`.
        depth: How deep to go into layers that hold layers: 1 shows those of cells, 2 what these hold,
            and so on. Programs that show what is inside fuse less, and compute the same bits on the CPU.

    Returns:
        The network.

    Raises:
        ConfigError: The observer cannot be called, or the depth is not a positive whole number.

    Examples:
        >>> net = loom.Sequential([nn.Residual([nn.Dense(4), nn.Dense(4)])], input_shape=4)
        >>> recorder = loom.observers.Recorder()
        >>> _ = net.observe(recorder, depth=2).predict(np.ones((3, 4)))
        >>> [layer.path for layer in recorder.records[0]]
        ['0.0.0.0', '0.0.0.0.layers.0', '0.0.0.0.layers.1']
    """
    engine_of(self).observe(observer, whole("observe", "depth", depth, least=1))
    return self


def unobserve(self: NetworkT, observer: Observer | None = None) -> NetworkT:
    """Takes an observer away.

    Args:
        observer: The observer; all of them where None.

    Raises:
        StateError: The observer is not observing.
    """
    engine_of(self).unobserve(observer)
    return self
