"""Writes recurrent.json: outputs and gradients of PyTorch's recurrent layers in float64.

    python tests/golden/recurrent.py

needs PyTorch. Inputs and weights are rounded to three decimals, so that the file
holds them exactly.
"""

import json
from pathlib import Path

import torch

torch.manual_seed(21)
torch.set_default_dtype(torch.float64)

ROWS, TIME, FEATURES, UNITS = 2, 4, 3, 2


def rounded(tensor):
    return (tensor * 1000).round() / 1000


def flat(tensor):
    """As a list, with 14 significant digits."""
    return [float(f"{value:.14g}") for value in tensor.detach().reshape(-1).tolist()]


def case(kind, config, layer, sequences):
    """Records one layer's output and the gradients of a weighted sum of it."""
    x = rounded(torch.randn(ROWS, TIME, FEATURES)).requires_grad_()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(rounded(torch.randn_like(parameter) * 0.5))
    y, last = layer(x)
    if not sequences:
        last = last[0] if isinstance(last, tuple) else last
        # (directions, rows, units) of the last layer.
        directions = 2 if layer.bidirectional else 1
        y = last[-directions:].transpose(0, 1).reshape(ROWS, -1)
    dy = rounded(torch.randn_like(y))
    y.backward(dy)
    parameters = dict(layer.named_parameters())
    return {
        "config": {"type": kind, "units": UNITS, "return_sequences": sequences, **config},
        "x": flat(x),
        "y": flat(y),
        "dy": flat(dy),
        "dx": flat(x.grad),
        "parameters": {name: flat(parameter) for name, parameter in parameters.items()},
        "gradients": {name: flat(parameter.grad) for name, parameter in parameters.items()},
    }


def cases():
    kinds = [
        ("rnn", {}, torch.nn.RNN, {}),
        ("rnn", {"activation": "relu"}, torch.nn.RNN, {"nonlinearity": "relu"}),
        ("lstm", {}, torch.nn.LSTM, {}),
        ("gru", {}, torch.nn.GRU, {}),
    ]
    options = [
        ({}, {}, False),
        ({"layers": 2, "bidirectional": True}, {"num_layers": 2, "bidirectional": True}, True),
        ({"bidirectional": True, "bias": False}, {"bidirectional": True, "bias": False}, False),
    ]
    for kind, config, build, own in kinds:
        for more, settings, sequences in options:
            layer = build(FEATURES, UNITS, batch_first=True, **own, **settings)
            yield case(kind, {**config, **more}, layer, sequences)


golden = {"rows": ROWS, "time": TIME, "features": FEATURES, "cases": list(cases())}
path = Path(__file__).with_suffix(".json")
lines = ",\n".join(json.dumps(case) for case in golden.pop("cases"))
path.write_text(json.dumps(golden)[:-1] + f', "cases": [\n{lines}\n]}}\n')
