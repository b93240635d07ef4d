"""Measures of every layer at every step: how far it is from its target, and what it passes on.

Learning by targets takes them as it goes; in plain backpropagation they are switched on
with `observe=` in `loom.train` and `loom.Trainer`. The engine fills them within the step.
"""

from loom.measuring.measures import MeasureHistory, Measures
from loom.measuring.report import BottleneckWarning
from loom.measuring.settings import Observe

__all__ = ["BottleneckWarning", "MeasureHistory", "Measures", "Observe"]
