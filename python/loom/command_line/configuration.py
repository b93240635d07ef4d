"""What `loom train` reads: a file that says which network learns from which data, and how."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from loom import datasets
from loom._settings.checks import flag, whole
from loom._settings.encoding import Plain
from loom._settings.endings import check_ending
from loom._settings.suggestions import shown, unknown
from loom.architecture import NetworkConfig
from loom.card import ModelCard
from loom.command_line.files import COLUMNS, Table, read_array, read_npz, read_table, shaped
from loom.command_line.targets import learned
from loom.errors import ConfigError, DataError, FileError
from loom.extras import require
from loom.losses import AUTO, is_classification
from loom.models.loading import load
from loom.network import Network
from loom.training.config import TrainingConfig
from loom.training.run_folder import RunFolder

if TYPE_CHECKING:
    from loom.data import Data

__all__ = ["DataSettings", "PlannedTraining", "TrainingFile", "plan", "read_settings"]


_EXPONENT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+\Z")


@dataclass(frozen=True)
class DataSettings(Plain):
    """Where data is: in one `file`, in two of `x` and `y`, or in a folder in MNIST's format.

    Args:
        file: An .npz file with x and y, and weight, x_validation, y_validation, weight_validation where there
            are such; or a .csv file.
        target: The column of a .csv file that is to be told; the last one where None. Where the loss is of
            classes, or where it holds words, its values in order are the classes.
        features: The columns that it is told from; all others where None.
        header: Whether the first line of a .csv file names its columns. Where None it does if there is no
            number among its cells, or if `target` and `features` stand there.
        x: The samples: .npy, or IDX.
        y: Their targets: .npy, or IDX.
        mnist: A folder with the four files of MNIST's format; what is for tests there is for validation.
        validation: A second file like `file`, that is measured but not learned from.
        shuffle: A seed by which rows are put into another order once, so that `validation_split` holds out
            a sample of all; None leaves them as they are.

    Raises:
        ConfigError: There is not one source, or a setting is for another one.
    """

    file: str | None = None
    target: str | None = None
    features: Sequence[str] | None = None
    header: bool | None = None
    x: str | None = None
    y: str | None = None
    mnist: str | None = None
    validation: str | None = None
    shuffle: int | None = None

    def __post_init__(self) -> None:
        for name in ("file", "target", "x", "y", "mnist", "validation"):
            value = getattr(self, name)
            if not (value is None or isinstance(value, str)):
                raise ConfigError(f"data: {name} is a text, got {shown(value)}")
        sources = [name for name in ("file", "x", "mnist") if getattr(self, name) is not None]
        if len(sources) != 1 or (self.x is None) != (self.y is None):
            raise ConfigError("data: one of file (.npz or .csv), x with y, or mnist says where it is")
        table = self.file is not None and self.file.lower().endswith(".csv")
        of_table = ("target", "features", "header")
        wrong = next((name for name in of_table if getattr(self, name) is not None), None)
        if wrong and not table:
            does = "is of the first line" if wrong == "header" else "names columns"
            raise ConfigError(f"data: {wrong} {does} of a .csv file")
        if self.header is not None:
            flag("data", "header", self.header)
        if self.validation is not None and self.file is None:
            raise ConfigError("data: validation is a second file, beside file")
        if self.features is not None and not (
            isinstance(self.features, (list, tuple)) and all(isinstance(name, str) for name in self.features)
        ):
            raise ConfigError(f"data: features is a list of columns, got {shown(self.features)}")
        if self.shuffle is not None:
            whole("data", "shuffle", self.shuffle, least=0)


@dataclass(frozen=True)
class TrainingFile(Plain):
    """What `loom train` is told; paths are from the file's own folder on.

    Args:
        network: The settings of `loom.NetworkConfig`; or `layers` in place of its cells, for a network of
            one cell; or `file`, a network to train further. `input_shape` is the data's where it is left out.
        data: The settings of `DataSettings`.
        training: The settings of `loom.TrainingConfig`.
        run: A folder that keeps the run, or the settings of `loom.RunFolder`.
        save: The file that the network is saved to.
        card: The settings of `loom.ModelCard`.
    """

    network: Mapping[str, Any]
    data: Mapping[str, Any]
    training: Mapping[str, Any] = field(default_factory=dict)
    run: str | Mapping[str, Any] | None = None
    save: str | None = None
    card: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        for name in ("network", "data", "training"):
            if not isinstance(getattr(self, name), Mapping):
                raise ConfigError(f"{name} is a table of settings, got {shown(getattr(self, name))}")
        if not (self.save is None or isinstance(self.save, str)):
            raise ConfigError(f"save is a file, got {shown(self.save)}")


@dataclass(frozen=True)
class PlannedTraining:
    """A training that is ready to begin.

    Args:
        network: The network.
        data: What it learns from.
        validation: What is measured beside; or None.
        config: How it goes.
        run: The folder that keeps it; or None.
        save: The file that the network is to be saved to; or None.
    """

    network: Network
    data: Data
    validation: Data | None
    config: TrainingConfig
    run: RunFolder | None
    save: Path | None


def read_settings(file: str | Path, changes: Sequence[str] = ()) -> TrainingFile:
    """Reads a file of settings: TOML (from Python 3.11 on), JSON, or YAML where PyYAML is installed.

    Args:
        file: The file; its name's ending tells what it is.
        changes: Settings to change, such as "training.epochs=5"; values as JSON has them, or texts.

    Raises:
        FileError: It cannot be read.
        ConfigError: It is no such file, or a setting is unknown or missing.
        MissingExtraError: It is YAML, and PyYAML is not installed.
    """
    path = Path(file)
    parse = _parser(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(error.errno, f"cannot be read: {error.strerror}", str(path)) from error
    except ValueError as error:
        raise ConfigError(f"{path} is no text: {error}") from error
    try:
        settings = parse(text)
    # Of each library its own, all of which but YAML's are ValueErrors.
    except Exception as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"{path}: expected settings by name, got {shown(settings)}")
    for change in changes:
        _change(settings, change)
    return TrainingFile.from_config(settings)


def plan(settings: TrainingFile, folder: Path) -> PlannedTraining:
    """Reads the data, makes the network, and checks the rest.

    Args:
        settings: What is told.
        folder: What paths are from.

    Raises:
        ConfigError: A setting is unknown, missing or out of range.
        DataError: The data cannot be used.
        FileError: A file cannot be read.
    """
    config = TrainingConfig.from_config(settings.training)
    run = _run(settings.run, folder)
    told = DataSettings.from_config(settings.data)
    # Without a loss targets decide.
    classes = None if config.loss == AUTO else is_classification(config.loss)
    data, validation, labels, columns = _data(told, folder, classes=classes)
    network = _network(settings.network, folder, np.shape(data[0])[1:])
    data = _shaped(data, network)
    if validation is not None:
        validation = _shaped(validation, network)
    if settings.card is not None:
        network.card = ModelCard.from_config(settings.card)
    if labels is not None and network.card.labels is None:
        network.card = dataclasses.replace(network.card, labels=labels)
    if columns is not None:
        # `loom predict` finds them in other files, in whatever order.
        metadata = {**network.card.metadata, COLUMNS: columns}
        network.card = dataclasses.replace(network.card, metadata=metadata)
    save = None if settings.save is None else _save(folder / settings.save, run)
    return PlannedTraining(network, data, validation, config, run, save)


def _save(file: Path, run: RunFolder | None) -> Path:
    """Returns where a network is to be saved; what cannot be is refused before it learns, and not after."""
    check_ending("save", file)
    made = None if run is None else Path(run.folder)
    refused = None
    if file.is_dir():
        refused = errno.EISDIR, "is a folder, and no file"
    elif made is not None and file.parent in (made, *made.parents) and not file.parent.exists():
        # The run makes it.
        pass
    elif not file.parent.is_dir():
        refused = errno.ENOENT, f"cannot be written: there is no folder {file.parent}"
    elif not os.access(file.parent, os.W_OK):
        refused = errno.EACCES, f"cannot be written: the folder {file.parent} is read-only"
    if refused is not None:
        raise FileError(*refused, str(file))
    return file


def _shaped(data: Any, network: Network) -> Data:  # noqa: ANN401 - two or three arrays
    x, *others = data
    return (shaped(np.asarray(x), network.input_shape), *others)


def _parser(path: Path) -> Callable[[str], Any]:
    ending = path.suffix.lower()
    if ending == ".json":
        return json.loads
    if ending == ".toml":
        try:
            return import_module("tomllib").loads  # type: ignore[no-any-return]
        except ImportError:
            raise ConfigError(f"{path}: TOML is read from Python 3.11 on; write it as JSON or YAML") from None
    if ending in (".yaml", ".yml"):
        library = require("yaml", extra="yaml", purpose=f"reading {path}")
        return partial(library.load, Loader=_yaml_loader(library))
    raise ConfigError(f"{path}: settings are in a file .toml, .json, .yaml or .yml")


def _yaml_loader(library: Any) -> Any:  # noqa: ANN401 - what is in PyYAML
    """A safe loader to which 1e-3 is a number, as in TOML, JSON and YAML 1.2; in YAML 1.1 it is a text."""

    class Loader(library.SafeLoader):  # type: ignore[misc]
        """One that others who use PyYAML do not meet."""

    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+.0123456789"))
    return Loader


def _change(settings: dict[str, Any], change: str) -> None:
    name, separator, text = change.partition("=")
    *parents, last = name.strip().split(".")
    if not separator or not last:
        raise ConfigError(f'--set {change}: expected name=value, such as "training.epochs=5"')
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    for parent in parents:
        settings = settings.setdefault(parent, {})
        if not isinstance(settings, dict):
            raise ConfigError(f"--set {change}: {parent} is no table of settings")
    settings[last] = value


def _run(told: object, folder: Path) -> RunFolder | None:
    if told is None:
        return None
    settings = {"folder": told} if isinstance(told, str) else told
    if not isinstance(settings, Mapping):
        raise ConfigError(f"run is a folder, or a table of settings, got {shown(told)}")
    known = [each.name for each in dataclasses.fields(RunFolder)]
    for name in settings:
        if name not in known:
            raise unknown("run setting", name, known)
    if not isinstance(settings.get("folder"), str):
        raise ConfigError("run: folder says where the run is kept")
    return RunFolder(**{**settings, "folder": folder / settings["folder"]})


def _network(told: Mapping[str, Any], folder: Path, input_shape: tuple[int, ...]) -> Network:
    settings = dict(told)
    if "file" in settings:
        if len(settings) > 1 or not isinstance(settings["file"], str):
            raise ConfigError("network: file names a network to train further, and goes with nothing else")
        return load(folder / settings["file"])
    if "layers" in settings:
        if "cells" in settings:
            raise ConfigError(
                "network: layers are those of the one cell, and cells those of a grid: give one"
            )
        settings["cells"] = [{"at": (0, 0, 0), "layers": settings.pop("layers")}]
    if not settings.get("cells"):
        raise ConfigError("network: layers are missing, or cells, or file")
    return Network.from_config(NetworkConfig.from_config({"input_shape": input_shape, **settings})).build()


def _data(
    told: DataSettings, folder: Path, *, classes: bool | None
) -> tuple[Any, Any, tuple[str, ...] | None, list[str] | None]:
    """Returns data, validation, labels, and the names of the columns that are learned from."""
    labels = named = None
    data: Any
    validation: Any = None
    if told.mnist is not None:
        data, validation = datasets.mnist(folder / told.mnist)
    elif told.file is None:
        data = (read_array(folder / str(told.x)), read_array(folder / str(told.y)))
    elif told.file.lower().endswith(".csv"):
        expected = [*([] if told.target is None else [told.target]), *(told.features or ())]
        table = read_table(folder / told.file, header=told.header, expected=expected)
        columns = _columns(table, told)
        meaning = learned(table, columns[0], classes=classes)
        data = (table.numbers(columns[1]).astype(np.float32), meaning.read(table, columns[0]))
        labels, named = meaning.labels, columns[1] if table.is_named else None
        if told.validation is not None:
            held = read_table(
                folder / told.validation, header=told.header, expected=(columns[0], *columns[1])
            )
            _check_columns(held, (columns[0], *columns[1]))
            validation = (held.numbers(columns[1]).astype(np.float32), meaning.read(held, columns[0]))
    else:
        data, validation = read_npz(folder / told.file)
        if told.validation is not None:
            validation, _ = read_npz(folder / told.validation)
    if told.shuffle is not None:
        order = np.random.default_rng(told.shuffle).permutation(len(data[0]))
        if any(len(part) != len(order) for part in data):
            raise DataError(f"{told.file or told.x} has {len(order)} samples, but other numbers of targets")
        data = tuple(part[order] for part in data)
    return data, validation, labels, named


def _columns(table: Table, told: DataSettings) -> tuple[str, list[str]]:
    target = table.names[-1] if told.target is None else told.target
    features = [name for name in table.names if name != target] if told.features is None else told.features
    _check_columns(table, (target, *features))
    if target in features:
        raise ConfigError(f'data: the target "{target}" is among the features')
    if not features:
        raise ConfigError(f"{table.path} has no column beside the target")
    return target, list(features)


def _check_columns(table: Table, names: Sequence[str]) -> None:
    for name in names:
        if name not in table.names:
            error = unknown(f"column of {table.path}", name, table.names)
            hint = table.hint("header = true in the data's settings says so")
            raise ConfigError(f"{error}{hint}")
