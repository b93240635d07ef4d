"""Writes softmax.json: the softmax's kin in float64, with gradients.

    python tests/golden/softmax.py

needs PyTorch and NumPy. Sparsemax and entmax with alpha 1.5 are transcribed from
the algorithms of their papers, which sort; their gradients too. The others are
written in PyTorch's own functions and differentiated by it; the adaptive one is
checked against its AdaptiveLogSoftmaxWithLoss first. Inputs are rounded to three
decimals, so that the file holds them exactly.
"""

import json
from pathlib import Path

import numpy as np
import torch

torch.manual_seed(22)
torch.set_default_dtype(torch.float64)


def chosen(*shape, scale=1.0):
    return ((torch.randn(shape) * scale) * 1000).round() / 1000


def flat(tensor):
    """As a list, with 14 significant digits."""
    return [float(f"{value:.14g}") for value in torch.as_tensor(tensor).detach().reshape(-1).tolist()]


def record(config, x, y, dy, dx, parameters=None, gradients=None):
    return {
        "config": config,
        "input_shape": list(x.shape[1:]),
        "rows": x.shape[0],
        "parameters": {
            name: {"shape": list(values.shape), "values": flat(values)}
            for name, values in (parameters or {}).items()
        },
        "steps": [
            {
                "input": flat(x),
                "output": flat(y),
                "gradient": flat(dy),
                "input_gradient": flat(dx),
                "gradients": {name: flat(values) for name, values in (gradients or {}).items()},
            }
        ],
        "states": {},
        "inference": flat(y),
    }


def differentiated(config, function, shape, rows=3, **parameters):
    x = chosen(rows, *shape, scale=2.0).requires_grad_()
    for values in parameters.values():
        values.requires_grad_()
    y = function(x, **parameters)
    dy = chosen(*y.shape)
    y.backward(dy)
    gradients = {name: values.grad for name, values in parameters.items()}
    return record(config, x, y, dy, x.grad, parameters, gradients)


def sparsemax(z):
    """Martins and Astudillo (2016), algorithm 1."""
    ordered = np.sort(z)[::-1]
    sums = np.cumsum(ordered)
    ranks = np.arange(1, len(z) + 1)
    support = ranks[1 + ranks * ordered > sums][-1]
    return np.maximum(z - (sums[support - 1] - 1) / support, 0)


def entmax15(z):
    """Peters, Niculae and Martins (2019), algorithm 2."""
    z = z / 2
    ordered = np.sort(z)[::-1]
    threshold = None
    for rank in range(1, len(z) + 1):
        mean = ordered[:rank].mean()
        rest = (1 - ((ordered[:rank] - mean) ** 2).sum()) / rank
        if rest >= 0 and mean - np.sqrt(rest) <= ordered[rank - 1]:
            threshold = mean - np.sqrt(rest)
    return np.maximum(z - threshold, 0) ** 2


def sparse(config, function, alpha, shape, rows=3):
    x, dy = chosen(rows, *shape, scale=1.2), chosen(rows, *shape)
    classes = shape[-1]
    y = np.stack([function(z) for z in x.reshape(-1, classes).numpy()])
    slope = np.where(y > 0, np.where(y > 0, y, 1) ** (2 - alpha), 0)
    d = dy.reshape(-1, classes).numpy()
    dx = slope * (d - (slope * d).sum(1, keepdims=True) / slope.sum(1, keepdims=True))
    return record(config, x, y, dy, dx)


def grid(x):
    return x.reshape(*x.shape[:-1], 3, 4).softmax(-1).reshape(x.shape)


def masked(x, keep, axis):
    y = x.masked_fill(~keep, -torch.inf).softmax(axis)
    return torch.where(keep, y, 0.0)


def nested(x, shortlist, parts):
    head, *tails = x.split([shortlist + len(parts), *parts], -1)
    head = head.softmax(-1)
    gates = head[..., shortlist:].unbind(-1)
    tails = [gate[..., None] * tail.softmax(-1) for gate, tail in zip(gates, tails, strict=True)]
    return torch.cat([head[..., :shortlist], *tails], -1)


def mixture(x, components):
    gates, logits = x.split([components, x.shape[-1] - components], -1)
    logits = logits.reshape(*x.shape[:-1], components, -1)
    return (gates.softmax(-1)[..., None] * logits.softmax(-1)).sum(-2)


def kmeans(x, centroids, temperature):
    squares = (x[..., None, :] - centroids).square().sum(-1)
    return (-squares / (2 * temperature**2)).softmax(-1)


def check_adaptive():
    """That `nested` is what PyTorch's adaptive softmax computes from the same logits."""
    layer = torch.nn.AdaptiveLogSoftmaxWithLoss(6, 12, [4, 7], div_value=1.5)
    x = torch.randn(3, 6)
    logits = torch.cat([layer.head(x), *[tail(x) for tail in layer.tail]], -1)
    assert torch.allclose(layer.log_prob(x).exp(), nested(logits, 4, [3, 5]), rtol=1e-12)


check_adaptive()
keep = torch.tensor([True, False, True, True, False])
cases = [
    differentiated({"type": "softmax", "temperature": 0.7}, lambda x: (x / 0.7).softmax(-1), (5,)),
    differentiated({"type": "grid_softmax", "rows": 3, "columns": 4}, grid, (2, 12)),
    differentiated(
        {"type": "hierarchical_softmax", "groups": 3, "leaves": [2, 1, 4]},
        lambda x: nested(x, 0, [2, 1, 4]),
        (10,),
    ),
    differentiated(
        {"type": "hierarchical_softmax", "groups": 2, "leaves": 6}, lambda x: nested(x, 0, [3, 3]), (2, 8)
    ),
    differentiated({"type": "adaptive_softmax", "cutoffs": [4, 7]}, lambda x: nested(x, 4, [3, 5]), (2, 14)),
    differentiated({"type": "mixture_softmax", "components": 3}, lambda x: mixture(x, 3), (15,)),
    differentiated({"type": "masked_softmax", "mask": keep.tolist()}, lambda x: masked(x, keep, -1), (2, 5)),
    differentiated(
        {"type": "masked_softmax", "mask": keep.tolist(), "axis": 0},
        lambda x: masked(x, keep[:, None], 1),
        (5, 3),
    ),
    differentiated(
        {"type": "kmeans", "clusters": 3, "temperature": 1.5},
        lambda x, centroids: kmeans(x, centroids, 1.5),
        (2, 4),
        centroids=chosen(3, 4),
    ),
    sparse({"type": "sparsemax"}, sparsemax, 2.0, (9,)),
    sparse({"type": "entmax", "alpha": 2.0}, sparsemax, 2.0, (2, 5)),
    sparse({"type": "entmax"}, entmax15, 1.5, (9,)),
    sparse({"type": "entmax", "alpha": 1.5}, entmax15, 1.5, (2, 20)),
]
lines = ",\n".join(json.dumps(entry, separators=(",", ":")) for entry in cases)
path = Path(__file__).with_suffix(".json")
path.write_text(f'{{"pytorch":"{torch.__version__}","cases":[\n{lines}\n]}}\n')
print(f"{len(cases)} cases, {path.stat().st_size} bytes: {path}")
