"""What training asks of a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from loom.callbacks import TrainedNetwork
from loom.engine import HasEngine
from loom.training.record import HasRecord

__all__ = ["TrainableNetwork"]


class TrainableNetwork(TrainedNetwork, HasEngine, HasRecord, Protocol):
    """What training asks of a network; a `loom.Network` is one."""

    def scale_rates(self, factors: Mapping[str, float]) -> object:
        """Sets what the learning rate is multiplied by in some layers."""

    def to_bytes(self, optimizer: bool = False) -> bytes:
        """Returns the bytes that `save` would write."""

    def fingerprint(self) -> str:
        """Returns a hash of configuration and weights."""
