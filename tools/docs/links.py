"""Pages lead to files beside docs/; on the site those are text, or the page of the same subject."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:  # noqa: ANN401 - MkDocs's page
    """Takes the links away that lead out of docs/ to a file that is there; all others are MkDocs's to check."""
    folder = Path(page.file.abs_src_path).parent

    def inside(found: re.Match[str]) -> str:
        target = (folder / found[2]).resolve()
        return found[1] if target.exists() and not target.is_relative_to(ROOT / "docs") else found[0]

    return LINK.sub(inside, markdown)
