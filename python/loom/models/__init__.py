"""Models from elsewhere, and networks to elsewhere."""

from loom.models.gguf_writing import save_gguf
from loom.models.guessing import Guess, guess
from loom.models.hub import from_hub
from loom.models.inspecting import InspectedTensor, Inspection
from loom.models.plain import export_model, import_model

__all__ = [
    "Guess",
    "InspectedTensor",
    "Inspection",
    "export_model",
    "from_hub",
    "guess",
    "import_model",
    "save_gguf",
]
