"""How fast a training goes: what loggers write beside the logs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

__all__ = ["Pace"]


class Pace:
    """The learning rate of the newest step, and the samples a second since the epoch began."""

    def __init__(self) -> None:
        self._began, self._samples = time.perf_counter(), 0

    def begin(self, params: Mapping[str, Any]) -> None:
        """Notes that an epoch begins."""
        self._began, self._samples = time.perf_counter(), params.get("samples") or 0

    @property
    def seconds(self) -> float:
        """The seconds since the epoch began."""
        return time.perf_counter() - self._began

    def figures(self, params: Mapping[str, Any]) -> dict[str, float]:
        """Returns learning_rate and samples_per_second, as far as they are known.

        Args:
            params: Those of a callback.
        """
        found: dict[str, float] = {}
        if params.get("learning_rate") is not None:
            found["learning_rate"] = float(params["learning_rate"])
        samples = (params.get("samples") or 0) - self._samples
        if samples > 0:
            found["samples_per_second"] = samples / max(self.seconds, 1e-9)
        return found
