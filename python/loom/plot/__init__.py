"""Pictures: training curves, predictions, measures of layers. Needs the extra "plot".

Every function returns the matplotlib figure, and writes it where a path is given.
"""

from __future__ import annotations

from loom.plot.images import predictions
from loom.plot.measures import tween
from loom.plot.training import training_curves

__all__ = ["predictions", "training_curves", "tween"]
