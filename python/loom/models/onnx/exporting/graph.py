"""An ONNX graph in the making: nodes, and the tensors they read."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loom.activations import ELU, LeakyReLU
from loom.extras import require

__all__ = ["Graph"]


class Graph:
    """Nodes and initializers; values are known by their names.

    Args:
        opset: The version of ONNX's operators that is written.
        taken: Names that no value in between may have, as inputs and outputs have them.
    """

    def __init__(self, opset: int, taken: Collection[str] = ()) -> None:
        self._onnx = require("onnx", extra="onnx", purpose="saving a network as ONNX")
        self.opset = opset
        self.nodes: list[Any] = []
        self.tensors: dict[str, NDArray[Any]] = {}
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self.batch = ""
        """The one-element value that holds how many rows the input has."""
        self._made = 0
        self._taken = taken

    def fresh(self, hint: str) -> str:
        """Returns a name that no value has."""
        self._made += 1
        name = f"{hint}_{self._made}"
        return self.fresh(hint) if name in self._taken else name

    def several(self, op: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:  # noqa: ANN401
        """Adds a node of several outputs and returns their names."""
        names = [self.fresh(op) for _ in range(outputs)]
        self.nodes.append(self._onnx.helper.make_node(op, list(inputs), names, self.fresh(op), **attributes))
        return names

    def add(self, op: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:  # noqa: ANN401
        """Adds a node of one output and returns its name, which can be given."""
        output = name or self.fresh(op)
        node = self._onnx.helper.make_node(op, list(inputs), [output], self.fresh(op), **attributes)
        self.nodes.append(node)
        return output

    def tensor(self, name: str, values: NDArray[Any]) -> str:
        """Enters a tensor under a name of its own, once."""
        self.tensors.setdefault(name, np.asarray(values, order="C"))
        return name

    def constant(self, values: ArrayLike, dtype: str = "float32") -> str:
        """Enters a tensor that has no name in loom; equal ones are one."""
        array = np.asarray(values, dtype)
        key = (dtype, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.tensor(self.fresh("constant"), array)
        return self._constants[key]

    def whole(self, values: int | Sequence[int]) -> str:
        """Enters whole numbers, such as a shape."""
        return self.constant(values, "int64")

    def rows_of(self, x: str) -> str:
        """Returns how many rows the network's input has, as one number on an axis of its own."""
        if not self.batch:
            self.batch = self.add("Shape", x, start=0, end=1)
        return self.batch

    def reshape(self, x: str, shape: Sequence[int]) -> str:
        """Gives each row another shape."""
        return self.add("Reshape", x, self.whole([-1, *shape]))

    def transpose(self, x: str, *axes: int) -> str:
        """Reorders axes, that of the rows among them."""
        return self.add("Transpose", x, perm=axes)

    def slice(self, x: str, start: int, stop: int, axis: int = -1) -> str:
        """Takes a range of an axis."""
        return self.add("Slice", x, self.whole([start]), self.whole([stop]), self.whole([axis]))

    def split(self, x: str, parts: Sequence[int], axis: int = -1) -> list[str]:
        """Cuts an axis into parts of these extents."""
        return self.several("Split", x, self.whole(list(parts)), outputs=len(parts), axis=axis)

    def reduce(self, op: str, x: str, axis: int) -> str:
        """Reduces an axis, which stays with extent 1."""
        if op == "ReduceSum" or self.opset >= 18:
            return self.add(op, x, self.whole([axis]), keepdims=1)
        return self.add(op, x, axes=[axis], keepdims=1)

    def activate(self, function: Any, x: str) -> str:  # noqa: ANN401 - a name or an object
        """Computes an activation function."""
        if isinstance(function, LeakyReLU):
            return self.add("LeakyRelu", x, alpha=function.slope)
        if isinstance(function, ELU):
            return self.add("Elu", x, alpha=function.alpha)
        name = str(function)
        if name == "linear":
            return x
        plain = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "softplus": "Softplus", "selu": "Selu"}
        if name in plain:
            return self.add(plain[name], x)
        if name == "hardsigmoid":
            return self.add("HardSigmoid", x, alpha=1 / 6, beta=0.5)
        if name == "relu_squared":
            cut = self.add("Relu", x)
            return self.add("Mul", cut, cut)
        if name == "scaled_relu":
            return self.add("Mul", self.add("Relu", x), self.constant(1.1))
        if name == "gelu":
            bent = self.add("Erf", self.add("Div", x, self.constant(math.sqrt(2))))
            return self._half(x, bent)
        if name == "gelu_tanh":
            cube = self.add("Mul", self.add("Mul", x, x), x)
            inner = self.add("Add", x, self.add("Mul", cube, self.constant(0.044715)))
            return self._half(
                x, self.add("Tanh", self.add("Mul", inner, self.constant(math.sqrt(2 / math.pi))))
            )
        gates = {
            "silu": lambda: self.add("Sigmoid", x),
            "hardswish": lambda: self.add("HardSigmoid", x, alpha=1 / 6, beta=0.5),
            "mish": lambda: self.add("Tanh", self.add("Softplus", x)),
        }
        return self.add("Mul", x, gates[name]())

    def _half(self, x: str, bent: str) -> str:
        raised = self.add("Add", bent, self.constant(1.0))
        return self.add("Mul", self.add("Mul", x, raised), self.constant(0.5))
