"""What makes a run the run that it is: the network, the settings, the data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from typing import Any, cast

import numpy as np

from loom._settings.encoding import encode
from loom._typing import JSON
from loom.callbacks import (
    AimLogger,
    Callback,
    CSVLogger,
    DeviationHistory,
    History,
    MLflowLogger,
    ModelCheckpoint,
    RunRecorder,
    TensorBoard,
    WandbLogger,
    WeightHistograms,
)
from loom.data import ArraySource, Data, Source, TrainingBatch, as_source
from loom.data.buckets import Buckets
from loom.errors import ConfigError
from loom.measuring import Observe
from loom.measuring.settings import watch_settings
from loom.training.config import TrainingConfig
from loom.training.ported import metrics_as_given
from loom.training.settings import TargetRule

__all__ = [
    "callbacks_identity",
    "data_identity",
    "differences",
    "learning_identity",
    "run_identity",
    "settings_identity",
]

# What a run shows and measures of itself changes nothing of what it learns.
_NO_MATTER = frozenset(
    {
        "verbose",
        "track_perf",
        "device",
        "ignore_findings",
        "on_interrupt",
        "split_moments",
        "split_gradients",
    }
)
_WHOLE = 1 << 30
_SAMPLES = 4096
_CHUNK = 1 << 16


def settings_identity(config: TrainingConfig) -> dict[str, JSON]:
    """Returns the settings of a training as plain JSON values; functions by their names."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    values["metrics"] = metrics_as_given(config.metrics)
    return {
        field.name: _encoded(values[field.name])
        for field in fields(config)
        if field.name not in _NO_MATTER and (field.name != "exchange" or config.exchange != "float32")
    }


_WATCHERS = (
    AimLogger,
    CSVLogger,
    DeviationHistory,
    History,
    MLflowLogger,
    ModelCheckpoint,
    RunRecorder,
    TensorBoard,
    WandbLogger,
    WeightHistograms,
)
"""Callbacks that look at a training, and change nothing of what it comes to."""


def callbacks_identity(callbacks: Iterable[Callback]) -> dict[str, list[str]]:
    """Returns the names of the callbacks that may change what a training comes to; nothing where none may."""
    names = [_name(type(each)) for each in callbacks if type(each) not in _WATCHERS]
    return {"callbacks": names} if names else {}


def run_identity(
    data: Data,
    validation: Data | None,
    config: TrainingConfig,
    observe: Observe | None,
    tween: TargetRule | None,
) -> dict[str, Any]:
    """Returns what makes a run the one that it is, the network aside."""
    return {
        **learning_identity(config, observe, tween),
        "data": data_identity(data),
        "validation": data_identity(validation),
    }


def learning_identity(
    config: TrainingConfig, observe: Observe | None, tween: TargetRule | None
) -> dict[str, Any]:
    """Returns how the network learns, as plain values."""
    return {
        "learning": "backpropagation" if tween is None else "tweening",
        "training": settings_identity(config),
        "tween": None if tween is None else tween.engine_settings(),
        "observe": None if observe is None else watch_settings(observe),
    }


def _encoded(value: object) -> JSON:
    try:
        return encode(value)
    except ConfigError:
        if isinstance(value, Mapping):
            return {str(name): _encoded(entry) for name, entry in value.items()}
        entries = value if isinstance(value, (tuple, list)) else [value]
        return [_encoded(entry) if not callable(entry) else _name(entry) for entry in entries]


def _name(function: object) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__)


def data_identity(data: Data | None, *, whole: bool = False) -> dict[str, Any] | None:
    """Returns what tells data from other data.

    Of arrays, and of lists of them, that is shapes, types and a hash of the bytes: of all up to 1 GiB an
    array, of 4,096 pieces of 64 KiB of what is larger. What is iterated is known by its type and length, and
    by what its method `identity` says, where it has one.

    Args:
        data: As in `loom.train`.
        whole: Whether all bytes count, however many there are.
    """
    if data is None:
        return None
    source: Source = as_source(data)
    if isinstance(source, ArraySource):
        return _batch(source.batch, whole)
    batches: Any = source.batches
    try:
        length = len(batches)
    except TypeError:
        length = None
    found: dict[str, Any] = {"type": type(batches).__qualname__, "batches": length}
    if hasattr(batches, "identity"):
        found["source"] = batches.identity()
    if getattr(batches, "is_at_hand", isinstance(batches, (list, tuple))):
        found["content"] = [_batch(batch, whole) for batch in source]
    elif isinstance(batches, Buckets):
        # All that they hold is hashed there, in whatever order it is dealt out.
        found["content"] = found["source"]["values"]
    return found


def _batch(batch: TrainingBatch, whole: bool) -> dict[str, Any]:
    parts = {"input": batch.input, "target": batch.target, "weight": batch.weight}
    return {name: _array(np.asarray(values), whole) for name, values in parts.items() if values is not None}


def _array(values: np.ndarray[Any, Any], whole: bool) -> dict[str, Any]:
    found = hashlib.sha256()
    for piece in _pieces(values, whole):
        found.update(piece)
    return {"shape": list(values.shape), "type": str(values.dtype), "values": found.hexdigest()}


def _pieces(values: np.ndarray[Any, Any], whole: bool) -> Iterator[Any]:
    if values.dtype.hasobject:
        yield repr(values.tolist()).encode()
        return
    if values.size == 0 or values.ndim == 0:
        yield values.tobytes()
        return
    rows = len(values)
    size = max(values.nbytes // rows, 1)
    step = max(_CHUNK // size, 1)
    starts = range(0, rows, step)
    if not whole and values.nbytes > _WHOLE and len(starts) > _SAMPLES:
        chosen = np.linspace(0, len(starts) - 1, _SAMPLES).astype(int)
        starts = [starts[index] for index in chosen]  # type: ignore[assignment]
    for start in starts:
        yield np.ascontiguousarray(values[start : start + step]).view(np.uint8).data


def differences(there: object, here: object, path: str = "") -> list[str]:
    """Says in what two identities differ, a line each.

    Args:
        there: That of the folder.
        here: That of this call.
        path: Where in them this is.
    """
    if _entries(there) == _entries(here) > 0:
        there, here = dict(enumerate(cast(Any, there))), dict(enumerate(cast(Any, here)))
    if isinstance(there, Mapping) and isinstance(here, Mapping):
        names = list(dict.fromkeys([*there, *here]))
        prefix = f"{path}." if path else ""
        return [
            line for name in names for line in differences(there.get(name), here.get(name), f"{prefix}{name}")
        ]
    if there == here:
        return []
    if path.endswith(".values"):
        return [f"{path}: other numbers"]
    return [f"{path}: {_short(there)} there, {_short(here)} here"]


def _entries(value: object) -> int:
    """Returns the length of a list of mappings; of anything else 0."""
    return len(value) if isinstance(value, list) and all(isinstance(each, Mapping) for each in value) else 0


def _short(value: object) -> str:
    text = json.dumps(value) if value is not None else "none"
    return text if len(text) <= 80 else f"{text[:77]}..."
