"""Whatever is done again and again keeps no memory: 10,000 times each with LOOM_SOAK=1."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

COUNT = 10_000 if os.environ.get("LOOM_SOAK") == "1" else 150

PROGRAM = """
import gc, sys, tempfile, warnings
from contextlib import suppress
from pathlib import Path
import numpy as np
import loom
from loom import nn

def resident():
    gc.collect()
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmRSS"].split()[0])

def refused():
    with suppress(loom.ShapeError):
        net.predict(np.zeros((2, 7)))

warnings.simplefilter("ignore")
net = loom.Sequential([nn.Dense(32, activation="relu"), nn.BatchNorm(), nn.Dense(3)], 16)
x, y = np.random.default_rng(0).normal(size=(32, 16)).astype(np.float32), np.arange(32) % 3
config = loom.TrainingConfig(loss="cross_entropy", batch_size=16, epochs=1, verbose=False, device="cpu")
path = Path(tempfile.mkdtemp()) / "net.loom"
calls = {
    "predict": lambda: net.predict(x),
    "train": lambda: loom.train(net, (x, y), config),
    "build and drop": lambda: loom.Sequential([nn.Dense(64), nn.Dense(8)], 16).build(),
    "save": lambda: net.save(path),
    "load": lambda: loom.load(path),
    "error": refused,
}
for name, call in calls.items():
    for _ in range(100):
        call()
    before = resident()
    for _ in range(int(sys.argv[1])):
        call()
    print(name, resident() - before, sep=":")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ten_thousand_of_everything_keep_no_memory() -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(COUNT)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "LOOM_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    kept = {name: int(kilobytes) for name, kilobytes in (line.split(":") for line in run.stdout.splitlines())}
    assert len(kept) == 6
    assert max(kept.values()) < 2048, kept
