"""Ctrl-C, held back while a step runs and is recorded."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Interrupts"]


class Interrupts:
    """While it is entered, Ctrl-C waits for the end of each `held` block.

    Elsewhere it raises KeyboardInterrupt at once, as ever. Where Ctrl-C is somebody
    else's already, or this is not the main thread, nothing is changed.
    """

    def __init__(self) -> None:
        self._holding = False
        self._pending = False
        self._installed = False
        self.held = _Held(self)

    def __enter__(self) -> Self:
        ours = threading.current_thread() is threading.main_thread()
        if ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._receive)
            self._installed = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._installed = False

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._holding:
            self._pending = True
        else:
            raise KeyboardInterrupt

    def _hold(self) -> None:
        self._holding = True

    def _release(self) -> bool:
        self._holding = False
        pending, self._pending = self._pending, False
        return pending


class _Held:
    """A block at whose end a Ctrl-C that came meanwhile is raised."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts

    def __enter__(self) -> None:
        self._interrupts._hold()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An error of the block's own goes first.
        if self._interrupts._release() and error is None:
            raise KeyboardInterrupt
