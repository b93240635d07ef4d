"""What a network is made of, layer by layer: shapes, parameters, bytes, multiply-adds."""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from loom.reports.base import Report, TabularReport

__all__ = ["Blueprint", "LayerBlueprint", "LinkBlueprint", "ParameterBlueprint"]


@dataclass(frozen=True, eq=False)
class ParameterBlueprint(Report):
    """One parameter.

    Args:
        name: Its name in its layer; with the layer's path that of a state dict.
        shape: Its extents.
        dtype: The numeric type that the forward pass reads it in.
        bytes: Bytes of that form: of codes and scales where it is packed.
        master_bytes: Bytes of the full-precision master; 0 where it was dropped.
        trainable: Whether an optimizer may move it.
        typed: Whether its type is its layer's own or was chosen for it, and not what stays in full
            precision whatever the layer is morphed to.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    master_bytes: int
    trainable: bool
    typed: bool = True

    @property
    def size(self) -> int:
        """How many numbers it has."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


@dataclass(frozen=True, eq=False)
class LinkBlueprint(Report):
    """A cell's output handed to another cell.

    Args:
        source: The cell whose output is handed over: depth, row, column.
        target: The cell that gets it.
        combine: "add", "multiply", "concat", "context" or "replace".
        axis: The axis that a concat names; None for the usual one.
        shape: What is handed over: one sample's extents.
    """

    source: tuple[int, ...]
    target: tuple[int, ...]
    combine: str
    axis: int | None
    shape: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class LayerBlueprint(Report):
    """One layer, with the layers inside it.

    Args:
        place: Depth, row, column, and the place in the cell; of a layer inside another that one's.
        path: "z.y.x.l", and for layers inside others how they are reached from there, such as
            "0.0.1.0.branches.1.0": what the names of its parameters begin with in a state dict.
        kind: Its type, such as "dense".
        activation: Its activation's name, where it has one.
        input_shape: One sample's extents as they come in.
        output_shape: One sample's extents as they go out.
        parameters: Its own parameters; those of layers inside stand there.
        parameter_count: How many numbers its parameters have, with those of layers inside.
        trainable_count: How many of them an optimizer may move.
        bytes: The bytes that the forward pass reads of them.
        master_bytes: The bytes of their masters.
        multiply_adds: Multiplications with additions for one sample, with those of layers inside;
            see `Network.blueprint`.
        combine: How a Parallel puts its branches together; "add" for a Residual; otherwise None.
        branches: How many branches it has, a Residual's skip among them; 0 for other layers.
        layers: The layers inside it.
        links: Of the first layer of a cell the links that arrive there, of the last one those
            that leave it.
    """

    place: tuple[int, ...]
    path: str
    kind: str
    activation: str | None
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    parameters: tuple[ParameterBlueprint, ...]
    parameter_count: int
    trainable_count: int
    bytes: int
    master_bytes: int
    multiply_adds: int
    combine: str | None
    branches: int
    layers: tuple[LayerBlueprint, ...]
    links: tuple[LinkBlueprint, ...]

    @property
    def dtype(self) -> str:
        """The numeric types of its weights and those of layers inside; "-" where there are none.

        Biases, gains, positions and centroids, which stay in full precision unless they are morphed by
        name, count where they were, and where there is nothing else.
        """
        held = [entry for layer, _ in self.walk() for entry in layer.parameters]
        found = dict.fromkeys(entry.dtype for entry in [entry for entry in held if entry.typed] or held)
        return ", ".join(found) or "-"

    def walk(self, depth: int | None = None) -> Iterator[tuple[LayerBlueprint, int]]:
        """Yields the layer and those inside it, each with how deep it is: 1 for the layer itself.

        Args:
            depth: How deep to go; to the end where None.
        """
        yield self, 1
        if depth is None or depth > 1:
            for layer in self.layers:
                for found, level in layer.walk(None if depth is None else depth - 1):
                    yield found, level + 1


@dataclass(frozen=True, eq=False)
class Blueprint(TabularReport):
    """What a network is made of; `Network.blueprint` makes it.

    Args:
        id: The SHA-256 of the architecture, in hexadecimal digits: of the JSON text, with sorted
            keys and no spaces, of `input_shape`, `grid`, `cells` and `links` of `net.to_json()`.
            Weights, seed, precision, numeric types and what is frozen do not count.
        input_shape: One sample's extents as they come in.
        output_shape: One sample's extents as they go out.
        grid: Depth, rows and columns.
        precision: "float32", "float64" or "mixed".
        parameter_count: How many numbers the parameters have.
        trainable_count: How many of them an optimizer may move.
        bytes: The bytes that the forward pass reads of them: `net.weight_bytes`.
        master_bytes: The bytes of the full-precision masters that are kept.
        multiply_adds: Multiplications with additions for one sample.
        layers: The layers of the cells, in the order data flows.
        links: The links between cells.
    """

    id: str
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    grid: tuple[int, ...]
    precision: str
    parameter_count: int
    trainable_count: int
    bytes: int
    master_bytes: int
    multiply_adds: int
    layers: tuple[LayerBlueprint, ...]
    links: tuple[LinkBlueprint, ...]

    def walk(self, depth: int | None = None) -> Iterator[tuple[LayerBlueprint, int]]:
        """Yields every layer with how deep it is: 1 in a cell, 2 in a layer of a cell, and so on.

        Args:
            depth: How deep to go; to the end where None.
        """
        for layer in self.layers:
            yield from layer.walk(depth)

    def columns(self) -> dict[str, Any]:
        """Returns a row for every layer, those inside others after them; counts of these are in theirs."""
        rows = list(self.walk())
        names = ("path", "kind", "activation", "dtype", "parameter_count", "trainable_count", "bytes")
        table: dict[str, Any] = {name: [getattr(layer, name) for layer, _ in rows] for name in names}
        for name in ("master_bytes", "multiply_adds", "combine", "branches"):
            table[name] = [getattr(layer, name) for layer, _ in rows]
        for name in ("input_shape", "output_shape"):
            table[name] = [str(getattr(layer, name)) for layer, _ in rows]
        return {"depth": [level for _, level in rows], **table}

    def text(self, depth: int | None = None, flops: bool = True) -> str:
        """Returns a table of the layers, and the links and totals below it.

        Args:
            depth: How deep to go into layers that hold layers; to the end where None.
            flops: Whether there is a column of multiply-adds.
        """
        table = [self._header(flops), *self._rows(depth, flops)]
        widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
        right = {3, 5, 6}
        lines = [
            "  ".join(
                cell.rjust(width) if column in right else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in table
        ]
        links = [_link_text(link) for link in self.links]
        rule = "-" * max(map(len, [*lines, *links]))
        parts = [lines[0], rule, *lines[1:], *([rule, *links] if links else []), rule]
        return "\n".join([*parts, self._totals(flops)])

    def _header(self, flops: bool) -> list[str]:
        names = ["cell", "layer", "output shape", "parameters", "type", "bytes"]
        return [*names, "multiply-adds"] if flops else names

    def _rows(self, depth: int | None, flops: bool) -> list[list[str]]:
        rows = []
        for layer, level in self.walk(depth):
            within = layer.path.split(".", 4)[3:]
            name = ("  " * (level - 1)) + f"{within[0] if level == 1 else within[1]} {layer.kind}"
            kept = layer.parameter_count - layer.trainable_count
            some = "" if kept == layer.parameter_count else f"{kept:,} "
            row = [
                str(layer.place[:3]),
                name,
                str(layer.output_shape),
                f"{layer.parameter_count:,}" + (f" ({some}frozen)" if kept else ""),
                layer.dtype,
                f"{layer.bytes:,}",
            ]
            rows.append([*row, f"{layer.multiply_adds:,}"] if flops else row)
        return rows

    def _totals(self, flops: bool) -> str:
        counted = (
            f"{self.parameter_count:,} parameters, {self.trainable_count:,} trainable, "
            f"{self.bytes:,} bytes of weights"
        )
        return counted + (f", {self.multiply_adds:,} multiply-adds a sample" if flops else "")

    def __str__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        """Returns the table as HTML, for notebooks."""

        def row(cells: list[str], tag: str) -> str:
            made = "".join(
                f'<{tag} style="text-align:{"right" if column in (3, 5, 6) else "left"};white-space:pre">'
                f"{html.escape(cell)}</{tag}>"
                for column, cell in enumerate(cells)
            )
            return f"<tr>{made}</tr>"

        body = "".join(row(cells, "td") for cells in self._rows(None, flops=True))
        links = "".join(f"<div>{html.escape(_link_text(link))}</div>" for link in self.links)
        head = f"{self.precision} network {self.id[:12]}, grid {self.grid}, input {self.input_shape}"
        return (
            f"<div><div>{html.escape(head)}</div><table><thead>{row(self._header(True), 'th')}</thead>"
            f"<tbody>{body}</tbody></table>{links}<div>{html.escape(self._totals(True))}</div></div>"
        )


def _link_text(link: LinkBlueprint) -> str:
    axis = "" if link.axis is None else f", axis {link.axis}"
    return f"link {link.source} -> {link.target}  {link.combine}{axis}  {link.shape}"
