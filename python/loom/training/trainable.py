"""What training asks of a network."""

from __future__ import annotations

from typing import Protocol

from loom.callbacks import TrainedNetwork
from loom.engine import HasEngine
from loom.training.record import HasRecord

__all__ = ["TrainableNetwork"]


class TrainableNetwork(TrainedNetwork, HasEngine, HasRecord, Protocol):
    """What training asks of a network; a `loom.Network` is one."""
