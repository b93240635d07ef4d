"""What the site needs at phone width and on paper: joints in names, readable pictures, one sheet."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
CODE = re.compile(r"<code>(.*?)</code>", re.DOTALL)
JOINT = re.compile(r"(&\w+;)|(?<=\w)([._/=,(\[]+)(?=[\w\"'&.])")
PICTURE = re.compile(r'<p>(<img\b[^>]*\bsrc="([^"]+\.svg)"[^>]*>)</p>')
WIDTH = re.compile(r'<svg\b[^>]*?\bwidth="([\d.]+)(pt|px)?"')
SHEET = "quick_reference.md"
"""The page that is printed on one sheet of paper."""
WIDE = 720
"""From so many pixels on, text in a picture that is shrunk to the width of a phone is too small."""


def width(path: Path) -> float:
    """The width of a picture in pixels, as its first element says."""
    found = WIDTH.search(path.read_text(encoding="utf-8"))
    if found is None:
        message = f"{path} does not say how wide it is; give its <svg> a width"
        raise ValueError(message)
    return float(found[1]) * (4 / 3 if found[2] == "pt" else 1)


def on_page_content(html: str, *, page: Any, files: Any, **_: object) -> str:  # noqa: ANN401 - MkDocs's own classes
    """Says where a line of code in a table may break, which pictures move sideways, and what is one sheet."""
    pictures = {file.url: Path(file.abs_src_path) for file in files.media_files()}

    def joints(code: re.Match[str]) -> str:
        # What is written as an entity, as &quot;, is one character, and holds no joint.
        return f"<code>{JOINT.sub(lambda found: found[1] or f'{found[2]}<wbr>', code[1])}</code>"

    def picture(found: re.Match[str]) -> str:
        path = pictures[posixpath.normpath(posixpath.join(page.url, found[2]))]
        return f'<p class="wide">{found[1]}</p>' if width(path) >= WIDE else found[0]

    html = CELL.sub(lambda cell: CODE.sub(joints, cell[0]), html)
    html = PICTURE.sub(picture, html)
    return f'<div class="sheet">{html}</div>' if page.file.src_uri == SHEET else html
