"""The picture of a network's grid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex

import loom
from grid_reference import draw
from loom import nn


def texts(figure: Any) -> list[str]:
    return [text.get_text().strip() for text in figure.axes[0].texts]


def large() -> loom.Network:
    net = loom.Network((8, 8), (3, 4, 5))
    for z, y, x in np.ndindex(3, 4, 5):
        if (z + y + x) % 2 == 0:
            net[z, y, x].add(nn.Dense(8, activation="relu"), nn.LayerNorm())
    net[0, 0, 1].add(nn.Residual([nn.Dense(8), nn.Dense(8)]))
    net.link((0, 0, 0), (0, 0, 4)).link((0, 1, 2), (2, 1, 2), combine="add")
    return net.link((1, 1, 1), (2, 3, 4), combine="concat")


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_a_grid_of_three_by_four_by_five(ending: str, tmp_path: Path) -> None:
    net, path = large(), tmp_path / f"network.{ending}"
    with mpl.rc_context({"svg.fonttype": "none"}):
        figure = loom.plot.network(net, path)
    written = texts(figure)
    for z, y, x in np.ndindex(3, 4, 5):
        assert f"({z},{y},{x})" in written
    assert written.count("dense relu  8x8") == 30
    assert "in\n8x8" in written
    assert f"{net.blueprint().parameter_count:,} parameters" in written[-1]
    colours = [to_hex(patch.get_edgecolor()) for patch in figure.axes[0].patches]
    assert (colours.count("#009e73"), colours.count("#d55e00")) == (2, 1)
    assert path.stat().st_size > 10_000
    if ending == "svg":
        assert "dense relu  8x8" in path.read_text()


def inside(figure: Any) -> bool:
    """Whether everything that is drawn lies on the figure."""
    figure.canvas.draw()
    axes = figure.axes[0]
    boxes = [artist.get_window_extent() for artist in [*axes.texts, *axes.patches]]
    width, height = figure.canvas.get_width_height()
    return all(min(box.x0, box.y0) >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1 for box in boxes)


def test_all_of_it_lies_on_the_figure() -> None:
    assert inside(loom.plot.network(large()))
    for seed in range(8):
        assert inside(loom.plot.network(draw(np.random.default_rng(seed)).build())), seed


def test_text_of_a_cell_stays_within_it() -> None:
    net = loom.Network((1, 28, 28), (1, 2))
    wide = nn.MultiHeadAttention(2, cross=True)
    net[0, 0].add(nn.Conv2D(128, 3, activation="leaky_relu"), nn.GlobalAvgPool2D(), nn.Reshape((16, 8)))
    net[0, 1].add(wide, *(nn.Dense(9, activation="hardsigmoid") for _ in range(9)))
    net.link((0, 0), (0, 1), combine="context")
    figure = loom.plot.network(net.blueprint())
    figure.canvas.draw()
    cells = [patch for patch in figure.axes[0].patches if type(patch).__name__ == "FancyBboxPatch"]
    assert len(cells) == 2
    for text in figure.axes[0].texts:
        box = text.get_window_extent()
        for cell in cells:
            around = cell.get_window_extent()
            if around.x0 <= box.x0 < around.x1 and around.y0 <= box.y0 < around.y1:
                assert box.x1 <= around.x1, text.get_text()
                assert box.y1 <= around.y1, text.get_text()
    assert "... 3 more" in texts(figure)


def test_what_is_no_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(loom.ConfigError, match=r"network draws a loom.Network or its blueprint, got 3"):
        loom.plot.network(3)  # type: ignore[arg-type]
    with pytest.raises(loom.FileError, match="cannot be written"):
        loom.plot.network(loom.Sequential([nn.Dense(2)], input_shape=2), tmp_path / "no" / "x.svg")
