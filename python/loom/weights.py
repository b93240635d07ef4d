"""The public path of a layer's weights as the engine holds them; see `loom.network.weights`."""

from loom.network.weights import InputRange, PackedParameter, Stored, Version, Weights

__all__ = ["InputRange", "PackedParameter", "Stored", "Version", "Weights"]
