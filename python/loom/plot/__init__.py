"""Pictures: training curves, predictions, measures of layers, networks. Needs the extra "plot".

Every function returns the matplotlib figure, and writes it where a path is given.
"""

from __future__ import annotations

from loom.plot.images import predictions
from loom.plot.measures import tween
from loom.plot.networks import network
from loom.plot.training import training_curves

__all__ = ["network", "predictions", "training_curves", "tween"]
