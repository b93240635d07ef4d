"""Language models as GGUF, for llama.cpp."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from os import PathLike
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from loom import nn
from loom.architecture import CellConfig
from loom.engine import engine_of
from loom.errors import ConfigError
from loom.models.gguf.rotations import llama3_factors, to_halves, to_pairs
from loom.models.gguf.shapes import Block, Parts, kind_of
from loom.models.hub import streamed
from loom.network import Network
from loom.network.state_dicts import state_entries
from loom.tensors import TensorEntry, write_gguf

__all__ = ["convert_hub", "save_gguf"]

_FILE_TYPES = {"float32": 0, "float16": 1, "q4_0": 2, "q8_0": 7, "bfloat16": 32}
"""llama.cpp's numbers of what most of a file is."""

_ATTENTION = (
    "heads",
    "key_value_heads",
    "head_dim",
    "causal",
    "rotary",
    "window",
    "scale",
    "soft_cap",
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
    """Saves a language model as GGUF, which llama.cpp runs; tensors are written one at a time.

    Such a network is an `Embedding`; blocks of `Residual([RMSNorm, MultiHeadAttention])`, causal and rotary,
    and `Residual([RMSNorm, SwiGLU])`; an `RMSNorm`; and a `Dense` without bias or a `TiedHead`: Llama, or
    Qwen where there are biases or `qk_norm`. Other architectures of llama.cpp's are told by what they have
    more or elsewhere: Phi-3 by windows, SmolLM 3 by blocks without a rotary embedding, OLMo 2 by norms
    behind, Gemma 1, 2 and 3 by a `Scale`, `GeGLU` and more norms, Mixtral and Qwen's mixtures by
    `MixtureOfExperts`. How rotary embeddings pair elements does not matter.

    Of packed weights the masters are written, and where those were dropped, what the codes stand for: in the
    same type of blocks these are the same blocks, but for the table of an `Embedding` that was packed here,
    whose blocks lie along its columns. What adapters in use add goes into the weights that are written; the
    network stays as it is.

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
    engine_of(net).build()
    _check_type(dtype)
    _write(_Model(net, state_entries(net, decoded=True, adapted=True)), path, dtype, metadata)


def convert_hub(
    folder: str | PathLike[str],
    path: str | PathLike[str],
    dtype: str = "float32",
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Converts a folder of the Hugging Face Hub's shape to GGUF, tensor by tensor.

    Memory holds one tensor, and what it is written from; the network is never there. The file is what
    `save_gguf(from_hub(folder), path, dtype, metadata)` makes.

    Args:
        folder: The folder, as `from_hub` reads it.
        path: Where to.
        dtype: As in `save_gguf`.
        metadata: As in `save_gguf`.

    Raises:
        ConfigError: The model is of a family or kind that is not read, or not written.
        SerializationError: A file of the folder is damaged, or not what config.json says.
        FileError: The system refuses.
    """
    _check_type(dtype)
    with streamed(folder) as (net, entries):
        _write(_Model(net, entries), path, dtype, metadata)


def _check_type(dtype: str) -> None:
    # A list cannot be looked up.
    if dtype not in list(_FILE_TYPES):
        raise ConfigError(f"save_gguf: dtype must be one of {', '.join(_FILE_TYPES)}, got {dtype!r}")


def _write(model: _Model, path: str | PathLike[str], dtype: str, metadata: Mapping[str, Any] | None) -> None:
    described = {**model.metadata, "general.file_type": _FILE_TYPES[dtype], **(metadata or {})}
    if dtype in ("q4_0", "q8_0"):
        described.setdefault("general.quantization_version", 2)
    described.setdefault("tokenizer.ggml.model", "no_vocab")
    write_gguf(path, model.tensors, described, dtype)


def _output_bias(attention: nn.MultiHeadAttention) -> bool:
    """Returns whether something is added to the output."""
    return attention.bias if attention.output_bias is None else bool(attention.output_bias)


def _unwrapped(path: str, layer: object) -> Iterator[tuple[str, object]]:
    """Goes through a layer, or those inside a Checkpoint, with where they are."""
    if not isinstance(layer, nn.Checkpoint):
        yield path, layer
        return
    inside: Any = [layer.layers] if isinstance(layer.layers, nn.Layer) else layer.layers
    for number, each in enumerate(inside):
        yield from _unwrapped(f"{path}.{number}", each)


class _Model:
    """What a network says of itself in GGUF."""

    def __init__(self, net: Network, state: Mapping[str, TensorEntry]) -> None:
        cells = [cell for cell in net.config.cells if isinstance(cell, CellConfig) and cell.layers]
        if len(cells) != 1 or net.config.links:
            raise ConfigError("save_gguf: the network must be a row of layers in one cell, without links")
        (cell,) = cells
        # What is inside a Checkpoint is computed as it is without; where each layer's weights are.
        row = [each for place, layer in enumerate(cell.layers) for each in _unwrapped(str(place), layer)]
        self.paths = [path for path, _ in row]
        self.layers: Sequence[Any] = [layer for _, layer in row]
        self.state = state
        self.at = ".".join(str(place) for place in cell.at)
        self.tensors: dict[str, TensorEntry] = {}
        self.epsilons: set[float] = set()
        self.parts = self._taken_apart()
        self.kind = kind_of(self.parts)
        self._take("token_embd.weight", "0.weight")
        first = self.parts.blocks[0]
        for number, block in enumerate(self.parts.blocks):
            # Which blocks have a window, or turn, is the architecture's to say.
            alike = replace(block.attention, window=first.attention.window, rotary=first.attention.rotary)
            if alike != first.attention:
                raise ConfigError(
                    f"save_gguf: layer {block.places[0]}: all attention must have the same settings"
                )
            if block.feed_forward != first.feed_forward:
                raise ConfigError(
                    f"save_gguf: layer {block.places[1]}: all feed-forward layers must have the same width "
                    "and settings"
                )
            self._block(number, block)
        self._norm(self.parts.norm, "output_norm", f"{self.places['norm']}")
        if not self.parts.tied:
            # llama.cpp takes the embedding where there is no head.
            self._take("output.weight", f"{self.places['head']}.weight")
        self.metadata = self._described(net)

    # The row

    def _taken_apart(self) -> Parts:
        layers = list(self.layers)
        if len(layers) < 3 or not isinstance(layers[0], nn.Embedding):
            raise self._other(0, layers[0] if layers else None, "an Embedding")
        self._check_plain(0, layers[0], "vocabulary", "width")
        start, end = 1, len(layers)
        scale = cap = None
        if isinstance(layers[start], nn.Scale):
            scale, start = layers[start].factor, start + 1
        if isinstance(layers[-1], nn.SoftCap):
            cap, end = layers[-1].cap, end - 1
        head, norm, halves = end - 1, end - 2, layers[start : end - 2]
        if not isinstance(layers[norm], nn.RMSNorm):
            raise self._other(norm, layers[norm], "an RMSNorm")
        tied = self._is_tied(head, layers[head])
        if len(halves) % 2 or not halves:
            raise ConfigError("save_gguf: blocks must be pairs of Residual layers, and at least one pair")
        self.places = {"norm": norm, "head": head}
        blocks = [
            self._halves(start + place, halves[place], halves[place + 1])
            for place in range(0, len(halves), 2)
        ]
        return Parts(layers[0], scale, blocks, layers[norm], tied, cap)

    def _is_tied(self, place: int, head: object) -> bool:
        if isinstance(head, nn.TiedHead):
            # One with a table of its own is a head like a Dense.
            return head.tied_to is not None
        if not isinstance(head, nn.Dense) or head.bias:
            raise self._other(place, head, "a TiedHead, or a Dense without bias")
        self._check_plain(place, head, "units", "bias")
        return False

    def _halves(self, place: int, first: object, second: object) -> Block:
        before, attention, behind = self._inside(
            place, first, (nn.MultiHeadAttention,), "Residual([RMSNorm, MultiHeadAttention])"
        )
        self._check_attention(place, attention)
        kinds = (nn.SwiGLU, nn.GeGLU, nn.MixtureOfExperts)
        last, feed_forward, end = self._inside(place + 1, second, kinds, "Residual([RMSNorm, SwiGLU])")
        known = [it.name for it in fields(feed_forward)] if isinstance(feed_forward, kinds[2]) else []
        self._check_plain(place + 1, feed_forward, "hidden", "activation", *known)
        return Block(attention, feed_forward, (before, behind, last, end), (place, place + 1))

    def _other(self, place: int, layer: object, wanted: str) -> ConfigError:
        found = type(layer).__name__ if layer is not None else "nothing"
        return ConfigError(f"save_gguf: layer {place} must be {wanted}, got {found}")

    def _check_plain(self, place: int, layer: Any, *known: str) -> None:  # noqa: ANN401 - a dataclass
        """Refuses settings that GGUF has no place for, wherever they come from."""
        # What says how a layer begins, and what is left out while it learns, is nothing to who runs it.
        known = (*known, "weight_initializer", "bias_initializer", "dropout")
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

    def _inside(
        self, place: int, layer: object, kinds: tuple[type[nn.Layer], ...], wanted: str
    ) -> tuple[nn.RMSNorm | None, Any, nn.RMSNorm | None]:
        """What stands in a Residual: a norm, or none, on either side of one of these kinds."""
        held: Any = layer.layers if isinstance(layer, nn.Residual) and not layer.projection else ()
        inner = [at for at, each in enumerate(held) if isinstance(each, kinds)]
        if len(inner) != 1 or not 2 <= len(held) <= 3:
            raise self._other(place, layer, wanted)
        (at,) = inner
        norms = [each for each in held if each is not held[at]]
        if at > 1 or len(held) - at > 2 or not all(isinstance(each, nn.RMSNorm) for each in norms):
            raise self._other(place, layer, wanted)
        self._check_plain(place, layer, "layers")
        return (held[0] if at else None), held[at], (held[-1] if at + 1 < len(held) else None)

    def _check_attention(self, place: int, attention: nn.MultiHeadAttention) -> None:
        self._check_plain(place, attention, *_ATTENTION)
        if not attention.causal:
            raise ConfigError(f"save_gguf: layer {place}: attention must be causal and rotary")
        bias_behind = _output_bias(attention)
        if (attention.qk_norm and attention.bias) or (bias_behind and not attention.bias):
            raise ConfigError(
                f"save_gguf: layer {place}: biases must be those of all projections or of all but the "
                "output, and not beside qk_norm"
            )
        rule = attention.rotary.rule if isinstance(attention.rotary, nn.Rotary) else None
        if rule is not None and not isinstance(rule, (nn.Llama3Rule, nn.LongRopeRule)):
            raise ConfigError(f"save_gguf: layer {place}: {type(rule).__name__} of places cannot be written")

    # Tensors

    def _source(self, source: str) -> str:
        """Returns the full name of a weight whose layer is named by its place in the row."""
        place, _, rest = source.partition(".")
        return f"{self.at}.{self.paths[int(place)]}.{rest}"

    def _take(
        self, name: str, source: str, change: Callable[[NDArray[Any]], NDArray[Any]] | None = None
    ) -> None:
        entry = self.state[self._source(source)]
        if change is not None:
            before = entry
            entry = TensorEntry(name, entry.shape, entry.dtype, entry.nbytes, lambda: change(before.numpy()))
        self.tensors[name] = entry

    def _join(self, name: str, sources: Sequence[tuple[str, Callable[..., NDArray[Any]] | None]]) -> None:
        """Several tensors of as many columns, one below the other."""
        held = [(self.state[self._source(source)], change) for source, change in sources]
        rows = sum(entry.shape[0] for entry, _ in held)
        shape = (rows, *held[0][0].shape[1:])

        def read() -> NDArray[Any]:
            return np.concatenate(
                [entry.numpy() if change is None else change(entry.numpy()) for entry, change in held]
            )

        size = sum(entry.nbytes for entry, _ in held)
        self.tensors[name] = TensorEntry(name, shape, held[0][0].dtype, size, read)

    def _norm(self, layer: nn.RMSNorm, name: str, source: str) -> None:
        self._check_plain(0, layer, "epsilon")
        self.epsilons.add(layer.epsilon)
        self._take(f"{name}.weight", f"{source}.weight")

    def _block(self, number: int, block: Block) -> None:
        at, kind = f"blk.{number}", self.kind

        def norms(half: int) -> None:
            for place in (2 * half, 2 * half + 1):
                norm = block.norms[place]
                if norm is not None:
                    # A norm in front moves what it is in front of.
                    inner = 0 if place % 2 == 0 else 1 + (block.norms[place - 1] is not None)
                    self._norm(norm, f"{at}.{kind.ending[place]}", f"{block.places[half]}.layers.{inner}")

        norms(0)
        self._attention(at, f"{block.places[0]}.layers.{int(block.norms[0] is not None)}", block.attention)
        norms(1)
        source = f"{block.places[1]}.layers.{int(block.norms[2] is not None)}"
        if isinstance(block.feed_forward, nn.MixtureOfExperts):
            self._experts(at, source, block.feed_forward)
        elif kind.fused:
            self._join(f"{at}.ffn_up.weight", [(f"{source}.{part}_weight", None) for part in ("gate", "up")])
            self._take(f"{at}.ffn_down.weight", f"{source}.down_weight")
        else:
            for part in ("gate", "up", "down"):
                self._take(f"{at}.ffn_{part}.weight", f"{source}.{part}_weight")

    def _attention(self, at: str, source: str, attention: nn.MultiHeadAttention) -> None:
        if attention.qk_norm:
            self.epsilons.add(attention.qk_norm_epsilon)
        heads = attention.heads
        counts = {"query": heads, "key": attention.key_value_heads or heads}
        orders = {
            projection: self._ordered(attention, counts[projection]) if projection in counts else None
            for projection in _PROJECTIONS
        }
        joined = ("query", "key", "value") if self.kind.fused else ()
        for kind in ("weight", "bias") if joined and attention.bias else ("weight",) if joined else ():
            self._join(
                f"{at}.attn_qkv.{kind}", [(f"{source}.{part}_{kind}", orders[part]) for part in joined]
            )
        for projection, name in _PROJECTIONS.items():
            biased = _output_bias(attention) if projection == "output" else attention.bias
            for kind in ("weight", "bias") if biased else ("weight",):
                if projection not in joined:
                    self._take(f"{at}.{name}.{kind}", f"{source}.{projection}_{kind}", orders[projection])
        for projection in ("query", "key") if attention.qk_norm else ():
            wide = counts[projection] if attention.qk_norm == "width" else 1
            self._take(
                f"{at}.{_PROJECTIONS[projection]}_norm.weight",
                f"{source}.{projection}_gain",
                self._ordered(attention, wide),
            )

    def _ordered(
        self, attention: nn.MultiHeadAttention, heads: int
    ) -> Callable[[NDArray[Any]], NDArray[Any]] | None:
        """Returns how rows are to be ordered: neighbours of Llama turn in llama.cpp, halves of the others."""
        rotary = attention.rotary if isinstance(attention.rotary, nn.Rotary) else self._rotary()
        if rotary.dim is not None and rotary.layout != "half_split":
            raise ConfigError("save_gguf: heads that turn in part must pair halves, as half_split does")
        if self.kind.pairs:
            return None if rotary.layout == "interleaved" else lambda rows: to_pairs(rows, heads)
        return None if rotary.layout == "half_split" else lambda rows: to_halves(rows, heads)

    def _experts(self, at: str, source: str, layer: nn.MixtureOfExperts) -> None:
        self._take(f"{at}.ffn_gate_inp.weight", f"{source}.router_weight")
        for part in ("gate", "up", "down"):
            self._take(f"{at}.ffn_{part}_exps.weight", f"{source}.{part}_weight")
            if layer.shared_units is not None:
                self._take(f"{at}.ffn_{part}_shexp.weight", f"{source}.shared_{part}_weight")
        if layer.shared_units is not None:
            if not layer.shared_gate:
                raise ConfigError("save_gguf: shared experts must have a gate of their own, as Qwen 2's have")
            name = f"{at}.ffn_gate_inp_shexp.weight"
            gate = self.state[self._source(f"{source}.shared_router_weight")]
            self.tensors[name] = TensorEntry(
                name, gate.shape[1:], gate.dtype, gate.nbytes, lambda: gate.numpy().reshape(-1)
            )

    # Metadata

    def _rotary(self) -> nn.Rotary:
        """The rotary embedding that metadata tell of: that of the blocks which see everything."""
        blocks = sorted(self.parts.blocks, key=lambda block: block.attention.window is not None)
        rotaries = [
            block.attention.rotary for block in blocks if isinstance(block.attention.rotary, nn.Rotary)
        ]
        still = [block for block in blocks if block.attention.rotary is None]
        # Which blocks do not turn is SmolLM 3's alone to say, and which turn otherwise Gemma 3's.
        if not rotaries or (still and self.kind.name != "smollm3"):
            raise ConfigError(f"save_gguf: layer {still[0].places[0]}: attention must be causal and rotary")
        far = [
            block.attention.rotary
            for block in blocks
            if block.attention.rotary is not None
            and (
                self.kind.name != "gemma3"
                or (block.attention.window is None) == (blocks[0].attention.window is None)
            )
        ]
        if any(rotary != rotaries[0] for rotary in far):
            raise ConfigError(
                "save_gguf: all attention must have the same settings, its rotary embedding too"
            )
        return rotaries[0]

    def _described(self, net: Network) -> dict[str, Any]:
        if len(self.epsilons) != 1:
            raise ConfigError("save_gguf: all norms must have the same epsilon")
        parts, first = self.parts, self.parts.blocks[0]
        attention, feed_forward = first.attention, first.feed_forward
        rotary = self._rotary()
        head_dim = attention.head_dim or parts.embedding.width // attention.heads
        own: dict[str, Any] = {
            "context_length": net.input_shape[0],
            "embedding_length": parts.embedding.width,
            "block_count": len(parts.blocks),
            "feed_forward_length": _units(feed_forward),
            "vocab_size": parts.embedding.vocabulary,
            "attention.head_count": attention.heads,
            "attention.head_count_kv": attention.key_value_heads or attention.heads,
            "attention.key_length": head_dim,
            "attention.value_length": head_dim,
            "attention.layer_norm_rms_epsilon": float(self.epsilons.pop()),
            "rope.dimension_count": rotary.dim or head_dim,
            "rope.freq_base": float(rotary.base),
            **self._turning(rotary, rotary.dim or head_dim),
        }
        windows = {block.attention.window for block in parts.blocks} - {None}
        if windows:
            own["attention.sliding_window"] = windows.pop()
        if attention.soft_cap is not None:
            own["attn_logit_softcapping"] = float(attention.soft_cap)
        if parts.cap is not None:
            own["final_logit_softcapping"] = float(parts.cap)
        if isinstance(feed_forward, nn.MixtureOfExperts):
            own |= {"expert_count": feed_forward.experts, "expert_used_count": feed_forward.top_k}
            if self.kind.name != "llama":
                own["expert_feed_forward_length"] = feed_forward.units
            if feed_forward.shared_units is not None:
                own["expert_shared_feed_forward_length"] = feed_forward.shared_units
        name = self.kind.name
        return {"general.architecture": name, **{f"{name}.{key}": value for key, value in own.items()}}

    def _turning(self, rotary: nn.Rotary, turning: int) -> dict[str, Any]:
        """What is said of how places turn beside the base."""
        rule = rotary.rule
        if isinstance(rule, nn.Llama3Rule):
            factors = llama3_factors(
                rotary.base, turning, rotary.scaling, rule.low_factor, rule.high_factor, rule.original_length
            )
            self._factors("rope_freqs", factors)
            # The factors are what counts; from this the rule they are of is told again.
            return {"rope.scaling.original_context_length": int(rule.original_length)}
        if isinstance(rule, nn.LongRopeRule):
            for kind in ("long", "short"):
                self._factors(f"rope_factors_{kind}", np.asarray(rule.factors))
            factor = rule.attention_factor
            if factor is None:
                grown = max(math.log(rotary.scaling), 0.0) / math.log(rule.original_length)
                factor = math.sqrt(1 + grown)
            return {
                "rope.scaling.original_context_length": int(rule.original_length),
                "rope.scaling.attn_factor": float(factor),
            }
        if rotary.scaling != 1:
            return {"rope.scaling.type": "linear", "rope.scaling.factor": float(rotary.scaling)}
        return {}

    def _factors(self, name: str, factors: NDArray[Any]) -> None:
        held = np.asarray(factors, np.float32)
        name = f"{name}.weight"
        self.tensors[name] = TensorEntry(name, held.shape, "float32", held.nbytes, lambda: held)


def _units(layer: nn.SwiGLU | nn.GeGLU | nn.MixtureOfExperts) -> int:
    return layer.units if isinstance(layer, nn.MixtureOfExperts) else layer.hidden
