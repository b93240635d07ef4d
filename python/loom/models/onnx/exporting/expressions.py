"""Functions of one's own, given as text: an operator for each of their parts."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, cast

from loom import activations
from loom.models.onnx.exporting.graph import Graph
from loom.models.onnx.exporting.scope import Scope, exports

__all__: list[str] = []

_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "Add",
    ast.Sub: "Sub",
    ast.Mult: "Mul",
    ast.Div: "Div",
    ast.Pow: "Pow",
}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "Less",
    ast.LtE: "LessOrEqual",
    ast.Gt: "Greater",
    ast.GtE: "GreaterOrEqual",
    ast.Eq: "Equal",
    ast.NotEq: "Equal",
}
_PLAIN = {
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "abs": "Abs",
    "sign": "Sign",
    "erf": "Erf",
    "sin": "Sin",
    "cos": "Cos",
    "max": "Max",
    "min": "Min",
}
_REDUCTIONS = {"sum": "ReduceSum", "mean": "ReduceMean"}
_FLOAT = 1
"""ONNX's number for float32."""


@exports("expr")
def expression(scope: Scope, x: str) -> str:
    """The text as a tree of operators; loom reads what Python's own grammar reads."""
    names, axes = {"x": x}, len(scope.shape)
    tree = ast.parse(scope.layer.expression.strip(), mode="eval").body
    sums = any(isinstance(part, ast.Name) and part.id in _REDUCTIONS for part in ast.walk(tree))
    for parameter in scope.layer.parameters:
        name, values = parameter["name"], scope.values(parameter["name"])
        names[name] = scope.bake(name, values)
        if sums and values.ndim < axes:
            # With the axes of a sample, sums over them mean the same.
            missing = scope.graph.whole(list(range(axes - values.ndim)))
            names[name] = scope.graph.add("Unsqueeze", names[name], missing)
    y = _Writer(scope.graph, names, axes).write(tree)
    return scope.graph.add("Identity", y) if y == x else y


class _Writer:
    """Writes expressions over values of these names."""

    def __init__(self, graph: Graph, names: dict[str, str], axes: int) -> None:
        self._graph = graph
        self._names = names
        # How many a sample has.
        self._axes = axes

    def write(self, node: ast.expr) -> str:
        """Returns the value of a part."""
        graph = self._graph
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return graph.constant(float(node.value))
        if isinstance(node, ast.Name):
            return self._names[node.id] if node.id in self._names else graph.constant(math.pi)
        if isinstance(node, ast.UnaryOp):
            operand = self.write(node.operand)
            return graph.add("Neg", operand) if isinstance(node.op, ast.USub) else operand
        if isinstance(node, ast.BinOp):
            return graph.add(_OPERATORS[type(node.op)], self.write(node.left), self.write(node.right))
        if isinstance(node, ast.Compare):
            comparison = node.ops[0]
            left, right = self.write(node.left), self.write(node.comparators[0])
            holds = graph.add(_COMPARISONS[type(comparison)], left, right)
            if isinstance(comparison, ast.NotEq):
                holds = graph.add("Not", holds)
            return graph.add("Cast", holds, to=_FLOAT)
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Name)
        if node.func.id in _REDUCTIONS:
            return self._reduce(node.func.id, node)
        return self._call(node.func.id, node.args)

    def _reduce(self, name: str, node: ast.Call) -> str:
        value, *places = node.args
        named = [part.id for part in ast.walk(value) if isinstance(part, ast.Name)]
        if not any(part in self._names for part in named):
            # Of a number there is one.
            return self.write(value)
        given = [
            ast.literal_eval(place) for place in [*places, *(keyword.value for keyword in node.keywords)]
        ]
        flat = [axis for each in given for axis in (each if isinstance(each, tuple) else (each,))]
        axes = [axis - self._axes if axis >= 0 else axis for axis in flat] or list(range(-self._axes, 0))
        result = self.write(value)
        for axis in dict.fromkeys(axes):
            result = self._graph.reduce(_REDUCTIONS[name], result, axis)
        return result

    def _call(self, name: str, given: Sequence[ast.expr]) -> str:
        graph = self._graph
        if name in _PLAIN:
            return graph.add(_PLAIN[name], *map(self.write, given))
        several: dict[str, Callable[..., str]] = {
            "expm1": lambda a: graph.add("Sub", graph.add("Exp", a), graph.constant(1.0)),
            "log1p": lambda a: graph.add("Log", graph.add("Add", a, graph.constant(1.0))),
            "clip": lambda a, low, high: graph.add("Min", graph.add("Max", a, low), high),
            "where": lambda condition, yes, no: graph.add(
                "Where", graph.add("Not", graph.add("Equal", condition, graph.constant(0.0))), yes, no
            ),
        }
        if name in several:
            return several[name](*map(self.write, given))
        function: object = activations.resolve(name)
        if given[1:]:
            kind = activations.FAMILY.kinds[name]
            settings = [field.name for field in fields(cast("Any", kind))]
            function = kind(**dict(zip(settings, map(ast.literal_eval, given[1:]), strict=False)))
        return graph.activate(function, self.write(given[0]))
