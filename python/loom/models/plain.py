"""Networks as plain data: dictionaries and JSON with the parameters beside each layer's settings."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom import _native, nn
from loom._settings.checks import file_path
from loom._settings.files import text_of
from loom.convert import as_real_array
from loom.engine import engine_of
from loom.errors import ConfigError, DTypeError, FileError, SerializationError, ShapeError
from loom.models.spelling import activation_name, inferred, layer_kind, own_parameters, setting_name
from loom.network import Network
from loom.nn._layer import FAMILY
from loom.nn._schema import schema

__all__ = ["export_model", "import_model", "parameters_of", "rows_in", "shape_after"]

# What composite layers hold: rows of layers, and rows of rows; with what names of parameters begin there.
_ROWS = {
    "residual": {"layers": "layers.", "projection": "projection."},
    "sequential": {"layers": ""},
    "checkpoint": {"layers": ""},
    "masked": {"layers": ""},
    "spectral_norm": {"layers": ""},
    "weight_norm": {"layers": ""},
    "parallel": {"gate": "gate."},
}
_NETWORK = {"input_size": "input_shape"}


def export_model(net: Network) -> dict[str, Any]:
    """Returns a network as plain values of JSON: its configuration, and every parameter in its layer.

    It is what `net.to_json` writes, which `loom.json_schema("network")` describes, with one more entry in a
    layer for each of its parameters and states, nested lists under the name that `layer.parameters` has.
    Where a setting has that name, as `bias`, the numbers stand for `true`. What a Residual or Parallel made
    by itself stands in it under its whole name, such as "projection.0.weight". Weights are those of the
    masters, every bit of them; packed types come along as settings.

    Args:
        net: The network; it is built where it was not.

    Returns:
        The network, for `json.dumps` and `loom.import_model`.

    Examples:
        >>> net = loom.Sequential([nn.Dense(1, weight_initializer="ones")], input_shape=2)
        >>> layer = loom.export_model(net)["cells"][0]["layers"][0]
        >>> layer["weight"], layer["bias"]
        ([[1.0, 1.0]], [0.0])
    """
    engine_of(net)
    config: dict[str, Any] = net.build().config.to_config()
    cells = {tuple(cell["at"]): cell["layers"] for cell in config["cells"]}
    for path, array in net.state_dict().items():
        depth, row, column, place, name = path.split(".", 4)
        layer, name = _inside(cells[int(depth), int(row), int(column)][int(place)], name)
        layer[name] = array.tolist()
    return config


def _inside(layer: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """The layer at any depth that a parameter belongs to, as far as the configuration has it."""
    for row, begin in rows_in(layer):
        number, _, rest = name.removeprefix(begin).partition(".")
        if name.startswith(begin) and rest and number.isdecimal() and int(number) < len(row):
            return _inside(row[int(number)], rest)
    return layer, name


def rows_in(layer: Mapping[str, Any]) -> Iterator[tuple[list[dict[str, Any]], str]]:
    """The rows of layers that a layer holds, with what the names of their parameters begin with."""
    if layer["type"] == "parallel":
        for number, branch in enumerate(layer["branches"]):
            yield branch, f"branches.{number}."
    for name, begin in _ROWS.get(layer["type"], {}).items():
        yield layer.get(name) or [], begin


def import_model(data: Mapping[str, Any] | str | PathLike[str]) -> Network:
    """Makes a network of plain data, with its weights.

    The data is what `loom.export_model` returns: the network's configuration (`loom.json_schema("network")`),
    with the parameters of each layer as nested lists, or arrays, beside its settings. What is usual
    elsewhere is taken, too:

    - `layers` in place of `cells`: in a row in the first cell of the grid, or in that at each layer's `at`.
    - `input_size` for `input_shape`; kinds of layers as PyTorch and Keras call them ("Linear",
      "BatchNormalization"), and settings (`out_features`, `eps`).
    - parameters with PyTorch's names and layouts, which loom has, or with Keras's: `kernel` (outputs last),
      `recurrent_kernel`, `embeddings`, `gamma`, `beta`, `moving_mean`, `moving_variance`;
      `in_proj_weight` of attention.
    - settings may be left out where parameters tell them: units, filters, kernel sizes. A layer whose
      parameters are there, without a bias among them, has none.

    Args:
        data: The network as a mapping, as JSON text, or the path of a JSON file.

    Returns:
        The network.

    Raises:
        FileError: The file cannot be read.
        SerializationError: It is not JSON, or no network.
        ConfigError: A layer or setting is unknown, or a parameter is missing or unknown; it says where.
        ShapeError: A parameter has another shape than its layer, or layers do not fit together.
        DTypeError: A parameter holds something else than real numbers.
        NonFiniteError: A parameter holds NaN or infinity.

    Examples:
        >>> layers = [{"type": "dense", "kernel": [[1.0], [2.0]], "bias": [0.5], "activation": "relu"}]
        >>> net = loom.import_model({"input_size": 2, "layers": layers})
        >>> net.predict(np.ones((1, 2)))
        array([[3.5]], dtype=float32)
    """
    config, found = _parted(data)
    net = Network.from_config(config).build()
    net.load_state_dict(found.fitting(net))
    return net


def shape_after(row: Sequence[Mapping[str, Any]], shape: Sequence[int] | None) -> tuple[int, ...] | None:
    """Returns one sample's extents behind layers that have their parameters beside their settings.

    Args:
        row: The layers, as `import_model` reads them.
        shape: One sample's extents before them, without the batch; None where they are not known.

    Returns:
        The extents; None where those before are not known.

    Raises:
        ConfigError: A layer or setting is unknown.
        ShapeError: A layer does not take what comes in.
    """
    if shape is None:
        return None
    for layer in row:
        config = _Parameters().taken_from(layer, str(layer.get("type")), "")
        shape = _native.layer_output_shape(json.dumps(config), list(shape), None)
    return tuple(shape)


def parameters_of(data: str | PathLike[str]) -> list[tuple[str, str, tuple[int, ...]]]:
    """Lists the parameters of a network as plain data, without making it.

    Args:
        data: Its JSON text, or the path of the file.

    Returns:
        Of each its place in the data, the kind of its layer, and its shape.
    """
    config, found = _parted(data)
    kinds = {
        ".".join(map(str, (*cell["at"], number))): layer["type"]
        for cell in config["cells"]
        for number, layer in enumerate(cell["layers"])
    }
    return [
        (found.places[name], kinds[".".join(name.split(".")[:4])], array.shape)
        for name, array in found.arrays.items()
    ]


def _parted(data: object) -> tuple[dict[str, Any], _Parameters]:
    """A network's configuration, and its parameters."""
    config = {_NETWORK.get(key, key): value for key, value in _described(data).items()}
    found = _Parameters()
    config["cells"] = [
        {
            "at": at,
            "layers": [
                found.taken_from(layer, place, ".".join(map(str, (*at, number))) + ".")
                for number, (place, layer) in enumerate(layers)
            ],
        }
        for at, layers in _cells(config).items()
    ]
    return config, found


class _Parameters:
    """The parameters of a network under the names of its state dict, and where each was found."""

    def __init__(self) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self.places: dict[str, str] = {}

    def taken_from(self, given: object, place: str, path: str) -> dict[str, Any]:
        """Returns a layer's settings, and takes its parameters and those of the layers that it holds."""
        if isinstance(given, nn.Layer):
            given = given.to_config()
        if not isinstance(given, Mapping) or not isinstance(given.get("type"), str):
            raise ConfigError(f'{place}: a layer is a mapping with its "type", got {_brief(given)}')
        kind = layer_kind(given["type"])
        if kind not in FAMILY.kinds and (function := activation_name(kind)) is not None:
            return {"type": "activation", "function": function}
        settings, parameters = self._parted(kind, given, place)
        settings = self._rows_taken(settings, place, path)
        with _at(place):
            arrays = {name: _array(value, f'"{name}"') for name, value in parameters.items()}
            own = own_parameters(kind, arrays, settings)
            settings = {**inferred(kind, own), **settings}
            layer = nn.composite.as_layer(settings)
        for name, array in own.items():
            self.arrays[path + name] = array
            self.places[path + name] = f'{place}["{name}"]'
        self.places.setdefault(path, place)
        return layer.to_config()

    @staticmethod
    def _parted(kind: str, given: Mapping[str, Any], place: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """A layer's settings, and its parameters."""
        known = schema().get(kind, ())
        flags = {setting["name"] for setting in known if setting["type"] == "flag"}
        names = {setting["name"] for setting in known} | {"type", "name", "settings"}
        settings: dict[str, Any] = {}
        parameters: dict[str, Any] = {}
        for key, value in given.items():
            name = key if key in names else setting_name(key)
            name = name if name in names else key
            if name == "activation" and isinstance(value, str):
                value = activation_name(value) or value
            if not _is_array(value) or (name in names and name not in flags):
                settings[name] = value
            else:
                parameters[key] = value
        return {**settings, "type": kind}, parameters

    def _rows_taken(self, settings: dict[str, Any], place: str, path: str) -> dict[str, Any]:
        """The settings with the layers in them freed of their parameters."""

        def row(layers: Any, where: str, begin: str) -> list[dict[str, Any]]:  # noqa: ANN401 - from outside
            several = layers if _is_row(layers) else [layers]
            return [
                self.taken_from(layer, f"{place}.{where}[{number}]", f"{path}{begin}{number}.")
                for number, layer in enumerate(several)
            ]

        taken = dict(settings)
        for name, begin in _ROWS.get(settings["type"], {}).items():
            if settings.get(name):
                taken[name] = row(settings[name], name, begin)
        if settings["type"] == "parallel" and _is_row(settings.get("branches")):
            taken["branches"] = [
                row(branch, f"branches[{number}]", f"branches.{number}.")
                for number, branch in enumerate(settings["branches"])
            ]
        return taken

    def fitting(self, net: Network) -> dict[str, NDArray[Any]]:
        """Returns the parameters, once they are seen to be those of the network."""
        expected = net.state_dict()
        missing = [name for name in expected if name not in self.arrays]
        if missing and not self.arrays:
            raise ConfigError(
                "no layer has parameters; loom.Network.from_config makes networks with initial weights"
            )
        if missing:
            told = [
                f"{self._place_of(name)} lacks {name.removeprefix(self._path_of(name))}" for name in missing
            ]
            raise ConfigError(f"parameters are missing: {'; '.join(told[:8])}{_more(len(told) - 8)}")
        for name, array in self.arrays.items():
            if name in expected and array.shape != expected[name].shape:
                wanted = f"expected shape {expected[name].shape}, got {array.shape}"
                raise ShapeError(f"{self.places[name]}: {wanted}")
            # What stateful layers carry is in no new network.
            if name not in expected and not re.search(r"state_l\d+(_reverse)?$", name):
                path = self._path_of(name)
                known = [other.removeprefix(path) for other in expected if other.startswith(path)]
                has = ", ".join(known) or "none"
                raise ConfigError(f"{self.places[name]}: the layer has no such parameter; it has {has}")
        return {
            name: as_real_array(array, net.precision, what=self.places[name])
            for name, array in self.arrays.items()
        }

    def _path_of(self, name: str) -> str:
        """The path of the innermost layer that was read and that a parameter is in."""
        return max((path for path in self.places if path[-1] == "." and name.startswith(path)), key=len)

    def _place_of(self, name: str) -> str:
        return self.places[self._path_of(name)]


def _described(data: object) -> dict[str, Any]:
    """The network as a mapping, read from JSON where it is that."""
    if isinstance(data, str) and data.lstrip()[:1] in ("{", "["):
        data = _parsed(data, "the text")
    elif isinstance(data, str | PathLike):
        path = file_path("from_plain", data, "data")
        try:
            data = _parsed(text_of(path), str(path))
        except OSError as error:
            raise FileError(error.errno, f"cannot read {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise SerializationError(f"{path} is not JSON: {error}") from error
    if not isinstance(data, Mapping):
        raise SerializationError(
            "a network as plain data is a mapping, JSON text of one, or the path of such a file, "
            f"got {_brief(data)}"
        )
    return dict(data)


def _parsed(text: str, what: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"{what} is not JSON: {error}") from error


def _cells(config: dict[str, Any]) -> dict[tuple[int, ...], list[tuple[str, object]]]:
    """The layers of each cell, each with its place in the data."""
    cells: dict[tuple[int, ...], list[tuple[str, object]]] = {}
    for number, cell in enumerate(_row_of(config.get("cells", ()), "cells")):
        if not isinstance(cell, Mapping) or not _is_row(cell.get("at")):
            raise ConfigError(
                f'cells[{number}]: a cell is a mapping with "at" and "layers", got {_brief(cell)}'
            )
        where = f"cells[{number}].layers"
        at = _coordinate(cell["at"], f"cells[{number}]")
        if at in cells:
            raise ConfigError(f"cells[{number}]: cell {at} is there twice")
        layers = _row_of(cell.get("layers", ()), where)
        cells[at] = [(f"{where}[{place}]", layer) for place, layer in enumerate(layers)]
    for number, layer in enumerate(_row_of(config.pop("layers", ()), "layers")):
        at = (0, 0, 0)
        if isinstance(layer, Mapping) and "at" in layer:
            at = _coordinate(layer["at"], f"layers[{number}]")
            layer = {key: value for key, value in layer.items() if key != "at"}
        cells.setdefault(at, []).append((f"layers[{number}]", layer))
    return cells


def _coordinate(at: object, place: str) -> tuple[int, ...]:
    numbers = tuple(at) if isinstance(at, Sequence) else ()
    if len(numbers) == 2:
        numbers = (0, *numbers)
    if len(numbers) != 3 or not all(type(number) is int for number in numbers):
        raise ConfigError(f'{place}: "at" must be (depth, row, column), got {_brief(at)}')
    return numbers


def _is_row(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _row_of(value: object, place: str) -> Sequence[Any]:
    if isinstance(value, Sequence) and _is_row(value):
        return value
    raise ConfigError(f"{place}: expected a list, got {_brief(value)}")


def _is_array(value: object) -> bool:
    return _is_row(value) or hasattr(value, "__array__") or hasattr(value, "__dlpack__")


def _array(value: Any, what: str) -> NDArray[Any]:  # noqa: ANN401 - whatever stands in the data
    single = getattr(value, "dtype", None) == np.float32
    return as_real_array(value, "float32" if single else "float64", what=what)


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _more(count: int) -> str:
    return f"; and {count} more" if count > 0 else ""


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Errors meanwhile say where in the data they are."""
    try:
        yield
    except (ConfigError, DTypeError, ShapeError) as error:
        raise type(error)(f"{place}: {error}") from error
