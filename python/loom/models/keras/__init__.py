"""Models that Keras saved, and the HDF5 that they are in."""

from loom.models.keras.reading import load, weights_of

__all__ = ["load", "weights_of"]
