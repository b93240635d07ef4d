"""PyTorch's files, through PyTorch, which reads tensors and plain data from them and nothing else."""

from __future__ import annotations

import io
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from numpy.typing import NDArray

from loom.errors import MissingExtraError, SerializationError
from loom.tensors.entry import TensorEntry, TensorFile

__all__ = ["LEGACY_MAGIC", "open_torch"]

LEGACY_MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""What files by PyTorch before 1.6 begin with."""

_NAMES = {"float8_e4m3fn": "float8_e4m3"}
"""Types that PyTorch calls otherwise."""


def open_torch(source: Path | io.BytesIO, label: str) -> TensorFile:
    """Opens what `torch.save` wrote, with `weights_only=True`: code in it is not run.

    Args:
        source: The file.
        label: What it is called in messages.

    Returns:
        The tensors by name. Dictionaries in dictionaries become names with dots; where one dictionary alone
        holds tensors, such as "state_dict" of a checkpoint, it is that one. All else is in the metadata.

    Raises:
        MissingExtraError: torch is not installed.
        SerializationError: The file is damaged, or holds more than tensors and plain data.
    """
    try:
        torch = import_module("torch")
    except ImportError as error:
        raise MissingExtraError(
            f"{label} is a file of PyTorch's, which needs torch to be read: pip install torch; or save the "
            "model as safetensors where torch is installed",
            name="torch",
        ) from error
    try:
        try:
            loaded = torch.load(source, map_location="cpu", weights_only=True, mmap=isinstance(source, Path))
        except RuntimeError:
            # Files by older versions cannot be mapped.
            if isinstance(source, io.BytesIO):
                source.seek(0)
            loaded = torch.load(source, map_location="cpu", weights_only=True)
    except UnpicklingError as error:
        raise SerializationError(
            f"{label} holds more than tensors and plain data, such as a whole module, whose code would have "
            "to be run to read it. Where you trust it, load it with PyTorch and save module.state_dict()"
        ) from error
    except (RuntimeError, ValueError, EOFError, OSError, KeyError) as error:
        raise SerializationError(f"{label} cannot be read by PyTorch: {error}") from error
    if isinstance(loaded, torch.Tensor):
        loaded = {"tensor": loaded}
    if not isinstance(loaded, Mapping):
        raise SerializationError(f"{label} holds a {type(loaded).__name__}, not tensors by name")
    tensors, metadata = _sorted_out(loaded, torch.Tensor)
    return TensorFile("torch", metadata, {name: _entry(name, it) for name, it in tensors.items()}, label)


def _sorted_out(loaded: Mapping[Any, Any], tensor: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separates tensors from all else."""
    holders = [
        key
        for key, value in loaded.items()
        if isinstance(value, Mapping) and any(isinstance(it, tensor) for it in value.values())
    ]
    if len(holders) == 1 and not any(isinstance(value, tensor) for value in loaded.values()):
        (holder,) = holders
        rest = {str(key): value for key, value in loaded.items() if key != holder}
        tensors, metadata = _sorted_out(loaded[holder], tensor)
        return tensors, {**rest, **metadata}
    tensors, metadata = {}, {}
    for key, value in loaded.items():
        if isinstance(value, tensor):
            tensors[str(key)] = value
        elif isinstance(value, Mapping) and value:
            inner, others = _sorted_out(value, tensor) if key in holders else ({}, value)
            tensors.update({f"{key}.{name}": it for name, it in inner.items()})
            metadata.update({f"{key}.{name}": it for name, it in others.items()})
        else:
            metadata[str(key)] = value
    return tensors, metadata


def _entry(name: str, tensor: Any) -> TensorEntry:  # noqa: ANN401 - torch need not be installed
    dtype = str(tensor.dtype).removeprefix("torch.")

    def read() -> NDArray[Any]:
        dense = tensor.detach().resolve_conj().resolve_neg()
        # NumPy has neither bfloat16 nor float8.
        small = dtype == "bfloat16" or dtype.startswith("float8")
        array: NDArray[Any] = (dense.float() if small else dense).numpy()
        return array

    nbytes = tensor.numel() * tensor.element_size()
    return TensorEntry(name, tuple(tensor.shape), _NAMES.get(dtype, dtype), nbytes, read)
