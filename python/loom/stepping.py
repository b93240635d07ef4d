"""The public path of learning while a mesh is clocked; see `loom.mesh.stepping`."""

from __future__ import annotations

from loom.mesh.stepping import Stepper, SteppingResult, train_stepping

__all__ = ["Stepper", "SteppingResult", "train_stepping"]
