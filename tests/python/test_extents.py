"""Extents where arithmetic wraps: each network has the right shape or is refused, and the process lives.

What may crash runs in a process of its own, with little memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import loom
from loom import nn

HERE = Path(__file__).parent

PRELUDE = """
import numpy as np
import loom
from loom import nn
from huge_extents import limit_memory

def refused(error, make):
    try:
        found = make()
    except error as raised:
        print("refused:", raised)
    else:
        raise SystemExit(f"not refused: {found}")

def predict(layers, *shape):
    net = loom.Sequential(layers, input_shape=shape)
    return net.predict(np.ones((1, *shape), np.float32)).shape

loom.Sequential([nn.Dense(1)], input_shape=1).predict(np.zeros((1, 1)))
limit_memory()
"""


def alone(code: str) -> str:
    """What code prints in a process of its own, which must end well."""
    path = os.pathsep.join([str(HERE), *sys.path])
    command = [sys.executable, "-c", PRELUDE + code]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr[-2000:]}"
    return done.stdout


WRAPPING = {
    "a dilation whose reach wraps": """
window = {"kernel_size": 3, "padding": 1, "stride": 3, "dilation": 2**63}
refused(loom.LoomError, lambda: predict([nn.Conv2D(2, **window)], 2, 6, 6))
""",
    "a shape whose product wraps to the input's": """
layers = [nn.Reshape((2, 3074457345618258604, 3, 1)), nn.Conv3D(1, kernel_size=1)]
refused(loom.ShapeError, lambda: predict(layers, 8))
""",
    "a padding that wraps": """
refused(loom.LoomError, lambda: predict([nn.Conv1D(1, kernel_size=1, padding=2**63 - 1)], 1, 6))
""",
    "a stride that a transposed convolution multiplies": """
refused(loom.LoomError, lambda: predict([nn.ConvTranspose1D(1, 1, stride=2**62)], 1, 5))
""",
    "a vocabulary times its width": """
refused(loom.ShapeError, lambda: predict([nn.Embedding(2**24, 2**24)], 1))
""",
    "heads times their size": """
refused(loom.ShapeError, lambda: predict([nn.MultiHeadAttention(2**33, head_dim=2**33)], 2, 4))
""",
    "the gates of a recurrent layer": """
refused(loom.ShapeError, lambda: predict([nn.LSTM(2**62)], 2, 4))
""",
    "a stack of more layers than anyone has memory for": """
refused(loom.InvalidValueError, lambda: predict([nn.GRU(1, layers=2**40)], 2, 4))
""",
    "a grid of softmaxes": """
refused(loom.ShapeError, lambda: predict([nn.GridSoftmax(2**33, 2**33)], 4))
""",
    "as many groups as there are addresses": """
refused(loom.LoomError, lambda: predict([nn.HierarchicalSoftmax(2**62, 2**62)], 4))
""",
    "places on a grid that wraps": """
layer = nn.Parallel([[nn.Dense(2)], [nn.Dense(2)]], combine="grid_scatter", grid=(2**40, 2**40))
refused(loom.ShapeError, lambda: predict([layer], 4))
""",
    "an input that wraps": """
refused(loom.ShapeError, lambda: predict([nn.Flatten()], 2**32, 2**32, 1))
""",
    "a tall window of attention": """
layer = nn.MultiHeadAttention(1, window=2**64 - 1)
assert predict([layer], 3, 4) == (1, 3, 4)
""",
    "batches of any size": """
net = loom.Sequential([nn.Dense(2)], input_shape=3)
x = np.ones((5, 3), np.float32)
for size in (2**31, 2**32, 2**63, 2**64 - 1):
    assert net.predict(x, batch_size=size).shape == (5, 2)
    net.calibrate(x, batch_size=size)
    data = (x, np.ones((5, 2), np.float32))
    config = loom.TrainingConfig(loss="mse", batch_size=size, accumulate=size, validation_batch_size=size,
                                 validation_split=0.4, verbose=False)
    assert np.isfinite(loom.train(net, data, config).final_loss)
""",
    "a schedule over more steps than 64 bits count": """
from loom import schedules
net = loom.Sequential([nn.Dense(2)], input_shape=3)
data = (np.ones((5, 3), np.float32), np.ones((5, 2), np.float32))
class Stop(loom.Callback):
    def on_train_batch_end(self, batch, logs=None): raise StopIteration
config = loom.TrainingConfig(loss="mse", epochs=2**63, batch_size=1, schedule=schedules.Linear(),
                             verbose=False)
try:
    loom.train(net, data, config, callbacks=[Stop()])
except StopIteration:
    print("stopped")
assert np.isfinite(loom.Trainer(net, config, total_steps=2**64 - 1).step(*data))
""",
    "a session of more steps than memory has places": """
net = loom.Sequential([nn.MultiHeadAttention(1, causal=True)], input_shape=(3, 4))
for capacity in (2**40, 2**62, 2**64 - 1):
    refused((loom.ShapeError, loom.OutOfMemoryError), lambda: net.session(capacity))
refused((loom.ShapeError, loom.OutOfMemoryError), lambda: net.session(2**20, rows=2**60))
""",
    "a mesh of more rows than memory has": """
net = loom.Sequential([nn.Dense(4)], input_shape=4)
for rows in (2**40, 2**62, 2**64 - 1):
    refused(loom.OutOfMemoryError, lambda: loom.Mesh(net, rows=rows, window=2))
""",
    "blocks longer than any column": """
net = loom.Sequential([nn.Dense(6)], input_shape=40)
x = np.random.default_rng(0).normal(size=(3, 40)).astype(np.float32)
net.morph("int8", granularity="channel")
whole = net.predict(x)
for block in (40, 2**31, 2**32, 2**63, 2**64 - 1):
    net.morph("int8", granularity=f"block({block})")
    assert np.array_equal(net.predict(x), whole)
""",
    "memory that is not there": """
refused(loom.OutOfMemoryError, lambda: predict([nn.Dense(2**37)], 4))
refused(loom.OutOfMemoryError, lambda: predict([nn.Conv1D(1, 1, padding=2**30 - 4, bias=False)], 1, 6))
refused(MemoryError, lambda: predict([nn.PositionalEmbedding(2**36)], 2, 4))
assert predict([nn.Dense(3)], 4) == (1, 3)
""",
}


@pytest.mark.parametrize("name", WRAPPING)
def test_it_is_refused_or_right_and_the_process_lives(name: str) -> None:
    alone(WRAPPING[name])


def test_the_error_of_missing_memory_says_how_much_was_asked_for() -> None:
    told = alone("refused(loom.OutOfMemoryError, lambda: predict([nn.Dense(2**38)], 1))")
    assert "GiB" in told
    assert "cell (0, 0, 0), layer 0" in told


def test_a_small_file_cannot_wrap_either() -> None:
    told = alone("""
from huge_extents import description, of_file
window = {"type": "conv2d", "filters": 2, "kernel_size": [3, 3], "padding": [1, 1], "stride": [3, 3],
          "dilation": [2**63, 2**63], "bias": False}
refused(loom.SerializationError, lambda: of_file(window, (2, 6, 6)))
""")
    assert "dilation" in told


def test_strides_beyond_the_input_change_nothing() -> None:
    x = np.random.default_rng(0).normal(size=(2, 2, 6, 7)).astype(np.float32)
    outputs = []
    for stride in (9, 1 << 20, (1 << 31) - 1):
        net = loom.Sequential(
            [nn.Conv2D(3, kernel_size=4, padding=1, stride=stride)], input_shape=(2, 6, 7), seed=3
        )
        y = net.forward(x)
        outputs.append((np.asarray(y), net.backward(np.ones((2, 3, 1, 1), np.float32))))
    for y, dx in outputs[1:]:
        assert np.array_equal(y, outputs[0][0])
        assert np.array_equal(dx, outputs[0][1])


@pytest.mark.parametrize("seed", range(2))
def test_random_networks_are_right_or_refused(seed: int) -> None:
    # LOOM_EXTENTS=10000 tries so many for each seed.
    count = int(os.environ.get("LOOM_EXTENTS", "200"))
    path = os.pathsep.join([str(HERE), *sys.path])
    command = [sys.executable, str(HERE / "huge_extents.py"), str(seed), str(count)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
        timeout=60 + count,
    )
    last = done.stderr.rsplit("\r", 1)[-1]
    assert done.returncode == 0, f"{done.returncode} at {seed}/{last}:\n{done.stdout}"
