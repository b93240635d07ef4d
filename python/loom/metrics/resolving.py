"""What an entry of `metrics=` means, and what it is called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

from numpy.typing import NDArray

from loom._settings.encoding import Tagged
from loom._settings.suggestions import unknown
from loom._typing import MetricName, ScikitLearnMetricName
from loom.errors import ConfigError
from loom.metrics.own import FAMILY, Metric
from loom.metrics.scikit_learn import PREFIX, ScikitLearnMetric, functions

__all__ = ["MetricFunction", "MetricLike", "in_engine", "name_of", "names", "resolve", "resolve_all"]

MetricFunction: TypeAlias = "Callable[[NDArray[Any], NDArray[Any]], float]"
MetricLike: TypeAlias = "MetricName | ScikitLearnMetricName | Metric | MetricFunction | Mapping[str, Any]"


def resolve(value: MetricLike) -> Metric | MetricFunction:
    """Returns the metric that an entry of `metrics=` means.

    Args:
        value: A name, a metric, its JSON form, or a callable that takes outputs
            and targets and returns a float. A name of scikit-learn's begins with "sklearn."

    Returns:
        The metric, or the callable as it is.

    Raises:
        ConfigError: The name is unknown; the message suggests the nearest.
    """
    given: object = value
    if isinstance(given, type) and issubclass(given, Metric):
        raise ConfigError(f"metrics are objects or names: give {given.__name__}(), got the class")
    # Layers and the like only look as though they were functions.
    if callable(value) and not isinstance(value, Tagged):
        if str(getattr(value, "__module__", "")).startswith("sklearn."):
            # Those take the target first, and classes or probabilities instead of scores.
            name = getattr(value, "__name__", "")
            raise ConfigError(
                f'functions of scikit-learn go by name, "{PREFIX}{name}", which hands them what they take'
            )
        return value
    kind = next(iter(value), None) if isinstance(value, Mapping) else value
    if isinstance(kind, str) and kind.startswith(PREFIX):
        return ScikitLearnMetric.from_config(value)
    if isinstance(kind, str) and kind in functions():
        raise unknown("metric", kind, [*names(), f"{PREFIX}{kind}"])
    return cast(Metric, FAMILY.resolve(value))  # never a bare name: every metric is a class


def resolve_all(values: Iterable[MetricLike], loss: str | None = None) -> tuple[Metric | MetricFunction, ...]:
    """Returns what each entry of `metrics=` means; see `resolve`.

    Args:
        values: The entries.
        loss: The name of the loss that the outputs are trained for, which metrics of scikit-learn read them
            by; None where they are not used yet.
    """
    found = [resolve(value) for value in values]
    if loss is not None:
        found = [metric.under(loss) if isinstance(metric, ScikitLearnMetric) else metric for metric in found]
    return tuple(found)


def in_engine(metric: MetricLike) -> bool:
    """Returns whether the engine computes a metric from batches as they come."""
    return isinstance(metric, Metric) and metric.in_engine


def name_of(metric: Metric | MetricFunction) -> str:
    """Returns what a metric is called in logs and results."""
    if isinstance(metric, Metric | ScikitLearnMetric):
        return metric.name
    return getattr(metric, "__name__", type(metric).__name__)


def names() -> list[str]:
    """Returns the name of every metric of loom's own, sorted."""
    return FAMILY.names()
