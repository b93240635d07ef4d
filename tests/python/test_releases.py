"""What releases are made by: actions that nobody can exchange, and a recipe that installs what loom needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

tomllib = pytest.importorskip("tomllib", reason="TOML is read from Python 3.11 on")
yaml = pytest.importorskip("yaml", reason="the extra yaml is not installed")
ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def manifest(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text())


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_named_by_commit_and_the_same_everywhere(workflow: Path) -> None:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    used = [step["uses"] for job in jobs.values() for step in job["steps"] if "uses" in step]
    told = re.findall(r"uses: (\S+) # v\d+\.\d+\.\d+$", workflow.read_text(), re.MULTILINE)
    assert used
    assert used == told, "every action has its version in a comment"
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", action) for action in used)


def test_an_action_has_one_version() -> None:
    every = {line for path in WORKFLOWS for line in re.findall(r"uses: (\S+ # \S+)", path.read_text())}
    assert len(every) == len({line.partition("@")[0] for line in every})


def test_every_wheel_has_a_free_threaded_one_beside_it() -> None:
    steps = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]["wheels"]["steps"]
    built = [step["with"] for step in steps if step.get("uses", "").startswith("PyO3/maturin-action@")]
    assert [entry.pop("args") for entry in built] == [
        "--release --locked --out dist",
        "--release --locked --out dist -i python3.14t",
    ]
    assert built[0] == built[1]
    features = manifest("rust/loom-python/Cargo.toml")["dependencies"]["pyo3"]["features"]
    lowest = manifest("pyproject.toml")["project"]["requires-python"].removeprefix(">=3.")
    assert f"abi3-py3{lowest}" in features
    # Without it, importing the module would bring the lock back.
    assert "gil_used = false" in (ROOT / "rust/loom-python/src/lib.rs").read_text()


def test_every_change_is_read_as_editors_read_it() -> None:
    """What users' editors tell them of `tests/typing`; mypy is among the steps of `.ci/run`."""
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]
    commands = [step["run"] for step in jobs["editors"]["steps"] if "run" in step]
    assert commands == ["pip install -c constraints.txt basedpyright numpy", "basedpyright"]
    assert "step 'mypy' .venv/bin/mypy" in (ROOT / ".ci/run").read_text()


def test_what_takes_long_runs_every_night() -> None:
    nightly = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text())
    # YAML takes the word for true.
    assert nightly[True]["schedule"]
    commands = [step["run"] for job in nightly["jobs"].values() for step in job["steps"] if "run" in step]
    asked = [command for command in commands if command.startswith("make ")]
    assert [command.split()[1] for command in asked] == [
        "fuzz",
        "soak",
        "sanitize",
        "aarch64",
        "free-threaded",
    ]
    assert asked[0] == "make fuzz MINUTES=10"
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets >= {command.split()[1] for command in asked}
    variables = set(re.findall(r"^(\w+) \?=", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert variables >= {word.partition("=")[0] for command in asked for word in command.split()[2:]}


def test_the_recipe_asks_for_what_the_package_does() -> None:
    recipe = yaml.safe_load((ROOT / "recipe/recipe.yaml").read_text())
    project = manifest("pyproject.toml")["project"]
    wanted = {f"python{project['requires-python']}", *project["dependencies"]}
    assert {name.replace(" ", "") for name in recipe["requirements"]["run"]} == wanted
    built_by = {name.replace(" ", "") for name in recipe["requirements"]["host"]}
    assert built_by >= set(manifest("pyproject.toml")["build-system"]["requires"])
    assert recipe["context"]["version"] == manifest("Cargo.toml")["workspace"]["package"]["version"]
    assert recipe["context"]["name"] == project["name"]


def test_crates_are_published_after_those_they_need() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
    commands = " ".join(step.get("run", "") for step in workflow["jobs"]["crates"]["steps"])
    order = re.findall(r"cargo publish --locked -p ([\w-]+)", commands)
    names = {
        found["package"]["name"]: found
        for found in (
            manifest(f"rust/{folder}/Cargo.toml") for folder in ("loom", "loom-python", "loom-tests")
        )
    }
    assert set(order) == {name for name, found in names.items() if found["package"].get("publish", True)}
    for place, name in enumerate(order):
        needed = {*names[name].get("dependencies", {}), *names[name].get("dev-dependencies", {})}
        assert needed & names.keys() <= set(order[:place])
