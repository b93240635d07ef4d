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
from _thread import get_ident
from types import FrameType
from typing import Protocol
from weakref import WeakSet

from loom import _native

__all__ = ["loading", "renewed"]

PATIENCE = 10.0
"""How many seconds a fork waits for imports at most."""

NAP = 0.0001


class _Renewable(Protocol):
    def renew(self) -> None: ...


renewed: WeakSet[_Renewable] = WeakSet()
"""What has locks; `renew` makes new ones in the child, where no thread holds them."""


class _Loading:
    """Threads that load a part of loom; while a fork is under way none begins to."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.forks = 0

    def __enter__(self) -> None:
        me = get_ident()
        while True:
            inside = me in self.threads
            self.threads.append(me)
            # Whoever is inside already must come to an end.
            if inside or not self.forks:
                return
            self.threads.remove(me)
            time.sleep(NAP)

    def __exit__(self, *_: object) -> None:
        self.threads.remove(get_ident())

    def others(self) -> bool:
        """Whether threads other than this one import something."""
        me = get_ident()
        if any(thread != me for thread in list(self.threads)):
            return True
        # Functions import, too. A module has a lock while it is searched for and run; Python has no public
        # word for that.
        return bool(getattr(_bootstrap, "_module_locks", None)) and not _is_importer()


loading = _Loading()


def _is_importer() -> bool:
    """Whether this thread is in the middle of an import, which cannot end while it waits."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals is _bootstrap.__dict__:
            return True
        frame = frame.f_back
    return False


def _before() -> None:
    loading.forks += 1
    until = time.monotonic() + PATIENCE
    while loading.others() and time.monotonic() < until:
        time.sleep(NAP)
    # Last, since what is imported may use the engine.
    _native.before_fork()


def _after_in_parent() -> None:
    loading.forks -= 1
    _native.after_fork_in_parent()


def _after_in_child() -> None:
    me = get_ident()
    _native.after_fork_in_child(me)
    loading.forks = 0
    loading.threads = [thread for thread in loading.threads if thread == me]
    for holder in list(renewed):
        holder.renew()


# Windows has none.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
