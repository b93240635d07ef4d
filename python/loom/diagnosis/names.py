"""The findings by name."""

from __future__ import annotations

from loom._settings.checks import sequence
from loom._settings.suggestions import shown, unknown
from loom.errors import ConfigError
from loom.reports.findings import Finding

__all__ = ["ALL", "SEVERITIES", "finding", "ignored"]

ALL = "all"
"""Stands for every finding where some are to be ignored."""

# What training refuses is an error; what is most likely a mistake a warning; what may be meant so a hint.
SEVERITIES = {
    "accuracy-of-measurements": "warning",
    "batch-larger-than-data": "hint",
    "batchnorm-batch-of-one": "error",
    "batchnorm-momentum": "warning",
    "bounded-logits": "warning",
    "channels-last": "warning",
    "class-imbalance": "hint",
    "class-labels-with-mse": "warning",
    "classes-missing-in-training": "warning",
    "classes-missing-in-validation": "hint",
    "columns-of-different-scales": "warning",
    "constant-columns": "hint",
    "constant-input": "warning",
    "dead-units": "warning",
    "duplicate-columns": "hint",
    "everything-frozen": "warning",
    "exploding-gradients": "warning",
    "labels-out-of-range": "error",
    "last-batch-of-one": "error",
    "learning-rate-explodes": "warning",
    "learning-rate-too-low": "hint",
    "logits-with-nll": "warning",
    "not-finite": "error",
    "one-class-output": "warning",
    "output-wider-than-classes": "hint",
    "regression-targets-with-cross-entropy": "error",
    "relu-before-loss": "warning",
    "saturated-units": "warning",
    "sigmoid-before-loss": "warning",
    "softmax-before-loss": "warning",
    "sorted-labels": "warning",
    "start-loss": "warning",
    "steps-for-channels": "warning",
    "targets-out-of-reach": "warning",
    "training-refuses": "error",
    "unscaled-inputs": "warning",
    "unscaled-targets": "warning",
    "validation-overlap": "warning",
    "vanishing-gradients": "warning",
    "zeros-with-hinge": "warning",
}


def finding(
    name: str, seen: str, remedy: str, *, layer: str = "", severity: str | None = None, **figures: float
) -> Finding:
    """Makes a finding of a known name.

    Args:
        name: The name.
        seen: What was seen.
        remedy: What to do.
        layer: The layer that it is about.
        severity: Where it is another than usual.
        **figures: The numbers by name.
    """
    numbers = {key: float(value) for key, value in figures.items()}
    page = f"docs/doctor.md#{name}"
    return Finding(name, severity or SEVERITIES[name], layer, seen, remedy, page, numbers)


def ignored(where: str, value: object) -> tuple[str, ...]:
    """Returns the names of findings that nobody wants to hear of, or a ConfigError for unknown ones.

    Args:
        where: What the setting belongs to.
        value: A name, several, or "all".
    """
    listed = [value] if isinstance(value, str) else sequence(value)
    if listed is None:
        raise ConfigError(f'{where} must be names of findings, or "all", got {shown(value)}')
    for name in listed:
        if not isinstance(name, str) or name not in (*SEVERITIES, ALL):
            raise unknown(f"{where}: finding", name, (*SEVERITIES, ALL))
    return tuple(str(name) for name in listed)
