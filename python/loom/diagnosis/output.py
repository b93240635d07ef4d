"""Findings about the output, the loss that it meets, and what learns at all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from loom.diagnosis import thresholds
from loom.diagnosis.case import SIGMOIDS, SOFTMAXES, Case
from loom.diagnosis.names import finding
from loom.reports.findings import Finding

__all__ = ["look_at_output"]


def look_at_output(case: Case) -> Iterator[Finding]:
    """Finds what stands wrong between the last layer and the loss."""
    yield from _frozen(case)
    yield from _width(case)
    yield from _momentum(case)
    yield from _measured(case)
    end = case.ending
    if end is None:
        return
    sigmoid = end.name in SIGMOIDS
    if case.absorbs:
        return
    if case.takes_logits and end.name in SOFTMAXES:
        yield finding(
            "softmax-before-loss",
            f'The network ends in {end.name}, and the loss "{case.loss}" applies a '
            f"{_applied(case)} of its own.",
            _without_softmax(case),
            layer=end.path,
        )
    elif case.takes_logits and sigmoid:
        wanted = _applied(case)
        yield finding(
            "sigmoid-before-loss",
            f'The network ends in {end.name}, and the loss "{case.loss}" applies a {wanted} of its own.',
            f'Use activation="linear" in the last layer, and apply the {wanted} to what `predict` gives.',
            layer=end.path,
        )
    elif case.takes_logits and end.low >= 0 and (end.name != "softplus" or not case.classifies):
        yield finding(
            "relu-before-loss",
            f'The network ends in {end.name}, so no logit is negative, as the loss "{case.loss}" needs; '
            "an output that is 0 for all samples never learns again.",
            'Use activation="linear" in the last layer.',
            layer=end.path,
        )
    elif case.takes_logits and np.isfinite(end.high) and end.high <= 1:
        best = _most_certain(case)
        yield finding(
            "bounded-logits",
            f"The network ends in {end.name}, so logits stay between {end.low:g} and {end.high:g}, and no "
            f"probability can exceed {best:.2f}.",
            'Use activation="linear" in the last layer, or `nn.Scale` behind it.',
            layer=end.path,
            largest_probability=best,
        )
    elif case.loss == "nll" and end.name not in SOFTMAXES and not sigmoid:
        yield finding(
            "logits-with-nll",
            f'The network ends in {end.name}, but the loss "nll" takes probabilities.',
            'Train with loss="cross_entropy", which takes logits; or put `nn.Softmax()` last.',
            layer=end.path,
        )
    elif case.regresses or case.loss in ("hinge", "squared_hinge"):
        yield from _reach(case)


def _applied(case: Case) -> str:
    """What the loss makes of logits."""
    return "softmax" if case.classifies else "sigmoid or softmax" if case.loss == "dice" else "sigmoid"


def _without_softmax(case: Case) -> str:
    if case.loss == "dice":
        return "Leave the softmax out: the loss takes logits."
    if not case.classifies:
        return "Leave the softmax out: each output is a question of its own, which its sigmoid answers."
    return (
        'Train with loss="nll", which takes probabilities; or end in `nn.Softmax()` itself, as the very last '
        "layer, which the loss takes into its own; or leave the softmax out."
    )


def _most_certain(case: Case) -> float:
    if not case.classifies:
        return float(1 / (1 + np.exp(-1.0)))
    return float(np.e / (np.e + (case.classes - 1) / np.e))


def _reach(case: Case) -> Iterator[Finding]:
    end = case.ending
    if end is None or case.rows.y.dtype.kind not in "fiub":
        return
    targets = case.rows.targets
    if not targets.size or not np.isfinite(targets).all():
        return
    low, high = float(targets.min()), float(targets.max())
    tolerance = 0.01 * (high - low)
    share = float(np.mean((targets < end.low - tolerance) | (targets > end.high + tolerance)))
    if share > thresholds.OUT_OF_REACH:
        reach = f"above {end.low:g}" if np.isinf(end.high) else f"between {end.low:g} and {end.high:g}"
        yield finding(
            "targets-out-of-reach",
            f"The network ends in {end.name}, whose values lie {reach}; targets go from {low:.4g} to "
            f"{high:.4g}, and {share:.0%} of them cannot be reached.",
            'Use activation="linear" in the last layer, or scale the targets into that range.',
            layer=end.path,
            low=low,
            high=high,
            share=share,
        )


def _frozen(case: Case) -> Iterator[Finding]:
    holds = sum(stage.holds for stage in case.stages)
    if holds and not any(stage.moves for stage in case.stages):
        yield finding(
            "everything-frozen",
            f"None of the {holds} parameters may move: their layers are frozen, or their rate factor is 0.",
            "Call `net.unfreeze()`, or unfreeze the last layers by name; `net.summary()` marks what is "
            "frozen.",
            parameters=holds,
        )


def _width(case: Case) -> Iterator[Finding]:
    if case.classifies and case.classes == 1:
        yield finding(
            "one-class-output",
            f'The output has one class, so "{case.loss}" is 0 whatever the network does.',
            "Give the last layer one unit for each class; or train one unit with "
            'loss="binary_cross_entropy".',
            layer=case.stages[-1].path if case.stages else "",
        )


def _momentum(case: Case) -> Iterator[Finding]:
    for stage in case.stages:
        momentum = getattr(stage.config, "momentum", 0.0)
        if stage.config.kind == "batch_norm" and momentum >= thresholds.FORGETFUL:
            yield finding(
                "batchnorm-momentum",
                f"momentum={momentum:g} makes running statistics {momentum:.0%} of the newest batch: it is "
                "the share of the new, as in PyTorch, and not of the old, as in Keras.",
                f"nn.BatchNorm(momentum={1 - momentum:.4g}) keeps {momentum:.0%} of the old.",
                layer=stage.path,
                momentum=momentum,
            )
            return


def _measured(case: Case) -> Iterator[Finding]:
    counts = [
        name for name in case.metrics if name in ("accuracy", "precision", "recall", "f1", "top_k_accuracy")
    ]
    if not counts or not case.regresses or case.rows.y.dtype.kind != "f":
        return
    targets = case.rows.targets
    if targets.size and bool(np.isfinite(targets).all()) and bool(np.any(targets != np.round(targets))):
        yield finding(
            "accuracy-of-measurements",
            f'Targets are measurements, and "{counts[0]}" counts which side of a threshold they are on.',
            'metrics=["mae", "r2"] tell how far off outputs are.',
        )
