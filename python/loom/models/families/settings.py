"""What a folder's config.json says, read with checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from loom._settings.checks import flag, real, whole
from loom.errors import ConfigError

__all__ = ["MOST_LAYERS", "Settings"]

MOST_LAYERS = 4096
"""More blocks than this are a damaged or hostile file."""
_MOST = 1 << 31


class Settings:
    """The settings of a model, by their names in config.json.

    A setting that is null counts as one that is not there, as everywhere on the Hub.

    Args:
        values: The settings.
        where: What errors call the model.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = {name: value for name, value in values.items() if value is not None}
        self.where = where

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - JSON
        """Returns a setting as it stands, or the default."""
        return self.values.get(name, default)

    def _required(self, name: str, default: object) -> Any:  # noqa: ANN401 - JSON
        value = self.values.get(name, default)
        if value is None:
            raise ConfigError(f'{self.where}: config.json has no "{name}"')
        return value

    def whole(self, name: str, default: int | None = None, least: int = 1, most: int = _MOST) -> int:
        """Returns a whole number; without a default it must be there."""
        return whole(self.where, name, self._required(name, default), least=least, most=most)

    def real(self, name: str, default: float | None = None, *, above: float | None = None) -> float:
        """Returns a number, which may have to be above another; without a default it must be there."""
        return real(self.where, name, self._required(name, default), above=above)

    def flag(self, name: str, default: bool) -> bool:
        """Returns whether something is so."""
        return flag(self.where, name, self.values.get(name, default))

    def layers(self, name: str = "num_hidden_layers") -> int:
        """Returns the number of blocks."""
        return self.whole(name, most=MOST_LAYERS)

    def inner(self, name: str) -> Settings:
        """Returns settings that stand inside these."""
        value = self._required(name, None)
        if not isinstance(value, Mapping):
            raise ConfigError(f'{self.where}: "{name}" must be settings by name, got {value!r}')
        return Settings(value, f"{self.where}: {name}")

    def items(self, name: str) -> list[Any]:
        """Returns a list, or [] where the setting is not there."""
        value = self.values.get(name, [])
        if not isinstance(value, list):
            raise ConfigError(f'{self.where}: "{name}" must be a list, got {value!r}')
        return value

    def list_of(self, name: str, count: int) -> list[Any]:
        """Returns a list of one entry a block, or [] where the setting is not there."""
        value = self.values.get(name, [])
        if not isinstance(value, list) or (value and len(value) < count):
            raise ConfigError(f'{self.where}: "{name}" must be a list of {count} entries, got {value!r}')
        return value[:count]

    def one_of(self, name: str, known: Mapping[str, Any], default: str) -> Any:  # noqa: ANN401 - what is known
        """Returns what a name stands for."""
        value = self.values.get(name, default)
        if not isinstance(value, str) or value not in known:
            raise self.unsupported(name, value, sorted(known))
        return known[value]

    def only(self, **supported: object) -> None:
        """Refuses settings that are there and have another value than the one that is supported."""
        for name, allowed in supported.items():
            value = self.values.get(name, allowed)
            if value != allowed:
                raise self.unsupported(name, value, [allowed])

    def unsupported(self, name: str, value: object, known: Iterable[object]) -> ConfigError:
        """Returns the error for a setting that no layer of loom computes."""
        told = ", ".join(repr(each) for each in known)
        return ConfigError(f'{self.where}: "{name}" is {value!r}, which is not supported; supported: {told}')
