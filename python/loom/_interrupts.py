"""Ctrl-C, held back while it could tear something apart."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Interrupts"]


class Interrupts:
    """While it is entered, Ctrl-C waits: for `check`, or for an `open` block.

    `open` is for code of the user's, which may take as long as it likes: there Ctrl-C does at
    once what it always does. Handlers other than Python's own wait in the same way. Where Ctrl-C
    is ignored, or this is not the main thread, nothing is changed.

    Python runs signal handlers between any two lines of the main thread. As nothing is raised
    outside of `check` and `open`, whatever is taken inside this block is released there, too.

    Who presses Ctrl-C once more, while the first one waits or what it ends is being put in order,
    will wait no longer: KeyboardInterrupt is raised at once, except in what takes hold of things
    and lets go of them (`__enter__`, `__exit__`), which is brief and ends first.

    Args:
        terminates: Whether a request to end, SIGTERM, is like Ctrl-C, where nobody else handles it: the
            process then has time to keep what it has. Whoever enters the block ends the process afterwards.
        patient: Whether Ctrl-C waits for code of the user's, too: where several processes end after the same
            step, none may leave alone.

    Attributes:
        urged: Whether there was such a second one.
        terminated: Whether the process was asked to end.
    """

    def __init__(self, *, terminates: bool = False, patient: bool = False) -> None:
        self.open = _Open(self)
        self.urged = False
        self.terminated = False
        self._terminates, self._patient = terminates, patient
        self._replaced = False
        self._holding = True
        self._pending = False
        self._ending = False
        self._home: FrameType | None = None
        self._previous: Callable[[int, FrameType | None], Any] | None = None

    def __enter__(self) -> Self:
        previous = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is threading.main_thread() and callable(previous):
            self._previous = previous
            self._home = sys._getframe(1)
            # From here on nothing is raised, so that `with` gets hold of what it must leave again.
            signal.signal(signal.SIGINT, self._receive)
        if self._terminates and threading.current_thread() is threading.main_thread():
            self._replaced = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
            if self._replaced:
                signal.signal(signal.SIGTERM, self._terminate)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A handler that was put in place meanwhile is somebody's own.
        if self._previous is not None and signal.getsignal(signal.SIGINT) == self._receive:
            signal.signal(signal.SIGINT, self._previous)
        if self._replaced and signal.getsignal(signal.SIGTERM) == self._terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._home = None

    def begin_ending(self) -> None:
        """Notes that what a Ctrl-C has ended is put in order now; another one does not wait for that."""
        self._ending = True

    def put_off(self) -> bool:
        """Has a KeyboardInterrupt that code of the user's has raised wait as Ctrl-C does; whether it does.

        It is raised where nobody else ends along, or a second Ctrl-C has come.
        """
        if not self._patient or self.urged:
            return False
        self._pending = True
        return True

    def asks(self) -> bool:
        """Whether a Ctrl-C or a request to end waits; a handler of somebody's own is called instead."""
        if self._pending and not (self.terminated or self._previous is None or self._interrupts()):
            self._pending = False
            self._call(signal.SIGINT, sys._getframe())
        return self._pending

    def check(self) -> None:
        """Lets a Ctrl-C that came meanwhile do what it does: raise KeyboardInterrupt, as a rule."""
        if self._pending:
            self._pending = False
            self._call(signal.SIGINT, sys._getframe())

    def end(self, *, terminated: bool) -> None:
        """Does what `check` would, on the word of another process.

        Args:
            terminated: Whether that was asked to end.

        Raises:
            KeyboardInterrupt: Always.
        """
        self.terminated = self.terminated or terminated
        self._pending = False
        raise KeyboardInterrupt

    def came_late(self) -> bool:
        """Whether a Ctrl-C came after the last `check`; somebody's own handler is called now."""
        late, self._pending = self._pending, False
        if late and not (self.terminated or self._previous is None or self._interrupts()):
            self._call(signal.SIGINT, sys._getframe())
            return False
        return late

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self._holding:
            again = (self._pending or self._ending) and self._interrupts()
            self.urged = self.urged or again
            self._pending = not again or self._changes_hands(frame)
            if not self._pending:
                raise KeyboardInterrupt
            return
        # Whatever runs after an error from here is outside of the open block.
        self._holding = True
        self._call(number, frame)
        self._holding = False

    def _terminate(self, _number: int, _frame: FrameType | None) -> None:
        again, self.terminated = self.terminated, True
        # Whatever asks once more gets no other answer.
        if again or self._ending:
            return
        if self._holding or self._patient:
            self._pending = True
            return
        self._holding = True
        raise KeyboardInterrupt

    def _changes_hands(self, frame: FrameType | None) -> bool:
        """Whether something is being taken or let go of there, below where the block was entered."""
        while frame is not None and frame is not self._home:
            if frame.f_code.co_name in {"__enter__", "__exit__"}:
                return True
            frame = frame.f_back
        return False

    def _interrupts(self) -> bool:
        """Whether Ctrl-C is to raise KeyboardInterrupt: by Python's own handler, or by one of these."""
        owner = getattr(self._previous, "__self__", None)
        return self._previous is signal.default_int_handler or isinstance(owner, Interrupts)

    def _call(self, number: int, frame: FrameType | None) -> None:
        if self.terminated or self._previous is None or self._interrupts():
            raise KeyboardInterrupt
        self._previous(number, frame)


class _Open:
    """A block that Ctrl-C may leave at any point."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts

    def __enter__(self) -> None:
        interrupts = self._interrupts
        if interrupts._patient:
            return
        interrupts._holding = False
        if interrupts._pending:
            interrupts._holding = True
            interrupts.check()
            interrupts._holding = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._interrupts._holding = True
