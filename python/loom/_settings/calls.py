"""What is said where a function is called as its namesake elsewhere is."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import update_wrapper, wraps
from typing import TypeVar

from loom._settings.spellings import argument_remark, spelling

__all__ = ["explained", "listing"]

Called = TypeVar("Called", bound=Callable[..., object])

_UNEXPECTED = re.compile(r"(\w+)\(\) got an unexpected keyword argument '(\w+)'")
_TWICE = re.compile(r"got multiple values for argument '(\w+)'")
_MORE = re.compile(
    r"takes .*positional arguments? but \d+ (?:was|were) given|takes from \d+ to \d+ positional"
)
_MISSING = re.compile(r"missing \d+ required (?:positional|keyword-only) arguments?: (.+?)(?:;|$)")


def explained(**said: str) -> Callable[[Called], Called]:
    """Adds a remark to the TypeError of a call that does not fit a function's parameters.

    Args:
        **said: By name of a parameter, or of one that others have, what to do where it is missing or not
            known; "more", where there are too many by place.

    Returns:
        A decorator; what it returns has the signature of what it is given.
    """

    def decorated(function: Called) -> Called:
        @wraps(function)
        def call(*args: object, **settings: object) -> object:
            try:
                return function(*args, **settings)
            except TypeError as error:
                within = error.__traceback__
                if within is None or within.tb_next is not None:
                    # The call did fit: it is something in the function that is wrong.
                    raise
                told = _remark(str(error), said) or _known(str(error), function)
                if told is None:
                    raise
                raise TypeError(f"{error}; {told}") from None

        return call  # type: ignore[return-value]

    return decorated


class _Listing:
    """A function that lists what stands in a module, and that others have as a module of this name."""

    def __init__(self, function: Callable[[], object], module: str, known: Callable[[], list[str]]) -> None:
        self._function = function
        self._module = module
        self._known = known
        update_wrapper(self, function)

    def __call__(self) -> object:
        return self._function()

    def __getattr__(self, name: str) -> object:
        own = self.__dict__.get("__name__")
        said = f"loom.{own} is a function that lists what there is, and has no '{name}'"
        if name.startswith("_"):
            raise AttributeError(said)
        known = self._known()
        ours = name if name in known else spelling(name, known)
        raise AttributeError(f"{said}; {self._module}.{ours or '<name>'} is what is meant")


def listing(module: str, known: Callable[[], list[str]]) -> Callable[[Called], Called]:
    """Has a function that lists what stands in a module answer whoever takes it for that module.

    Args:
        module: The module, such as "loom.nn".
        known: Gives the names in it.
    """

    def decorated(function: Called) -> Called:
        return _Listing(function, module, known)  # type: ignore[return-value]

    return decorated


def _known(message: str, function: Callable[..., object]) -> str | None:
    """Says which arguments there are where one is not known."""
    if _UNEXPECTED.search(message) is None:
        return None
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    return f"it takes {', '.join(names)}" if names else "it takes none"


def _remark(message: str, said: dict[str, str]) -> str | None:
    if (found := _UNEXPECTED.search(message)) is not None:
        return said.get(found[2]) or argument_remark(found[2])
    if (found := _MISSING.search(message)) is not None:
        names = re.findall(r"'(\w+)'", found[1])
        return next((said[name] for name in names if name in said), None)
    if (found := _TWICE.search(message)) is not None:
        return said.get(found[1])
    if _MORE.search(message) is not None:
        return said.get("more")
    return None
