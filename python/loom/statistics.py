"""The public path of figures about layers; see `loom.engine.statistics`."""

from loom.engine.statistics import GradientStats, LayerGradient, layer_activations, layer_gradients

__all__ = ["GradientStats", "LayerGradient", "layer_activations", "layer_gradients"]
