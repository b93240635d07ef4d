"""ResNet, ResNeXt and wide ResNets, by the names of transformers, torchvision and timm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loom import nn
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece, batch_norm, convolution, dense, plain, residual

__all__ = ["RESNET"]


@dataclass(frozen=True)
class _Names:
    """What a library calls the parts: pairs of a convolution's and its norm's names."""

    stem: tuple[str, str]
    block: str
    part: tuple[str, str]
    skip: tuple[str, str]
    head: str
    first: int = 0


_HUB = _Names(
    ("embedder.embedder.convolution", "embedder.embedder.normalization"),
    "encoder.stages.{}.layers.{}",
    ("layer.{}.convolution", "layer.{}.normalization"),
    ("shortcut.convolution", "shortcut.normalization"),
    "classifier.1",
)
_TORCHVISION = _Names(
    ("conv1", "bn1"), "layer{}.{}", ("conv{}", "bn{}"), ("downsample.0", "downsample.1"), "fc", first=1
)


def _normalised(
    folder: Folder, names: Sequence[str], channels: int, stride: int = 1
) -> tuple[int, list[Piece]]:
    """Returns the channels that a convolution makes, and it with its norm; the rest its tensor tells."""
    filters, share, kernel, _ = folder.shape(f"{names[0]}.weight", 4)
    groups = channels // share
    made = convolution(
        names[0], filters, kernel, bias=False, stride=stride, padding=kernel // 2, groups=groups
    )
    return filters, [made, batch_norm(names[1])]


def _compose(folder: Folder) -> Composition:
    settings = folder.settings
    names = _HUB if "embedder.embedder.convolution.weight" in folder.shapes else _TORCHVISION
    settings.only(hidden_act="relu")
    first_halves = settings.flag("downsample_in_first_stage", False)
    early = settings.flag("downsample_in_bottleneck", False)
    colours = folder.shape(f"{names.stem[0]}.weight", 4)[1]
    relu = plain(nn.Activation("relu"))
    channels, stem = _normalised(folder, names.stem, colours, 2)
    pieces = [*stem, relu, plain(nn.MaxPool2D(3, stride=2, padding=1))]
    for stage in range(folder.count(names.block.format("{}", 0)) if names.first == 0 else 4):
        where = stage + names.first
        for place in range(folder.count(names.block.format(where, "{}"))):
            at = names.block.format(where, place)
            halves = place == 0 and (stage > 0 or first_halves)
            parts = [[f"{at}.{each.format(part + names.first)}" for each in names.part] for part in range(3)]
            bottleneck = f"{parts[2][0]}.weight" in folder.shapes
            slow = 0 if not bottleneck or early else 1
            inner, body = channels, []
            for part, pair in enumerate(parts[: 3 if bottleneck else 2]):
                inner, made = _normalised(folder, pair, inner, 2 if halves and part == slow else 1)
                body += [*([relu] if part else []), *made]
            skip: list[Piece] = []
            if f"{at}.{names.skip[0]}.weight" in folder.shapes:
                pair = [f"{at}.{each}" for each in names.skip]
                _, skip = _normalised(folder, pair, channels, 2 if halves else 1)
            pieces += [residual(*body, projection=skip), relu]
            channels = inner
    if f"{names.head}.weight" in folder.shapes:
        classes = folder.shape(f"{names.head}.weight", 2)[0]
        pieces += [plain(nn.GlobalAvgPool2D()), dense(names.head, classes)]
    side = folder.side()
    return Composition((colours, side, side), pieces)


RESNET = Family(
    "ResNet",
    ("resnet", r"resnet\d+", r"resnext\d+_\d+x\d+d", r"wide_resnet\d+_\d+"),
    _compose,
    base=("resnet.",),
    unused=(r".*\.num_batches_tracked",),
    known_by=("conv1.weight", "layer1.0.conv1.weight", "layer4.0.conv1.weight", "fc.weight"),
)
