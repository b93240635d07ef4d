"""How long processes wait for each other."""

from __future__ import annotations

import math
import os

from loom.errors import ConfigError

__all__ = ["patience"]

_DEFAULT = 1800.0


def patience() -> float:
    """Returns the seconds that a process waits for another, within a training, before it gives that up.

    They are what the environment variable LOOM_RANK_TIMEOUT says, or half an hour: longer than any callback,
    or the writing of any state, takes. A process that has ended is noticed at once.

    Raises:
        ConfigError: The variable is no positive number.
    """
    told = os.environ.get("LOOM_RANK_TIMEOUT")
    if told is None:
        return _DEFAULT
    try:
        seconds = float(told)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ConfigError(f"LOOM_RANK_TIMEOUT must be a positive number of seconds, got {told!r}")
    return seconds
