"""Writes resizing.json: PyTorch's layers that change how many places a channel has, in float64.

    python tests/golden/resizing.py

needs PyTorch. Each case has loom's layer configuration, an input, the output, the
gradient handed in and the one that comes out, in the form of normalization.py.
Numbers are rounded to three decimals where they are chosen, so that the file holds
them exactly.
"""

import json
from pathlib import Path

import torch
from torch import nn

torch.manual_seed(5)
torch.set_default_dtype(torch.float64)


def chosen(*shape):
    return (torch.randn(shape) * 1000).round() / 1000


def flat(tensor):
    """As a list, with 14 significant digits."""
    return [float(f"{value:.14g}") for value in tensor.detach().reshape(-1).tolist()]


def shaped(tensor):
    return {"shape": list(tensor.shape), "values": flat(tensor)}


def case(config, layer, shape, rows=2):
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(chosen(*parameter.shape))
    x = chosen(rows, *shape).requires_grad_()
    y = layer(x)
    gradient = chosen(*y.shape)
    y.backward(gradient)
    step = {
        "input": flat(x),
        "output": flat(y),
        "gradient": flat(gradient),
        "input_gradient": flat(x.grad),
        "gradients": {name: flat(parameter.grad) for name, parameter in layer.named_parameters()},
    }
    layer.eval()
    return {
        "config": config,
        "input_shape": list(shape),
        "rows": rows,
        "parameters": {name: shaped(parameter) for name, parameter in layer.named_parameters()},
        "steps": [step],
        "states": {},
        "inference": flat(layer(x)),
    }


def up(scale, mode, shape):
    axes = len(shape) - 1
    config = {"type": f"up_sampling{axes}d", "scale": list(scale), "mode": mode}
    settings = {} if mode == "nearest" else {"align_corners": False}
    return case(config, nn.Upsample(scale_factor=tuple(map(float, scale)), mode=mode, **settings), shape)


def adaptive(kind, size, shape):
    axes = len(shape) - 1
    config = {"type": f"adaptive_{kind}_pool{axes}d", "size": list(size)}
    return case(config, getattr(nn, f"Adaptive{kind.title()}Pool{axes}d")(size), shape)


class Crop(nn.Module):
    """By padding with less than nothing, last axis first."""

    def __init__(self, *edges):
        super().__init__()
        self.edges = edges

    def forward(self, x):
        return nn.functional.pad(x, [-edge for edge in self.edges])


norm = {"type": "instance_norm"}
cases = [
    up([2], "nearest", (2, 3)),
    up([3, 1], "nearest", (1, 2, 3)),
    up([2, 3], "nearest", (2, 2, 2)),
    up([1, 2, 2], "nearest", (1, 2, 1, 2)),
    up([2], "linear", (2, 5)),
    up([3], "linear", (1, 4)),
    up([2, 2], "bilinear", (2, 3, 4)),
    up([3, 4], "bilinear", (1, 2, 3)),
    up([5, 2], "bilinear", (1, 1, 2)),
    up([2, 3, 2], "trilinear", (1, 2, 2, 2)),
    *(
        adaptive(kind, size, shape)
        for kind in ("avg", "max")
        for size, shape in [
            ((3,), (2, 7)),
            ((2, 3), (2, 5, 4)),
            ((2, 2), (1, 4, 6)),
            ((4, 5), (1, 3, 3)),
            ((1, 1), (2, 3, 2)),
            ((2, 1, 3), (1, 3, 2, 4)),
        ]
    ),
    case({"type": "pixel_shuffle", "factor": 2}, nn.PixelShuffle(2), (8, 2, 3)),
    case({"type": "pixel_shuffle", "factor": 3}, nn.PixelShuffle(3), (9, 1, 2)),
    case({"type": "pixel_unshuffle", "factor": 2}, nn.PixelUnshuffle(2), (2, 4, 2)),
    case({"type": "pixel_unshuffle", "factor": 3}, nn.PixelUnshuffle(3), (1, 3, 6)),
    case(norm, nn.InstanceNorm1d(3, affine=True), (3, 4)),
    case(norm | {"epsilon": 1e-2}, nn.InstanceNorm2d(2, eps=1e-2, affine=True), (2, 2, 3)),
    case(norm | {"gain": False, "bias": False}, nn.InstanceNorm3d(2), (2, 2, 1, 2)),
    case({"type": "crop1d", "before": [2], "after": [0]}, Crop(2, 0), (2, 5)),
    case({"type": "crop2d", "before": [1, 0], "after": [0, 2]}, Crop(0, 2, 1, 0), (2, 3, 4)),
    case({"type": "crop3d", "before": [1, 1, 0]}, Crop(0, 0, 1, 1, 1, 1), (1, 3, 3, 2)),
]
lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in cases)
path = Path(__file__).with_suffix(".json")
path.write_text(f'{{"pytorch":"{torch.__version__}","cases":[\n{lines}\n]}}\n')
print(f"{len(cases)} cases, {path.stat().st_size} bytes: {path}")
