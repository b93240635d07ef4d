"""Models from elsewhere, and networks to elsewhere."""

from loom.models.hub import from_hub

__all__ = ["from_hub"]
