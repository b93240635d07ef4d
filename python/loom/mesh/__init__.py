"""Clock mode: every layer of a network fires at every tick, and links may point back."""

from loom.mesh.mesh import Gradients, Mesh

__all__ = ["Gradients", "Mesh"]
