"""Learning by targets: its settings, its steps, its training over whole data sets."""

from loom.tweening.config import TweenConfig

__all__ = ["TweenConfig"]
