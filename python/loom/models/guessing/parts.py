"""Pieces that a guessed network is put together from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loom import nn
from loom._typing import ArrayLike
from loom.convert import as_real_array
from loom.models.spelling import own_parameters

__all__ = ["Part", "Placed", "Question", "first_of"]


class Question(NamedTuple):
    """Something that names and shapes leave open.

    Args:
        name: What layer it is about; "network" for the whole.
        asked: What is to be said, with the candidates.
    """

    name: str
    asked: str


class Placed(NamedTuple):
    """Tensors of one layer.

    Args:
        path: The layer's place: its number in the part's row, and what parameters' names begin with in it.
        kind: Its kind.
        tensors: Names of tensors by names of parameters, in any spelling.
        turned: Whether matrices lie with their outputs last, under PyTorch's names, as GPT-2's do.
        rows: How many rows each of several parameters in one tensor has; equal ones where empty.
    """

    path: str
    kind: str
    tensors: Mapping[str, str]
    turned: bool = False
    rows: tuple[int, ...] = ()

    def arrays(self, tensors: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
        """Returns the parameters as loom has them."""
        found: dict[str, NDArray[Any]] = {}
        for name, tensor in self.tensors.items():
            array = as_real_array(tensors[tensor], what=tensor)
            array = array.T if self.turned and array.ndim == 2 else array
            for fused, parts in _FUSED.items():
                stem, _, end = name.rpartition("_")
                if stem == fused:
                    ends = np.cumsum(self.rows)[:-1] if self.rows else len(parts)
                    pieces = np.split(array, ends)
                    found |= {f"{part}_{end}": piece for part, piece in zip(parts, pieces, strict=True)}
                    break
            else:
                found[name] = array
        return own_parameters(self.kind, found)


_FUSED = {"query_key_value": ("query", "key", "value"), "gate_up": ("gate", "up")}


class Part(NamedTuple):
    """Tensors that belong together, and the layers that they become.

    Args:
        name: What the tensors' names begin with.
        layers: The layers; none where the tensors are left out.
        placed: Which tensors go where.
    """

    name: str
    layers: tuple[nn.Layer, ...]
    placed: tuple[Placed, ...]

    def tensors(self) -> list[str]:
        """Returns the names of its tensors."""
        return [tensor for placed in self.placed for tensor in placed.tensors.values()]


def first_of(config: Mapping[str, Any], *names: str, default: Any = None) -> Any:  # noqa: ANN401 - any setting
    """Returns the first setting that is there under one of the names."""
    return next((config[name] for name in names if config.get(name) is not None), default)
