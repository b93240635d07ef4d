"""Data that is made in the same arrays again and again: what a run needs of a batch, it has kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from networks import blobs, mlp, quiet, weights

Batches = list[tuple[NDArray[Any], ...]]


class Fresh:
    """Batches in arrays of their own."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batches:
            yield tuple(part.copy() for part in batch)


class Reused(Fresh):
    """The same batches, each written over the one before, and spoilt at the end."""

    def __init__(self, batches: Batches, wrap: Callable[[NDArray[Any]], Any] = lambda array: array) -> None:
        super().__init__(batches)
        self.buffers = [np.empty_like(part) for part in batches[0]]
        self.wrap = wrap

    def __iter__(self) -> Iterator[Any]:
        for batch in self.batches:
            for buffer, part in zip(self.buffers, batch, strict=True):
                buffer[...] = part
            yield tuple(map(self.wrap, self.buffers))
        for buffer in self.buffers:
            buffer.fill(0)


class Wrapped:
    """Somebody else's array, which gives its own memory away."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return self._array


def batches(count: int, weighted: bool) -> Batches:
    random = np.random.default_rng(count)
    found: Batches = []
    for number in range(count):
        x, y = blobs(8, seed=number)
        parts = (x, y.astype(np.int32), random.uniform(0.5, 2, 8).astype(np.float32))
        found.append(parts if weighted else parts[:2])
    return found


def learned(data: Any, validation: Any = None, **settings: Any) -> tuple[bytes, Any]:
    net = mlp()
    config = quiet(epochs=2, learning_rate=0.02, seed=3, metrics=["accuracy", error_rate], **settings)
    result = loom.train(net, data, config, validation=validation)
    return weights(net), (result.loss_history, result.metrics)


def error_rate(outputs: NDArray[Any], targets: NDArray[Any]) -> float:
    return float(np.mean(outputs.argmax(axis=1) != targets))


@pytest.mark.parametrize("accumulate", [1, 2, 3, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_generator_may_write_every_batch_into_the_same_arrays(accumulate: int, weighted: bool) -> None:
    # Seven batches: the last step has fewer.
    data = batches(7, weighted)
    expected = learned(Fresh(data), accumulate=accumulate)
    assert learned(Reused(data), accumulate=accumulate) == expected
    assert learned(Reused(data, Wrapped), accumulate=accumulate) == expected


def test_validation_may_use_the_arrays_of_the_training_data() -> None:
    data, held_out = batches(5, False), batches(3, False)
    for accumulate in (1, 3):
        expected = learned(Fresh(data), Fresh(held_out), accumulate=accumulate)
        reused, measured = Reused(data), Reused(held_out)
        measured.buffers = reused.buffers
        assert learned(reused, measured, accumulate=accumulate) == expected


def test_a_resumed_run_skips_batches_in_reused_arrays() -> None:
    class Stop(loom.Callback):
        def on_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 1:
                raise loom.StopTraining

    data = batches(8, False)
    config = quiet(epochs=2, accumulate=2)
    whole, part = mlp(), mlp()
    loom.train(whole, Fresh(data), config)
    loom.train(part, Reused(data), config, callbacks=[Stop()])
    loom.train(part, Reused(data), config, resume=True)
    assert weights(part) == weights(whole)


def test_reused_arrays_on_a_gpu(gpu: str) -> None:
    data = batches(5, True)
    for accumulate in (1, 3):
        expected = learned(Fresh(data), accumulate=accumulate, device=gpu)
        assert learned(Reused(data), accumulate=accumulate, device=gpu) == expected
