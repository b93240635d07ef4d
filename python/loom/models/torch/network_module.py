"""The module that a network becomes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from loom.architecture import LinkConfig, NetworkConfig
from loom.errors import DataError, StateError
from loom.grid import as_grid, coordinates
from loom.models.torch.layers import apply_row
from loom.models.torch.scope import Scope

if find_spec("torch") is not None:
    import torch

    Module: Any = torch.nn.Module
else:
    Module = object

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["NetworkModule"]


class NetworkModule(Module):
    """A network in PyTorch; `loom.to_torch` makes it.

    Args:
        config: What the network is made of.
        parameters: Its parameters and states, by loom's names.
        states: The names of those that are no parameters.
        still: The names of parameters that are not trained.
    """

    def __init__(
        self,
        config: NetworkConfig,
        parameters: Mapping[str, Tensor],
        states: Collection[str],
        still: Collection[str] = (),
    ) -> None:
        super().__init__()
        self.config = config
        for name, values in parameters.items():
            path, _, last = name.rpartition(".")
            holder = self._holder(path)
            if name in states:
                holder.register_buffer(last, values)
            else:
                holder.register_parameter(last, torch.nn.Parameter(values, name not in still))
        self._cells = {tuple(cell.at): cell.layers for cell in config.cells}  # type: ignore[union-attr]
        self._order = list(coordinates(as_grid(config.grid)))
        self._links: dict[tuple[int, ...], list[LinkConfig]] = {}
        for link in config.links:
            assert isinstance(link, LinkConfig)
            if self._order.index(tuple(link.source)) >= self._order.index(tuple(link.target)):  # type: ignore[arg-type]
                raise StateError(
                    f"the link from {link.source} to {link.target} points back: such a network runs in clock "
                    "mode alone, and is no module of PyTorch"
                )
            self._links.setdefault(tuple(link.target), []).append(link)

    def _holder(self, path: str) -> Any:  # noqa: ANN401 - of PyTorch
        holder: Any = self
        for part in path.split("."):
            held = dict(holder.named_children())
            if part not in held:
                holder.add_module(part, torch.nn.Module())
            holder = held.get(part) or holder.get_submodule(part)
        return holder

    def forward(self, x: Tensor | Mapping[str, Tensor]) -> Tensor | dict[str, Tensor]:
        """Returns the network's output for a batch; of named inputs and outputs these are dictionaries."""
        entering = self._entering(x)
        outputs: dict[tuple[int, ...], Tensor] = {}
        x = entering[self._order[0]]
        for at in self._order:
            context = None
            x = entering.get(at, x)
            for link in self._links.get(at, ()):
                other = outputs[tuple(link.source)]
                if link.combine == "context":
                    context = other
                elif link.combine == "replace":
                    x = other
                elif link.combine == "add":
                    x = x + other
                elif link.combine == "multiply":
                    x = x * other
                else:
                    usual = 0 if x.dim() > 3 else x.dim() - 2
                    x = torch.cat([x, other], dim=1 + (usual if link.axis is None else link.axis))
            scope = Scope(self, ".".join(map(str, at)), self.training)
            x = apply_row(self._cells.get(at, ()), replace(scope, context=context), x)
            outputs[at] = x
        named: Any = self.config.outputs
        return {entry.name: outputs[tuple(entry.cell)] for entry in named} if named else x

    def _entering(self, x: Any) -> dict[tuple[int, ...], Tensor]:  # noqa: ANN401 - what a caller gives
        """What enters each cell that an input enters."""
        named: Any = self.config.inputs
        if not named:
            return {self._order[0]: x}
        names = [entry.name for entry in named]
        if len(names) == 1 and not isinstance(x, Mapping):
            x = {names[0]: x}
        if not isinstance(x, Mapping) or set(x) != set(names):
            came = f"the inputs {', '.join(map(str, x))}" if isinstance(x, Mapping) else type(x).__name__
            raise DataError(
                f"the module takes a dictionary of tensors by name, {', '.join(names)}; got {came}"
            )
        found: dict[tuple[int, ...], Tensor] = {}
        for entry in named:
            at = self._order[0] if entry.cell is None else tuple(entry.cell)
            # One whole number a sample may come without an axis.
            value = x[entry.name].reshape(-1, 1) if x[entry.name].dim() == 1 else x[entry.name]
            usual = 0 if value.dim() > 3 else value.dim() - 2
            found[at] = torch.cat([found[at], value], dim=1 + usual) if at in found else value
        return found
