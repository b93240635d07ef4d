"""The layers that there are, with their settings."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, cast

from loom import _native, nn
from loom._settings.calls import listing
from loom._tables import table
from loom.nn._layer import FAMILY

__all__ = ["LayerKind", "LayerKindList", "NumericType", "NumericTypeList", "dtypes", "layers"]


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


@dataclass(frozen=True)
class NumericType:
    """A numeric type that weights can be held and used in.

    Args:
        name: Its name, such as "int8".
        bits: Bits of a weight; of a block format with the weight's share of its block's scale.
        range: The least and the greatest: values of a float, codes of an integer.
        granularity: Which weights share a scale unless `Network.morph` is asked for others; "none"
            where there are no scales.
        rule: How a weight w becomes a code q, or is rounded.
    """

    name: str
    bits: float
    range: tuple[float, float]
    granularity: str
    rule: str

    def _repr_html_(self) -> str:
        """Returns what it is as a table, for notebooks."""
        rows = [(field.name, getattr(self, field.name)) for field in dataclasses.fields(self)[1:]]
        return table(self.name, ("", ""), rows)


class LayerKindList(list[LayerKind]):
    """Kinds of layers."""

    def __str__(self) -> str:
        return "\n".join(f"{entry.kind}: {entry.summary}" for entry in self)

    def _repr_html_(self) -> str:
        """Returns the kinds as a table, for notebooks."""
        rows = [(entry.kind, _call(entry), entry.summary) for entry in self]
        return table("layers", ("kind", "made by", ""), rows)


class NumericTypeList(list[NumericType]):
    """Numeric types."""

    def __str__(self) -> str:
        return "\n".join(f"{entry.name}: {entry.bits:g} bits, {entry.rule}" for entry in self)

    def _repr_html_(self) -> str:
        """Returns the types as a table, for notebooks."""
        names = [field.name for field in dataclasses.fields(NumericType)]
        rows = [[getattr(entry, name) for name in names] for entry in self]
        return table("numeric types", names, rows)


def dtypes() -> NumericTypeList:
    """Lists every numeric type that `Network.morph` takes.

    Returns:
        The types.

    Examples:
        >>> next(entry.bits for entry in loom.dtypes() if entry.name == "q4_0")
        4.5
    """
    return NumericTypeList(NumericType(*entry) for entry in _native.dtypes())


@listing("loom.nn", lambda: nn.__all__)
def layers() -> LayerKindList:
    """Lists every kind of layer with its settings, and those that users composed.

    Returns:
        The kinds, by name.

    Examples:
        >>> kinds = {entry.kind: entry for entry in loom.layers()}
        >>> kinds["dropout"].settings
        {'rate': Ellipsis}
    """
    known: dict[str, type[nn.Layer]] = {**FAMILY.kinds, **nn.Composed.names}
    return LayerKindList(_describe(kind, known[kind]) for kind in sorted(known))


def _call(entry: LayerKind) -> str:
    """Writes how a layer is made, settings that have a default aside."""
    needed = ", ".join(name for name, default in entry.settings.items() if default is ...)
    home = "nn." if entry.layer.__name__ in nn.__all__ else ""
    return f"{home}{entry.layer.__name__}({needed})"


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
