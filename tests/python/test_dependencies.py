"""The page on dependencies names those there are, and what `make` installs is pinned."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

tomllib = pytest.importorskip("tomllib", reason="TOML is read from Python 3.11 on")
ROOT = Path(__file__).parents[2]


def read(path: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / path).read_text())


def rows(section: str) -> dict[str, set[str]]:
    """Of every row of a section's table: its name, and what it is for."""
    text = (ROOT / "docs" / "dependencies.md").read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    found = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]*) \| ([^|]*) \|$", text, re.MULTILINE)
    assert len(found) == len({name for name, *_ in found}), "a name stands twice"
    assert all(reason.strip() and licence.strip() for _, _, reason, licence in found)
    return {name: set(for_what.split(", ")) for name, for_what, _, _ in found}


def python_dependencies() -> dict[str, set[str]]:
    settings = read("pyproject.toml")
    lists = {
        "build": settings["build-system"]["requires"],
        "always": settings["project"]["dependencies"],
        **settings["project"]["optional-dependencies"],
    }
    found = defaultdict(set)
    for what, requirements in lists.items():
        for requirement in requirements:
            found[re.split(r"[^\w.-]", requirement)[0]].add(what)
    del found["loom-nn"]  # Extras of other extras.
    return dict(found)


def test_every_crate_is_listed_with_a_reason() -> None:
    found = defaultdict(set)
    for folder in ("loom", "loom-python", "loom-tests"):
        manifest = read(f"rust/{folder}/Cargo.toml")
        of_tests = {
            asked.removeprefix("dep:") for asked in manifest.get("features", {}).get("unit-tests", [])
        }
        tables = [manifest, *manifest.get("target", {}).values()]
        for table in tables:
            for kind in ("dependencies", "build-dependencies", "dev-dependencies"):
                for name in table.get(kind, {}):
                    tests = kind == "dev-dependencies" or name in of_tests
                    found[name].add("tests" if tests else manifest["package"]["name"])
    assert rows("Rust") == found


def test_the_least_versions_of_crates_are_those_that_are_tested() -> None:
    locked = {(package["name"], package["version"]) for package in read("Cargo.lock")["package"]}
    for folder in ("loom", "loom-python"):
        manifest = read(f"rust/{folder}/Cargo.toml")
        for kind in ("dependencies", "dev-dependencies"):
            for name, wanted in manifest.get(kind, {}).items():
                version = wanted if isinstance(wanted, str) else wanted.get("version")
                if version is None:
                    assert wanted.keys() <= {"workspace", "optional"}, name
                else:
                    assert (name, version) in locked, f"{name} = {version} in the manifest of {folder}"


def test_every_package_is_listed_with_a_reason() -> None:
    assert rows("Python") == python_dependencies()


def test_what_make_installs_has_exact_versions() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()[1:]
    pins = [re.fullmatch(r'([\w.-]+)==[\w.]+; python_version >= "3\.11"', line) for line in lines]
    pinned = {pin and pin[1].lower().replace("_", "-") for pin in pins}
    assert None not in pinned
    assert python_dependencies().keys() - pinned == {"torch", "wandb", "mlflow", "aim"}


def test_licences_of_crates_are_allowed() -> None:
    """Of direct ones; cargo-deny looks at all."""
    allowed = read("deny.toml")["licenses"]["allow"]
    text = (ROOT / "docs" / "dependencies.md").read_text().split("\n## Python\n")[0]
    licences = re.findall(r"^\| `.*\| ([^|]+) \|$", text, re.MULTILINE)
    assert licences
    assert all(any(name in allowed for name in re.split(r" OR |/", licence)) for licence in licences)


def features(*selection: str) -> dict[str, set[str]]:
    """Returns the features that every crate is built with for a selection of packages."""
    tested = ["--features", "loom-nn/unit-tests"]
    command = ["cargo", "tree", "--offline", *selection, *tested, "--format", "{p} [{f}]", "--prefix", "none"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found: dict[str, set[str]] = defaultdict(set)
    for line in shown.splitlines():
        crate, _, listed = line.removesuffix(" (*)").removesuffix("]").partition(" [")
        found[crate] |= set(filter(None, listed.split(",")))
    return found


@pytest.mark.skipif(shutil.which("cargo") is None, reason="needs cargo")
def test_one_build_serves_the_module_and_the_tests() -> None:
    """A feature that only tests ask for would have all below it, loom-nn too, built a second time."""
    everything = features("--workspace", "--edges", "normal,build,dev")
    module = features("--package", "loom-python", "--edges", "normal,build")
    differing = {
        crate: everything[crate] ^ asked for crate, asked in module.items() if everything[crate] != asked
    }
    assert not differing, f"ask for these in rust/loom-python/Cargo.toml, too: {differing}"


def test_every_extra_stands_in_the_readme() -> None:
    table = (ROOT / "README.md").read_text().split("\n| extra | for |\n")[1].split("\n\n")[0]
    told = {name for row in table.splitlines()[1:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    own = {"dev", "docs", "editors"}
    assert told == read("pyproject.toml")["project"]["optional-dependencies"].keys() - own


def test_what_is_missing_is_asked_for_by_an_extra_that_brings_it() -> None:
    """Every call of `require`: the line for pip that its error gives installs what it wants to import."""
    extras = read("pyproject.toml")["project"]["optional-dependencies"]
    packages = {"sklearn": "scikit-learn", "PIL": "pillow", "prometheus_client": "prometheus-client"}
    packages |= {"tensorboardX": "tensorboardx", "yaml": "pyyaml"}
    asked = set()
    for path in (ROOT / "python/loom").rglob("*.py"):
        for call in re.findall(r"\brequire\(\s*\"([\w.]+)\",\s*extra=\"(\w+)\"", path.read_text()):
            asked.add((call[0].split(".")[0], call[1]))
    assert len(asked) > 15
    for module, extra in asked:
        listed = {re.split(r"[^\w.-]", requirement)[0] for requirement in extras[extra]}
        assert packages.get(module, module) in listed, f"{extra} does not bring {module}"
