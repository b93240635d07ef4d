"""Graphs of PyTorch as layers, in the form that `loom.import_model` reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from loom.models import movements
from loom.models.branches import Branches, Join, Row
from loom.models.torch.arrays import array, fixed
from loom.models.torch.functions import JOINS, row_of_call
from loom.models.torch.modules import Unsupported, attention, encoder, encoder_layer, row_of
from loom.models.torch.nodes import holds_tensors, name_of, needed_nodes, parameters_of, values_of
from loom.models.torch.settling import settled

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

__all__ = ["GraphReading"]

_SAME = {"swapaxes": "transpose", "swapdims": "transpose"}
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


class _Recurrence(NamedTuple):
    """A part of what a recurrent module returns.

    Args:
        node: The call of the module.
        part: "all", "outputs", "states", "hidden", or "hidden n" for the last n of all.
    """

    node: Node
    part: str


class GraphReading:
    """A graph as layers."""

    def __init__(self, graph: GraphModule, example: Any) -> None:  # noqa: ANN401
        self.graph = graph
        self.refused: dict[str, list[str]] = {}
        self.values = values_of(graph, example)
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
                or not holds_tensors(self.values.get(node))
                or all(self.constant[other] for other in node.all_input_nodes)
            )
        branches = Branches(start)
        for node in needed_nodes(end, nodes):
            if node is not start and not self.constant[node]:
                inputs = self._taken(node)
                branches.add(node, inputs, self.joins.get(node) or self.rows.get(node, []))
        return [] if self.failures else settled(branches.row(end))

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
            why = f"{name_of(node)} without its {error}" if isinstance(error, KeyError) else str(error)
            self.refused.setdefault(why, []).append(node.name)
            return [other for other in node.all_input_nodes if not self.constant[other]][:1]

    def _step(self, node: Node) -> list[Node]:
        """Notes the layers of a node, and returns the values that they read."""
        reads = [other for other in node.all_input_nodes if not self.constant[other]]
        if node.op == "call_module":
            part = self.graph.get_submodule(str(node.target))
            self.rows[node] = self._module(node, part, reads)
            return reads[:1]
        name = name_of(node)
        if name in ("getitem", "select") and (source := self._recurrent_part(node)) is not None:
            return [source]
        if name in JOINS and (source := self._hidden_states(node)) is not None:
            return [source]
        if any(
            self.recurrences[other].part.startswith("hidden ") for other in reads if other in self.recurrences
        ):
            raise Unsupported(f"{name} of the state of one direction alone")
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
        given: Mapping[str, Any] = self._arguments(node, name)
        if name == "getattr" and node.args[1] == "mT":
            name, given = "transpose", {"dim0": -2, "dim1": -1}
        row = row_of_call(_SAME.get(name, name), given, self._shape(reads[0]), self._shape(node))
        self.rows[node] = self._whole(row, reads[0])
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
        return self._whole(row_of(part, self._shape(reads[0]), self._shape(node)), reads[0])

    def _whole(self, row: Row, read: Node) -> Row:
        """Layers with the settings that the numbers' type says."""
        for layer in row:
            if layer["type"] == "rms_norm" and layer["epsilon"] is None:
                import torch

                layer["epsilon"] = float(torch.finfo(self.values[read].dtype).eps)
        return row

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
        assert parts[1] is not None
        if parts[0].node is not parts[1].node or self._arguments(node, name_of(node)).get("dim", 0) not in (
            1,
            -1,
        ):
            return None
        self.rows[node] = [{"~": "last"}]
        return parts[0].node

    def _join(self, node: Node, combine: str) -> list[Node] | None:
        arguments = self._arguments(node, name_of(node))
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
        if self._arguments(node, name_of(node)).get("alpha", 1) != 1 or len(operands) < 2:
            raise Unsupported(f"{name_of(node)} with alpha")
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
            raise Unsupported(f"{name_of(node)} of values of shapes {' and '.join(map(str, shapes))}")
        return operands

    def _with_constant(self, operands: Sequence[Any], symbol: str, after: tuple[int, ...]) -> Row:
        """A constant beside a value: a number, or an array that broadcasts to it."""
        first = self._moves(operands[0])
        (source,) = (value for value in operands if self._moves(value))
        trained = self._trained(operands[1 if first else 0])
        values, before = self._plain(operands[1 if first else 0]), self._shape(source)
        held = np.asarray(values if isinstance(values, int | float) else array(values), np.float64)
        if held.size == 1 and symbol == "*" and not trained:
            factor = float(held.reshape(()))
            return [] if factor == 1 else [{"type": "scale", "factor": factor}]
        if held.size == 1 and not trained:
            number = float(held.reshape(()))
            text = f"x {symbol} {number!r}" if first else f"{number!r} {symbol} x"
            return [] if first and (symbol, number) in NOTHING else [{"type": "expr", "expression": text}]
        shape = held.shape[1:] if held.ndim == len(before) and held.shape[0] == 1 else held.shape
        if after != before or len(shape) >= len(before):
            raise Unsupported(f"values of shape {before} {symbol} a constant of shape {held.shape}")
        if symbol == "+" and shape == before[1:] and len(shape) == 2:
            held = held.reshape(shape)
            return [{"type": "positional_embedding", "weight": held if trained else fixed(held)}]
        while shape and shape[0] == 1:
            shape = shape[1:]
        text = f"x {symbol} a" if first else f"a {symbol} x"
        held = held.reshape(shape or (1,))
        parameter = {"name": "a", "shape": list(shape)}
        a = held if trained else fixed(held)
        return [{"type": "expr", "expression": text, "parameters": [parameter], "a": a}]

    def _trained(self, value: object) -> bool:
        """Whether a constant is made of parameters that are trained."""
        import torch

        if not isinstance(value, torch.fx.Node):
            return False
        if value.op != "get_attr":
            return any(self._trained(other) for other in value.all_input_nodes)
        held = self.values[value]
        return isinstance(held, torch.nn.Parameter) and held.requires_grad

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
            raise Unsupported(f"{name_of(node)}, which makes several values,")
        places = moved.reshape(moved.shape[0], -1).numpy() if moved.dim() else None
        if places is None or len(places) != rows:
            raise Unsupported(f"{name_of(node)}, which takes the batch apart,")
        if (places - own * np.arange(rows)[:, None] != places[0]).any():
            raise Unsupported(f"{name_of(node)}, which mixes rows of the batch,")
        made = movements.moved(tuple(value.shape[1:]), tuple(moved.shape[1:]), places[0].astype(np.int64))
        if made is None:
            raise Unsupported(f"{name_of(node)} of {tuple(value.shape)}, which no layers make,")
        # What picks elements is not trained.
        return [
            {**step.layer.to_config(), **{name: fixed(held) for name, held in step.tensors.items()}}
            for step in made
        ]

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
            raise Unsupported(f"{name_of(node)}, which makes several values,")
        return tuple(value.shape)

    def _arguments(self, node: Node, name: str) -> dict[str, Any]:
        """The constant arguments of a call by their names."""
        names = parameters_of(node, name)
        if name == "permute" and node.op == "call_method" and isinstance(node.args[1], int):
            return {"dims": node.args[1:]}
        given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
        return {key: self._plain(value) for key, value in given.items() if not self._moves(value)}
