"""Errors of text."""

from __future__ import annotations

from loom.errors import ConfigError

__all__ = ["ContextLengthError"]


class ContextLengthError(ConfigError):
    """A prompt and its answer are longer than the model's capacity."""
