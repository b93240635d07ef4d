"""JSON Schemas of configurations, from the engine's table of settings and the dataclasses' own checks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, cast

from loom import activations, initializers, losses, metrics, optimizers, schedules
from loom._settings.checks import choice, noted
from loom._settings.encoding import Named, encode
from loom.architecture import (
    AdapterSettings,
    CellConfig,
    InputConfig,
    LayerSettings,
    LinkConfig,
    NetworkConfig,
    OutputConfig,
    ParameterSettings,
)
from loom.callbacks import EarlyStopping
from loom.catalogue import dtypes
from loom.diagnosis.names import ALL, SEVERITIES
from loom.introspection import documented
from loom.metrics.own import FAMILY as METRICS
from loom.metrics.scikit_learn import PREFIX, functions
from loom.nn._layer import FAMILY
from loom.nn._schema import Setting
from loom.nn._schema import schema as settings_of_layers
from loom.nn.function import Function
from loom.nn.position_bias import BIASES
from loom.nn.rotary import RULES, LongRopeRule, Rotary
from loom.training.config import TrainingConfig
from loom.tweening.config import TweenConfig

__all__ = ["json_schema"]

Schema = dict[str, Any]

_ROOTS = {
    "layer": "layer",
    "network": "NetworkConfig",
    "training": "TrainingConfig",
    "tweening": "TweenConfig",
}
_PLAIN = (
    CellConfig,
    EarlyStopping,
    InputConfig,
    LayerSettings,
    LinkConfig,
    NetworkConfig,
    OutputConfig,
    AdapterSettings,
    ParameterSettings,
    TrainingConfig,
    TweenConfig,
)
# What lets every check of a class run, where its defaults do not.
_PROBES: dict[type, dict[str, Any]] = {
    AdapterSettings: {"parameters": ("weight",)},
    CellConfig: {"at": (0, 0, 0)},
    LayerSettings: {"at": (0, 0, 0, 0)},
    LinkConfig: {"source": (0, 0, 0), "target": (0, 0, 0), "combine": "concat"},
    OutputConfig: {"cell": (0, 0, 0)},
    losses.Expr: {"expression": "y - t"},
    metrics.Expr: {"expression": "y - t"},
    schedules.Epochs: {"schedule": "constant"},
    LongRopeRule: {"original_length": 2, "factors": (1.0,)},
    TrainingConfig: {"saved_activations": "float16"},
}
_LIMITS = {"above": "exclusiveMinimum", "least": "minimum", "below": "exclusiveMaximum", "most": "maximum"}


def json_schema(of: Literal["network", "layer", "training", "tweening"] = "network") -> dict[str, Any]:
    """Returns the JSON Schema (draft 2020-12) of a configuration.

    Editors complete and check a network's JSON with it, and validators refuse what is out of
    range. It says what single settings may be; what they must be to each other, and whether layers
    fit together, loom says itself.

    Args:
        of: "network" (what `net.to_json` writes), "layer", "training" (a `TrainingConfig`) or
            "tweening" (a `TweenConfig`).

    Returns:
        The schema, as plain values of JSON.

    Raises:
        ConfigError: There is none of this name.

    Examples:
        >>> schema = loom.json_schema("layer")
        >>> schema["$defs"]["layer.dense"]["properties"]["units"]["minimum"]
        1
    """
    root = _ROOTS[choice("json_schema", "of", of, _ROOTS)]
    every = _definitions()
    needed: dict[str, Schema] = {}
    _collect(root, every, needed)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"loom {of} configuration",
        "$ref": f"#/$defs/{root}",
        "$defs": dict(sorted(needed.items())),
    }


def _collect(name: str, every: Mapping[str, Schema], needed: dict[str, Schema]) -> None:
    """Takes a definition and those that it refers to."""
    if name in needed:
        return
    needed[name] = every[name]
    for other in _references(every[name]):
        _collect(other, every, needed)


def _references(schema: object) -> list[str]:
    if isinstance(schema, dict):
        own = [schema["$ref"].removeprefix("#/$defs/")] if isinstance(schema.get("$ref"), str) else []
        return own + [found for value in schema.values() for found in _references(value)]
    return [found for value in schema for found in _references(value)] if isinstance(schema, list) else []


def _definitions() -> dict[str, Schema]:
    made: dict[str, Schema] = {cls.__name__: _dataclass(cls) for cls in _PLAIN}
    for kind, settings in settings_of_layers().items():
        made[f"layer.{kind}"] = _layer(kind, settings)
    made["layer"] = {"oneOf": [_ref(f"layer.{kind}") for kind in settings_of_layers()]}
    for sort, family in (
        ("activation", activations.FAMILY),
        ("initializer", initializers.FAMILY),
        ("loss", losses.FAMILY),
        ("metric", METRICS),
        ("rotary_rule", RULES),
        ("position_bias", BIASES),
    ):
        kinds = cast("Mapping[str, type[Named]]", family.kinds)
        bare = [name for name, cls in kinds.items() if not _dataclass(cls)["required"]]
        names = sorted({*family.plain, *bare, *family.aliases})
        objects = [_object({kind: _dataclass(cls)}, [kind]) for kind, cls in sorted(kinds.items())]
        made[sort] = {"anyOf": [{"enum": names}, *objects]}
    made["metric"]["anyOf"] += _scikit_learn_metrics()
    for sort, tagged in (("optimizer", optimizers.FAMILY), ("schedule", schedules.FAMILY)):
        classes = cast("Mapping[str, type[Any]]", tagged.kinds)
        for kind, cls in classes.items():
            made[f"{sort}.{kind}"] = _tagged(kind, _dataclass(cls))
        bare = sorted(kind for kind, cls in classes.items() if not _dataclass(cls)["required"])
        made[sort] = {"anyOf": [{"enum": bare}, *(_ref(f"{sort}.{kind}") for kind in classes)]}
    return made


def _scikit_learn_metrics() -> list[Schema]:
    """Returns the forms of scikit-learn's metrics: a name, or a name with the function's own options."""
    known = [PREFIX + name for name in functions()]
    options: Schema = {"type": "object"}
    return [{"enum": known}, *(_object({name: options}, [name]) for name in known)]


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _object(properties: Mapping[str, Schema], required: list[str], description: str = "") -> Schema:
    told = {"description": description} if description else {}
    return {
        **told,
        "type": "object",
        "properties": dict(properties),
        "required": required,
        "additionalProperties": False,
    }


def _tagged(kind: str, schema: Schema) -> Schema:
    """Returns a schema with the kind under "type"."""
    properties = {"type": {"const": kind}, **schema["properties"]}
    return {**schema, "properties": properties, "required": ["type", *schema["required"]]}


def _nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _limited(kind: str, limits: Mapping[str, Any]) -> Schema:
    return {"type": kind, **{_LIMITS[name]: value for name, value in limits.items() if name in _LIMITS}}


def _whole(least: int = 0, most: int = 2**64 - 1) -> Schema:
    return _limited("integer", {"least": least, "most": most})


def _by_output(of: Schema) -> Schema:
    """Returns the schema of settings that each named output has of its own."""
    return {"type": "object", "additionalProperties": of}


def _row(of: Schema, least: int = 0, most: int | None = None) -> Schema:
    return {"type": "array", "items": of, "minItems": least, **({} if most is None else {"maxItems": most})}


# Dataclasses: each setting's check is noted while one is made.


def _dataclass(cls: type) -> Schema:
    line, told = documented(cls)
    fields = [field for field in dataclasses.fields(cast(Any, cls)) if field.init]
    given = {field.name: _probe(field) for field in fields if _probe(field) is not None}
    with noted() as notes:
        cls(**{**given, **_PROBES.get(cls, {})})
    properties: dict[str, Schema] = {}
    for field in fields:
        # Of lists each entry is checked.
        single = field.name in notes and "Sequence[" not in str(field.type)
        schema = _checked(notes[field.name]) if single else _special(cls, field)
        if single and "None" in str(field.type):
            schema = _nullable(schema)
        properties[field.name] = _told(schema, told.get(field.name, ""), _default(field))
    required = [field.name for field in fields if _default(field) is dataclasses.MISSING]
    return _object(properties, required, line)


def _probe(field: dataclasses.Field[Any]) -> Any:  # noqa: ANN401
    """Returns a value that a setting without a default, or with None for one, surely takes."""
    if _default(field) not in (dataclasses.MISSING, None):
        return None
    kind = str(field.type).removesuffix(" | None")
    return {
        "int": 1,
        "float": 1.0,
        "str": "int8",
        "int | Sequence[int]": (1,),
        "int | Sequence[int | None]": (1,),
    }.get(kind)


def _default(field: dataclasses.Field[Any]) -> Any:  # noqa: ANN401
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _told(schema: Schema, description: str, default: object) -> Schema:
    told: Schema = {"description": description} if description else {}
    if default is not dataclasses.MISSING:
        told["default"] = encode(default)
    return {**schema, **told}


def _checked(note: Mapping[str, Any]) -> Schema:
    check = note["check"]
    if check == "choice":
        return {"enum": list(note["names"])}
    if check == "flag_or_name":
        return {"anyOf": [{"type": "boolean"}, {"enum": list(note["names"])}]}
    if check == "choice_or_real":
        return {"anyOf": [{"enum": list(note["names"])}, _limited("number", note)]}
    return (
        {"type": "boolean"} if check == "flag" else _limited({"whole": "integer"}.get(check, "number"), note)
    )


def _special(cls: type, field: dataclasses.Field[Any]) -> Schema:
    """Returns the schema of a setting that no check of one number, flag or name is for."""
    types = sorted({*(entry.name for entry in dtypes()), "float64"})
    rounding = {"enum": ["nearest", "stochastic"]}
    known: dict[str, Schema] = {
        "at": _row(_whole(), *((4, 4) if cls is LayerSettings else (3, 3))),
        "source": _row(_whole(), 3, 3),
        "target": _row(_whole(), 3, 3),
        "layers": _row(_ref("layer")),
        "input_shape": {"anyOf": [_whole(1), _row(_nullable(_whole(1)), 1)]},
        "inputs": _row(_ref("InputConfig")),
        "outputs": _row(_ref("OutputConfig")),
        "name": {"type": "string", "minLength": 1},
        "shape": {"anyOf": [_whole(1), _row(_nullable(_whole(1)), 1)]},
        "cell": _row(_whole(), 3, 3) if cls is OutputConfig else _nullable(_row(_whole(), 3, 3)),
        "categories": _nullable(_whole(1)),
        "grid": _row(_whole(1), 2, 3),
        "cells": _row(_ref("CellConfig")),
        "settings": _row(_ref("LayerSettings")),
        "links": _row(_ref("LinkConfig")),
        "frozen": _row({"type": "string"}),
        "factors": _row({"type": "number", "exclusiveMinimum": 0}, 1),
        "dtype": {"enum": types} if cls is ParameterSettings else _nullable({"enum": types}),
        "granularity": _nullable({"type": "string", "pattern": r"^(none|channel|tensor|block\(\d+\))$"}),
        "calibration": {"type": "string", "pattern": r"^(absmax|mse|percentile\([0-9.eE+-]+\))$"},
        "rounding": rounding,
        "activations": _nullable({"type": "string"}),
        "parameters": _row({"type": "string"}, 1)
        if cls is AdapterSettings
        else {"type": "object", "additionalProperties": _ref("ParameterSettings")},
        "adapters": _row(_ref("AdapterSettings")),
        "optimizer": _nullable(_ref("optimizer")) if cls is TweenConfig else _ref("optimizer"),
        "feedback_optimizer": _ref("optimizer"),
        "schedule": _ref("schedule"),
        "then": _ref("schedule"),
        "loss": {"anyOf": [{"const": losses.AUTO}, _ref("loss"), _by_output(_ref("loss"))]},
        "loss_weights": _nullable(_by_output({"type": "number", "minimum": 0})),
        "regularizers": _nullable(
            {
                "type": "object",
                "additionalProperties": _object(
                    {"l1": {"type": "number", "minimum": 0}, "l2": {"type": "number", "minimum": 0}}, []
                ),
            }
        ),
        "metrics": {"anyOf": [_row(_ref("metric")), _by_output(_row(_ref("metric")))]},
        "early_stopping": _nullable(_ref("EarlyStopping")),
        "ignore_findings": _row({"enum": [*SEVERITIES, ALL]}),
        "class_weight": _nullable(
            {
                "anyOf": [
                    _row({"type": "number", "minimum": 0}),
                    {
                        "type": "object",
                        "additionalProperties": {"type": "number", "minimum": 0},
                    },
                ]
            }
        ),
        "device": {"type": "string", "pattern": "^(auto|cpu|gpu(:[0-9]{1,9})?)$"},
        "monitor": {"type": "string"},
        "expression": {"type": "string"},
        "called": _nullable({"type": "string", "minLength": 1}),
    }
    return known[field.name]


# Layers: the engine's table says what each setting may be.


def _layer(kind: str, settings: list[Setting]) -> Schema:
    if kind == Function.kind:
        # What its settings are its own class says.
        line, _ = documented(Function)
        properties = {"name": _OTHER["name"], "settings": _OTHER["settings"]}
        return _tagged(kind, _object(properties, ["name"], line))
    return _tagged(kind, _settings(FAMILY.kinds[kind], settings))


def _settings(cls: type, settings: list[Setting]) -> Schema:
    line, told = documented(cls)
    properties = {}
    for setting in settings:
        default = setting.get("default", dataclasses.MISSING)
        properties[setting["name"]] = _told(_setting(setting), told.get(setting["name"], ""), default)
    required = [
        setting["name"] for setting in settings if "default" not in setting and not setting["optional"]
    ]
    return _object(properties, required, line)


def _setting(setting: Setting) -> Schema:
    schema = _value(setting)
    return _nullable(schema) if setting["optional"] else schema


def _value(setting: Setting) -> Schema:
    sort = setting["type"]
    if sort in ("whole", "integer", "extents", "padding"):
        low, high = (-(2**63), 2**63 - 1) if sort == "integer" else (0, 2**64 - 1)
        number = _whole(int(setting.get("least", low)), int(setting.get("most", high)))
        if sort in ("whole", "integer"):
            return number
        forms = [number, _row(number, setting["axes"], setting["axes"])]
        return {"anyOf": [*forms, {"enum": ["same", "valid"]}] if sort == "padding" else forms}
    if sort == "real":
        return _limited("number", setting)
    if sort == "list":
        return _row(_value({**setting, **setting["of"]}))
    if sort == "name":
        return {"enum": list(setting["names"])}
    if sort == "layers":
        least = {"minItems": 1} if "least" in setting else {}
        return {"anyOf": [_ref("layer"), {"type": "array", "items": _ref("layer"), **least}]}
    if sort == "flag":
        return {"type": "boolean"}
    if sort == "settings":
        return _settings(_NESTED[setting["name"]], setting["settings"])
    if sort == "other":
        return _OTHER[setting["name"]]
    return _ref(sort)


_NESTED = {"rotary": Rotary}
"""The classes of settings that have settings of their own."""

_OTHER: dict[str, Schema] = {
    "leaves": {"anyOf": [_whole(1), _row(_whole(1), 1)]},
    "name": {"type": "string"},
    "settings": {"type": "object"},
    "expression": {"type": "string"},
    # Of expressions; each of a list.
    "parameters": _object(
        {"name": {"type": "string"}, "shape": _row(_whole(1)), "initial": {"type": "number"}}, ["name"]
    ),
}
