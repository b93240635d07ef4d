"""Models in GGUF, the files of llama.cpp: read as the Hugging Face Hub would describe them, and written."""

from loom.models.gguf.architectures import ARCHITECTURES, BLOCK, WHOLE
from loom.models.gguf.reading import hub_config, hub_tensors, load
from loom.models.gguf.rotations import llama3_factors, to_halves, to_pairs

__all__ = [
    "ARCHITECTURES",
    "BLOCK",
    "WHOLE",
    "hub_config",
    "hub_tensors",
    "llama3_factors",
    "load",
    "to_halves",
    "to_pairs",
]
