"""What the layer configurations share: their base and their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from loom._settings.encoding import MOST_LEVELS, Tagged, TaggedFamily, too_deep
from loom._settings.objects import layer_error
from loom._tables import settings_table
from loom.nn._schema import read, schema

__all__ = ["FAMILY", "Layer", "layer_from_config"]


class Layer(Tagged):
    """Base of the layer configurations."""

    __slots__ = ()
    _levels: ClassVar[int] = 1
    """How many layers are inside each other, this one counted in."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            raise layer_error(type(self).__name__, name)

        def __call__(self, *_: object, **__: object) -> NoReturn:
            """Says what is called instead."""
            raise TypeError(
                f"a layer is not called: loom.Sequential([..., nn.{type(self).__name__}(...)], "
                "input_shape=...) is a network, and net.predict(x) calls it"
            )

    def __post_init__(self) -> None:
        """Reads every setting as the engine's schema says."""
        where = FAMILY.kinds.get(self.kind, type(self)).__name__
        for setting in schema().get(self.kind, ()):
            name = setting["name"]
            if hasattr(self, name):
                self._set(**{name: read(where, setting, getattr(self, name))})
                if setting["type"] in _HOLDERS:
                    self._set(_levels=max(self._levels, 1 + _levels_of(getattr(self, name))))
        if self._levels > MOST_LEVELS:
            raise too_deep(where)

    def _repr_html_(self) -> str:
        """Returns the settings as a table, for notebooks; those first that were set."""
        return settings_table(type(self).__name__, self)

    def _set(self, **settings: object) -> None:
        for name, value in settings.items():
            object.__setattr__(self, name, value)


_HOLDERS = frozenset({"layers", "list"})
"""Types of settings that may hold layers."""


def _levels_of(value: object) -> int:
    if isinstance(value, Layer):
        return value._levels
    return max(map(_levels_of, value), default=0) if isinstance(value, tuple) else 0


FAMILY: TaggedFamily[Layer] = TaggedFamily("layer")


def layer_from_config(config: Mapping[str, Any]) -> Layer:
    """Builds the layer that a configuration's "type" names.

    Args:
        config: What a layer's `to_config` returned.

    Returns:
        The layer.

    Raises:
        ConfigError: The type or a key is unknown (the message suggests the
            nearest), or a value is out of range.

    Examples:
        >>> layer_from_config({"type": "dropout", "rate": 0.5})
        Dropout(rate=0.5)
    """
    return FAMILY.from_config(config)
