"""Figures about layers, as the engine gathers them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import IO, Any

from loom.observers import LayerActivation

__all__ = ["GradientStats", "LayerGradient", "layer_activations", "layer_gradients"]


@dataclass(frozen=True)
class LayerGradient:
    """The gradient of one layer, over all its parameters.

    Args:
        cell: The layer's cell: depth, row, column.
        layer: Its place in the cell.
        kind: Its type, such as "dense".
        min: The smallest element.
        max: The largest element.
        mean: The mean of all elements.
        norm: The L2 norm of all elements.
        vanishing: Whether the norm is below 1e-7.
        exploding: Whether the norm is above 1e3, or not finite.
    """

    cell: tuple[int, int, int]
    layer: int
    kind: str
    min: float
    max: float
    mean: float
    norm: float
    vanishing: bool
    exploding: bool

    @property
    def path(self) -> str:
        """The layer's name in a state dict: "z.y.x.l"."""
        return ".".join(map(str, (*self.cell, self.layer)))


class GradientStats(list[LayerGradient]):
    """The gradients of a network's layers in figures: a list that prints itself as a table."""

    def print(self, file: IO[str] | None = None) -> None:
        """Writes a table with a row for each layer; vanishing and exploding gradients are marked.

        Args:
            file: Where to; standard output by default.
        """
        from rich.console import Console
        from rich.table import Table

        table = Table("layer", "kind")
        for name in ("min", "max", "mean", "norm"):
            table.add_column(name, justify="right")
        table.add_column("")
        for layer in self:
            figures = [f"{value:.4g}" for value in (layer.min, layer.max, layer.mean, layer.norm)]
            mark = "[red]exploding" if layer.exploding else "[yellow]vanishing" if layer.vanishing else ""
            table.add_row(layer.path, layer.kind, *figures, mark)
        Console(file=file).print(table)


def layer_gradients(figures: Iterable[Mapping[str, Any]]) -> GradientStats:
    """Names what the engine found about gradients."""
    return GradientStats(LayerGradient(**_placed(layer)) for layer in figures)


def layer_activations(forward: int, figures: Iterable[Mapping[str, Any]]) -> list[LayerActivation]:
    """Names what the engine found about one forward pass."""
    return [
        LayerActivation(
            forward=forward,
            shape=(layer.pop("rows"), *layer.pop("shape")),
            nonfinite=layer.pop("non_finite"),
            **layer,
        )
        for layer in map(_placed, figures)
    ]


def _placed(layer: Mapping[str, Any]) -> dict[str, Any]:
    depth, row, column, place = layer["at"]
    figures = {name: value for name, value in layer.items() if name != "at"}
    return {"cell": (depth, row, column), "layer": place, **figures}
