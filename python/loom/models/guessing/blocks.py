"""Blocks of transformers from the names and shapes of their tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from loom import activations, nn
from loom.models.guessing.parts import Part, Placed, Question, first_of
from loom.models.spelling import activation_name

__all__ = ["ACTIVATION", "Stack", "block_part", "norm_layer"]

ACTIVATION = ("activation", "hidden_act", "hidden_activation", "activation_function")

Shapes = Mapping[str, tuple[int, ...]]

# What the module of a tensor is, by the end of its name; the first that fits decides.
_ROLES = [
    (role, re.compile(rf"(?:^|[._])(?:{pattern})$", re.I))
    for role, pattern in (
        ("query_gain", "q_norm|query_norm|q_layernorm"),
        ("key_gain", "k_norm|key_norm|k_layernorm"),
        ("query_key_value", r"qkv|qkv_proj|c_attn|query_key_value|wqkv|in_proj|self_attn\.in_proj"),
        ("query", "q_proj|wq|query|attn_q|q_lin|to_q|q|q_attn"),
        ("key", "k_proj|wk|key|attn_k|k_lin|to_k|k"),
        ("value", "v_proj|wv|value|attn_v|v_lin|to_v|v"),
        (
            "output",
            (
                r""
                r"o_proj|wo|attn_output|out_lin|to_out|to_out\.0|o|attention\.output\.dense|"
                r"attention\.dense|out_proj|attn\.c_proj|attn\.proj"
            ),
        ),
        ("gate_up", "gate_up_proj|w12"),
        ("gate", "gate_proj|w1|ffn_gate|gate|wi_0"),
        ("up", "up_proj|w3|ffn_up|up|wi_1"),
        ("down", "down_proj|ffn_down|down|w2|wo_ff"),
        ("rise", r"fc1|c_fc|linear1|lin1|intermediate\.dense|dense_h_to_4h|mlp\.0|fc_in"),
        ("fall", r"fc2|mlp\.c_proj|linear2|lin2|output\.dense|dense_4h_to_h|mlp\.2|fc_out|mlp\.3"),
        (
            "norm_1",
            (
                r"input_layernorm|attention_norm|ln_1|ln1|norm1|attn_norm|self_attn_layer_norm|layernorm_before|"
                r"attention\.output\.layernorm|sa_layer_norm|layer_norm1|ln_attn"
            ),
        ),
        (
            "norm_2",
            (
                r"post_attention_layernorm|ffn_norm|ln_2|ln2|norm2|final_layer_norm|layernorm_after|"
                r"output\.layernorm|output_layer_norm|layer_norm2|ln_mlp"
            ),
        ),
    )
]


@dataclass
class Stack:
    """What all blocks of a network share.

    Args:
        config: What tensors do not tell.
        positions: Whether a table of positions stands before the blocks.
        head: Whether a head for words stands behind them.
        last_norm: Whether a norm stands behind them.
        open: Questions that came up.
    """

    config: Mapping[str, Any]
    positions: bool
    head: bool
    last_norm: bool
    open: list[Question] = field(default_factory=list)

    def ask(self, name: str, asked: str) -> None:
        """Notes a question once."""
        question = Question(name, asked)
        if question not in self.open:
            self.open.append(question)


def roles_of(modules: Mapping[str, Mapping[str, str]], begin: str) -> tuple[dict[str, str], list[str]]:
    """Returns the modules of a block by what they are for, and those that tell nothing."""
    found: dict[str, str] = {}
    unknown: list[str] = []
    for module in modules:
        inner = module.removeprefix(begin)
        role = next((role for role, pattern in _ROLES if pattern.search(inner) and role not in found), None)
        if role is None:
            unknown.append(module)
        else:
            found[role] = module
    return found, unknown


class _Piece(NamedTuple):
    """A layer and its tensors."""

    layer: nn.Layer
    tensors: Mapping[str, str]
    turned: bool = False
    rows: tuple[int, ...] = ()

    def placed(self, path: str) -> Placed:
        return Placed(path, self.layer.kind, self.tensors, self.turned, self.rows)


def block_part(
    name: str, modules: Mapping[str, Mapping[str, str]], shapes: Shapes, stack: Stack
) -> Part | None:
    """Returns a block of a transformer; None where its modules are not those of one.

    Args:
        name: What the names of its tensors begin with.
        modules: Names of tensors by their last part, for each module.
        shapes: The shapes of tensors.
        stack: What all blocks share; takes questions.
    """
    roles, unknown = roles_of(modules, f"{name}.")
    if not {"query", "query_key_value"} & set(roles) or "output" not in roles:
        return None
    if unknown:
        stack.ask(
            name,
            f"a block of attention and feed-forward has no place for {', '.join(unknown)}: leave them "
            "out by a mapping of each name to None, or build the network in code",
        )

    def tensors(role: str) -> dict[str, str]:
        return dict(modules[roles[role]]) if role in roles else {}

    inner = [_attention(tensors, shapes, stack), _feed_forward(name, tensors, shapes, stack)]
    norms = [_norm(name, tensors(f"norm_{number}"), stack) for number in (1, 2)]
    if not all(inner) or None in norms:
        return Part(name, (), ())
    layers: list[nn.Layer] = []
    placed: list[Placed] = []
    for norm, pieces in zip(norms, inner, strict=True):
        assert norm is not None
        number = len(layers)
        if _norm_stands_before(norm.layer, stack):
            row = [norm, *pieces]
            layers.append(nn.Residual([piece.layer for piece in row]))
        else:
            row = list(pieces)
            layers += [nn.Residual([piece.layer for piece in row]), norm.layer]
            placed.append(norm.placed(f"{number + 1}"))
        placed += [piece.placed(f"{number}.layers.{place}") for place, piece in enumerate(row)]
    return Part(name, tuple(layers), tuple(placed))


def _norm(name: str, tensors: Mapping[str, str], stack: Stack) -> _Piece | None:
    if not tensors:
        stack.ask(
            name, "beside attention and beside feed-forward a norm was expected, by names such as norm1"
        )
        return None
    return _Piece(norm_layer(tensors, stack.config), tensors)


def norm_layer(tensors: Mapping[str, str], config: Mapping[str, Any]) -> nn.Layer:
    """Returns the norm of the last axis that has these tensors: with a bias LayerNorm, without RMSNorm."""
    names = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "epsilon")
    epsilon = first_of(config, *names)
    given = {} if epsilon is None else {"epsilon": epsilon}
    return nn.LayerNorm(**given) if {"bias", "beta"} & set(tensors) else nn.RMSNorm(**given)


def _norm_stands_before(norm: nn.Layer, stack: Stack) -> bool:
    given = stack.config.get("norm_first")
    if given is None and not stack.last_norm and not isinstance(norm, nn.RMSNorm):
        stack.ask(
            "blocks",
            "norms stand before attention and feed-forward, or behind the sums: say norm_first (True, False)",
        )
    # A norm behind all blocks goes with norms that stand before.
    return stack.last_norm or isinstance(norm, nn.RMSNorm) if given is None else bool(given)


Tensors = Callable[[str], dict[str, str]]


def _attention(tensors: Tensors, shapes: Shapes, stack: Stack) -> list[_Piece]:
    found: dict[str, str] = {}
    turned = False
    width = 0
    for role in ("query", "key", "value", "output", "query_key_value"):
        for leaf, tensor in tensors(role).items():
            # Of torch.nn.MultiheadAttention these are no modules: in_proj_weight.
            found[f"{role}_{leaf.removeprefix('in_proj_')}"] = tensor
    for part in ("query", "key"):
        for tensor in tensors(f"{part}_gain").values():
            found[f"{part}_gain"] = tensor
    weight = found.get("query_key_value_weight")
    if weight is not None:
        rows, columns = shapes[weight]
        turned = columns == 3 * rows and rows != columns
        rows, columns = (columns, rows) if turned else (rows, columns)
        width = columns
        queries = shapes[found["output_weight"]][1]
        keys = (rows - queries) // 2
    else:
        queries, width = shapes[found["query_weight"]]
        keys = shapes[found["key_weight"]][0]
    heads, key_value_heads, head_dim = _heads(found, queries, keys, shapes, stack)
    if not heads:
        return []
    rotary = None if stack.positions else _rotary(stack)
    causal = stack.config.get("causal", stack.config.get("is_decoder", stack.head or None))
    if causal is None:
        stack.ask("attention", "each step may see those after it, or not: say causal=True or False")
    biased = "query_bias" in found or "query_key_value_bias" in found
    layer = nn.MultiHeadAttention(
        heads,
        key_value_heads=None if key_value_heads == heads else key_value_heads,
        head_dim=None if head_dim * heads == width else head_dim,
        causal=bool(causal),
        window=first_of(stack.config, "sliding_window"),
        rotary=rotary,
        qk_norm="query_gain" in found,
        bias=biased,
        output_bias=None if biased == ("output_bias" in found) else "output_bias" in found,
    )
    return [_Piece(layer, found, turned, (queries, keys, keys) if keys != queries else ())]


def _heads(
    found: Mapping[str, str], queries: int, keys: int, shapes: Shapes, stack: Stack
) -> tuple[int, int, int]:
    """Heads, heads of keys, and the extent of one; zeros where that is open."""
    heads = first_of(stack.config, "num_attention_heads", "n_head", "n_heads", "num_heads", "heads")
    head_dim = first_of(stack.config, "head_dim")
    if "query_gain" in found:
        head_dim = shapes[found["query_gain"]][0]
    if head_dim is None and heads is not None and queries % heads == 0:
        head_dim = queries // heads
    if head_dim is None or queries % head_dim or keys % head_dim:
        usual = [
            extent for extent in (16, 32, 64, 80, 96, 128, 256) if not (queries % extent or keys % extent)
        ]
        candidates = ", ".join(str(queries // extent) for extent in usual) or "a divisor of both"
        stack.ask(
            "attention",
            f"how many heads share {queries} rows of queries and {keys} of keys: say num_attention_heads "
            f"({candidates})",
        )
        return 0, 0, 0
    return queries // head_dim, keys // head_dim, head_dim


def _rotary(stack: Stack) -> nn.Rotary | None:
    base = first_of(stack.config, "rope_theta", "rotary_base")
    layout = first_of(stack.config, "rotary_layout", default="half_split")
    if base is None and "rope_theta" not in stack.config:
        stack.ask(
            "positions",
            "no table of positions is there: say rope_theta (10000.0 is usual), and rotary_layout where "
            'it is not "half_split", as on the Hub; or rope_theta=None where attention knows no places',
        )
    return None if base is None else nn.Rotary(base=base, layout=layout)


def _feed_forward(name: str, tensors: Tensors, shapes: Shapes, stack: Stack) -> list[_Piece]:
    config = stack.config
    given = first_of(config, *ACTIVATION)
    activation = None if given is None else activation_name(str(given)) or str(given)
    gated = {
        f"{role}_{leaf}": tensor
        for role in ("gate", "up", "down", "gate_up")
        for leaf, tensor in tensors(role).items()
    }
    if {"gate_weight", "up_weight", "down_weight"} <= set(gated) or {"gate_up_weight", "down_weight"} <= set(
        gated
    ):
        hidden = shapes[gated["down_weight"]][1]
        if activation is None:
            stack.ask("feed-forward", "what its gate goes through: say activation (silu is usual, or gelu)")
            return []
        gate = nn.SwiGLU(hidden, bias="down_bias" in gated, activation=activations.resolve(activation))
        return [_Piece(gate, gated)]
    # Two matrices may be called as two of three are.
    pair = [
        next((held for role in choice if (held := tensors(role))), {})
        for choice in (("rise", "up", "gate"), ("fall", "down"))
    ]
    if not all("weight" in held for held in pair):
        stack.ask(
            name, "no feed-forward was found, by names such as gate_proj, up_proj, down_proj or fc1, fc2"
        )
        return []
    if activation is None:
        stack.ask(
            "feed-forward", "what is between its two layers: say activation (relu, gelu, gelu_tanh, silu)"
        )
        return []
    width = first_of(
        config, "hidden_size", "n_embd", "d_model", default=shapes[tensors("output")["weight"]][0]
    )
    rows, columns = shapes[pair[0]["weight"]]
    turned = rows == width != columns
    units = (columns, rows) if turned else (rows, columns)
    function = activations.resolve(activation)
    return [
        _Piece(nn.Dense(units[0], activation=function, bias="bias" in pair[0]), pair[0], turned),
        _Piece(nn.Dense(units[1], bias="bias" in pair[1]), pair[1], turned),
    ]
