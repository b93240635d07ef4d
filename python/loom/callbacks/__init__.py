"""Callbacks: code of the user's that runs while a network trains.

The hooks have Keras's names. `logs` holds the epoch's loss and metrics, those
of validation beginning with "val_"; batch hooks get the batch's loss.
"""

from loom.callbacks.base import Callback, Logs, StopTraining, TrainedNetwork
from loom.callbacks.checkpoint import ModelCheckpoint
from loom.callbacks.csv_logger import CSVLogger
from loom.callbacks.early_stopping import EarlyStopping
from loom.callbacks.functions import LambdaCallback
from loom.callbacks.history import History
from loom.callbacks.reduce_on_plateau import ReduceLROnPlateau
from loom.callbacks.running import CallbackList

__all__ = [
    "CSVLogger",
    "Callback",
    "CallbackList",
    "EarlyStopping",
    "History",
    "LambdaCallback",
    "Logs",
    "ModelCheckpoint",
    "ReduceLROnPlateau",
    "StopTraining",
    "TrainedNetwork",
]
