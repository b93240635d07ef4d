"""What can be called: every public function and method, with its parameters, as data.

All of it comes from signatures and docstrings, so that it says what the code says.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from loom._public import HOMES
from loom._settings.suggestions import unknown
from loom.reports import Report, TabularReport

__all__ = [
    "CallableDescription",
    "Description",
    "ParameterDescription",
    "describe",
    "documented",
    "has_method",
    "signature",
]

_INDENTED = re.compile(r"^ {4}\*{0,2}(\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)


@dataclass(frozen=True, eq=False)
class ParameterDescription(Report):
    """A parameter of a function or method.

    Args:
        name: Its name; "*names" and "**names" where it takes any number.
        type: Its type as it is written; empty where none is.
        default: Its default as it is written; None where a value must be given.
        description: What it is for.
    """

    name: str
    type: str
    default: str | None
    description: str


@dataclass(frozen=True, eq=False)
class CallableDescription(Report):
    """A function, class, method or property.

    Args:
        name: What it is called by, such as "train" or "Network.predict".
        kind: "function", "class", "method" or "property".
        signature: How it is called, with types.
        description: One line.
        parameters: Its parameters, the instance of a method aside.
        returns: The type of what it returns, as it is written.
        result: What that is, in words; empty where the docstring does not say.
        raises: The names of the errors that its docstring tells of.
    """

    name: str
    kind: str
    signature: str
    description: str
    parameters: tuple[ParameterDescription, ...]
    returns: str
    result: str
    raises: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Description(TabularReport):
    """Everything that can be called on something.

    Args:
        of: What is described: "loom", or the name of a class.
        description: One line.
        entries: What it has, by name.
    """

    of: str
    description: str
    entries: tuple[CallableDescription, ...]

    def columns(self) -> dict[str, Any]:
        """Returns a row for every entry."""
        names = ("name", "kind", "signature", "description", "returns", "result")
        return {name: [getattr(entry, name) for entry in self.entries] for name in names}

    def __getitem__(self, name: str) -> CallableDescription:
        """Returns the entry of a name; a ConfigError that suggests the nearest where there is none."""
        found = {entry.name: entry for entry in self.entries}
        # A list cannot be looked up.
        if name not in list(found):
            raise unknown(f"name of {self.of}", name, found)
        return found[name]

    def __str__(self) -> str:
        return "\n".join(f"{entry.signature}\n    {entry.description}" for entry in self.entries)


def describe(what: Any = None) -> Description:  # noqa: ANN401 - anything that has public names
    """Describes what can be called: parameters, types, defaults, one line, and what it returns.

    For tools and language models; `to_dict` and `to_json` give it as plain data.

    Args:
        what: A class or an instance, whose methods and properties are described; a module; or
            None for loom itself: all its functions and classes with their methods.

    Returns:
        The description, by name.

    Examples:
        >>> described = loom.describe()
        >>> described["train"].parameters[2].name
        'config'
        >>> described["Network.predict"].returns
        'RealArray'
        >>> loom.describe(loom.TrainingConfig)["from_config"].kind
        'method'
    """
    if what is None or isinstance(what, ModuleType):
        of = "loom" if what is None else what.__name__
        entries = tuple(sorted(_entries_of_module(what), key=lambda entry: entry.name))
        return Description(of, _line(import_module(of)), entries)
    cls = what if isinstance(what, type) else type(what)
    return Description(cls.__name__, _line(cls), tuple(_members(cls, "")))


def has_method(name: str, what: Any = None) -> bool:  # noqa: ANN401 - anything that has public names
    """Returns whether something can be called by this name.

    Args:
        name: Such as "train", "Network.predict"; of a class the method alone, "predict".
        what: Where it is looked for, as in `describe`; loom itself where None.

    Examples:
        >>> loom.has_method("train"), loom.has_method("Network.predict"), loom.has_method("__init__")
        (True, True, False)
    """
    return any(entry.name == name and entry.kind != "property" for entry in describe(what).entries)


def signature(name: str, what: Any = None) -> str:  # noqa: ANN401 - anything that has public names
    """Returns how something is called, with types and defaults.

    Args:
        name: As in `has_method`.
        what: As in `describe`.

    Returns:
        The signature on one line.

    Raises:
        ConfigError: There is none of this name; the message suggests the nearest.

    Examples:
        >>> loom.signature("export_model")
        'export_model(net: Network) -> dict[str, Any]'
    """
    return describe(what)[name].signature


def documented(cls: type) -> tuple[str, dict[str, str]]:
    """Returns the first line of a class's docstring, and what it says of each argument."""
    entry = _described(cls.__name__, cls, "class")
    return entry.description, {it.name: it.description for it in entry.parameters}


def _entries_of_module(module: ModuleType | None) -> Iterator[CallableDescription]:
    if module is None:
        homes = {name: home for name, home in HOMES.items() if home != "loom"}
        names = {name: getattr(import_module(home), name) for name, home in homes.items()}
    else:
        names = {name: getattr(module, name) for name in getattr(module, "__all__", ())}
    for name, value in names.items():
        if isinstance(value, type):
            yield _described(name, value, "class")
            yield from _members(value, f"{name}.")
        elif inspect.isfunction(value):
            yield _described(name, value, "function")


def _members(cls: type, prefix: str) -> Iterator[CallableDescription]:
    for name in sorted(dir(cls)):
        value = inspect.getattr_static(cls, name)
        if name.startswith("_"):
            continue
        if isinstance(value, property):
            yield _described(prefix + name, value.fget, "property", value)
        elif isinstance(value, (classmethod, staticmethod)):
            yield _described(prefix + name, getattr(cls, name), "method")
        elif inspect.isfunction(value):
            yield _described(prefix + name, value, "method", bound=True)


def _described(
    name: str,
    value: Any,  # noqa: ANN401
    kind: str,
    holder: object = None,
    *,
    bound: bool = False,
) -> CallableDescription:
    told = inspect.getdoc(value if holder is None else holder) or ""
    parts = _sections(told)
    known = {**_arguments_elsewhere(told), **_arguments(parts)}
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        # Exceptions and the like, whose making is not Python's.
        found = inspect.Signature()
    given = list(found.parameters.values())
    given = given[1:] if bound or kind == "property" else given
    returns = "" if found.return_annotation is inspect.Signature.empty else _text(found.return_annotation)
    returns = name if kind == "class" else returns
    if kind == "property":
        written = f"{name}: {returns}"
    else:
        shown = found.replace(
            parameters=[it.replace(annotation=_Written(it.annotation), default=_shown(it)) for it in given],
            return_annotation=_Written(returns) if returns and kind != "class" else inspect.Signature.empty,
        )
        written = f"{name}{shown}"
    return CallableDescription(
        name=name,
        kind=kind,
        signature=written,
        description=_first_line(told),
        parameters=tuple(
            ParameterDescription(
                name=_stars(it) + it.name,
                type="" if it.annotation is it.empty else _text(it.annotation),
                default=None if it.default is it.empty else repr(_shown(it)),
                description=known.get(it.name, ""),
            )
            for it in given
        ),
        returns=returns,
        result=" ".join(parts.get("Returns", "").split()),
        raises=tuple(entry for entry, _ in _INDENTED.findall(parts.get("Raises", ""))),
    )


class _Written:
    """A type that is written as it stands in the code, without quotes; nothing for an empty one."""

    def __new__(cls, annotation: Any) -> Any:  # noqa: ANN401
        return annotation if annotation is inspect.Signature.empty else super().__new__(cls)

    def __init__(self, annotation: object) -> None:
        self.text = _text(annotation)

    def __repr__(self) -> str:
        return self.text


class _Default:
    """A default that has no better text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _shown(parameter: inspect.Parameter) -> Any:  # noqa: ANN401
    default = parameter.default
    if default is parameter.empty:
        return default
    text = repr(default)
    if text.startswith("<"):
        # What a dataclass makes its default with.
        factory: Callable[..., object] = default
        name = getattr(factory, "__name__", "...")
        return _Default("..." if name == "..." or "factory" in text else name)
    return default


def _stars(parameter: inspect.Parameter) -> str:
    if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return "*"
    return "**" if parameter.kind is inspect.Parameter.VAR_KEYWORD else ""


def _text(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return text.strip("'\"")


def _line(value: object) -> str:
    return _first_line(inspect.getdoc(value) or "")


def _first_line(text: str) -> str:
    return " ".join(text.strip().partition("\n\n")[0].split())


def _arguments(parts: Mapping[str, str]) -> dict[str, str]:
    return {name: " ".join(text.split()) for name, text in _INDENTED.findall(parts.get("Args", ""))}


def _arguments_elsewhere(told: str) -> dict[str, str]:
    """Returns what is said of the arguments of another function, where a docstring leaves them to it."""
    found = re.search(r"; see `loom\.(\w+)`", _first_line(told))
    if found is None or found[1] not in HOMES:
        return {}
    other = getattr(import_module(HOMES[found[1]]), found[1])
    return _arguments(_sections(inspect.getdoc(other) or ""))


def _sections(text: str) -> dict[str, str]:
    """Returns the parts of a docstring by their headings."""
    found = re.split(r"^(Args|Returns|Raises|Examples|Yields):[ ]*\n", text, flags=re.MULTILINE)
    return dict(zip(found[1::2], found[2::2], strict=True))
