"""Checks that the Rust modules import downwards only, and that none import each other in a circle.

The floors stand in `rust.toml`, from the ground up. An import is read where it is written: in `use`, and
in paths in the code. Code that is compiled for tests alone may import anything.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Module = tuple[str, ...]

HIDDEN = re.compile(
    r"""//[^\n]*
    | /\*.*?\*/
    | \b b?r(?P<fence>\#*)".*?"(?P=fence)
    | \b b"(?:\\.|[^"\\])*"
    | "(?:\\.|[^"\\])*"
    | '(?:\\(?:x\w\w|u\{\w+\}|.)|[^\\'])'""",
    re.DOTALL | re.VERBOSE,
)
TESTS = re.compile(r"#\[cfg\((?:all\()?test\b[^\]]*\]")
DECLARED = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", re.MULTILINE)
INLINE = re.compile(r"\bmod\s+(\w+)\s*\{")
USE = re.compile(r"(?P<public>\bpub(?:\([^)]*\))?\s+)?\buse\s+(?P<tree>[^;]*);", re.DOTALL)
PATH = re.compile(r"(?<![\w:$])\$?[A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)+")
ITEM = re.compile(r"\s*(?:#\[[^\]]*\]\s*)*(?:pub|use|fn|impl|mod|let|const|struct|static)\b")
STATEMENT = re.compile(
    r"\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?(?:use|let|const|static)\b",
)
DEFINES = r"\b(?:fn|struct|enum|trait|type|const|static|mod|union|macro_rules!)\s+{}\b"
WORDS = re.compile(r"[A-Za-z_]\w*")


@dataclass
class File:
    """One source file, as far as imports go."""

    path: Path
    module: Module
    text: str = ""
    children: set[str] = field(default_factory=set)
    names: dict[str, Module] = field(default_factory=dict)
    globs: list[Module] = field(default_factory=list)
    inline: list[range] = field(default_factory=list)
    paths: list[tuple[int, Module, bool]] = field(default_factory=list)


@dataclass(frozen=True)
class Import:
    """One file's use of what another one holds, or its handing that on."""

    importer: Module
    named: Module
    holder: Module
    where: str
    text: str
    used: bool


def settings(path: Path) -> dict[str, dict[str, list[str]]]:
    """Tables of lists of strings: what there is of TOML in this check, on every Python."""
    tables: dict[str, dict[str, list[str]]] = {}
    table = ""
    text = re.sub(r"#[^\n]*", "", path.read_text())
    for line in text.replace(",\n", ", ").replace("[\n", "[").splitlines():
        if named := re.fullmatch(r"\[([\w-]+)\]", line.strip()):
            table = named[1]
            tables[table] = {}
        elif line.strip():
            key, _, value = line.partition("=")
            tables[table][key.strip()] = ast.literal_eval(value.strip())
    return tables


def blank(text: str) -> str:
    """The same length of text and as many lines of nothing."""
    return re.sub(r"[^\n]", " ", text)


def without_tests(text: str) -> tuple[str, set[str]]:
    """Code without what only tests compile, and the modules in other files that are of that kind."""
    tests: set[str] = set()
    while found := TESTS.search(text):
        end = end_of_item(text, found.end())
        item = text[found.start() : end]
        tests.update(DECLARED.findall(re.sub(r"#\[[^\]]*\]", "", item)) if "{" not in item else ())
        text = text[: found.start()] + blank(item) + text[end:]
    return text, tests


def end_of_item(text: str, start: int) -> int:
    """Where the item that starts here ends: after its block, or after its semicolon or comma."""
    depth, position = 0, start
    item = ITEM.match(text, start) is not None
    used = STATEMENT.match(text, start)
    while position < len(text):
        letter = text[position]
        position += 1
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
            if depth < 0:
                return position - 1
            if letter == "}" and depth == 0 and not used:
                return position
        elif depth == 0 and (letter == ";" or (letter == "," and not item)):
            return position
    return position


def leaves(tree: str, prefix: Module = ()) -> Iterator[tuple[Module, str]]:
    """The paths of a `use` with the names they have from then on."""
    tree = tree.strip()
    head, brace, rest = tree.partition("{")
    if brace:
        prefix += tuple(WORDS.findall(head))
        depth, part = 0, ""
        for letter in rest[: rest.rindex("}")] + ",":
            depth += {"{": 1, "}": -1}.get(letter, 0)
            if letter == "," and depth == 0:
                if part.strip():
                    yield from leaves(part, prefix)
                part = ""
            else:
                part += letter
        return
    path, _, name = tree.partition(" as ")
    words = prefix + tuple(WORDS.findall(path))
    if path.rstrip().endswith("*"):
        yield words, "*"
    elif words[-1:] == ("self",) and len(words) > 1:
        yield words[:-1], name.strip() or words[-2]
    elif words:
        yield words, name.strip() or words[-1]


class Crate:
    """The modules of a crate and what they import."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.files: dict[Module, File] = {}
        self.imports: list[Import] = []
        self.read(source / "lib.rs", ())
        for file in self.files.values():
            self.name(file)
        for file in self.files.values():
            self.follow(file)

    def read(self, path: Path, module: Module) -> None:
        """Takes in a file and the modules that it declares."""
        text = HIDDEN.sub(lambda found: blank(found[0]), path.read_text())
        text, tests = without_tests(re.sub(r"\bpub\(in [^)]*\)", lambda found: blank(found[0]), text))
        file = self.files[module] = File(path, module, text, set(DECLARED.findall(text)) - tests)
        file.inline = [
            range(found.start(), end_of_item(text, found.start())) for found in INLINE.finditer(text)
        ]
        folder = path.parent if path.name in ("lib.rs", "mod.rs") else path.with_suffix("")
        for child in file.children:
            inside = folder / child / "mod.rs"
            self.read(inside if inside.exists() else folder / f"{child}.rs", (*module, child))

    def absolute(self, file: File, words: Module, position: int) -> Module | None:
        """A path from the root on, or none where it does not lead to this crate's modules."""
        here = list(file.module)
        inside = sum(position in span for span in file.inline)
        if words[0] == "crate":
            return words[1:]
        if words[0] == "self":
            return (*here, *words[1:])
        if words[0] == "super":
            count = next((i for i, word in enumerate(words) if word != "super"), len(words))
            up = max(0, count - inside)
            return (*here[: len(here) - up], *words[count:])
        if words[0] in file.children:
            return (*here, *words)
        return None

    def name(self, file: File) -> None:
        """Notes what the file's `use` brings in."""
        for use in USE.finditer(file.text):
            for words, name in leaves(use["tree"]):
                target = self.absolute(file, words, use.start())
                if target is None and words[0] in file.names:
                    target = (*file.names[words[0]], *words[1:])
                if target is None:
                    continue
                if name == "*":
                    file.globs.append(target)
                else:
                    file.names[name] = target
                # What a module only hands on is no use of its own.
                used = not use["public"] or name == "*" or self.mentions(file, name)
                file.paths.append((use.start("tree"), target, used))
        bare = USE.sub(lambda found: blank(found[0]), file.text)
        for found in PATH.finditer(bare):
            words = tuple(WORDS.findall(found[0]))
            target = self.absolute(file, words, found.start())
            if target is not None:
                file.paths.append((found.start(), target, True))

    @staticmethod
    def mentions(file: File, name: str) -> bool:
        """Whether a name stands in the code, and not in a `use` alone."""
        rest = USE.sub("", file.text)
        return re.search(rf"\b{name}\b", rest) is not None

    def holder(self, path: Module, seen: frozenset[Module] = frozenset()) -> Module | None:
        """The module in whose file stands what a path names."""
        if path in seen:
            return None
        seen |= {path}
        module = path
        while module not in self.files:
            module = module[:-1]
        rest = path[len(module) :]
        if not rest:
            return module
        file = self.files[module]
        if rest[0] in file.names:
            return self.holder((*file.names[rest[0]], *rest[1:]), seen)
        if re.search(DEFINES.format(rest[0]), file.text):
            return module
        for glob in file.globs:
            found = self.holder((*glob, *rest), seen)
            if found is not None and found != glob[: len(found)]:
                return found
        return module

    def follow(self, file: File) -> None:
        """Notes which files hold what this one's paths name."""
        for position, path, used in file.paths:
            named = path
            while named not in self.files:
                named = named[:-1]
            holder = self.holder(path)
            if holder is None:
                continue
            line = file.text.count("\n", 0, position) + 1
            where = f"{file.path.relative_to(self.source)}:{line}"
            # What the root names for users stands where it is defined.
            self.imports.append(Import(file.module, named or holder, holder, where, "::".join(path), used))


class Floors:
    """Which floor a module stands on."""

    def __init__(self, floors: dict[str, list[str]]) -> None:
        self.height: dict[Module, int] = {}
        self.title: dict[int, str] = {}
        for height, (title, modules) in enumerate(floors.items()):
            self.title[height] = title
            for module in modules:
                self.height[tuple(module.split("::"))] = height

    def of(self, module: Module) -> Module | None:
        """The listed module that this one is part of; none for the root."""
        for length in range(len(module), 0, -1):
            if module[:length] in self.height:
                return module[:length]
        return None


def unlisted(crate: Crate, floors: Floors) -> list[str]:
    """Modules that stand on no floor, and floors without their module."""
    missing = ["::".join(module) for module in crate.files if module and floors.of(module) is None]
    missing = [name for name in missing if "::" not in name]
    gone = ["::".join(module) for module in floors.height if module not in crate.files]
    return [f"{name} stands on no floor" for name in missing] + [
        f"{name} is listed and not there" for name in gone
    ]


def upwards(crate: Crate, floors: Floors) -> list[str]:
    """Imports of what stands higher, or of another module of the same floor."""
    found = {}
    for each in crate.imports:
        importer, named = floors.of(each.importer), floors.of(each.named)
        if importer is None or named is None or importer == named:
            continue
        low, high = floors.height[importer], floors.height[named]
        if high >= low:
            how = "beside" if low == high else "above"
            found[each.where, each.named] = (
                f"{each.where}: {'::'.join(importer)} ({floors.title[low]}) imports {each.text}, "
                f"which stands {how} it ({floors.title[high]})"
            )
    return [found[key] for key in sorted(found)]


def circles(edges: dict[Module, set[Module]]) -> list[list[Module]]:
    """Groups in which everyone imports everyone, by way of others or directly."""
    index: dict[Module, int] = {}
    lowest: dict[Module, int] = {}
    stack: list[Module] = []
    groups = []

    def visit(node: Module) -> None:
        index[node] = lowest[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                lowest[node] = min(lowest[node], lowest[other])
            elif other in stack:
                lowest[node] = min(lowest[node], index[other])
        if lowest[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                groups.append(sorted(group))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return sorted(groups)


def of_modules(crate: Crate, floors: Floors) -> list[list[Module]]:
    """Circles of whole floors' modules."""
    edges: dict[Module, set[Module]] = {}
    for each in crate.imports:
        importer, named = floors.of(each.importer), floors.of(each.named)
        if importer and named and importer != named:
            edges.setdefault(importer, set()).add(named)
    return circles(edges)


def of_files(crate: Crate, floors: Floors) -> list[list[Module]]:
    """Circles of the files within each module."""
    edges: dict[Module, set[Module]] = {}
    for each in crate.imports:
        same = floors.of(each.importer) == floors.of(each.holder)
        if each.used and same and each.holder and each.importer != each.holder:
            edges.setdefault(each.importer, set()).add(each.holder)
    return circles(edges)


def described(crate: Crate, group: list[Module]) -> str:
    """A circle and the imports that close it."""
    lines = [f"circle of {len(group)}: {spelled(group)}"]
    seen = set()
    for each in crate.imports:
        pair = each.importer, each.holder
        within = each.importer in group and each.holder in group and each.importer != each.holder
        if each.used and within and pair not in seen:
            seen.add(pair)
            lines.append(f"    {each.where} -> {'::'.join(each.holder)} ({each.text})")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Prints what is wrong with the crates that the settings name; 1 where anything is."""
    path = Path(arguments[0]) if arguments else Path(__file__).with_name("rust.toml")
    read = settings(path)
    failed = False
    for name, places in read["crates"].items():
        crate = Crate((path.parent / places[0]).resolve())
        floors = Floors(read[name])
        lists = {
            "misplaced": unlisted(crate, floors),
            "imports upwards": upwards(crate, floors),
            "circles of modules": [f"circle: {spelled(group)}" for group in of_modules(crate, floors)],
            "circles of files": [described(crate, group) for group in of_files(crate, floors)],
        }
        for line in (line for lines in lists.values() for line in lines):
            print(line)
        counts = ", ".join(f"{len(lines)} {title}" for title, lines in lists.items())
        print(f"{name}: {len(crate.files)} modules, {counts}")
        failed |= any(lists.values())
    return int(failed)


def spelled(group: list[Module]) -> str:
    """The modules of a group by their paths."""
    return ", ".join("::".join(module) for module in group)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
