"""Activation functions, in PyTorch's functions."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from loom import nn

if find_spec("torch") is not None:
    import torch
    import torch.nn.functional as F  # noqa: N812 - as everybody writes it

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["activate"]


def activate(function: Any, x: Tensor) -> Tensor:  # noqa: ANN401 - a name or an object
    """Computes an activation function."""
    if isinstance(function, nn.LeakyReLU):
        return F.leaky_relu(x, function.slope)
    if isinstance(function, nn.ELU):
        return torch.where(x > 0, x, function.alpha * torch.expm1(torch.where(x > 0, 0.0, x)))
    functions: dict[str, Any] = {
        "linear": lambda x: x,
        "relu": torch.relu,
        "leaky_relu": lambda x: F.leaky_relu(x, 0.01),
        "elu": F.elu,
        "selu": F.selu,
        "relu_squared": lambda x: torch.relu(x) ** 2,
        "scaled_relu": lambda x: 1.1 * torch.relu(x),
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "silu": F.silu,
        # PyTorch's own is linear above 20, which is 2e-9 away.
        "softplus": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
        "hardswish": F.hardswish,
        # PyTorch's own goes back with a sixth in float32, which is 3e-8 away.
        "hardsigmoid": lambda x: (x / 6 + 0.5).clamp(0, 1),
        "mish": lambda x: x * torch.tanh(torch.logaddexp(x, torch.zeros_like(x))),
    }
    return functions[function](x)
