"""The public path of learning while a mesh is clocked; see `loom.mesh.stepping`."""

from loom.mesh.stepping import Stepper, SteppingResult, train_stepping

__all__ = ["Stepper", "SteppingResult", "train_stepping"]
