"""Networks packed as int8, in ONNX Runtime: what it makes of codes and scales, and what comes back.

Usage: onnx_int8.py, with an interpreter that has onnx, onnxruntime and numpy, and loom on its path. Ends with
1 where an output is more than 1e-5 of the largest away.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
import onnxruntime

import loom
from loom import nn
from loom.models.onnx.export import onnx_model

Row = tuple[list[nn.Layer], tuple[int, ...]]


def rows() -> dict[str, Row]:
    """Layers of every kind whose weights are packed, and what they read."""
    gate = [nn.AdaptiveAvgPool2D(1), nn.Conv2D(4, 1, activation="hardsigmoid")]
    attention = nn.MultiHeadAttention(2, causal=True, rotary=nn.Rotary())
    return {
        "perceptron": ([nn.Dense(16, activation="gelu"), nn.Dense(5)], (12,)),
        "images": (
            [
                nn.Conv2D(8, 3, padding=1),
                nn.MaxPool2D(2),
                nn.Conv2D(6, 3, groups=2),
                nn.Flatten(),
                nn.Dense(4),
            ],
            (4, 8, 8),
        ),
        "signals": ([nn.Conv1D(8, 3, dilation=2), nn.GlobalAvgPool1D(), nn.Dense(4)], (4, 12)),
        "transposed": ([nn.ConvTranspose2D(8, 3, stride=2), nn.ConvTranspose2D(8, 3, groups=2)], (4, 4, 4)),
        "excited": ([nn.Parallel([[], gate], combine="multiply")], (4, 5, 5)),
        "attention": (
            [nn.Residual([nn.RMSNorm(), attention]), nn.Residual([nn.RMSNorm(), nn.SwiGLU(24)])],
            (5, 8),
        ),
        "tied": ([nn.Embedding(20, 8), nn.LayerNorm(), nn.TiedHead(20, tied_to=(0, 0, 0, 0))], (5,)),
        "recurrent": ([nn.LSTM(6, return_sequences=True), nn.GRU(5, reset_after=False)], (7, 4)),
        "experts": ([nn.MixtureOfExperts(4, 2, 12)], (5, 8)),
    }


def main() -> int:
    """Prints a line for each."""
    onnxruntime.set_default_logger_severity(3)
    random, worst = np.random.default_rng(0), 0.0
    for name, (layers, shape) in rows().items():
        for granularity in ("channel", "tensor", "block(4)"):
            net = loom.Sequential(layers, input_shape=shape, seed=2).morph("int8", granularity=granularity)
            words = name == "tied"
            x: Any = (
                random.integers(0, 20, (3, *shape)) if words else random.normal(size=(3, *shape)).astype("f4")
            )
            model = onnx_model(net)
            onnx.checker.check_model(model, full_check=True)
            session = onnxruntime.InferenceSession(model.SerializeToString())
            expected = net.predict(x)
            apart = np.abs(session.run(None, {"input": x})[0] - expected).max()
            relative = float(apart) / max(1.0, float(np.abs(expected).max()))
            again = loom.models.onnx.load(model.SerializeToString()) if name != "experts" else net
            relative = max(relative, float(np.abs(again.predict(x) - expected).max()))
            codes = sum(node.op_type == "DequantizeLinear" for node in model.graph.node)
            print(f"{name:12} {granularity:9} {codes} weights as codes, {relative:.1e} apart")
            worst = max(worst, relative)
    print(f"worst {worst:.1e}")
    return int(worst > 1e-5)


if __name__ == "__main__":
    sys.exit(main())
