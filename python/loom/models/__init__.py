"""Models from elsewhere, and networks to elsewhere."""

from typing import TYPE_CHECKING

from loom._settings.spellings import attribute_error
from loom.models.gguf.writing import save_gguf
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

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise attribute_error(__name__, name, __all__)
