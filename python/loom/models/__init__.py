"""Models from elsewhere, and networks to elsewhere."""

from loom.models.guessing import Guess, guess
from loom.models.inspecting import InspectedTensor, Inspection
from loom.models.plain import export_model, import_model

__all__ = ["Guess", "InspectedTensor", "Inspection", "export_model", "guess", "import_model"]
