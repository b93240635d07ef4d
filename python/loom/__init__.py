"""loom: a neural-network engine.

A network is a 3-D grid of cells that hold layers. See `loom.Network`,
`loom.nn` for the layers, and `loom.train`.

Names are loaded when they are first used, so that importing loom costs little
more than importing NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from loom import _interpreters  # noqa: F401 - refuses interpreters that cannot have it

# After that: in other interpreters than the main one NumPy fails, and does not say why.
# isort: split
import numpy as _numpy  # noqa: F401 - the native module needs it

from loom._forks import loading as _loading
from loom._native import __version__ as __version__
from loom._public import HOMES as _HOMES

# The engine raises these, whatever else is loaded.
from loom.errors import CellIndexError as CellIndexError
from loom.errors import ConfigError as ConfigError
from loom.errors import DataError as DataError
from loom.errors import DeviceError as DeviceError
from loom.errors import DTypeError as DTypeError
from loom.errors import FileError as FileError
from loom.errors import InternalError as InternalError
from loom.errors import InvalidValueError as InvalidValueError
from loom.errors import LoomError as LoomError
from loom.errors import MissingExtraError as MissingExtraError
from loom.errors import NonFiniteError as NonFiniteError
from loom.errors import OutOfMemoryError as OutOfMemoryError
from loom.errors import SerializationError as SerializationError
from loom.errors import ShapeError as ShapeError
from loom.errors import StateError as StateError

if TYPE_CHECKING:
    # The one list of the other public names; tools/public_names.py makes the table of it by which they
    # are found when they are first used.
    from loom import analysis as analysis
    from loom import callbacks as callbacks
    from loom import data as data
    from loom import datasets as datasets
    from loom import initializers as initializers
    from loom import losses as losses
    from loom import metrics as metrics
    from loom import models as models
    from loom import nn as nn
    from loom import observers as observers
    from loom import optimizers as optimizers
    from loom import plot as plot
    from loom import schedules as schedules
    from loom import serving as serving
    from loom import sklearn as sklearn
    from loom import tensors as tensors
    from loom import text as text
    from loom.architecture import Categories as Categories
    from loom.architecture import CellConfig as CellConfig
    from loom.architecture import LinkConfig as LinkConfig
    from loom.architecture import NetworkConfig as NetworkConfig
    from loom.callbacks import AimLogger as AimLogger
    from loom.callbacks import Callback as Callback
    from loom.callbacks import CSVLogger as CSVLogger
    from loom.callbacks import DeviationHistory as DeviationHistory
    from loom.callbacks import EarlyStopping as EarlyStopping
    from loom.callbacks import ExponentialMovingAverage as ExponentialMovingAverage
    from loom.callbacks import History as History
    from loom.callbacks import LambdaCallback as LambdaCallback
    from loom.callbacks import Lookahead as Lookahead
    from loom.callbacks import MaxNorm as MaxNorm
    from loom.callbacks import MLflowLogger as MLflowLogger
    from loom.callbacks import ModelCheckpoint as ModelCheckpoint
    from loom.callbacks import ReduceLROnPlateau as ReduceLROnPlateau
    from loom.callbacks import RunRecorder as RunRecorder
    from loom.callbacks import StochasticWeightAveraging as StochasticWeightAveraging
    from loom.callbacks import StopTraining as StopTraining
    from loom.callbacks import TensorBoard as TensorBoard
    from loom.callbacks import TerminateOnNaN as TerminateOnNaN
    from loom.callbacks import WandbLogger as WandbLogger
    from loom.callbacks import WeightHistograms as WeightHistograms
    from loom.card import ModelCard as ModelCard
    from loom.catalogue import LayerKind as LayerKind
    from loom.catalogue import NumericType as NumericType
    from loom.catalogue import dtypes as dtypes
    from loom.catalogue import layers as layers
    from loom.checkup import doctor as doctor
    from loom.data import TrainingBatch as TrainingBatch
    from loom.device import Device as Device
    from loom.device import DeviceList as DeviceList
    from loom.device import FrameStatistics as FrameStatistics
    from loom.device import devices as devices
    from loom.device import frame_statistics as frame_statistics
    from loom.device import init_gpu as init_gpu
    from loom.device import release_gpu as release_gpu
    from loom.device import reset_frame_statistics as reset_frame_statistics
    from loom.device import time_frames as time_frames
    from loom.diagnosis import DoctorWarning as DoctorWarning
    from loom.full_batch import LBFGS as LBFGS
    from loom.gradient_check import check_gradients as check_gradients
    from loom.introspection import describe as describe
    from loom.introspection import has_method as has_method
    from loom.introspection import signature as signature
    from loom.local_training import LocalResult as LocalResult
    from loom.local_training import train_locally as train_locally
    from loom.measuring import BottleneckWarning as BottleneckWarning
    from loom.measuring import MeasureHistory as MeasureHistory
    from loom.measuring import Measures as Measures
    from loom.measuring import Observe as Observe
    from loom.measuring.report import LayerReport as LayerReport
    from loom.measuring.report import TweenReport as TweenReport
    from loom.mesh import Mesh as Mesh
    from loom.mesh.stepping import Stepper as Stepper
    from loom.mesh.stepping import SteppingResult as SteppingResult
    from loom.mesh.stepping import train_stepping as train_stepping
    from loom.models.gguf.writing import save_gguf as save_gguf
    from loom.models.inspecting import inspect as inspect
    from loom.models.loading import load as load
    from loom.models.onnx import save_onnx as save_onnx
    from loom.models.plain import export_model as export_model
    from loom.models.plain import import_model as import_model
    from loom.models.torch import from_torch as from_torch
    from loom.models.torch import to_torch as to_torch
    from loom.network import Network as Network
    from loom.network import Sequential as Sequential
    from loom.network.session import Session as Session
    from loom.optimizers import LAMB as LAMB
    from loom.optimizers import SGD as SGD
    from loom.optimizers import Adadelta as Adadelta
    from loom.optimizers import Adafactor as Adafactor
    from loom.optimizers import Adagrad as Adagrad
    from loom.optimizers import Adam as Adam
    from loom.optimizers import Adamax as Adamax
    from loom.optimizers import AdamW as AdamW
    from loom.optimizers import Lion as Lion
    from loom.optimizers import Muon as Muon
    from loom.optimizers import NAdam as NAdam
    from loom.optimizers import RAdam as RAdam
    from loom.optimizers import RMSprop as RMSprop
    from loom.predictors import Predictors as Predictors
    from loom.rate_search import RateSearch as RateSearch
    from loom.rate_search import find_rate as find_rate
    from loom.reproduction import Reproduction as Reproduction
    from loom.reproduction import reproduce as reproduce
    from loom.runs import read_run as read_run
    from loom.schemas import json_schema as json_schema
    from loom.tensors import TensorEntry as TensorEntry
    from loom.tensors import TensorFile as TensorFile
    from loom.tensors import open_tensors as open_tensors
    from loom.text.measuring import perplexity as perplexity
    from loom.trainer import Trainer as Trainer
    from loom.training import train as train
    from loom.training.config import TrainingConfig as TrainingConfig
    from loom.training.evaluation import evaluate as evaluate
    from loom.training.receipt import Receipt as Receipt
    from loom.training.result import TrainingResult as TrainingResult
    from loom.training.run_folder import RunFolder as RunFolder
    from loom.tweening import TweenConfig as TweenConfig
    from loom.tweening.state import TweenState as TweenState
    from loom.tweening.trainer import TweenTrainer as TweenTrainer

if not TYPE_CHECKING:
    # Type checkers take the names from the imports, and so find one that is misspelled.
    __all__ = list(_HOMES)

    def __getattr__(name: str) -> object:
        with _loading.turn():
            home = _HOMES.get(name, "loom" if _is_module(name) else None)
            if home is None:
                raise _missing(name)
            value = import_module(f"loom.{name}") if home == "loom" else getattr(import_module(home), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


def _missing(name: str) -> AttributeError:
    """Returns the error for a name that is not there; it says what loom calls it."""
    from loom._settings.spellings import attribute_error, spelling

    within = import_module("loom.nn").__all__ if not name.startswith("_") else ()
    layer = name if name in within else spelling(name, within)
    if layer is not None:
        return AttributeError(f"module 'loom' has no attribute '{name}'; the layer is loom.nn.{layer}")
    return attribute_error("loom", name, _HOMES)


def _is_module(name: str) -> bool:
    """Whether there is a public module of this name, such as `loom.handles`."""
    from importlib.util import find_spec

    return not name.startswith("_") and find_spec(f"loom.{name}") is not None
