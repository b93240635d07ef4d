"""Makes the gallery: runs every program of examples/gallery, and writes pages of what it draws and prints.

    python tools/docs/gallery.py [NAME ...]

The docstring of a program has its title, what it shows, and the names of its pictures with what is on them.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import os
import runpy
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS, PAGES = ROOT / "examples" / "gallery", ROOT / "docs" / "gallery"
ORDER = (
    "handwriting",
    "table",
    "rows",
    "forecast",
    "transfer",
    "masks",
    "rate",
    "reasons",
    "weights",
    "packed",
    "targets",
)
"""From what is asked most to what is asked least."""
INDEX = """# Gallery

Whole programs of some thirty lines, each with what it draws and prints; `make gallery` runs all in seconds.
On the CPU they print the same on every machine, for loom computes the same bits. The programs are in
`examples/gallery/`.
"""


@dataclass(frozen=True)
class Example:
    """A program of the gallery, read.

    Args:
        name: The name of its file, without the ending.
        title: Its title.
        text: What it shows.
        pictures: What is on each of its pictures, by the name of the file.
        code: The program below its docstring.
    """

    name: str
    title: str
    text: str
    pictures: dict[str, str]
    code: str


def read(path: Path) -> Example:
    """Reads a program.

    Args:
        path: The file.

    Returns:
        What it is made of.
    """
    source = path.read_text(encoding="utf-8")
    module = ast.parse(source)
    told = ast.get_docstring(module) or ""
    title, text, pictures = told.split("\n\n")
    named = dict(line.split(": ", 1) for line in pictures.splitlines())
    # Functions have docstrings, too: only the tree tells where the program's own ends.
    code = "".join(source.splitlines(keepends=True)[module.body[0].end_lineno :]).lstrip("\n")
    return Example(path.stem, title.rstrip("."), text, named, code)


def run(path: Path, folder: Path) -> str:
    """Runs a program in a folder, which gets its pictures.

    Args:
        path: The program.
        folder: The folder.

    Returns:
        What it prints.
    """
    before, told = Path.cwd(), io.StringIO()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(told):
            runpy.run_path(str(path), run_name="__main__")
    finally:
        os.chdir(before)
    return told.getvalue()


def page(example: Example, printed: str) -> str:
    """Returns the page of a program.

    Args:
        example: The program.
        printed: What it prints.
    """
    pictures = "\n".join(f"![{alt}]({name})\n" for name, alt in example.pictures.items())
    return (
        f"# {example.title}\n\n{example.text}\n\n{pictures}\n## The program\n\n"
        f"`examples/gallery/{example.name}.py`:\n\n```py\n{example.code}```\n\n"
        f"It prints:\n\n```text\n{printed}```\n"
    )


def index(examples: list[Example]) -> str:
    """Returns the page that leads to all.

    Args:
        examples: The programs.
    """
    entries = [
        f"## [{one.title}]({one.name}.md)\n\n{one.text}\n\n"
        f"[![{next(iter(one.pictures.values()))}]({next(iter(one.pictures))})]({one.name}.md)\n"
        for one in examples
    ]
    return "\n".join([INDEX, *entries])


def main() -> None:
    """Runs the programs and writes the pages."""
    parser = argparse.ArgumentParser(description="Makes the gallery.")
    parser.add_argument("names", nargs="*", default=ORDER, help="programs to run; all where none is named")
    PAGES.mkdir(exist_ok=True)
    for name in parser.parse_args().names:
        path = PROGRAMS / f"{name}.py"
        with tempfile.TemporaryDirectory() as folder:
            printed = run(path, Path(folder))
            for picture in Path(folder).glob("*.svg"):
                shutil.copy(picture, PAGES)
        (PAGES / f"{name}.md").write_text(page(read(path), printed), encoding="utf-8")
    (PAGES / "index.md").write_text(
        index([read(PROGRAMS / f"{name}.py") for name in ORDER]), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
