"""Metrics of scikit-learn by name, told of what a network's outputs mean."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.encoding import Named, encode
from loom._settings.logits import OF_LOGITS, OF_MARGINS
from loom._settings.suggestions import shown, unknown
from loom._typing import JSON, ArrayLike
from loom.convert import as_numpy, as_real_array
from loom.errors import ConfigError, DataError, ShapeError
from loom.extras import require

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["PREFIX", "ScikitLearnMetric", "functions", "is_score", "sklearn"]

PREFIX = "sklearn."
"""What names of scikit-learn's metrics begin with."""
# What each function compares the targets with.
_WANTS = {
    name: wanted
    for wanted, names in {
        "classes": (
            "accuracy_score adjusted_mutual_info_score adjusted_rand_score balanced_accuracy_score "
            "cohen_kappa_score completeness_score f1_score fbeta_score fowlkes_mallows_score hamming_loss "
            "homogeneity_score jaccard_score matthews_corrcoef mutual_info_score "
            "normalized_mutual_info_score precision_score rand_score recall_score v_measure_score "
            "zero_one_loss"
        ),
        "probabilities": (
            "brier_score_loss d2_brier_score d2_log_loss_score log_loss roc_auc_score top_k_accuracy_score"
        ),
        # Rows of probabilities, with rows that say which classes are right.
        "indicators": (
            "average_precision_score coverage_error label_ranking_average_precision_score label_ranking_loss"
        ),
        # The same, or what each output is worth.
        "relevances": "dcg_score ndcg_score",
        "margins": "hinge_loss",
        "values": (
            "d2_absolute_error_score d2_pinball_score d2_tweedie_score explained_variance_score max_error "
            "mean_absolute_error mean_absolute_percentage_error mean_gamma_deviance mean_pinball_loss "
            "mean_poisson_deviance mean_squared_error mean_squared_log_error mean_tweedie_deviance "
            "median_absolute_error r2_score root_mean_squared_error root_mean_squared_log_error"
        ),
    }.items()
    for name in names.split()
}
_AVERAGED = ("f1_score", "fbeta_score", "jaccard_score", "precision_score", "recall_score")
"""Those whose default, the score of class 1, scikit-learn refuses for more than two classes."""
_LABELLED = ("d2_brier_score", "brier_score_loss", "d2_log_loss_score", "log_loss", "top_k_accuracy_score")
"""Those that take every class's number, since not all need occur in the targets."""
# Where more is better, although the name does not end in "_score".
_RISING = ("matthews_corrcoef",)


@dataclass(frozen=True)
class ScikitLearnMetric(Named):
    """A metric of scikit-learn; made by `sklearn`, or from a name such as "sklearn.f1_score".

    Args:
        function: The name of the function in `sklearn.metrics`.
        options: What else the function is given.
        loss: What the outputs were trained for, by which single outputs and several labels at once are
            read; training and evaluation say it.

    Raises:
        ConfigError: There is no such function.
    """

    function: str
    options: tuple[tuple[str, Any], ...] = ()
    loss: str | None = None

    def __post_init__(self) -> None:
        if self.function not in _WANTS:
            raise unknown("scikit-learn metric", self.function, _WANTS)

    @property
    def name(self) -> str:
        """What the metric is called in logs and results: "f1_score", "f1_score_macro", "fbeta_score_2"."""
        told = [str(value) for _, value in self.options if isinstance(value, (str, int, float))]
        return "_".join([self.function, *told])

    def to_config(self) -> JSON:
        """Returns the name alone, or the name with its options."""
        name = PREFIX + self.function
        return {name: encode(dict(self.options))} if self.options else name

    @classmethod
    def from_config(cls, config: str | Mapping[str, Any]) -> Self:
        """Builds the metric from what `to_config` returned.

        Args:
            config: The name after "sklearn.", or a mapping from it to the options.

        Returns:
            The metric.

        Raises:
            ConfigError: There is no such metric.
        """
        entries = [(config, {})] if isinstance(config, str) else list(config.items())
        if len(entries) != 1 or not isinstance(entries[0][1], Mapping):
            raise ConfigError(f"expected a metric, or one metric with its options, got {shown(config)}")
        name, options = entries[0]
        return cls(str(name).removeprefix(PREFIX), tuple(options.items()))

    def under(self, loss: str) -> Self:
        """Returns the metric for outputs that were trained for a loss.

        Args:
            loss: The name of the loss.

        Returns:
            The metric.

        Raises:
            MissingExtraError: scikit-learn is not installed.
            ConfigError: The installed version has no such metric, or the metric no such option.
        """
        self._function()
        return replace(self, loss=loss)

    def __call__(self, outputs: ArrayLike, targets: ArrayLike) -> float:
        """Computes the metric.

        Metrics of classes get the class of the largest output, or for a single output whether it is above
        the threshold: 0 where it is a logit, else 0.5. Those of probabilities get the softmax, or for
        single outputs the logistic function, of logits, and probabilities as they are; outputs are
        probabilities if all of them can be (see `ClassificationReport.of`), but single ones never under
        losses whose outputs are logits (`losses.decides_at_zero`). Where each output is a label of its own,
        that is where targets of the outputs' shape hold zeros and ones that do not sum to 1 in every row, or
        under such a loss, each is decided by itself.

        Beyond two classes, `average` is "macro" and `multi_class` "ovr" where they are not given.

        Args:
            outputs: (rows, ...) what the network gave.
            targets: (rows, ...) what was wanted.

        Returns:
            The metric over all rows; NaN where some row has no answer, because an output is NaN, or the
            largest infinite, or because a value is infinite.

        Raises:
            MissingExtraError: scikit-learn is not installed.
            ConfigError: The metric has no such option, or gives several numbers.
            DataError: scikit-learn refuses these outputs or targets.
            ShapeError: They do not fit together.
        """
        function = self._function()
        given = as_real_array(outputs, "float64", what="outputs")
        if np.isnan(given).any():
            return float("nan")
        right, answer, defaults = self._arguments(
            np.asarray(given, np.float64), as_numpy(targets, what="targets")
        )
        if not np.isfinite(answer).all() or (answer.dtype.kind == "i" and answer.min() < 0):
            return float("nan")
        taken = inspect.signature(function).parameters
        options = {name: value for name, value in defaults.items() if name in taken}
        try:
            found = function(right, answer, **{**options, **dict(self.options)})
        except (TypeError, ValueError) as error:
            raise DataError(f"scikit-learn's {self.function}: {error}") from error
        if np.ndim(found) or isinstance(found, tuple):
            raise ConfigError(
                f"{self.name} gives several numbers; choose an average, such as average='macro'"
            )
        return float(found)

    def _function(self) -> Callable[..., Any]:
        library: ModuleType = require("sklearn.metrics", extra="analysis", purpose=f"the metric {self.name}")
        function: Callable[..., Any] | None = getattr(library, self.function, None)
        if function is None:
            raise ConfigError(f"the installed version of scikit-learn has no {self.function}")
        # The first two are what it compares.
        options = list(inspect.signature(function).parameters)[2:]
        for key, _ in self.options:
            if key not in options:
                raise unknown(f"{self.function} option", key, options)
        return function

    def _arguments(
        self, outputs: NDArray[np.float64], targets: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], dict[str, Any]]:
        """What the function compares, and the options that scikit-learn's own defaults do not suit."""
        from loom.reports.outputs import class_table, decide

        wants = _WANTS[self.function]
        if wants == "values" or (wants == "relevances" and outputs.shape == targets.shape):
            return *_values(outputs, targets), {}
        if self.loss in OF_MARGINS:
            # Theirs are -1 and 1.
            targets = (targets > 0).astype(np.int64)
        if self._has_labels(outputs, targets):
            return self._of_labels(outputs, targets)
        table = class_table(outputs, targets, what=("outputs", "targets"))
        single = table.scores.shape[1] == 1
        logits = True if single and self._takes_logits() else None
        found = decide(table.scores, logits, what="outputs")
        classes = found.probabilities.shape[1]
        known = {"labels": list(range(classes))}
        if wants == "classes":
            averaged = self.function in _AVERAGED and classes > 2
            return table.labels, found.predicted, {"average": "macro"} if averaged else {}
        if wants == "margins":
            if classes > 2:
                return table.labels, table.scores, known
            scores = table.scores if found.logits or not single else 2.0 * table.scores - 1.0
            with np.errstate(invalid="ignore"):
                margins = scores[:, -1] - (0.0 if single else scores[:, 0])
            return table.labels, margins, known
        # scikit-learn wants sums that are 1 to more places than float32 has.
        likely = found.probabilities / found.probabilities.sum(axis=1, keepdims=True)
        if wants != "probabilities" and (classes > 2 or self.function != "average_precision_score"):
            return np.eye(classes, dtype=np.int64)[table.labels], likely, {}
        options = known if self.function in _LABELLED else {}
        if classes == 2:
            return table.labels, likely[:, 1], options
        return table.labels, likely, options or {"multi_class": "ovr", **known}

    def _takes_logits(self) -> bool:
        """Whether outputs are scores on both sides of zero."""
        return self.loss in OF_LOGITS

    def _has_labels(self, outputs: NDArray[np.float64], targets: NDArray[Any]) -> bool:
        """Whether each output is a label of its own, of which several can be right."""
        if outputs.shape != targets.shape or outputs.ndim != 2 or outputs.shape[1] == 1:
            return False
        if self._takes_logits() or self.loss in ("cross_entropy", "focal", "nll"):
            return self._takes_logits()
        return bool(np.isin(targets, (0, 1)).all() and (targets.sum(axis=1) != 1).any())

    def _of_labels(
        self, outputs: NDArray[np.float64], targets: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any], dict[str, Any]]:
        from loom.reports.outputs import logistic

        wants = _WANTS[self.function]
        if wants == "margins" or (wants == "probabilities" and self.function != "roc_auc_score"):
            raise DataError(f"{self.function} is of one class in each row, not of several labels at once")
        right = (targets > 0.5).astype(np.int64)
        logits = self._takes_logits() or outputs.min() < 0.0 or outputs.max() > 1.0
        if wants == "classes":
            answers = (outputs > (0.0 if logits else 0.5)).astype(np.int64)
            return right, answers, {"average": "macro"} if self.function in _AVERAGED else {}
        return right, logistic(outputs) if logits else outputs, {}


def sklearn(function: str, **options: Any) -> ScikitLearnMetric:  # noqa: ANN401 - the function's own options
    """Returns a metric of scikit-learn, for `metrics=` of `TrainingConfig` and `evaluate`.

    Without options its name will do, too: `metrics=["accuracy", "sklearn.f1_score"]`. How it reads outputs
    is told at `ScikitLearnMetric.__call__`. It needs the extra "analysis".

    Args:
        function: The name of the function in `sklearn.metrics`.
        **options: What else the function is given, such as `average="macro"`.

    Returns:
        The metric; called with outputs and targets it returns a float.

    Raises:
        ConfigError: There is no such metric; the message suggests the nearest.

    Examples:
        >>> metric = loom.metrics.sklearn("f1_score", average="micro")
        >>> metric.name, metric([[0.9, 0.1], [0.2, 0.8]], [0, 0])
        ('f1_score_micro', 0.5)
    """
    return ScikitLearnMetric(str(function).removeprefix(PREFIX), tuple(options.items()))


def functions() -> list[str]:
    """Returns the name of every metric of scikit-learn that can be used, sorted."""
    return sorted(_WANTS)


def is_score(name: str) -> bool:
    """Returns whether a log is named after a metric of scikit-learn of which more is better."""
    function = next((known for known in sorted(_WANTS, key=len, reverse=True) if name.startswith(known)), "")
    return function.endswith("_score") or function in _RISING


def _values(
    outputs: NDArray[np.float64], targets: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    wanted = np.asarray(as_real_array(targets, "float64", what="targets"), np.float64)
    if outputs.shape not in (wanted.shape, (*wanted.shape, 1)):
        raise ShapeError(f"outputs have shape {outputs.shape} but targets {wanted.shape}")
    if not outputs.size:
        raise DataError("a metric of no rows is undefined")
    return wanted.reshape(len(wanted), -1), outputs.reshape(len(outputs), -1)
