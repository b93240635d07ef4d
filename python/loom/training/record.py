"""What a network remembers of its training."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    # A network that only predicts loads nothing of training.
    from loom.training.config import TrainingConfig

__all__ = ["HasRecord", "TrainingRecord", "record_of"]


class TrainingRecord:
    """How training judged what a network learned, and what keeps its callbacks' states while it runs."""

    def __init__(self) -> None:
        self.judged_by: TrainingConfig | None = None
        """The config of the newest training, whose loss and metrics `loom.evaluate` measures."""
        self.take_notes: Callable[[], None] | None = None
        """Keeps the callbacks' states with the training state; None while no training runs."""

    def bring_up_to_date(self) -> None:
        """Has the callbacks' states kept as they are now, before the training state is written."""
        if self.take_notes is not None:
            self.take_notes()


class HasRecord(Protocol):
    """What `record_of` takes."""

    @property
    def _record(self) -> TrainingRecord: ...


def record_of(network: HasRecord) -> TrainingRecord:
    """Returns what a network remembers of its training."""
    return network._record
