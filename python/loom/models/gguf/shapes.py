"""Which of llama.cpp's architectures computes what a network does: what sets each apart, as a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from loom import nn
from loom.errors import ConfigError

__all__ = ["Block", "Kind", "Parts", "kind_of"]


@dataclass(frozen=True)
class Block:
    """A block: norms before and behind its two halves, None where there are none.

    Args:
        attention: The first half.
        feed_forward: The second half.
        norms: Those before attention, behind it, before the feed-forward layer and behind that.
        places: Where in the network's row the halves are.
    """

    attention: nn.MultiHeadAttention
    feed_forward: nn.SwiGLU | nn.GeGLU | nn.MixtureOfExperts
    norms: tuple[nn.RMSNorm | None, nn.RMSNorm | None, nn.RMSNorm | None, nn.RMSNorm | None]
    places: tuple[int, int]


@dataclass(frozen=True)
class Parts:
    """A network's row, taken apart.

    Args:
        embedding: The table of words.
        scale: What its rows are multiplied by.
        blocks: The blocks.
        norm: The norm behind them.
        tied: Whether the head has the embedding's table.
        cap: Between what scores are held, if they are.
    """

    embedding: nn.Embedding
    scale: float | None
    blocks: Sequence[Block]
    norm: nn.RMSNorm
    tied: bool
    cap: float | None


@dataclass(frozen=True)
class Kind:
    """An architecture of llama.cpp's.

    Args:
        name: Its name in GGUF.
        pairs: Whether neighbours turn together; halves of a head do otherwise.
        fused: Whether queries, keys and values stand in one tensor, and so do gate and up.
        ending: The names of a block's norms, in order.
        check: Tells what of a network it cannot say, "" where that is nothing.
    """

    name: str
    pairs: bool = False
    fused: bool = False
    ending: tuple[str, str, str, str] = ("attn_norm", "", "ffn_norm", "")
    check: Callable[[Parts], str] = lambda parts: ""


BOTH_SIDES = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
BEHIND = ("", "post_attention_norm", "", "post_ffw_norm")
BEFORE = ("attn_norm", "", "ffn_norm", "")


def _ending(parts: Parts) -> tuple[str, str, str, str]:
    """Which norms the blocks have, as names."""
    present = {tuple(norm is not None for norm in block.norms) for block in parts.blocks}
    for names in (BEFORE, BEHIND, BOTH_SIDES):
        if present == {tuple(bool(name) for name in names)}:
            return names
    raise ConfigError(
        "save_gguf: blocks must all have norms before their halves, behind them, or on both sides"
    )


def _windows(parts: Parts) -> list[int | None]:
    return [block.attention.window for block in parts.blocks]


def _patterned(parts: Parts, slides: Callable[[int], bool]) -> str:
    """Tells whether the blocks that llama.cpp gives a window to are those that have one, of one extent."""
    windows = _windows(parts)
    right = all((window is not None) == slides(place) for place, window in enumerate(windows))
    if not right or len({window for window in windows if window is not None}) > 1:
        return "windows of other blocks than llama.cpp gives one to, or of several extents"
    return ""


def _scaled(parts: Parts, largest: int) -> str:
    """Tells whether attention is scaled as llama.cpp does; the largest model of a family by its width."""
    heads = parts.blocks[0].attention.heads
    wide = parts.embedding.width // heads
    extent = wide if len(parts.blocks) == largest else parts.blocks[0].attention.head_dim or wide
    scale = parts.blocks[0].attention.scale
    scale = (parts.blocks[0].attention.head_dim or wide) ** -0.5 if scale is None else scale
    return "" if math.isclose(scale, extent**-0.5, rel_tol=1e-6) else "a scale of scores"


def _gemma(parts: Parts) -> str:
    if parts.scale is None or not math.isclose(parts.scale, math.sqrt(parts.embedding.width), rel_tol=1e-3):
        return "an embedding that is not scaled by the root of its width"
    if not all(isinstance(block.feed_forward, nn.GeGLU) for block in parts.blocks):
        return "feed-forward layers other than GeGLU"
    if any(getattr(block.feed_forward, "activation", "") != "gelu_tanh" for block in parts.blocks):
        return "GeGLU with another activation than gelu_tanh"
    return ""


def _gemma1(parts: Parts) -> str:
    if any(window is not None for window in _windows(parts)) or parts.cap is not None or not parts.tied:
        return "windows, caps, or a head of its own"
    return _gemma(parts) or _scaled(parts, -1)


def _gemma2(parts: Parts) -> str:
    if parts.cap is None or not parts.tied or any(block.attention.soft_cap is None for block in parts.blocks):
        return "Gemma 2 without its soft caps or its tied head"
    return _gemma(parts) or _patterned(parts, lambda place: place % 2 == 0) or _scaled(parts, 46)


def _gemma3(parts: Parts) -> str:
    if parts.cap is not None or any(block.attention.soft_cap is not None for block in parts.blocks):
        return "soft caps"
    near = [block.attention.rotary for block in parts.blocks if block.attention.window is not None]
    plain = [rotary for rotary in near if isinstance(rotary, nn.Rotary)]
    if len(plain) != len(near) or any(
        (rotary.base, rotary.scaling, rotary.rule) != (10_000.0, 1.0, None) for rotary in plain
    ):
        return "another rotary embedding in blocks with a window than one of base 10000"
    return _gemma(parts) or _patterned(parts, lambda place: (place + 1) % 6 != 0) or _scaled(parts, 62)


def _llama(parts: Parts) -> str:
    if parts.scale is not None or parts.cap is not None:
        return "a scale behind the embedding, or a cap of scores"
    if any(window is not None for window in _windows(parts)):
        return "window"
    if any(block.attention.soft_cap is not None for block in parts.blocks):
        return "soft_cap"
    if any(getattr(block.feed_forward, "activation", "silu") != "silu" for block in parts.blocks):
        return "another activation than silu"
    return _scaled(parts, -1)


def _square(parts: Parts) -> str:
    """Tells whether heads are together as wide as the network: llama.cpp may know no other width."""
    width, attention = parts.embedding.width, parts.blocks[0].attention
    wide = attention.heads * (attention.head_dim or width // attention.heads)
    return "" if wide == width else f"heads that are together {wide} wide in a network of width {width}"


def _olmo2(parts: Parts) -> str:
    return _llama(parts) or _square(parts)


def _phi3(parts: Parts) -> str:
    if len(set(_windows(parts))) > 1:
        return "windows of some blocks"
    blocks = [replace(block, attention=replace(block.attention, window=None)) for block in parts.blocks]
    return _llama(replace(parts, blocks=blocks)) or _square(parts)


def _smollm3(parts: Parts) -> str:
    turns = all(
        (block.attention.rotary is not None) == ((place + 1) % 4 != 0)
        for place, block in enumerate(parts.blocks)
    )
    return _llama(parts) or ("" if turns else "blocks without a rotary embedding other than every fourth")


def _qwen2_experts(parts: Parts) -> str:
    attention = parts.blocks[0].attention
    if not attention.bias or attention.output_bias is not False:
        return "attention without biases of queries, keys and values, or with one of the output"
    return _experts(False)(parts)


def _experts(normalized: bool) -> Callable[[Parts], str]:
    def check(parts: Parts) -> str:
        for block in parts.blocks:
            layer = block.feed_forward
            if not isinstance(layer, nn.MixtureOfExperts):
                return "blocks without experts among blocks with them"
            if not layer.gated or layer.normalize != normalized or layer != parts.blocks[0].feed_forward:
                return "experts of such settings"
        return _llama(parts)

    return check


KINDS = {
    "llama": Kind("llama", pairs=True, check=_llama),
    "qwen2": Kind("qwen2", check=_llama),
    "qwen3": Kind("qwen3", check=_llama),
    "smollm3": Kind("smollm3", pairs=True, check=_smollm3),
    "olmo2": Kind("olmo2", ending=BEHIND, check=_olmo2),
    "phi3": Kind("phi3", fused=True, check=_phi3),
    "gemma": Kind("gemma", check=_gemma1),
    "gemma2": Kind("gemma2", ending=BOTH_SIDES, check=_gemma2),
    "gemma3": Kind("gemma3", ending=BOTH_SIDES, check=_gemma3),
    "mixtral": Kind("llama", pairs=True, check=_experts(True)),
    "qwen2moe": Kind("qwen2moe", check=_qwen2_experts),
    "qwen3moe": Kind("qwen3moe", check=_experts(True)),
}
"""What is written; Mixtral is a Llama with experts."""


def kind_of(parts: Parts) -> Kind:
    """Returns the architecture that computes what a network does.

    Raises:
        ConfigError: None does; the message says what is in the way of the nearest.
    """
    ending, first = _ending(parts), parts.blocks[0]
    attention, feed_forward = first.attention, first.feed_forward
    if isinstance(feed_forward, nn.MixtureOfExperts):
        name = "qwen3moe" if attention.qk_norm else "qwen2moe" if feed_forward.shared_units else "mixtral"
    elif parts.scale is not None or isinstance(feed_forward, nn.GeGLU):
        name = "gemma" if ending == BEFORE else "gemma3" if attention.qk_norm else "gemma2"
    elif ending == BEHIND:
        name = "olmo2"
    elif any(block.attention.rotary is None for block in parts.blocks):
        name = "smollm3"
    elif attention.qk_norm:
        name = "qwen3"
    elif attention.window is not None or _turns_long(attention):
        name = "phi3"
    else:
        output = attention.bias if attention.output_bias is None else attention.output_bias
        name = "qwen2" if attention.bias and not output else "llama"
    kind = KINDS[name]
    why = (
        _beside(name, attention)
        or kind.check(parts)
        or ("" if kind.ending == ending else "norms in other places")
    )
    if why:
        raise ConfigError(f"save_gguf: GGUF's {name} has no place for {why}")
    return kind


_BIASED = ("llama", "qwen2", "qwen2moe")
"""Architectures whose attention may have biases; which ones, `_experts` and the like tell."""
_QK_NORMS: dict[str, bool | str] = {"qwen3": True, "qwen3moe": True, "gemma3": True, "olmo2": "width"}
"""Architectures with norms of queries and keys, all of which have them."""


def _beside(name: str, attention: nn.MultiHeadAttention) -> str:
    """Tells what attention has that the architecture's has not, or lacks."""
    if attention.qk_norm != _QK_NORMS.get(name, False):
        return f"attention with qk_norm={attention.qk_norm!r}"
    if (attention.bias or attention.output_bias) and name not in _BIASED:
        return "biases of attention"
    return ""


def _turns_long(attention: nn.MultiHeadAttention) -> bool:
    rotary = attention.rotary
    return isinstance(rotary, nn.Rotary) and (
        rotary.dim is not None or isinstance(rotary.rule, nn.LongRopeRule)
    )
