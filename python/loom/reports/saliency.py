"""What an output owes to each element of its input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom.reports.base import TabularReport

__all__ = ["Saliency"]


@dataclass(frozen=True, eq=False)
class Saliency(TabularReport):
    """What one output of a network owes to each element of its input, sample by sample.

    Args:
        method: How it was found: "gradient" or "integrated_gradients".
        values: (samples, *input_shape) the attributions, with their signs.
        targets: (samples, axes) the index of the output that is explained.
        outputs: (samples,) that output.
        baseline_outputs: (samples,) what it is for the baseline; NaN of "gradient", which has none.
    """

    method: str
    values: NDArray[np.float64]
    targets: NDArray[np.int64]
    outputs: NDArray[np.float64]
    baseline_outputs: NDArray[np.float64]

    def columns(self) -> dict[str, Any]:
        """Returns a row for each element of each sample: sample, element (its flat index), value."""
        samples, elements = len(self.values), self.values[0].size if len(self.values) else 0
        return {
            "sample": np.repeat(np.arange(samples), elements),
            "element": np.tile(np.arange(elements), samples),
            "value": self.values.reshape(-1),
        }

    def completeness_gaps(self) -> NDArray[np.float64]:
        """Returns for each sample how much of the output's difference from the baseline is not explained.

        Integrated gradients sum up to that difference, but for the error of the sum over steps: where this
        is not small, take more steps. NaN of "gradient".
        """
        total = self.values.reshape(len(self.values), -1).sum(axis=1)
        gaps: NDArray[np.float64] = np.abs(total - (self.outputs - self.baseline_outputs))
        return gaps
