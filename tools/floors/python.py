"""Checks that the modules of python/loom import downwards only, never in circles, and keep to themselves.

The floors stand in python.toml beside this file, from top to bottom. A module may import
from its own folder and from the floors below; nothing from above, and nothing from its
neighbours on the same floor. Every import counts: those inside functions, which only put the
circle off until the function is called, and those under TYPE_CHECKING, too, since a module
whose annotations name what is above cannot be read, typed or moved without it.

What begins with an underscore is for the file that it is defined in: no other reaches for it in an
object.

Usage: python.py [PACKAGE [TABLE]]. Prints what is wrong; exits with 1 if anything is.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
# Before 3.11 pytest and mypy bring the same reader under its older name.
_TOML = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")


class Floor(NamedTuple):
    """A floor: what it is for, and the files and folders that stand on it."""

    name: str
    holds: tuple[str, ...]


class Import(NamedTuple):
    """A module that another one imports, and in which line."""

    module: str
    line: int


Imports = Mapping[str, tuple[Import, ...]]
"""Each module's imports of modules of the same package."""


def read_floors(table: Path) -> list[Floor]:
    """Reads the floors, from top to bottom."""
    entries = _TOML.loads(table.read_text(encoding="utf-8"))["floor"]
    return [Floor(entry["name"], tuple(entry["holds"])) for entry in entries]


def read_imports(package: Path) -> dict[str, tuple[Import, ...]]:
    """Reads which modules of a package import which others of it.

    Args:
        package: Its folder.

    Returns:
        The imports of each module, by its dotted name. `from package import name` is an import of
        the module `package.name` where there is one, otherwise of the package itself.
    """
    files = {_dotted(package, file): file for file in sorted(package.rglob("*.py"))}
    native = {f"{package.name}.{file.name.partition('.')[0]}" for file in package.glob("*.pyi")}
    known = {*files, *native}
    found = {}
    for module, file in files.items():
        tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
        home = module if file.name == "__init__.py" else module.rpartition(".")[0]
        named = (
            Import(_nearest(name, known), node.lineno)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Import, ast.ImportFrom, ast.Call))
            for name in _named(node, home)
            if name.partition(".")[0] == package.name
        )
        found[module] = tuple(dict.fromkeys(entry for entry in named if entry.module != module))
    return found


def _dotted(package: Path, file: Path) -> str:
    parts = [package.name, *file.relative_to(package).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _named(node: ast.Import | ast.ImportFrom | ast.Call, home: str) -> Iterator[str]:
    """Yields what a statement or call imports, each as the longest name that may be a module's."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = home.split(".")[: len(home.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield from (f"{base}.{alias.name}" for alias in node.names)
    elif node.args:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        first = node.args[0]
        if called in {"import_module", "__import__"} and isinstance(first, ast.Constant):
            yield str(first.value)


def _nearest(name: str, known: set[str]) -> str:
    """Returns the module that a name is, or that it is taken from."""
    while name not in known and "." in name:
        name = name.rpartition(".")[0]
    return name


def wrong_imports(imports: Imports, floors: Iterable[Floor]) -> list[str]:
    """Says which imports do not lead downwards, which modules have no floor, and which entries no module.

    Args:
        imports: Who imports whom.
        floors: The floors, from top to bottom.

    Returns:
        A line for each.
    """
    levels = list(floors)
    heights = {entry: len(levels) - place for place, floor in enumerate(levels) for entry in floor.holds}
    names = {entry: floor.name for floor in levels for entry in floor.holds}
    targets = {entry.module for found in imports.values() for entry in found}
    standing = {_entry(module) for module in {*imports, *targets}}
    found = [
        f"{entry} stands on no floor; enter it in the table" for entry in sorted(standing - set(heights))
    ]
    found += [f'{entry} of floor "{names[entry]}" is not there' for entry in sorted(set(heights) - standing)]
    for module, targets_of in imports.items():
        source = _entry(module)
        for target, line in targets_of:
            goal = _entry(target)
            if source == goal or source not in heights or goal not in heights:
                continue
            if heights[goal] >= heights[source]:
                way = "up to" if heights[goal] > heights[source] else "sideways to"
                found.append(
                    f'{module}, line {line}: {target} is {way} "{names[goal]}" from "{names[source]}"'
                )
    return found


def _entry(module: str) -> str:
    """Returns the file or folder of the package that a module is, or is in; "__init__" for the package."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def circles(imports: Imports) -> list[list[str]]:
    """Finds the modules that import each other, directly or over others.

    Args:
        imports: Who imports whom.

    Returns:
        Each set of modules that can all be reached from each other, sorted.
    """
    reach = {module: _reached(module, imports) for module in imports}
    found: list[list[str]] = []
    for module in sorted(imports):
        if module in reach[module] and not any(module in circle for circle in found):
            found.append(sorted(other for other in reach[module] if module in reach.get(other, ())))
    return found


def _reached(start: str, imports: Imports) -> set[str]:
    reached: set[str] = set()
    ahead = [start]
    while ahead:
        for target, _ in imports.get(ahead.pop(), ()):
            if target not in reached:
                reached.add(target)
                ahead.append(target)
    return reached


def foreign_privates(package: Path) -> list[str]:
    """Says where a file reaches for a private attribute that it does not define itself.

    Args:
        package: The package's folder.

    Returns:
        A line for each.
    """
    found: list[str] = []
    for file in sorted(package.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        # Most files have none, which is seen without parsing them.
        if not _PRIVATE.search(text):
            continue
        nodes = list(ast.walk(ast.parse(text, str(file))))
        own = {name for node in nodes for name in _defined(node)}
        named = [alias for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        known = {"self", "cls", *(alias.asname or alias.name for alias in named)}
        where = _dotted(package, file)
        found += [
            f"{where}, line {node.lineno}: {ast.unparse(node)} is another file's"
            for node in nodes
            if isinstance(node, ast.Attribute)
            and _is_private(node.attr)
            and node.attr not in own
            and not (isinstance(node.value, ast.Name) and node.value.id in known)
        ]
    return found


_PRIVATE = re.compile(r"^(?!\s*(?:from|import)\b).*(?<!\bself)(?<!\bcls)\.\s*_\w", re.MULTILINE)
"""What may be a private attribute of something other than `self` and `cls`."""


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def _defined(node: ast.AST) -> Iterator[str]:
    """Yields the names of attributes that a definition or an assignment makes."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        if isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}:
            yield node.attr
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def main(arguments: list[str]) -> int:
    """Prints what is wrong with the imports of a package."""
    package = Path(arguments[0]) if arguments else HERE.parents[1] / "python" / "loom"
    table = Path(arguments[1]) if len(arguments) > 1 else HERE / "python.toml"
    imports = read_imports(package)
    lines = wrong_imports(imports, read_floors(table))
    lines += [f"a circle of imports: {', '.join(circle)}" for circle in circles(imports)]
    lines += foreign_privates(package)
    for line in lines:
        print(line)
    print(f"{len(imports)} modules, {sum(map(len, imports.values()))} imports, {len(lines)} wrong")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
