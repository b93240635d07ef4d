"""Data: what training takes, tables, labels, splits, image folders, and sources larger than memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom._settings.spellings import attribute_error
from loom.data.augmenting import Augment as Augment
from loom.data.batches import ArraySource as ArraySource
from loom.data.batches import BatchSource as BatchSource
from loom.data.batches import Data as Data
from loom.data.batches import Source as Source
from loom.data.batches import TrainingBatch as TrainingBatch
from loom.data.batches import as_source as as_source
from loom.data.columns import Table as Table
from loom.data.columns import columns as columns
from loom.data.encoder import ColumnEncoder as ColumnEncoder
from loom.data.extents import Padded as Padded
from loom.data.foreign import samples as samples
from loom.data.generated import generate as generate
from loom.data.images import image_folder as image_folder
from loom.data.labels import Classes as Classes
from loom.data.sharding import ByShard as ByShard
from loom.data.sharding import Sharded as Sharded
from loom.data.sharding import by_shard as by_shard
from loom.data.splitting import folds as folds
from loom.data.splitting import split as split
from loom.data.streamed_arrays import stream as stream
from loom.data.streamed_tables import column_files as column_files
from loom.data.targets import as_target as as_target
from loom.data.windows import windows as windows

__all__ = [
    "ArraySource",
    "Augment",
    "BatchSource",
    "ByShard",
    "Classes",
    "ColumnEncoder",
    "Data",
    "Padded",
    "Sharded",
    "Source",
    "Table",
    "TrainingBatch",
    "as_source",
    "as_target",
    "by_shard",
    "column_files",
    "columns",
    "folds",
    "generate",
    "image_folder",
    "samples",
    "split",
    "stream",
    "windows",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise attribute_error(__name__, name, __all__)
