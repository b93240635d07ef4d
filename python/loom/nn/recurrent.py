"""Recurrent layers: they carry a state along a sequence."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal, TypeAlias

from loom.errors import ConfigError
from loom.initializers import InitializerLike
from loom.nn._layer import FAMILY, Layer

__all__ = ["GRU", "LSTM", "RNN"]

InitialState: TypeAlias = Literal["zeros", "learned", "context"]


@dataclass(frozen=True)
class _Recurrent(Layer):
    units: int
    _: KW_ONLY
    layers: int = 1
    bidirectional: bool = False
    return_sequences: bool = False
    bias: bool = True
    dropout: float = 0.0
    stateful: bool = False
    initial_state: InitialState = "zeros"
    weight_initializer: InitializerLike | None = None
    recurrent_initializer: InitializerLike | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        if self.stateful and self.bidirectional:
            raise ConfigError(f"{name}: what reads the sequence from its end too cannot be stateful")
        if self.stateful and self.initial_state != "zeros":
            raise ConfigError(f'{name}: a stateful layer starts at zeros, so initial_state must be "zeros"')


@FAMILY.register("rnn")
@dataclass(frozen=True)
class RNN(_Recurrent):
    """A plain recurrent layer: `h = tanh(x W_ih^T + b_ih + h W_hh^T + b_hh)` at every step.

    Input (time, features); output (units,), the last state, or (time, units)
    with `return_sequences`; twice as many units when bidirectional, the state
    of the loop that runs backwards after the other's. Inside a mask the state
    stays as it is at padded steps, where the output is zero.

    Parameters have PyTorch's names and shapes: `weight_ih_l0` (units,
    features), `weight_hh_l0` (units, units), `bias_ih_l0`, `bias_hh_l0`
    (units,), and so on for `_l1`, and `_reverse`.

    Args:
        units: How many numbers the state has, in each direction.
        layers: How many such layers stand on top of each other.
        bidirectional: Whether a second loop reads the sequence from its end.
        return_sequences: Whether every step is handed on, not only the last state.
        bias: Whether biases are added.
        dropout: The chance that a number between two of the layers is zeroed
            while training.
        stateful: Whether in training each batch goes on from the states that
            the batch before it left, row by row; gradients end there. Data that
            `loom.train` shuffles begins anew in every batch; otherwise
            `Network.reset_states` does. `layer.states` has them, files keep them.
            In clock mode each tick goes on so; see `Mesh.states`. Sessions always do.
        initial_state: "zeros"; "learned", parameters `state_l0` and so on; or
            "context", a second input of (layers * directions * states * units)
            numbers.
        weight_initializer: The input weights' first values; Xavier normal by
            default.
        recurrent_initializer: The hidden-to-hidden weights' first values;
            orthogonal by default, each gate's by itself.
        activation: "tanh" or "relu".

    Raises:
        ConfigError: A setting is out of range, or two of them contradict each other.

    Examples:
        >>> nn.RNN(32, activation="relu").units
        32
    """

    _: KW_ONLY
    activation: Literal["tanh", "relu"] = "tanh"


@FAMILY.register("lstm")
@dataclass(frozen=True)
class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber 1997, with forget gate).

    At every step, with `z = x W_ih^T + b_ih + h W_hh^T + b_hh` in four parts:
    `i, f, o = sigmoid(z)`, `g = tanh(z)`, `c = f c + i g`, `h = o tanh(c)`.

    Input (time, features); output (units,), the last h, or (time, units)
    with `return_sequences`; twice as many units when bidirectional, the state
    of the loop that runs backwards after the other's. Inside a mask the state
    stays as it is at padded steps, where the output is zero.

    Parameters have PyTorch's names and shapes, the gates in the order i, f, g,
    o: `weight_ih_l0` (4 units, features), `weight_hh_l0` (4 units, units),
    `bias_ih_l0`, `bias_hh_l0` (4 units,), and so on for `_l1`, and `_reverse`.
    The forget gate's part of `bias_ih` starts at 1.

    Args:
        units: How many numbers h and c have, in each direction.
        layers: How many such layers stand on top of each other.
        bidirectional: Whether a second loop reads the sequence from its end.
        return_sequences: Whether every step is handed on, not only the last h.
        bias: Whether biases are added.
        dropout: The chance that a number between two of the layers is zeroed
            while training.
        stateful: Whether in training each batch goes on from the states that
            the batch before it left, row by row; gradients end there. Data that
            `loom.train` shuffles begins anew in every batch; otherwise
            `Network.reset_states` does. `layer.states` has them, files keep them.
            In clock mode each tick goes on so; see `Mesh.states`. Sessions always do.
        initial_state: "zeros"; "learned", parameters `state_l0` and so on; or
            "context", a second input of (layers * directions * 2 * units)
            numbers, in each part h before c.
        weight_initializer: The input weights' first values; Xavier normal by
            default.
        recurrent_initializer: The hidden-to-hidden weights' first values;
            orthogonal by default, each gate's by itself.

    Raises:
        ConfigError: A setting is out of range, or two of them contradict each other.

    Examples:
        >>> nn.LSTM(64, layers=2, return_sequences=True).layers
        2
    """


@FAMILY.register("gru")
@dataclass(frozen=True)
class GRU(_Recurrent):
    """A gated recurrent unit, reset after the product as in PyTorch, or before it (Cho et al. 2014).

    At every step, with x and h standing for the input's and the state's share
    of each gate: `r, z = sigmoid(x + h)`, `n = tanh(x + r h)`,
    `h = (1 - z) n + z h`. With `reset_after=False` the candidate is
    `n = tanh(x + (r h) W_hn^T + b_hn)`, h here the state itself.

    Input (time, features); output (units,), the last state, or (time, units)
    with `return_sequences`; twice as many units when bidirectional, the state
    of the loop that runs backwards after the other's. Inside a mask the state
    stays as it is at padded steps, where the output is zero.

    Parameters have PyTorch's names and shapes, the gates in the order r, z, n:
    `weight_ih_l0` (3 units, features), `weight_hh_l0` (3 units, units),
    `bias_ih_l0`, `bias_hh_l0` (3 units,), and so on for `_l1`, and `_reverse`.

    Args:
        units: How many numbers the state has, in each direction.
        layers: How many such layers stand on top of each other.
        bidirectional: Whether a second loop reads the sequence from its end.
        return_sequences: Whether every step is handed on, not only the last state.
        bias: Whether biases are added.
        dropout: The chance that a number between two of the layers is zeroed
            while training.
        stateful: Whether in training each batch goes on from the states that
            the batch before it left, row by row; gradients end there. Data that
            `loom.train` shuffles begins anew in every batch; otherwise
            `Network.reset_states` does. `layer.states` has them, files keep them.
            In clock mode each tick goes on so; see `Mesh.states`. Sessions always do.
        initial_state: "zeros"; "learned", parameters `state_l0` and so on; or
            "context", a second input of (layers * directions * units) numbers.
        weight_initializer: The input weights' first values; Xavier normal by
            default.
        recurrent_initializer: The hidden-to-hidden weights' first values;
            orthogonal by default, each gate's by itself.
        reset_after: Whether the reset gate takes what the product has made of
            the state, or the state before the product: ONNX's
            `linear_before_reset`, Keras's setting of the same name.

    Raises:
        ConfigError: A setting is out of range, or two of them contradict each other.

    Examples:
        >>> nn.GRU(64, bidirectional=True).bidirectional
        True
    """

    _: KW_ONLY
    reset_after: bool = True
