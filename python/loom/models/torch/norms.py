"""Norms, in PyTorch's functions."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from loom import nn
from loom.models.torch.scope import Scope

if find_spec("torch") is not None:
    import torch.nn.functional as F  # noqa: N812 - as everybody writes it

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "rms_norm", "unit_length"]


def layer_norm(layer: nn.LayerNorm, scope: Scope, x: Tensor) -> Tensor:
    """Over the last axes."""
    weight, bias = scope.given("weight", layer.gain), scope.given("bias", layer.bias)
    return F.layer_norm(x, x.shape[x.dim() - layer.axes :], weight, bias, layer.epsilon)


def rms_norm(layer: nn.RMSNorm, scope: Scope, x: Tensor) -> Tensor:
    """Over the last axis."""
    return F.rms_norm(x, x.shape[-1:], scope.given("weight", layer.gain), layer.epsilon)


def group_norm(layer: nn.GroupNorm, scope: Scope, x: Tensor) -> Tensor:
    """Channels group by group."""
    weight, bias = scope.given("weight", layer.gain), scope.given("bias", layer.bias)
    return F.group_norm(x, layer.groups, weight, bias, layer.epsilon)


def batch_norm(layer: nn.BatchNorm, scope: Scope, x: Tensor) -> Tensor:
    """Over the batch and all places of each channel."""
    weight, bias = scope.given("weight", layer.gain), scope.given("bias", layer.bias)
    running = scope("running_mean"), scope("running_var")
    return F.batch_norm(x, *running, weight, bias, scope.training, layer.momentum, layer.epsilon)


def instance_norm(layer: nn.InstanceNorm, scope: Scope, x: Tensor) -> Tensor:
    """Channels one by one."""
    weight, bias = scope.given("weight", layer.gain), scope.given("bias", layer.bias)
    return F.instance_norm(x, weight=weight, bias=bias, eps=layer.epsilon)


def unit_length(layer: nn.L2Norm, scope: Scope, x: Tensor) -> Tensor:
    """Vectors of length 1."""
    return x / (x.square().sum(dim=-1, keepdim=True) + layer.epsilon).sqrt()
