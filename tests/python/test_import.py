"""Importing loom stays light: a fresh interpreter loads nothing that it need not."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import loom


def modules_after(statement: str) -> set[str]:
    program = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(finished.stdout))


@pytest.fixture(scope="module")
def added_by_loom() -> set[str]:
    return modules_after("import loom") - modules_after("import numpy")


def test_import_loads_little_more_than_numpy(added_by_loom: set[str]) -> None:
    assert added_by_loom - {"__future__"} == {"loom", "loom._native", "loom.errors"}


@pytest.mark.parametrize("module", ["rich", "matplotlib", "sklearn", "scipy", "difflib", "torch", "jax"])
def test_optional_and_slow_modules_wait(added_by_loom: set[str], module: str) -> None:
    assert module not in added_by_loom


def test_building_a_configuration_needs_no_terminal_or_plot_library() -> None:
    loaded = modules_after("import loom; loom.TrainingConfig(); loom.nn.Dense(3); loom.observers.Recorder()")
    assert not loaded & {"rich", "matplotlib", "sklearn"}


@pytest.mark.parametrize("name", loom.__all__)
def test_every_public_name_loads_and_is_listed(name: str) -> None:
    assert getattr(loom, name) is not None
    assert name in dir(loom)


def test_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Netwrok'"):
        _ = loom.Netwrok  # type: ignore[attr-defined]


def test_version_is_the_distribution_s() -> None:
    from importlib.metadata import version

    assert loom.__version__ == version("loom-nn")
