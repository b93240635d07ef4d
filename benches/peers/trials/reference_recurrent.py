"""Recurrent layers in PyTorch, step by step from their formulas."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Tensor

from loom import nn
from trials.reference import Scope, computes


def _step(layer: Any, read: Tensor, held: Tensor, state: list[Tensor]) -> list[Tensor]:  # noqa: ANN401
    """One step, from the input's and the state's share of every gate."""
    if isinstance(layer, nn.RNN):
        z = read + held
        return [torch.tanh(z) if layer.activation == "tanh" else torch.relu(z)]
    if isinstance(layer, nn.LSTM):
        i, f, g, o = (read + held).chunk(4, dim=1)
        c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
        return [torch.sigmoid(o) * torch.tanh(c), c]
    (xr, xz, xn), (hr, hz, hn) = read.chunk(3, dim=1), held.chunk(3, dim=1)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
    n = torch.tanh(xn + r * hn)
    return [(1 - z) * n + z * state[0]]


def _reset_before(read: Tensor, weight: Tensor, bias: Tensor | None, state: Tensor) -> Tensor:
    """A GRU's step that takes of the state what the reset gate leaves, and then the product."""
    (xr, xz, xn), (wr, wz, wn) = read.chunk(3, dim=1), weight.chunk(3)
    br, bz, bn = (None, None, None) if bias is None else bias.chunk(3)
    r, z = torch.sigmoid(xr + F.linear(state, wr, br)), torch.sigmoid(xz + F.linear(state, wz, bz))
    return (1 - z) * torch.tanh(xn + F.linear(r * state, wn, bn)) + z * state


def _run(
    layer: Any,  # noqa: ANN401 - one of three classes
    scope: Scope,
    x: Tensor,
    suffix: str,
    state: list[Tensor],
) -> tuple[Tensor, list[Tensor]]:
    """One direction of one layer of the stack: every output, in the order of time, and the last state."""
    weight, recurrent = scope(f"weight_ih_{suffix}"), scope(f"weight_hh_{suffix}")
    bias = scope.given(f"bias_ih_{suffix}", layer.bias)
    recurrent_bias = scope.given(f"bias_hh_{suffix}", layer.bias)
    times = range(x.shape[1])
    outputs: list[Tensor] = []
    for time in reversed(times) if suffix.endswith("_reverse") else times:
        read = F.linear(x[:, time], weight, bias)
        if getattr(layer, "reset_after", True):
            new = _step(layer, read, F.linear(state[0], recurrent, recurrent_bias), state)
        else:
            new = [_reset_before(read, recurrent, recurrent_bias, state[0])]
        made = new[0]
        if scope.mask is not None:
            real = scope.mask[:, time, None]
            new = [torch.where(real, after, before) for after, before in zip(new, state, strict=True)]
            made = torch.where(real, made, 0.0)
        state = new
        outputs.append(made)
    if suffix.endswith("_reverse"):
        outputs.reverse()
    return torch.stack(outputs, dim=1), state


@computes(nn.RNN, nn.LSTM, nn.GRU)
def recurrent(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """A stack, in one direction or in both."""
    rows, units = x.shape[0], layer.units
    count = 2 if isinstance(layer, nn.LSTM) else 1
    directions = ["", "_reverse"] if layer.bidirectional else [""]
    context = None
    if layer.initial_state == "context" and scope.context is not None:
        context = scope.context.reshape(rows, layer.layers, len(directions), count, units)
    ends: list[Tensor] = []
    kept: dict[str, list[Tensor]] = {}
    for number in range(layer.layers):
        made = []
        ends = []
        learned = scope(f"state_l{number}") if layer.initial_state == "learned" else None
        for direction, name in enumerate(directions):
            suffix = f"l{number}{name}"
            if context is not None:
                state = list(context[:, number, direction].unbind(dim=1))
            elif learned is not None:
                shares = learned.reshape(len(directions), count, units)[direction]
                state = [share.expand(rows, units) for share in shares]
            elif layer.stateful and scope.training and scope.prefix in scope.carried:
                state = scope.carried[scope.prefix][suffix]
            else:
                state = [x.new_zeros(rows, units) for _ in range(count)]
            outputs, state = _run(layer, scope, x, suffix, state)
            made.append(outputs)
            ends.append(state[0])
            kept[suffix] = [part.detach() for part in state]
        x = torch.cat(made, dim=2)
    if layer.stateful and scope.training:
        scope.carried[scope.prefix] = kept
    return x if layer.return_sequences else torch.cat(ends, dim=1)
