"""The public path of figures about layers; see `loom.engine.statistics`."""

from loom.engine.statistics import LayerGradient, layer_activations, layer_gradients

__all__ = ["LayerGradient", "layer_activations", "layer_gradients"]
