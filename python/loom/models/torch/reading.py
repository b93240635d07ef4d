"""Networks from modules of PyTorch."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from loom.errors import ConfigError, DataError
from loom.extras import require
from loom.models import movements
from loom.models.branches import Branches, Join, Row
from loom.models.plain import import_model
from loom.models.torch.functions import JOINS, row_of_call
from loom.models.torch.modules import (
    Unsupported,
    array,
    attention,
    encoder,
    encoder_layer,
    known,
    row_of,
)
from loom.network import Network

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

__all__ = ["from_torch"]

# Further arguments of functions and methods that have no signature to ask.
_ARGUMENTS = {
    "flatten": ("start_dim", "end_dim"),
    "mean": ("dim", "keepdim"),
    "transpose": ("dim0", "dim1"),
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
_SAME = {"swapaxes": "transpose", "batch_norm_": "batch_norm", "relu_": "relu"}
SPLITS = {"chunk", "split", "split_with_sizes", "tensor_split", "unsafe_chunk", "unsafe_split"}
"""Calls that make several values of one."""
PICKS = {"getitem", "select", "slice", "narrow", "flip", "roll", "pixel_shuffle", "pixel_unshuffle"}
"""Calls that move elements, or leave some out."""
ARITHMETIC = {
    **dict.fromkeys(("sub", "isub"), "-"),
    "rsub": "rsub",
    **dict.fromkeys(("mul", "imul", "multiply"), "*"),
    **dict.fromkeys(("div", "idiv", "truediv", "itruediv", "divide", "true_divide"), "/"),
}
"""Calls of two operands, beside sums."""
NOTHING = {("+", 0.0), ("-", 0.0), ("/", 1.0)}
"""What leaves a value as it is."""


def from_torch(module: Any, example: Any) -> Network:  # noqa: ANN401 - of PyTorch
    """Makes a network of a PyTorch module, with its weights.

    Modules that loom has a layer for become that layer: Linear, convolutions and transposed ones, norms,
    Embedding, RNN, LSTM and GRU, MultiheadAttention, TransformerEncoder and its layers, pooling, activations,
    dropout, Flatten. In between values may be added, concatenated, reshaped and permuted, and functions of
    `torch.nn.functional` called; the graph of that is traced by torch.fx, and by torch.export where that
    cannot. A sum of a value and what is computed of it becomes a Residual, other branches a Parallel.

    The module is read in eval mode, and left in the mode that it has. What the network makes of the example
    is compared with what the module does.

    Args:
        module: A `torch.nn.Module` of one input and one output, the batch first.
        example: What it reads: a tensor or an array, (batch, ...), of whole numbers where those are read.

    Returns:
        The network; float64 where the module is.

    Raises:
        ConfigError: The module uses what loom has no layer for (all of it is listed by name), or computes
            something else than the layers that were found.
        DataError: The example is no tensor of a batch, or the module does not take it.
        MissingExtraError: PyTorch is not installed.
    """
    torch = require("torch", extra="torch", purpose="from_torch")
    if not isinstance(module, torch.nn.Module):
        raise ConfigError(f"from_torch takes a torch.nn.Module, got {type(module).__name__}")
    example = torch.as_tensor(example)
    if example.dim() < 1 or example.shape[0] < 1:
        raise DataError(f"the example is a batch, (batch, ...), got shape {tuple(example.shape)}")
    # A batch of one hides what is an axis of extent one.
    example = torch.cat([example, example]) if example.shape[0] == 1 else example
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            return _read(module, example)
    finally:
        for part, mode in modes.items():
            part.training = mode


def _read(module: Any, example: Any) -> Network:  # noqa: ANN401
    try:
        expected = module(example)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise DataError(f"the module does not take the example: {error}") from error
    wide = expected.is_floating_point() if hasattr(expected, "is_floating_point") else False
    precision = "float64" if wide and expected.element_size() == 8 else "float32"
    failures: list[list[str]] = []
    for trace in (_traced, _exported):
        try:
            graph = trace(module, example)
        except Exception as error:  # noqa: BLE001 - whatever tracing runs into
            failures.append([f"{trace.__name__.strip('_')} failed: {str(error).splitlines()[0][:200]}"])
            continue
        reading = _Reading(graph, example)
        row = reading.row()
        if not reading.failures:
            shape = list(example.shape[1:])
            net = import_model({"input_shape": shape, "precision": precision, "layers": row})
            _compare(net, example, expected)
            return net
        failures.append(reading.failures)
    told = "\n".join(f"  {failure}" for failure in failures[0])
    if len(failures) > 1 and len(failures[0]) == 1 and "failed" in failures[0][0]:
        told += "\n" + "\n".join(f"  {failure}" for failure in failures[1])
    raise ConfigError(f"{type(module).__name__} uses what loom has no layer for:\n{told}")


def _compare(net: Network, example: Any, expected: Any) -> None:  # noqa: ANN401
    theirs = array(expected)
    own = net.predict(example.cpu().numpy() if not example.is_floating_point() else array(example))
    apart = float(np.abs(own - theirs).max(initial=0.0)) if own.shape == theirs.shape else np.inf
    # Written so that a NaN is too far away, too.
    if not apart <= 1e-3 * (1 + float(np.abs(theirs).max(initial=0.0))):
        raise ConfigError(
            f"the layers that were found make {own.shape} of the example, the module {theirs.shape}, "
            f"{apart:.2g} apart: it computes something that its graph does not show"
        )


def _traced(module: Any, example: Any) -> GraphModule:  # noqa: ANN401
    import torch.fx

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, part: Any, name: str) -> bool:  # noqa: ANN401
            own = known(part) and not isinstance(part, torch.nn.Sequential)
            return own or super().is_leaf_module(part, name)

    if known(module):
        module = torch.nn.Sequential(module)
    return torch.fx.GraphModule(module, Tracer().trace(module))


def _exported(module: Any, example: Any) -> GraphModule:  # noqa: ANN401
    import torch.export

    exported: GraphModule = torch.export.export(module, (example,), strict=False).module()
    return exported


class _Recurrence(NamedTuple):
    """A part of what a recurrent module returns.

    Args:
        node: The call of the module.
        part: "all", "outputs", "states", "hidden", or "hidden n" for the last n of all.
    """

    node: Node
    part: str


class _Reading:
    """A graph as layers."""

    def __init__(self, graph: GraphModule, example: Any) -> None:  # noqa: ANN401
        self.graph = graph
        self.refused: dict[str, list[str]] = {}
        self.values = _values(graph, example)
        self.constant: dict[Node, bool] = {}
        self.rows: dict[Node, Row] = {}
        self.joins: dict[Node, Join] = {}
        self.recurrences: dict[Node, _Recurrence] = {}
        self.split: dict[Node, Node] = {}
        """What is taken apart into several values, by the value that it was."""

    def row(self) -> Row:
        """Returns the layers of the whole graph; what has none is among `failures`."""
        nodes = list(self.graph.graph.nodes)
        start = next(node for node in nodes if node.op == "placeholder")
        (end,) = next(node for node in nodes if node.op == "output").args
        if isinstance(end, tuple | list) and len(end) == 1:
            (end,) = end
        if isinstance(end, tuple | list | dict):
            self.refused["several outputs: wrap the module in one that returns a single tensor"] = ["output"]
            return []
        for node in nodes:
            self.constant[node] = node is not start and (
                node.op == "get_attr"
                or not _holds_tensors(self.values.get(node))
                or all(self.constant[other] for other in node.all_input_nodes)
            )
        branches = Branches(start)
        for node in _needed(end, nodes):
            if node is not start and not self.constant[node]:
                inputs = self._taken(node)
                branches.add(node, inputs, self.joins.get(node) or self.rows.get(node, []))
        return [] if self.failures else _settled(branches.row(end))

    @property
    def failures(self) -> list[str]:
        """What has no layer, each with where it is."""
        return [
            f"{why} ({', '.join(places[:3])}{f' and {len(places) - 3} more' if len(places) > 3 else ''})"
            for why, places in self.refused.items()
        ]

    # Nodes

    def _taken(self, node: Node) -> list[Node]:
        """Notes what a node does, and returns the values that it reads."""
        try:
            return self._step(node)
        except (Unsupported, KeyError) as error:
            why = f"{_name(node)} without its {error}" if isinstance(error, KeyError) else str(error)
            self.refused.setdefault(why, []).append(node.name)
            return [other for other in node.all_input_nodes if not self.constant[other]][:1]

    def _step(self, node: Node) -> list[Node]:
        """Notes the layers of a node, and returns the values that they read."""
        reads = [other for other in node.all_input_nodes if not self.constant[other]]
        if node.op == "call_module":
            part = self.graph.get_submodule(str(node.target))
            self.rows[node] = self._module(node, part, reads)
            return reads[:1]
        name = _name(node)
        if name in ("getitem", "select") and (source := self._recurrent_part(node)) is not None:
            return [source]
        if name in JOINS and (source := self._hidden_states(node)) is not None:
            return [source]
        if name in JOINS:
            found = self._join(node, JOINS[name])
            if found is not None:
                return found
        if name in SPLITS:
            # What is taken of it says which elements.
            self.rows[node], self.split[node] = [], reads[0]
            return reads
        if name in PICKS and len(reads) == 1:
            self.rows[node] = self._picked(node, reads[0])
            return reads
        if name in ARITHMETIC:
            return self._combined(node, ARITHMETIC[name])
        if len(reads) != 1:
            raise Unsupported(f"{name} of {len(reads)} values")
        self.rows[node] = row_of_call(
            _SAME.get(name, name), self._arguments(node, name), self._shape(reads[0]), self._shape(node)
        )
        return reads

    def _module(self, node: Node, part: Any, reads: Sequence[Node]) -> Row:  # noqa: ANN401
        name = type(part).__name__
        options = {key: self._plain(value) for key, value in node.kwargs.items()}
        if name in ("MultiheadAttention", "TransformerEncoderLayer", "TransformerEncoder"):
            mask, causal = self._mask(node, name, options, self._shape(reads[0])[1])
            if name == "MultiheadAttention":
                if len(reads) != 1:
                    raise Unsupported("MultiheadAttention whose keys come from elsewhere than its queries")
                return [attention(part, causal, mask)]
            return (encoder if name == "TransformerEncoder" else encoder_layer)(part, causal, mask)
        if name in ("RNN", "LSTM", "GRU"):
            self.recurrences[node] = _Recurrence(node, "all")
            if len(node.args) > 1 or len(reads) > 1:
                raise Unsupported(f"{name} with an initial state")
            return row_of(part, self._shape(reads[0]), ())
        if len(reads) != 1:
            raise Unsupported(f"{name} of {len(reads)} values")
        return row_of(part, self._shape(reads[0]), self._shape(node))

    def _mask(
        self, node: Node, name: str, options: Mapping[str, Any], time: int
    ) -> tuple[list[list[int]] | None, bool]:
        """The mask that a call of attention has, and whether it is causal."""
        names = {"MultiheadAttention": "attn_mask", "TransformerEncoder": "mask"}
        place = {"MultiheadAttention": 5}.get(name, 1)
        given = options.get(names.get(name, "src_mask"))
        if given is None and len(node.args) > place:
            given = self._plain(node.args[place])
        if options.get("key_padding_mask", options.get("src_key_padding_mask")) is not None:
            raise Unsupported(f"a mask of padding in {name}")
        if given is None:
            return None, bool(options.get("is_causal"))
        values = array(given)
        if values.shape != (time, time):
            raise Unsupported(f"a mask of shape {values.shape} in {name}")
        seen = values == 0 if str(given.dtype) == "torch.bool" else values == 0.0
        if str(given.dtype) != "torch.bool" and not np.isneginf(values[~seen]).all():
            raise Unsupported(f"a mask in {name} that adds numbers")
        if (seen == np.tril(np.ones_like(seen))).all():
            return None, True
        return [[int(cell) for cell in line] for line in seen], False

    def _recurrent_part(self, node: Node) -> Node | None:
        """What a recurrent module returns is taken apart: the value is then the module's call."""
        source, at = node.args[0], node.args[1:]
        if source not in self.recurrences and not isinstance(self.values[source], tuple):
            return None
        whole = self.recurrences.get(source)
        if whole is None:
            if at == (0,):
                # The outputs of attention, without its weights.
                self.rows[node] = []
                return source
            raise Unsupported("the second of what a module returns")
        call = whole.node
        part = self.graph.get_submodule(str(call.target))
        self.rows[node] = []
        index = at[0] if len(at) == 1 else at
        if whole.part == "all" and index in (0, 1):
            hidden = "states" if isinstance(self.values[call][1], tuple) else "hidden"
            self.recurrences[node] = _Recurrence(call, "outputs" if index == 0 else hidden)
            return source
        if whole.part == "states" and index == 0:
            self.recurrences[node] = _Recurrence(call, "hidden")
            return source
        last = (-1, part.num_layers - 1)
        everything = slice(None, None, None)
        if part.bidirectional and whole.part == "hidden" and isinstance(index, int):
            many = 2 * part.num_layers
            self.recurrences[node] = _Recurrence(call, f"hidden {index % many - many}")
            return source
        ends = ((everything, -1), (everything, -1, everything), (1, -1))
        if not part.bidirectional and (
            (whole.part == "hidden" and (index in last or at in ((0, last[0]), (0, last[1]))))
            or (
                whole.part == "outputs"
                and (tuple(index) if isinstance(index, list | tuple) else index) in ends
            )
        ):
            self.rows[node] = [{"~": "last"}]
            return source
        raise Unsupported(f"{index} of what {type(part).__name__} returns ({whole.part})")

    def _hidden_states(self, node: Node) -> Node | None:
        """The last hidden states of both directions, side by side."""
        values = node.args[0] if node.args else node.kwargs.get("tensors")
        if not isinstance(values, list | tuple) or len(values) != 2:
            return None
        parts = [self.recurrences.get(value) for value in values]
        if [part.part for part in parts if part is not None] != ["hidden -2", "hidden -1"]:
            return None
        assert parts[0] is not None
        self.rows[node] = [{"~": "last"}]
        return parts[0].node

    def _join(self, node: Node, combine: str) -> list[Node] | None:
        arguments = self._arguments(node, _name(node))
        if combine == "concat":
            values = list(node.args[0] if node.args else node.kwargs["tensors"])
        else:
            values = list(node.args[:2]) if len(node.args) > 1 else [*node.args, *node.kwargs.values()][:2]
            if arguments.get("alpha", 1) != 1:
                raise Unsupported("add with alpha")
        fixed = [value for value in values if not self._moves(value)]
        if fixed and combine == "add" and len(fixed) == 1:
            self.rows[node] = self._with_constant(values, "+", self._shape(node))
            return [value for value in values if self._moves(value)]
        if fixed:
            raise Unsupported("constants that are concatenated with values")
        after = self._shape(node)
        if combine == "add" and any(self._shape(value) != after for value in values):
            raise Unsupported("a sum of different shapes")
        axis = int(arguments.get("dim", 0)) % len(after)
        if combine == "concat" and axis == 0:
            raise Unsupported("values concatenated along the batch")
        self.joins[node] = Join(combine, axis - 1 if combine == "concat" else None)
        return values

    def _combined(self, node: Node, symbol: str) -> list[Node]:
        """A difference, a product or a quotient: of two values, or of one and a constant."""
        operands = [*node.args, *node.kwargs.values()][:2]
        moving = [value for value in operands if self._moves(value)]
        if symbol == "rsub":
            operands, symbol = operands[::-1], "-"
        if self._arguments(node, _name(node)).get("alpha", 1) != 1 or len(operands) < 2:
            raise Unsupported(f"{_name(node)} with alpha")
        if len(moving) == 1:
            self.rows[node] = self._with_constant(operands, symbol, self._shape(node))
            return moving
        after = self._shape(node)
        shapes = [self._shape(value) for value in operands]
        if symbol == "-" and shapes == [after, after]:
            self.joins[node] = Join("add", ends=[[], [{"type": "scale", "factor": -1.0}]])
        elif symbol == "*" and all(
            len(shape) == len(after) and shape[0] == after[0] and len(after) > 1 for shape in shapes
        ):
            self.joins[node] = Join("multiply")
        elif symbol == "/" and shapes == [after, after]:
            self.joins[node] = Join("multiply", ends=[[], [{"type": "expr", "expression": "1 / x"}]])
        else:
            raise Unsupported(f"{_name(node)} of values of shapes {' and '.join(map(str, shapes))}")
        return operands

    def _with_constant(self, operands: Sequence[Any], symbol: str, after: tuple[int, ...]) -> Row:
        """A constant beside a value: a number, or an array that broadcasts to it."""
        first = self._moves(operands[0])
        (source,) = (value for value in operands if self._moves(value))
        values, before = self._plain(operands[1 if first else 0]), self._shape(source)
        held = np.asarray(values if isinstance(values, int | float) else array(values), np.float64)
        if held.size == 1 and symbol == "*":
            factor = float(held.reshape(()))
            return [] if factor == 1 else [{"type": "scale", "factor": factor}]
        if held.size == 1:
            number = float(held.reshape(()))
            text = f"x {symbol} {number!r}" if first else f"{number!r} {symbol} x"
            return [] if first and (symbol, number) in NOTHING else [{"type": "expr", "expression": text}]
        shape = held.shape[1:] if held.ndim == len(before) and held.shape[0] == 1 else held.shape
        if after != before or len(shape) >= len(before):
            raise Unsupported(f"values of shape {before} {symbol} a constant of shape {held.shape}")
        if symbol == "+" and shape == before[1:] and len(shape) == 2:
            return [{"type": "positional_embedding", "weight": held.reshape(shape)}]
        while shape and shape[0] == 1:
            shape = shape[1:]
        text = f"x {symbol} a" if first else f"a {symbol} x"
        parameter = {"name": "a", "shape": list(shape)}
        return [
            {"type": "expr", "expression": text, "parameters": [parameter], "a": held.reshape(shape or (1,))}
        ]

    def _picked(self, node: Node, read: Node) -> Row:
        """Elements that are moved or left out, found by moving their numbers."""
        import torch

        split = self.split.get(read)
        source = read if split is None else split
        value = self.values[source]
        rows, own = value.shape[0], value[:1].numel()
        moving = torch.arange(value.numel(), dtype=torch.float64).reshape(value.shape)
        if split is not None:
            moving = self._repeated(read, source, moving)
        moved = self._repeated(node, read, moving)
        if not hasattr(moved, "shape"):
            raise Unsupported(f"{_name(node)}, which makes several values,")
        places = moved.reshape(moved.shape[0], -1).numpy() if moved.dim() else None
        if places is None or len(places) != rows:
            raise Unsupported(f"{_name(node)}, which takes the batch apart,")
        if (places - own * np.arange(rows)[:, None] != places[0]).any():
            raise Unsupported(f"{_name(node)}, which mixes rows of the batch,")
        made = movements.moved(tuple(value.shape[1:]), tuple(moved.shape[1:]), places[0].astype(np.int64))
        if made is None:
            raise Unsupported(f"{_name(node)} of {tuple(value.shape)}, which no layers make,")
        return [{**step.layer.to_config(), **step.tensors} for step in made]

    def _repeated(self, node: Node, read: Node, value: Any) -> Any:  # noqa: ANN401
        """What a call makes of another value."""
        import torch.fx

        def held(other: Node) -> Any:  # noqa: ANN401
            return value if other is read else self.values[other]

        args = torch.fx.node.map_arg(node.args, held)
        options = torch.fx.node.map_arg(node.kwargs, held)
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **options)
        assert callable(node.target)
        return node.target(*args, **options)

    # Arguments

    def _moves(self, value: object) -> bool:
        return value in self.constant and not self.constant[value]

    def _plain(self, value: Any) -> Any:  # noqa: ANN401
        """An argument with nodes in it replaced by what they hold."""
        if isinstance(value, list | tuple):
            return type(value)(self._plain(entry) for entry in value)
        return self.values[value] if value in self.constant else value

    def _shape(self, node: Node) -> tuple[int, ...]:
        value = self.values[node]
        value = value[0] if isinstance(value, tuple) else value
        if not hasattr(value, "shape"):
            raise Unsupported(f"{_name(node)}, which makes several values,")
        return tuple(value.shape)

    def _arguments(self, node: Node, name: str) -> dict[str, Any]:
        """The constant arguments of a call by their names."""
        names = _parameters_of(node, name)
        if name == "permute" and node.op == "call_method" and isinstance(node.args[1], int):
            return {"dims": node.args[1:]}
        given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
        return {key: self._plain(value) for key, value in given.items() if not self._moves(value)}


def _settled(row: Row, *, inner: bool = False) -> Row:
    """A row, and those in it, without the marks that only several layers together can settle.

    Recurrent layers learn whether all of their steps are wanted, products become gated layers, and a head
    whose weights are an embedding's is tied to it.
    """
    made: Row = []
    tables: dict[int, int] = {}
    for layer in row:
        layer = dict(layer)
        if isinstance(layer.get("layers"), list):
            layer["layers"] = _settled(layer["layers"], inner=True)
        if "branches" in layer:
            layer["branches"] = [_settled(branch, inner=True) for branch in layer["branches"]]
        tensor = layer.pop("~tensor", None)
        if layer.get("~") == "last":
            made[-1] = {**made[-1], "return_sequences": False}
        elif layer.get("combine") == "multiply" and (silu := _silu(layer["branches"])):
            made.append(silu)
        elif (
            made and made[-1].get("combine") == "multiply" and (gated := _gated(made[-1]["branches"], layer))
        ):
            made[-1] = gated
        elif layer["type"] == "dense" and tensor in tables and "bias" not in layer:
            head = {
                "type": "tied_head",
                "vocabulary": len(layer["weight"]),
                "tied_to": [0, 0, 0, tables[tensor]],
            }
            made.append(head)
        else:
            # Heads name the place of an embedding in its cell.
            if layer["type"] == "embedding" and not inner:
                tables[tensor] = len(made)
            made.append(layer)
    return made


def _silu(branches: Sequence[Row]) -> dict[str, Any] | None:
    """The activation that a value times its own logistic function is."""
    if sorted(map(len, branches)) != [0, 1] or len(branches) != 2:
        return None
    (only,) = (branch[0] for branch in branches if branch)
    return {"type": "activation", "function": "silu"} if only.get("function") == "sigmoid" else None


def _gated(branches: Sequence[Row], down: dict[str, Any]) -> dict[str, Any] | None:
    """The gated layer that a product of two branches and the Dense layer behind it are; None for others."""
    gate, up = sorted(branches, key=len, reverse=True)[:2]
    kinds = [[layer["type"] for layer in row] for row in (gate, up, [down])]
    if len(branches) != 2 or kinds != [["dense", "activation"], ["dense"], ["dense"]]:
        return None
    parts = {"gate": gate[0], "up": up[0], "down": down}
    if len({"bias" in part for part in parts.values()}) > 1:
        return None
    held = {
        f"{name}_{what}": part[what]
        for name, part in parts.items()
        for what in ("weight", "bias")
        if what in part
    }
    return {"type": "swiglu", "activation": gate[1]["function"], **held}


def _values(graph: GraphModule, example: Any) -> dict[Node, Any]:  # noqa: ANN401
    """What every node holds for the example."""
    import torch.fx

    found: dict[Node, Any] = {}

    class Interpreter(torch.fx.Interpreter):
        def run_node(self, node: Any) -> Any:  # noqa: ANN401
            found[node] = super().run_node(node)
            return found[node]

    Interpreter(graph, garbage_collect_values=False).run(example)
    return found


def _holds_tensors(value: object) -> bool:
    if isinstance(value, tuple | list):
        return any(_holds_tensors(entry) for entry in value)
    return hasattr(value, "detach")


def _needed(end: Node, nodes: Sequence[Node]) -> Iterator[Node]:
    """The nodes that the last value is computed from, in order."""
    needed = {end}
    for node in reversed(nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    return (node for node in nodes if node in needed)


def _name(node: Node) -> str:
    """What a call is called, without what tells its overloads apart."""
    if node.op == "call_method":
        return str(node.target).removesuffix("_")
    schema = getattr(node.target, "_schema", None)
    name = (
        str(schema.name).partition("::")[2] if schema is not None else getattr(node.target, "__name__", "?")
    )
    return name.removeprefix("_").removesuffix("_")


def _parameters_of(node: Node, name: str) -> tuple[str, ...]:
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
