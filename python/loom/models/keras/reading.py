"""Models that Keras saved: `.keras`, and `.h5` with a model in it."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from loom._settings.checks import file_path
from loom.errors import ConfigError, FileError, LoomError, SerializationError
from loom.extras import require
from loom.models.keras import hdf5
from loom.models.keras.calls import layers_in
from loom.models.keras.graph import ModelGraph
from loom.models.keras.training import bare, keep, precision_of
from loom.models.keras.weights import Flat, Groups, Weights, snake_names
from loom.models.pieces import placed
from loom.models.plain import import_model
from loom.network import Network

__all__ = ["load", "weights_of"]

_MOST = 1_000_000_000
# What reading runs into where a file is not what it should be.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, KeyError, IndexError, ValueError, TypeError, AttributeError),
    *(RuntimeError, RecursionError, NotImplementedError, EOFError, ArithmeticError),
)


def load(path: str | PathLike[str]) -> Network:
    """Reads a model that Keras saved: `model.save("model.keras")`, or as `.h5`.

    Sequential and functional models of Keras 2 and 3, made of its usual layers. The network reads what the
    model reads: images as (height, width, channels), sequences as (time, features); where loom has channels
    first, a Permute is put in between. Several inputs and outputs have Keras's names. Code in the file
    (Lambda, layers of one's own) is never run.

    Frozen layers are frozen, and policies of types make the precision. A warning tells what Keras says of
    training and the network has not: penalties and constraints on weights, layers that share them, masks of
    outputs.

    Args:
        path: The file.

    Returns:
        The network; in one cell where it has one input, one output, and branches that are nested in each
        other.

    Raises:
        FileError: The file cannot be read.
        SerializationError: It is damaged, or holds weights without a model.
        ConfigError: Layers are of no kind that loom has, or have options that it has not: all are listed. Or
            an input is read by no output, or leaves more open than the steps of sequences.
        MissingExtraError: h5py is not installed.
    """
    place = file_path("load", path)
    with _opened(place) as (config, weights):
        return _network(place, config, weights)


def weights_of(path: Path) -> list[tuple[str, tuple[int, ...], str, int, str]]:
    """Lists the weights of a model: name, shape, type, bytes, and Keras's class of the layer."""
    with _opened(path) as (config, weights):
        layers = layers_in(config)
        counted = snake_names(layers)
        names = [(layer["config"]["name"], layer["class_name"]) for layer in layers]
        return [
            (f"{name}/{number}", array.shape, str(array.dtype), array.nbytes, kind)
            for name, kind in names
            for number, array in enumerate(weights.of(name, counted[name]))
        ]


@contextmanager
def _opened(path: Path) -> Iterator[tuple[dict[str, Any], Weights]]:
    """A model's configuration and weights, while its file is open."""
    require("h5py", extra="keras", purpose="reading Keras models")
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                length = archive.getinfo("config.json").file_size
                if length > _MOST:
                    raise SerializationError(f"{path}: a configuration of {length} bytes is no Keras model's")
                config = json.loads(archive.read("config.json"))
                hdf5.check_size(archive.getinfo("model.weights.h5").file_size, path, "its weights")
                version = json.loads(archive.read("metadata.json")).get("keras_version")
            with hdf5.opened(path, "model.weights.h5") as root:
                yield _as_written_by(version, config), Groups(root)
            return
        with hdf5.opened(path) as root:
            described, weights = root.attributes.get("model_config"), root.group("model_weights")
            if described is None or weights is None:
                raise SerializationError(
                    f"{path} holds weights and no model: save it whole, model.save('model.keras')"
                )
            version = root.attributes.get("keras_version")
            yield _as_written_by(version, json.loads(described)), Flat(weights)
    except LoomError:
        raise
    except OSError as error:
        if error.errno is None:
            raise SerializationError(f"{path} is no HDF5 file, or damaged: {error}") from error
        raise FileError(error.errno, f"cannot read {path}: {error.strerror}") from error
    except _DAMAGE as error:
        raise SerializationError(f"{path} is no Keras model, or damaged: {error!r}") from error
    except MemoryError as error:
        raise SerializationError(f"{path} asks for more memory than there is") from error


def _as_written_by(version: object, config: Any) -> Any:  # noqa: ANN401 - of JSON
    """A configuration in which what Keras 2 calls as Keras 3 calls something else has a name of its own."""
    if str(version).partition(".")[0] not in ("1", "2"):
        return config
    if isinstance(config, list):
        return [_as_written_by(version, entry) for entry in config]
    if isinstance(config, Mapping):
        return {
            key: "hard_sigmoid of Keras 2"
            if value == "hard_sigmoid" and key == "activation"
            else _as_written_by(version, value)
            for key, value in config.items()
        }
    return config


def _network(path: Path, config: Mapping[str, Any], weights: Weights) -> Network:
    found = ModelGraph(config, weights)
    if found.refused:
        told = "\n".join(f"  {why} ({', '.join(names)})" for why, names in found.refused.items())
        raise ConfigError(
            f"{path} has what loom has no layer for:\n{told}\n"
            "put layers that it has in their place, or save the part of the model before them, "
            "keras.Model(model.inputs, model.get_layer(...).output), and add the rest here"
        )
    unread = found.graph.unread(list(found.outputs.values()))
    if unread:
        raise ConfigError(
            f"{path}: no output is computed from the input {', '.join(unread)}; build the model without, "
            "keras.Model([the others], model.outputs), and save it again"
        )
    made = placed(found.graph, found.outputs)
    precision = precision_of(found.policies, found.notes)
    net = import_model({**made.network([bare(row) for row in made.rows]), "precision": precision})
    keep(net, made.rows, path, found.notes)
    return net
