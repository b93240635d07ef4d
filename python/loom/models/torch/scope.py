"""Where a layer finds its parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Scope"]


@dataclass(frozen=True)
class Scope:
    """What a layer finds where it stands.

    Args:
        module: The module that holds every parameter under loom's name.
        path: The layer's path.
        training: Whether this is training.
        mask: (batch, time), true where a step is real, inside a masked sequence.
        context: The second input.
        made: The weight of the layer, where the layer around it has made that anew.
    """

    module: Any
    path: str = ""
    training: bool = False
    mask: Tensor | None = None
    context: Tensor | None = None
    made: Tensor | None = None

    def within(self, name: str) -> Scope:
        """Returns the scope of a layer within this one."""
        return replace(self, path=f"{self.path}.{name}" if self.path else name)

    def at(self, path: str) -> Scope:
        """Returns the scope of a layer anywhere."""
        return replace(self, path=path)

    def __call__(self, name: str) -> Tensor:
        """Returns a parameter, or what a layer keeps beside them."""
        if self.made is not None and name == "weight":
            return self.made
        found: Tensor = getattr(self.module.get_submodule(self.path), name)
        return found

    def given(self, name: str, there: bool) -> Tensor | None:
        """Returns a parameter that an option leaves out."""
        return self(name) if there else None
