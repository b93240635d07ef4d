"""What opening a packed model takes: its own bytes, and where its weights stay in the file next to none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import loom
from loom import nn

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="memory is read from Linux's /proc"
)

WIDTH, BLOCKS = 1024, 6
BESIDE = 1 << 20
"""Bytes of what is no weight: names, settings, buffers for reading."""

GROWN = """
import re, sys
from pathlib import Path
import loom

def told(name):
    return int(re.search(name + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

small, path = sys.argv[1:]
loom.load(small)
# From here on the peak counts.
Path("/proc/self/clear_refs").write_text("5")
before = told("VmRSS")
net = loom.load(path)
print(told("VmHWM") - before)
"""


def grown(*words: object) -> int:
    """By how many bytes a process grows at most that opens a file."""
    ran = subprocess.run(
        [sys.executable, "-c", GROWN, *map(str, words)], capture_output=True, text=True, check=True
    )
    return int(ran.stdout)


def decoder(width: int, blocks: int) -> loom.Network:
    attention = nn.MultiHeadAttention(8, causal=True, rotary=nn.Rotary(), bias=False)
    block = [nn.Residual([nn.RMSNorm(), attention]), nn.Residual([nn.RMSNorm(), nn.SwiGLU(2 * width)])]
    layers = [nn.Embedding(64, width), *blocks * block, nn.RMSNorm(), nn.Dense(64, bias=False)]
    return loom.Sequential(layers, input_shape=16, seed=1)


def test_a_packed_network_takes_its_bytes(tmp_path: Path) -> None:
    for name, width, blocks in (("small", 64, 1), ("large", WIDTH, BLOCKS)):
        net = decoder(width, blocks).morph("int4").drop_master()
        net.save(tmp_path / f"{name}.loom", deploy=True)
    size = (tmp_path / "large.loom").stat().st_size
    assert size > 12 * BESIDE
    assert grown(tmp_path / "small.loom", tmp_path / "large.loom") < 1.05 * size + BESIDE


def test_weights_of_a_gguf_file_stay_there(tmp_path: Path) -> None:
    for name, width, blocks in (("small", 64, 1), ("large", WIDTH, BLOCKS)):
        loom.save_gguf(decoder(width, blocks), tmp_path / f"{name}.gguf", dtype="q4_0")
    size = (tmp_path / "large.gguf").stat().st_size
    assert size > 12 * BESIDE
    assert grown(tmp_path / "small.gguf", tmp_path / "large.gguf") < 0.05 * size + BESIDE
