"""The public path of how good a network is on data; see `loom.training.evaluation`."""

from loom.training.evaluation import Evaluation, evaluate, in_order

__all__ = ["Evaluation", "evaluate", "in_order"]
