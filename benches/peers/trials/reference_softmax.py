"""Softmax and its kin, in PyTorch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from loom import nn
from trials.reference import Scope, computes


@computes(nn.Softmax)
def softmax(layer: nn.Softmax, scope: Scope, x: Tensor) -> Tensor:
    """Over the last axis, or the channels of images."""
    return torch.softmax(x / layer.temperature, dim=1 if x.dim() == 4 else -1)


@computes(nn.GumbelSoftmax)
def gumbel(layer: nn.GumbelSoftmax, scope: Scope, x: Tensor) -> Tensor:
    """A softmax at inference; it is not trained here."""
    return torch.softmax(x / layer.temperature, dim=-1)


@computes(nn.GridSoftmax)
def grid(layer: nn.GridSoftmax, scope: Scope, x: Tensor) -> Tensor:
    """Over each row of a grid."""
    rows = x.reshape(*x.shape[:-1], layer.rows, layer.columns)
    return torch.softmax(rows, dim=-1).reshape(x.shape)


@computes(nn.HierarchicalSoftmax)
def hierarchical(layer: nn.HierarchicalSoftmax, scope: Scope, x: Tensor) -> Tensor:
    """`p(group) p(leaf in group)`."""
    leaves: Any = layer.leaves
    counts = [leaves // layer.groups] * layer.groups if isinstance(leaves, int) else list(leaves)
    of_group = torch.softmax(x[..., : layer.groups], dim=-1)
    parts = torch.split(x[..., layer.groups :], counts, dim=-1)
    made = [of_group[..., i : i + 1] * torch.softmax(part, dim=-1) for i, part in enumerate(parts)]
    return torch.cat(made, dim=-1)


@computes(nn.AdaptiveSoftmax)
def adaptive(layer: nn.AdaptiveSoftmax, scope: Scope, x: Tensor) -> Tensor:
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


@computes(nn.MixtureSoftmax)
def mixture(layer: nn.MixtureSoftmax, scope: Scope, x: Tensor) -> Tensor:
    """Several, weighted by another."""
    count = layer.components
    shares = torch.softmax(x[..., :count], dim=-1)
    each = torch.softmax(x[..., count:].reshape(*x.shape[:-1], count, -1), dim=-1)
    return (shares.unsqueeze(-1) * each).sum(dim=-2)


@computes(nn.MaskedSoftmax)
def masked(layer: nn.MaskedSoftmax, scope: Scope, x: Tensor) -> Tensor:
    """Over what masks leave: fixed ones over the classes, and the padding of sequences."""
    axis = 1 if layer.axis == 0 else x.dim() - 1
    keep = torch.ones_like(x, dtype=torch.bool)
    if layer.mask is not None:
        extents = [1] * x.dim()
        extents[axis] = -1
        keep = keep & torch.tensor(layer.mask).reshape(extents)
    if scope.mask is not None:
        keep = keep & scope.mask.reshape(*scope.mask.shape, *[1] * (x.dim() - 2))
    # Sums of nothing are zero, and so is what they would divide.
    largest = torch.where(keep, x, -torch.inf).amax(dim=axis, keepdim=True)
    largest = torch.where(largest.isfinite(), largest, 0.0).detach()
    powers = torch.where(keep, torch.exp(torch.where(keep, x - largest, 0.0)), 0.0)
    total = powers.sum(dim=axis, keepdim=True)
    return powers / torch.where(total > 0, total, 1.0)


@computes(nn.Sparsemax)
def sparsemax(layer: nn.Sparsemax, scope: Scope, x: Tensor) -> Tensor:
    """The nearest distribution (Martins and Astudillo 2016)."""
    return _threshold(x, 2.0)


@computes(nn.Entmax)
def entmax(layer: nn.Entmax, scope: Scope, x: Tensor) -> Tensor:
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
