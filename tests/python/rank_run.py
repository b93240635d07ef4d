"""A run in a folder that several processes share: a program, for tests to start, kill and start again.

Usage: rank_run.py FOLDER SECONDS KIND; it prints the final weights' fingerprint and the history's hash.
SECONDS are how long rank 0 takes over each step; KIND is "arrays" or "drawn".
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import loom
from loom import nn


class Slow(loom.Callback):
    """Takes its time, in rank 0, so that there are moments to be killed in."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.seen = seconds, 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen += 1
        time.sleep(self.seconds)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: Any) -> None:
        self.seen = state["seen"]


def batches() -> Any:
    """Draws from NumPy's own generator, which every process has where rank 0 has it."""
    for _ in range(5):
        yield np.random.normal(size=(12, 6)), np.random.randint(0, 3, 12)  # noqa: NPY002


class Drawn:
    """Data that is drawn while it is learned from."""

    def __iter__(self) -> Any:
        return batches()

    def __len__(self) -> int:
        return 5


def main(folder: Path, seconds: float, kind: str) -> None:
    # What other ranks would draw by themselves is something else.
    np.random.seed(7 if loom.distributed.current().rank == 0 else None)  # noqa: NPY002
    random = np.random.default_rng(0)
    data: Any = (random.normal(size=(60, 6)).astype("float32"), random.integers(0, 3, 60))
    held = (random.normal(size=(20, 6)).astype("float32"), random.integers(0, 3, 20))
    if kind == "drawn":
        data = Drawn()
    layers = [nn.Dense(8, activation="tanh"), nn.BatchNorm(), nn.Dropout(0.1), nn.Dense(3)]
    net = loom.Sequential(layers, input_shape=6, seed=1)
    config = loom.TrainingConfig(
        epochs=4,
        batch_size=12,
        loss="cross_entropy",
        shards=5,
        schedule="cosine",
        early_stopping=loom.EarlyStopping("val_loss", patience=3),
        verbose=False,
    )
    run = loom.RunFolder(folder, every_steps=2)
    slow = Slow(seconds)
    result = loom.train(net, data, config, held, callbacks=[slow], run=run)
    told = json.dumps([result.loss_history, result.metrics, result.stop_reason])
    # In one piece, whoever else writes.
    os.write(1, f"{net.fingerprint()[:16]} {hashlib.sha256(told.encode()).hexdigest()[:16]}\n".encode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
