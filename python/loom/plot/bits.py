"""Numeric types: what layers cost in each, and what was chosen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from loom._figures import check_drawn, empty_figure, finished
from loom._palette import COLORS, FAINT
from loom.extras import require
from loom.reports import BitsReport, MeasuredTypes, SensitivityReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["bits", "sensitivity"]


def bits(bits: BitsReport, path: str | Path | None = None) -> Figure:
    """Draws the measure over the bytes of all weights: single types, what else was measured, what was chosen.

    Single types, full precision and the choice stand at what was measured on held-out data, all other
    choices that were tried at what was measured on the data they were chosen by. The line is what
    choices would come to if drops of single layers added up.

    Args:
        bits: What `Network.fit_bits` returned.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ConfigError: Something else is given.
        FileError: The picture cannot be written.
    """
    check_drawn("bits", bits, BitsReport)
    report = bits.sensitivity
    figure = empty_figure(width=7.0, height=4.5)
    axes = figure.add_subplot()
    sign = -1.0 if report.rising else 1.0
    base = bits.base.held_out
    axes.step(
        bits.front_bytes,
        base + sign * bits.front_drops,
        where="post",
        color=FAINT,
        label="if drops added up",
    )
    axes.scatter(*_places(bits.tried, "measured"), s=14, color=COLORS[5], label="tried")
    singles = [single for single in bits.singles if np.isfinite(single.held_out)]
    axes.scatter(*_places(singles, "held_out"), s=22, color=COLORS[0], label="one type for all")
    for names, x, y in _labels(singles):
        axes.annotate(names, (x, y), (3, 3), textcoords="offset points", fontsize=6)
    axes.scatter(
        [bits.chosen.bytes], [bits.chosen.held_out], marker="*", s=160, color=COLORS[1], label="chosen"
    )
    if bits.max_bytes is not None:
        axes.axvline(bits.max_bytes, color=COLORS[1], linestyle=":", linewidth=1)
    if bits.max_drop is not None:
        axes.axhline(base + sign * bits.max_drop, color=COLORS[1], linestyle=":", linewidth=1)
    axes.set_xscale("log")
    values = [base, bits.chosen.held_out, *(single.held_out for single in singles)]
    low, high = min(values), max(values)
    if 0.0 < 10.0 * low < high:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.2, high * 1.2)
    else:
        margin = 0.05 * (high - low) or 0.01 * (abs(high) + 1.0)
        axes.set_ylim(low - margin, high + margin)
    axes.set_xlabel("bytes of all weights")
    axes.set_ylabel(report.measure.replace("_", " "))
    axes.grid(visible=True, alpha=0.3)
    figure.legend(loc="outside upper center", ncols=4, frameon=False)
    return finished(figure, path)


def _places(
    several: tuple[MeasuredTypes, ...] | list[MeasuredTypes], of: str
) -> tuple[list[int], list[float]]:
    return [it.bytes for it in several], [getattr(it, of) for it in several]


def _labels(singles: list[MeasuredTypes]) -> list[tuple[str, int, float]]:
    """Returns one label for types side by side: the first one's name, and how many there are more."""
    groups: list[list[MeasuredTypes]] = []
    span = max((it.held_out for it in singles), default=0.0) - min(
        (it.held_out for it in singles), default=0.0
    )
    for single in sorted(singles, key=lambda it: it.bytes):
        last = groups[-1][-1] if groups else None
        near = last is not None and single.bytes < 1.1 * last.bytes
        if last is not None and near and abs(single.held_out - last.held_out) <= 0.05 * span:
            groups[-1].append(single)
        else:
            groups.append([single])
    return [
        (
            f"{group[0].name} +{len(group) - 1}" if len(group) > 1 else group[0].name,
            group[-1].bytes,
            group[-1].held_out,
        )
        for group in groups
    ]


def sensitivity(sensitivity: SensitivityReport, path: str | Path | None = None) -> Figure:
    """Draws what each layer costs in each numeric type as a heat map; grey where weights do not fit.

    Args:
        sensitivity: What `loom.analysis.sensitivity` returned.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ConfigError: Something else is given.
        FileError: The picture cannot be written.
    """
    check_drawn("sensitivity", sensitivity, SensitivityReport)
    colors = require("matplotlib.colors", extra="plot", purpose="loom.plot")
    drops = np.ma.masked_invalid(sensitivity.drops)
    rows = [f"{path} {kind}" for path, kind in zip(sensitivity.layers, sensitivity.kinds, strict=True)]
    figure = empty_figure(width=3.0 + 0.32 * len(sensitivity.dtypes), height=min(2.0 + 0.3 * len(rows), 12.0))
    axes = figure.add_subplot()
    axes.set_facecolor(FAINT)
    largest = max(float(np.abs(drops).max()) if drops.count() else 0.0, np.finfo(float).tiny)
    # Most drops are small, some are huge.
    norm = colors.SymLogNorm(linthresh=largest / 1000, vmin=-largest, vmax=largest)
    image = axes.imshow(drops, cmap="RdBu_r", norm=norm, interpolation="none", aspect="auto")
    sense = "drop" if sensitivity.rising else "rise"
    bar = figure.colorbar(image, ax=axes, label=f"{sense} of {sensitivity.measure.replace('_', ' ')}")
    ticks = [sign * largest / share for sign, share in ((-1, 1), (-1, 30), (0, 1), (1, 30), (1, 1))]
    bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
    bar.minorticks_off()
    axes.set_xticks(range(len(sensitivity.dtypes)), sensitivity.dtypes, fontsize=8, rotation=90)
    axes.set_yticks(range(len(rows)), rows, fontsize=8)
    return finished(figure, path)
