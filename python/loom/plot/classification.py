"""How well classes are told apart: confusion, curves over thresholds, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from loom._figures import check_drawn, empty_figure, finished
from loom._palette import COLORS, PAPER, SOFT
from loom._settings.calls import explained
from loom._settings.checks import flag
from loom._settings.suggestions import unknown
from loom.errors import ConfigError, DataError
from loom.reports import CalibrationCurve, ClassificationReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


__all__ = ["calibration", "confusion_matrix", "precision_recall", "roc"]

# Beyond this many classes the numbers in cells are too small to read.
_MOST_NUMBERS = 20


@explained(more="loom.plot.confusion_matrix(loom.analysis.classification(net, (x, y)))")
def confusion_matrix(
    report: ClassificationReport, *, normalize: bool = False, path: str | Path | None = None
) -> Figure:
    """Draws how often each class was taken for which.

    Args:
        report: What was found.
        normalize: Whether rows are shares of their class, rather than counts.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ConfigError: It is no such report.
        FileError: The picture cannot be written.
    """
    check_drawn("confusion_matrix", report, ClassificationReport)
    classes = len(report.names)
    counts = report.confusion.astype(np.float64)
    shown = (
        counts / np.maximum(report.support, 1)[:, None] if flag("plot", "normalize", normalize) else counts
    )
    side = 1.6 + 0.45 * min(classes, 2 * _MOST_NUMBERS)
    figure = empty_figure(width=side + 1.2, height=side)
    axes = figure.add_subplot()
    image = axes.imshow(shown, cmap="Blues", vmin=0.0, interpolation="none")
    figure.colorbar(image, ax=axes, label="share of the class" if normalize else "samples")
    if classes <= _MOST_NUMBERS:
        middle = shown.max() / 2.0
        for (row, column), value in np.ndenumerate(shown):
            if value:
                text = f"{value:.2f}".removeprefix("0") if normalize else f"{value:.0f}"
                color = "white" if value > middle else "black"
                axes.text(column, row, text, ha="center", va="center", fontsize=8, color=color)
    slanted = 45 if max(map(len, report.names)) > 3 else 0
    axes.set_xticks(range(classes), report.names, rotation=slanted, fontsize=8)
    axes.set_yticks(range(classes), report.names, fontsize=8)
    axes.set_xlabel("predicted")
    axes.set_ylabel("right")
    axes.set_title(f"accuracy {report.accuracy:.3f}", fontsize=10)
    return finished(figure, path)


def roc(
    report: ClassificationReport,
    classes: Sequence[int | str] | None = None,
    *,
    path: str | Path | None = None,
) -> Figure:
    """Draws the receiver operating characteristic of each class against the rest.

    Args:
        report: What was found.
        classes: Which classes, by number or name; all where None.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure; classes whose curve is undefined are left out.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ConfigError: It is no such report, or has no such class.
        FileError: The picture cannot be written.
    """
    figure, axes = _square("false positive rate", "true positive rate")
    for label in _chosen("roc", report, classes):
        curve = report.roc[label]
        if curve.thresholds.size:
            axes.plot(
                curve.false_positive_rate,
                curve.true_positive_rate,
                label=f"{report.names[label]} (area {curve.area:.3f})",
            )
    axes.plot([0, 1], [0, 1], color=SOFT, linestyle="--", linewidth=0.8)
    return _with_legend(figure, axes, path)


def precision_recall(
    report: ClassificationReport,
    classes: Sequence[int | str] | None = None,
    *,
    path: str | Path | None = None,
) -> Figure:
    """Draws precision against recall of each class against the rest.

    Args:
        report: What was found.
        classes: Which classes, by number or name; all where None.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure; classes whose curve is undefined are left out.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ConfigError: It is no such report, or has no such class.
        FileError: The picture cannot be written.
    """
    figure, axes = _square("recall", "precision")
    for label in _chosen("precision_recall", report, classes):
        curve = report.precision_recall[label]
        if curve.thresholds.size:
            axes.step(
                curve.recall,
                curve.precision,
                where="post",
                label=f"{report.names[label]} (average {curve.average_precision:.3f})",
            )
    return _with_legend(figure, axes, path)


def calibration(report: ClassificationReport | CalibrationCurve, path: str | Path | None = None) -> Figure:
    """Draws how often what was said to be likely happened, and how often which probability was said.

    Args:
        report: What was found.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ConfigError: It is no such report.
        DataError: No sample has an answer.
        FileError: The picture cannot be written.
    """
    curve = report.calibration if isinstance(report, ClassificationReport) else report
    if curve is None:
        raise DataError("there is nothing to draw: no sample has an answer")
    if not isinstance(curve, CalibrationCurve):
        raise ConfigError(f"calibration draws a ClassificationReport or a CalibrationCurve, got {report!r}")
    figure = empty_figure(width=4.5, height=5.0)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    widths = np.diff(curve.edges)
    middles = curve.edges[:-1] + widths / 2.0
    held = curve.count > 0
    upper.bar(middles[held], curve.frequency[held], widths[held], edgecolor=PAPER, alpha=0.6)
    upper.plot(curve.probability[held], curve.frequency[held], marker="o", markersize=3, color=COLORS[1])
    upper.plot([0, 1], [0, 1], color=SOFT, linestyle="--", linewidth=0.8)
    upper.set_xlim(0.0, 1.0)
    upper.set_ylim(0.0, 1.02)
    upper.set_ylabel("how often it was right")
    upper.set_title(f"expected calibration error {curve.error:.4f}", fontsize=10)
    lower.bar(middles, curve.count, widths, edgecolor=PAPER, color=SOFT)
    lower.set_ylabel("samples")
    lower.set_xlabel("probability of the answer")
    return finished(figure, path)


def _chosen(where: str, report: ClassificationReport, classes: Sequence[int | str] | None) -> list[int]:
    check_drawn(where, report, ClassificationReport)
    if classes is None:
        return list(range(len(report.names)))
    known: dict[int | str, int] = {name: place for place, name in enumerate(report.names)}
    known.update((place, place) for place in range(len(report.names)))
    for entry in classes:
        if entry not in known:
            raise unknown(f"{where} class", entry, report.names)
    return [known[entry] for entry in classes]


def _square(x: str, y: str) -> tuple[Figure, Axes]:
    figure = empty_figure(width=5.0, height=4.5)
    axes = figure.add_subplot()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_xlim(-0.01, 1.01)
    axes.set_ylim(-0.01, 1.02)
    axes.grid(visible=True, alpha=0.3)
    return figure, axes


def _with_legend(figure: Figure, axes: Axes, path: str | Path | None) -> Figure:
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7)
    return finished(figure, path)
