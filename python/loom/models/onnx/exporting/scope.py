"""A layer in its place while it is written: its settings, its tensors, and what it reads beside its input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loom.models.onnx.exporting.graph import Graph
from loom.network.adapting import adapted, is_adapted
from loom.network.layers import LayerHandle

__all__ = ["EXPORTERS", "Context", "Scope", "Unsayable", "exports"]


_QUANTISING = 21
"""The opset from which on ONNX Runtime makes one operator of DequantizeLinear and MatMul that quantises
activations, too, unless a session is told otherwise; Cast and Mul it takes for the numbers that they are."""


class Unsayable(Exception):  # noqa: N818 - it is caught, and told with all others
    """Why ONNX cannot say a layer."""


@dataclass(frozen=True)
class Context:
    """The second input of layers that take one: its value, and one sample's shape."""

    value: str
    shape: tuple[int, ...]


@dataclass
class Scope:
    """What a layer's function is told.

    Args:
        graph: The graph it adds to.
        handle: The layer in its place.
        of: Every layer of cells, by its place; for tables that are shared.
        row: Writes a row of layers: it takes the scope, the handles and the value they read.
        context: The second input, where there is one.
        mask: The value that is true at steps which are no padding, (rows, time), inside Masked.
        made: The weight of the layer, where the layer around it has made that anew.
    """

    graph: Graph
    handle: LayerHandle
    of: dict[tuple[int, ...], LayerHandle]
    row: Callable[[Scope, Sequence[LayerHandle], str], str]
    context: Context | None = None
    mask: str | None = None
    made: NDArray[Any] | None = None

    @property
    def layer(self) -> Any:  # noqa: ANN401 - one of loom's layers
        """The layer's settings."""
        return self.handle.config

    @property
    def shape(self) -> tuple[int, ...]:
        """One sample's extents as they come in."""
        return self.handle.input_shape

    def at(self, handle: LayerHandle) -> Scope:
        """Returns the same for another layer."""
        return replace(self, handle=handle)

    def inside(self, handles: Sequence[LayerHandle], x: str) -> str:
        """Writes layers inside this one."""
        return self.row(self, handles, x)

    def values(self, name: str) -> NDArray[np.float32]:
        """Returns a parameter as the forward pass reads it, with what the adapters in use add to it."""
        if self.made is not None and name == "weight":
            return np.asarray(self.made, np.float32)
        weight = self.handle.prefix + name
        return np.asarray(adapted(self.handle, self.handle.at, weight, self.handle.decoded(name)), np.float32)

    def _is_adapted(self, name: str) -> bool:
        return is_adapted(self.handle, self.handle.at, self.handle.prefix + name)

    def bake(self, name: str, values: NDArray[Any]) -> str:
        """Enters values that were made of a parameter, under its name."""
        return self.graph.tensor(f"{self.handle.path}.{name}", np.asarray(values, np.float32))

    def weight(self, name: str) -> str:
        """Enters a parameter; one that is packed as int8 by rows, or with one scale, as codes and scales."""
        path = f"{self.handle.path}.{name}"
        quantised = None if self.made is not None else self._int8(name)
        if quantised is None or path in self.graph.tensors:
            return self.bake(name, self.values(name))
        codes, scales = quantised
        if f"{path}.int8" in self.graph.tensors:
            return path
        stored = self.graph.tensor(f"{path}.int8", codes)
        if self.graph.opset < _QUANTISING:
            scale = self.graph.tensor(f"{path}.scale", scales)
            axis = {"axis": 0} if scales.ndim else {}
            self.graph.add("DequantizeLinear", stored, scale, name=path, **axis)
        else:
            column = scales.reshape(-1, *[1] * (codes.ndim - 1)) if scales.ndim else scales
            scale = self.graph.tensor(f"{path}.scale", column)
            self.graph.add("Mul", self.graph.add("Cast", stored, to=1), scale, name=path)
        return path

    def _int8(self, name: str) -> tuple[NDArray[np.int8], NDArray[np.float32]] | None:
        stored = self.handle.weights.stored[name]
        if stored.dtype != "int8" or stored.version is None or self._is_adapted(name):
            return None
        if stored.version.granularity not in ("channel", "tensor"):
            return None
        values = self.values(name)
        scales = np.asarray(self.handle.weights.packed(name).scales, np.float32)
        if stored.version.granularity == "tensor" and scales.size == 1:
            scales = scales.reshape(())
        elif scales.shape != values.shape[:1]:
            return None
        column = scales.reshape(-1, *[1] * (values.ndim - 1))
        codes = np.rint(values / np.where(column == 0, 1, column))
        if np.abs(codes).max(initial=0) > 127 or not np.array_equal(
            codes.astype(np.float32) * column, values
        ):
            return None
        return codes.astype(np.int8), scales

    def linear(self, x: str, weight: str, bias: str | None, *, flat: bool) -> str:
        """Computes `x W^T + b` over the last axis; `flat` where rows have no other axis."""
        if flat:
            return self.graph.add("Gemm", x, weight, *([bias] if bias else []), transB=1)
        y = self.graph.add("MatMul", x, self.graph.transpose(weight, 1, 0))
        return self.graph.add("Add", y, bias) if bias else y


Exporter: TypeAlias = "Callable[[Scope, str], str]"
EXPORTERS: dict[str, Exporter] = {}
"""What writes each kind of layer: it takes the scope and the value that the layer reads."""


def exports(*kinds: str) -> Callable[[Exporter], Exporter]:
    """Enters a function as what writes these kinds of layer."""

    def enter(function: Exporter) -> Exporter:
        EXPORTERS.update(dict.fromkeys(kinds, function))
        return function

    return enter
