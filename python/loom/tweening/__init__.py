"""Learning by targets: its settings, its steps, its training over whole data sets."""

from __future__ import annotations

from loom.tweening.config import TweenConfig

__all__ = ["TweenConfig"]
