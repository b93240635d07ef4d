"""Pictures: training, predictions, measures of layers, correlations, clusters, pairs of models.

Every function returns the matplotlib figure, and writes it where a path is given. Needs the extra "plot".
"""

from __future__ import annotations

from loom.plot.groups import clusters, matches
from loom.plot.heat_maps import correlation, similarity
from loom.plot.images import predictions
from loom.plot.measures import tween
from loom.plot.training import training_curves

__all__ = [
    "clusters",
    "correlation",
    "matches",
    "predictions",
    "similarity",
    "training_curves",
    "tween",
]
