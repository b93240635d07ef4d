"""Models from elsewhere, and networks to elsewhere."""

from loom.models.gguf_writing import save_gguf

__all__ = ["save_gguf"]
