"""Networks to ONNX files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, cast

from loom._native import __version__
from loom._settings.checks import file_path, flag, whole
from loom._settings.suggestions import shown
from loom.architecture import InputConfig, OutputConfig
from loom.engine import engine_of
from loom.errors import ConfigError, FileError, InvalidValueError
from loom.extras import require
from loom.grid import coordinates
from loom.models.onnx.exporting import expressions, layers, sequences, softmaxes
from loom.models.onnx.exporting.graph import Graph
from loom.models.onnx.exporting.scope import EXPORTERS, Context, Scope, Unsayable
from loom.models.onnx.hints import HINT, HINTED, HOLDING
from loom.network import Network
from loom.network.layers import LayerHandle

__all__ = ["onnx_model", "save_onnx"]

# What enters its functions in EXPORTERS.
WRITERS = (expressions, layers, sequences, softmaxes)
LARGEST = 2**31 - 2**20
"""Bytes of tensors that a file of one piece may have, with room for the rest."""


def save_onnx(
    net: Network,
    path: str | PathLike[str],
    opset: int = 17,
    *,
    external_data: bool | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Writes a network as an ONNX file, which ONNX Runtime and others run.

    The file computes in float32 what `net.predict` does, for any number of rows: its input is "input",
    (batch, *input_shape), int64 where the network reads whole numbers; its output is "output". Tensors
    have the names of loom's parameters; those of recurrent layers stand in ONNX's order of gates. What is
    packed as int8 by rows goes out as its codes and scales, with DequantizeLinear; what is packed otherwise,
    or has an adapter in use beside it, as the float32 values that it stands for, the adapter's part
    included. Activations that `net.morph(..., activations="int8")` has rounded stay in float32, so that
    outputs differ by what that rounding does. Needs the package onnx: `pip install 'loom-nn[onnx]'`.

    Args:
        net: The network.
        path: The file; an older one is replaced.
        opset: The version of ONNX's operators, 17 or later.
        external_data: Whether tensors stand in a second file beside it, named as it with ".data" behind;
            None where they are too large for one, from 2 GB on.
        metadata: Texts by name, stored in the file beside loom's version.

    Raises:
        InvalidValueError: ONNX cannot say some of the layers; all of them are named with the reason, and
            nothing is written. Or an input and an output have the same name.
        ConfigError: The opset is older than 17, or newer than the package onnx knows.
        MissingExtraError: The package onnx is not installed.
        FileError: The file cannot be written.

    Examples:
        >>> net = loom.Sequential([nn.Dense(8, activation="relu"), nn.Dense(2)], input_shape=4)
        >>> import tempfile
        >>> path = tempfile.mktemp(suffix=".onnx")
        >>> loom.save_onnx(net, path)
        >>> loom.models.onnx.load(path).predict(np.ones((5, 4))).shape
        (5, 2)
    """
    model = onnx_model(net, opset, metadata=metadata)
    onnx = require("onnx", extra="onnx", purpose="saving a network as ONNX")
    target = file_path("save_onnx", path)
    size = sum(len(tensor.raw_data) for tensor in model.graph.initializer)
    outside = size > LARGEST if external_data is None else flag("save_onnx", "external_data", external_data)
    try:
        if not outside:
            onnx.checker.check_model(model, full_check=True)
            target.write_bytes(model.SerializeToString())
            return
        data = target.with_name(f"{target.name}.data")
        data.unlink(missing_ok=True)
        onnx.save_model(model, target, save_as_external_data=True, location=data.name, size_threshold=1024)
        onnx.checker.check_model(str(target))
    except OSError as error:
        raise FileError(error.errno, f"the network could not be written to {target}: {error}") from error


def onnx_model(net: Network, opset: int = 17, *, metadata: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401
    """Returns a network as the ModelProto that `save_onnx` writes; see there."""
    onnx = require("onnx", extra="onnx", purpose="saving a network as ONNX")
    opset = whole("save_onnx", "opset", opset, least=17)
    if opset > onnx.defs.onnx_opset_version():
        raise ConfigError(
            f"save_onnx: opset must be at most {onnx.defs.onnx_opset_version()}, which the installed onnx "
            f"{onnx.__version__} knows, got {opset}"
        )
    engine_of(net).check_fixed("save_onnx")
    net.build()
    inputs, outputs = _inputs(net), _outputs(net)
    twice = next((entry.name for entry in inputs if entry.name in outputs), None)
    if twice is not None:
        raise InvalidValueError(
            f'the network cannot be said in ONNX: an input and an output are both called "{twice}", and a '
            "name is of one value there; give one of them another, in net.output(name, cell) or in "
            "inputs={name: shape}"
        )
    graph = Graph(opset, {entry.name for entry in inputs} | {*outputs})
    written = _write(net, graph, inputs)
    for name, (cell, _) in outputs.items():
        graph.add("Identity", written[cell], name=name)
    helper, proto = onnx.helper, onnx.TensorProto
    described = helper.make_graph(
        graph.nodes,
        "loom",
        [
            helper.make_tensor_value_info(
                entry.name, proto.INT64 if entry.whole else proto.FLOAT, ["batch", *entry.shape]
            )
            for entry in inputs
        ],
        [
            helper.make_tensor_value_info(name, proto.FLOAT, ["batch", *shape])
            for name, (_, shape) in outputs.items()
        ],
        [onnx.numpy_helper.from_array(values, name) for name, values in graph.tensors.items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(
        described,
        producer_name="loom",
        producer_version=__version__,
        opset_imports=opsets,
        ir_version=max(8, helper.find_min_ir_version_for(opsets)),
    )
    if metadata is not None and not isinstance(metadata, Mapping):
        raise ConfigError(f"save_onnx: metadata must be texts by name, got {shown(metadata)}")
    wrong = next(
        (each for each in (metadata or {}).items() if not all(isinstance(part, str) for part in each)), None
    )
    if wrong is not None:
        raise ConfigError(
            f"save_onnx: metadata must be texts by name, got {shown(wrong[0])}: {shown(wrong[1])}"
        )
    helper.set_model_props(model, {**(metadata or {}), "loom.version": __version__})
    return model


@dataclass(frozen=True)
class _Input:
    """What enters a cell under a name, and whether it is whole numbers."""

    name: str
    shape: tuple[int, ...]
    cell: tuple[int, ...]
    whole: bool


def _inputs(net: Network) -> list[_Input]:
    """Returns what the network reads, in order."""
    native, named = engine_of(net).native, cast("tuple[InputConfig, ...]", net.config.inputs)
    first = (0, 0, 0)
    if not named:
        return [_Input("input", tuple(net.input_shape), first, native.index_limit() is not None)]
    return [
        _Input(
            entry.name, cast("tuple[int, ...]", entry.shape), tuple(entry.cell or first), limit is not None
        )
        for entry, limit in zip(named, native.index_limits(), strict=True)
    ]


def _outputs(net: Network) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Returns the cell of every output, and one row's extents."""
    named = cast("tuple[OutputConfig, ...]", net.config.outputs)
    if not named:
        return {"output": (net.cells[-1].at, tuple(net.output_shape))}
    shapes = map(tuple, engine_of(net).native.named_output_shapes())
    return {entry.name: (tuple(entry.cell), shape) for entry, shape in zip(named, shapes, strict=True)}


def _concat(graph: Graph, values: Sequence[str], shape: tuple[int, ...], axis: int | None = None) -> str:
    """Puts values side by side, along the channels of images and else the last axis."""
    usual = 0 if len(shape) >= 3 else len(shape) - 1
    return graph.add("Concat", *values, axis=1 + (usual if axis is None else axis))


def _write(net: Network, graph: Graph, inputs: Sequence[_Input]) -> dict[tuple[int, ...], str]:
    """Writes every cell; InvalidValueError, with all reasons, where ONNX cannot say something."""
    handles: dict[tuple[int, ...], LayerHandle] = {handle.at: handle for handle in net.layers}
    reasons: list[str] = []

    def row(scope: Scope, chain: Sequence[LayerHandle], x: str) -> str:
        for handle in chain:
            kind = handle.kind
            try:
                if kind not in EXPORTERS:
                    raise Unsayable("ONNX has nothing like it")
                x = EXPORTERS[kind](scope.at(handle), x)
                if kind in HINTED | HOLDING and graph.nodes[-1].output[0] == x:
                    note = {"layer": handle.config.to_config(), "path": handle.path}
                    graph.nodes[-1].doc_string = HINT + json.dumps(note)
            except Unsayable as reason:
                reasons.append(f"layer {handle.path} ({kind}): {reason}")
        return x

    order = {at: place for place, at in enumerate(coordinates(net.grid))}
    made: dict[tuple[int, ...], str] = {}
    x = inputs[0].name
    rows = graph.rows_of(x) if _needs_rows(net) else ""
    graph.batch = rows
    links: Any = net.config.links
    for cell in net.cells:
        context = None
        entering = [entry for entry in inputs if entry.cell == tuple(cell.at)]
        if entering:
            names = [entry.name for entry in entering]
            x = names[0] if len(names) == 1 else _concat(graph, names, entering[0].shape)
        for link in links:
            source, target = tuple(link.source), tuple(link.target)
            if target != cell.at:
                continue
            if order[source] >= order[target]:
                reasons.append(
                    f"link {source} to {target}: it points back, which a graph without loops cannot"
                )
                continue
            shape = net[source].output_shape
            if link.combine == "context":
                context = Context(made[source], shape)
            elif link.combine == "replace":
                x = made[source]
            elif link.combine == "add":
                x = graph.add("Add", x, made[source])
            elif link.combine == "multiply":
                x = graph.add("Mul", x, made[source])
            else:
                x = _concat(graph, [x, made[source]], shape, link.axis)
        for handle in cell:
            x = row(Scope(graph, handle, handles, row, context), [handle], x)
        made[cell.at] = x
    if reasons:
        raise InvalidValueError("the network cannot be said in ONNX:\n  " + "\n  ".join(reasons))
    return made


def _needs_rows(net: Network) -> bool:
    """Whether something is repeated for every row, so that their number is asked once, at the input."""
    every = [
        each for handle in net.layers for each in (handle, *(handle.inner if handle.holds_layers else ()))
    ]
    settings: list[Any] = [each.config for each in every]
    return any(
        getattr(layer, "initial_state", None) == "learned" or getattr(layer, "combine", "") == "grid_scatter"
        for layer in settings
    )
