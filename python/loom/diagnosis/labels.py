"""Findings about labels of classes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from loom._settings.logits import OF_MARGINS
from loom.diagnosis import thresholds
from loom.diagnosis.case import Case, Rows
from loom.diagnosis.names import finding
from loom.reports.findings import Finding

__all__ = ["look_at_labels"]


def look_at_labels(case: Case) -> Iterator[Finding]:
    """Finds what is wrong with the classes of the targets."""
    yield from _of_another_kind(case)
    if case.labelled and case.rows.labels.size:
        counts = _counts(case, case.rows)
        if counts is None:
            yield _out_of_range(case)
            return
        yield from _sorted(case)
        if case.rows.complete:
            yield from _missing(case, counts)
            if case.hints:
                yield from _balance(case, counts)


def _counts(case: Case, rows: Rows) -> NDArray[np.int64] | None:
    """How often each class occurs; None where a label is none of them."""
    labels = rows.labels
    if labels.size and not 0 <= labels.min() <= labels.max() < case.classes:
        return None
    return np.bincount(labels.ravel(), minlength=case.classes)


def _out_of_range(case: Case) -> Finding:
    labels = case.rows.labels
    low, high = int(labels.min()), int(labels.max())
    if low == 1 and high == case.classes:
        remedy = "Count from 0: `y - 1`."
    elif low >= 0:
        remedy = (
            f"Give the last layer {high + 1} units; or number the classes that occur from 0: "
            "`names, y = numpy.unique(y, return_inverse=True)`."
        )
    else:
        remedy = "Number the classes from 0: `names, y = numpy.unique(y, return_inverse=True)`."
    return finding(
        "labels-out-of-range",
        f"Labels go from {low} to {high}, but the output has {case.classes} classes, counted from 0.",
        remedy,
        smallest=low,
        largest=high,
        classes=case.classes,
    )


def _sorted(case: Case) -> Iterator[Finding]:
    """Finds labels in order, where the order counts."""
    labels = case.rows.labels
    if labels.ndim != 1 or not case.rows.complete:
        return
    held = case.held_out
    if case.validation_split and held is not None and held.y.dtype.kind in "iub":
        last = held.labels
        if len(np.unique(labels)) > 1 and _in_order(np.concatenate([labels, last])):
            classes, unseen = np.unique(last), np.setdiff1d(last, labels)
            yield finding(
                "sorted-labels",
                f"The labels are sorted, and validation_split={case.validation_split:g} holds the last "
                f"samples out: these have {len(classes)} of {len(np.union1d(labels, last))} classes, of "
                f"which training sees {len(classes) - len(unseen)}.",
                "Shuffle samples and labels together first: `order = numpy.random.default_rng(0)"
                ".permutation(len(x))`, then `x[order]` and `y[order]`.",
                classes=len(classes),
                unseen=len(unseen),
            )
    elif not case.shuffle and len(case.rows) > case.batch_size and _in_order(labels):
        count = len(np.unique(labels))
        if count > 1:
            yield finding(
                "sorted-labels",
                f"The labels are sorted and shuffle=False: most batches of {case.batch_size} have one of the "
                f"{count} classes only.",
                "Leave shuffle=True, or shuffle samples and labels together first.",
                classes=count,
            )


def _in_order(labels: NDArray[np.int64]) -> bool:
    return not (labels[1:] < labels[:-1]).any()


def _balance(case: Case, counts: NDArray[np.int64]) -> Iterator[Finding]:
    present = np.flatnonzero(counts)
    if len(present) < 2 or case.weighted:
        return
    most, least = present[np.argmax(counts[present])], present[np.argmin(counts[present])]
    ratio = float(counts[most] / counts[least])
    if ratio >= thresholds.IMBALANCE:
        share = counts[most] / counts.sum()
        yield finding(
            "class-imbalance",
            f"Class {case.called(most)} has {counts[most]:,} samples, class {case.called(least)} has "
            f"{counts[least]:,}; always answering {case.called(most)} is right in {share:.1%}.",
            "Look at more than the accuracy, as `loom.analysis.classification` does; and weigh classes: "
            "`class_weight=len(y) / (classes * numpy.bincount(y))`.",
            ratio=ratio,
            largest_share=float(share),
        )


def _missing(case: Case, counts: NDArray[np.int64]) -> Iterator[Finding]:
    empty = np.flatnonzero(counts == 0)
    known = counts > 0
    if case.held_out is not None and case.held_out.complete and case.held_out.y.dtype.kind in "iub":
        held = _counts(case, case.held_out)
        if held is None:
            return
        unseen = np.flatnonzero((held > 0) & ~known)
        if len(unseen):
            yield finding(
                "classes-missing-in-training",
                f"The validation data has {int(held[unseen].sum())} samples of classes that the training "
                f"data has none of: {_listed(case, unseen)}.",
                "Shuffle before the data is split, and split each class by itself.",
                classes=len(unseen),
            )
        absent = np.flatnonzero((held == 0) & known)
        enough = held.sum() >= thresholds.VALIDATION_ROWS_A_CLASS * known.sum()
        if len(absent) and enough:
            yield finding(
                "classes-missing-in-validation",
                f"The validation data has no samples of classes {_listed(case, absent)}.",
                "Shuffle before the data is split, and split each class by itself.",
                classes=len(absent),
            )
    if len(empty) and case.rows.y.size <= thresholds.LABEL_ELEMENTS:
        yield finding(
            "output-wider-than-classes",
            f"The output has {case.classes} classes, but the labels only {int(known.sum())}; missing are "
            f"{_listed(case, empty)}.",
            "Give the last layer as many units as there are classes, unless others come later.",
            classes=int(known.sum()),
            outputs=case.classes,
        )


def _of_another_kind(case: Case) -> Iterator[Finding]:
    y = case.rows.y
    if case.classifies and y.dtype.kind == "f":
        yield from _numbers_as_classes(case)
    elif case.regresses and case.chosen and _yes_or_no(case):
        yield finding(
            "class-labels-with-mse",
            "Targets are 0 and 1 alone, as labels of two classes are, but nobody named a loss, and "
            f'"{case.loss}" takes them for measurements.',
            'Train with loss="binary_cross_entropy"; or name loss="mse", if that is meant.',
            severity="warning",
            classes=2,
        )
    elif case.regresses and y.dtype.kind in "iu":
        yield from _classes_as_numbers(case)
    elif case.loss in OF_MARGINS and y.dtype.kind in "biuf":
        yield from _without_margins(case)
    elif case.answers_yes_or_no and y.dtype.kind in "fiu" and y.size:
        # All of them where there is time.
        looked_at = y if case.hints else case.rows.targets
        low, high = float(looked_at.min()), float(looked_at.max())
        if low < 0 or high > 1:
            yield finding(
                "regression-targets-with-cross-entropy",
                f'Targets go from {low:.4g} to {high:.4g}, but the loss "{case.loss}" takes 0, 1 and what is '
                "between.",
                'Where they count classes, train with loss="cross_entropy"; where they measure, with "mse".',
            )


def _numbers_as_classes(case: Case) -> Iterator[Finding]:
    y = case.rows.y
    if y.ndim == len(case.output_shape):
        whole = bool((case.rows.targets == np.round(case.rows.targets)).all())
        yield finding(
            "regression-targets-with-cross-entropy",
            f'Targets are numbers of type {y.dtype}, one a sample, but the loss "{case.loss}" takes whole '
            "numbers that count classes.",
            "They are whole numbers: `y.astype(int)`." if whole else 'Train with loss="mse".',
        )
    elif y.ndim == len(case.output_shape) + 1:
        targets = case.rows.targets
        if np.isfinite(targets).all() and targets.size and targets.min() < 0:
            yield finding(
                "regression-targets-with-cross-entropy",
                f'Targets go from {targets.min():.4g} to {targets.max():.4g}, but the loss "{case.loss}" '
                "takes rows of probabilities.",
                'Train with loss="mse", or give class indices.',
                severity="warning",
            )


def _without_margins(case: Case) -> Iterator[Finding]:
    found = np.unique(case.rows.targets)
    if len(found) and found[0] == 0 and np.isin(found, (0.0, 1.0)).all():
        yield finding(
            "zeros-with-hinge",
            f'Targets are 0 and 1, but the loss "{case.loss}" takes -1 and 1; of a 0 it is the same whatever '
            "the network says, so that nothing is learned of it.",
            "Give 2 * y - 1, with y as numbers.",
        )


def _yes_or_no(case: Case) -> bool:
    """Whether one output is compared with 0 and 1 and nothing else, be they whole numbers or not."""
    if case.output_shape != (1,) or case.rows.y.dtype.kind not in "biuf":
        return False
    return bool(np.array_equal(np.unique(case.rows.targets), [0.0, 1.0]))


def _classes_as_numbers(case: Case) -> Iterator[Finding]:
    labels = case.rows.labels
    if not labels.size or labels.ndim > max(len(case.output_shape), 1):
        return
    found = np.unique(labels)
    count = len(found)
    fits = case.output_shape == (1,)
    counted = found[0] == 0 and found[-1] == count - 1 and 2 <= count <= thresholds.FEW_LABELS
    if not counted or (fits and len(labels) < thresholds.ROWS_A_LABEL * count):
        return
    remedy = (
        f'Train with loss="cross_entropy", with {count} units in the last layer.'
        if count > 2
        else 'Train with loss="binary_cross_entropy", or "cross_entropy" with 2 units in the last layer.'
    )
    severity = "error" if not fits else "warning" if count > 2 else "hint"
    yield finding(
        "class-labels-with-mse",
        f'Targets are the whole numbers 0 to {count - 1}, as labels of {count} classes are, but the loss "'
        f'{case.loss}" takes them for measurements.',
        remedy + " Where they are measurements, ignore this finding, or give them as floats.",
        severity=severity,
        classes=count,
    )


def _listed(case: Case, classes: NDArray[np.intp]) -> str:
    return ", ".join(map(case.called, classes[:5].tolist())) + (", ..." if len(classes) > 5 else "")
