"""A network's grid: its cells with their layers, what flows between them, and the links."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loom._figures import empty_figure, finished
from loom._palette import COLORS, FAINT, INK, PANEL, PAPER, SOFT
from loom.errors import ConfigError
from loom.extras import require
from loom.reports.blueprint import Blueprint, LayerBlueprint

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from loom.network import Network

__all__ = ["network"]

_WIDTH, _GAP, _LINE = 2.1, 0.75, 0.2
_COLOURS = {
    "add": COLORS[2],
    "concat": COLORS[1],
    "context": COLORS[3],
    "replace": COLORS[4],
    "multiply": COLORS[5],
}
_MOST_LINES = 8


def network(net: Network | Blueprint, path: str | Path | None = None) -> Figure:
    """Draws the grid: a panel for each depth, in it a box for each cell with its layers and their shapes.

    Grey arrows are the way that data takes; coloured ones are links, by how they combine. Under a
    cell stands the shape that it hands on. Layers inside others are indented.

    Args:
        net: The network, which is built where it was not, or its blueprint.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ConfigError: It is no network.
        ShapeError: Its layers do not fit together.
        FileError: The picture cannot be written.
    """
    plan = net if isinstance(net, Blueprint) else _blueprint(net)
    depth, rows, columns = plan.grid
    cells: dict[tuple[int, ...], list[LayerBlueprint]] = {}
    for layer in plan.layers:
        cells.setdefault(layer.place[:3], []).append(layer)
    lines = {at: _lines(layers) for at, layers in cells.items()}
    # Each row is as high as its fullest cell.
    heights = {
        (z, y): _LINE * (1.8 + max(max(len(lines.get((z, y, x), ())), 1) for x in range(columns)))
        for z in range(depth)
        for y in range(rows)
    }
    left, width = 0.9, columns * _WIDTH + (columns - 1) * _GAP
    boxes: dict[tuple[int, ...], tuple[float, float, float]] = {}
    top = 0.0
    panels = []
    for z in range(depth):
        start = top
        top += 0.35
        for y in range(rows):
            for x in range(columns):
                boxes[z, y, x] = (left + x * (_WIDTH + _GAP), top, heights[z, y])
            top += heights[z, y] + (0.55 if y < rows - 1 else 0.35)
        panels.append((z, start, top))
        top += 0.45
    figure = empty_figure(width=width + left + 1.3, height=max(top + 1.05, 2.0))
    axes = figure.add_subplot()
    axes.set_xlim(0.0, width + left + 0.9)
    axes.set_ylim(top + 0.6, -0.35)
    axes.set_aspect("equal")
    axes.axis("off")
    patches = require("matplotlib.patches", extra="plot", purpose="loom.plot")
    for z, start, end in panels:
        panel = patches.Rectangle(
            (left - 0.35, start), width + 0.7, end - start, facecolor=PANEL, edgecolor="none", zorder=0
        )
        axes.add_patch(panel)
        if depth > 1:
            axes.text(left - 0.27, start + 0.17, f"depth {z}", fontsize=7, color=SOFT, va="center")
    _flow(axes, patches, plan, boxes)
    for at, box in boxes.items():
        _cell(axes, patches, at, box, lines.get(at, []), cells.get(at, []))
    for number, link in enumerate(plan.links):
        _link(axes, patches, boxes, link, number)
    counted = f"{plan.parameter_count:,} parameters, {plan.bytes:,} bytes"
    # A single column leaves no room for all on a line.
    counted += ", " if columns > 1 else "\n"
    counted += f"{plan.multiply_adds:,} multiply-adds a sample"
    axes.text(left - 0.35, top + 0.02, counted, fontsize=7.5, color=INK, va="center")
    _legend(axes, {link.combine for link in plan.links})
    return finished(figure, path)


def _blueprint(net: Any) -> Blueprint:  # noqa: ANN401
    if not hasattr(net, "blueprint"):
        raise ConfigError(f"network draws a loom.Network or its blueprint, got {net!r}")
    made: Blueprint = net.blueprint()
    return made


def _lines(layers: list[LayerBlueprint]) -> list[str]:
    """Returns what stands in a cell: a line for each layer, with those inside where there is room."""
    every = [(found, level) for layer in layers for found, level in layer.walk()]
    if len(every) > _MOST_LINES:
        every = [(layer, 1) for layer in layers]
    shown = [f"{'   ' * (level - 1)}{_brief(layer)}" for layer, level in every[:_MOST_LINES]]
    left = len(every) - len(shown)
    return [*shown[: _MOST_LINES - 1], f"... {left + 1} more"] if left else shown


def _brief(layer: LayerBlueprint) -> str:
    shape = "x".join(map(str, layer.output_shape))
    activation = f" {layer.activation.partition('(')[0]}" if layer.activation not in (None, "linear") else ""
    combine = f" {layer.combine}" if layer.kind == "parallel" else ""
    name = "" if layer.kind == "activation" else layer.kind
    role = layer.path.split(".")[-2]
    name = f"{role}: {name}" if role in ("gate", "projection") else name
    text = f"{name}{combine}{activation}".strip()
    room = 30 - len(shape)
    return f"{text if len(text) <= room else text[: room - 1] + '…'}  {shape}"


def _cell(
    axes: Any,  # noqa: ANN401
    patches: Any,  # noqa: ANN401
    at: tuple[int, ...],
    box: tuple[float, float, float],
    lines: list[str],
    layers: list[LayerBlueprint],
) -> None:
    x, y, height = box
    style = {"facecolor": PAPER, "edgecolor": COLORS[0], "linewidth": 1.1} if layers else {}
    empty = {"facecolor": "none", "edgecolor": FAINT, "linestyle": "--", "linewidth": 0.8}
    axes.add_patch(
        patches.FancyBboxPatch(
            (x, y), _WIDTH, height, boxstyle="round,pad=0,rounding_size=0.07", zorder=2, **(style or empty)
        )
    )
    axes.text(x + 0.07, y + 0.13, str(at).replace(" ", ""), fontsize=6, color=SOFT, va="center", zorder=4)
    if layers:
        count = sum(layer.parameter_count for layer in layers)
        axes.text(
            x + _WIDTH - 0.07,
            y + 0.13,
            f"{count:,}",
            fontsize=6,
            color=SOFT,
            va="center",
            ha="right",
            zorder=4,
        )
    for number, line in enumerate(lines):
        axes.text(
            x + 0.07,
            y + 0.13 + _LINE * (1.15 + number),
            line,
            fontsize=6.5,
            color=INK,
            va="center",
            zorder=4,
        )


def _flow(
    axes: Any,  # noqa: ANN401
    patches: Any,  # noqa: ANN401
    plan: Blueprint,
    boxes: dict[tuple[int, ...], tuple[float, float, float]],
) -> None:
    """Draws the way through all cells, in at the first and out at the last."""
    paths = require("matplotlib.path", extra="plot", purpose="loom.plot")
    grey: dict[str, Any] = {"color": SOFT, "linewidth": 1.0}
    order = sorted(boxes)
    for before, after in pairwise(order):
        x, y, height = boxes[before]
        to_x, to_y, to_height = boxes[after]
        if before[:2] == after[:2]:
            points = [(x + _WIDTH, y + min(height, to_height) / 2), (to_x, y + min(height, to_height) / 2)]
        elif x == to_x:
            points = [(x + _WIDTH / 2, y + height), (to_x + _WIDTH / 2, to_y)]
        else:
            # Back to the row's start, between the rows.
            between = to_y - (0.2 if before[0] == after[0] else 0.55)
            points = [(x + _WIDTH / 2, y + height), (x + _WIDTH / 2, between)]
            points += [(to_x + _WIDTH / 2, between), (to_x + _WIDTH / 2, to_y)]
        _arrow(axes, patches, paths.Path(points), **grey)
    x, y, height = boxes[order[0]]
    _arrow(axes, patches, paths.Path([(x - 0.55, y + height / 2), (x, y + height / 2)]), **grey)
    shape = "x".join(map(str, plan.input_shape))
    axes.text(x - 0.58, y + height / 2 - 0.12, f"in\n{shape}", fontsize=6.5, ha="left", va="bottom", zorder=5)
    x, y, height = boxes[order[-1]]
    _arrow(
        axes, patches, paths.Path([(x + _WIDTH, y + height / 2), (x + _WIDTH + 0.55, y + height / 2)]), **grey
    )
    shape = "x".join(map(str, plan.output_shape))
    axes.text(
        x + _WIDTH + 0.58,
        y + height / 2 - 0.12,
        f"out\n{shape}",
        fontsize=6.5,
        ha="right",
        va="bottom",
        zorder=5,
    )


def _arrow(axes: Any, patches: Any, points: Any, **style: Any) -> None:  # noqa: ANN401
    # Below the boxes, so that what stands in them stays readable.
    arrow = patches.FancyArrowPatch(
        path=points, arrowstyle="-|>", mutation_scale=7, zorder=1.5, fill=False, shrinkA=0, shrinkB=0, **style
    )
    axes.add_patch(arrow)


def _link(axes: Any, patches: Any, boxes: Any, link: Any, number: int) -> None:  # noqa: ANN401
    paths = require("matplotlib.path", extra="plot", purpose="loom.plot")
    x, y, height = boxes[link.source]
    to_x, to_y, to_height = boxes[link.target]
    reach = 0.4 + 0.06 * (number % 4)
    if y == to_y:
        # Over the boxes between.
        over = y - reach
        start, end = (x + _WIDTH * 0.7, y), (to_x + _WIDTH * 0.3, to_y)
        bends = [(start[0], over), (end[0], over)]
    elif x == to_x:
        # Beside the boxes between.
        beside = x - reach
        start, end = (x, y + height * 0.7), (to_x, to_y + to_height * 0.4)
        bends = [(beside, start[1]), (beside, end[1])]
    else:
        down = to_y > y
        shift = 0.12 * (number % 5 - 2)
        start = (x + _WIDTH * 0.75 + shift, y + height if down else y)
        end = (to_x + _WIDTH * 0.6 + shift, to_y if down else to_y + to_height)
        sign = 1 if down else -1
        bends = [(start[0], start[1] + sign * reach), (end[0], end[1] - sign * reach)]
    curve = paths.Path([start, *bends, end], [1, 4, 4, 4])
    _arrow(axes, patches, curve, color=_COLOURS[link.combine], linewidth=1.2, alpha=0.85)


def _legend(axes: Any, kinds: set[str]) -> None:  # noqa: ANN401
    lines = require("matplotlib.lines", extra="plot", purpose="loom.plot")
    handles = [lines.Line2D([], [], color=_COLOURS[kind], label=f"link: {kind}") for kind in sorted(kinds)]
    if handles:
        axes.legend(
            handles=handles, loc="lower left", fontsize=7, ncols=3, frameon=False, bbox_to_anchor=(0.1, 0.0)
        )
