"""Rotary embeddings as config.json tells of them."""

from __future__ import annotations

from loom import nn
from loom.models.families.family import Folder

__all__ = ["rotary_of"]


def rotary_of(folder: Folder, head_dim: int, base: str = "rope_theta", kind: str | None = None) -> nn.Rotary:
    """Returns the rotary embedding of a model.

    Args:
        folder: What config.json says.
        head_dim: Extent of a head.
        base: The setting that holds the base.
        kind: The type of the block, where types of blocks have settings of their own.
    """
    settings = folder.settings
    scaling = settings.get("rope_scaling")
    if scaling is not None:
        raise settings.unsupported("rope_scaling", scaling, ["null"])
    return nn.Rotary(base=settings.real(base, 10_000.0), layout="half_split")
