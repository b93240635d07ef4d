"""What can be called, as data: the same as signatures and docstrings say."""

from __future__ import annotations

import inspect
import json
import pkgutil
import re
from importlib import import_module

import pytest

import loom
from loom import nn
from loom.introspection import Description

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(loom.__path__, "loom.") if module.name != "loom._native"
)


def test_every_public_function_and_method_is_described() -> None:
    described = {entry.name: entry for entry in loom.describe().entries}
    for name in loom._public.HOMES:
        value = getattr(loom, name)
        if inspect.isfunction(value) or inspect.isclass(value):
            assert name in described, name
            if name != "DeviceList":
                assert described[name].description, name
    for name in dir(loom.Network):
        if not name.startswith("_"):
            assert described[f"Network.{name}"].description, name


def test_every_parameter_of_a_network_s_methods_is_told() -> None:
    for entry in loom.describe(loom.Network).entries:
        value = inspect.getattr_static(loom.Network, entry.name)
        if entry.kind == "method" and inspect.isfunction(value):
            names = [name for name in inspect.signature(value).parameters if name != "self"]
            assert [it.name.lstrip("*") for it in entry.parameters] == names
            # What only hands on to another function leaves it to that one to tell of them.
            untold = [it.name for it in entry.parameters if not (it.description and it.type)]
            assert not untold, entry.name


def test_an_entry_says_all() -> None:
    entry = loom.describe()["Network.link"]
    assert entry.kind == "method"
    assert entry.signature == (
        "Network.link(source: Sequence[int], target: Sequence[int], "
        "combine: Literal['add', 'multiply', 'concat', 'context', 'replace'] = 'add', "
        "axis: int | None = None) -> Self"
    )
    assert entry.description == (
        "Hands a cell's output to a later cell, beside what flows there anyway: a skip across the grid."
    )
    source, _, combine, _ = entry.parameters
    assert (source.type, source.default) == ("Sequence[int]", None)
    assert source.description.startswith("The cell whose output is handed over: (depth, row, column)")
    assert (combine.type, combine.default) == (
        "Literal['add', 'multiply', 'concat', 'context', 'replace']",
        "'add'",
    )
    assert (entry.returns, entry.result) == ("Self", "The network.")
    assert entry.raises == ("CellIndexError", "ConfigError")
    assert loom.describe()["Network.device"].kind == "property"
    made = loom.describe()["TrainingConfig"]
    assert made.kind == "class"
    assert {it.name: it.default for it in made.parameters}["epochs"] == "1"


def test_json_and_back() -> None:
    described = loom.describe()
    again = Description.from_json(described.to_json())
    assert again == described
    assert len(json.loads(described.to_json())["entries"]) == len(described.entries) > 150
    assert "Network.predict(" in str(described)
    assert list(described.to_frame()["name"]) == sorted(entry.name for entry in described.entries)


def test_networks_modules_and_objects() -> None:
    net = loom.Sequential([nn.Dense(2)], input_shape=3)
    assert net.describe().of == "Network"
    assert net.describe() == loom.describe(net) == loom.describe(loom.Network)
    assert net.has_method("predict")
    assert not net.has_method("device")
    assert not net.has_method("_repr_html_")
    assert net.signature("describe") == "describe() -> Description"
    assert loom.has_method("train")
    assert not loom.has_method("predict")
    layer = net[0, 0, 0, 0]
    assert {"freeze", "weights"} <= {entry.name for entry in loom.describe(layer).entries}
    assert loom.describe(loom.schedules)["Cosine"].parameters[0].name == "end_factor"
    assert loom.signature("Network.has_method") == "Network.has_method(name: str) -> bool"
    with pytest.raises(loom.ConfigError, match='unknown name of Network "predcit"; did you mean "predict"'):
        net.signature("predcit")


def told(value: object) -> set[str]:
    """The names under "Args:" of a docstring."""
    text = inspect.getdoc(value) or ""
    section = re.search(r"^Args:\n((?: {4}.*\n|\n)*)", f"{text}\n", re.MULTILINE)
    return set(re.findall(r"^ {4}\*{0,2}(\w+): ", section[1], re.MULTILINE)) if section else set()


@pytest.mark.parametrize("module", MODULES)
def test_docstrings_tell_of_no_argument_that_is_not_there(module: str) -> None:
    found = import_module(module)
    for name in getattr(found, "__all__", ()):
        value = getattr(found, name)
        for one in [value, *(vars(value).values() if inspect.isclass(value) else ())]:
            if inspect.isfunction(one):
                assert told(one) <= set(inspect.signature(one).parameters), f"{module}.{name}"
        if inspect.isclass(value) and hasattr(value, "__dataclass_fields__"):
            # Of classes that write their own __init__ that one says what there is.
            taken = set(value.__dataclass_fields__) | set(inspect.signature(value).parameters)
            assert told(value) <= taken, f"{module}.{name}"
