"""The layers that there are, with their settings."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, cast

from loom import nn
from loom.nn._layer import FAMILY

__all__ = ["LayerKind", "layers"]


@dataclass(frozen=True)
class LayerKind:
    """A kind of layer.

    Args:
        kind: Its name in configurations, such as "dense".
        layer: The class in `loom.nn`, or the one that a user composed.
        summary: What it does, in a line.
        settings: Its settings with their defaults; `...` where one must be given.
    """

    kind: str
    layer: type[nn.Layer]
    summary: str
    settings: dict[str, Any]


def layers() -> list[LayerKind]:
    """Lists every kind of layer with its settings, and those that users composed.

    Returns:
        The kinds, by name.

    Examples:
        >>> kinds = {entry.kind: entry for entry in loom.layers()}
        >>> kinds["dropout"].settings
        {'rate': Ellipsis}
    """
    known: dict[str, type[nn.Layer]] = {**FAMILY.kinds, **nn.Composed.names}
    return [_describe(kind, known[kind]) for kind in sorted(known)]


def _describe(kind: str, layer: type[nn.Layer]) -> LayerKind:
    settings = {field.name: _default(field) for field in dataclasses.fields(cast(Any, layer)) if field.init}
    lines = (layer.__doc__ or "").strip().splitlines()
    return LayerKind(kind, layer, lines[0] if lines else "", settings)


def _default(field: dataclasses.Field[Any]) -> object:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return ...
