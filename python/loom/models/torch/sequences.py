"""Attention and recurrent layers, in PyTorch's functions."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from loom import nn
from loom.models.angles import turning_rates
from loom.models.distances import bias_rows, slope_biases
from loom.models.torch.scope import Scope

if find_spec("torch") is not None:
    import torch
    import torch.nn.functional as F  # noqa: N812 - as everybody writes it

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["attention", "recurrent"]


def _turned(rotary: nn.Rotary, x: Tensor) -> Tensor:
    """Turns each pair of a head's elements by its angle; x is (rows, heads, time, head_dim)."""
    if rotary.dim is not None:
        turning, still = x[..., : rotary.dim], x[..., rotary.dim :]
        return torch.cat([_turned(replace(rotary, dim=None), turning), still], dim=-1)
    time, extent = x.shape[-2:]
    turning, factor = turning_rates(rotary, extent)
    rates = torch.from_numpy(turning)
    place = torch.arange(time, dtype=torch.float64)
    angle = place[:, None] * rates
    cosine, sine = (factor * wave.to(device=x.device, dtype=x.dtype) for wave in (angle.cos(), angle.sin()))
    if rotary.layout == "interleaved":
        first, second = x[..., 0::2], x[..., 1::2]
    else:
        first, second = x[..., : extent // 2], x[..., extent // 2 :]
    made = [first * cosine - second * sine, first * sine + second * cosine]
    if rotary.layout == "interleaved":
        return torch.stack(made, dim=-1).flatten(-2)
    return torch.cat(made, dim=-1)


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
        queries = _normed(layer, queries, scope("query_gain"))
        keys = _normed(layer, keys, scope("key_gain"))
    if isinstance(layer.rotary, nn.Rotary):
        queries, keys = _turned(layer.rotary, queries), _turned(layer.rotary, keys)
    keys = keys.repeat_interleave(layer.heads // groups, dim=1)
    values = values.repeat_interleave(layer.heads // groups, dim=1)
    scores = queries @ keys.transpose(-1, -2) * (head_dim**-0.5 if layer.scale is None else layer.scale)
    if isinstance(layer.position_bias, nn.RelativeBias):
        rows = torch.from_numpy(bias_rows(layer.position_bias, layer.causal, *scores.shape[-2:]))
        scores = scores + scope("relative_bias")[rows.to(scores.device)].permute(2, 0, 1)
    elif layer.position_bias is not None:
        added = torch.from_numpy(slope_biases(layer.heads, *scores.shape[-2:]))
        scores = scores + added.to(device=scores.device, dtype=scores.dtype)
    if layer.soft_cap is not None:
        scores = layer.soft_cap * torch.tanh(scores / layer.soft_cap)
    weights = F.dropout(_weighed(layer, scope, scores), layer.dropout, scope.training)
    gathered = (weights @ values).transpose(1, 2).flatten(2)
    biased = layer.bias if layer.output_bias is None else layer.output_bias
    y = F.linear(gathered, scope("output_weight"), scope.given("output_bias", biased))
    return y if scope.mask is None else torch.where(scope.mask[:, :, None], y, 0.0)


def _normed(layer: nn.MultiHeadAttention, x: Tensor, gain: Tensor) -> Tensor:
    """Queries or keys, (rows, heads, time, head_dim), by their root mean square."""
    if layer.qk_norm != "width":
        return F.rms_norm(x, x.shape[-1:], gain, layer.qk_norm_epsilon)
    wide = x.transpose(1, 2).flatten(2)
    wide = F.rms_norm(wide, wide.shape[-1:], gain, layer.qk_norm_epsilon)
    return wide.unflatten(2, (x.shape[1], -1)).transpose(1, 2)


def _weighed(layer: nn.MultiHeadAttention, scope: Scope, scores: Tensor) -> Tensor:
    """The softmax over what each step may see; all zero where that is nothing."""
    asking = torch.arange(scores.shape[-2], device=scores.device)[:, None]
    asked = torch.arange(scores.shape[-1], device=scores.device)
    keep = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
    if layer.causal:
        keep = keep & (asked <= asking)
    if layer.window is not None:
        keep = keep & ((asked - asking).abs() < layer.window)
    if layer.mask is not None:
        keep = (
            keep
            & torch.tensor(layer.mask, dtype=torch.bool, device=scores.device)[: len(asking), : len(asked)]
        )
    everyone = keep.expand(scores.shape)
    if scope.mask is not None and not layer.cross:
        everyone = everyone & scope.mask[:, None, None, :]
    some = everyone.any(dim=-1, keepdim=True)
    scores = torch.where(everyone | ~some, scores, -torch.inf)
    return torch.where(everyone, torch.softmax(scores, dim=-1), 0.0)


def recurrent(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """A stack of RNN, LSTM or GRU, in one direction or in both."""
    directions = ["", "_reverse"] if layer.bidirectional else [""]
    begin = _initial(layer, scope, x, len(directions))
    if scope.mask is not None or not getattr(layer, "reset_after", True):
        return _step_by_step(layer, scope, x, directions, begin)
    biases = ("bias_ih", "bias_hh") if layer.bias else ()
    flat = [
        scope(f"{name}_l{number}{direction}")
        for number in range(layer.layers)
        for direction in directions
        for name in ("weight_ih", "weight_hh", *biases)
    ]
    function = {"lstm": "lstm", "gru": "gru"}.get(layer.kind) or f"rnn_{layer.activation}"
    state = begin.unbind(0) if layer.kind == "lstm" else begin[0]
    options = (layer.bias, layer.layers, layer.dropout, scope.training, layer.bidirectional, True)
    y, last, *_ = getattr(torch, function)(x, state, flat, *options)
    return y if layer.return_sequences else torch.cat(list(last[-len(directions) :]), dim=1)


def _initial(layer: Any, scope: Scope, x: Tensor, directions: int) -> Tensor:  # noqa: ANN401
    """The first states: (states of a cell, layers * directions, batch, units)."""
    rows, units = x.shape[0], layer.units
    count = 2 if layer.kind == "lstm" else 1
    shape = (layer.layers, directions, count, units)
    if layer.initial_state == "context" and scope.context is not None:
        given = scope.context.reshape(rows, *shape)
    elif layer.initial_state == "learned":
        learned = [scope(f"state_l{number}").reshape(shape[1:]) for number in range(layer.layers)]
        given = torch.stack(learned).expand(rows, *shape)
    else:
        given = x.new_zeros(rows, *shape)
    return given.permute(3, 1, 2, 0, 4).flatten(1, 2).contiguous()


def _step_by_step(
    layer: Any,  # noqa: ANN401 - one of three classes
    scope: Scope,
    x: Tensor,
    directions: list[str],
    begin: Tensor,
) -> Tensor:
    """With padding, over which the state is held, and cells that PyTorch has not."""
    mask = scope.mask
    ends: list[Tensor] = []
    for number in range(layer.layers):
        made = []
        ends = []
        for place, direction in enumerate(directions):
            suffix = f"l{number}{direction}"
            weights = scope(f"weight_ih_{suffix}"), scope(f"weight_hh_{suffix}")
            biases = (
                scope.given(f"bias_ih_{suffix}", layer.bias),
                scope.given(f"bias_hh_{suffix}", layer.bias),
            )
            state = list(begin[:, number * len(directions) + place].unbind(0))
            outputs: list[Tensor] = []
            times = range(x.shape[1])
            for time in reversed(times) if direction else times:
                read = F.linear(x[:, time], weights[0], biases[0])
                new = _step(layer, read, weights[1], biases[1], state)
                real = torch.ones_like(new[0], dtype=torch.bool) if mask is None else mask[:, time, None]
                outputs.append(torch.where(real, new[0], 0.0))
                state = [torch.where(real, after, before) for after, before in zip(new, state, strict=True)]
            made.append(torch.stack(outputs[::-1] if direction else outputs, dim=1))
            ends.append(state[0])
        x = torch.cat(made, dim=2)
        if number + 1 < layer.layers:
            x = F.dropout(x, layer.dropout, scope.training)
    return x if layer.return_sequences else torch.cat(ends, dim=1)


def _step(
    layer: Any,  # noqa: ANN401
    read: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    state: list[Tensor],
) -> list[Tensor]:
    """One step, from the input's share of every gate, and what makes the state's."""
    held = F.linear(state[0], weight, bias)
    if layer.kind == "rnn":
        z = read + held
        return [torch.tanh(z) if layer.activation == "tanh" else torch.relu(z)]
    if layer.kind == "lstm":
        i, f, g, o = (read + held).chunk(4, dim=1)
        c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
        return [torch.sigmoid(o) * torch.tanh(c), c]
    (xr, xz, xn), (hr, hz, hn) = read.chunk(3, dim=1), held.chunk(3, dim=1)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    if not layer.reset_after:
        hn = F.linear(r * state[0], weight.chunk(3)[2], None if bias is None else bias.chunk(3)[2])
    n = torch.tanh(xn + r * hn if layer.reset_after else xn + hn)
    return [(1 - z) * n + z * state[0]]
