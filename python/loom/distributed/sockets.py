"""Processes that `loom launch` has started: all talk through the first of them."""

from __future__ import annotations

import socket
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge, wait

from loom.distributed.patience import patience
from loom.errors import StateError

__all__ = ["Sockets"]

_PATIENCE = 60.0
"""Seconds that processes wait for all others to be there."""
_HANDSHAKE = 10.0
"""Seconds that whoever connects has to prove that it belongs here."""
_GRACE = 15.0
"""Seconds that the others wait longer than rank 0, which knows who is missing."""
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""After half a minute without an answer of its system, a machine is gone."""
_GOODBYE = b"\x01"
_PART = b"\x00"


class Sockets:
    """Processes on one machine, or on few that reach each other, without MPI.

    Everything goes through rank 0, which is simple and slow for large networks on many processes.

    A process that ends, or whose machine is gone, ends the others; so does one that is silent for half an
    hour, or for as many seconds as LOOM_RANK_TIMEOUT says. The error names it.

    Args:
        rank: This process's number, from 0.
        size: How many there are.
        address: Host and port of rank 0.
        key: What processes prove to each other that they belong together by.

    Raises:
        StateError: The others are not there within a minute.
    """

    def __init__(self, rank: int, size: int, address: tuple[str, int], key: bytes) -> None:
        self.rank, self.size = rank, size
        self._others: dict[int, Connection] = {}
        self._parted: str | None = None
        self._patience = patience()
        if rank == 0:
            self._gather(address, key)
        else:
            self._others[0] = self._reach(address, key)
            self._others[0].send_bytes(rank.to_bytes(4, "little"))

    def to_each(self, parts: Sequence[bytes]) -> list[bytes]:
        """Hands each process a part; see `Communicator`."""
        self._check_together()
        if self.rank != 0:
            for part in parts:
                self._send(0, part)
            return [self._receive(0) for _ in range(self.size)]
        came = self._receive_all(self.size)
        rows = [list(parts), *(came[rank] for rank in range(1, self.size))]
        for rank in range(1, self.size):
            for row in rows:
                self._send(rank, row[rank])
        return [row[0] for row in rows]

    def to_all(self, part: bytes) -> list[bytes]:
        """Hands all processes the same; see `Communicator`."""
        self._check_together()
        if self.rank != 0:
            self._send(0, part)
            return [self._receive(0) for _ in range(self.size)]
        came = self._receive_all(1)
        found = [part, *(came[rank][0] for rank in range(1, self.size))]
        for rank in range(1, self.size):
            for each in found:
                self._send(rank, each)
        return found

    def fail(self, message: str) -> None:
        """Tells the others why; whoever waits for this process raises it."""
        self._part_with(f"rank {self.rank} could not go on: {message}")

    def _check_together(self) -> None:
        if self._parted is not None:
            raise StateError(
                f"the processes are together no more since a training has failed: {self._parted}; start them "
                "again"
            )

    def _part_with(self, message: str) -> None:
        self._parted = self._parted or message
        for connection in self._others.values():
            with suppress(OSError):
                connection.send_bytes(_GOODBYE + message.encode())
                connection.close()

    # In rank 0, whose end of all others' connections tells at once which of them has ended

    def _gather(self, address: tuple[str, int], key: bytes) -> None:
        end = time.monotonic() + _PATIENCE
        with socket.create_server(address, backlog=self.size) as server:
            while len(self._others) < self.size - 1:
                server.settimeout(max(end - time.monotonic(), 0.01))
                try:
                    came, _ = server.accept()
                except TimeoutError:
                    missing = sorted({*range(1, self.size)} - self._others.keys())
                    message = f"{_ranks(missing)} did not come within {_PATIENCE:.0f} s"
                    self._part_with(message)
                    raise StateError(message) from None
                came.setblocking(True)
                connection = _connection(came, _HANDSHAKE)
                # Whoever else has found the port is no reason to end.
                with suppress(AuthenticationError, EOFError, OSError):
                    deliver_challenge(connection, key)
                    answer_challenge(connection, key)
                    rank = int.from_bytes(connection.recv_bytes(), "little")
                    _limit(connection, self._patience)
                    self._others[rank] = connection

    def _receive_all(self, count: int) -> dict[int, list[bytes]]:
        """Returns as many messages of each, whoever comes first."""
        came: dict[int, list[bytes]] = {rank: [] for rank in self._others}
        end = time.monotonic() + self._patience
        while waited := [rank for rank, parts in came.items() if len(parts) < count]:
            of = {self._others[rank]: rank for rank in waited}
            ready = wait(list(of), max(end - time.monotonic(), 0))
            if not ready:
                raise self._gone(f"{_ranks(waited)} did not answer within {self._patience:.0f} s")
            for connection in ready:
                rank = of[connection]  # type: ignore[index]
                came[rank].append(self._receive(rank))
        return came

    def _send(self, rank: int, part: bytes) -> None:
        try:
            self._others[rank].send_bytes(_PART + part)
        except OSError as error:
            # What it has said before it went tells more.
            self._receive(rank)
            raise self._ended(rank, error) from error

    def _receive(self, rank: int) -> bytes:
        try:
            came = self._others[rank].recv_bytes()
        except (EOFError, OSError) as error:
            raise self._ended(rank, error) from error
        if came[:1] == _GOODBYE:
            raise self._gone(came[1:].decode())
        return came[1:]

    def _ended(self, rank: int, error: Exception) -> StateError:
        if isinstance(error, BlockingIOError):
            return self._gone(f"rank {rank} did not answer within {self._patience:.0f} s")
        return self._gone(f"rank {rank} has ended ({str(error) or 'its connection has ended'})")

    def _gone(self, message: str) -> StateError:
        self._part_with(message)
        return StateError(message)

    # In the others

    def _reach(self, address: tuple[str, int], key: bytes) -> Connection:
        end = time.monotonic() + _PATIENCE
        while True:
            found = _answer(address, key)
            if not isinstance(found, Exception):
                _limit(found, self._patience + _GRACE)
                return found
            if time.monotonic() > end:
                raise StateError(
                    f"rank 0 did not answer at {address[0]}:{address[1]} within {_PATIENCE:.0f} s"
                ) from found
            time.sleep(0.05)

    def __repr__(self) -> str:
        return f"Sockets(rank={self.rank}, size={self.size})"


def _ranks(numbers: Sequence[int]) -> str:
    named = ", ".join(map(str, numbers))
    return f"rank {named}" if len(numbers) == 1 else f"ranks {named}"


def _answer(address: tuple[str, int], key: bytes) -> Connection | Exception:
    try:
        connection = _connection(socket.create_connection(address, _HANDSHAKE), _HANDSHAKE)
        answer_challenge(connection, key)
        deliver_challenge(connection, key)
    except (OSError, EOFError) as error:
        return error
    return connection


def _connection(plain: socket.socket, seconds: float) -> Connection:
    """Takes a socket over: without delay for what is small, and told when the other machine is gone."""
    plain.setblocking(True)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            plain.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    connection = Connection(plain.detach())
    _limit(connection, seconds)
    return connection


def _limit(connection: Connection, seconds: float) -> None:
    """Has whoever waits in the middle of a message be told after so long."""
    if sys.platform == "win32":
        limit = struct.pack("L", min(int(seconds * 1000), 0xFFFFFFFF))
    else:
        limit = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
    held = socket.socket(fileno=connection.fileno())
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    finally:
        held.detach()
