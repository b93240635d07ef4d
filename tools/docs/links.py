"""Pages lead to files beside docs/; on the site those links are text, what it shows of them comes along."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]+)(#[^)\s]*)?\)")
CHANGELOG = "changelog.md"
"""The page that shows the changelog of the repository, whose links begin beside docs/."""
PICTURE = "rust/loom/docs/architecture.svg"


def on_files(files: Any, *, config: Any) -> Any:  # noqa: ANN401 - MkDocs's own classes
    """Adds the picture that the crate's documentation shows, too."""
    files.append(File.generated(config, Path(PICTURE).name, abs_src_path=str(ROOT / PICTURE)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:  # noqa: ANN401 - MkDocs's page
    """Takes the links away that lead out of docs/ to what is there; all others are MkDocs's to check."""
    folder = Path(page.file.abs_src_path).parent
    if page.file.src_uri == CHANGELOG:
        told = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        markdown = LINK.sub(lambda found: found[0] if "](docs/" in found[0] else found[1], told)
        markdown = markdown.replace("](docs/", "](")

    def inside(found: re.Match[str]) -> str:
        target = (folder / found[2]).resolve()
        return found[1] if target.exists() and not target.is_relative_to(ROOT / "docs") else found[0]

    return LINK.sub(inside, markdown).replace(f"../{PICTURE}", Path(PICTURE).name)
