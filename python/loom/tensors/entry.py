"""A file of tensors as a dictionary, of which nothing is read before it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray

from loom.errors import StateError

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["StoredRows", "TensorEntry", "TensorFile"]


@dataclass(frozen=True)
class StoredRows:
    """Rows of a tensor as a file has them, whatever they are called and whichever order they are wanted in.

    Args:
        native: The open file.
        name: What it calls the tensor.
        dtype: What the elements are there.
        count: How many rows there are.
        first: The first of them.
        change: Orders rows: numbers of rows go through it as the tensor would.
    """

    native: Any
    name: str
    dtype: str
    count: int
    first: int = 0
    change: Callable[[NDArray[Any]], NDArray[Any]] | None = None

    def numbers(self, tensor: int) -> NDArray[Any]:
        """Returns what stands for the rows, as a column: a number with which nothing can be computed.

        Args:
            tensor: What is to stand in the upper half of each number.
        """
        first = (tensor << 32) + self.first
        numbers = np.arange(first, first + self.count, dtype=np.uint64).view("V8").reshape(self.count, 1)
        return numbers if self.change is None else self.change(numbers)


class TensorEntry:
    """One tensor of a file: what it is, and its elements when they are asked for.

    Args:
        name: What the file calls it.
        shape: Its extents.
        dtype: What its elements are in the file, such as "float32", "bfloat16" or "q4_0".
        nbytes: How many bytes it takes there.
        read: Reads its elements.
        raw: Reads its bytes, where those are something else.
        stored: Its rows as an open file has them, where there is such a file.
    """

    __slots__ = ("_raw", "_read", "dtype", "name", "nbytes", "shape", "stored")

    def __init__(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        nbytes: int,
        read: Callable[[], NDArray[Any]],
        raw: Callable[[], NDArray[np.uint8]] | None = None,
        stored: StoredRows | None = None,
    ) -> None:
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.nbytes = nbytes
        self._read = read
        self._raw = raw
        self.stored = stored

    def __repr__(self) -> str:
        return f"TensorEntry({self.name!r}, shape={self.shape}, dtype={self.dtype!r})"

    @property
    def size(self) -> int:
        """How many elements there are."""
        return prod(self.shape)

    def numpy(self, dtype: DTypeLike | None = None) -> NDArray[Any]:
        """Reads the elements.

        Args:
            dtype: The type wanted; the file's own where it is None, and float32 where NumPy has no such type.

        Returns:
            An array of the tensor's shape: where the file holds that type, a read-only view of the file,
            which is read as one looks at it and stays open as long as the array is held; a new array
            otherwise.

        Raises:
            DTypeError: The file's type is one that loom does not decode.
        """
        array = self._read()
        return array if dtype is None else array.astype(dtype, copy=False)

    def raw(self) -> NDArray[np.uint8]:
        """Returns the bytes as they are in the file, in one row, without a copy where that is possible."""
        if self._raw is not None:
            return self._raw()
        return np.ascontiguousarray(self._read()).reshape(-1).view(np.uint8)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        array = self.numpy(dtype)
        return array.copy() if copy else array


class TensorFile(Mapping[str, TensorEntry]):
    """Tensors by name, as `loom.open_tensors` finds them in a file.

    It is a mapping, so that `net.load_state_dict` and whatever else takes arrays by name takes it. Closed, it
    gives no more tensors; arrays that it gave stay valid.

    Args:
        form: What the file is, which is `format`: "safetensors", "gguf", "npz", "npy" or "torch".
        metadata: What the file says beside its tensors.
        entries: The tensors.
        path: Where the file is, for those who look at it.
        verify: Compares everything with its checksums, where the file may have some.
    """

    def __init__(
        self,
        form: str,
        metadata: dict[str, Any],
        entries: dict[str, TensorEntry],
        path: str,
        verify: Callable[[], bool] = lambda: False,
    ) -> None:
        self.format = form
        self.metadata = metadata
        self.path = path
        self._verify = verify
        self._entries: dict[str, TensorEntry] | None = entries

    def _open(self) -> dict[str, TensorEntry]:
        if self._entries is None:
            raise StateError(f"{self.path} is closed; open it again with loom.open_tensors")
        return self._entries

    def __getitem__(self, name: str) -> TensorEntry:
        return self._open()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._open())

    def __len__(self) -> int:
        return len(self._open())

    def __contains__(self, name: object) -> bool:
        return name in self._open()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a file of tensors is neither copied nor pickled: loom.open_tensors(path) opens it again "
            "where it is needed"
        )

    def __repr__(self) -> str:
        if self._entries is None:
            return f"TensorFile({self.path!r}, closed)"
        return f"TensorFile({self.path!r}, {self.format}, {len(self)} tensors, {self.nbytes:,} bytes)"

    @property
    def nbytes(self) -> int:
        """How many bytes all tensors take in the file."""
        return sum(entry.nbytes for entry in self._open().values())

    def verify(self) -> bool:
        """Reads the whole file and compares it with the checksums that it brings.

        Opening a file reads its header alone; whether all of it is as it was saved, one asks here.

        Returns:
            Whether it brings any: files of `Network.save` do, others do not and are not read.

        Raises:
            SerializationError: A tensor is not as it was saved; the message names it.
            StateError: The file is closed.

        Examples:
            >>> import tempfile, pathlib
            >>> path = pathlib.Path(tempfile.mkdtemp()) / "net.loom"
            >>> loom.Sequential([nn.Dense(2)], input_shape=3).save(path)
            >>> loom.open_tensors(path).verify()
            True
        """
        self._open()
        return self._verify()

    def close(self) -> None:
        """Lets go of the file: it is closed once no array looks at it any more."""
        self._entries = None

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
