"""What weights that take adapters are called: as in transformers' Llama and its kin, or as in state dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from loom import nn
from loom.engine import HasEngine, engine_of
from loom.network.layers import LayerHandle, layers_of
from loom.network.saving import read_card

__all__ = ["NAMINGS", "Module", "Naming", "llama_modules", "own_modules"]

_ATTENTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "o_proj"}
_GATED = {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
_NEIGHBOURS = frozenset({"cohere", "cohere2", "ernie4_5", "glm", "glm4", "helium"})
"""Models of the Hub whose own queries and keys turn in neighbouring pairs."""
_ALL = frozenset({*_ATTENTION, *_GATED, "head"})
_OTHERWISE: Mapping[object, frozenset[str]] = {
    "phi3": frozenset({"query", "key", "value", "gate", "up"}),
    "glm": frozenset({"gate", "up"}),
    "glm4": frozenset({"gate", "up"}),
    "phi": frozenset({"output"}),
    "granitemoehybrid": frozenset(_GATED),
    **dict.fromkeys(("bloom", "falcon", "gpt2", "gpt_neo", "gpt_neox", "gptj", "opt"), _ALL),
}
"""What models of the Hub have under other names than Llama's, or several of it in one module."""

Naming = Literal["llama", "loom"]


@dataclass(frozen=True)
class Module:
    """A weight as a module of peft.

    Args:
        layer: The layer of a cell.
        weight: The weight's name in it.
        name: The module's name.
        order: Which rows of the module's outputs are loom's, in loom's order; None where all are in one.
    """

    layer: LayerHandle
    weight: str
    name: str
    order: NDArray[np.intp] | None = None

    @property
    def path(self) -> str:
        """The weight's name in state dicts."""
        return f"{self.layer.path}.{self.weight}"


def own_modules(network: HasEngine) -> Iterator[Module]:
    """Tells every weight that takes an adapter by loom's own name."""
    for layer in layers_of(network):
        for weight in engine_of(network).native.adaptable(layer.at):
            name = f"{layer.path}.{weight}".removesuffix("weight").rstrip("._")
            yield Module(layer, weight, name)


def llama_modules(network: HasEngine) -> Iterator[Module]:
    """Tells weights of attention and gated layers by the names of Llama and its kin in transformers.

    The n-th attention of the network is that of the n-th block, and the n-th gated layer its other part. The
    dense layer that a network ends in, but for what has no parameters, such as a cap of scores, is its head.
    What the card says of a model of the Hub tells which of its weights are not called so.
    """
    model_type = _model_type(network)
    otherwise = _OTHERWISE.get(model_type, frozenset())
    attention = gated = 0
    layers = list(layers_of(network))
    ending = next((layer for layer in reversed(layers) if layer.parameters), None)
    for layer in layers:
        weights = set(engine_of(network).native.adaptable(layer.at))
        for inner in [*layer.inner, layer] if layer.holds_layers else [layer]:
            config = inner.config
            if isinstance(config, nn.MultiHeadAttention):
                for product, name in _ATTENTION.items():
                    weight = f"{inner.prefix}{product}_weight"
                    if weight in weights and product not in otherwise:
                        order = None if model_type in _NEIGHBOURS else _order(config, inner, product)
                        yield Module(layer, weight, f"model.layers.{attention}.self_attn.{name}", order)
                attention += 1
            elif isinstance(config, nn.SwiGLU | nn.GeGLU):
                for product, name in _GATED.items():
                    weight = f"{inner.prefix}{product}_weight"
                    if weight in weights and product not in otherwise:
                        yield Module(layer, weight, f"model.layers.{gated}.mlp.{name}")
                gated += 1
        is_head = layer is ending and attention and isinstance(layer.config, nn.Dense)
        if is_head and "weight" in weights and "head" not in otherwise:
            yield Module(layer, "weight", "lm_head")


def _model_type(network: HasEngine) -> object:
    """Returns what the Hub calls the kind of model that a network was read from, or None."""
    metadata = read_card(engine_of(network)).metadata
    origins = [metadata.get("hub"), metadata.get("gguf")]
    return next((origin.get("model_type") for origin in origins if isinstance(origin, Mapping)), None)


def _order(config: nn.MultiHeadAttention, layer: LayerHandle, product: str) -> NDArray[np.intp] | None:
    """Returns where queries and keys that turn in neighbouring pairs have the rows of halves."""
    rotary = config.rotary
    if product not in {"query", "key"} or not isinstance(rotary, nn.Rotary) or rotary.layout != "interleaved":
        return None
    # The shape alone: packed weights whose master was dropped have no numbers to read.
    native = engine_of(layer).native
    outputs, _ = native.parameter_shape(layer.at, f"{layer.prefix}{product}_weight")
    heads = config.heads if product == "query" else (config.key_value_heads or config.heads)
    size = outputs // heads
    turning = size if rotary.dim is None else rotary.dim
    head = np.arange(size, dtype=np.intp)
    # Pair i is (2 i, 2 i + 1) here, and (i, i + half) there.
    head[:turning] = np.arange(turning).reshape(2, -1).T.reshape(-1)
    order: NDArray[np.intp] = (np.arange(heads)[:, None] * size + head).reshape(-1)
    return order


NAMINGS: dict[str, Callable[[HasEngine], Iterator[Module]]] = {
    "llama": llama_modules,
    "loom": own_modules,
}
