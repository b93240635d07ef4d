"""One training on several processes, with the same bits whatever their number.

`mpiexec -n 4 python train.py`, or `loom launch -n 4 train.py` where there is no MPI, runs an unchanged
script: `loom.train` finds the other processes by itself.
"""

from __future__ import annotations

from loom.distributed.communicator import Alone as Alone
from loom.distributed.communicator import Communicator as Communicator
from loom.distributed.finding import current as current
from loom.distributed.mpi import Mpi as Mpi
from loom.distributed.sockets import Sockets as Sockets
from loom.distributed.threads import threads as threads

__all__ = ["Alone", "Communicator", "Mpi", "Sockets", "current", "threads"]
