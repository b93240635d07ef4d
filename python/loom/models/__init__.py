"""Models from elsewhere, and networks to elsewhere."""

from importlib import import_module
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

# What reads and writes one format each, loaded when it is asked for: `loom.models.onnx.load(path)`.
_FORMATS = ("gguf", "keras", "llama2c", "onnx", "torch")

if TYPE_CHECKING:
    from loom.models import gguf as gguf
    from loom.models import keras as keras
    from loom.models import llama2c as llama2c
    from loom.models import onnx as onnx
    from loom.models import torch as torch
else:

    def __getattr__(name: str) -> object:
        if name in _FORMATS:
            return import_module(f"{__name__}.{name}")
        raise attribute_error(__name__, name, __all__)
