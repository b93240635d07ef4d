"""The public path of learning by targets over whole data sets; see `loom.tweening.trainer`."""

from loom.tweening.trainer import TweenTrainer

__all__ = ["TweenTrainer"]
