"""Types shared by the package's signatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Precision: TypeAlias = Literal["float32", "float64", "mixed"]
RealArray: TypeAlias = "NDArray[np.floating[Any]]"
LabelArray: TypeAlias = "NDArray[np.int64]"
JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"


@runtime_checkable
class SupportsArray(Protocol):
    """Anything that NumPy can view or convert through `__array__`."""

    def __array__(self) -> NDArray[Any]:
        """Returns the contents as a NumPy array."""
        ...


@runtime_checkable
class SupportsDLPack(Protocol):
    """Anything that hands over its memory through the DLPack protocol."""

    def __dlpack__(self, *, stream: None = None) -> object:
        """Returns a DLPack capsule."""
        ...

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns the device type and number."""
        ...


ArrayLike: TypeAlias = "NDArray[Any] | SupportsArray | SupportsDLPack | Sequence[Any] | float"
