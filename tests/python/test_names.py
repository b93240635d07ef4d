"""The names that type checkers know are those that settings take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, get_args

import pytest

import loom
from loom import _typing, metrics
from loom.metrics.own import FAMILY as METRICS
from loom.metrics.scikit_learn import PREFIX, functions


@pytest.mark.parametrize(
    ("literal", "known", "resolve"),
    [
        (_typing.ActivationName, loom.activations.FAMILY, loom.activations.resolve),
        (_typing.InitializerName, loom.initializers.FAMILY, loom.initializers.resolve),
        (_typing.LossName, loom.losses.FAMILY, loom.losses.resolve),
        (_typing.MetricName, METRICS, metrics.resolve),
        (_typing.OptimizerName, loom.optimizers.FAMILY, loom.optimizers.resolve),
        (_typing.ScheduleName, loom.schedules.FAMILY, loom.schedules.resolve),
    ],
)
def test_literals_are_the_names_that_need_no_settings(
    literal: object, known: Any, resolve: Callable[[Any], object]
) -> None:
    names = {*getattr(known, "plain", ()), *known.kinds, *getattr(known, "aliases", ())}
    assert set(get_args(literal)) == set(filter(lambda name: resolves(resolve, name), names))


def test_literals_of_scikit_learn_s_metrics_are_those_that_loom_knows_how_to_ask() -> None:
    known = [PREFIX + name for name in functions()]
    assert list(get_args(_typing.ScikitLearnMetricName)) == known


def resolves(resolve: Callable[[Any], object], name: str) -> bool:
    try:
        resolve(name)
    except (loom.ConfigError, TypeError):
        return False
    return True


def test_numeric_types_are_the_engine_s() -> None:
    names: Iterable[str] = get_args(_typing.NumericTypeName)
    assert list(names) == [entry.name for entry in loom.dtypes()]
