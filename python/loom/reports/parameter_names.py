"""The blocks that parameters belong to, read from their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from loom.errors import ConfigError
from loom.reports.base import Report, TabularReport

__all__ = ["Block", "Blocks", "SubBlock", "blocks", "natural_key"]

# What precedes a block's number in the names of well-known models.
_STACKS = frozenset(
    ("layers", "layer", "h", "blk", "blocks", "block", "resblocks", "encoder_layers", "decoder_layers")
)
# A loom network's own names: depth, row, column, layer, and what is in it.
_NUMBER = "(?:0|[1-9][0-9]{0,8})"
_LOOM = re.compile(rf"({_NUMBER}\.{_NUMBER}\.{_NUMBER})\.({_NUMBER})\.(.+)")
# What tells of a normalisation, wherever it stands.
_NORM = ("norm", r"^ln(_.*|\d*)$", "_ln$", r"^bn\d*$")


def _kinds(**words: tuple[str, ...]) -> list[tuple[str, re.Pattern[str]]]:
    return [(kind.replace("_", "-"), re.compile("|".join(told), re.I)) for kind, told in words.items()]


# What parts of a name tell: the first part that tells something decides, by the first row that fits.
_KINDS = [
    # Normalised queries and keys are of the attention, however they are called.
    *_kinds(attention=("^attn_[qkv]_norm$",)),
    *_kinds(
        norm=_NORM,
        cross_attention=("cross_?att", "encdecatt", "encoder_attn", "^multihead_attn$"),
        attention=(
            *("attn", "attention", "qkv", "^query_key_value$", "^[qkvo](_proj)?$", "^w[qkvo]$"),
            *("^(query|key|value)(_|$)", "^output_(weight|bias)$", "^in_proj_(weight|bias)$", "^out_proj$"),
        ),
        feed_forward=(
            *("mlp", "ffn", "ffw", "feed_?forward", "densereludense", "moe", "experts?$", "^intermediate$"),
            *("^output$", r"^fc_?\d", "^c_fc$", r"^linear\d$", "^w[123]$", r"^wi(_\d)?$"),
            "^(gate|up|down|gate_up)_proj$",
        ),
        convolution=(r"^conv\d*d?$", "^downsample$"),
    ),
]
_OUTSIDE = _kinds(
    norm=_NORM,
    embedding=("embed", "embd", "^wte$", "^wpe$", "^shared$"),
    head=("head$", "^output$", "^classifier$", "^score$", "^pooler$", "^cls$"),
    convolution=(r"^conv\d*d?$",),
)
_OTHER = "other"


@dataclass(frozen=True, eq=False)
class SubBlock(Report):
    """What in a block does one thing.

    Args:
        kind: "attention", "cross-attention", "feed-forward", "norm", "convolution" or "other"; outside of
            numbered blocks "embedding" and "head", too.
        names: Its parameters, in natural order.
    """

    kind: str
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Block(Report):
    """One of several blocks that are built alike; or what stands outside of all.

    Args:
        name: What its parameters' names begin with, such as "model.layers.0"; empty outside.
        family: The name without the number, such as "model.layers"; empty outside.
        number: The number; None outside.
        parts: What it is made of, by the kind of sub-block.
    """

    name: str
    family: str
    number: int | None
    parts: tuple[SubBlock, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """All its parameters, part by part."""
        return tuple(name for part in self.parts for name in part.names)

    def part(self, kind: str) -> tuple[str, ...]:
        """Returns the parameters of one kind of sub-block; none where it has no such."""
        return next((part.names for part in self.parts if part.kind == kind), ())


@dataclass(frozen=True, eq=False)
class Blocks(TabularReport):
    """Parameters in blocks.

    Args:
        blocks: The numbered blocks, in natural order; what is in none stands in one without a number,
            which comes first.
    """

    blocks: tuple[Block, ...]

    def __len__(self) -> int:
        return len(self.blocks)

    def __iter__(self) -> Iterator[Block]:
        return iter(self.blocks)

    @property
    def numbered(self) -> tuple[Block, ...]:
        """The blocks that have a number."""
        return tuple(block for block in self.blocks if block.number is not None)

    def columns(self) -> dict[str, Any]:
        """Returns a row for each parameter: name, block, number, kind of sub-block."""
        rows = [
            (name, block.name, block.number, part.kind)
            for block in self.blocks
            for part in block.parts
            for name in part.names
        ]
        columns = list(zip(*rows, strict=True)) or [()] * 4
        return dict(zip(("name", "block", "number", "kind"), map(list, columns), strict=True))


def blocks(names: Iterable[str]) -> Blocks:
    """Groups names of parameters into numbered blocks, and these into attention, feed-forward and so on.

    Reads the names of a loom network's `state_dict` (a layer in its cell is a block), and those in files of
    Hugging Face, PyTorch and GGUF models: `model.layers.0.self_attn.q_proj.weight`,
    `transformer.h.0.attn.c_attn.weight`, `encoder.layer.3.attention.self.query.weight`,
    `blk.0.attn_q.weight`. Only names are looked at: what they do not tell is "other".

    Args:
        names: The names, in any order, all different.

    Returns:
        The blocks, 2 before 10.

    Raises:
        ConfigError: Something is no name, or a name comes twice.

    Examples:
        >>> found = loom.analysis.blocks(
        ...     ["blk.10.attn_q.weight", "blk.2.attn_q.weight", "blk.2.ffn_up.weight", "token_embd.weight"]
        ... )
        >>> [(block.name, [part.kind for part in block.parts]) for block in found]
        [('', ['embedding']), ('blk.2', ['attention', 'feed-forward']), ('blk.10', ['attention'])]
    """
    if isinstance(names, str):
        raise ConfigError(f"blocks groups several names, got the text {names!r}")
    found: dict[tuple[str, int | None], dict[str, list[str]]] = {}
    seen: set[str] = set()
    for name in names:
        given: object = name
        if not isinstance(given, str) or not given:
            raise ConfigError(f"the name of a parameter must be text, got {name!r}")
        if name in seen:
            raise ConfigError(f'the name "{name}" comes twice')
        seen.add(name)
        family, number, rest = _split(name)
        kind = _kind(rest, _KINDS if number is not None else _OUTSIDE)
        found.setdefault((family, number), {}).setdefault(kind, []).append(name)
    made = [
        Block(
            _joined(family, number),
            family,
            number,
            tuple(SubBlock(kind, tuple(sorted(parts[kind], key=natural_key))) for kind in _in_order(parts)),
        )
        for (family, number), parts in found.items()
    ]
    return Blocks(tuple(sorted(made, key=lambda block: natural_key(block.name))))


def natural_key(name: str) -> tuple[tuple[int, str], ...]:
    """Returns what sorts names so that numbers in them count as numbers: 2 before 10.

    Examples:
        >>> sorted(["h.10", "h.2", "h"], key=loom.analysis.natural_key)
        ['h', 'h.2', 'h.10']
    """
    pieces = [piece for piece in re.split(r"([0-9]+)", name) if piece]
    # Numbers compare by their length first, for they may be too long for `int`.
    numbers = [piece.lstrip("0") if piece[0] in "0123456789" else None for piece in pieces]
    keys = [
        (-1, piece) if digits is None else (len(digits), digits)
        for piece, digits in zip(pieces, numbers, strict=True)
    ]
    # Names that differ by leading zeros only have an order, too.
    return (*keys, (-2, name))


def _split(name: str) -> tuple[str, int | None, list[str]]:
    """The family and number of a name's block, and what comes behind; no number where it is in none."""
    if own := _LOOM.fullmatch(name):
        return own[1], int(own[2]), own[3].split(".")
    parts = name.split(".")
    # A number behind nothing but a dot is no block's.
    numbers = [place for place, part in enumerate(parts[:-1]) if _is_number(part) and parts[:place] != [""]]
    if not numbers:
        return "", None, parts
    stacked = [place for place in numbers if place and parts[place - 1] in _STACKS]
    place = (stacked or numbers)[0]
    return ".".join(parts[:place]), int(parts[place]), parts[place + 1 :]


def _is_number(part: str) -> bool:
    return re.fullmatch(_NUMBER, part) is not None


def _kind(parts: list[str], kinds: list[tuple[str, re.Pattern[str]]]) -> str:
    for part in parts:
        for kind, pattern in kinds:
            if pattern.search(part):
                return kind
    return _OTHER


def _joined(family: str, number: int | None) -> str:
    return family if number is None else f"{family}.{number}" if family else str(number)


def _in_order(parts: Iterable[str]) -> list[str]:
    order = ["embedding", *dict.fromkeys(kind for kind, _ in _KINDS), "head", _OTHER]
    return sorted(parts, key=order.index)
