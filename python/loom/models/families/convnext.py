"""ConvNeXt, by the names of transformers, torchvision and timm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loom import nn
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import (
    Array,
    Piece,
    Source,
    convolution,
    dense,
    layer_norm,
    plain,
    residual,
)

__all__ = ["CONVNEXT"]


@dataclass(frozen=True)
class _Names:
    """What a library calls the parts; stages and blocks have their numbers in braces."""

    stem: tuple[str, str]
    halving: tuple[str, str]
    block: str
    parts: tuple[str, str, str, str]
    scale: str
    norm: str
    head: str
    distance: int = 1
    offset: int = 0


_HUB = _Names(
    ("embeddings.patch_embeddings", "embeddings.layernorm"),
    ("encoder.stages.{}.downsampling_layer.0", "encoder.stages.{}.downsampling_layer.1"),
    "encoder.stages.{}.layers.{}",
    ("dwconv", "layernorm", "pwconv1", "pwconv2"),
    "layer_scale_parameter",
    "layernorm",
    "classifier",
)
_TIMM = _Names(
    ("stem.0", "stem.1"),
    ("stages.{}.downsample.0", "stages.{}.downsample.1"),
    "stages.{}.blocks.{}",
    ("conv_dw", "norm", "mlp.fc1", "mlp.fc2"),
    "gamma",
    "head.norm",
    "head.fc",
)
_TORCHVISION = _Names(
    ("features.0.0", "features.0.1"),
    ("features.{}.0", "features.{}.1"),
    "features.{}.{}",
    ("block.0", "block.2", "block.3", "block.5"),
    "layer_scale",
    "classifier.0",
    "classifier.2",
    distance=2,
    offset=1,
)
_LAST, _FIRST = plain(nn.Permute((1, 2, 0))), plain(nn.Permute((2, 0, 1)))
_EPSILON = 1e-6


def _flat(source: Source) -> Source:
    """Returns a product's weight, which some write as a convolution over single places."""
    return source.then(lambda array: array.reshape(array.shape[0], -1))


def _scaled(piece: Piece, scale: str) -> Piece:
    """Returns a Dense layer with the factors of its outputs in its weights."""

    def by_output(array: Array, factors: Array) -> Array:
        return np.asarray(array * factors.reshape(-1, *[1] * (array.ndim - 1)))

    tensors = {
        name: Source(
            (*source.names, scale), lambda array, factors, make=source.make: by_output(make(array), factors)
        )
        for name, source in piece.tensors.items()
    }
    return Piece(piece.layer, tensors)


def _block(folder: Folder, names: _Names, at: str) -> Piece:
    deep, norm, grow, shrink = (f"{at}.{part}" for part in names.parts)
    channels, _, kernel, _ = folder.shape(f"{deep}.weight", 4)
    shrunk = dense(shrink, channels, change=_flat)
    if f"{at}.{names.scale}" in folder.shapes:
        shrunk = _scaled(shrunk, f"{at}.{names.scale}")
    return residual(
        convolution(deep, channels, kernel, padding=kernel // 2, groups=channels),
        _LAST,
        layer_norm(norm, _EPSILON),
        dense(grow, folder.shapes.get(f"{grow}.weight", (1,))[0], activation="gelu", change=_flat),
        shrunk,
        _FIRST,
    )


def _compose(folder: Folder) -> Composition:
    settings = folder.settings
    settings.only(hidden_act="gelu")
    names = next((each for each in (_HUB, _TIMM) if f"{each.stem[0]}.weight" in folder.shapes), _TORCHVISION)
    channels, colours, patch, _ = folder.shape(f"{names.stem[0]}.weight", 4)
    pieces = [
        convolution(names.stem[0], channels, patch, stride=patch),
        _LAST,
        layer_norm(names.stem[1], _EPSILON),
        _FIRST,
    ]
    stage = 0
    while count := folder.count(names.block.format(names.distance * stage + names.offset, "{}")):
        norm, halved = (each.format(names.distance * stage) for each in names.halving)
        if stage and f"{halved}.weight" in folder.shapes:
            channels, _, kernel, _ = folder.shape(f"{halved}.weight", 4)
            made = convolution(halved, channels, kernel, stride=kernel)
            pieces += [_LAST, layer_norm(norm, _EPSILON), _FIRST, made]
        for place in range(count):
            at = names.block.format(names.distance * stage + names.offset, place)
            pieces.append(_block(folder, names, at))
        stage += 1
    if f"{names.head}.weight" in folder.shapes:
        classes = folder.shape(f"{names.head}.weight", 2)[0]
        epsilon = settings.real("layer_norm_eps", 1e-12) if names is _HUB else _EPSILON
        pieces += [plain(nn.GlobalAvgPool2D()), layer_norm(names.norm, epsilon), dense(names.head, classes)]
    side = folder.side(settings.whole("image_size", 224))
    return Composition((colours, side, side), pieces, (rf"{names.norm}\..*",))


CONVNEXT = Family(
    "ConvNeXt",
    ("convnext", r"convnext_(atto|femto|pico|nano|tiny|small|base|large|xlarge|xxlarge)"),
    _compose,
    base=("convnext.",),
    known_by=("features.0.0.weight", "features.1.0.layer_scale", "classifier.2.weight"),
)
