"""Every exception that loom raises on purpose.

All derive from `LoomError` and from the built-in class that a caller would
expect, so both `except loom.LoomError` and `except ValueError` work.
"""

from __future__ import annotations

__all__ = [
    "CellIndexError",
    "ConfigError",
    "DTypeError",
    "DataError",
    "DeviceError",
    "FileError",
    "InternalError",
    "InvalidValueError",
    "LoomError",
    "MissingExtraError",
    "NonFiniteError",
    "OutOfMemoryError",
    "SerializationError",
    "ShapeError",
    "StateError",
]


class LoomError(Exception):
    """Base class of every error that loom raises."""


class ShapeError(LoomError, ValueError):
    """Extents that do not fit: between layers, or of an array handed in."""


class DTypeError(LoomError, TypeError):
    """An array or numeric type that cannot be used where it was given."""


class InvalidValueError(LoomError, ValueError):
    """A value that is out of range, not finite, unknown or contradictory."""


class ConfigError(InvalidValueError):
    """A setting, key or name that a configuration does not allow."""


class DataError(InvalidValueError):
    """Training data that cannot be used: empty, of unequal length, or spent."""


class CellIndexError(LoomError, IndexError):
    """A cell, layer or parameter that is not there."""


class DeviceError(LoomError, RuntimeError):
    """A device that is missing or has failed."""


class SerializationError(LoomError, ValueError):
    """A file that is damaged, truncated, or not of the expected format."""


class FileError(LoomError, OSError):
    """A file operation that the operating system refused; `errno` says why."""


class StateError(LoomError, RuntimeError):
    """A call that does not fit the present state, such as `backward` before `forward`."""


class NonFiniteError(LoomError, ArithmeticError):
    """A loss, gradient or weight that became infinite or NaN."""


class OutOfMemoryError(LoomError, MemoryError):
    """Memory that the system does not give; the message says how much was asked for."""


class MissingExtraError(LoomError, ImportError):
    """An optional dependency that is not installed; the message names the extra."""


class InternalError(LoomError, RuntimeError):
    """A bug in loom."""
