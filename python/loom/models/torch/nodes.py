"""Nodes of PyTorch's graphs: what they are called, which arguments they take, and what they hold."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

__all__ = ["holds_tensors", "name_of", "needed_nodes", "parameters_of", "values_of"]

# Further arguments of functions and methods that have no signature to ask.
_ARGUMENTS = {
    "flatten": ("start_dim", "end_dim"),
    "mean": ("dim", "keepdim"),
    "transpose": ("dim0", "dim1"),
    "swapaxes": ("dim0", "dim1"),
    "swapdims": ("dim0", "dim1"),
    "leaky_relu": ("negative_slope",),
    "elu": ("alpha",),
    "celu": ("alpha",),
    "threshold": ("threshold", "value"),
    "hardshrink": ("lambd",),
    "softshrink": ("lambd",),
    "softplus": ("beta", "threshold"),
    "glu": ("dim",),
    "softmax": ("dim",),
    "cat": ("dim",),
    "concat": ("dim",),
    "concatenate": ("dim",),
    "permute": ("dims",),
    "linear": ("weight", "bias"),
    "gelu": ("approximate",),
    "prelu": ("weight",),
    **dict.fromkeys(("clamp", "clip"), ("min", "max")),
    "pow": ("exponent",),
    "hardtanh": ("min_val", "max_val"),
    "pad": ("pad", "mode", "value"),
    **{f"conv{n}d": ("weight", "bias", "stride", "padding", "dilation", "groups") for n in (1, 2, 3)},
    **{
        f"conv_transpose{n}d": ("weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
        for n in (1, 2, 3)
    },
    **{
        f"avg_pool{n}d": ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
        for n in (1, 2, 3)
    },
    **{f"max_pool{n}d": ("kernel_size", "stride", "padding", "dilation", "ceil_mode") for n in (1, 2, 3)},
}


def values_of(graph: GraphModule, example: Any) -> dict[Node, Any]:  # noqa: ANN401
    """What every node holds for the example."""
    import torch.fx

    found: dict[Node, Any] = {}

    class Interpreter(torch.fx.Interpreter):
        def run_node(self, node: Any) -> Any:  # noqa: ANN401
            found[node] = super().run_node(node)
            return found[node]

    Interpreter(graph, garbage_collect_values=False).run(example)
    return found


def holds_tensors(value: object) -> bool:
    """Whether a value is a tensor, or has one in it."""
    if isinstance(value, tuple | list):
        return any(holds_tensors(entry) for entry in value)
    return hasattr(value, "detach")


def needed_nodes(end: Node, nodes: Sequence[Node]) -> Iterator[Node]:
    """The nodes that the last value is computed from, in order."""
    needed = {end}
    for node in reversed(nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    return (node for node in nodes if node in needed)


def name_of(node: Node) -> str:
    """What a call is called, without what tells its overloads apart."""
    if node.op == "call_method":
        return str(node.target).removesuffix("_")
    schema = getattr(node.target, "_schema", None)
    name = (
        str(schema.name).partition("::")[2] if schema is not None else getattr(node.target, "__name__", "?")
    )
    return name.removeprefix("_").removesuffix("_")


def parameters_of(node: Node, name: str) -> tuple[str, ...]:
    """The names of all that a call takes, in order."""
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        return tuple(argument.name for argument in schema.arguments)
    if name in _ARGUMENTS:
        return ("input", *_ARGUMENTS[name])
    if callable(node.target) and node.target is not operator.getitem:
        try:
            return tuple(inspect.signature(node.target).parameters)
        except ValueError:
            pass
    return ("input", "other")
