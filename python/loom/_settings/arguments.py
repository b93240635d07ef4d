"""Arguments of configurations, refused with the spelling that is right."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

from loom._settings.suggestions import shown, unknown
from loom.errors import ConfigError

__all__ = ["check_arguments"]


@cache
def _parameters(cls: Callable[..., Any]) -> tuple[tuple[str, ...], frozenset[str]] | None:
    """Returns the names that may be given by place, and all names; None where any are taken."""
    found = list(inspect.signature(cls).parameters.values())
    if any(each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) for each in found):
        return None
    placed = tuple(each.name for each in found if each.kind is each.POSITIONAL_OR_KEYWORD)
    return placed, frozenset(each.name for each in found)


def check_arguments(cls: type[object], given: tuple[object, ...], named: Mapping[str, object]) -> None:
    """Refuses arguments by place beyond the first ones, whose order is no trap, and unknown names.

    Args:
        cls: The class of the configuration that is made.
        given: Arguments by place.
        named: Arguments by name.

    Raises:
        ConfigError: There are too many by place, or a name is unknown.
    """
    parameters = _parameters(cast("Any", cls))
    if parameters is None:
        return
    placed, names = parameters
    name = cls.__name__
    if len(given) > len(placed):
        wanted = ", ".join(placed) if placed else "nothing"
        raise ConfigError(
            f"{name} takes {wanted} by place, got {', '.join(map(shown, given))}; "
            + _remedy(name, placed, ", ".join(sorted(names.difference(placed))))
        )
    for key in named:
        if key not in names:
            raise unknown(f"{name} argument", key, names)


def _remedy(name: str, placed: tuple[str, ...], others: str) -> str:
    """Says how it is written; elsewhere the size of the input, or the rate, comes first."""
    if "decay_exempt" in others:
        return (
            "its settings go by name, and the learning rate stands in TrainingConfig: "
            f"TrainingConfig(learning_rate=1e-3, optimizer={name}())"
        )
    said = ""
    if placed[:2] == ("filters", "kernel_size"):
        said = f"input channels are inferred, so that {name}(16, kernel_size=3) has 16 filters; "
    elif placed == ("units",):
        said = f"the size of the input is inferred, so that {name}(20) has 20 units; "
    elif name.endswith("Norm"):
        said = f"the size of the input is inferred, so that {name}() is enough; "
    if not others:
        return "several go in one list, [a, b]" if placed == ("layers",) else "there are no others"
    return f"{said}give the others by name: {others}"
