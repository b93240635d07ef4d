"""What training data, settings and layers show of common mistakes, without computing a step.

Training warns of it; `loom.doctor` looks at more.
"""

from __future__ import annotations

import numpy as np

from loom.diagnosis.arrays import look_at_arrays
from loom.diagnosis.batches import look_at_batches
from loom.diagnosis.case import Case
from loom.diagnosis.labels import look_at_labels
from loom.diagnosis.layout import look_at_layout
from loom.diagnosis.output import look_at_output
from loom.reports.findings import Finding

__all__ = ["DoctorWarning", "look"]


class DoctorWarning(UserWarning):
    """Something about a training is most likely a mistake; the message begins with the finding's name."""


def look(case: Case) -> list[Finding]:
    """Finds what can be seen without computing anything."""
    looks = (look_at_arrays, look_at_labels, look_at_layout, look_at_output, look_at_batches)
    # Squares of what is very large are infinite, which is large enough.
    with np.errstate(all="ignore"):
        return [found for look_at in looks for found in look_at(case)]
