"""Modules of PyTorch as networks, and networks as modules of PyTorch."""

from loom.models.torch.reading import from_torch

__all__ = ["from_torch"]
