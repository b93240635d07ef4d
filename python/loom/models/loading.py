"""Networks from files of any format."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

from loom._settings.calls import explained
from loom._settings.checks import file_path
from loom.errors import ConfigError, FileError, SerializationError
from loom.models.formats import Format, format_of
from loom.network import Network
from loom.network import load as load_own
from loom.tensors import open_tensors

__all__ = ["load"]

# Where the readers of formats are: modules of this folder, loaded when one is asked for.
_READERS = {
    "gguf": ("gguf", "load"),
    "onnx": ("onnx", "load"),
    "llama2.c": ("llama2c", "load"),
    "keras": ("keras", "load"),
    "hdf5": ("keras", "load"),
    "plain": ("plain", "import_model"),
    "hugging face": ("hub", "from_hub"),
}
_TENSORS = ("safetensors", "npz")


def _elsewhere(name: str) -> str:
    """Says how a model comes here that is named by where it is in the world."""
    if "://" in name:
        return "loom downloads nothing: fetch the file, and load it from where it then is"
    parts = name.split("/")
    if (
        len(parts) <= 2
        and all(parts)
        and "." not in parts[0]
        and not name.endswith((".loom", ".gguf", ".onnx"))
    ):
        return (
            f"loom downloads nothing: of the Hugging Face Hub `hf download {name} --local-dir model` fetches "
            'a folder, and loom.load("model") reads it'
        )
    return ""


@explained()
def load(
    path: str | PathLike[str],
    mapping: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    *,
    verify: bool = True,
) -> Network:
    """Reads a network from a file or folder; what it is, its content tells, not its name.

    - a file that `Network.save` wrote, of this version of loom or an older one;
    - a folder as on Hugging Face's Hub: config.json and .safetensors;
    - GGUF, ONNX, Keras (.keras, and .h5 with a model in it), llama2.c;
    - JSON as of `loom.export_model`;
    - safetensors or .npz alone: layers are guessed from names and shapes; see `loom.models.guess`.

    Args:
        path: The file or folder.
        mapping: For tensors alone: what layers are, by name, where the guess needs help.
        config: For tensors alone: what they do not tell, such as {"activation": "relu"}.
        verify: Whether a file that `Network.save` wrote is compared with the checksums in it. False reads a
            damaged one, too, as far as it can be read: what it then holds is not what was saved.

    Returns:
        The network.

    Raises:
        FileError: The file cannot be read.
        SerializationError: It is damaged, truncated, of a later format, or of one that loom cannot read:
            the message says what it is, and what would read it. Or it is a safetensors file of others, and
            neither mapping nor config say what its tensors leave open.
        ConfigError: Tensors alone leave open what the layers are: the message lists what they may be. Or
            mapping or config are given for a file that needs neither.
        MissingExtraError: Reading this format needs a package that is not installed.

    Examples:
        >>> import tempfile
        >>> path = tempfile.mktemp()
        >>> loom.Sequential([nn.Dense(2)], input_shape=3).save(path)
        >>> loom.load(path).output_shape
        (2,)
    """
    place = file_path("load", path)
    check_exists(path)
    found = format_of(place)
    if (mapping is not None or config is not None) and found.name not in _TENSORS:
        raise ConfigError(
            f"{place} is {found.told}: mapping and config are for tensors alone (safetensors, .npz)"
        )
    if found.name in _TENSORS:
        return _from_tensors(place, found, mapping, config)
    if found.name in ("foreign", "torch"):
        raise SerializationError(f"{place} is {found.told}")
    if found.name in _READERS:
        return reader(found)(place)
    if place.is_dir():
        raise FileError(errno.EISDIR, f"is {found.told}", str(place))
    return load_own(path, verify)


def check_exists(path: str | PathLike[str], call: str = "loom.load") -> None:
    """Refuses a path at which nothing is, and says what to do where it names a model elsewhere.

    Args:
        path: The file or folder.
        call: What reads models.

    Raises:
        FileError: There is none.
    """
    if not Path(path).exists():
        told = _elsewhere(str(path)).replace("loom.load", call)
        raise FileError(
            errno.ENOENT, f"could not read {path}: there is no such file here{told and '; ' + told}"
        )


def reader(found: Format) -> Callable[[Path], Network]:
    """Returns what reads networks of a format."""
    module, name = _READERS[found.name]
    read: Callable[[Path], Network] = getattr(import_module(f".{module}", "loom.models"), name)
    return read


def _from_tensors(
    path: Path, found: Format, mapping: Mapping[str, Any] | None, config: Mapping[str, Any] | None
) -> Network:
    from loom.models.guessing import guess

    with open_tensors(path) as tensors:
        guessed = guess(tensors, config)
        if mapping is not None:
            guessed = guessed.replace(mapping)
        if guessed.open and found.name == "safetensors" and mapping is None and config is None:
            raise SerializationError(
                f"{path} is a safetensors file, but not one that loom saved, and its tensors leave open what "
                f"the network is:\n{guessed.questions()}"
            )
        return guessed.build()
