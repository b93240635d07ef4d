"""The examples in the documentation run and give what they say."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import numpy as np
import pytest

import loom

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(loom.__path__, "loom.") if module.name != "loom._native"
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    module = import_module(name)
    results = doctest.testmod(module, extraglobs={"loom": loom, "nn": loom.nn, "np": np})
    assert results.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    modules = [import_module(name) for name in MODULES if name.startswith("loom.nn.")]
    examples = [example for module in modules for test in finder.find(module) for example in test.examples]
    assert len(examples) >= 10
