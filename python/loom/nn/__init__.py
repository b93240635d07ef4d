"""The layers, described by plain configuration objects.

A layer object says what a layer does; the network that it is added to owns the
weights. One object may therefore be added in several places. Shapes below leave
out the batch, which always comes first. Images are channels, height, width.
"""

from __future__ import annotations

from loom.activations import ELU, ActivationFunction, LeakyReLU
from loom.nn._layer import Layer, layer_from_config
from loom.nn.activation import Activation
from loom.nn.composite import Composed, Masked, Parallel, Residual, Sequential
from loom.nn.convolution import Conv2D
from loom.nn.dense import Dense
from loom.nn.pooling import AvgPool2D, GlobalAvgPool2D, MaxPool2D
from loom.nn.recurrent import GRU, LSTM, RNN
from loom.nn.softmax import Softmax
from loom.nn.structure import Dropout, Flatten, Permute, Reshape

__all__ = [
    "ELU",
    "GRU",
    "LSTM",
    "RNN",
    "Activation",
    "ActivationFunction",
    "AvgPool2D",
    "Composed",
    "Conv2D",
    "Dense",
    "Dropout",
    "Flatten",
    "GlobalAvgPool2D",
    "Layer",
    "LeakyReLU",
    "Masked",
    "MaxPool2D",
    "Parallel",
    "Permute",
    "Reshape",
    "Residual",
    "Sequential",
    "Softmax",
    "layer_from_config",
]
