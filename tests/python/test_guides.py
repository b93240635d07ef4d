"""The pages about what is inside name files and functions that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
LINK = re.compile(r"\[([^\]]+)\]\(([^)#:\s]+)\)")
DEFINED = r"\b(?:fn|struct|enum|trait|type|mod|macro_rules!|def|class)\s+{}\b"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_pages_lead_to_is_there(page: Path) -> None:
    for text, target in LINK.findall(page.read_text()):
        path = (page.parent / target).resolve()
        assert path.exists(), f"{page.name} leads to {target}, which does not exist"
        # A name in code that leads to a source file is defined in it.
        code = re.fullmatch(r"`([\w.:]+)`", text)
        if code and path.suffix in (".rs", ".py") and code[1] != path.name:
            names = re.split(r"::|\.", code[1])
            source = path.read_text()
            for name in names:
                found = re.search(DEFINED.format(re.escape(name)), source) or re.search(
                    rf"\bimpl\b[^{{]*\b{re.escape(name)}\b", source
                )
                assert found, f"{page.name}: {path.name} does not define {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_folders_that_pages_name_are_there(page: Path) -> None:
    for folder in re.findall(r"`((?:rust|python|tests|benches|tools|docs)/[\w./-]*/)`", page.read_text()):
        assert (ROOT / folder).is_dir(), f"{page.name} names {folder}, which does not exist"


def test_the_architecture_is_followed_from_python_to_the_kernel() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    targets = {target for _, target in LINK.findall(text)}
    for part in (
        "python/loom/network/",
        "rust/loom-python/",
        "network/",
        "program/",
        "cpu/",
        "gpu/",
        "ops/",
        "matrix/",
    ):
        assert any(part in target for target in targets), part
