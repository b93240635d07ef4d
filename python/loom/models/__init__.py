"""Models from elsewhere, and networks to elsewhere."""

from loom.models.families import from_hub

__all__ = ["from_hub"]
