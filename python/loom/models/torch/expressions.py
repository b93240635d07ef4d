"""Functions of one's own, given as text, in PyTorch's functions."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("torch") is not None:
    import torch

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["evaluated"]

_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def evaluated(text: str, names: Mapping[str, Tensor], activate: Callable[[str, Any], Tensor]) -> Tensor:
    """Computes an expression, whose grammar is Python's.

    Args:
        text: The expression.
        names: What its names stand for; x is the layer's input.
        activate: Computes the activation of a name.
    """
    x = names["x"]

    def of(node: ast.expr) -> Any:  # noqa: ANN401 - a tensor
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return torch.as_tensor(float(node.value), dtype=x.dtype, device=x.device)
        if isinstance(node, ast.Name):
            return names[node.id] if node.id in names else torch.as_tensor(math.pi, dtype=x.dtype)
        if isinstance(node, ast.UnaryOp):
            operand = of(node.operand)
            return -operand if isinstance(node.op, ast.USub) else operand
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op)](of(node.left), of(node.right))
        if isinstance(node, ast.Compare):
            holds = _COMPARISONS[type(node.ops[0])](of(node.left), of(node.comparators[0]))
            return holds.to(x.dtype)
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Name)
        if node.func.id in ("sum", "mean"):
            return over_axes(node.func.id, node)
        return call(node.func.id, [of(each) for each in node.args])

    def over_axes(name: str, node: ast.Call) -> Any:  # noqa: ANN401 - a tensor
        # Axes go by place, too: mean(x, 1, 2).
        given, *stated = node.args
        stated += [word.value for word in node.keywords]
        found = of(given)
        # Of as many axes as a batch of samples.
        found = found.reshape((1,) * (x.ndim - found.ndim) + tuple(found.shape))
        told = [ast.literal_eval(each) for each in stated]
        axes = [axis for each in told for axis in (each if isinstance(each, tuple) else (each,))]
        axes = axes or list(range(x.ndim - 1))
        # Those of a sample; the batch is before them.
        places = [axis % (x.ndim - 1) + 1 for axis in axes]
        return getattr(torch, name)(found, dim=places, keepdim=True)

    def call(name: str, given: list[Any]) -> Any:  # noqa: ANN401 - a tensor
        plain = {"exp", "expm1", "log", "log1p", "sqrt", "abs", "sign", "erf", "sin", "cos"}
        if name in plain:
            return getattr(torch, name)(*given)
        several: dict[str, Callable[..., Any]] = {
            "max": torch.maximum,
            "min": torch.minimum,
            "clip": lambda a, low, high: torch.minimum(torch.maximum(a, low), high),
            "where": lambda condition, yes, no: torch.where(condition != 0, yes, no),
        }
        if name in several:
            return several[name](*torch.broadcast_tensors(*given))
        if given[1:]:
            slope = given[1]
            bent = slope * (torch.expm1(torch.clamp(given[0], max=0)) if name == "elu" else given[0])
            return torch.where(given[0] > 0, given[0], bent)
        return activate(name, given[0])

    found = of(ast.parse(text.strip(), mode="eval").body)
    # What was summed over an axis has one element there.
    return found if found.ndim == x.ndim else torch.broadcast_to(found, x.shape)
