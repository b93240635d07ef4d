"""How far answers deviate: by bucket, and over training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from loom._figures import check_drawn, empty_figure, finished
from loom._palette import COLORS
from loom.callbacks import DeviationHistory
from loom.errors import ConfigError, DataError
from loom.reports import DeviationCourse, DeviationReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["deviation", "deviation_course"]

# From what is right to what has failed.
_COLORS = ("#2166ac", "#4393c3", "#92c5de", "#d9d9d9", "#fdb863", "#e08214", "#8c4a08")
_NAMES = ("0-10", "10-20", "20-30", "30-40", "40-50", "50-100", "over 100")


def deviation(report: DeviationReport, path: str | Path | None = None) -> Figure:
    """Draws how many answers each bucket of deviations holds.

    Args:
        report: What was measured.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ConfigError: It is no such report.
        FileError: The picture cannot be written.
    """
    check_drawn("deviation", report, DeviationReport)
    figure = empty_figure(width=6.5, height=3.5)
    axes = figure.add_subplot()
    bars = axes.bar(_NAMES, [100.0 * bucket.share for bucket in report.buckets], color=_COLORS)
    axes.bar_label(bars, [f"{bucket.count}" for bucket in report.buckets], fontsize=8)
    axes.set_xlabel("deviation from what was expected [%]")
    axes.set_ylabel("share of answers [%]")
    axes.margins(y=0.12)
    axes.set_title(
        f"score {report.score:.1f}, {report.exact_matches} exact, {report.failures} over 100 %", fontsize=10
    )
    return finished(figure, path)


def deviation_course(course: DeviationCourse | DeviationHistory, path: str | Path | None = None) -> Figure:
    """Draws the quality score over epochs with its milestones, and the buckets below it.

    Args:
        course: What was measured epoch by epoch, or the callback that did.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ConfigError: It is nothing of the kind.
        DataError: No epoch was measured.
        FileError: The picture cannot be written.
    """
    found = course.course if isinstance(course, DeviationHistory) else course
    if not isinstance(found, DeviationCourse):
        raise ConfigError(f"deviation_course draws a DeviationCourse or a DeviationHistory, got {course!r}")
    if not found.epochs:
        raise DataError("there is nothing to draw: no epoch was measured")
    epochs = [epoch + 1 for epoch in found.epochs]
    figure = empty_figure(width=6.5, height=5.5)
    upper, lower = figure.subplots(2, 1, sharex=True)
    upper.plot(epochs, found.scores, marker="o", markersize=3)
    for score, first in found.first_epochs.items():
        if first is not None:
            upper.plot(first + 1, score, marker="_", color=COLORS[1])
            upper.annotate(
                f"{score}",
                (first + 1, score),
                (4, -9),
                textcoords="offset points",
                color=COLORS[1],
                fontsize=7,
            )
    upper.set_ylim(0.0, 104.0)
    upper.set_ylabel("quality score")
    total = sum(found.buckets[0])
    shares = [[100.0 * count / total for count in bucket] for bucket in zip(*found.buckets, strict=True)]
    lower.stackplot(epochs, *shares, colors=_COLORS, labels=_NAMES)
    lower.set_ylim(0.0, 100.0)
    lower.set_ylabel("share of answers [%]")
    lower.set_xlabel("epoch")
    lower.locator_params(axis="x", integer=True)
    figure.legend(loc="outside lower center", ncols=7, fontsize=7, title="deviation [%]", title_fontsize=7)
    return finished(figure, path)
