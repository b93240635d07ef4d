"""What processes of one training agree on: that they do the same, and when it ends."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from loom import _native
from loom._interrupts import Interrupts
from loom.callbacks import (
    Callback,
    EarlyStopping,
    Lookahead,
    MaxNorm,
    ReduceLROnPlateau,
    TerminateOnNaN,
)
from loom.callbacks._averaging import Averaging
from loom.device import devices
from loom.distributed import Communicator, current
from loom.distributed.finding import chosen
from loom.errors import ConfigError, StateError
from loom.training.config import TrainingConfig
from loom.training.identity import differences
from loom.training.run_folder import RunFolder, run_folder
from loom.training.streams import as_plain, from_plain, set_streams, streams_here

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Sharing", "arithmetic", "require_alone", "sharing"]

DEFAULT_SHARDS = 8
# What decides about the training itself, from figures that all processes have, runs in each of them, and so
# does what changes or averages weights.
_EVERYWHERE = (EarlyStopping, ReduceLROnPlateau, Averaging, Lookahead, MaxNorm, TerminateOnNaN)


# What a process wishes all to do once a step is done, as bits that travel with it.
_SAVE, _END, _TERMINATE = 1, 2, 4


class Sharing:
    """A training's part in one that several processes share; entered, it tells the others of an error.

    Args:
        communicator: What they tell each other through.
        shards: Into how many parts a step's rows are cut.
        splits: Whether each process holds a part of the optimizer's moments alone; "gradients" of gradients,
            too.
        coding: In which type gradients travel.
        gathers: Whether every process has all moments once the training has ended.
    """

    def __init__(
        self,
        communicator: Communicator,
        shards: int,
        *,
        splits: str = "nothing",
        coding: str = "float32",
        gathers: bool = True,
    ) -> None:
        self.communicator = communicator
        self.shards = shards
        self.splits = splits != "nothing" and communicator.size > 1
        self.gathers = gathers
        self._ways = (splits if self.splits else "nothing", coding)
        self.counts_batches = False
        """Whether a callback of any process looks at batches, and may end training after each."""
        self._stepping = False
        self._interrupts = Interrupts()
        self._wish = self._heard = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # All processes know of what a step has failed with; not of what this one was asked by its user.
        if error is not None and not (self._stepping and isinstance(error, Exception)):
            self.communicator.fail(f"{type(error).__name__}: {error}")

    @property
    def own_shards(self) -> range:
        """The shards that this process computes."""
        rank, size = self.communicator.rank, self.communicator.size
        return range(self.shards * rank // size, self.shards * (rank + 1) // size)

    @property
    def leads(self) -> bool:
        """Whether this process shows progress, writes files and calls the user's callbacks."""
        return self.communicator.rank == 0

    def listen(self, interrupts: Interrupts) -> None:
        """Has all processes end together where this one is asked to.

        Args:
            interrupts: Who holds that back.
        """
        self._interrupts = interrupts

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

    def from_lead(self, told: bytes = b"") -> bytes:
        """Returns what rank 0 tells all.

        Args:
            told: What that is, in rank 0.
        """
        return self.communicator.to_all(told if self.leads else b"")[0]

    def draw_alike(self) -> None:
        """Has the generators that Python and NumPy share with everybody stand where they do in rank 0.

        So data that is drawn while it is gone through is the same everywhere. Ranks that are threads of one
        process have the same generators, and no way to draw alike.
        """
        here = {"process": [socket.gethostname(), os.getpid()], "streams": as_plain(streams_here())}
        told = json.loads(self.from_lead(json.dumps(here).encode()))
        if told["process"] != here["process"]:
            set_streams(from_plain(told["streams"]))

    def device(self, wanted: str, *, placed: bool = False) -> str:
        """Returns the device of this process: of "gpu" the one by its number among those of its machine.

        Args:
            wanted: As in the settings; "auto" is where the network has been placed, otherwise the processor,
                for GPUs' bits are of a kind of GPU.
            placed: Whether somebody has placed it.
        """
        here = socket.gethostname()
        hosts = [told.decode() for told in self.communicator.to_all(here.encode())]
        if wanted == "auto":
            return wanted if placed else "cpu"
        if wanted != "gpu" or self.communicator.size == 1:
            return wanted
        found = [device for device in devices() if device.name != "cpu"]
        gpus = [device for device in found if not device.software] or found
        number = hosts[: self.communicator.rank].count(here)
        return gpus[number % len(gpus)].name if gpus else wanted

    def any(self, *, one: bool) -> bool:
        """Whether any process says so."""
        return any(told == b"1" for told in self.communicator.to_all(b"1" if one else b"0"))

    def gather(self, network: _native.Network, *, everywhere: bool) -> None:
        """Brings the optimizer's moments together, where processes hold them in parts.

        Args:
            network: Theirs.
            everywhere: In all processes, and not only in rank 0.
        """
        if self.splits:
            network.gather_moments(self.communicator, everywhere)

    def split_at_once(self, network: _native.Network) -> None:
        """Has a trainer that is made next hold parts from its first step on; there is never room for all."""
        if self.splits:
            gradients = self._ways[0] == "gradients"
            network.split_at_once(self.communicator.rank, self.communicator.size, gradients)

    def split(self, network: _native.Network) -> None:
        """Goes back to holding a part, after rank 0 has had all."""
        if self.splits:
            network.split_moments(self.communicator.rank, self.communicator.size)

    def begin(self, *, wants_batches: bool) -> None:
        """Tells the others whether callbacks of this process look at batches."""
        self.counts_batches = self.any(one=wants_batches)

    def wish_to_save(self, *, wishes: bool) -> bool:
        """Notes whether this process would keep a state; whether one was wished for in the step just done."""
        self._wish = (self._wish | _SAVE) if wishes else (self._wish & ~_SAVE)
        return bool(self._heard & _SAVE)

    def run(self, trainer: _native.Trainer, examples: Any) -> tuple[_native.Report, bool]:  # noqa: ANN401
        """Runs the next step of the epoch over arrays with the others; whether it was the last."""
        self._before_step()
        report, ended, heard = trainer.run_sharded(
            examples, self.shards, self.communicator, self._wish, self._ways
        )
        self._after_step(heard)
        return report, ended

    def step(
        self,
        trainer: _native.Trainer,
        examples: Any,  # noqa: ANN401
        parts: list[int] | None = None,
    ) -> _native.Report:
        """Runs a step over one batch with the others.

        Args:
            trainer: The trainer.
            examples: The batch, or this process's part of it.
            parts: How many of the first rows each shard of this process has, where each process has the rows
                of its own shards alone.
        """
        self._before_step()
        report, heard = trainer.step_sharded(
            examples, self.shards, self.communicator, self._wish, self._ways, parts
        )
        self._after_step(heard)
        return report

    def _before_step(self) -> None:
        self._note_ends()
        self._stepping = True

    def _after_step(self, heard: int) -> None:
        self._stepping = False
        self._heard = heard

    def _note_ends(self) -> None:
        if self._interrupts.asks():
            self._wish |= _TERMINATE if self._interrupts.terminated else _END

    def check(self) -> None:
        """Ends the training where any process was asked to, in all of them after the same step.

        Raises:
            KeyboardInterrupt: One was.
        """
        if self._heard & (_END | _TERMINATE):
            self._interrupts.end(terminated=bool(self._heard & _TERMINATE))

    def agree(self, fingerprint: str, *, stops: bool) -> bool:
        """Compares weights with the other processes'; returns whether any of them stops.

        Raises:
            StateError: Weights differ: a callback of one process alone has changed them, say.
        """
        self._note_ends()
        told = self.communicator.to_all(f"{int(stops)}{self._wish:x}{fingerprint}".encode())
        weights = {each[2:] for each in told}
        if len(weights) > 1:
            raise StateError(
                "the processes of a training have come to different weights; callbacks of one's own run in "
                "rank 0 alone, and must not change the network"
            )
        for each in told:
            self._heard |= int(each[1:2], 16)
        return any(each[:1] == b"1" for each in told)


def sharing(
    distributed: object, config: TrainingConfig, run: RunFolder | str | PathLike[str] | None = None
) -> tuple[Sharing | None, TrainingConfig]:
    """Returns this process's part in a training that several share; None where it takes steps whole, alone.

    Args:
        distributed: "auto", None, or a communicator.
        config: Its shards.
        run: The folder that keeps the run. What has begun there in shards goes on in as many, though one
            process is left.

    Returns:
        That, and the settings with the number of shards.

    Raises:
        ConfigError: Something else is given.
    """
    communicator = chosen(distributed)
    shards = config.shards
    if shards is None:
        shards = DEFAULT_SHARDS if communicator.size > 1 else _kept_shards(run)
    if shards is None:
        return None, config
    if shards < communicator.size:
        raise ConfigError(
            f"{communicator.size} processes need as many shards of a step, and there are {shards}; "
            f"set TrainingConfig(shards={communicator.size})"
        )
    splits = "gradients" if config.split_gradients else "moments" if config.split_moments else "nothing"
    gathers = config.split_moments != "always"
    if run is not None and not gathers:
        raise ConfigError(
            'a run folder keeps all moments, which split_moments="always" never brings together'
        )
    part = Sharing(communicator, shards, splits=splits, coding=config.exchange, gathers=gathers)
    return part, replace(config, shards=shards)


def _kept_shards(run: RunFolder | str | PathLike[str] | None) -> int | None:
    if run is None or (settings := run_folder(run)).on_change == "restart":
        return None
    # Whatever is wrong with the file, who opens the folder says so.
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        kept = json.loads((settings.path / "run.json").read_text(encoding="utf-8"))
        shards = kept["identity"]["training"]["shards"]
        return shards if isinstance(shards, int) and shards > 0 else None
    return None


def require_alone(what: str) -> None:
    """Refuses a run folder for what several processes each do by themselves.

    Args:
        what: What that is.

    Raises:
        ConfigError: There are several.
    """
    size = current().size
    if size > 1:
        raise ConfigError(
            f"{what} takes whole steps, the same ones in each of {size} processes, and a run folder is one "
            "process's: leave run= out, or start one process"
        )


def arithmetic() -> dict[str, Any]:
    """Returns how this process computes: a library may have changed rounding, or how small numbers can be."""
    quotients = np.divide(np.array([1.0, -1.0, 1.0, -1.0]), np.array([3.0, 3.0, 10.0, 10.0]))
    small = np.multiply(np.array([1e-40], np.float32), np.array([1.0, 0.5], np.float32))
    return {
        "rounding": [float(each).hex() for each in quotients],
        "subnormal numbers": bool(small.all()),
    }
