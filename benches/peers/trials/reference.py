"""The same network in PyTorch: what a layer's documentation says, with PyTorch's own functions.

Nothing here looks at how loom computes. Parameters come by the names that
`Network.state_dict` gives them, and every one of them must be asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loom import nn
from trials.drawing import Drawn, Place

Apply: TypeAlias = "Callable[[Any, Scope, Tensor], Tensor]"

LAYERS: dict[type[nn.Layer], Apply] = {}


def computes(*kinds: type[nn.Layer]) -> Callable[[Apply], Apply]:
    """Enters what computes these kinds of layers."""

    def enter(apply: Apply) -> Apply:
        LAYERS.update(dict.fromkeys(kinds, apply))
        return apply

    return enter


@dataclass(frozen=True)
class Scope:
    """What a layer finds where it stands.

    Args:
        values: The network's parameters by name.
        states: What layers keep beside them, by name; replaced where training moves it.
        carried: What stateful layers hand from batch to batch of training, by path.
        prefix: The layer's path, with a dot behind it.
        training: Whether this is training.
        asked: The names that were asked for.
        mask: (rows, time) 1 where a step is real, inside a masked sequence.
        context: The second input.
        made: The weight of the layer, where the layer around it has made that anew.
    """

    values: Mapping[str, Tensor]
    states: dict[str, Tensor]
    carried: dict[str, Any]
    prefix: str = ""
    training: bool = False
    asked: set[str] = field(default_factory=set)
    mask: Tensor | None = None
    context: Tensor | None = None
    made: Tensor | None = None

    def within(self, name: str) -> Scope:
        """Returns the scope of a layer within this one."""
        return self.at(f"{self.prefix}{name}.")

    def at(self, prefix: str) -> Scope:
        """Returns the scope of a layer anywhere."""
        given = (self.values, self.states, self.carried)
        return Scope(*given, prefix, self.training, self.asked, self.mask, self.context, self.made)

    def __call__(self, name: str) -> Tensor:
        """Returns a parameter."""
        if self.made is not None and name == "weight":
            return self.made
        self.asked.add(self.prefix + name)
        return self.values[self.prefix + name]

    def given(self, name: str, there: bool) -> Tensor | None:
        """Returns a parameter that an option leaves out."""
        return self(name) if there else None


def enter_all() -> None:
    """Enters what computes every kind of layer."""
    import trials.reference_attention
    import trials.reference_layers
    import trials.reference_recurrent
    import trials.reference_softmax  # noqa: F401


def apply(layer: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - any class of nn
    """Computes a layer."""
    return LAYERS[type(layer)](layer, scope, x)


def apply_row(layers: Any, scope: Scope, x: Tensor) -> Tensor:  # noqa: ANN401 - as nn holds them
    """Computes layers in a row, named by their places."""
    for place, layer in enumerate(layers):
        x = apply(layer, scope.within(str(place)), x)
    return x


class Reference:
    """A network that was drawn, in PyTorch.

    Args:
        drawn: The network.
        state: Its parameters and states, as `Network.state_dict` gives them.
        moved: The share of itself that every number is moved by at most, to see what rounding does.
        dtype: In what is computed.
    """

    def __init__(
        self,
        drawn: Drawn,
        state: Mapping[str, Any],
        moved: float = 0.0,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        enter_all()
        self.drawn = drawn
        self.moved = moved
        self.dtype = dtype
        self._random = np.random.default_rng(7)
        kept = ("running_mean", "running_var")
        self.states = {
            name: torch.tensor(values, dtype=dtype)
            for name, values in state.items()
            if name.rsplit(".", 1)[-1] in kept
        }
        self.values = {
            name: torch.tensor(self._nearby(values), dtype=dtype, requires_grad=True)
            for name, values in state.items()
            if name not in self.states
        }
        self.carried: dict[str, Any] = {}
        self.asked: set[str] = set()

    def tensor(self, x: Any) -> Tensor:  # noqa: ANN401 - arrays of whole or of real numbers
        """Returns an input as a tensor; a leaf of the graph where it holds real numbers."""
        if self.drawn.vocabulary:
            return torch.tensor(x, dtype=torch.int64)
        # Padding is recognised by its value, so it stays.
        padding = np.equal(x, np.nan if self.drawn.padded is None else self.drawn.padded)
        return torch.tensor(np.where(padding, x, self._nearby(x)), dtype=self.dtype, requires_grad=True)

    def disturb_gradients(self) -> None:
        """Moves gradients by what rounding may leave of those that should be zero."""
        if not self.moved:
            return
        found = [value.grad for value in self.values.values() if value.grad is not None]
        largest = max((float(gradient.abs().max()) for gradient in found), default=0.0)
        for gradient in found:
            noise = torch.tensor(self._random.uniform(-1, 1, tuple(gradient.shape)))
            gradient.add_(self.moved * largest * noise)

    def _nearby(self, values: NDArray[Any]) -> NDArray[Any]:
        if not self.moved:
            return values
        share, more = self._random.uniform(-1, 1, (2, *values.shape))
        return np.asarray(values * (1 + self.moved * share) + 1e-3 * self.moved * more)

    def forward(self, x: Tensor, training: bool) -> Tensor:
        """Returns the output."""
        scope = Scope(self.values, self.states, self.carried, training=training, asked=self.asked)
        outputs: dict[Place, Tensor] = {}
        for at in self.drawn.places:
            context = None
            for source, target, combine, axis in self.drawn.links:
                if target != at:
                    continue
                other = outputs[source]
                if combine == "add":
                    x = x + other
                elif combine == "concat":
                    usual = 0 if x.dim() > 3 else x.dim() - 2
                    x = torch.cat([x, other], dim=1 + (usual if axis is None else axis))
                else:
                    context = other
            cell = replace(scope.at(f"{at[0]}.{at[1]}.{at[2]}."), context=context)
            for number, layer in enumerate(self.drawn.cells.get(at, ())):
                x = self._rounded(apply(layer, cell.within(str(number)), x))
            outputs[at] = x
        return x

    def _rounded(self, x: Tensor) -> Tensor:
        """Moves what passes between layers, forwards and backwards, by a few roundings.

        Where a layer's gradient is a small difference of large numbers, as behind the normalisation of two
        rows, moved parameters do not show what rounding does.
        """
        if not self.moved:
            return x
        # What numbers are moved by is a few roundings of float32, and thousands of float64.
        share = self.moved * (0.5 if abs(self.moved) > 1e-9 else 2e-3)

        def near(values: Tensor) -> Tensor:
            noise = torch.tensor(self._random.uniform(-1, 1, tuple(values.shape)), dtype=values.dtype)
            return values * (1 + share * noise)

        if x.requires_grad:
            x.register_hook(near)
        return near(x)

    def unasked(self) -> set[str]:
        """Returns the parameters that loom has and the documentation does not speak of."""
        return set(self.values) - self.asked
