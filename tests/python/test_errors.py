"""Each error is both loom's and the built-in class that a caller expects."""

from __future__ import annotations

import errno

import pytest

import loom

BUILT_IN = {
    loom.ShapeError: ValueError,
    loom.DTypeError: TypeError,
    loom.DeviceError: RuntimeError,
    loom.SerializationError: ValueError,
    loom.InvalidValueError: ValueError,
    loom.ConfigError: ValueError,
    loom.DataError: ValueError,
    loom.CellIndexError: IndexError,
    loom.StateError: RuntimeError,
    loom.NonFiniteError: ArithmeticError,
    loom.OutOfMemoryError: MemoryError,
    loom.FileError: OSError,
    loom.MissingExtraError: ImportError,
    loom.InternalError: RuntimeError,
}


def test_the_table_is_complete() -> None:
    from loom import errors

    public = {getattr(errors, name) for name in errors.__all__} - {loom.LoomError}
    assert public == set(BUILT_IN)


@pytest.mark.parametrize("error", BUILT_IN)
def test_each_can_be_caught_both_ways(error: type[loom.LoomError]) -> None:
    for expected in (loom.LoomError, BUILT_IN[error]):
        with pytest.raises(expected, match="what went wrong"):
            raise error("what went wrong")


def test_file_error_carries_the_number() -> None:
    error = loom.FileError(errno.EACCES, "cannot be written", "/some/where")
    assert error.errno == errno.EACCES
    assert error.filename == "/some/where"
