"""ONNX files to networks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from loom import nn
from loom._typing import ArrayLike
from loom.errors import FileError, LoomError, MissingExtraError, SerializationError
from loom.models.onnx.importing.attention import find_attention
from loom.models.onnx.importing.checking import network_of
from loom.models.onnx.importing.folding import Folded, fold
from loom.models.onnx.importing.graph import MOVEMENTS, Graph, Made
from loom.models.onnx.importing.operators import CONVERTERS
from loom.models.onnx.importing.patterns import find_activations, find_indices, find_norms, find_noted
from loom.models.onnx.importing.ports import network_of_pieces
from loom.models.onnx.importing.projections import find_gates
from loom.models.onnx.importing.reading import read_model, tensors_of
from loom.models.onnx.importing.recurrent import KINDS, find_recurrence
from loom.models.onnx.importing.structure import JOINS, Structure
from loom.network import Network

__all__ = ["load"]

STEERING = {"If", "Loop", "Scan", "SequenceMap"}
"""Operators with graphs of their own, run as often as values say."""
FLOATS = (0, 1, 10, 11, 16)
"""The types of outputs that are taken for floats, one that is not said among them."""
LARGEST = 2**28
"""Elements that a value of one sample has at most."""
DAMAGED = (ArithmeticError, AttributeError, LookupError, RuntimeError, StopIteration, TypeError, ValueError)
"""What reading raises where a model is not what its operators say; refusals are among it."""


def load(
    source: str | PathLike[str] | bytes,
    *,
    input_shape: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
    output: str | Sequence[str] | None = None,
    given: Mapping[str, ArrayLike] | None = None,
) -> Network:
    """Makes a network of an ONNX model.

    Constants are folded; what is left is taken for loom's layers, by operators and, for activations, norms,
    attention and gated layers, by what pieces of the graph compute. What all paths pass stands in a row;
    what lies between becomes Residual and Parallel. docs/onnx.md lists the operators. Needs the package
    onnx: `pip install 'loom-nn[onnx]'`.

    Args:
        source: The file, or its bytes.
        input_shape: One sample's extents, where the model leaves them open; rows come first and are not
            named. Of several inputs those by name.
        output: The output that the network computes, by name; where there are several, the last one of
            floats, if None, and all in a file that loom wrote. A list names several, and the network has
            them by these names.
        given: Values of inputs that the network shall not have, such as an attention mask: arrays with one
            row, by name.

    Returns:
        The network. Of a model with several inputs, `given` aside, it has them by their names, and all of
        the model's outputs of floats where `output` names none: cells are what lies between inputs, what
        joins them, and outputs.

    Raises:
        SerializationError: It is no ONNX model, or is damaged; or loom has no layers for some of it:
            all operators and nodes are named, and nothing is built.
        FileError: The file cannot be read.
        MissingExtraError: The package onnx is not installed.

    Examples:
        >>> net = loom.Sequential([nn.Dense(3, activation="tanh")], input_shape=2)
        >>> import tempfile
        >>> path = tempfile.mktemp(suffix=".onnx")
        >>> loom.save_onnx(net, path)
        >>> loom.models.onnx.load(path).layers[0].config.activation
        'tanh'
    """
    try:
        model, folder = _checked(source)
        tensors = tensors_of(model, folder)
        inputs = [value.name for value in model.graph.input if value.name not in tensors]
        fixed = dict(given or {})
        if set(fixed) - set(inputs) or not set(inputs) - set(fixed):
            raise SerializationError(
                f"the ONNX model has the inputs {', '.join(inputs)}; given names some of them, not all"
            )
        several = len(inputs) - len(fixed) > 1 or (output is None and _names_outputs(model))
        if not several and (output is None or isinstance(output, str)):
            shape_given = (
                next(iter(input_shape.values())) if isinstance(input_shape, Mapping) else input_shape
            )
            row, shape = _read(model, folder, shape_given, output, fixed)
            return network_of(_tied(row) or [Made(nn.Activation("linear"))], shape).build()
        return _several(model, folder, tensors, input_shape, output, fixed)
    except (FileError, MissingExtraError, SerializationError):
        raise
    except LoomError as error:
        raise SerializationError(f"loom has no layers for some of this ONNX model: {error}") from error
    except MemoryError as error:
        raise SerializationError("the ONNX model asks for more memory than there is") from error
    except RecursionError as error:
        raise SerializationError("the ONNX model is nested too deeply") from error
    except DAMAGED as error:
        raise SerializationError(f"the ONNX model is not what its operators say: {error}") from error


def _names_outputs(model: Any) -> bool:  # noqa: ANN401 - a ModelProto
    """Whether loom wrote a model of a network with several outputs, all of which it is to have again."""
    own = any(entry.key == "loom.version" for entry in model.metadata_props)
    return own and len(model.graph.output) > 1


def _tied(row: list[Made]) -> list[Made]:
    """Has products with an embedding's table share it."""
    for place, made in enumerate(row):
        if isinstance(made.layer, nn.Embedding):
            table, head = made.tensors["weight"], nn.TiedHead(made.layer.vocabulary, tied_to=(0, 0, 0, place))
            linear = nn.Dense(len(table), bias=False)
            return [
                Made(head) if each.layer == linear and np.array_equal(each.tensors["weight"], table) else each
                for each in row
            ]
    return row


def _checked(source: str | PathLike[str] | bytes) -> tuple[Any, Path | None]:
    """Reads a model, and refuses what decides while it runs."""
    model, folder = read_model(source)
    steering = [
        f'{node.op_type} "{node.name}": what is decided while a model runs is not read'
        for node in model.graph.node
        if node.op_type in STEERING
    ]
    if steering:
        raise _refused(steering)
    return model, folder


def _sample(entry: Any, input_shape: Sequence[int] | None) -> tuple[int, ...]:  # noqa: ANN401
    """Returns one sample's extents of an input, a ValueInfoProto."""
    extents = [extent.dim_value or None for extent in entry.type.tensor_type.shape.dim]
    shape = extents[1:] if input_shape is None else list(np.atleast_1d(np.asarray(input_shape)).tolist())
    if not extents or any(extent is None for extent in shape) or not shape:
        said = [extent.dim_param or extent.dim_value or "?" for extent in entry.type.tensor_type.shape.dim]
        raise SerializationError(
            f'the ONNX model leaves extents of its input "{entry.name}" open, {said}: say input_shape'
        )
    sample = tuple(int(extent or 0) for extent in shape)
    if min(sample) < 1 or math.prod(sample) > LARGEST:
        raise SerializationError(
            f'the ONNX model\'s input "{entry.name}" has no shape that loom can hold: {sample}'
        )
    return sample


def _several(
    model: Any,  # noqa: ANN401 - a ModelProto
    folder: Path | None,
    tensors: Mapping[str, Any],
    input_shape: Sequence[int] | Mapping[str, Sequence[int]] | None,
    output: str | Sequence[str] | None,
    given: Mapping[str, ArrayLike],
) -> Network:
    """Reads a model of several inputs or outputs."""
    free = [value for value in model.graph.input if value.name not in tensors and value.name not in given]
    said = input_shape if isinstance(input_shape, Mapping) else {}
    if input_shape is not None and not isinstance(input_shape, Mapping):
        if len(free) > 1:
            names = ", ".join(value.name for value in free)
            raise SerializationError(f"the ONNX model has several inputs, {names}: say input_shape by name")
        said = {free[0].name: input_shape}
    samples = {value.name: _sample(value, said.get(value.name)) for value in free}
    if output is None:
        kinds: dict[str, Any] = {value.name: value.type for value in model.graph.output}
        floats = [name for name, kind in kinds.items() if kind.tensor_type.elem_type in FLOATS]
        ends = floats or list(kinds)
    else:
        ends = [_end(model, name) for name in ([output] if isinstance(output, str) else output)]
    if not ends:
        raise SerializationError("output names none of the ONNX model's outputs")
    dims = free[0].type.tensor_type.shape.dim
    count = dims[0].dim_value or _rows(tensors, tuple(chain.from_iterable(samples.values())))
    fixed = {name: np.repeat(np.asarray(values)[:1], count, axis=0) for name, values in given.items()}
    shapes = {name: (count, *sample) for name, sample in samples.items()}
    folded = fold(model, {**tensors, **fixed}, shapes, folder)

    def read(piece: Any, source: str, value: str) -> list[Made]:  # noqa: ANN401 - a ModelProto
        within = {name: given[name] for name in given if any(each.name == name for each in piece.graph.input)}
        return _read(piece, folder, None, value, within)[0]

    return network_of_pieces(
        model,
        folded,
        count,
        samples,
        dict(zip(ends, ends, strict=True)),
        fixed=given,
        folder=folder,
        read=read,
    )


def _read(
    model: Any,  # noqa: ANN401 - a ModelProto
    folder: Path | None,
    input_shape: Sequence[int] | None,
    output: str | None,
    given: Mapping[str, ArrayLike],
) -> tuple[list[Made], tuple[int, ...]]:
    """Reads a model of one input and returns the layers that it is, and one sample's shape."""
    tensors = tensors_of(model, folder)
    (entry,) = (value for value in model.graph.input if value.name not in tensors and value.name not in given)
    extents = [extent.dim_value or None for extent in entry.type.tensor_type.shape.dim]
    sample = _sample(entry, input_shape)
    end = _end(model, output)

    def folded_for(count: int, like: Folded | None = None) -> Folded:
        fixed = {name: np.repeat(np.asarray(values)[:1], count, axis=0) for name, values in given.items()}
        return fold(model, {**tensors, **fixed}, {entry.name: (count, *sample)}, folder, like)

    def attempt(rows: int, one: int, like: Folded | None = None) -> list[Made]:
        folded = [folded_for(count, like) for count in (rows, one)]
        large = [
            f'{node.op_type} "{node.name}": its output has too many elements, {extents}'
            for node in folded[1].nodes
            for extents in (folded[1].shapes.get(name) for name in node.output)
            if math.prod(extents or ()) > LARGEST * one
        ]
        if large:
            raise _refused(large)
        pair = folded_for(2, like) if one == 1 else folded[1]
        ends, opsets = (entry.name, end), list(model.opset_import)
        graph = Graph(folded[0], folded[1], pair, rows, ends, opsets, shared=rows == one)
        if graph.output not in graph.producer and graph.output != entry.name:
            raise SerializationError(f'the ONNX model\'s output "{end}" does not depend on its input')
        return _layers(graph)

    try:
        like = None if extents[0] is None else folded_for(extents[0])
        return attempt(_rows(tensors, sample), 1, like), sample
    except DAMAGED:
        # A model for a fixed number of rows may have that number among its constants.
        if extents[0] is None:
            raise
        try:
            return attempt(extents[0], extents[0]), sample
        except DAMAGED:
            pass
        raise


def _rows(tensors: Mapping[str, Any], sample: tuple[int, ...]) -> int:
    """Returns a number of rows that divides no extent there is, so that it tells rows from all others."""
    seen = {*sample, math.prod(sample)}
    for values in tensors.values():
        seen.update(values.shape)
        if values.dtype.kind in "iu" and values.size <= 64:
            seen.update(abs(int(value)) for value in values.reshape(-1))
    return next(number for number in _primes() if not any(each and each % number == 0 for each in seen))


def _primes() -> Iterator[int]:
    number = 251
    while True:
        if all(number % divisor for divisor in range(3, math.isqrt(number) + 1, 2)):
            yield number
        number += 2


def _end(model: Any, output: str | None) -> str:  # noqa: ANN401 - a ModelProto
    names: dict[str, Any] = {value.name: value.type for value in model.graph.output}
    if output is not None and output not in names:
        raise SerializationError(f'the ONNX model has no output "{output}"; it has {", ".join(names)}')
    if output is not None:
        return output
    floats = [name for name, kind in names.items() if kind.tensor_type.elem_type in FLOATS]
    return floats[-1] if floats else list(names)[-1]


def _layers(graph: Graph) -> list[Made]:
    """Finds patterns, refuses what is not known, and takes the graph apart."""
    find_noted(graph)
    find_indices(graph)
    reasons = find_recurrence(graph)
    # Norms first: the squares of what a ReLU has made are an activation's values as well.
    find_norms(graph)
    find_activations(graph)
    reasons += find_attention(graph)
    find_gates(graph)
    known = MOVEMENTS | JOINS | set(CONVERTERS) | set(KINDS) | {""}
    unknown = [
        f'{node.op} "{node.name}": loom reads no such operator'
        for node in graph.nodes
        if node.op not in known
    ]
    if unknown or any(node.op in KINDS for node in graph.nodes):
        raise _refused(unknown + reasons)
    crossed = [node for node in graph.crossed if node in graph.nodes]
    if crossed:
        raise _refused([f'{node.op} "{node.name}": it takes rows apart' for node in crossed])
    if graph.rows_axis(graph.output) != 0 or graph.outer.get(graph.output, 1) != 1:
        raise _refused([f'output "{graph.output}": its rows are not on the first axis'])
    structure = Structure(graph)
    row = structure.row(graph.input, graph.output)
    if structure.problems:
        raise _refused(structure.problems + reasons)
    return row


def _refused(problems: Sequence[str]) -> SerializationError:
    listed = "\n  ".join(dict.fromkeys(problems))
    return SerializationError(f"loom has no layers for some of this ONNX model:\n  {listed}")
