"""Learning rates that are too high or too low, as some steps on one batch show."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from loom.diagnosis import thresholds
from loom.diagnosis.names import finding
from loom.errors import NonFiniteError
from loom.reports.findings import Finding
from loom.training.form import Examples
from loom.training.rehearsal import Rehearsal

__all__ = ["dry_run"]


def dry_run(rehearsal: Rehearsal, examples: Examples, rate: float, *, warm: bool) -> Iterator[Finding]:
    """Learns one batch; `warm` where no movement is to be expected of the first steps."""
    course: list[float] = []
    failed = ""
    for _ in range(thresholds.DRY_STEPS):
        try:
            loss, rate = rehearsal.step(examples)
        except NonFiniteError as error:
            failed = str(error)
            break
        if not np.isnan(loss):
            course.append(loss)
    start = course[0] if course else float("nan")
    end = float(np.mean(course[-3:])) if course else float("nan")
    if failed or end - start > (thresholds.DRY_GROWTH - 1) * abs(start):
        how = "was not finite any more" if failed else f"was {end:.3g}"
        yield finding(
            "learning-rate-explodes",
            f"On a copy the loss of one batch began at {start:.4g}, and after {len(course)} steps at a "
            f"learning rate of {rate:.3g} it {how}.",
            f"Take a smaller rate, {rate / 10:.2g} say, or ask `loom.find_rate(net, data, config)`; "
            "`gradient_clip=1.0` and `loom.schedules.Warmup` help, too.",
            rate=rate,
            start=start,
            end=end,
            steps=len(course),
        )
    elif not warm and start > 0 and max(course) - min(course) < thresholds.DRY_CHANGE * start:
        yield finding(
            "learning-rate-too-low",
            f"On a copy {len(course)} steps at a learning rate of {rate:.3g} changed the loss of one batch, "
            f"{start:.4g}, by {(max(course) - min(course)) / start:.1g} of itself.",
            "Ask `loom.find_rate(net, data, config)` for a rate.",
            rate=rate,
            start=start,
            end=end,
        )
