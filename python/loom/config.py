"""The public path of how a training run goes; see `loom.training.config`."""

from loom.training.config import TrainingConfig

__all__ = ["TrainingConfig"]
