"""The examples in the documentation run and give what they say."""

from __future__ import annotations

import doctest
import pkgutil
import re
from importlib import import_module
from pathlib import Path

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


@pytest.mark.parametrize(
    "page", sorted(Path(__file__).parents[2].glob("docs/*.md")), ids=lambda page: page.name
)
def test_code_in_pages_runs(page: Path) -> None:
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, str(page), "exec"), names)


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    modules = [import_module(name) for name in MODULES if name.startswith("loom.nn.")]
    examples = [example for module in modules for test in finder.find(module) for example in test.examples]
    assert len(examples) >= 10
