"""Tensors of PyTorch as arrays that know which parameter they were, and whether that is trained."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom.models.branches import Row
from loom.network import Network

__all__ = ["TensorArray", "array", "fixed", "keep_fixed", "warn_of_shared", "warn_of_tables"]

# What arrays that several parameters are cut from become.
_CUT = {
    f"in_proj_{what}": [f"{part}_{what}" for part in ("query", "key", "value")] for what in ("weight", "bias")
}


class TensorArray(np.ndarray):
    """An array, with what its tensor was in the module.

    Attributes:
        source: What tells the tensor from others; None where it is no parameter.
        fixed: Whether training leaves it as it is.
    """

    source: int | None = None
    fixed: bool = False

    def __array_finalize__(self, other: object) -> None:
        self.source = getattr(other, "source", None)
        self.fixed = getattr(other, "fixed", False)


def array(tensor: Any) -> NDArray[Any]:  # noqa: ANN401 - of PyTorch
    """Returns a tensor's numbers, half precision as float32."""
    import torch

    held = tensor.detach().cpu()
    made = np.array(held.double().numpy() if held.element_size() == 8 else held.float().numpy())
    if not isinstance(tensor, torch.nn.Parameter):
        return made
    marked = made.view(TensorArray)
    marked.source, marked.fixed = tensor.data_ptr() or None, not tensor.requires_grad
    return marked


def fixed(values: NDArray[Any]) -> NDArray[Any]:
    """Returns an array that training leaves as it is."""
    marked = values.view(TensorArray)
    marked.fixed = True
    return marked


def keep_fixed(net: Network, row: Row) -> None:
    """Freezes what the module does not train: parameters without gradients, buffers and constants."""
    for handle, layer in zip(net.layers, row, strict=True):
        kept = {name for name, values in _arrays(layer) if getattr(values, "fixed", False)}
        kept &= set(handle.parameters)
        if kept and kept == set(handle.parameters):
            handle.trainable = False
        elif kept:
            handle.freeze(*sorted(kept))


def warn_of_shared(row: Row) -> None:
    """Warns of parameters that several layers share in the module, and that are trained apart here."""
    places: dict[int, list[str]] = {}
    seen: set[int] = set()
    for place, layer in enumerate(row):
        for name, values in _arrays(layer):
            source = getattr(values, "source", None)
            # One array may be cut into several parameters of one layer.
            again = id(values) in seen
            seen.add(id(values))
            if source is not None and not again and not getattr(values, "fixed", False):
                places.setdefault(source, []).append(f"0.0.0.{place}.{name}")
    several = [" and ".join(names) for names in places.values() if len(names) > 1]
    if several:
        more = f", and {len(several) - 3} more" if len(several) > 3 else ""
        warnings.warn(
            "the module has parameters that several of its layers share; here each has a copy of its own, "
            f"and training moves them apart: {'; '.join(several[:3])}{more}",
            stacklevel=4,
        )


def warn_of_tables(module: Any) -> None:  # noqa: ANN401 - of PyTorch
    """Warns of what the module's embeddings do in training and an Embedding here does not."""
    import torch

    told: list[str] = []
    for name, part in module.named_modules():
        if not isinstance(part, torch.nn.Embedding) or not part.weight.requires_grad:
            continue
        if part.padding_idx is not None:
            told.append(
                f"padding_idx={part.padding_idx} of {name or 'the module'}: that row is trained like others; "
                "where it is padding, give sequences their own lengths (docs/guides/any-length.md)"
            )
        if part.scale_grad_by_freq:
            told.append(f"scale_grad_by_freq=True of {name or 'the module'}: gradients are not divided")
    if told:
        more = f"; and {len(told) - 3} more" if len(told) > 3 else ""
        warnings.warn(f"training differs from the module's: {'; '.join(told[:3])}{more}", stacklevel=4)


def _arrays(layer: dict[str, Any]) -> Iterator[tuple[str, NDArray[Any]]]:
    """The parameters of a layer and of those in it, by their names in the network."""
    for name, value in layer.items():
        if isinstance(value, np.ndarray):
            yield from ((own, value) for own in _CUT.get(name, [name]))
    rows: Sequence[tuple[str, Row]] = [
        ("layers.", layer["layers"] if isinstance(layer.get("layers"), list) else []),
        *((f"branches.{number}.", branch) for number, branch in enumerate(layer.get("branches", ()))),
    ]
    for begin, row in rows:
        for number, inner in enumerate(row):
            yield from ((f"{begin}{number}.{name}", values) for name, values in _arrays(inner))
