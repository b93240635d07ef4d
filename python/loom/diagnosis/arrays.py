"""Findings about samples and targets as numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from loom.diagnosis import thresholds
from loom.diagnosis.case import HANDED_ON, Case
from loom.diagnosis.names import finding
from loom.reports.findings import Finding

__all__ = ["look_at_arrays", "not_finite"]

_NORMALISES = frozenset({"batch_norm", "group_norm", "layer_norm", "l2_norm", "rms_norm"})


def look_at_arrays(case: Case) -> Iterator[Finding]:
    """Finds what the scales of inputs and targets make hard to learn."""
    if case.rows.x.dtype.kind not in "fiub" or len(case.rows) < 2:
        return
    if not case.indices and np.isfinite(case.rows.sample).all():
        yield from _inputs(case)
    if case.regresses and case.rows.y.dtype.kind in "fiu":
        yield from _targets(case)


def not_finite(values: NDArray[np.generic], what: str) -> Iterator[Finding]:
    """Finds NaN and infinity in all of an array."""
    if values.dtype.kind != "f":
        return
    bad = ~np.isfinite(values)
    count = int(bad.sum())
    if count:
        rows = np.flatnonzero(bad.reshape(len(values), -1).any(axis=1))
        yield finding(
            "not-finite",
            f"{count} numbers of the {what} are NaN or infinite, in {len(rows)} rows; the first is row "
            f"{rows[0]}.",
            "Leave those rows out, or fill the gaps: `numpy.nan_to_num`, or the column's mean and a column "
            "that says where it was missing.",
            numbers=count,
            rows=len(rows),
        )


def _magnitudes(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.sqrt(np.mean(np.square(columns), axis=0))
    return found


def _inputs(case: Case) -> Iterator[Finding]:
    sample = case.rows.sample
    if len(sample) >= thresholds.FEW_ROWS and (sample == sample[0]).all():
        yield finding(
            "constant-input",
            f"All {len(sample)} samples that were looked at are the same.",
            "Look at how the data is loaded: a view that was written over, or the wrong axis.",
            rows=len(sample),
        )
        return
    scales = _magnitudes(sample)
    first, factor = _begins(case)
    mean, most = float(np.sqrt(np.mean(np.square(scales)))), float(np.abs(sample).max())
    too_small = 0 < factor * most < thresholds.SMALL_INPUT
    if first not in _NORMALISES and (factor * mean > thresholds.LARGE_INPUT or too_small):
        yield finding(
            "unscaled-inputs",
            f"Inputs go from {sample.min():.4g} to {sample.max():.4g}, with a root mean square of "
            f"{mean:.4g}; initial weights expect about 1.",
            _scaling(sample),
            root_mean_square=mean,
            smallest=float(sample.min()),
            largest=float(sample.max()),
        )
    if case.rows.x.ndim == 2 and sample.shape[1] > 1:
        yield from _columns(sample, scales, normalised=first == "batch_norm", hints=case.hints)


def _begins(case: Case) -> tuple[str, float]:
    """The kind of the first layer that computes, and by what fixed factor inputs are multiplied before."""
    factor = 1.0
    for stage in case.stages:
        if stage.config.kind == "scale":
            factor *= abs(float(getattr(stage.config, "factor", 1.0)))
        elif stage.config.kind not in HANDED_ON:
            return stage.config.kind, factor
    return "", factor


def _scaling(sample: NDArray[np.float64]) -> str:
    if sample.min() >= 0 and 1 < sample.max() <= 255 and (sample == np.round(sample)).all():
        return "Divide pixels by 255: `x / 255`, or put `nn.Scale(1 / 255)` first."
    return (
        "Standardise columns with the training data's figures: `(x - x.mean(axis=0)) / x.std(axis=0)`; or "
        "put `nn.BatchNorm()` first."
    )


def _columns(
    sample: NDArray[np.float64], scales: NDArray[np.float64], *, normalised: bool, hints: bool
) -> Iterator[Finding]:
    dense = np.mean(sample != 0, axis=0) >= thresholds.DENSE_COLUMN
    compared = np.flatnonzero(dense)
    if len(compared) > 1 and len(sample) >= thresholds.FEW_ROWS and not normalised:
        small = compared[np.argmin(scales[compared])]
        large = compared[np.argmax(scales[compared])]
        ratio = float(scales[large] / scales[small])
        if ratio > thresholds.COLUMN_RATIO:
            yield finding(
                "columns-of-different-scales",
                f"Column {large} has a root mean square of {scales[large]:.4g}, column {small} one of "
                f"{scales[small]:.4g}: {ratio:.3g} times less.",
                "Standardise columns with the training data's figures: "
                "`(x - x.mean(axis=0)) / x.std(axis=0)`.",
                ratio=ratio,
            )
    if hints and sample.shape[1] <= thresholds.TABLE_COLUMNS and len(sample) >= thresholds.FEW_ROWS:
        yield from _idle_columns(sample)


def _idle_columns(sample: NDArray[np.float64]) -> Iterator[Finding]:
    constant = (sample == sample[0]).all(axis=0)
    if constant.any():
        yield finding(
            "constant-columns",
            f"{int(constant.sum())} of {len(constant)} columns never change: {_listed(constant)}.",
            "Leave them out: they say nothing, and a standard deviation of 0 makes standardising divide by "
            "0.",
            columns=int(constant.sum()),
        )
    _, first = np.unique(sample[:, ~constant], axis=1, return_index=True)
    twice = np.ones(int((~constant).sum()), bool)
    twice[first] = False
    if twice.any():
        found = np.flatnonzero(~constant)[twice]
        yield finding(
            "duplicate-columns",
            f"{len(found)} of {len(constant)} columns are the same as others: {_listed(found)}.",
            "Leave them out: they count what they say twice.",
            columns=len(found),
        )


def _listed(columns: NDArray[np.generic]) -> str:
    places = np.flatnonzero(columns) if columns.dtype == bool else columns
    return ", ".join(map(str, places[:5].tolist())) + (", ..." if len(places) > 5 else "")


def _targets(case: Case) -> Iterator[Finding]:
    targets = case.rows.targets
    if not targets.size or not np.isfinite(targets).all() or len(case.rows) < thresholds.FEW_ROWS:
        return
    size = float(np.sqrt(np.mean(np.square(targets))))
    if size > thresholds.LARGE_TARGET or 0 < np.abs(targets).max() < thresholds.SMALL_TARGET:
        yield finding(
            "unscaled-targets",
            f"Targets go from {targets.min():.4g} to {targets.max():.4g}, with a root mean square of "
            f"{size:.4g}; outputs begin near 0 with about 1.",
            "Learn `(y - y.mean()) / y.std()`, and turn what `predict` gives back: `p * y.std() + y.mean()`.",
            root_mean_square=size,
        )
