"""Modules of PyTorch as networks, and networks as modules of PyTorch."""

from loom.models.torch.reading import from_torch
from loom.models.torch.writing import to_torch

__all__ = ["from_torch", "to_torch"]
