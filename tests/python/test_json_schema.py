"""JSON Schemas: what loom writes fits them, and what it refuses does not."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loom
from grid_reference import draw
from loom import _native, nn
from loom.nn._schema import schema as engine_schema

jsonschema = pytest.importorskip("jsonschema", reason="the package jsonschema is not installed")

NAMES = ("layer", "network", "training", "tweening")
SAMPLES: dict[str, list[dict[str, Any]]] = json.loads(_native.layer_samples())


def fits(of: str, value: object) -> bool:
    return bool(validator(of).is_valid(json.loads(json.dumps(value))))


VALIDATORS: dict[str, Any] = {}


def validator(of: str) -> Any:
    """Of a schema, or of "layer.dense", one kind of layer: what others say of a value need not be asked."""
    if of not in VALIDATORS:
        schema = loom.json_schema(of.partition(".")[0])
        if "." in of:
            schema = {"$ref": f"#/$defs/{of}", "$defs": schema["$defs"]}
        VALIDATORS[of] = jsonschema.Draft202012Validator(schema)
    return VALIDATORS[of]


@pytest.mark.parametrize("of", NAMES)
def test_schemas_are_schemas(of: str) -> None:
    schema = loom.json_schema(of)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema, allow_nan=False)) == schema


def test_an_unknown_schema_is_refused() -> None:
    with pytest.raises(loom.ConfigError, match='unknown json_schema of "nets"'):
        loom.json_schema("nets")


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_random_networks_fit(seed: int) -> None:
    rng = np.random.default_rng(seed)
    net = draw(rng).build(str(rng.choice(["float32", "float64"])))
    validator("network").validate(json.loads(net.to_json()))
    if any(layer.parameters for layer in net.layers):
        net.morph(str(rng.choice(["int8", "q4_0", "bfloat16"])), granularity=None)
        layer = next(layer for layer in net.layers if layer.parameters)
        layer.freeze(next(iter(layer.parameters)))
        layer.rate_factor = 0.5
        validator("network").validate(json.loads(net.to_json()))


@pytest.mark.parametrize("kind", SAMPLES)
def test_layers_fit(kind: str) -> None:
    for config in SAMPLES[kind]:
        described = nn.layer_from_config(config).to_config()
        validator("layer").validate(json.loads(json.dumps(described)))


def wrong(setting: dict[str, Any]) -> list[object]:
    """Values that a setting refuses."""
    sort = setting["type"]
    if sort in ("whole", "integer", "real", "extents"):
        usual = {"real": setting.get("above"), "integer": -(2**63)}.get(sort, 0)
        least = setting.get("least", usual)
        below = [] if least is None else [least - 1]
        most = setting.get("most", setting.get("below"))
        return ["xyzzy", *below, *([] if most is None else [most + 1])]
    return {"flag": ["yes"], "name": ["xyzzy"], "activation": ["xyzzy"], "layers": [3], "list": [3.5]}.get(
        sort, []
    )


def test_no_kind_of_layer_takes_what_is_said_of_another() -> None:
    parts = loom.json_schema("layer")["$defs"]
    kinds = [entry["$ref"].removeprefix("#/$defs/") for entry in parts["layer"]["oneOf"]]
    assert {f"layer.{kind}" for kind in SAMPLES} < set(kinds)
    assert len(set(kinds)) == len(kinds)
    for kind in kinds:
        assert parts[kind]["properties"]["type"] == {"const": kind.removeprefix("layer.")}
        assert "type" in parts[kind]["required"]


@pytest.mark.parametrize("kind", SAMPLES)
def test_what_a_layer_refuses_does_not_fit(kind: str) -> None:
    sample = nn.layer_from_config(SAMPLES[kind][0]).to_config()
    assert not fits("layer", {**sample, "xyzzy": 1})
    for setting in engine_schema()[kind]:
        for value in wrong(dict(setting)):
            config = {**sample, setting["name"]: value}
            with pytest.raises(loom.ConfigError):
                nn.layer_from_config(config)
            assert not fits(f"layer.{kind}", config), (setting, value)
        if "default" not in setting and not setting["optional"]:
            assert not fits(
                f"layer.{kind}", {name: value for name, value in sample.items() if name != setting["name"]}
            )


STEP = {"type": "step", "steps": 2}
CONFIGS: list[tuple[str, Any, dict[str, list[Any]], dict[str, list[Any]]]] = [
    (
        "training",
        loom.TrainingConfig,
        {
            "optimizer": ["sgd", {"type": "lion", "beta1": 0.5}],
            "schedule": [
                "cosine",
                {"type": "warmup", "steps": 3, "then": STEP},
                {"type": "epochs", "schedule": STEP, "steps_per_epoch": 5},
            ],
            "loss": ["cross_entropy", {"huber": {"delta": 2.0}}, "huber"],
            "metrics": [
                ["mae", {"top_k_accuracy": {"k": 3}}],
                ["sklearn.r2_score", {"sklearn.f1_score": {"average": "macro"}}],
            ],
            "gradient_clip": [None, 0.0, 1.0],
            "depth_scale": ["geometric", 1.05],
            "early_stopping": [{"monitor": "loss", "patience": 3}],
            "device": ["cpu", "gpu:1"],
            "learning_rate": [0.0, 0.1],
        },
        {
            "optimizer": ["adem", {"type": "sgd", "momentum": 1.0}, {"type": "sgd", "beta1": 0.5}],
            "schedule": [{"type": "warmup"}, {"type": "epochs"}, {"type": "cosine", "end_factor": -1.0}],
            "loss": ["xyzzy", {"huber": {"delta": 0.0}}],
            "metrics": [["xyzzy"]],
            "gradient_clip": [-1.0],
            "depth_scale": ["deep", 0.0],
            "early_stopping": [{"patience": -1}],
            "device": ["cuda"],
            "epochs": [0, -1, "3", None],
            "validation_split": [1.0, -0.1],
            "on_nonfinite": ["ignore"],
            "shuffle": [1],
        },
    ),
    (
        "tweening",
        loom.TweenConfig,
        {"mode": ["difference"], "history": [None, 3], "optimizer": [None, "adam"], "momentum": [0.0]},
        {"mode": ["xyzzy"], "history": [0], "momentum": [1.0], "explosion_limit": [1.0], "local_steps": [0]},
    ),
    (
        "network",
        lambda **given: loom.Network.from_config(given),
        {"grid": [[1, 2], [2, 1, 2]], "input_shape": [3, [3, 4], [None, 4]], "precision": ["mixed"]},
        {
            "grid": [[1], [0, 1]],
            "input_shape": [0, []],
            "precision": ["float16"],
            "seed": [-1],
            "cells": [[{"at": [0, 0]}], [{"at": [0, 0, 0], "layers": [{"type": "dense"}]}]],
            "links": [[{"source": [0, 0, 0]}]],
        },
    ),
]


@pytest.mark.parametrize(("of", "make", "right", "refused"), CONFIGS, ids=[case[0] for case in CONFIGS])
def test_configurations(
    of: str, make: Any, right: dict[str, list[Any]], refused: dict[str, list[Any]]
) -> None:
    base: dict[str, Any] = {"input_shape": [3]} if of == "network" else {}
    assert fits(of, make(**base).config.to_config() if of == "network" else make().to_config())
    for name, values in right.items():
        for value in values:
            config = {**base, name: value}
            make(**config)
            assert fits(of, config), config
            if of != "network":
                assert fits(of, make(**config).to_config()), config
    for name, values in refused.items():
        for value in values:
            config = {**base, name: value}
            with pytest.raises(loom.ConfigError):
                make(**config)
            assert not fits(of, config), config
    assert not fits(of, {**base, "xyzzy": 1})
