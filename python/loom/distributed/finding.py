"""Which processes this one belongs to, as whoever started it has noted in its environment."""

from __future__ import annotations

import os
from functools import cache

from loom._settings.suggestions import shown
from loom.distributed.communicator import Alone, Communicator
from loom.distributed.mpi import Mpi
from loom.distributed.sockets import Sockets
from loom.errors import ConfigError

__all__ = ["chosen", "current"]

_MPI_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "PMIX_SIZE")


@cache
def current() -> Communicator:
    """Returns the communicator of the processes that this one was started with; `Alone` where it was alone.

    `loom launch` notes them in the environment, as mpiexec and srun do. Slurm's own count of tasks says
    nothing: srun starts tasks that have nothing to do with each other, too.

    Raises:
        MissingExtraError: mpiexec has started several processes, and mpi4py is not installed.
        ConfigError: What `loom launch` has noted was changed.
        StateError: The other processes are not there.
    """
    if "LOOM_RANK" in os.environ:
        try:
            rank, size = int(os.environ["LOOM_RANK"]), int(os.environ["LOOM_SIZE"])
            host, _, port = os.environ["LOOM_ADDRESS"].rpartition(":")
            address, key = (host, int(port)), bytes.fromhex(os.environ["LOOM_KEY"])
        except (KeyError, ValueError) as error:
            raise ConfigError(
                "LOOM_RANK is set, as by `loom launch`, but LOOM_SIZE, LOOM_ADDRESS (host:port) or LOOM_KEY "
                "is not"
            ) from error
        return Sockets(rank, size, address, key) if size > 1 else Alone()
    sizes = [os.environ.get(name, "1") for name in _MPI_SIZES]
    if any(size.isdecimal() and int(size) > 1 for size in sizes):
        return Mpi()
    return Alone()


def chosen(distributed: object) -> Communicator:
    """Returns the communicator that a setting `distributed` means.

    Args:
        distributed: "auto", for `current`; None, for one process alone; or a communicator.

    Raises:
        ConfigError: Something else is given.
    """
    if isinstance(distributed, str) and distributed == "auto":
        return current()
    if distributed is None:
        return Alone()
    if isinstance(distributed, Communicator):
        return distributed
    raise ConfigError(f'distributed must be "auto", None or a communicator, got {shown(distributed)}')
