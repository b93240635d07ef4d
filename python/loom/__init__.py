"""loom: a neural-network engine.

A network is a 3-D grid of cells that hold layers. See `loom.Network`,
`loom.nn` for the layers, and `loom.train`.

Names are loaded when they are first used, so that importing loom costs little
more than importing NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import numpy as _numpy  # noqa: F401 - the native module needs it

from loom._native import __version__
from loom.errors import (
    CellIndexError,
    ConfigError,
    DataError,
    DeviceError,
    DTypeError,
    FileError,
    InternalError,
    InvalidValueError,
    LoomError,
    MissingExtraError,
    NonFiniteError,
    OutOfMemoryError,
    SerializationError,
    ShapeError,
    StateError,
)

if TYPE_CHECKING:
    from loom import (
        callbacks,
        datasets,
        initializers,
        losses,
        metrics,
        nn,
        observers,
        optimizers,
        plot,
        schedules,
    )
    from loom.architecture import CellConfig, LinkConfig, NetworkConfig
    from loom.callbacks import (
        Callback,
        CSVLogger,
        EarlyStopping,
        History,
        LambdaCallback,
        ModelCheckpoint,
        StopTraining,
    )
    from loom.catalogue import LayerKind, NumericType, dtypes, layers
    from loom.config import TrainingConfig
    from loom.data import TrainingBatch
    from loom.device import (
        Device,
        DeviceList,
        FrameStatistics,
        devices,
        frame_statistics,
        init_gpu,
        release_gpu,
        reset_frame_statistics,
        time_frames,
    )
    from loom.evaluation import evaluate
    from loom.measuring import BottleneckWarning, MeasureHistory, Measures, Observe
    from loom.mesh import Mesh
    from loom.network import Network, Sequential, load
    from loom.optimizers import SGD, Adam, AdamW, RMSprop
    from loom.result import TrainingResult
    from loom.session import Session
    from loom.stepping import Stepper, SteppingResult, train_stepping
    from loom.trainer import Trainer
    from loom.training import train
    from loom.tween_report import LayerReport, TweenReport
    from loom.tween_state import TweenState
    from loom.tween_trainer import TweenTrainer
    from loom.tweening import TweenConfig

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "BottleneckWarning",
    "CSVLogger",
    "Callback",
    "CellConfig",
    "CellIndexError",
    "ConfigError",
    "DTypeError",
    "DataError",
    "Device",
    "DeviceError",
    "DeviceList",
    "EarlyStopping",
    "FileError",
    "FrameStatistics",
    "History",
    "InternalError",
    "InvalidValueError",
    "LambdaCallback",
    "LayerKind",
    "LayerReport",
    "LinkConfig",
    "LoomError",
    "MeasureHistory",
    "Measures",
    "Mesh",
    "MissingExtraError",
    "ModelCheckpoint",
    "Network",
    "NetworkConfig",
    "NonFiniteError",
    "NumericType",
    "Observe",
    "OutOfMemoryError",
    "RMSprop",
    "Sequential",
    "SerializationError",
    "Session",
    "ShapeError",
    "StateError",
    "Stepper",
    "SteppingResult",
    "StopTraining",
    "Trainer",
    "TrainingBatch",
    "TrainingConfig",
    "TrainingResult",
    "TweenConfig",
    "TweenReport",
    "TweenState",
    "TweenTrainer",
    "__version__",
    "callbacks",
    "datasets",
    "devices",
    "dtypes",
    "evaluate",
    "frame_statistics",
    "init_gpu",
    "initializers",
    "layers",
    "load",
    "losses",
    "metrics",
    "nn",
    "observers",
    "optimizers",
    "plot",
    "release_gpu",
    "reset_frame_statistics",
    "schedules",
    "time_frames",
    "train",
    "train_stepping",
]

_MODULES = frozenset(
    {
        "callbacks",
        "datasets",
        "initializers",
        "losses",
        "metrics",
        "nn",
        "observers",
        "optimizers",
        "plot",
        "schedules",
    }
)
_HOMES = {
    "Adam": "optimizers",
    "AdamW": "optimizers",
    "BottleneckWarning": "measuring",
    "CSVLogger": "callbacks",
    "Callback": "callbacks",
    "CellConfig": "architecture",
    "Device": "device",
    "DeviceList": "device",
    "EarlyStopping": "callbacks",
    "FrameStatistics": "device",
    "History": "callbacks",
    "LambdaCallback": "callbacks",
    "LayerReport": "tween_report",
    "MeasureHistory": "measuring",
    "Measures": "measuring",
    "Mesh": "mesh",
    "ModelCheckpoint": "callbacks",
    "Network": "network",
    "NetworkConfig": "architecture",
    "NumericType": "catalogue",
    "Observe": "measuring",
    "RMSprop": "optimizers",
    "SGD": "optimizers",
    "Sequential": "network",
    "Stepper": "stepping",
    "SteppingResult": "stepping",
    "StopTraining": "callbacks",
    "Trainer": "trainer",
    "TrainingBatch": "data",
    "TrainingConfig": "config",
    "TrainingResult": "result",
    "TweenConfig": "tweening",
    "TweenReport": "tween_report",
    "TweenState": "tween_state",
    "TweenTrainer": "tween_trainer",
    "devices": "device",
    "dtypes": "catalogue",
    "evaluate": "evaluation",
    "frame_statistics": "device",
    "init_gpu": "device",
    "load": "network",
    "release_gpu": "device",
    "reset_frame_statistics": "device",
    "time_frames": "device",
    "LayerKind": "catalogue",
    "LinkConfig": "architecture",
    "Session": "session",
    "layers": "catalogue",
    "train": "training",
    "train_stepping": "stepping",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return import_module(f"loom.{name}")
    if name in _HOMES:
        value = getattr(import_module(f"loom.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'loom' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
