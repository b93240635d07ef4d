"""Language models from files."""

from __future__ import annotations

import json
from os import PathLike
from typing import cast

from loom._settings.checks import file_path
from loom._settings.files import text_of
from loom._typing import CacheTypeName, NumericTypeName
from loom.errors import ConfigError, DTypeError, InvalidValueError, StateError
from loom.models import from_hub
from loom.models.formats import format_of
from loom.models.gguf import load as load_gguf
from loom.models.loading import check_exists
from loom.network import Network
from loom.network.layers import LayerHandle, layers_of
from loom.network.session import cache_type
from loom.tensors import open_tensors
from loom.text.gguf_vocabulary import has_vocabulary, read_metadata
from loom.text.hub_files import has_tokenizer, read_folder
from loom.text.model import LanguageModel

__all__ = ["is_language_model", "load"]

_HEADS = ("ForCausalLM", "LMHeadModel")
# Types whose products take activations in int8.
_INTEGERS = frozenset({"int8", "int4", "int2", "ternary", "binary", "q8_0", "q4_0", "mxfp4"})


def load(
    path: str | PathLike[str],
    dtype: str | None = None,
    *,
    capacity: int | None = None,
    device: str = "cpu",
    kept: int = 1,
    masters: bool = False,
    activations: str | None = None,
    cache_dtype: CacheTypeName | None = None,
) -> LanguageModel:
    """Reads a language model: its network, its tokenizer, and how it chats.

    - A folder of the Hugging Face Hub's shape: config.json, tensors, tokenizer.json, and where they are there
      tokenizer_config.json, special_tokens_map.json, generation_config.json and chat templates.
    - A GGUF file with a vocabulary, "llama" (SentencePiece) or "gpt2" (merged bytes).

    Nothing is fetched, and nothing in the files is run but chat templates, in Jinja's sandbox.

    Args:
        path: The folder or file.
        dtype: The numeric type of the weights, as in `Network.morph`; the file's own for GGUF, float32 for
            folders where None.
        capacity: As in `LanguageModel`.
        device: Where the network computes, as in `Network.to`.
        kept: As in `LanguageModel`.
        masters: Whether full-precision weights are kept beside those of a packed `dtype`, to train from;
            without, the network is as after `Network.drop_master`.
        activations: "int8" has products with packed weights of a type that takes them so (q8_0, q4_0, int8,
            int4, int2, ternary, binary, mxfp4) quantise what they read, too, as in `Network.morph`, which is
            several times faster on a processor; weights of other types, of experts, and, but for tables of
            GGUF files, a head that is tied to the embedding read floats. Weights of a GGUF file stay in it.
            None leaves activations in float, on which quantising adds no error.
        cache_dtype: As in `LanguageModel`.

    Raises:
        DTypeError: `activations` is another type, or no weight is of a type that takes it.
        StateError: There is a `cache_dtype`, and it is to be on a GPU, or no layer keeps keys and values.
        FileError: It cannot be read, or has no tokenizer.
        SerializationError: It is damaged.
        ConfigError: It is no language model, or of a family or kind of vocabulary that is not read.
        MissingExtraError: tokenizers or Jinja is not installed.
    """
    place = file_path("loom.text.load", path)
    check_exists(path, "loom.text.load")
    if cache_type("loom.text.load", cache_dtype) is not None and str(device).startswith("gpu"):
        # Before all of it is read.
        raise StateError(
            f'loom.text.load: keys and values are kept as {cache_dtype} on processors alone: device="cpu", '
            f'or leave cache_dtype out on "{device}"'
        )
    found = format_of(place)
    full = dtype in (None, "float32", "float64")
    if found.name == "gguf":
        with open_tensors(place) as file:
            vocabulary = read_metadata(file.metadata)
        network = load_gguf(place)
        if dtype is not None:
            network.morph(cast("NumericTypeName", dtype))
            if not (masters or full):
                network.drop_master()
    elif found.name == "hugging face":
        vocabulary = read_folder(place)
        network = from_hub(place, dtype, masters=masters or full)
    else:
        raise ConfigError(
            f"{place} is {found.told}; loom.text.load reads folders of the Hugging Face Hub and GGUF files. "
            "Give loom.text.LanguageModel another network and its tokenizer"
        )
    if activations is not None:
        _quantize_activations(network, activations)
    return LanguageModel(
        network.to(device), vocabulary, capacity=capacity, kept=kept, cache_dtype=cache_dtype
    )


def _quantize_activations(network: Network, activations: str) -> None:
    """Has the products with packed weights that can do so quantise what they read."""
    if activations != "int8":
        raise DTypeError(
            f'activations are quantised to "int8", or left in float with None, got {activations!r}'
        )
    found = False
    for layer in list(layers_of(network)):
        by_type: dict[str, list[str]] = {}
        for name, stored in layer.weights.stored.items():
            if name.endswith("weight") and stored.dtype in _INTEGERS:
                by_type.setdefault(stored.dtype, []).append(name)
        for dtype, names in by_type.items():
            at = layer.at

            def is_meant(other: LayerHandle, at: object = at) -> bool:
                return other.at == at

            try:
                network.morph(
                    cast("NumericTypeName", dtype), where=is_meant, parameters=names, activations=activations
                )
            except InvalidValueError:
                # Of experts, whose products take floats.
                continue
            found = True
    if not found:
        raise DTypeError(
            'activations="int8" needs packed weights of integers, and the model has none; give a dtype, such '
            'as "q8_0", or leave activations out'
        )


def is_language_model(path: str | PathLike[str]) -> bool:
    """Whether a file or folder has a network that writes text, and its tokenizer.

    Args:
        path: The file or folder.
    """
    place = file_path("is_language_model", path)
    found = format_of(place)
    if found.name == "gguf":
        with open_tensors(place) as file:
            return has_vocabulary(file.metadata)
    if found.name != "hugging face" or not has_tokenizer(place):
        return False
    try:
        config = json.loads(text_of(place / "config.json"))
        names = config.get("architectures") or []
        return any(str(name).endswith(_HEADS) for name in names)
    except (OSError, ValueError, AttributeError, TypeError):
        # What is wrong with it, loading it will say.
        return False
