"""A network from a local folder of the Hugging Face Hub's shape."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from loom import _native
from loom._settings.checks import file_path, whole
from loom._settings.files import text_of
from loom._typing import NumericTypeName, Precision
from loom.card import ModelCard
from loom.convert import as_real_array
from loom.engine import engine_of
from loom.errors import ConfigError, DTypeError, FileError, InternalError, SerializationError, ShapeError
from loom.models.families.catalogue import family_of
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Source
from loom.models.families.sentences import kind_of, modules_of, path_of
from loom.models.families.settings import Settings
from loom.network import Network, Sequential
from loom.tensors import TensorEntry, open_tensors

__all__ = ["from_hub", "from_tensors", "streamed"]

_MOST_TEXT = 64 << 20
"""Bytes of JSON beyond which a file is not a configuration; indexes of large models have a few megabytes."""
_SHOWN = 8
# How many parameters are made of an element at most, such as zeros for a bias that files leave out.
_MOST_MADE, _FEW = 4, 1 << 20


def from_hub(
    folder: str | PathLike[str],
    dtype: str | None = None,
    *,
    length: int | None = None,
    part: str | None = None,
    image_size: int | None = None,
    masters: bool = True,
) -> Network:
    """Opens a local folder of the Hugging Face Hub's shape: config.json, and tensors beside it.

    Tensors are read from model.safetensors, from shards with an index, or from pytorch_model.bin (through
    PyTorch's `weights_only`, where it is installed), and go into the network one by one. Every tensor of the
    files must be used, or be known to say nothing new; every parameter of the network must be filled. The
    folder is only read. Which families there are is told in docs/models.md.

    A causal language model reads token ids, (time,), and makes a score for each word after each step;
    `net.session(capacity)` decodes step by step. Encoders read ids, with the padding token where a text is
    shorter; towers for images read (channels, height, width).

    Args:
        folder: The folder.
        dtype: The numeric type of the weights, as in `Network.morph`; "float64" computes in that; float32
            where None, whatever the files have.
        length: How many steps `predict` reads; the most that the model knows by default. Sessions do not
            mind.
        part: The part of a model that has several: "vision" or "text" for CLIP.
        image_size: The side of images, for convolutional networks, which read any; what the folder says, or
            224, by default.
        masters: Whether full-precision weights are kept beside those of `dtype`, to train from. Without, each
            layer is packed as soon as it is read, so that the model is never held in full precision; the
            network is then as after `drop_master`.

    Returns:
        The network. `net.card` has the names of its classes, where the folder says them, and under
        `metadata["hub"]` the folder, where a tokenizer finds its files, and the model's type.

    Raises:
        FileError: There is no such folder, or no config.json or tensors in it.
        SerializationError: A file is damaged, tensors are missing, or there are some that nobody uses.
        ConfigError: The model's family or a setting of it is not supported; the message names it.
        ShapeError: A tensor does not have the shape that config.json tells of.
        DTypeError: There is no such numeric type.
    """
    path = file_path("from_hub", folder, "folder")
    if length is not None:
        length = whole("from_hub", "length", length, least=1)
    if image_size is not None:
        image_size = whole("from_hub", "image_size", image_size, least=1, most=1 << 16)
    with _opened(path, length, part, image_size) as (family, composition, tensors, config):
        network = _filled(family, composition, tensors, dtype, masters=masters)
    return _with_origin(network, path, config)


@contextmanager
def streamed(folder: str | PathLike[str]) -> Iterator[tuple[Network, dict[str, TensorEntry]]]:
    """Opens a folder as `from_hub` does, without its weights.

    Args:
        folder: The folder.

    Yields:
        A network that cannot compute yet, and its parameters and states by the names of its `state_dict`,
        each made when it is read.
    """
    path = Path(folder)
    with _opened(path, None, None, None) as (family, composition, tensors, config):
        _check_tensors(family, composition, tensors)
        network = Sequential([piece.layer for piece in composition.pieces], composition.input_shape)
        native = engine_of(network).native
        native.build_bare()
        network.build()
        entries: dict[str, TensorEntry] = {}
        for place, piece in enumerate(composition.pieces):
            at = (0, 0, 0, place)
            names = native.parameter_names(at)
            for name, source in piece.tensors.items():
                shape = native.parameter_shape(at, name) if name in names else native.state(at, name).shape
                whole_name, size = f"0.0.0.{place}.{name}", prod(shape)
                read = partial(_made, family, source, tensors, tuple(shape))
                entries[whole_name] = TensorEntry(whole_name, tuple(shape), "float32", 4 * size, read)
        yield _with_origin(network, path, config), entries


def _made(
    family: Family, source: Source, tensors: Mapping[str, TensorEntry], shape: tuple[int, ...]
) -> NDArray[Any]:
    """Returns a parameter, made of a folder's tensors."""
    label = _listed(source.names)
    read = (as_real_array(tensors[each].numpy(), "float32", what=each) for each in source.names)
    values = as_real_array(np.ascontiguousarray(source.make(*read)), "float32", what=label)
    if values.shape != shape:
        raise ShapeError(
            f"{family.name}: {label} does not fit config.json: it has shape {values.shape}, expected {shape}"
        )
    return values


@contextmanager
def _opened(
    path: Path, length: int | None, part: str | None, image_size: int | None
) -> Iterator[tuple[Family, Composition, dict[str, TensorEntry], Mapping[str, Any]]]:
    """Opens a folder: its family, the layers that it becomes, its tensors and its settings."""
    if not path.is_dir():
        raise FileError(f"{path} is not a folder")
    with ExitStack() as stack:
        tensors = _tensors(path, stack)
        config = _json(path, "config.json")
        family = family_of(config, tensors)
        config = config or {}
        settings = Settings(config, family.name)
        if "quantization_config" in settings:
            known = ["tensors in floats; `dtype` packs them here"]
            raise settings.unsupported("quantization_config", settings.get("quantization_config"), known)
        tensors = _renamed(tensors, family) | _of_modules(path, settings, stack)
        found = Folder(
            settings,
            {name: tensor.shape for name, tensor in tensors.items()},
            str(next(iter(settings.items("architectures")), "")),
            length,
            part,
            image_size,
            lambda name: _json(path, name),
        )
        composition = family.compose(found)
        axes = len(composition.input_shape)
        if part is not None and part not in family.parts:
            raise settings.unsupported("part", part, family.parts or [None])
        if (length is not None and axes != 1) or (image_size is not None and axes != 3):
            name, value = ("length", length) if axes != 1 else ("image_size", image_size)
            raise settings.unsupported(name, value, ["None, for what this model reads"])
        yield family, composition, tensors, config


def from_tensors(
    config: Mapping[str, Any],
    tensors: Mapping[str, TensorEntry],
    dtype: str | None = None,
    *,
    length: int | None = None,
) -> Network:
    """Makes a network of tensors by the names that they have on the Hub.

    Args:
        config: The settings that config.json would have.
        tensors: The tensors.
        dtype: As in `from_hub`; where None, weights that the engine can compute from stay in the file.
        length: As in `from_hub`.

    Returns:
        The network.

    Raises:
        SerializationError: Tensors are missing, or there are some that nobody uses.
        ConfigError: The model's family or a setting of it is not supported; the message names it.
        ShapeError: A tensor does not have the shape that the settings tell of.
        DTypeError: There is no such numeric type.
    """
    family = family_of(config, tensors)
    renamed = _renamed(tensors, family)
    shapes = {name: tensor.shape for name, tensor in renamed.items()}
    architecture = str((config.get("architectures") or [""])[0])
    found = Folder(Settings(config, family.name), shapes, architecture, length)
    return _filled(family, family.compose(found), renamed, dtype, lent=dtype is None)


def _json(folder: Path, name: str) -> Any:  # noqa: ANN401 - JSON
    """Returns what a file of settings holds, or None where it is not there."""
    path = folder / name
    if not path.is_file():
        return None
    if path.stat().st_size > _MOST_TEXT:
        raise SerializationError(f"{path} is too large for a file of settings")
    try:
        return json.loads(text_of(path))
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"{path} is not JSON: {error}") from error


def _tensors(folder: Path, stack: ExitStack) -> dict[str, TensorEntry]:
    """Returns all tensors of a folder by name, none of them read."""
    tensors: dict[str, TensorEntry] = {}
    for path in _files(folder):
        for name, tensor in stack.enter_context(open_tensors(path)).items():
            if name in tensors:
                raise SerializationError(f'{path}: "{name}" stands in another file of the folder, too')
            tensors[name] = tensor
    return tensors


def _of_modules(folder: Path, settings: Settings, stack: ExitStack) -> dict[str, TensorEntry]:
    """Returns the tensors that a sentence encoder's further modules have in folders of their own."""
    tensors: dict[str, TensorEntry] = {}
    for module in modules_of(_json(folder, "modules.json") or [], settings):
        if kind_of(module) == "Dense":
            path = path_of(module, settings)
            tensors |= {f"{path}.{name}": tensor for name, tensor in _tensors(folder / path, stack).items()}
    return tensors


def _files(folder: Path) -> Iterator[Path]:
    """Yields the files of tensors: of safetensors if there are any, in one file or by their index."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).is_file():
            yield folder / name
            return
        index = _json(folder, f"{name}.index.json")
        if index is None:
            continue
        shards = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(shards, dict) or not all(isinstance(shard, str) for shard in shards.values()):
            raise SerializationError(f"{folder / name}.index.json has no weight_map of files by tensor")
        for shard in sorted(set(shards.values())):
            if Path(shard).name != shard:
                raise SerializationError(f'{folder / name}.index.json names "{shard}", outside of the folder')
            if not (folder / shard).is_file():
                raise FileError(f"{folder} has no {shard}, which its index names")
            yield folder / shard
        return
    raise FileError(
        f"{folder} has no tensors: neither model.safetensors nor pytorch_model.bin, whole or in shards"
    )


def _renamed(tensors: Mapping[str, TensorEntry], family: Family) -> dict[str, TensorEntry]:
    """Returns tensors named as in the base model of today, whether a head stands on it or not."""
    renamed: dict[str, TensorEntry] = {}
    for name, tensor in tensors.items():
        new = name
        for prefix in family.base:
            new = new.removeprefix(prefix)
        for pattern, replacement in family.renamed:
            new = re.sub(pattern, replacement, new)
        if new in renamed:
            raise SerializationError(f'two tensors of the folder are "{new}"')
        renamed[new] = tensor
    return renamed


def _filled(
    family: Family,
    composition: Composition,
    tensors: Mapping[str, TensorEntry],
    dtype: str | None,
    *,
    lent: bool = False,
    masters: bool = True,
) -> Network:
    """Builds the network and fills it, tensor by tensor; with `lent` what can stay in the file does."""
    _check_tensors(family, composition, tensors)
    if dtype is not None and not isinstance(dtype, str):
        raise DTypeError(f'from_hub takes the name of a numeric type, such as "int8", got {dtype!r}')
    packed = None if dtype in ("float32", "float64") else dtype
    if packed is None and not masters:
        raise ConfigError('without masters weights need a packed type, such as dtype="int4"')
    precision: Precision = "float64" if dtype == "float64" else "float32"
    network = Sequential([piece.layer for piece in composition.pieces], composition.input_shape, precision)
    native = engine_of(network).native
    # Every weight is set or lent below.
    native.build_bare()
    network.build()
    for place, piece in enumerate(composition.pieces):
        at = (0, 0, 0, place)
        states = set(native.state_names(at))
        odd = {*native.parameter_names(at), *states} ^ set(piece.tensors)
        if odd:
            raise InternalError(f"{family.name}: layer {place} and its tensors do not fit: {sorted(odd)}")
        wanted = sum(prod(native.parameter_shape(at, name)) for name in piece.tensors if name not in states)
        there = sum(tensors[name].size for source in piece.tensors.values() for name in source.names)
        if wanted > _MOST_MADE * there + _FEW:
            # Before there is memory for what a setting says, which may be anything.
            raise ShapeError(
                f"{family.name}: by config.json layer {place} has {wanted} parameters, which the {there} "
                "elements of its tensors do not fit"
            )
        weights = native.weights_state(at)["weights"] if lent and piece.tensors else []
        rows = {
            name: part
            for name, source in piece.tensors.items()
            if name in weights
            and (part := _lent(source, tensors, native.parameter_shape(at, name))) is not None
        }
        if rows:
            native.lend(at, [(name, *part) for name, part in rows.items()])
        for name, source in piece.tensors.items():
            if name in rows:
                continue
            label = _listed(source.names)
            read = (as_real_array(tensors[each].numpy(), precision, what=each) for each in source.names)
            values = as_real_array(np.ascontiguousarray(source.make(*read)), precision, what=label)
            try:
                (native.set_state if name in states else native.set_parameter)(at, name, values)
            except ShapeError as error:
                raise ShapeError(f"{family.name}: {label} does not fit config.json: {error}") from error
        if packed is not None and not masters and piece.tensors:
            native.morph(packed, [at], (None, "absmax", "nearest"), None, None)
            native.drop_masters([at])
    if packed is not None and masters:
        network.morph(cast("NumericTypeName", packed))
    return network


def _lent(
    source: Source, tensors: Mapping[str, TensorEntry], shape: Sequence[int]
) -> tuple[str, list[tuple[Any, str]], NDArray[np.uint64]] | None:
    """Returns a parameter as rows of a file's tensors; None where it is something else."""
    stored = [tensors[name].stored for name in source.names]
    rows = [one for one in stored if one is not None]
    kinds = {one.dtype for one in rows}
    if len(rows) < len(stored) or len(kinds) != 1:
        return None
    (dtype,) = kinds
    if not _native.is_lent(dtype):
        return None
    try:
        made = np.asarray(source.make(*(one.numbers(place) for place, one in enumerate(rows))))
    except (TypeError, ValueError):
        # Elements are computed with, not rows put in order.
        return None
    if made.dtype != np.dtype("V8") or made.shape[-1:] != (1,):
        return None
    # What does not fit is told of by who sets it.
    if any((*made.shape[:-1], tensors[name].shape[-1]) != tuple(shape) for name in source.names):
        return None
    order = np.ascontiguousarray(made).view(np.uint64).reshape(-1)
    return dtype, [(one.native, one.name) for one in rows], order


def _check_tensors(family: Family, composition: Composition, tensors: Mapping[str, TensorEntry]) -> None:
    """Refuses files that lack tensors, have more than are used, or others than the settings say."""
    sources = [source for piece in composition.pieces for source in piece.tensors.values()]
    used = {name for source in sources for name in source.names}
    missing = sorted(used - set(tensors))
    if missing:
        raise SerializationError(f"{family.name}: the folder lacks {_listed(missing)}")
    for source in sources:
        for name in source.names:
            shape = tensors[name].shape
            if 0 in shape:
                raise ShapeError(f"{family.name}: {name} has shape {shape}, which holds no elements")
            if shape[: len(source.extents)] != source.extents:
                told = ", ".join(map(str, source.extents))
                raise ShapeError(f"{family.name}: {name} has shape {shape}, and by config.json ({told}, ...)")
    patterns = [re.compile(pattern) for pattern in (*family.unused, *composition.unused)]
    spare = sorted(set(tensors) - used)
    left = [name for name in spare if not any(pattern.fullmatch(name) for pattern in patterns)]
    if left:
        raise SerializationError(f"{family.name}: the folder has tensors that nothing uses: {_listed(left)}")


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _with_origin(network: Network, folder: Path, config: Mapping[str, Any]) -> Network:
    """Tells in a network's card where it comes from, and what its classes are called."""
    labels = config.get("id2label")
    named = None
    if isinstance(labels, dict) and all(str(key).isdecimal() for key in labels):
        named = [str(labels[key]) for key in sorted(labels, key=int)]
        if len(set(named)) < len(named):
            named = None
    origin = {"folder": str(folder), "model_type": config.get("model_type")}
    network.card = ModelCard(labels=named, metadata={"hub": origin})
    return network
