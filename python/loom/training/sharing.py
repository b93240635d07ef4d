"""What processes of one training agree on: that they do the same, and when it ends."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from loom import _native
from loom._settings.suggestions import shown
from loom.callbacks import (
    Callback,
    EarlyStopping,
    ExponentialMovingAverage,
    ReduceLROnPlateau,
    TerminateOnNaN,
)
from loom.distributed import Alone, Communicator, current
from loom.errors import ConfigError, StateError
from loom.training.config import TrainingConfig
from loom.training.identity import differences

__all__ = ["Sharing", "sharing"]

DEFAULT_SHARDS = 8
# What decides about the training itself, from figures that all processes have, runs in each of them.
_EVERYWHERE = (EarlyStopping, ReduceLROnPlateau, ExponentialMovingAverage, TerminateOnNaN)


class Sharing:
    """A training's part in one that several processes share.

    Args:
        communicator: What they tell each other through.
        shards: Into how many parts a step's rows are cut.
    """

    def __init__(self, communicator: Communicator, shards: int) -> None:
        self.communicator = communicator
        self.shards = shards
        self._stepping = False

    @property
    def leads(self) -> bool:
        """Whether this process shows progress, writes files and calls the user's callbacks."""
        return self.communicator.rank == 0

    def callbacks(self, listed: Iterable[Callback]) -> list[Callback]:
        """Returns the callbacks that run in this process."""
        return [callback for callback in listed if self.leads or isinstance(callback, _EVERYWHERE)]

    def check_same(self, identity: Mapping[str, Any]) -> None:
        """Refuses processes that were started with other data, settings, networks or versions.

        Raises:
            ConfigError: They differ; the message says in what.
        """
        text = json.dumps(identity, sort_keys=True)
        for rank, other in enumerate(self.communicator.to_all(text.encode())):
            if other.decode() != text:
                lines = differences(json.loads(other), json.loads(text)) or ["something"]
                raise ConfigError(
                    f"the processes of a training do the same, but rank {rank} and rank "
                    f"{self.communicator.rank} differ: {'; '.join(lines[:5])}"
                )

    def run(self, trainer: _native.Trainer, examples: Any, *, whole_set: bool) -> Any:  # noqa: ANN401
        """Runs a step with the others: of the epoch over arrays, or over one batch."""
        self._stepping = True
        if whole_set:
            found: Any = trainer.run_sharded(examples, self.shards, self.communicator)
        else:
            found = trainer.step_sharded(examples, self.shards, self.communicator)
        self._stepping = False
        return found

    def agree(self, fingerprint: str, *, stops: bool) -> bool:
        """Compares weights with the other processes'; returns whether any of them stops.

        Raises:
            StateError: Weights differ: a callback of one process alone has changed them, say.
        """
        told = self.communicator.to_all(f"{int(stops)}{fingerprint}".encode())
        weights = {each[1:] for each in told}
        if len(weights) > 1:
            raise StateError(
                "the processes of a training have come to different weights; callbacks of one's own run in "
                "rank 0 alone, and must not change the network"
            )
        return any(each[:1] == b"1" for each in told)

    def fail(self, error: BaseException) -> None:
        """Tells the others of an error that they do not know of."""
        if not self._stepping:
            self.communicator.fail(f"{type(error).__name__}: {error}")


def sharing(distributed: object, config: TrainingConfig) -> Sharing | None:
    """Returns this process's part in a training that several share; None where it takes steps whole, alone.

    Args:
        distributed: "auto", None, or a communicator.
        config: Its shards.

    Raises:
        ConfigError: Something else is given.
    """
    if distributed == "auto":
        communicator = current()
    elif distributed is None:
        communicator = Alone()
    elif isinstance(distributed, Communicator):
        communicator = distributed
    else:
        raise ConfigError(f'distributed must be "auto", None or a communicator, got {shown(distributed)}')
    if communicator.size == 1 and config.shards is None:
        return None
    shards = DEFAULT_SHARDS if config.shards is None else config.shards
    if shards < communicator.size:
        raise ConfigError(
            f"{communicator.size} processes need as many shards of a step, and there are {shards}; "
            f"set TrainingConfig(shards={communicator.size})"
        )
    return Sharing(communicator, shards)
