"""Models that Keras saved: `.keras`, and `.h5` with a model in it."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from loom._settings.checks import file_path
from loom.errors import ConfigError, FileError, LoomError, SerializationError
from loom.extras import require
from loom.models.branches import Branches, Row
from loom.models.keras import hdf5
from loom.models.keras.layers import Unsupported, Value, layers_of, moved
from loom.models.keras.merging import MERGES, is_operation, merged, operation, refuse_foreign
from loom.models.plain import import_model
from loom.network import Network

__all__ = ["load", "weights_of"]

# In what order Keras counts the weights of layers inside a layer.
_ORDER = ["query", "key", "value", "attention_output", "output", "forward", "backward"]
_MOST = 1_000_000_000
# What reading runs into where a file is not what it should be.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, KeyError, IndexError, ValueError, TypeError, AttributeError),
    *(RuntimeError, RecursionError, NotImplementedError, EOFError),
)


def load(path: str | PathLike[str]) -> Network:
    """Reads a model that Keras saved: `model.save("model.keras")`, or as `.h5`.

    Sequential and functional models of Keras 2 and 3, made of its usual layers. The network reads what the
    model
    reads: images as (height, width, channels), sequences as (time, features); where loom has channels first,
    a Permute is put in between. Code in the file (Lambda, layers of one's own) is never run.

    Args:
        path: The file.

    Returns:
        The network.

    Raises:
        FileError: The file cannot be read.
        SerializationError: It is damaged, or holds weights without a model.
        ConfigError: Layers are of no kind that loom has, or have options that it has not: all are listed.
        MissingExtraError: h5py is not installed.
    """
    place = file_path("load", path)
    with _opened(place) as (config, weights):
        return _network(place, config, weights)


def weights_of(path: Path) -> list[tuple[str, tuple[int, ...], str, int, str]]:
    """Lists the weights of a model: name, shape, type, bytes, and Keras's class of the layer."""
    with _opened(path) as (config, weights):
        inner = config["config"]
        layers = inner["layers"] if isinstance(inner, Mapping) else inner
        counted = _snake_names(layers)
        names = [(layer["config"]["name"], layer["class_name"]) for layer in layers]
        return [
            (f"{name}/{number}", array.shape, str(array.dtype), array.nbytes, kind)
            for name, kind in names
            for number, array in enumerate(weights.of(name, counted[name]))
        ]


@contextmanager
def _opened(path: Path) -> Iterator[tuple[dict[str, Any], _Groups | _Flat]]:
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
                yield _as_written_by(version, config), _Groups(root)
            return
        with hdf5.opened(path) as root:
            described, weights = root.attributes.get("model_config"), root.group("model_weights")
            if described is None or weights is None:
                raise SerializationError(
                    f"{path} holds weights and no model: save it whole, model.save('model.keras')"
                )
            version = root.attributes.get("keras_version")
            yield _as_written_by(version, json.loads(described)), _Flat(weights)
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


def _network(path: Path, config: Mapping[str, Any], weights: _Groups | _Flat) -> Network:
    refused: dict[str, list[str]] = {}
    shape, start = _input(config)
    branches, end = _branches(config, weights, start, refused, "")
    row: Row = [] if refused else [*branches.row(end[0]), *moved(end[1], first=False)]
    if refused:
        told = "\n".join(f"  {why} ({', '.join(names)})" for why, names in refused.items())
        raise ConfigError(f"{path} has what loom has no layer for:\n{told}")
    return import_model({"input_shape": shape, "layers": row})


def _input(config: Mapping[str, Any]) -> tuple[list[int], Value]:
    """What a model reads."""
    inner = config["config"]
    layers = inner["layers"] if isinstance(inner, Mapping) else inner
    first = layers[0]["config"]
    shape = first.get("batch_shape", first.get("batch_input_shape")) or inner.get("build_input_shape")
    if shape is None or any(extent is None for extent in shape[1:]):
        raise ConfigError(
            f"the model reads {shape}: loom wants every extent but the batch; build it with an Input of a "
            "fixed shape, and save it again"
        )
    return list(shape[1:]), Value(len(shape) - 1, first=False, shape=shape)


Found = tuple[Branches[str], tuple[str, Value]]


def _branches(
    config: Mapping[str, Any],
    weights: _Groups | _Flat,
    start: Value,
    refused: dict[str, list[str]],
    path: str,
) -> Found:
    """The graph of a model's layers, and the name and layout of what comes out."""
    inner = config["config"]
    layers = inner["layers"] if isinstance(inner, Mapping) else inner
    calls = list(_calls(config, layers))
    branches = Branches("input")
    values: dict[str, Value] = {"input": start}
    last = "input"
    names = _snake_names(layers)
    for layer, inputs, options in calls:
        name = layer["config"]["name"]
        kind = layer["class_name"]
        read = [values[other] for other in inputs]
        try:
            refuse_foreign(layer)
            if is_operation(layer):
                step, value = operation(kind, layer["config"], layer["inbound_nodes"][0], read)
                branches.add(name, inputs, step)
            elif kind in MERGES:
                step, value = merged(kind, layer["config"], read)
                branches.add(name, inputs, step)
            elif kind in ("Sequential", "Functional", "Model"):
                held = weights.inside(name, names[name])
                nested, (end, value) = _branches(layer, held, read[0], refused, f"{path}{name}/")
                branches.add(name, inputs, [] if refused else nested.row(end))
            else:
                if len(set(inputs)) != 1:
                    raise Unsupported(f"{kind} of {len(set(inputs))} values")
                arrays = weights.of(name, names[name])
                shape = (layer.get("build_config") or {}).get("input_shape")
                settings = {**layer["config"], "~shape": start.shape if inputs == ["input"] else shape}
                row, value = layers_of(kind, settings, arrays, read[0], options)
                branches.add(name, inputs[:1], row)
        except Unsupported as error:
            refused.setdefault(str(error), []).append(path + name)
            branches.add(name, inputs[:1], [])
            value = read[0]
        values[name], last = value, name
    outputs = inner.get("output_layers") if isinstance(inner, Mapping) else None
    if outputs:
        named = list(outputs.values()) if isinstance(outputs, Mapping) else outputs
        flat = [named] if isinstance(named[0], str) else named
        if len(flat) != 1:
            refused.setdefault("several outputs", []).append(path or "model")
        # A model without layers hands on what it reads.
        last = flat[0][0] if flat[0][0] in values else "input"
    return branches, (last, values[last])


Call = tuple[Mapping[str, Any], list[str], Mapping[str, Any]]


def _calls(config: Mapping[str, Any], layers: Sequence[Mapping[str, Any]]) -> Iterator[Call]:
    """Every layer with the values that it reads and further options, in an order that computes them."""
    if config["class_name"] == "Sequential":
        before = "input"
        for layer in layers:
            if layer["class_name"] != "InputLayer":
                yield layer, [before], {}
                before = layer["config"]["name"]
        return
    known = {"input"}
    starts = [layer["config"]["name"] for layer in layers if layer["class_name"] == "InputLayer"]
    if len(starts) != 1:
        raise ConfigError(
            f"the model has {len(starts)} inputs ({', '.join(starts)}), and loom's networks one"
        )
    waiting = [layer for layer in layers if layer["class_name"] != "InputLayer"]
    while waiting:
        left = []
        for layer in waiting:
            inputs, options = _inbound(layer)
            inputs = ["input" if name == starts[0] else name for name in inputs]
            if known.issuperset(inputs):
                known.add(layer["config"]["name"])
                yield layer, inputs, options
            else:
                left.append(layer)
        if len(left) == len(waiting):
            raise SerializationError(
                f"no order computes {', '.join(layer['config']['name'] for layer in left)}"
            )
        waiting = left


def _inbound(layer: Mapping[str, Any]) -> tuple[list[str], Mapping[str, Any]]:
    """What a layer of a functional model reads: of Keras 3, and of Keras 2."""
    nodes = layer["inbound_nodes"]
    name = layer["config"]["name"]
    if len(nodes) != 1:
        raise ConfigError(f"the layer {name} is used {len(nodes)} times: loom's layers stand in one place")
    (node,) = nodes
    if isinstance(node, Mapping):
        found = list(_histories([node["args"], node["kwargs"]]))
        return found, node["kwargs"]
    if node and isinstance(node[0], str):
        node = [node]
    return [entry[0] for entry in node], node[0][3] if len(node[0]) > 3 else {}


def _histories(value: Any) -> Iterator[str]:  # noqa: ANN401 - of JSON
    if isinstance(value, Mapping):
        if value.get("class_name") == "__keras_tensor__":
            yield value["config"]["keras_history"][0]
            return
        value = list(value.values())
    if isinstance(value, list):
        for entry in value:
            yield from _histories(entry)


def _snake_names(layers: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What files call layers that do not tell their names: their class, counted."""
    counts: dict[str, int] = {}
    found: dict[str, str] = {}
    for layer in layers:
        snake = re.sub(r"\W+", "", layer["class_name"])
        snake = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", snake)
        snake = re.sub("([a-z])([A-Z])", r"\1_\2", snake).lower()
        count = counts.get(snake, 0)
        counts[snake] = count + 1
        found[layer["config"]["name"]] = f"{snake}_{count}" if count else snake
    return found


def _place(name: str) -> int:
    return next((place for place, part in enumerate(_ORDER) if name.startswith(part)), len(_ORDER))


class _Groups:
    """Weights in `.keras` files: a group for each layer, with numbered arrays."""

    def __init__(self, group: hdf5.Group) -> None:
        self._group = group

    def _find(self, name: str, counted: str) -> hdf5.Group | None:
        layers = self._group.group("layers") or self._group
        for group in layers.groups().values():
            told = group.group("vars")
            if told is not None and told.attributes.get("name") == name:
                return group
        return layers.group(counted)

    def inside(self, name: str, counted: str) -> _Groups:
        """Returns the weights of a model inside this one."""
        group = self._find(name, counted)
        if group is None:
            raise SerializationError(f"the file has no weights of the model {name}")
        return _Groups(group)

    def of(self, name: str, counted: str) -> list[NDArray[Any]]:
        """Returns the weights of a layer, in Keras's order."""
        group = self._find(name, counted)
        return [] if group is None else list(self._arrays(group))

    def _arrays(self, group: hdf5.Group) -> Iterator[NDArray[Any]]:
        groups = group.groups()
        if "vars" in groups:
            arrays = groups.pop("vars").arrays()
            for number in sorted(arrays, key=int):
                yield arrays[number].numpy()
        for name in sorted(groups, key=lambda name: (_place(name), name)):
            yield from self._arrays(groups[name])


class _Flat:
    """Weights in `.h5` files: lists of names for each layer."""

    def __init__(self, group: hdf5.Group, within: str | None = None) -> None:
        self._group = group
        self._within = within

    def inside(self, name: str, counted: str) -> _Flat:
        """Returns the weights of a model inside this one."""
        return _Flat(self._group, self._within or name)

    def of(self, name: str, counted: str) -> list[NDArray[Any]]:
        """Returns the weights of a layer, in Keras's order."""
        group = self._group.group(self._within or name)
        if group is None:
            return []
        own = [
            entry
            for entry in group.attributes["weight_names"]
            if not self._within or name in entry.split("/")
        ]
        return [_array(group, entry) for entry in own]


def _array(group: hdf5.Group, path: str) -> NDArray[Any]:
    found = group.get(path)
    if not isinstance(found, hdf5.Array):
        raise SerializationError(f'the file names the weights "{path}", and has none of that name')
    return found.numpy()
