"""What a network's weights are packed as, and what becomes of their masters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from loom._settings.checks import items, real, whole
from loom._typing import ArrayLike
from loom.engine import Engine
from loom.errors import ConfigError, DTypeError

__all__ = ["Chosen", "Morphing"]

Chosen: TypeAlias = "Callable[[], list[tuple[int, int, int, int]] | None]"
"""Gives the places of the layers that are meant; None for all. Called once the settings are checked."""


class Morphing:
    """Numeric types, ranges, and masters that are dropped and made again.

    `loom.Network` says what each call promises.

    Args:
        engine: The network's engine.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def morph(
        self,
        dtype: str,
        chosen: Chosen,
        granularity: str | None,
        calibration: str,
        rounding: str,
        activations: str | None,
        parameters: str | Sequence[str] | None,
    ) -> None:
        """Changes the numeric type that layers compute from."""
        if not isinstance(dtype, str):
            raise DTypeError(f'morph takes the name of a numeric type, such as "int8", got {dtype!r}')
        if granularity is not None and not isinstance(granularity, str):
            raise ConfigError(f'granularity is "channel", "tensor" or "block(n)", got {granularity!r}')
        if not isinstance(calibration, str):
            raise ConfigError(f'calibration is "absmax", "percentile(99.9)" or "mse", got {calibration!r}')
        if not isinstance(rounding, str):
            raise ConfigError(f'rounding is "nearest" or "stochastic", got {rounding!r}')
        if activations is not None and not isinstance(activations, str):
            raise ConfigError(f'activations is "int8", or None for float, got {activations!r}')
        names = None if parameters is None else _names(parameters)
        layers = chosen()
        self._engine.begin_change()
        recipe = (granularity, calibration, rounding)
        self._engine.native.morph(dtype, layers, recipe, activations, names)

    def calibrate(self, x: ArrayLike, percentile: float, batch_size: int) -> None:
        """Measures what every layer is given to read, in inference over samples of the data."""
        percent = real("calibrate", "percentile", percentile, above=0.0, most=100.0)
        size = whole("calibrate", "batch_size", batch_size, least=1)
        array = self._engine.as_input(x)
        self._engine.begin_change()
        self._engine.native.calibrate(array, percent, size)

    def drop_master(self) -> None:
        """Frees the full-precision masters of packed weights."""
        self._engine.begin_change()
        self._engine.native.drop_masters()

    def unpack(self, chosen: Chosen) -> None:
        """Makes masters again of packed weights after `drop_master`."""
        layers = chosen()
        self._engine.begin_change()
        self._engine.native.unpack(layers)


def _names(parameters: object) -> list[str]:
    names = [parameters] if isinstance(parameters, str) else items(parameters)
    if not names or not all(isinstance(name, str) for name in names):
        raise ConfigError(
            f'parameters is the name of a parameter, or several, such as "bias", got {parameters!r}'
        )
    return [str(name) for name in names]
