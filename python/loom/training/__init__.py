"""Training: its settings, the loop with its callbacks, evaluation, and what a run gives back.

As in `loom` itself names are loaded when they are first used: a network that only predicts keeps a record
of its training, but needs no loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom._forks import loading

if TYPE_CHECKING:
    from loom.training.backpropagation import train
    from loom.training.run import run_training

__all__ = ["run_training", "train"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'loom.training' has no attribute '{name}'")
    with loading.turn():
        from loom.training import backpropagation, run

    return getattr(backpropagation if name == "train" else run, name)
