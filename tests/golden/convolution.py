"""Writes convolution.json: outputs and gradients of PyTorch's convolutions and poolings.

    python tests/golden/convolution.py

needs PyTorch. Inputs, weights and output gradients are small whole numbers that
follow from their place, so that the file need not hold them; convolutions of
them are whole numbers, too, and means are in float64.
"""

import json
from pathlib import Path

import torch
from torch import nn

ROWS = 2


def numbers(shape, seed):
    """Whole numbers from -4 to 4: element i is (7 i + 3 (i // 5) + seed) mod 9, less 4."""
    i = torch.arange(torch.Size(shape).numel())
    return ((7 * i + 3 * (i // 5) + seed) % 9 - 4).double().reshape(shape).requires_grad_()


def flat(tensor):
    values = [float(f"{value:.14g}") for value in tensor.detach().reshape(-1).tolist()]
    return [int(value) if value.is_integer() else value for value in values]


def case(config, module, shape):
    """Records a layer: loom's configuration beside PyTorch's module."""
    module = module.double()
    for seed, parameter in enumerate(module.parameters()):
        parameter.data = numbers(parameter.shape, seed + 1).detach()
    x = numbers((ROWS, *shape), 0)
    y = module(x)
    y.backward(numbers(y.shape, 5).detach())
    parameters = {name: flat(parameter.grad) for name, parameter in module.named_parameters()}
    result = y.reshape(ROWS, -1) if config["type"].startswith("global") else y
    return {
        "config": config,
        "input": list(shape),
        "output": list(result.shape[1:]),
        "y": flat(y),
        "dx": flat(x.grad),
        "gradients": parameters,
    }


def convolution(axes, channels, filters, shape, transposed=False, **settings):
    kind = "conv_transpose" if transposed else "conv"
    make = getattr(nn, f"Conv{'Transpose' if transposed else ''}{axes}d")
    kernel = settings.pop("kernel_size")
    module = make(channels, filters, kernel, **settings)
    config = {"type": f"{kind}{axes}d", "filters": filters, "kernel_size": kernel, **settings}
    return case(config, module, (channels, *shape))


def pooling(kind, axes, shape, size, stride, padding, **settings):
    module = getattr(nn, f"{kind.capitalize()}Pool{axes}d")(size, stride, padding, **settings)
    config = {"type": f"{kind}_pool{axes}d", "pool_size": size, "stride": stride, "padding": padding}
    return case({**config, **settings}, module, shape)


def over_everything(kind, axes, shape):
    module = getattr(nn, f"Adaptive{kind.capitalize()}Pool{axes}d")(1)
    return case({"type": f"global_{kind}_pool{axes}d"}, module, shape)


def cases():
    yield convolution(1, 2, 3, [7], kernel_size=[3], stride=[2], padding=[1])
    yield convolution(1, 4, 4, [9], kernel_size=[3], dilation=[2], groups=2)
    yield convolution(2, 2, 3, [4, 5], kernel_size=[3, 2], stride=[1, 2], padding=[1, 1])
    yield convolution(2, 4, 2, [5, 6], kernel_size=[2, 3], dilation=[2, 1], groups=2, bias=False)
    yield convolution(2, 3, 6, [4, 14], kernel_size=[3, 3], padding=[1, 1], groups=3)
    yield convolution(2, 3, 3, [5, 5], kernel_size=[3, 3], padding=[1, 1], stride=[2, 2], groups=3)
    yield convolution(3, 2, 2, [3, 3, 4], kernel_size=[2, 3, 2], padding=[1, 1, 0], stride=[2, 1, 2])
    yield convolution(3, 2, 4, [3, 2, 3], kernel_size=[2, 1, 2], dilation=[2, 1, 1], groups=2)
    transposed = {"transposed": True}
    yield convolution(
        1, 2, 3, [4], kernel_size=[3], stride=[2], padding=[1], output_padding=[1], **transposed
    )
    yield convolution(2, 2, 3, [2, 3], kernel_size=[2, 3], dilation=[1, 2], padding=[0, 1], **transposed)
    yield convolution(
        2,
        4,
        2,
        [3, 2],
        kernel_size=[3, 2],
        stride=[2, 3],
        padding=[1, 0],
        output_padding=[1, 2],
        groups=2,
        **transposed,
    )
    yield convolution(
        3,
        2,
        2,
        [2, 2, 2],
        kernel_size=[2, 3, 1],
        stride=[1, 2, 2],
        padding=[0, 1, 0],
        output_padding=[0, 1, 0],
        bias=False,
        **transposed,
    )
    yield pooling("max", 1, [2, 7], [3], [2], [1])
    yield pooling("max", 2, [2, 5, 4], [3, 2], [2, 1], [1, 0])
    yield pooling("max", 3, [1, 3, 4, 4], [2, 3, 2], [1, 2, 2], [1, 1, 0])
    yield pooling("avg", 1, [2, 7], [3], [2], [1], count_include_pad=False)
    yield pooling("avg", 2, [2, 4, 5], [2, 3], [2, 1], [0, 1])
    yield pooling("avg", 3, [1, 3, 4, 4], [2, 3, 2], [1, 2, 2], [1, 1, 0], count_include_pad=False)
    for axes, shape in ((1, [3, 5]), (2, [2, 3, 4]), (3, [2, 2, 3, 2])):
        yield over_everything("max", axes, shape)
        yield over_everything("avg", axes, shape)


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases())
    Path(__file__).with_suffix(".json").write_text(f"[\n{lines}\n]\n")
