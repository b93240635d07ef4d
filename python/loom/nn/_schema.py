"""Settings of layers, read as the engine's schema says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

from loom import _native, activations, initializers
from loom._settings.checks import choice, extents, flag, items, real, whole
from loom._settings.suggestions import shown
from loom.errors import ConfigError

__all__ = ["READERS", "Setting", "read", "schema"]

Setting: TypeAlias = "Mapping[str, Any]"
"""What the engine says of a setting: name, type, limits, default."""


@cache
def schema() -> dict[str, list[Setting]]:
    """Returns the settings of every kind of layer that the engine knows."""
    kinds: dict[str, list[Setting]] = json.loads(_native.layer_schema())
    return kinds


def read(where: str, setting: Setting, value: object) -> object:
    """Returns the value that a setting means by what was given; refuses what is out of its limits."""
    if value is None and setting["optional"]:
        return None
    reader = READERS.get(setting["type"])
    return value if reader is None else reader(where, setting, value)


def _range(setting: Setting) -> dict[str, int]:
    signed = {"least": -(1 << 63), "most": (1 << 63) - 1}
    usual = signed if setting["type"] == "integer" else {"least": 0}
    limits = {**usual, **{name: setting[name] for name in ("least", "most") if name in setting}}
    return {name: int(limit) for name, limit in limits.items()}


def _whole(where: str, setting: Setting, value: object) -> int:
    return whole(where, setting["name"], value, **_range(setting))


def _real(where: str, setting: Setting, value: object) -> float:
    limits = {name: setting[name] for name in ("above", "least", "below", "most") if name in setting}
    return real(where, setting["name"], value, **limits)


def _extents(where: str, setting: Setting, value: object) -> tuple[int, ...]:
    return extents(where, setting["name"], value, axes=setting["axes"], **_range(setting))


def _padding(where: str, setting: Setting, value: object) -> tuple[int, ...] | str:
    axes: int = setting["axes"]
    if isinstance(value, str):
        if value == "same":
            return "same"
        if value == "valid":
            return (0,) * axes
        many = {1: "", 2: " or a pair", 3: " or three"}[axes]
        meant = value.lower() if value.lower() in ("same", "valid") else None
        causal = "; nn.ZeroPadding1D before the layer, on the left alone, keeps the future out"
        remedy = f'; "{meant}" is written small' if meant else causal if value.lower() == "causal" else ""
        raise ConfigError(
            f'{where}: padding must be "same", "valid", a whole number{many}, got "{value}"{remedy}'
        )
    return _extents(where, setting, value)


def _name(where: str, setting: Setting, value: object) -> bool | str:
    names = setting["names"]
    if type(value).__name__ in {"bool", "bool_"} and any(name is bool(value) for name in names):
        return bool(value)
    return choice(where, setting["name"], value, [name for name in names if isinstance(name, str)])


def _list(where: str, setting: Setting, value: object) -> tuple[object, ...]:
    given = items(value)
    if given is None:
        raise ConfigError(f"{where}: {setting['name']} must be a list, got {shown(value)}")
    each = {**setting, **setting["of"]}
    return tuple(read(where, each, item) for item in given)


READERS: dict[str, Callable[[str, Setting, Any], object]] = {
    "whole": _whole,
    "integer": _whole,
    "real": _real,
    "flag": lambda where, setting, value: flag(where, setting["name"], value),
    "name": _name,
    "extents": _extents,
    "padding": _padding,
    "activation": lambda where, setting, value: activations.resolve(value),
    "initializer": lambda where, setting, value: initializers.resolve(value),
    "list": _list,
}
"""How values of a type are read; those of other types are left to their layer."""
