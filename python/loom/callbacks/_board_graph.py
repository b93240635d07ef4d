"""A network as the graph that TensorBoard draws."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

from loom.extras import require
from loom.reports.blueprint import Blueprint, LayerBlueprint

__all__ = ["Node", "nodes", "written"]


class Node(NamedTuple):
    """What stands in the graph.

    Args:
        name: Where: scopes, parted by "/", that TensorBoard folds; a cell is one, and a layer that holds
            layers.
        kind: What it is, such as "dense".
        sources: The names of the nodes whose outputs it reads.
        shape: One sample's output.
        parameters: How many numbers it has learned.
    """

    name: str
    kind: str
    sources: tuple[str, ...]
    shape: tuple[int, ...]
    parameters: int = 0


def nodes(
    plan: Blueprint,
    entries: Sequence[tuple[str, tuple[int, ...], tuple[int, ...]]] = (),
    leaving: Sequence[tuple[str, tuple[int, ...]]] = (),
) -> list[Node]:
    """Returns the nodes of a network, each after those that it reads.

    Args:
        plan: What it is made of.
        entries: The names of inputs with their shapes and the cells that they enter, where inputs have names.
        leaving: The names of outputs with their cells, where outputs have names.
    """
    entries = entries or [("input", plan.input_shape, (0, 0, 0))]
    made = [Node(name, "input", (), shape) for name, shape, _ in entries]
    cells: dict[tuple[int, ...], list[LayerBlueprint]] = {}
    for layer in plan.layers:
        cells.setdefault(tuple(layer.place[:3]), []).append(layer)
    # Whose output every cell hands on: its last layer's, or of one without layers what came in.
    ends: dict[tuple[int, ...], str] = {}
    flowing = ""
    for at in product(*map(range, plan.grid)):
        sources = [name for name, _, cell in entries if cell == at] or [flowing]
        sources += [ends[tuple(link.source)] for link in plan.links if tuple(link.target) == at]
        for layer in cells.get(at, ()):
            scope = "_".join(map(str, at))
            sources = [_layer(layer, f"{scope}/{layer.place[3]}_{layer.kind}", sources, made)]
        ends[at] = flowing = sources[0]
    shapes = {node.name: node.shape for node in made}
    for name, at in leaving or [("output", max(ends))]:
        # An input may have the same name.
        made.append(Node(f"output/{name}" if leaving else name, "output", (ends[at],), shapes[ends[at]]))
    return made


def _layer(layer: LayerBlueprint, name: str, sources: Sequence[str], made: list[Node]) -> str:
    """Adds a layer and those in it; returns the name of the node that has its output."""
    ends = list(sources)
    if layer.layers:
        branches: dict[str, list[LayerBlueprint]] = {}
        for inner in layer.layers:
            branches.setdefault(inner.path.rpartition(".")[0], []).append(inner)
        # A residual adds what it reads to what its layers make.
        ends = list(sources) if layer.kind == "residual" else []
        for path, row in branches.items():
            within = path.removeprefix(layer.path).strip(".").replace(".", "_")
            reads = list(sources)
            for place, inner in enumerate(row):
                reads = [_layer(inner, f"{name}/{within}/{place}_{inner.kind}", reads, made)]
            ends += reads
        name = f"{name}/{layer.combine or 'output'}"
    own = sum(parameter.size for parameter in layer.parameters)
    made.append(Node(name, layer.kind, tuple(dict.fromkeys(ends)), layer.output_shape, own))
    return name


def written(found: Sequence[Node]) -> Any:  # noqa: ANN401 - tensorboardX has no types
    """Returns the event that holds a graph.

    Args:
        found: Its nodes.

    Raises:
        MissingExtraError: tensorboardX is not installed.
    """

    def part(module: str) -> Any:  # noqa: ANN401
        return require(f"tensorboardX.proto.{module}", extra="tensorboard", purpose="loom.TensorBoard")

    values, shapes = part("attr_value_pb2").AttrValue, part("tensor_shape_pb2").TensorShapeProto
    graph = part("graph_pb2").GraphDef(versions=part("versions_pb2").VersionDef(producer=22))
    for node in found:
        entry = graph.node.add(name=node.name, op=node.kind, input=node.sources)
        # The batch may be any.
        extents = [shapes.Dim(size=extent) for extent in (-1, *node.shape)]
        entry.attr["_output_shapes"].CopyFrom(values(list=values.ListValue(shape=[shapes(dim=extents)])))
        entry.attr["parameters"].CopyFrom(values(i=node.parameters))
    return part("event_pb2").Event(graph_def=graph.SerializeToString())
