"""Processes that mpiexec, Slurm's srun or another MPI has started."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from loom._typing import Foreign
from loom.extras import require

__all__ = ["Mpi"]


class Mpi:
    """The processes of an MPI communicator, through mpi4py: the extra "mpi".

    Args:
        comm: An `mpi4py.MPI.Comm`; all processes where None.

    Raises:
        MissingExtraError: mpi4py is not installed.
    """

    def __init__(self, comm: Foreign = None) -> None:
        self._mpi: Any = require("mpi4py.MPI", extra="mpi", purpose="training with MPI")
        # A communicator of loom's own, which no message of the script's gets in the way of.
        self._comm: Any = (self._mpi.COMM_WORLD if comm is None else comm).Dup()
        self.rank: int = self._comm.Get_rank()
        self.size: int = self._comm.Get_size()

    def to_each(self, parts: Sequence[bytes]) -> list[bytes]:
        """Hands each process a part; see `Communicator`."""
        sent = np.array([len(part) for part in parts], np.int64)
        came = np.empty_like(sent)
        self._comm.Alltoall(sent, came)
        into = bytearray(int(came.sum()))
        byte = self._mpi.BYTE
        self._comm.Alltoallv([b"".join(parts), sent, _starts(sent), byte], [into, came, _starts(came), byte])
        return _cut(into, came)

    def to_all(self, part: bytes) -> list[bytes]:
        """Hands all processes the same; see `Communicator`."""
        came = np.empty(self.size, np.int64)
        self._comm.Allgather(np.array([len(part)], np.int64), came)
        into = bytearray(int(came.sum()))
        byte = self._mpi.BYTE
        self._comm.Allgatherv([part, byte], [into, came, _starts(came), byte])
        return _cut(into, came)

    def fail(self, message: str) -> None:
        """Ends all processes: MPI knows no other way to keep them from waiting."""
        sys.stdout.flush()
        sys.stderr.write(f"loom: rank {self.rank} of {self.size} could not go on: {message}\n")
        sys.stderr.flush()
        self._comm.Abort(1)

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
