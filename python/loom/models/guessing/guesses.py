"""What tensors may be, to be looked at and corrected, and the network that it makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from loom import nn
from loom._typing import ArrayLike
from loom.errors import ConfigError, DataError
from loom.models.guessing.parts import Part, Question
from loom.models.guessing.reading import Reading
from loom.network import Network, Sequential
from loom.nn.composite import as_layer

__all__ = ["Guess", "guess"]


def guess(tensors: Mapping[str, ArrayLike], config: Mapping[str, Any] | None = None) -> Guess:
    """Guesses the layers that tensors belong to, from their names and shapes.

    Names are taken in natural order, 2 before 10; numbered blocks with attention in them become blocks of a
    transformer. In a layer's turn: 1-D tensors are norms, or biases of what has a weight; a 2-D weight with
    more than four times as many rows as columns that comes first is an embedding; `_ih` and `_hh` are
    recurrent; 3-D, 4-D and 5-D weights are convolutions; the rest is Dense. Where that does not decide, the
    guess has an open question with the candidates, and `build` raises it.

    Args:
        tensors: Arrays by name; `loom.open_tensors` returns such a mapping. Only shapes are looked at.
        config: What tensors do not tell: "activation" (or "hidden_act"), "input_shape"; of transformers
            "num_attention_heads", "rope_theta", "causal" and so on, as in a config.json of the Hub.

    Returns:
        The guess: print it, correct it with `replace`, make the network with `build`.

    Raises:
        DataError: There are no tensors, or what is given has none by name, such as a path.
        ConfigError: A name is no text, or comes twice.

    Examples:
        >>> tensors = {"fc1.weight": np.ones((8, 4)), "fc1.bias": np.zeros(8), "fc2.weight": np.ones((3, 8))}
        >>> guess = loom.models.guess(tensors, {"activation": "relu"})
        >>> print(guess)
        fc1  2 tensors  dense(units=8), activation(function=relu)
        fc2  1 tensor   dense(units=3, bias=False)
        >>> guess.build().output_shape
        (3,)
    """
    if not isinstance(tensors, Mapping):
        raise DataError(
            f"guess takes tensors by name, such as loom.open_tensors(path), got {type(tensors).__name__}"
        )
    return Guess(tensors, dict(config or {}), {})


@dataclass(frozen=True, eq=False)
class Guess:
    """What tensors may be; `loom.models.guess` makes it.

    Args:
        tensors: The tensors by name.
        config: What they do not tell.
        mapping: What was corrected, by the names of layers.
    """

    tensors: Mapping[str, ArrayLike] = field(repr=False)
    config: Mapping[str, Any]
    mapping: Mapping[str, Any]
    parts: tuple[Part, ...] = field(init=False, repr=False)
    open: tuple[Question, ...] = field(init=False)
    input_shape: tuple[int, ...] | None = field(init=False)

    def __post_init__(self) -> None:
        """Guesses."""
        if not self.tensors:
            raise DataError("there are no tensors to guess layers from")
        reading = Reading(self.tensors, self.config, self.mapping)
        parts = reading.parts()
        object.__setattr__(self, "input_shape", reading.input_shape(parts))
        object.__setattr__(self, "parts", tuple(parts))
        object.__setattr__(self, "open", tuple(reading.open))

    def replace(
        self,
        mapping: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        layer: Any = None,  # noqa: ANN401 - a layer in any of its forms
        **config: Any,  # noqa: ANN401 - settings of any sort
    ) -> Guess:
        """Returns the guess with layers corrected.

        Args:
            mapping: By names of layers, as the guess prints them: a layer, several in a row (the
                tensors go to the first of their kind), settings to change, as {"stride": 2}, or None to leave
                the tensors out.
            name: One such name.
            layer: What it is.
            **config: What tensors do not tell, such as `activation="relu"`.

        Returns:
            The new guess.

        Raises:
            ConfigError: There is no such layer, or it does not fit the tensors.
        """
        changed = {**self.mapping, **(mapping or {}), **({} if name is None else {name: layer})}
        return Guess(self.tensors, {**self.config, **config}, changed)

    def questions(self) -> str:
        """Returns what is open, a line each, with the candidates."""
        return "\n".join(f"{question.name}: {question.asked}" for question in self.open)

    def build(self) -> Network:
        """Makes the network.

        Raises:
            ConfigError: Something is open; the message lists all of it.
            ShapeError: The layers do not fit together, or a tensor not its layer.
        """
        if self.open or self.input_shape is None:
            raise ConfigError(
                f"names and shapes leave open what the network is:\n{self.questions()}\n"
                "say so with loom.models.guess(...).replace(...), or mapping= and config= of loom.load"
            )
        layers = [layer for part in self.parts for layer in part.layers]
        net = Sequential(layers, self.input_shape).build()
        begin = 0
        for part in self.parts:
            for placed in part.placed:
                number, _, inner = placed.path.partition(".")
                handle = net[0, 0, 0, begin + int(number)]
                for name, array in placed.arrays(self.tensors).items():
                    own = f"{inner}.{name}" if inner else name
                    if own in handle.parameters:
                        handle[own] = array
                    else:
                        handle.set_state(own, array)
            begin += len(part.layers)
        return net

    def __str__(self) -> str:
        rows = [(part.name, ", ".join(map(_brief, part.layers)), len(part.tensors())) for part in self.parts]
        width = max((len(name) for name, *_ in rows), default=0)
        lines = [
            f"{name:{width}}  {count} tensor{' ' if count == 1 else 's'}  {layers}"
            for name, layers, count in rows
        ]
        if self.open:
            lines += ["open:", *(f"  {line}" for line in self.questions().splitlines())]
        return "\n".join(lines)


def _brief(layer: nn.Layer) -> str:
    config = layer.to_config()
    default = _defaults(layer)
    told = ", ".join(
        f"{name}={_value(value)}"
        for name, value in config.items()
        if name != "type" and (name not in default or default[name] != value)
    )
    return f"{layer.kind}({told})" if told else layer.kind


def _value(value: object) -> str:
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return "[" + ", ".join(_brief(as_layer(layer)) for layer in value) + "]"
    return str(value)


def _defaults(layer: nn.Layer) -> dict[str, Any]:
    fields = cast(Any, type(layer)).__dataclass_fields__
    return {name: entry.default for name, entry in fields.items()}
