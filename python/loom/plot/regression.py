"""How near numbers are to what is right."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from loom._figures import check_drawn, empty_figure, finished
from loom._palette import MANY_POINTS, SOFT
from loom.reports import RegressionReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["residuals"]


def residuals(report: RegressionReport, path: str | Path | None = None) -> Figure:
    """Draws each output's residuals against its predictions, and how they are distributed.

    Args:
        report: What was found.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure: a row of two panels for each output. What is not finite is left out.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ConfigError: It is no such report.
        FileError: The picture cannot be written.
    """
    check_drawn("residuals", report, RegressionReport)
    outputs = len(report.names)
    figure = empty_figure(width=7.0, height=3.0 * outputs)
    panels = figure.subplots(outputs, 2, sharey="row", squeeze=False, width_ratios=[3, 1])
    for output, (left, right) in enumerate(panels):
        shown = np.isfinite(report.residuals[:, output])
        predicted, off = report.predicted[shown, output], report.residuals[shown, output]
        left.scatter(predicted, off, s=8, alpha=0.5, rasterized=len(off) > MANY_POINTS)
        left.axhline(0.0, color=SOFT, linewidth=0.8)
        left.set_xlabel("predicted")
        left.set_ylabel("expected - predicted")
        title = f"output {report.names[output]}: " if outputs > 1 else ""
        left.set_title(
            f"{title}R2 {report.r2[output]:.4g}, mean absolute error "
            f"{report.mean_absolute_error[output]:.4g}",
            fontsize=10,
        )
        right.hist(off, bins=min(30, max(5, len(off) // 5)), orientation="horizontal", color=SOFT)
        right.axhline(0.0, color=SOFT, linewidth=0.8)
        right.set_xlabel("samples")
    return finished(figure, path)
