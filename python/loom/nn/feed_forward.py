"""Gated feed-forward layers and mixtures of them, as transformers have them."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from loom.activations import ActivationLike
from loom.errors import ConfigError
from loom.initializers import InitializerLike
from loom.nn._layer import FAMILY, Layer

__all__ = ["GeGLU", "MixtureOfExperts", "SwiGLU"]


@dataclass(frozen=True)
class _Gated(Layer):
    hidden: int
    _: KW_ONLY
    bias: bool = False
    weight_initializer: InitializerLike | None = None


@FAMILY.register("swiglu")
@dataclass(frozen=True)
class SwiGLU(_Gated):
    """A gated layer (Shazeer 2020): `down(silu(gate(x)) * up(x))`.

    Works on the last axis: input and output (..., width). The weights are
    `gate_weight` and `up_weight` (hidden, width) and `down_weight`
    (width, hidden), named as in Llama, each with a bias where there is one.

    Args:
        hidden: Extent between the products.
        bias: Whether trained numbers are added after each product.
        weight_initializer: The weights' first values; Xavier normal by default.
        activation: The function of the gate.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> nn.SwiGLU(682).bias
        False
    """

    _: KW_ONLY
    activation: ActivationLike = "silu"


@FAMILY.register("geglu")
@dataclass(frozen=True)
class GeGLU(_Gated):
    """A gated layer (Shazeer 2020): `down(gelu(gate(x)) * up(x))`.

    Works on the last axis: input and output (..., width). The weights are
    `gate_weight` and `up_weight` (hidden, width) and `down_weight`
    (width, hidden), each with a bias where there is one.

    Args:
        hidden: Extent between the products.
        bias: Whether trained numbers are added after each product.
        weight_initializer: The weights' first values; Xavier normal by default.
        activation: The function of the gate; "gelu_tanh" is Gemma's.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> nn.GeGLU(682).hidden
        682
    """

    _: KW_ONLY
    activation: ActivationLike = "gelu"


@FAMILY.register("mixture_of_experts")
@dataclass(frozen=True)
class MixtureOfExperts(Layer):
    """Feed-forward experts of which each step goes through a few (Shazeer et al. 2017).

    Works on the last axis: input and output (..., width). A router's logits are
    `x @ router_weight.T`; the experts with the `top_k` greatest are chosen, and what
    they make is summed by their shares in the softmax of all logits, or with
    `normalize` in that of the chosen ones. An expert is
    `down(activation(gate(x)) * up(x))`, where not `gated` `down(activation(up(x)))`.
    Training reaches the chosen experts and, through their shares, the router; no
    loss that balances the experts is added.

    The weights are `router_weight` (experts, width), `gate_weight` and `up_weight`
    (experts, units, width) and `down_weight` (experts, width, units): in Mixtral and
    Qwen's mixtures each expert's own, one behind the other. With `shared_units` there
    are `shared_gate_weight` and `shared_up_weight` (shared_units, width) and
    `shared_down_weight` (width, shared_units), and with `shared_gate`
    `shared_router_weight` (1, width). Routers stay in float when a layer is packed.

    Args:
        experts: How many there are.
        top_k: How many each step goes through.
        units: Extent between the products of each.
        activation: The function of the gate, or where there is none of the units.
        gated: Whether a second product, through the activation, multiplies the units.
        normalize: Whether the shares of the chosen ones are made to sum to 1, as in
            Mixtral and Qwen 3; Qwen 2 leaves them ("norm_topk_prob" on the Hub).
        shared_units: Units of one more expert that every step goes through; none by
            default.
        shared_gate: Whether that one is multiplied by the logistic function of a
            trained product, as in Qwen 2.
        weight_initializer: The weights' first values; Xavier normal by default.

    Raises:
        ConfigError: A setting is out of range, or settings contradict each other.

    Examples:
        >>> net = loom.Sequential([nn.MixtureOfExperts(8, 2, 32)], input_shape=(5, 16))
        >>> net.layers[0].parameters["down_weight"].shape
        (8, 16, 32)
    """

    experts: int
    top_k: int
    units: int
    _: KW_ONLY
    activation: ActivationLike = "silu"
    gated: bool = True
    normalize: bool = True
    shared_units: int | None = None
    shared_gate: bool = False
    weight_initializer: InitializerLike | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top_k > self.experts:
            raise ConfigError(
                f"MixtureOfExperts: top_k ({self.top_k}) must be at most experts ({self.experts})"
            )
        if self.shared_gate and self.shared_units is None:
            raise ConfigError("MixtureOfExperts: a shared_gate needs shared_units, which it is for")
