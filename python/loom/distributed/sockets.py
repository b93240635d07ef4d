"""Processes that `loom launch` has started: all talk through the first of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Client, Connection, Listener

from loom.errors import StateError

__all__ = ["Sockets"]

_PATIENCE = 60.0
"""Seconds that processes wait for all others to be there."""
_GOODBYE = b"\x01"
_PART = b"\x00"


class Sockets:
    """Processes on one machine, or on few that reach each other, without MPI.

    Everything goes through rank 0, which is simple and slow for large networks on many processes.

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
        if rank == 0:
            with Listener(address, authkey=key, backlog=size) as listener:
                for _ in range(size - 1):
                    connection = listener.accept()
                    self._others[int.from_bytes(connection.recv_bytes(), "little")] = connection
        else:
            connection = _reached(address, key)
            connection.send_bytes(rank.to_bytes(4, "little"))
            self._others[0] = connection

    def to_each(self, parts: Sequence[bytes]) -> list[bytes]:
        """Hands each process a part; see `Communicator`."""
        if self.rank != 0:
            for part in parts:
                self._send(0, part)
            return [self._receive(0) for _ in range(self.size)]
        rows = [list(parts), *([self._receive(rank) for _ in parts] for rank in range(1, self.size))]
        for rank in range(1, self.size):
            for row in rows:
                self._send(rank, row[rank])
        return [row[0] for row in rows]

    def to_all(self, part: bytes) -> list[bytes]:
        """Hands all processes the same; see `Communicator`."""
        if self.rank != 0:
            self._send(0, part)
            return [self._receive(0) for _ in range(self.size)]
        found = [part, *(self._receive(rank) for rank in range(1, self.size))]
        for rank in range(1, self.size):
            for each in found:
                self._send(rank, each)
        return found

    def fail(self, message: str) -> None:
        """Tells the others why; whoever waits for this process raises it."""
        text = f"rank {self.rank} could not go on: {message}".encode()
        for connection in self._others.values():
            with suppress(OSError):
                connection.send_bytes(_GOODBYE + text)
                connection.close()

    def _send(self, rank: int, part: bytes) -> None:
        try:
            self._others[rank].send_bytes(_PART + part)
        except OSError as error:
            # What it has said before it went tells more.
            self._receive(rank)
            raise self._gone(rank, str(error)) from error

    def _receive(self, rank: int) -> bytes:
        try:
            came = self._others[rank].recv_bytes()
        except (EOFError, OSError) as error:
            raise self._gone(rank, str(error) or "its connection has ended") from error
        if came[:1] == _GOODBYE:
            message = came[1:].decode()
            self.fail(message)
            raise StateError(message)
        return came[1:]

    def _gone(self, rank: int, why: str) -> StateError:
        message = f"rank {rank} has ended ({why})"
        self.fail(message)
        return StateError(message)

    def __repr__(self) -> str:
        return f"Sockets(rank={self.rank}, size={self.size})"


def _reached(address: tuple[str, int], key: bytes) -> Connection:
    end = time.monotonic() + _PATIENCE
    while True:
        found = _answer(address, key)
        if not isinstance(found, Exception):
            return found
        if time.monotonic() > end:
            raise StateError(
                f"rank 0 did not answer at {address[0]}:{address[1]} within {_PATIENCE:.0f} s"
            ) from found
        time.sleep(0.05)


def _answer(address: tuple[str, int], key: bytes) -> Connection | Exception:
    try:
        return Client(address, authkey=key)
    except (ConnectionError, EOFError) as error:
        return error
