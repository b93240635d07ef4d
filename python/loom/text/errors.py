"""Errors of text."""

from __future__ import annotations

from loom.errors import ConfigError, StateError

__all__ = ["ContextLengthError", "FormError", "OptionError"]


class ContextLengthError(ConfigError):
    """A prompt and its answer are longer than the model's capacity."""


class OptionError(ConfigError):
    """An option of an answer that is not what it is to be.

    Args:
        message: Why.
        option: Its name, as `Options` has it.
    """

    def __init__(self, message: str, option: str) -> None:
        super().__init__(message)
        self.option = option

    def __reduce__(self) -> tuple[type[OptionError], tuple[str, str]]:
        return type(self), (str(self), self.option)


class FormError(StateError):
    """An answer's form that no token of the model goes on as, or that is too much to read."""
