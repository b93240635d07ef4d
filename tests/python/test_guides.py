"""The pages about what is inside name files and functions that exist."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import loom

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


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_headings_that_pages_lead_to_are_there(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", page.read_text()):
        path = (page.parent / target).resolve() if target else page
        if path.suffix == ".md":
            assert anchor in anchors(path), f"{page.name} leads to {target}#{anchor}, which does not exist"


def test_the_site_has_every_page() -> None:
    settings = (ROOT / "mkdocs.yml").read_text()
    named = re.findall(r"([\w/-]+\.md)$", settings.split("\nnav:\n")[1], re.MULTILINE)
    assert sorted(named) == sorted(str(page.relative_to(ROOT / "docs")) for page in PAGES[:-2])


def test_the_guide_to_training_names_losses_that_there_are_and_the_settings_that_it_is_about() -> None:
    text = (ROOT / "docs/guides/training.md").read_text()
    rows = text.split("| Targets |")[1].split("\n\n")[0].splitlines()[2:]
    named = [name for row in rows for name in re.findall(r'`"(\w+)"`', row)]
    assert len(named) > 12
    assert set(named) <= set(loom.losses.names())
    elsewhere = {"loss_weights", "shards", "split_moments", "split_gradients", "exchange", "device", "seed"}
    small = {"shuffle", "track_perf", "clip_value", "gradient_noise", "depth_scale", "ignore_findings"}
    small |= {"validation_batch_size", "validation_frequency"}
    for setting in fields(loom.TrainingConfig):
        assert setting.name in elsewhere | small or f"{setting.name}=" in text, setting.name


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "api").glob("*.md")), ids=lambda page: page.name)
def test_the_reference_names_what_there_is(page: Path) -> None:
    for name in re.findall(r"^::: loom\.(\w+)$", page.read_text(), re.MULTILINE):
        assert getattr(loom, name) is not None


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
