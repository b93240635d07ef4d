"""The workloads in loom on a GPU: `loom.train` over examples that stay on the device."""

from __future__ import annotations

import os
import statistics
from typing import Any

import numpy as np
from numpy.typing import NDArray

import loom
from in_loom import network
from workloads import Workload

_RANDOM = np.random.default_rng(0)
_DEVICE = os.environ.get("LOOM_BENCH_DEVICE", "gpu")
# About as many as MNIST has, and whole batches; fewer where a step takes long.
_MOST_ROWS = 65_536


def measure(work: Workload, variant: str, seconds: float) -> float | None:
    """Returns the seconds of a step, the median over epochs, with shuffling and all else between them."""
    net = network(work)

    def epoch_times(steps: int, epochs: int) -> list[float]:
        rows = steps * work.batch
        x: NDArray[Any]
        if work.kind == "train_gpt":
            x = _RANDOM.integers(0, work.sizes[-1], (rows, *net.input_shape))
            y = _RANDOM.integers(0, work.sizes[-1], x.shape)
        else:
            x = _RANDOM.standard_normal((rows, *net.input_shape), np.float32)
            y = _RANDOM.integers(0, 8, rows)
        config = loom.TrainingConfig(
            epochs=epochs,
            loss="cross_entropy",
            optimizer=loom.AdamW(),
            # Random labels, learned by heart over thousands of steps, would end in odd numbers.
            learning_rate=1e-6,
            batch_size=work.batch,
            device=_DEVICE,
            verbose=False,
        )
        return loom.train(net, (x, y), config).epoch_times

    step = min(epoch_times(4, 4)) / 4
    steps = min(max(int(seconds / 4 / step), 4), _MOST_ROWS // work.batch)
    # The first epoch copies the examples, and the second finds out how many steps make a frame.
    epochs = min(max(int(seconds / (steps * step)), 3), 200)
    return statistics.median(epoch_times(steps, epochs + 2)[2:]) / steps


def describe() -> str:
    """Names the version and the GPU."""
    return f"loom {loom.__version__}, {loom.init_gpu(_DEVICE)}"
