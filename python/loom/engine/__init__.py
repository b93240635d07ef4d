"""The one object around the native network that everything else in Python works on.

Whoever has a network reaches it with `engine_of`; nothing else of a network's inside is for others.
"""

from loom.engine.engine import Engine, HasEngine, InnerLayer, NetworkT, engine_of

__all__ = ["Engine", "HasEngine", "InnerLayer", "NetworkT", "engine_of"]
