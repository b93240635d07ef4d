"""Writes what lists the public names of loom a second time, so that each is written by hand in one place.

- python/loom/callbacks/__init__.py has the names that the files beside it list in `__all__`; those files
  alone are written by hand.
- python/loom/__init__.py, the one list of loom's own public names, gets the callbacks among them. Type
  checkers and editors read it. At run time its imports would load everything at once, so loom looks names
  up in a table instead, and imports what is asked for.
- python/loom/_public.py is that table.

Usage: public_names.py [--check]. With --check nothing is written; exits with 1 if a file is not what it
would be.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "python" / "loom"


def public_names(source: str) -> dict[str, str]:
    """Reads the public names from the source of loom's `__init__.py`.

    Args:
        source: The source.

    Returns:
        The module that each name is imported from; the name's own, "loom", for modules.
    """
    return {
        alias.asname: str(node.module)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        # What is imported as itself is for others, by the rule of type checkers.
        if alias.asname == alias.name
    }


def table(names: dict[str, str]) -> str:
    """Writes the table as a Python module."""
    entries = []
    for module in sorted(set(names.values())):
        held = " ".join(sorted(name for name in names if names[name] == module))
        entry = f'        "{module}": "{held}",'
        if len(entry) <= 110:
            entries.append(entry)
        else:
            lines = textwrap.wrap(held, 95)
            texts = [f'            "{line} "' for line in lines[:-1]] + [f'            "{lines[-1]}"']
            entries.append("\n".join([f'        "{module}": (', *texts, "        ),"]))
    return "\n".join(
        [
            '"""Where each public name stands; tools/public_names.py writes it from __init__.py."""',
            "",
            "HOMES = {",
            "    name: module",
            "    for module, names in {",
            *entries,
            "    }.items()",
            "    for name in names.split()",
            "}",
            "",
        ]
    )


def listed(source: str) -> list[str]:
    """Reads `__all__` from the source of a module."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def callbacks_in(source: str) -> list[str]:
    """Returns the public classes of a module that derive from `Callback`."""
    public = listed(source)
    return [
        node.name
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef)
        and node.name in public
        and any(ast.unparse(base) == "Callback" for base in node.bases)
    ]


def files_of(folder: Path) -> dict[str, str]:
    """Returns the source of every file in a folder that is not for the folder alone, by its name."""
    return {
        file.stem: file.read_text(encoding="utf-8")
        for file in sorted(folder.glob("*.py"))
        if not file.stem.startswith("_")
    }


def folder_init(source: str, package: str, files: dict[str, str]) -> str:
    """Writes a folder's `__init__.py`: the docstring that it has, and the public names of its files."""
    docstring = ast.get_source_segment(source, ast.parse(source).body[0])
    imports = {name: listed(text) for name, text in files.items()}
    everything = sorted((name for names in imports.values() for name in names), key=_in_all)
    return "\n".join(
        [
            str(docstring),
            "",
            "from typing import TYPE_CHECKING",
            "",
            f"from {package.partition('.')[0]}._settings.spellings import attribute_error",
            *(
                f"from {package}.{name} import {', '.join(sorted(names, key=str.lower))}"
                for name, names in imports.items()
            ),
            "",
            "__all__ = [",
            *(f'    "{name}",' for name in everything),
            "]",
            "",
            "if not TYPE_CHECKING:",
            "",
            "    def __getattr__(name: str) -> object:",
            "        raise attribute_error(__name__, name, __all__)",
            "",
        ]
    )


def with_callbacks(source: str, names: list[str]) -> str:
    """Adds callbacks to loom's `__init__.py` that its list of public names does not have yet."""
    lines = source.split("\n")
    start = "    from loom.callbacks import "
    places = [place for place, line in enumerate(lines) if line.startswith(start)]
    wanted = {*(lines[place] for place in places), *(f"{start}{name} as {name}" for name in names)}
    lines[places[0] : places[-1] + 1] = sorted(wanted, key=str.lower)
    return "\n".join(lines)


def _in_all(name: str) -> tuple[bool, str]:
    # The order that ruff wants: constants, then classes.
    return not name.isupper(), name


def wanted() -> dict[Path, str]:
    """Returns what each file is to hold."""
    callbacks = files_of(PACKAGE / "callbacks")
    package, folder = PACKAGE / "__init__.py", PACKAGE / "callbacks" / "__init__.py"
    named = [name for text in callbacks.values() for name in callbacks_in(text)]
    top = with_callbacks(package.read_text(encoding="utf-8"), named)
    return {
        folder: folder_init(folder.read_text(encoding="utf-8"), "loom.callbacks", callbacks),
        package: top,
        PACKAGE / "_public.py": table(public_names(top)),
    }


def main(arguments: list[str]) -> int:
    """Writes the files, or checks them."""
    outdated = [
        (file, text)
        for file, text in wanted().items()
        if not file.is_file() or file.read_text(encoding="utf-8") != text
    ]
    if arguments == ["--check"]:
        for file, _ in outdated:
            print(f"{file.relative_to(PACKAGE)} is not what the modules say: run tools/public_names.py")
        if not outdated:
            print("up to date")
        return int(bool(outdated))
    for file, text in outdated:
        file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
