"""Heat maps: correlations of features, similarities of layers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loom._figures import check_drawn, empty_figure, finished
from loom._palette import FAINT
from loom.reports import Correlation, Similarity

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["correlation", "similarity"]

_MOST_NAMES = 40
"""So many names can be read along an axis."""
_MOST_FIGURES = 12
"""So many figures can be read along an axis."""


def correlation(correlation: Correlation, path: str | Path | None = None) -> Figure:
    """Draws correlations as a heat map: red together, blue against each other, grey where there is none.

    Args:
        correlation: What `loom.analysis.correlation` returned.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ConfigError: Something else is given.
        FileError: The picture cannot be written.
    """
    check_drawn("correlation", correlation, Correlation)
    figure, axes = _heat_map(
        correlation.matrix, correlation.labels, correlation.labels, colors="RdBu_r", least=-1.0
    )
    axes.set_title(f"{correlation.method.capitalize()} correlation of {correlation.samples} samples")
    return finished(figure, path)


def similarity(similarity: Similarity, path: str | Path | None = None) -> Figure:
    """Draws how alike layers of two networks are as a heat map: the first's to the right, the second's up.

    Args:
        similarity: What `loom.analysis.similarity` returned.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ConfigError: Something else is given.
        FileError: The picture cannot be written.
    """
    check_drawn("similarity", similarity, Similarity)
    figure, axes = _heat_map(
        similarity.matrix.T, similarity.second, similarity.first, colors="viridis", least=0.0
    )
    axes.invert_yaxis()
    axes.set_title(f"linear CKA of {similarity.samples} samples")
    axes.set_xlabel("first network")
    axes.set_ylabel("second network")
    return finished(figure, path)


def _heat_map(
    matrix: NDArray[np.float64], rows: Sequence[str], columns: Sequence[str], *, colors: str, least: float
) -> tuple[Figure, Any]:
    height, width = (min(9.0, 2.0 + 0.35 * len(names)) for names in (rows, columns))
    figure = empty_figure(width=width + 1.5, height=height + 0.5)
    axes = figure.add_subplot()
    # What is NaN shows the ground.
    axes.set_facecolor(FAINT)
    shown = np.ma.masked_invalid(matrix)
    image = axes.imshow(shown, cmap=colors, vmin=least, vmax=1.0, interpolation="none")
    figure.colorbar(image, ax=axes, shrink=0.8)
    if len(columns) <= _MOST_NAMES:
        axes.set_xticks(range(len(columns)), columns, fontsize=8, rotation=90)
    if len(rows) <= _MOST_NAMES:
        axes.set_yticks(range(len(rows)), rows, fontsize=8)
    if max(matrix.shape) <= _MOST_FIGURES:
        for (row, column), value in np.ndenumerate(matrix):
            if not np.isnan(value):
                red, green, blue, _ = image.cmap(image.norm(value))
                light = 0.3 * red + 0.59 * green + 0.11 * blue > 0.5
                color = "black" if light else "white"
                # Adding 0 takes the sign off what is rounded to it.
                shown_value = f"{round(float(value), 2) + 0.0:.2f}"
                axes.text(column, row, shown_value, ha="center", va="center", fontsize=7, color=color)
    return figure, axes
