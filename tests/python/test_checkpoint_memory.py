"""What nn.Checkpoint is for: training takes less memory with it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import loom

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="memory is measured as Linux counts it"
)

# Sixteen blocks of attention over eight rows of 128 steps; what a step keeps is far more than the weights.
# What is there however much is kept, modules, gradients and moments, a step of one row has made before.
PROGRAM = """
import pathlib
import sys

import numpy as np

import loom
from loom import nn

heads = nn.MultiHeadAttention(2, causal=True, rotary=nn.Rotary(), bias=False)
block = [nn.Residual([nn.RMSNorm(), heads]), nn.Residual([nn.RMSNorm(), nn.SwiGLU(128)])]
blocks = 16 * ([nn.Checkpoint(block)] if sys.argv[1] == "again" else block)
net = loom.Sequential([nn.Embedding(64, 64), *blocks, nn.Dense(64)], input_shape=128, seed=1)
x = np.random.default_rng(0).integers(0, 64, (8, 128))
config = loom.TrainingConfig(epochs=1, batch_size=8, loss="cross_entropy", verbose=False)
loom.train(net, (x[:1], x[:1]), config)
# The highest so far may be that of the process which started this one.
pathlib.Path("/proc/self/clear_refs").write_text("5")


def told(name):
    (line,) = [line for line in open("/proc/self/status") if line.startswith(name)]
    return int(line.split()[1])


before = told("VmRSS")
loom.train(net, (x, x), config)
print(told("VmHWM") - before)
"""


def test_what_is_computed_again_is_not_kept() -> None:
    grown = {}
    for how in ("kept", "again"):
        command = [sys.executable, "-c", PROGRAM, how]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        grown[how] = int(told)
    # 52 MB and 13 MB.
    assert grown["again"] < 0.5 * grown["kept"]


# The same on a GPU, whose memory loom counts itself, and of a network of which nothing is kept; in hardware
# with values so large that they share memory while there is plenty, too.
ON_A_GPU = """
import sys

import numpy as np

import loom
from loom import nn
from loom.callbacks import LambdaCallback

heads = nn.MultiHeadAttention(2, causal=True, rotary=nn.Rotary(), bias=False)
block = [nn.Residual([nn.RMSNorm(), heads]), nn.Residual([nn.RMSNorm(), nn.SwiGLU(128)])]
blocks = 6 * ([nn.Checkpoint(block)] if sys.argv[1] == "again" else block)
net = loom.Sequential([nn.Embedding(64, 64), *blocks, nn.Dense(64)], input_shape=64, seed=1)
net.to("gpu")
rows = int(sys.argv[2])
x = np.random.default_rng(0).integers(0, 64, (rows, 64))
before = loom.frame_statistics("gpu").memory
if sys.argv[1] == "predicted":
    net.predict(x)
    print(loom.frame_statistics("gpu").memory - before)
    sys.exit()
held = []
looking = LambdaCallback(on_epoch_end=lambda *_: held.append(loom.frame_statistics("gpu").memory))
config = loom.TrainingConfig(epochs=1, batch_size=rows, loss="cross_entropy", device="gpu", verbose=False)
loom.train(net, (x, x), config, callbacks=[looking])
print(held[0] - before)
"""


def test_a_gpu_holds_no_more_than_it_needs(gpu: str) -> None:
    held = {}
    rows = 8 if loom.init_gpu(gpu).software else 1024
    for how in ("kept", "again", "predicted"):
        command = [sys.executable, "-c", ON_A_GPU.replace('"gpu"', f'"{gpu}"'), how, str(rows)]
        held[how] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    # A block makes 16 values of 64 steps of 64 or 128 units a row, and as many gradients.
    values = 6 * 20 * rows * 64 * 64 * 4
    assert held["kept"] < 1.2 * values
    assert held["again"] < 0.65 * held["kept"]
    assert held["predicted"] < 0.25 * values
