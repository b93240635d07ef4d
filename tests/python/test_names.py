"""The names that type checkers know are those that settings take."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from pathlib import Path
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


def annotations_of(path: str, name: str) -> dict[str, str]:
    """The annotated names of a class as they are written, wherever the class stands in a file."""
    tree = ast.parse((Path(loom.__file__).parent / path).read_text())
    found = next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == name)
    return {
        node.target.id: ast.unparse(node.annotation).replace("losses.", "")
        for node in found.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id != "_"
    }


def test_fit_takes_the_settings_of_training_by_name_as_editors_see_it() -> None:
    wanted = annotations_of("training/config.py", "TrainingConfig")
    assert annotations_of("network/fitting.py", "Settings") == wanted


def resolves(resolve: Callable[[Any], object], name: str) -> bool:
    try:
        resolve(name)
    except (loom.ConfigError, TypeError):
        return False
    return True


def test_numeric_types_are_the_engine_s() -> None:
    names: Iterable[str] = get_args(_typing.NumericTypeName)
    assert list(names) == [entry.name for entry in loom.dtypes()]
