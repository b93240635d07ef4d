"""The gallery's pages are what its programs draw and print."""

from __future__ import annotations

import ast
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools" / "docs"))
import gallery  # noqa: E402 - the tool that makes the pages

SVG = "{http://www.w3.org/2000/svg}"


def test_every_program_has_its_place() -> None:
    assert sorted(gallery.ORDER) == sorted(path.stem for path in gallery.PROGRAMS.glob("*.py"))
    examples = [gallery.read(gallery.PROGRAMS / f"{name}.py") for name in gallery.ORDER]
    assert (gallery.PAGES / "index.md").read_text() == gallery.index(examples)
    pictures = sorted(name for example in examples for name in example.pictures)
    assert pictures == sorted(path.name for path in gallery.PAGES.glob("*.svg"))


@pytest.mark.parametrize("name", gallery.ORDER)
def test_a_program_prints_and_draws_what_its_page_shows(name: str, tmp_path: Path) -> None:
    path = gallery.PROGRAMS / f"{name}.py"
    example = gallery.read(path)
    # On every instruction set and any number of threads.
    assert gallery.page(example, gallery.run(path, tmp_path)) == (gallery.PAGES / f"{name}.md").read_text()
    assert {picture.name for picture in tmp_path.iterdir()} == set(example.pictures)


@pytest.mark.parametrize("name", gallery.ORDER)
def test_a_page_has_all_of_its_program(name: str) -> None:
    code = (gallery.PAGES / f"{name}.md").read_text().split("```py\n")[1].split("```\n")[0]
    program = (gallery.PROGRAMS / f"{name}.py").read_text()
    assert program.endswith(f'"""\n\n{code}')
    assert code.startswith("import ")
    ast.parse(code)


@pytest.mark.parametrize("picture", sorted((ROOT / "docs").rglob("*.svg")), ids=lambda path: path.name)
def test_pictures_are_small_and_have_a_dark_form(picture: Path) -> None:
    text = picture.read_text()
    assert ET.fromstring(text).tag == f"{SVG}svg"
    assert "@media (prefers-color-scheme: dark)" in text
    assert len(text) < 100_000
