"""Networks of Llama's family as GGUF, for llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loom import nn
from loom.architecture import CellConfig
from loom.errors import ConfigError
from loom.models.gguf import llama3_factors, to_halves, to_pairs
from loom.network import Network
from loom.network.state_dicts import state_entries
from loom.tensors import TensorEntry, write_gguf

__all__ = ["save_gguf"]

_FILE_TYPES = {"float32": 0, "float16": 1, "q4_0": 2, "q8_0": 7, "bfloat16": 32}
"""llama.cpp's numbers of what most of a file is."""

_ATTENTION = (
    "heads",
    "key_value_heads",
    "head_dim",
    "causal",
    "rotary",
    "qk_norm",
    "qk_norm_epsilon",
    "bias",
    "output_bias",
)
"""The settings of attention that are written."""

_PROJECTIONS = {"query": "attn_q", "key": "attn_k", "value": "attn_v", "output": "attn_output"}


def save_gguf(
    net: Network,
    path: str | PathLike[str],
    dtype: Literal["float32", "float16", "bfloat16", "q4_0", "q8_0"] = "float32",
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Saves a network of Llama's family as GGUF, which llama.cpp runs; tensors are written one at a time.

    Such a network is an `Embedding`; blocks of `Residual([RMSNorm, MultiHeadAttention])`, causal and rotary,
    and `Residual([RMSNorm, SwiGLU])`; an `RMSNorm`; and a `Dense` without bias or a `TiedHead`. With
    `qk_norm` it is written as Qwen 3, otherwise as Llama, whichever way its rotary embedding pairs elements.

    Args:
        net: The network.
        path: Where to.
        dtype: What matrices are written as: "float32", "float16", "bfloat16", "q4_0" or "q8_0"; rows that are
            no whole blocks of 32 are float16 then. What is no matrix stays float32.
        metadata: What else the file is to say, such as the entries of "tokenizer.*" of another file's
            metadata; without those it says that it has no vocabulary. It overrides what the network says.

    Raises:
        ConfigError: The network is of another kind; the message says where.
        DTypeError: Such a type is not written.
        NonFiniteError: A weight that its type cannot hold.
        FileError: The system refuses.

    Examples:
        >>> import tempfile, pathlib
        >>> attention = nn.MultiHeadAttention(2, causal=True, rotary=nn.Rotary(), bias=False)
        >>> block = [nn.Residual([nn.RMSNorm(), attention]), nn.Residual([nn.RMSNorm(), nn.SwiGLU(64)])]
        >>> layers = [nn.Embedding(100, 32), *block, nn.RMSNorm(), nn.Dense(100, bias=False)]
        >>> net = loom.Sequential(layers, input_shape=16)
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "net.gguf"
        >>> loom.save_gguf(net, path, dtype="q8_0")
        >>> loom.open_tensors(path)["blk.0.ffn_down.weight"]
        TensorEntry('blk.0.ffn_down.weight', shape=(32, 64), dtype='q8_0')
    """
    if dtype not in _FILE_TYPES:
        raise ConfigError(f"save_gguf: dtype must be one of {', '.join(_FILE_TYPES)}, got {dtype!r}")
    net.build()
    model = _Model(net)
    described = {**model.metadata, "general.file_type": _FILE_TYPES[dtype], **(metadata or {})}
    if dtype in ("q4_0", "q8_0"):
        described.setdefault("general.quantization_version", 2)
    described.setdefault("tokenizer.ggml.model", "no_vocab")
    write_gguf(path, model.tensors, described, dtype)


def _output_bias(attention: nn.MultiHeadAttention) -> bool:
    """Returns whether something is added to the output."""
    given = getattr(attention, "output_bias", None)
    return attention.bias if given is None else bool(given)


def _architecture(attention: nn.MultiHeadAttention) -> str:
    """Returns llama.cpp's name of what has such attention."""
    if attention.qk_norm:
        return "qwen3"
    return "qwen2" if attention.bias and not _output_bias(attention) else "llama"


class _Model:
    """What a network says of itself in GGUF."""

    def __init__(self, net: Network) -> None:
        cells = [cell for cell in net.config.cells if isinstance(cell, CellConfig) and cell.layers]
        if len(cells) != 1 or net.config.links:
            raise ConfigError("save_gguf: the network must be a row of layers in one cell, without links")
        (cell,) = cells
        self.layers: Sequence[Any] = cell.layers
        self.state = state_entries(net)
        self.at = ".".join(str(place) for place in cell.at)
        self.tensors: dict[str, TensorEntry] = {}
        self.attentions: list[nn.MultiHeadAttention] = []
        self.hidden: set[int] = set()
        self.epsilons: set[float] = set()
        first, *blocks, norm, head = self.layers if len(self.layers) > 2 else (None, None, None)
        if not isinstance(first, nn.Embedding):
            raise self._other(0, first, "an Embedding")
        self._check_plain(0, first, "vocabulary", "width")
        self._take("token_embd.weight", "0.weight")
        if len(blocks) % 2 or not blocks:
            raise ConfigError("save_gguf: blocks must be pairs of Residual layers, and at least one pair")
        for place in range(0, len(blocks), 2):
            self._attention(place + 1, place // 2, blocks[place])
            self._feed_forward(place + 2, place // 2, blocks[place + 1])
        self._norm(len(blocks) + 1, norm, "output_norm", f"{len(blocks) + 1}")
        self._head(len(blocks) + 2, head)
        self.metadata = self._described(net, first)

    def _other(self, place: int, layer: object, wanted: str) -> ConfigError:
        found = type(layer).__name__ if layer is not None else "nothing"
        return ConfigError(f"save_gguf: layer {place} must be {wanted}, got {found}")

    def _check_plain(self, place: int, layer: Any, *known: str) -> None:  # noqa: ANN401 - a dataclass
        """Refuses settings that GGUF has no place for, wherever they come from."""
        known = (*known, "weight_initializer", "bias_initializer")
        required = {
            setting.name: getattr(layer, setting.name) for setting in fields(layer) if setting.name in known
        }
        plain = type(layer)(**required)
        odd = [it.name for it in fields(layer) if getattr(layer, it.name) != getattr(plain, it.name)]
        if odd:
            raise ConfigError(
                f"save_gguf: layer {place}, {type(layer).__name__}: GGUF of this family has no place for "
                + ", ".join(odd)
            )

    def _take(
        self, name: str, source: str, change: Callable[[NDArray[Any]], NDArray[Any]] | None = None
    ) -> None:
        entry = self.state[f"{self.at}.{source}"]
        if change is not None:
            before = entry
            entry = TensorEntry(name, entry.shape, entry.dtype, entry.nbytes, lambda: change(before.numpy()))
        self.tensors[name] = entry

    def _inside(self, place: int, layer: object, kind: type[nn.Layer], wanted: str) -> tuple[Any, Any]:
        held: Any = layer.layers if isinstance(layer, nn.Residual) and not layer.projection else ()
        if len(held) != 2:
            raise self._other(place, layer, wanted)
        norm, inner = held
        if not isinstance(inner, kind):
            raise self._other(place, inner, wanted)
        self._check_plain(place, layer, "layers")
        return norm, inner

    def _norm(self, place: int, layer: object, name: str, source: str) -> None:
        if not isinstance(layer, nn.RMSNorm):
            raise self._other(place, layer, "an RMSNorm")
        self._check_plain(place, layer, "epsilon")
        self.epsilons.add(layer.epsilon)
        self._take(f"{name}.weight", f"{source}.weight")

    def _attention(self, place: int, block: int, layer: object) -> None:
        wanted = "Residual([RMSNorm, MultiHeadAttention])"
        norm, attention = self._inside(place, layer, nn.MultiHeadAttention, wanted)
        self._norm(place, norm, f"blk.{block}.attn_norm", f"{place}.layers.0")
        self._check_plain(place, attention, *_ATTENTION)
        if not attention.causal or attention.rotary is None or attention.qk_norm not in (False, True):
            raise ConfigError(
                f"save_gguf: layer {place}: attention must be causal and rotary, and norms those of heads"
            )
        bias_behind = _output_bias(attention)
        if (attention.qk_norm and attention.bias) or (bias_behind and not attention.bias):
            raise ConfigError(
                f"save_gguf: layer {place}: biases must be those of all projections or of all but the "
                "output, and not beside qk_norm"
            )
        if attention.qk_norm:
            self.epsilons.add(getattr(attention, "qk_norm_epsilon", 1e-6))
        self._check_rotary(place, attention.rotary)
        self.attentions.append(attention)
        if attention != self.attentions[0]:
            raise ConfigError(f"save_gguf: layer {place}: all attention must have the same settings")
        heads = attention.heads
        for projection, name in _PROJECTIONS.items():
            of = {"query": heads, "key": attention.key_value_heads or heads}.get(projection)
            change = None if of is None else self._ordered(attention, of)
            bias = bias_behind if projection == "output" else attention.bias
            for kind in ("weight", "bias") if bias else ("weight",):
                self._take(f"blk.{block}.{name}.{kind}", f"{place}.layers.1.{projection}_{kind}", change)
        for projection in ("query", "key") if attention.qk_norm else ():
            name = f"blk.{block}.{_PROJECTIONS[projection]}_norm.weight"
            self._take(name, f"{place}.layers.1.{projection}_gain", self._ordered(attention, 1))

    def _ordered(
        self, attention: nn.MultiHeadAttention, heads: int
    ) -> Callable[[NDArray[Any]], NDArray[Any]] | None:
        """Returns how rows are to be ordered: llama.cpp turns neighbours of Llama, and halves of Qwen."""
        layout = attention.rotary.layout if isinstance(attention.rotary, nn.Rotary) else None
        if _architecture(attention) != "llama":
            return None if layout == "half_split" else lambda rows: to_halves(rows, heads)
        return None if layout == "interleaved" else lambda rows: to_pairs(rows, heads)

    def _check_rotary(self, place: int, rotary: nn.Rotary) -> None:
        rule = getattr(rotary, "rule", None)
        if rule is not None and type(rule).__name__ != "Llama3Rule":
            raise ConfigError(f"save_gguf: layer {place}: {type(rule).__name__} of places cannot be written")
        if getattr(rotary, "dim", None) is not None:
            raise ConfigError(f"save_gguf: layer {place}: heads that turn in part cannot be written")

    def _feed_forward(self, place: int, block: int, layer: object) -> None:
        norm, inner = self._inside(place, layer, nn.SwiGLU, "Residual([RMSNorm, SwiGLU])")
        self._norm(place, norm, f"blk.{block}.ffn_norm", f"{place}.layers.0")
        self._check_plain(place, inner, "hidden")
        self.hidden.add(inner.hidden)
        for part in ("gate", "up", "down"):
            self._take(f"blk.{block}.ffn_{part}.weight", f"{place}.layers.1.{part}_weight")

    def _head(self, place: int, head: object) -> None:
        if isinstance(head, nn.TiedHead):
            # llama.cpp takes the embedding where there is no head.
            return
        if not isinstance(head, nn.Dense) or head.bias:
            raise self._other(place, head, "a TiedHead, or a Dense without bias")
        self._check_plain(place, head, "units", "bias")
        self._take("output.weight", f"{place}.weight")

    def _described(self, net: Network, embedding: nn.Embedding) -> dict[str, Any]:
        if len(self.epsilons) != 1 or len(self.hidden) != 1:
            raise ConfigError("save_gguf: all norms must have the same epsilon, all SwiGLU the same width")
        attention = self.attentions[0]
        rotary = attention.rotary
        if not isinstance(rotary, nn.Rotary):
            raise ConfigError("save_gguf: attention must be rotary")
        head_dim = attention.head_dim or embedding.width // attention.heads
        name = _architecture(attention)
        own: dict[str, Any] = {
            "context_length": net.input_shape[0],
            "embedding_length": embedding.width,
            "block_count": len(self.attentions),
            "feed_forward_length": self.hidden.pop(),
            "vocab_size": embedding.vocabulary,
            "attention.head_count": attention.heads,
            "attention.head_count_kv": attention.key_value_heads or attention.heads,
            "attention.key_length": head_dim,
            "attention.value_length": head_dim,
            "attention.layer_norm_rms_epsilon": float(self.epsilons.pop()),
            "rope.dimension_count": head_dim,
            "rope.freq_base": float(rotary.base),
        }
        rule = getattr(rotary, "rule", None)
        if rule is not None:
            factors = llama3_factors(
                rotary.base, head_dim, rotary.scaling, rule.low_factor, rule.high_factor, rule.original_length
            ).astype(np.float32)
            self.tensors["rope_freqs.weight"] = TensorEntry(
                "rope_freqs.weight", factors.shape, "float32", factors.nbytes, lambda: factors
            )
            # The factors are what counts; from this the rule they are of is told again.
            own["rope.scaling.original_context_length"] = int(rule.original_length)
        elif rotary.scaling != 1:
            own |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rotary.scaling)}
        return {"general.architecture": name, **{f"{name}.{key}": value for key, value in own.items()}}
