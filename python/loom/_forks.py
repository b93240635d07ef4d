"""Forks of the process, which wait for a moment in which nothing of loom's is half done.

A child has the memory of its parent, but only the thread that forked: what the others had locked stays locked
there, and whoever asks for it waits for ever. So a fork waits until no other thread is inside the engine or
in the middle of an import. It does not wait for longer than a quarter of a second for the engine, and ten
seconds for imports; a network in whose middle a thread was left then says so where it is used.

The GPUs that the parent has opened raise a DeviceError in the child.
"""

from __future__ import annotations

import importlib._bootstrap as _bootstrap
import os
import sys
import time
from _thread import RLock, get_ident
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Protocol
from weakref import WeakSet

from loom import _native

__all__ = ["loading", "renewed"]

PATIENCE = 10.0
"""How many seconds a fork waits for imports at most."""

NAP = 0.0001

_NOTHING = nullcontext()


class _Renewable(Protocol):
    def renew(self) -> None: ...


renewed: WeakSet[_Renewable] = WeakSet()
"""What has locks; `renew` makes new ones in the child, where no thread holds them."""


class _Loading:
    """Whose turn it is to load a part of loom: one thread at a time, and a fork is as a thread.

    Modules that several threads load at once wait for each other, those of one package even in circles;
    Python then lets one of them go on with a module that is half there. So who is first loads, and the others
    wait until it is done.
    """

    def __init__(self) -> None:
        # A lock of Python's own, which Ctrl-C never leaves behind half taken.
        self._lock = RLock()
        # Threads that fork, and whether it is their turn.
        self._forking: dict[int, bool] = {}

    def turn(self) -> AbstractContextManager[object]:
        """What to enter before anything is loaded."""
        # Whoever has the turn may wait for a module that this thread is in the middle of.
        return _NOTHING if _is_importer() else self._lock

    def before_fork(self) -> None:
        """Waits until no other thread is in the middle of an import, and lets none of loom begin."""
        until = time.monotonic() + PATIENCE
        importer = _is_importer()
        self._forking[get_ident()] = self._lock.acquire(timeout=0 if importer else PATIENCE)
        # Functions import, too. A module has a lock while it is searched for and run; Python has no public
        # word for that.
        while not importer and getattr(_bootstrap, "_module_locks", None) and time.monotonic() < until:
            time.sleep(NAP)

    def after_fork(self, *, child: bool = False) -> None:
        """Lets threads load again."""
        if self._forking.pop(get_ident(), False):
            self._lock.release()
        elif child:
            # Whoever has it is not here.
            self._lock = RLock()
        if child:
            self._forking.clear()


loading = _Loading()


def _is_importer() -> bool:
    """Whether this thread is in the middle of loading a module, for which others may wait."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        # Not any frame of Python's importer: by one of them `from loom import nn` asks for an attribute, and
        # holds nothing.
        if frame.f_code.co_name == "_find_and_load_unlocked" and frame.f_globals is _bootstrap.__dict__:
            return True
        frame = frame.f_back
    return False


def _before() -> None:
    loading.before_fork()
    # Last, since what is imported may use the engine.
    _native.before_fork()


def _after_in_parent() -> None:
    loading.after_fork()
    _native.after_fork_in_parent()


def _after_in_child() -> None:
    _native.after_fork_in_child(get_ident())
    loading.after_fork(child=True)
    for holder in list(renewed):
        holder.renew()


# Windows has none.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
