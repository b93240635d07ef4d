"""The check of the Rust tree's floors finds what it is there to find."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tools" / "floors"))

import rust

SETTINGS = """
[crates]
small = ["src"]

[small]
ground = ["ground"]
above = ["engine", "other"]
top = ["network"]
"""

# Nothing of this is wrong.
GOOD = {
    "lib.rs": "mod engine;\nmod ground;\nmod network;\nmod other;\npub use network::Network;\n",
    "ground.rs": "//! See [`crate::network`].\npub struct Number; // crate::network::Network\n",
    "engine/mod.rs": "mod step;\npub use step::Step;\n",
    "engine/step.rs": "use crate::ground::Number;\npub struct Step(Number);\n",
    "other.rs": 'use super::ground::Number;\nconst TEXT: &str = "crate::network::Network";\n',
    "network.rs": "use crate::engine::Step;\npub struct Network(Step);\n",
}


def found(folder: Path, capsys: pytest.CaptureFixture[str], **changed: str) -> str:
    """What the check says of the good tree with some of its files changed; nothing where it is good."""
    for name, text in (
        GOOD | {name.replace("__", "/") + ".rs": text for name, text in changed.items()}
    ).items():
        (folder / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "src" / name).write_text(text)
    (folder / "floors.toml").write_text(SETTINGS)
    failed = rust.main([str(folder / "floors.toml")])
    said = capsys.readouterr().out
    assert failed == (not said.splitlines()[-1].endswith(SOUND))
    return said if failed else ""


SOUND = "0 misplaced, 0 imports upwards, 0 circles of modules, 0 circles of files"


def test_the_tree_stands(capsys: pytest.CaptureFixture[str]) -> None:
    assert rust.main([]) == 0, capsys.readouterr().out


def test_comments_strings_and_imports_downwards_are_fine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not found(tmp_path, capsys)


@pytest.mark.parametrize(
    "text",
    [
        "use crate::network::Network;",
        "use crate::{\n    // of the network\n    network::Network,\n};",
        "use crate::Network;",
        "pub(crate) use super::network::{self as above};",
        "fn f() -> crate::network::Network { todo!() }",
        "mod inner { use super::super::network::Network; }",
        "use crate::engine::Step;",
    ],
)
def test_an_import_upwards_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    said = found(tmp_path, capsys, ground=f"pub struct Number;\n{text}\n")
    assert "ground.rs:" in said
    assert "which stands above it" in said


def test_an_import_of_a_neighbour_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = found(tmp_path, capsys, other="use crate::engine::Step;\n")
    assert "other.rs:1: other (above) imports engine::Step, which stands beside it (above)" in said


def test_a_circle_of_modules_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = found(tmp_path, capsys, ground="pub struct Number(crate::network::Network);\n")
    assert "circle: engine, ground, network" in said


def test_a_circle_of_files_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parent = "mod step;\npub use step::Step;\npub struct Plan(Step);\n"
    child = "use super::Plan;\npub struct Step(Vec<Plan>);\n"
    said = found(tmp_path, capsys, engine__mod=parent, engine__step=child)
    assert "circle of 2: engine, engine::step" in said
    assert "engine/step.rs:1 -> engine (engine::Plan)" in said


def test_a_parent_that_only_hands_on_is_in_no_circle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = "mod step;\nmod plan;\npub use plan::Plan;\npub use step::Step;\n"
    child = "use super::Plan;\npub struct Step(Vec<Plan>);\n"
    assert not found(
        tmp_path, capsys, engine__mod=parent, engine__step=child, engine__plan="pub struct Plan;\n"
    )


def test_tests_may_import_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ground = """
pub struct Number;
#[cfg(test)]
mod tests {
    use crate::network::Network;
}
#[cfg(test)]
mod more;
#[cfg(all(test, feature = "gpu"))]
use crate::engine::Step;
"""
    assert not found(tmp_path, capsys, ground=ground, ground__more="use crate::network::Network;\n")


def test_a_module_without_a_floor_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lib = GOOD["lib.rs"] + "mod cellar;\n"
    assert "cellar stands on no floor" in found(tmp_path, capsys, lib=lib, cellar="")
