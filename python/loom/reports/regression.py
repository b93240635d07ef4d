"""How near a model's numbers are to the right ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import whole
from loom._typing import ArrayLike
from loom.errors import ConfigError, DataError, ShapeError
from loom.reports.base import TabularReport
from loom.reports.classification import inputs_of
from loom.reports.outputs import doubles

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["RegressionErrors", "RegressionReport"]


@dataclass(frozen=True, eq=False)
class RegressionErrors(TabularReport):
    """The answers that are farthest off, with their inputs, the farthest first.

    Args:
        rows: (errors,) which samples.
        inputs: (errors, ...) what the model was shown.
        outputs: (errors,) which output.
        expected: (errors,) what was right.
        predicted: (errors,) the answers.
        names: The names of the outputs.
    """

    rows: NDArray[np.int64]
    inputs: NDArray[np.float64]
    outputs: NDArray[np.int64]
    expected: NDArray[np.float64]
    predicted: NDArray[np.float64]
    names: tuple[str, ...]

    def columns(self) -> dict[str, Any]:
        """Returns everything but the inputs, and the errors."""
        return {
            "row": self.rows.tolist(),
            "output": [self.names[output] for output in self.outputs],
            "expected": self.expected.tolist(),
            "predicted": self.predicted.tolist(),
            "error": np.abs(self.expected - self.predicted).tolist(),
        }


@dataclass(frozen=True, eq=False)
class RegressionReport(TabularReport):
    """How near a model's numbers are to the right ones, for each output. Made by `of`.

    An output that is not finite in some row has NaN for its figures. Where what is right never varies,
    R2 is NaN if it was met exactly and minus infinity otherwise; explained variance is NaN if residuals do
    not vary, either, and minus infinity otherwise.

    Args:
        names: The names of the outputs.
        samples: How many rows there were.
        not_finite: (outputs,) in how many rows each was not finite, or what was right was not.
        r2: (outputs,) 1 - (sum of squared residuals) / (sum of squares around the mean of what was right).
        explained_variance: (outputs,) 1 - (variance of residuals) / (variance of what was right).
        mean_absolute_error: (outputs,) in the output's own unit, as all errors.
        root_mean_squared_error: (outputs,)
        median_absolute_error: (outputs,)
        max_error: (outputs,) the largest absolute error.
        expected: (samples, outputs) what was right.
        predicted: (samples, outputs) the answers.
    """

    names: tuple[str, ...]
    samples: int
    not_finite: NDArray[np.int64]
    r2: NDArray[np.float64]
    explained_variance: NDArray[np.float64]
    mean_absolute_error: NDArray[np.float64]
    root_mean_squared_error: NDArray[np.float64]
    median_absolute_error: NDArray[np.float64]
    max_error: NDArray[np.float64]
    expected: NDArray[np.float64]
    predicted: NDArray[np.float64]

    @classmethod
    def of(cls, outputs: ArrayLike, targets: ArrayLike, names: Sequence[str] | None = None) -> Self:
        """Compares outputs with what was right.

        Args:
            outputs: (rows, ...) the answers; what follows the first axis is taken as one row of outputs.
            targets: (rows, ...) what was right; (rows,) will do where there is one output.
            names: The names of the outputs; their numbers where None.

        Returns:
            The report.

        Raises:
            DataError: There are no samples.
            ShapeError: The two do not fit together.
            DTypeError: They are no real numbers.
            ConfigError: There are not as many names as outputs.

        Examples:
            >>> report = loom.analysis.RegressionReport.of([1.0, 2.0, 4.0], [1.0, 2.0, 3.0])
            >>> report.r2.tolist(), report.max_error.tolist(), report.residuals.tolist()
            ([0.5], [1.0], [[0.0], [0.0], [-1.0]])
        """
        given, wanted = (
            np.atleast_1d(doubles(values, what))
            for values, what in ((outputs, "outputs"), (targets, "targets"))
        )
        if given.size == 0 or wanted.size == 0:
            raise DataError(f"outputs {given.shape} and targets {wanted.shape} are empty; give samples")
        if given.shape not in (wanted.shape, (*wanted.shape, 1)) and wanted.shape != (*given.shape, 1):
            raise ShapeError(f"outputs have shape {given.shape} but targets {wanted.shape}")
        # Copies: a report is of what was compared, whatever becomes of the arrays.
        predicted, expected = (np.array(values).reshape(len(values), -1) for values in (given, wanted))
        called = tuple(map(str, range(predicted.shape[1]) if names is None else names))
        if len(called) != predicted.shape[1]:
            raise ConfigError(f"names must name each of the {predicted.shape[1]} outputs, got {len(called)}")
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            residuals = expected - predicted
            size = np.abs(residuals)
            squares, about_mean = _variation(expected), _variation(residuals)
            finite = np.isfinite(residuals)
            figures = {
                "r2": 1.0 - np.sum(residuals**2, axis=0) / squares,
                "explained_variance": 1.0 - about_mean / squares,
                "mean_absolute_error": size.mean(axis=0),
                "root_mean_squared_error": np.sqrt(np.mean(residuals**2, axis=0)),
                "median_absolute_error": np.median(size, axis=0),
                "max_error": size.max(axis=0),
            }
        complete = finite.all(axis=0)
        return cls(
            names=called,
            samples=len(expected),
            not_finite=np.sum(~finite, axis=0),
            **{name: np.where(complete, figure, np.nan) for name, figure in figures.items()},
            expected=expected,
            predicted=predicted,
        )

    @property
    def residuals(self) -> NDArray[np.float64]:
        """(samples, outputs) what was right less the answers."""
        with np.errstate(invalid="ignore"):
            return self.expected - self.predicted

    def top_errors(self, x: ArrayLike, n: int = 10) -> RegressionErrors:
        """Returns the answers that are farthest off, with what was shown; those that are NaN come first.

        Args:
            x: (rows, ...) the inputs that the outputs are of.
            n: How many at most.

        Returns:
            The errors; exact answers are none.

        Raises:
            ShapeError: There are not as many inputs as the report has rows.
        """
        n = whole("top_errors", "n", n, least=1)
        size = np.abs(self.residuals).reshape(-1)
        size = np.where(np.isnan(size), np.inf, size)
        places = np.argsort(-size, kind="stable")[:n]
        places = places[size[places] > 0.0]
        rows, outputs = np.divmod(places, len(self.names))
        return RegressionErrors(
            rows=rows,
            inputs=inputs_of(x, rows, self.samples),
            outputs=outputs,
            expected=self.expected[rows, outputs],
            predicted=self.predicted[rows, outputs],
            names=self.names,
        )

    def columns(self) -> dict[str, Any]:
        """Returns the outputs and what is said of each."""
        return {
            "output": list(self.names),
            **{
                name: getattr(self, name).tolist()
                for name in (
                    "r2",
                    "explained_variance",
                    "mean_absolute_error",
                    "root_mean_squared_error",
                    "median_absolute_error",
                    "max_error",
                )
            },
        }

    def __repr__(self) -> str:
        return (
            f"RegressionReport({self.samples} samples, {len(self.names)} outputs, mean R2 "
            f"{np.mean(self.r2):.4g}, mean absolute error {np.mean(self.mean_absolute_error):.4g})"
        )


def _variation(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of squares around the mean of each column; exactly 0 where a column never varies."""
    squares = np.sum((values - values.mean(axis=0)) ** 2, axis=0)
    return np.where(np.ptp(values, axis=0) == 0.0, 0.0, squares)
