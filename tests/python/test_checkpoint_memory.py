"""What nn.Checkpoint is for: training takes less memory with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("resource", reason="memory is measured as Unix counts it")

# Sixteen blocks of attention over 32 rows of 128 steps; what a step keeps is far more than the weights.
PROGRAM = """
import resource
import sys

import numpy as np

import loom
from loom import nn

heads = nn.MultiHeadAttention(2, causal=True, rotary=nn.Rotary(), bias=False)
block = [nn.Residual([nn.RMSNorm(), heads]), nn.Residual([nn.RMSNorm(), nn.SwiGLU(128)])]
blocks = 16 * ([nn.Checkpoint(block)] if sys.argv[1] == "again" else block)
net = loom.Sequential([nn.Embedding(64, 64), *blocks, nn.Dense(64)], input_shape=128, seed=1)
x = np.random.default_rng(0).integers(0, 64, (32, 128))
config = loom.TrainingConfig(epochs=1, batch_size=32, loss="cross_entropy", verbose=False)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
loom.train(net, (x, x), config)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(after - before)
"""


def test_what_is_computed_again_is_not_kept() -> None:
    grown = {}
    for how in ("kept", "again"):
        command = [sys.executable, "-c", PROGRAM, how]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        grown[how] = int(told)
    # 321 MB and 140 MB, of which a part is the threads' own.
    assert grown["again"] < 0.65 * grown["kept"]
