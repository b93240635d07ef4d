"""Layers that answer nothing, and gradients that vanish or explode, after a pass through a network."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from loom.diagnosis import thresholds
from loom.diagnosis.names import finding
from loom.network import Network
from loom.network.layers import LayerHandle
from loom.reports.findings import Finding

__all__ = ["look_at_gradients", "look_at_units"]

_RECTIFIERS = frozenset({"relu", "relu_squared", "scaled_relu"})
_BOUNDS = {"sigmoid": (0.0, 1.0), "hardsigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}


def _leaves(net: Network) -> Iterator[LayerHandle]:
    for layer in net.layers:
        yield from (each for each in layer.inner if not each.holds_layers)
        if not layer.holds_layers:
            yield layer


def _activation(layer: LayerHandle) -> str:
    config = layer.config
    found = getattr(config, "function" if config.kind == "activation" else "activation", "linear")
    return found if isinstance(found, str) else ""


def look_at_units(net: Network) -> Iterator[Finding]:
    """Finds units that were 0, or at their bounds, for nearly all samples of the newest pass."""
    leaves = list(_leaves(net))
    for place, layer in enumerate(leaves):
        name = _activation(layer)
        if layer.kind in ("rnn", "lstm", "gru") or (name not in _RECTIFIERS and name not in _BOUNDS):
            continue
        # (samples, units): of images the channels, of anything else the last axis.
        values = layer.activation
        axis = 1 if values.ndim >= 4 or layer.kind.startswith("conv") else values.ndim - 1
        units = np.moveaxis(values, axis, -1).reshape(-1, values.shape[axis])
        if name in _RECTIFIERS:
            dead = int((units <= 0).all(axis=0).sum())
            if dead > thresholds.PASSIVE_SHARE * units.shape[1]:
                yield finding(
                    "dead-units",
                    f"{dead} of {units.shape[1]} units ({name}) are 0 for all {len(values)} samples: they "
                    "neither say nor learn anything.",
                    "Scale the inputs, lower the learning rate, keep the bias at 0 to begin with; or use "
                    '"leaky_relu", "gelu" or "silu".',
                    layer=layer.path,
                    share=dead / units.shape[1],
                )
        elif place < len(leaves) - 1:
            low, high = _BOUNDS[name]
            near = thresholds.SATURATED * (high - low)
            ends = (units < low + near) | (units > high - near)
            stuck = int((ends.mean(axis=0) >= thresholds.SATURATED_SAMPLES).sum())
            if stuck > thresholds.PASSIVE_SHARE * units.shape[1]:
                yield finding(
                    "saturated-units",
                    f"{stuck} of {units.shape[1]} units ({name}) are at their bounds for nearly all "
                    f"{len(values)} samples, where the slope is about 0.",
                    "Scale the inputs to about 1, keep the initial weights small, or put `nn.LayerNorm()` "
                    "before the activation.",
                    layer=layer.path,
                    share=stuck / units.shape[1],
                )


def look_at_gradients(net: Network) -> Iterator[Finding]:
    """Finds layers whose gradients are very large, or next to nothing beside those of others."""
    sizes: dict[str, float] = {}
    for layer in _leaves(net):
        if not layer.trainable:
            continue
        gradients = [values for values in layer.gradients.values() if values.size]
        if not gradients:
            continue
        whole = np.concatenate([np.asarray(values, np.float64).ravel() for values in gradients])
        norm = float(np.linalg.norm(whole))
        if not norm <= thresholds.EXPLODING:
            yield finding(
                "exploding-gradients",
                f"The gradient of layer {layer.path} ({layer.kind}) has a norm of {norm:.3g}.",
                "Scale inputs and targets to about 1; set `gradient_clip=1.0`; put norms between the layers.",
                layer=layer.path,
                norm=norm,
            )
        # Rows of an embedding that nobody asked for have none.
        touched = int(np.count_nonzero(whole))
        sizes[layer.path] = norm / max(touched, 1) ** 0.5
    largest = max(sizes.values(), default=0.0)
    weak = {path: size for path, size in sizes.items() if size < thresholds.VANISHING * largest}
    if weak and np.isfinite(largest):
        path, size = min(weak.items(), key=lambda entry: entry[1])
        strongest = max(sizes, key=lambda name: sizes[name])
        yield finding(
            "vanishing-gradients",
            f"{len(weak)} of {len(sizes)} layers get hardly any gradient: its root mean square is "
            f"{size:.2g} in layer {path}, and {largest:.2g} in layer {strongest}.",
            'Use "relu", "gelu" or "silu" instead of sigmoids in deep networks; put norms between layers, '
            "and `nn.Residual` around them.",
            layer=path,
            layers=len(weak),
            smallest=size,
            largest=largest,
        )
