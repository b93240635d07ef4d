"""Writes normalization.json: PyTorch's normalisations in float64, over several steps, and its PReLU.

    python tests/golden/normalization.py

needs PyTorch. Each case has loom's layer configuration, the weights, and for
each step an input, the output in training, the gradient handed in and those
that come out; then what the layer keeps and its output at inference for the
last input. Numbers are rounded to three decimals where they are chosen, so that
the file holds them exactly.
"""

import json
from pathlib import Path

import torch
from torch import nn

torch.manual_seed(21)
torch.set_default_dtype(torch.float64)


def chosen(*shape, scale=1.0, shift=0.0):
    return ((torch.randn(shape) * scale + shift) * 1000).round() / 1000


def flat(tensor):
    """As a list, with 14 significant digits."""
    return [float(f"{value:.14g}") for value in tensor.detach().reshape(-1).tolist()]


def shaped(tensor):
    return {"shape": list(tensor.shape), "values": flat(tensor)}


def case(config, layer, shape, rows=2, steps=1):
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.copy_(chosen(*parameter.shape, scale=0.3, shift=1.0 if name == "weight" else 0.0))
    record = {
        "config": config,
        "input_shape": list(shape),
        "rows": rows,
        "parameters": {name: shaped(parameter) for name, parameter in layer.named_parameters()},
        "steps": [],
    }
    for _ in range(steps):
        x = chosen(rows, *shape, scale=1.5, shift=0.4).requires_grad_()
        layer.zero_grad()
        y = layer(x)
        gradient = chosen(*y.shape)
        y.backward(gradient)
        record["steps"].append(
            {
                "input": flat(x),
                "output": flat(y),
                "gradient": flat(gradient),
                "input_gradient": flat(x.grad),
                "gradients": {name: flat(p.grad) for name, p in layer.named_parameters()},
            }
        )
    buffers = {name: buffer for name, buffer in layer.named_buffers() if name != "num_batches_tracked"}
    record["states"] = {name: flat(buffer) for name, buffer in buffers.items()}
    layer.eval()
    record["inference"] = flat(layer(x))
    return record


def norm(kind, **settings):
    return {"type": kind, **settings}


cases = [
    case(norm("layer_norm"), nn.LayerNorm(7), (7,)),
    case(norm("layer_norm", axes=2, epsilon=1e-3), nn.LayerNorm((2, 3), eps=1e-3), (2, 2, 3)),
    case(norm("layer_norm", bias=False), nn.LayerNorm(4, bias=False), (3, 4)),
    case(
        norm("layer_norm", gain=False, bias=False), nn.LayerNorm(19, elementwise_affine=False), (19,), rows=1
    ),
    case(norm("rms_norm"), nn.RMSNorm(9, eps=1e-6), (2, 9)),
    case(norm("rms_norm", gain=False, epsilon=0.01), nn.RMSNorm(6, 0.01, elementwise_affine=False), (6,)),
    case(norm("group_norm", groups=3), nn.GroupNorm(3, 6), (6,)),
    case(norm("group_norm", groups=2), nn.GroupNorm(2, 4), (4, 2, 2)),
    case(norm("group_norm", groups=4), nn.GroupNorm(4, 4), (4, 3)),
    case(norm("batch_norm"), nn.BatchNorm1d(5), (5,), rows=3, steps=3),
    case(norm("batch_norm", momentum=0.3), nn.BatchNorm1d(3, momentum=0.3), (3, 2), steps=3),
    case(norm("batch_norm", epsilon=1e-3), nn.BatchNorm2d(2, eps=1e-3), (2, 2, 3), steps=2),
    case(norm("batch_norm", gain=False, bias=False), nn.BatchNorm3d(2, affine=False), (2, 2, 1, 2), steps=2),
    case(norm("prelu"), nn.PReLU(), (7,), steps=2),
    case(norm("prelu", per_channel=True), nn.PReLU(5), (5,), rows=3),
    case(norm("prelu", per_channel=True, initial=0.1), nn.PReLU(3, init=0.1), (3, 2, 3)),
]
lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in cases)
path = Path(__file__).with_suffix(".json")
path.write_text(f'{{"pytorch":"{torch.__version__}","cases":[\n{lines}\n]}}\n')
print(f"{len(cases)} cases, {path.stat().st_size} bytes: {path}")
