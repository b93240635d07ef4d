"""Importing loom stays light, and whatever could once be imported from it still can."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import FunctionType

import pytest

import loom

ROOT = Path(__file__).parents[2]
# Every name that modules of loom have listed in a release. Names are added here, not taken away.
RELEASED: dict[str, list[str]] = json.loads((Path(__file__).parent / "public_names.json").read_text())


def modules_after(statement: str) -> set[str]:
    program = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(finished.stdout))


@pytest.fixture(scope="module")
def added_by_loom() -> set[str]:
    return modules_after("import loom") - modules_after("import numpy")


def test_import_loads_little_more_than_numpy(added_by_loom: set[str]) -> None:
    own = {"loom", "loom._forks", "loom._interpreters", "loom._native", "loom._public", "loom.errors"}
    # What Python has built in to tell its interpreters apart.
    builtin = {"__future__", "_interpreters", "_xxsubinterpreters"}
    assert added_by_loom - builtin == own


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
    assert not name.startswith("_") or name == "__version__"


def test_the_table_of_public_names_is_what_the_imports_say() -> None:
    command = [sys.executable, str(ROOT / "tools/public_names.py"), "--check"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout


def test_a_network_that_predicts_loads_no_training() -> None:
    program = "import loom; n = loom.Sequential([loom.nn.Dense(1)], input_shape=2); n.predict([[1.0, 2.0]])"
    loaded = modules_after(program)
    assert "loom.network" in loaded
    assert not loaded & {"loom.callbacks", "loom.training.loop", "loom.tweening", "loom.mesh", "rich"}


@pytest.mark.parametrize("module", RELEASED)
def test_released_names_stay_where_they_were(module: str) -> None:
    found = import_module(module)
    assert found.__doc__
    for name in RELEASED[module]:
        value = getattr(found, name)
        if isinstance(value, (type, FunctionType)):
            assert value.__doc__, name


def test_released_modules_are_attributes() -> None:
    modules = [name.partition(".")[2] for name in RELEASED if name.count(".") == 1]
    program = f"import loom\nfor name in {modules}: getattr(loom, name)"
    assert {f"loom.{name}" for name in modules} <= modules_after(program)


@pytest.mark.parametrize("name", ["gguf", "keras", "llama2c", "onnx", "torch"])
def test_a_program_that_begins_with_a_file_finds_who_reads_its_format(name: str) -> None:
    """Pages say loom.models.onnx.load(path), which needed something else of loom's to have loaded it."""
    program = (
        f"import sys, loom; loom.models.{name}; assert {name!r} not in sys.modules or {name!r} == 'gguf'"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_released_pickles_of_networks_find_what_they_name() -> None:
    # What they were made of when loom.network was one module.
    for name in ("_begin", "_restore"):
        assert callable(pickle.loads(f"cloom.network\n{name}\n.".encode()))


def test_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Netwrok'"):
        _ = loom.Netwrok  # type: ignore[attr-defined]


def test_version_is_the_distribution_s() -> None:
    from importlib.metadata import version

    assert loom.__version__ == version("loom-nn")
