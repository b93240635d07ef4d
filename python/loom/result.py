"""The public path of what a training run gives back; see `loom.training.result`."""

from loom.training.result import StopReason, TrainingResult

__all__ = ["StopReason", "TrainingResult"]
