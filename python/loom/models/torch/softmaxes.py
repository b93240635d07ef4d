"""Softmax and its kin, in PyTorch's functions."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from loom import nn
from loom.models.torch.scope import Scope

if find_spec("torch") is not None:
    import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SOFTMAXES"]


def _softmax(layer: nn.Softmax, scope: Scope, x: Tensor) -> Tensor:
    """Over the last axis, or the channels of images."""
    return torch.softmax(x / layer.temperature, dim=1 if x.dim() == 4 else -1)


def _gumbel(layer: nn.GumbelSoftmax, scope: Scope, x: Tensor) -> Tensor:
    """A softmax, in training of values with noise."""
    if scope.training:
        x = x - torch.log(-torch.log(torch.rand_like(x).clamp(1e-20, 1 - 1e-7)))
    return torch.softmax(x / layer.temperature, dim=-1)


def _grid(layer: nn.GridSoftmax, scope: Scope, x: Tensor) -> Tensor:
    """Over each row of a grid."""
    rows = x.reshape(*x.shape[:-1], layer.rows, layer.columns)
    return torch.softmax(rows, dim=-1).reshape(x.shape)


def _hierarchical(layer: nn.HierarchicalSoftmax, scope: Scope, x: Tensor) -> Tensor:
    """`p(group) p(leaf in group)`."""
    leaves: Any = layer.leaves
    counts = [leaves // layer.groups] * layer.groups if isinstance(leaves, int) else list(leaves)
    of_group = torch.softmax(x[..., : layer.groups], dim=-1)
    parts = torch.split(x[..., layer.groups :], counts, dim=-1)
    made = [of_group[..., i : i + 1] * torch.softmax(part, dim=-1) for i, part in enumerate(parts)]
    return torch.cat(made, dim=-1)


def _adaptive(layer: nn.AdaptiveSoftmax, scope: Scope, x: Tensor) -> Tensor:
    """Frequent words and clusters first, then the words of each cluster."""
    clusters = len(layer.cutoffs)
    words = x.shape[-1] - clusters
    head = layer.cutoffs[0] + clusters
    first = torch.softmax(x[..., :head], dim=-1)
    counts = [high - low for low, high in pairwise([*layer.cutoffs, words])]
    parts = torch.split(x[..., head:], counts, dim=-1)
    short = layer.cutoffs[0]
    made = [first[..., short + i : short + i + 1] * torch.softmax(p, dim=-1) for i, p in enumerate(parts)]
    return torch.cat([first[..., :short], *made], dim=-1)


def _mixture(layer: nn.MixtureSoftmax, scope: Scope, x: Tensor) -> Tensor:
    """Several, weighted by another."""
    count = layer.components
    shares = torch.softmax(x[..., :count], dim=-1)
    each = torch.softmax(x[..., count:].reshape(*x.shape[:-1], count, -1), dim=-1)
    return (shares.unsqueeze(-1) * each).sum(dim=-2)


def _masked(layer: nn.MaskedSoftmax, scope: Scope, x: Tensor) -> Tensor:
    """Over what masks leave: fixed ones over the classes, and the padding of sequences."""
    axis = 1 if layer.axis == 0 else x.dim() - 1
    keep = torch.ones_like(x, dtype=torch.bool)
    if layer.mask is not None:
        extents = [1] * x.dim()
        extents[axis] = -1
        keep = keep & torch.tensor(layer.mask, dtype=torch.bool, device=x.device).reshape(extents)
    if scope.mask is not None:
        keep = keep & scope.mask.reshape(*scope.mask.shape, *[1] * (x.dim() - 2))
    # Sums of nothing are zero, and so is what they would divide.
    largest = torch.where(keep, x, -torch.inf).amax(dim=axis, keepdim=True)
    largest = torch.where(largest.isfinite(), largest, 0.0).detach()
    powers = torch.where(keep, torch.exp(torch.where(keep, x - largest, 0.0)), 0.0)
    total = powers.sum(dim=axis, keepdim=True)
    return powers / torch.where(total > 0, total, 1.0)


def _sparsemax(layer: nn.Sparsemax, scope: Scope, x: Tensor) -> Tensor:
    """The nearest distribution (Martins and Astudillo 2016)."""
    return _threshold(x, 2.0)


def _entmax(layer: nn.Entmax, scope: Scope, x: Tensor) -> Tensor:
    """`max(0, (alpha - 1) x - tau) ^ (1 / (alpha - 1))` (Peters et al. 2019)."""
    return _threshold(x, layer.alpha)


def _threshold(x: Tensor, alpha: float) -> Tensor:
    """Finds tau by bisection, and its gradient by the implicit function theorem."""
    power = 1.0 / (alpha - 1.0)
    with torch.no_grad():
        z = (alpha - 1.0) * x.double()
        low = z.amax(dim=-1, keepdim=True) - 1.0
        high = low + 1.0
        for _ in range(80):
            middle = (low + high) / 2
            much = (z - middle).clamp(min=0).pow(power).sum(dim=-1, keepdim=True) >= 1.0
            low, high = torch.where(much, middle, low), torch.where(much, high, middle)
        p = (z - low).clamp(min=0).pow(power)
        p = (p / p.sum(dim=-1, keepdim=True)).to(x.dtype)
        # dp/dx = diag(s) - s s^T / sum(s), with s = p ^ (2 - alpha) where p > 0.
        s = torch.where(p > 0, p.clamp(min=1e-300).pow(2.0 - alpha), 0.0)
    mean = (s * x).sum(dim=-1, keepdim=True) / s.sum(dim=-1, keepdim=True)
    moved = s * (x - mean)
    return p + (moved - moved.detach())


SOFTMAXES: dict[str, Callable[[Any, Scope, Tensor], Tensor]] = {
    "softmax": _softmax,
    "gumbel_softmax": _gumbel,
    "grid_softmax": _grid,
    "hierarchical_softmax": _hierarchical,
    "adaptive_softmax": _adaptive,
    "mixture_softmax": _mixture,
    "masked_softmax": _masked,
    "sparsemax": _sparsemax,
    "entmax": _entmax,
}
"""What each kind computes."""
