"""Writes python/loom/_public.py: where each public name of loom stands.

The list of public names is the imports of python/loom/__init__.py, which type checkers and editors read.
At run time they would load everything at once, so loom looks names up in this table instead, and
imports what is asked for.

Usage: public_names.py [--check]. With --check nothing is written; exits with 1 if the table is not
what the imports say.
"""

from __future__ import annotations

import ast
import sys
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
    lines = [f'    "{name}": "{names[name]}",' for name in sorted(names)]
    return "\n".join(
        [
            '"""Where each public name stands; tools/public_names.py writes it from __init__.py."""',
            "",
            "from __future__ import annotations",
            "",
            "HOMES = {",
            *lines,
            "}",
            "",
        ]
    )


def main(arguments: list[str]) -> int:
    """Writes the table, or checks it."""
    wanted = table(public_names((PACKAGE / "__init__.py").read_text(encoding="utf-8")))
    target = PACKAGE / "_public.py"
    if arguments == ["--check"]:
        current = target.is_file() and target.read_text(encoding="utf-8") == wanted
        print(
            "up to date" if current else "_public.py is not what __init__.py says: run tools/public_names.py"
        )
        return int(not current)
    target.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
