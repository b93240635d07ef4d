"""Attention in PyTorch, from its formula."""

from __future__ import annotations

from dataclasses import replace

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Tensor

from loom import nn
from trials.reference import Scope, computes


def turned(rotary: nn.Rotary, x: Tensor) -> Tensor:
    """Turns each pair of a head's elements by its angle; x is (rows, heads, time, head_dim)."""
    if rotary.dim is not None:
        turning, still = x[..., : rotary.dim], x[..., rotary.dim :]
        return torch.cat([turned(replace(rotary, dim=None), turning), still], dim=-1)
    time, extent = x.shape[-2:]
    pair = torch.arange(extent // 2, dtype=torch.float64)
    place = torch.arange(time, dtype=torch.float64) / rotary.scaling
    angle = place[:, None] * rotary.base ** (-2.0 * pair / extent)
    cosine, sine = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    if rotary.layout == "interleaved":
        first, second = x[..., 0::2], x[..., 1::2]
    else:
        first, second = x[..., : extent // 2], x[..., extent // 2 :]
    made = [first * cosine - second * sine, first * sine + second * cosine]
    if rotary.layout == "interleaved":
        return torch.stack(made, dim=-1).flatten(-2)
    return torch.cat(made, dim=-1)


@computes(nn.MultiHeadAttention)
def attention(layer: nn.MultiHeadAttention, scope: Scope, x: Tensor) -> Tensor:
    """Every step's mean of values, weighted by a softmax of its query with the keys."""
    seen = x
    if layer.cross:
        assert scope.context is not None
        seen = scope.context
    head_dim = layer.head_dim or x.shape[-1] // layer.heads
    groups = layer.key_value_heads or layer.heads

    def heads(name: str, x: Tensor, count: int) -> Tensor:
        y = F.linear(x, scope(f"{name}_weight"), scope.given(f"{name}_bias", layer.bias))
        return y.reshape(*x.shape[:2], count, head_dim).transpose(1, 2)

    queries = heads("query", x, layer.heads)
    keys, values = heads("key", seen, groups), heads("value", seen, groups)
    if layer.qk_norm:
        queries = normed(layer, queries, scope("query_gain"))
        keys = normed(layer, keys, scope("key_gain"))
    if isinstance(layer.rotary, nn.Rotary):
        queries, keys = turned(layer.rotary, queries), turned(layer.rotary, keys)
    keys = keys.repeat_interleave(layer.heads // groups, dim=1)
    values = values.repeat_interleave(layer.heads // groups, dim=1)
    products = queries @ keys.transpose(-1, -2) * (head_dim**-0.5 if layer.scale is None else layer.scale)
    scores = products + distant(layer, scope, products)
    if layer.soft_cap is not None:
        scores = layer.soft_cap * torch.tanh(scores / layer.soft_cap)
    weights = weighed(layer, scope, scores)
    biased = layer.bias if layer.output_bias is None else layer.output_bias
    gathered = (weights @ values).transpose(1, 2).flatten(2)
    y = F.linear(gathered, scope("output_weight"), scope.given("output_bias", biased))
    return y if scope.mask is None else torch.where(scope.mask[:, :, None], y, 0.0)


def normed(layer: nn.MultiHeadAttention, x: Tensor, gain: Tensor) -> Tensor:
    """Queries or keys, (rows, heads, time, head_dim), by their root mean square."""
    if layer.qk_norm != "width":
        return F.rms_norm(x, x.shape[-1:], gain, layer.qk_norm_epsilon)
    wide = x.transpose(1, 2).flatten(2)
    wide = F.rms_norm(wide, wide.shape[-1:], gain, layer.qk_norm_epsilon)
    return wide.unflatten(2, (x.shape[1], -1)).transpose(1, 2)


def distant(layer: nn.MultiHeadAttention, scope: Scope, scores: Tensor) -> Tensor:
    """What is added to scores by distance."""
    bias, (asking, asked) = layer.position_bias, scores.shape[-2:]
    added = scores.new_zeros(layer.heads, asking, asked)
    for query in range(asking):
        for key in range(asked):
            if isinstance(bias, nn.RelativeBias):
                added[:, query, key] = scope("position_bias")[bucket(bias, layer.causal, key - query)]
            elif isinstance(bias, nn.ALiBi):
                power = 1 << (layer.heads.bit_length() - 1)
                for head in range(layer.heads):
                    share = (head + 1) / power if head < power else (head - power + 0.5) / power
                    added[head, query, key] = -(0.5 ** (8 * share)) * abs(key - query)
    return added


def bucket(bias: nn.RelativeBias, causal: bool, distance: int) -> int:
    """The row of a distance, by the text of the T5 paper: some alone, the others in proportion."""
    count = bias.buckets if causal else bias.buckets // 2
    start = count if distance > 0 and not causal else 0
    far = max(-distance, 0) if causal else abs(distance)
    alone = count // 2
    row = far
    if far >= alone:
        growth = (bias.max_distance / alone) ** (1 / (count - alone))
        row = alone
        while row < count - 1 and alone * growth ** (row + 1 - alone) <= far * (1 + 1e-12):
            row += 1
    return start + row


def weighed(layer: nn.MultiHeadAttention, scope: Scope, scores: Tensor) -> Tensor:
    """The softmax over what each step may see; all zero where that is nothing."""
    asking = torch.arange(scores.shape[-2])[:, None]
    asked = torch.arange(scores.shape[-1])
    keep = torch.ones(scores.shape[-2:], dtype=torch.bool)
    if layer.causal:
        keep = keep & (asked <= asking)
    if layer.window is not None:
        keep = keep & ((asked - asking).abs() < layer.window)
    if layer.mask is not None:
        keep = keep & torch.tensor(layer.mask, dtype=torch.bool)
    everyone = keep.expand(scores.shape)
    if scope.mask is not None and not layer.cross:
        everyone = everyone & scope.mask[:, None, None, :]
    some = everyone.any(dim=-1, keepdim=True)
    scores = torch.where(everyone | ~some, scores, -torch.inf)
    return torch.where(everyone, torch.softmax(scores, dim=-1), 0.0)
