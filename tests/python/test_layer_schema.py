"""The settings of layers are declared once, in the engine; classes have the same ones and the same limits."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any, cast

import pytest

import loom
from loom import _native, nn
from loom._settings.encoding import encode
from loom.nn._layer import FAMILY
from loom.nn._schema import Setting, read, schema

# What a composed layer's file says beside its layers; `nn.Composed` writes them.
COMPOSED = {("sequential", "name"), ("sequential", "settings")}
SETTINGS = [(kind, setting) for kind, settings in schema().items() for setting in settings]
SAMPLES: dict[str, list[dict[str, Any]]] = json.loads(_native.layer_samples())
FIRST = {kind: samples[0] for kind, samples in SAMPLES.items()}


def named(cases: list[tuple[str, Setting]]) -> list[Any]:
    return [pytest.param(kind, setting, id=f"{kind}-{setting['name']}") for kind, setting in cases]


def fields(kind: str) -> dict[str, dataclasses.Field[Any]]:
    return {field.name: field for field in dataclasses.fields(cast(Any, FAMILY.kinds[kind])) if field.init}


def test_the_engine_and_python_know_the_same_layers() -> None:
    assert sorted(schema()) == sorted(FAMILY.kinds) == sorted(_native.layer_kinds())


@pytest.mark.parametrize("kind", sorted(FAMILY.kinds))
def test_a_class_has_the_settings_of_its_schema(kind: str) -> None:
    known = {setting["name"] for setting in schema()[kind]}
    assert set(fields(kind)) == known - {name for of, name in COMPOSED if of == kind}


@pytest.mark.parametrize(
    ("kind", "setting"), named([case for case in SETTINGS if (case[0], case[1]["name"]) not in COMPOSED])
)
def test_a_default_is_the_engines(kind: str, setting: Setting) -> None:
    default = fields(kind)[setting["name"]].default
    if default is dataclasses.MISSING:
        assert "default" not in setting
    else:
        assert encode(read(kind, setting, default)) == setting["default"]


@pytest.mark.parametrize("kind", sorted(SAMPLES))
def test_every_sample_goes_through_python_and_back(kind: str) -> None:
    for config in SAMPLES[kind]:
        layer = nn.layer_from_config(config)
        assert in_engine(config) == config
        assert nn.layer_from_config(in_engine(cast("dict[str, Any]", layer.to_config()))) == layer


def shaped(setting: Setting, number: float) -> object:
    """A number in the form that a setting has in JSON."""
    if setting["type"] == "list":
        return [shaped({**setting, **setting["of"]}, number)]
    if setting["type"] in {"extents", "padding"}:
        return [int(number)] * setting["axes"]
    return number if setting["type"] == "real" else int(number)


def wrong(setting: Setting) -> list[object]:
    """Values that a setting refuses: beyond its limits, and of other types."""
    kind = setting["type"]
    if kind == "other":
        return []
    if kind == "settings":
        nested = [{inner["name"]: value} for inner in setting["settings"] for value in wrong(inner)]
        return ["xyzzy", 3.5, {"xyzzy": 1}, *nested]
    if kind == "layers":
        return [3, "dense", [3], *([[]] if "least" in setting else [])]
    if kind in {"flag", "activation", "initializer", "name"}:
        return ["xyzzy", 3.5, [1]]
    step = 1e-6 if kind == "real" else 1
    least = setting.get("least", None if kind in {"real", "integer"} or "above" in setting else 0)
    if kind == "list" and setting["of"]["type"] in {"layers", "flag", "list"}:
        return ["xyzzy", [3.5]]
    beyond = [] if least is None else [least - step]
    beyond += [setting["most"] + step] if "most" in setting else []
    beyond += [setting[name] for name in ("above", "below") if name in setting]
    return ["xyzzy", *(shaped(setting, number) for number in beyond)]


def in_engine(config: dict[str, Any]) -> Any:
    """Makes the layer in the engine, past Python's classes; returns what the engine writes of it."""
    described = loom.NetworkConfig(input_shape=1, grid=(1, 1, 1))
    network = _native.Network(json.dumps(described.to_config()))
    network.add((0, 0, 0), [json.dumps(config)])
    return json.loads(network.config())["cells"][0]["layers"][0]


@pytest.mark.parametrize(("kind", "setting"), named(SETTINGS))
def test_what_is_out_of_its_limits_is_refused_by_both(kind: str, setting: Setting) -> None:
    name = setting["name"]
    for value in wrong(setting):
        config = {**FIRST[kind], name: value}
        with pytest.raises(loom.InvalidValueError, match=f'layer "{kind}"'):
            in_engine(config)
        if (kind, name) not in COMPOSED:
            with pytest.raises(loom.ConfigError) as refused:
                nn.layer_from_config(config)
            message = str(refused.value)
            shared = (
                "unknown activation",
                "unknown initializer",
                "expected a layer",
                "expected at least one layer",
                # Settings of settings name their own class.
                *([name.capitalize()] if setting["type"] == "settings" else []),
            )
            named_in = FAMILY.kinds[kind].__name__ in message and name.removesuffix("s") in message
            assert named_in or any(text in message for text in shared), message


def takes(make: Callable[[dict[str, Any]], object], config: dict[str, Any]) -> bool:
    try:
        make(config)
    except (loom.InvalidValueError, loom.ConfigError):
        return False
    return True


@pytest.mark.parametrize(("kind", "setting"), named(SETTINGS))
def test_what_is_within_its_limits_is_taken_by_both_or_by_neither(kind: str, setting: Setting) -> None:
    if setting["type"] not in {"whole", "integer", "real", "extents", "padding", "list"}:
        return
    if setting["type"] == "list" and setting["of"]["type"] in {"layers", "flag", "list"}:
        return
    low = setting.get("least", setting.get("above", 0))
    high = setting.get("most", setting.get("below", low + 100))
    ends = {setting.get("above"), setting.get("below")}
    for number in [low, high, (low + high) / 2, low + 1, low + 2, low + 3]:
        if low <= number <= high and number not in ends:
            config = {**FIRST[kind], setting["name"]: shaped(setting, number)}
            assert takes(in_engine, config) == takes(nn.layer_from_config, config), config
