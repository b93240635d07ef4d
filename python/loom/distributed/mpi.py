"""Processes that mpiexec, Slurm's srun or another MPI has started."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from loom._typing import Foreign
from loom.distributed.patience import patience
from loom.extras import require

__all__ = ["Mpi"]

_HERE = 1
"""What processes that wait in vain tell each other, to find out who does not."""
_GRACE = 10.0
"""Seconds that they have for it at most."""
_SPINS = 200
_LONGEST_SLEEP = 0.001


class Mpi:
    """The processes of an MPI communicator, through mpi4py: the extra "mpi".

    Where one of them cannot go on, or is silent for half an hour or as many seconds as LOOM_RANK_TIMEOUT
    says, all are ended, as MPI has it, and what rank it was is written to the standard error output. From
    then on an exception that nobody catches ends all processes, too.

    Args:
        comm: An `mpi4py.MPI.Comm`; all processes where None.

    Raises:
        MissingExtraError: mpi4py is not installed.
    """

    def __init__(self, comm: Foreign = None) -> None:
        self._mpi: Any = require("mpi4py.MPI", extra="mpi", purpose="training with MPI")
        self._patience = patience()
        # A communicator of loom's own, which no message of the script's gets in the way of.
        self._comm: Any = (self._mpi.COMM_WORLD if comm is None else comm).Dup()
        self.rank: int = self._comm.Get_rank()
        self.size: int = self._comm.Get_size()
        if self.size > 1:
            self._end_all_by_exceptions()

    def to_each(self, parts: Sequence[bytes]) -> list[bytes]:
        """Hands each process a part; see `Communicator`."""
        sent = np.array([len(part) for part in parts], np.int64)
        came = np.empty_like(sent)
        self._do("Ialltoall", sent, came)
        into = bytearray(int(came.sum()))
        byte = self._mpi.BYTE
        whole = b"".join(parts)
        self._do("Ialltoallv", [whole, sent, _starts(sent), byte], [into, came, _starts(came), byte])
        return _cut(into, came)

    def to_all(self, part: bytes) -> list[bytes]:
        """Hands all processes the same; see `Communicator`."""
        came = np.empty(self.size, np.int64)
        self._do("Iallgather", np.array([len(part)], np.int64), came)
        into = bytearray(int(came.sum()))
        byte = self._mpi.BYTE
        self._do("Iallgatherv", [part, byte], [into, came, _starts(came), byte])
        return _cut(into, came)

    def fail(self, message: str) -> None:
        """Ends all processes: MPI knows no other way to keep them from waiting."""
        sys.stdout.flush()
        sys.stderr.write(f"loom: rank {self.rank} of {self.size} could not go on: {message}\n")
        sys.stderr.flush()
        self._comm.Abort(1)

    def _do(self, name: str, sent: object, came: object) -> None:
        """Exchanges, and ends all where that cannot be done, or takes too long."""
        try:
            request = getattr(self._comm, name)(sent, came)
            spins, pause, end = 0, 1e-5, 0.0
            while not request.Test():
                # Processes may share processors: who waits lets the others have them.
                spins += 1
                if spins < _SPINS:
                    continue
                end = end or time.monotonic() + self._patience
                if time.monotonic() > end:
                    self.fail(f"{self._missing()} did not answer within {self._patience:.0f} s")
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_SLEEP)
        except self._mpi.Exception as error:
            self.fail(f"the other processes cannot be reached: {error}")
            raise

    def _missing(self) -> str:
        """Says which processes do not wait, as those do that time out together."""
        byte = self._mpi.BYTE
        sent = [self._comm.Isend([b"", byte], rank, _HERE) for rank in range(self.size)]
        here: set[int] = set()
        end = time.monotonic() + min(max(self._patience, 1.0), _GRACE)
        while len(here) < self.size and time.monotonic() < end:
            status = self._mpi.Status()
            if self._comm.Iprobe(self._mpi.ANY_SOURCE, _HERE, status):
                self._comm.Recv([bytearray(), byte], status.Get_source(), _HERE)
                here.add(status.Get_source())
            else:
                time.sleep(0.01)
        del sent
        missing = sorted({*range(self.size)} - here)
        return f"rank {', '.join(map(str, missing))}" if missing else "some rank"

    def _end_all_by_exceptions(self) -> None:
        before = sys.excepthook

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            before(kind, error, trace)
            self.fail(f"{kind.__name__}: {error}")

        sys.excepthook = hook

    def __repr__(self) -> str:
        return f"Mpi(rank={self.rank}, size={self.size})"


def _starts(lengths: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)


def _cut(whole: bytearray, lengths: np.ndarray[Any, Any]) -> list[bytes]:
    found, start = [], 0
    for length in lengths.tolist():
        found.append(bytes(whole[start : start + length]))
        start += length
    return found
