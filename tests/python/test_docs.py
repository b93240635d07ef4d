"""The examples in the documentation run and give what they say."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import numpy as np
import pytest

import loom

MODULES = sorted(
    f"loom.{module.name}" for module in pkgutil.iter_modules(loom.__path__) if module.name != "_native"
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    module = import_module(name)
    results = doctest.testmod(module, extraglobs={"loom": loom, "nn": loom.nn, "np": np})
    assert results.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [example for test in finder.find(loom.nn) for example in test.examples]
    assert len(examples) >= 10
