"""Pictures: training curves, predictions, measures of layers, reports. Needs the extra "plot".

Every function returns the matplotlib figure, and writes it where a path is given.
"""

from __future__ import annotations

from loom.plot.classification import calibration, confusion_matrix, precision_recall, roc
from loom.plot.deviation import deviation, deviation_course
from loom.plot.images import predictions, top_errors
from loom.plot.measures import tween
from loom.plot.regression import residuals
from loom.plot.training import training_curves

__all__ = [
    "calibration",
    "confusion_matrix",
    "deviation",
    "deviation_course",
    "precision_recall",
    "predictions",
    "residuals",
    "roc",
    "top_errors",
    "training_curves",
    "tween",
]
