"""What every layer computes, in PyTorch's functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

from loom import nn
from loom.models.torch import norms, windows
from loom.models.torch.activations import activate
from loom.models.torch.expressions import evaluated
from loom.models.torch.scope import Scope
from loom.models.torch.sequences import attention, recurrent
from loom.models.torch.softmaxes import SOFTMAXES

if find_spec("torch") is not None:
    import torch
    import torch.nn.functional as F  # noqa: N812 - as everybody writes it

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["KINDS", "apply", "apply_row"]

Compute: TypeAlias = "Callable[[Any, Scope, Tensor], Tensor]"


def apply(layer: nn.Layer, scope: Scope, x: Tensor) -> Tensor:
    """Computes a layer."""
    return _LAYERS[layer.kind](layer, scope, x)


def apply_row(layers: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - as nn holds them
    """Computes layers in a row, named by their places."""
    for place, layer in enumerate(layers):
        x = apply(layer, scope.within(str(place)), x)
    return x


def _row(layer: Any) -> Any:  # noqa: ANN401 - also what users composed
    return layer.layers() if isinstance(layer, nn.Composed) else layer.layers


def _dense(layer: nn.Dense, scope: Scope, x: Tensor) -> Tensor:
    """`activation(x W^T + b)` over the last axis."""
    return activate(layer.activation, F.linear(x, scope("weight"), scope.given("bias", layer.bias)))


def _activation(layer: nn.Activation, scope: Scope, x: Tensor) -> Tensor:
    """An activation by itself."""
    return activate(layer.function, x)


def _prelu(layer: nn.PReLU, scope: Scope, x: Tensor) -> Tensor:
    """Learned slopes below 0, of all elements or of each channel."""
    return F.prelu(x, scope("weight"))


def _gated(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of two classes
    """`down(activation(gate(x)) * up(x))`."""

    def product(name: str, x: Tensor) -> Tensor:
        return F.linear(x, scope(f"{name}_weight"), scope.given(f"{name}_bias", layer.bias))

    return product("down", activate(layer.activation, product("gate", x)) * product("up", x))


def _clusters(layer: nn.KMeans, scope: Scope, x: Tensor) -> Tensor:
    """A softmax of `-distance^2 / (2 temperature^2)`."""
    distances = (x.unsqueeze(-2) - scope("centroids")).square().sum(dim=-1)
    return torch.softmax(-distances / (2 * layer.temperature**2), dim=-1)


def _embedding(layer: nn.Embedding, scope: Scope, x: Tensor) -> Tensor:
    """A row of the table for each number."""
    return F.embedding(x.long(), scope("weight"))


def _tied(layer: nn.TiedHead, scope: Scope, x: Tensor) -> Tensor:
    """Products with an embedding's table, or with one of its own."""
    if layer.tied_to is None:
        return F.linear(x, scope("weight"))
    return F.linear(x, scope.at(".".join(map(str, layer.tied_to)))("weight"))


def _positions(layer: nn.PositionalEmbedding, scope: Scope, x: Tensor) -> Tensor:
    """A trained vector added to each step."""
    return x + scope("weight")[: x.shape[1]]


def _waves(layer: nn.SinusoidalPositions, scope: Scope, x: Tensor) -> Tensor:
    """Sines at even and cosines at odd elements."""
    time, width = x.shape[1:]
    element = torch.arange(width, dtype=torch.float64, device=x.device)
    angles = torch.arange(time, dtype=torch.float64, device=x.device)[:, None] * layer.base ** (
        -2.0 * (element // 2) / width
    )
    return x + torch.where(element % 2 == 0, angles.sin(), angles.cos()).to(x.dtype)


def _flatten(layer: nn.Flatten, scope: Scope, x: Tensor) -> Tensor:
    """One axis."""
    return x.flatten(1)


def _reshape(layer: nn.Reshape, scope: Scope, x: Tensor) -> Tensor:
    """Other extents."""
    shape: Any = layer.shape
    return x.reshape(x.shape[0], *shape)


def _permute(layer: nn.Permute, scope: Scope, x: Tensor) -> Tensor:
    """Axes in another order."""
    return x.permute(0, *(1 + axis for axis in layer.axes))


def _slice(layer: nn.Slice, scope: Scope, x: Tensor) -> Tensor:
    """A range of one axis."""
    taken = [slice(None)] * x.ndim
    taken[layer.axis % (x.ndim - 1) + 1] = slice(layer.start, layer.stop, layer.step)
    return x[tuple(taken)]


def _spatial_dropout(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - one of three classes
    """Zeros instead of channels at random in training."""
    rows = F.dropout(x.new_ones(x.shape[:2]), layer.rate, scope.training)
    return x * rows.reshape(*x.shape[:2], *[1] * (x.dim() - 2))


def _gaussian_noise(layer: nn.GaussianNoise, scope: Scope, x: Tensor) -> Tensor:
    """Normal noise in training."""
    return x + layer.standard_deviation * torch.randn_like(x) if scope.training else x


def _dropout(layer: nn.Dropout, scope: Scope, x: Tensor) -> Tensor:
    """Zeros at random in training."""
    return F.dropout(x, layer.rate, scope.training)


def _sequential(layer: nn.Sequential, scope: Scope, x: Tensor) -> Tensor:
    """A row."""
    return apply_row(_row(layer), scope, x)


def _weight_norm(layer: nn.WeightNorm, scope: Scope, x: Tensor) -> Tensor:
    """The layer inside, with the weight as it is made."""
    v = scope.within("0")("weight")
    lengths = v.flatten(1).norm(dim=1)
    share = torch.where(lengths > 0, scope("gain") / lengths.clamp_min(torch.finfo(v.dtype).tiny), 0.0)
    return apply_row(layer.layers, replace(scope, made=v * share.reshape(-1, *[1] * (v.dim() - 1))), x)


def _spectral_norm(layer: nn.SpectralNorm, scope: Scope, x: Tensor) -> Tensor:
    """The layer inside, with the weight as it is made; training keeps what the iteration has come to."""
    weight, kept = scope.within("0")("weight"), scope("left_vector")
    left = kept.clone()
    rows = weight.flatten(1)
    right = F.normalize(rows.mT @ left, dim=0, eps=1e-12)
    product = rows @ right
    length = product.norm().clamp_min(1e-12)
    if scope.training:
        with torch.no_grad():
            kept.copy_(product / length)
    return apply_row(layer.layers, replace(scope, made=weight / length), x)


def _masked(layer: nn.Masked, scope: Scope, x: Tensor) -> Tensor:
    """A row that is told which steps are padding."""
    real = (x.detach() != layer.value).reshape(*x.shape[:2], -1).any(dim=2)
    return apply_row(layer.layers, replace(scope, mask=real), x)


def _residual(layer: nn.Residual, scope: Scope, x: Tensor) -> Tensor:
    """`layers(x) + projection(x)`."""
    y = apply_row(layer.layers, scope.within("layers"), x)
    around = scope.within("projection")
    if layer.projection:
        return y + apply_row(layer.projection, around, x)
    if y.shape == x.shape:
        return y + x
    weight = around.within("0")("weight")
    # An image whose last axis no stride makes is projected as other shapes are.
    if weight.dim() == 4:
        stride = [-(-before // after) for before, after in zip(x.shape[2:], y.shape[2:], strict=True)]
        return y + F.conv2d(x, weight, stride=stride)
    return y + F.linear(x, weight)


def _parallel(layer: nn.Parallel, scope: Scope, x: Tensor) -> Tensor:
    """Branches, combined."""
    branches: Any = layer.branches
    made = [apply_row(branch, scope.within(f"branches.{i}"), x) for i, branch in enumerate(branches)]
    if layer.combine == "concat":
        usual = 0 if made[0].dim() > 3 else made[0].dim() - 2
        return torch.cat(made, dim=1 + (usual if layer.axis is None else layer.axis))
    if layer.combine in ("add", "average"):
        return sum(made[1:], made[0]) / (len(made) if layer.combine == "average" else 1)
    if layer.combine == "multiply":
        return math.prod(made[1:], start=made[0])
    if layer.combine == "grid_scatter":
        rows, columns = layer.grid or (1, 1)
        places = layer.places or [divmod(i, columns) for i in range(len(made))]
        empty = torch.zeros_like(made[0])
        by_place = {tuple(place): y for place, y in zip(places, made, strict=True)}
        cells = [by_place.get((row, column), empty) for row in range(rows) for column in range(columns)]
        return torch.stack(cells, dim=1).reshape(x.shape[0], rows, columns, *made[0].shape[1:])
    gate: Any = layer.gate or [nn.Flatten(), nn.Dense(len(made))]
    shares = torch.softmax(apply_row(gate, scope.within("gate"), x), dim=-1)
    weighted = [y * shares[:, i].reshape(-1, *[1] * (y.dim() - 1)) for i, y in enumerate(made)]
    return sum(weighted[1:], weighted[0])


def _experts(layer: nn.MixtureOfExperts, scope: Scope, x: Tensor) -> Tensor:
    """Every expert's result, times its share where it is chosen and 0 where not."""

    def expert(prefix: str, number: int | None) -> Tensor:
        def weight(name: str) -> Tensor:
            stored = scope(f"{prefix}{name}_weight")
            return stored if number is None else stored[number]

        up = F.linear(x, weight("up"))
        opened = activate(layer.activation, F.linear(x, weight("gate")) if layer.gated else up)
        return F.linear(opened * up if layer.gated else opened, weight("down"))

    logits = F.linear(x, scope("router_weight"))
    best = logits.topk(layer.top_k, dim=-1)
    shares = torch.softmax(best.values if layer.normalize else logits, dim=-1)
    chosen = shares if layer.normalize else shares.gather(-1, best.indices)
    gates = torch.zeros_like(logits).scatter(-1, best.indices, chosen)
    y = sum(gates[..., i : i + 1] * expert("", i) for i in range(layer.experts))
    if layer.shared_units is not None:
        shared = expert("shared_", None)
        if layer.shared_gate:
            shared = torch.sigmoid(F.linear(x, scope("shared_router_weight"))) * shared
        y = y + shared
    return y


def _class_token(layer: nn.ClassToken, scope: Scope, x: Tensor) -> Tensor:
    """Trained steps, then the sequence."""
    return torch.cat([scope("weight").expand(len(x), -1, -1), x], dim=1)


def _sequence_pool(layer: nn.SequencePool, scope: Scope, x: Tensor) -> Tensor:
    """The first real step, the last one, or the mean of all."""
    real = torch.ones_like(x[:, :, 0], dtype=torch.bool) if scope.mask is None else scope.mask
    place = torch.arange(x.shape[1], device=x.device).expand(real.shape)
    if layer.steps == "first":
        real = real & (place == torch.where(real, place, x.shape[1]).amin(dim=1, keepdim=True))
    elif layer.steps == "last":
        real = real & (place == torch.where(real, place, -1).amax(dim=1, keepdim=True))
    counts = real.sum(dim=1, keepdim=True).clamp(min=1)
    return torch.where(real[:, :, None], x, 0.0).sum(dim=1) / counts


def _scale(layer: nn.Scale, scope: Scope, x: Tensor) -> Tensor:
    """A fixed factor."""
    return layer.factor * x


def _expression(layer: nn.Expr, scope: Scope, x: Tensor) -> Tensor:
    """The text, with its parameters."""
    names = {parameter["name"]: scope(parameter["name"]) for parameter in layer.parameters}
    return evaluated(layer.expression, {"x": x, **names}, activate)


def _soft_cap(layer: nn.SoftCap, scope: Scope, x: Tensor) -> Tensor:
    """Held between plus and minus a cap."""
    return layer.cap * torch.tanh(x / layer.cap)


_LAYERS: dict[str, Compute] = {
    "dense": _dense,
    "activation": _activation,
    "prelu": _prelu,
    "conv1d": windows.convolution,
    "conv2d": windows.convolution,
    "conv3d": windows.convolution,
    "conv_transpose1d": windows.transposed_convolution,
    "conv_transpose2d": windows.transposed_convolution,
    "conv_transpose3d": windows.transposed_convolution,
    "max_pool1d": windows.max_pool,
    "max_pool2d": windows.max_pool,
    "max_pool3d": windows.max_pool,
    "avg_pool1d": windows.average_pool,
    "avg_pool2d": windows.average_pool,
    "avg_pool3d": windows.average_pool,
    "global_max_pool1d": windows.global_max_pool,
    "global_max_pool2d": windows.global_max_pool,
    "global_max_pool3d": windows.global_max_pool,
    "global_avg_pool1d": windows.global_average_pool,
    "global_avg_pool2d": windows.global_average_pool,
    "global_avg_pool3d": windows.global_average_pool,
    "layer_norm": norms.layer_norm,
    "rms_norm": norms.rms_norm,
    "group_norm": norms.group_norm,
    "batch_norm": norms.batch_norm,
    "swiglu": _gated,
    "geglu": _gated,
    "kmeans": _clusters,
    "embedding": _embedding,
    "tied_head": _tied,
    "positional_embedding": _positions,
    "sinusoidal_positions": _waves,
    "flatten": _flatten,
    "reshape": _reshape,
    "permute": _permute,
    "zero_padding1d": windows.zero_padding,
    "zero_padding2d": windows.zero_padding,
    "zero_padding3d": windows.zero_padding,
    **{f"crop{axes}d": windows.crop for axes in (1, 2, 3)},
    "slice": _slice,
    **{f"up_sampling{axes}d": windows.up_sampling for axes in (1, 2, 3)},
    **{f"adaptive_max_pool{axes}d": windows.adaptive_max_pool for axes in (1, 2, 3)},
    **{f"adaptive_avg_pool{axes}d": windows.adaptive_average_pool for axes in (1, 2, 3)},
    "pixel_shuffle": windows.pixel_shuffle,
    "pixel_unshuffle": windows.pixel_unshuffle,
    "instance_norm": norms.instance_norm,
    "gaussian_noise": _gaussian_noise,
    **{f"spatial_dropout{axes}d": _spatial_dropout for axes in (1, 2, 3)},
    "dropout": _dropout,
    "sequential": _sequential,
    "checkpoint": _sequential,
    "masked": _masked,
    "weight_norm": _weight_norm,
    "spectral_norm": _spectral_norm,
    "residual": _residual,
    "parallel": _parallel,
    "mixture_of_experts": _experts,
    "class_token": _class_token,
    "sequence_pool": _sequence_pool,
    "l2_norm": norms.unit_length,
    "scale": _scale,
    "soft_cap": _soft_cap,
    "expr": _expression,
    "multi_head_attention": attention,
    **dict.fromkeys(("rnn", "lstm", "gru"), recurrent),
    **SOFTMAXES,
}

KINDS = frozenset(_LAYERS)
"""The kinds of layers that can be computed."""
