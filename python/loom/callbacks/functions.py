"""Functions as hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from loom._settings.checks import choice
from loom.callbacks.base import Callback

__all__ = ["LambdaCallback"]


class LambdaCallback(Callback):
    """Runs functions as hooks: `LambdaCallback(on_epoch_end=lambda epoch, logs: ...)`.

    Args:
        **hooks: Functions by the name of the hook that they stand for.

    Raises:
        ConfigError: A hook is unknown.
    """

    _HOOKS: ClassVar = tuple(name for name in vars(Callback) if name.startswith("on_"))

    def __init__(self, **hooks: Callable[..., object]) -> None:
        self._hooks: list[str] = []
        for name, function in hooks.items():
            self._hooks.append(name)
            setattr(self, choice("LambdaCallback", "hook", name, self._HOOKS), function)

    def __repr__(self) -> str:
        return f"LambdaCallback({', '.join(f'{name}=...' for name in self._hooks)})"
