"""The public path of how a training run goes; see `loom.training.config`."""

from __future__ import annotations

from loom.training.config import TrainingConfig

__all__ = ["TrainingConfig"]
