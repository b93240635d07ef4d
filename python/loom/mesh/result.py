"""What training on a stream gives back."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SteppingResult"]


@dataclass(frozen=True)
class SteppingResult:
    """What training on a stream did.

    Args:
        losses: The loss of every sample that had a target, in order.
        samples: Samples seen.
        ticks: Ticks made.
        updates: Updates made.
        skipped_updates: Updates left out because something was not finite.
        explosions: Updates that exploded, each taken back with the one before it.
        total_time: Seconds from start to end.
        device: Where it took place.
        interrupted: Whether Ctrl-C ended it.
    """

    losses: list[float]
    samples: int
    ticks: int
    updates: int
    skipped_updates: int = 0
    explosions: int = 0
    total_time: float = 0.0
    device: str = "cpu"
    interrupted: bool = False

    @property
    def final_loss(self) -> float:
        """The last loss; nan where there was none."""
        return self.losses[-1] if self.losses else float("nan")

    def __repr__(self) -> str:
        return (
            f"SteppingResult({self.samples} samples, {self.updates} updates, loss {self.final_loss:.4g}, "
            f"{self.total_time:.2f} s on {self.device})"
        )
