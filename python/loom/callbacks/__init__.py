"""Callbacks: code of the user's that runs while a network trains; see `Callback`."""

from loom.callbacks.aim_logger import AimLogger
from loom.callbacks.base import Callback, Logs, StopTraining, TrainedNetwork
from loom.callbacks.checkpoint import ModelCheckpoint
from loom.callbacks.csv_logger import CSVLogger
from loom.callbacks.deviation_history import DeviationHistory
from loom.callbacks.early_stopping import EarlyStopping
from loom.callbacks.functions import LambdaCallback
from loom.callbacks.history import History
from loom.callbacks.lookahead import Lookahead
from loom.callbacks.max_norm import MaxNorm
from loom.callbacks.mlflow_logger import MLflowLogger
from loom.callbacks.moving_average import ExponentialMovingAverage
from loom.callbacks.reduce_on_plateau import ReduceLROnPlateau
from loom.callbacks.run_recorder import RunRecorder
from loom.callbacks.running import CallbackList
from loom.callbacks.tensor_board import TensorBoard
from loom.callbacks.terminate_on_nan import TerminateOnNaN
from loom.callbacks.wandb_logger import WandbLogger
from loom.callbacks.weight_averaging import StochasticWeightAveraging
from loom.callbacks.weight_histograms import WeightHistogram, WeightHistograms

__all__ = [
    "AimLogger",
    "CSVLogger",
    "Callback",
    "CallbackList",
    "DeviationHistory",
    "EarlyStopping",
    "ExponentialMovingAverage",
    "History",
    "LambdaCallback",
    "Logs",
    "Lookahead",
    "MLflowLogger",
    "MaxNorm",
    "ModelCheckpoint",
    "ReduceLROnPlateau",
    "RunRecorder",
    "StochasticWeightAveraging",
    "StopTraining",
    "TensorBoard",
    "TerminateOnNaN",
    "TrainedNetwork",
    "WandbLogger",
    "WeightHistogram",
    "WeightHistograms",
]
