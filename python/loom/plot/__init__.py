"""Pictures: training, predictions, measures, networks, reports, correlations, clusters, what is looked at.

Every function returns the matplotlib figure, and writes it where a path is given. Needs the extra "plot".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom._settings.spellings import attribute_error
from loom.plot.bits import bits, sensitivity
from loom.plot.classification import calibration, confusion_matrix, precision_recall, roc
from loom.plot.deviation import deviation, deviation_course
from loom.plot.filters import filters
from loom.plot.groups import clusters, matches
from loom.plot.heat_maps import correlation, similarity
from loom.plot.images import predictions, top_errors
from loom.plot.looking import attention, embedding, saliency
from loom.plot.measures import tween
from loom.plot.networks import network
from loom.plot.regression import residuals
from loom.plot.training import training_curves
from loom.rate_search import plot_rates as learning_rates
from loom.schedules import plot_schedules as schedule

__all__ = [
    "attention",
    "bits",
    "calibration",
    "clusters",
    "confusion_matrix",
    "correlation",
    "deviation",
    "deviation_course",
    "embedding",
    "filters",
    "learning_rates",
    "matches",
    "network",
    "precision_recall",
    "predictions",
    "residuals",
    "roc",
    "saliency",
    "schedule",
    "sensitivity",
    "similarity",
    "top_errors",
    "training_curves",
    "tween",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise attribute_error(__name__, name, __all__)
