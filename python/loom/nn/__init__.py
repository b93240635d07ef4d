"""The layers, described by plain configuration objects.

A layer object says what a layer does; the network that it is added to owns the
weights. One object may therefore be added in several places. Shapes below leave
out the batch, which always comes first. Signals are channels, length; images are
channels, height, width; volumes are channels, depth, height, width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom._settings.spellings import attribute_error
from loom.activations import ELU, ActivationFunction, LeakyReLU
from loom.nn._layer import Layer, layer_from_config
from loom.nn.activation import Activation, PReLU, Scale, SoftCap
from loom.nn.adaptive_pooling import (
    AdaptiveAvgPool1D,
    AdaptiveAvgPool2D,
    AdaptiveAvgPool3D,
    AdaptiveMaxPool1D,
    AdaptiveMaxPool2D,
    AdaptiveMaxPool3D,
)
from loom.nn.attention import MultiHeadAttention
from loom.nn.clustering import KMeans
from loom.nn.composite import Checkpoint, Composed, Masked, Parallel, Residual, Sequential
from loom.nn.convolution import Conv1D, Conv2D, Conv3D, ConvTranspose1D, ConvTranspose2D, ConvTranspose3D
from loom.nn.dense import Dense
from loom.nn.embedding import Embedding, PositionalEmbedding, SinusoidalPositions, TiedHead
from loom.nn.expression import Expr
from loom.nn.feed_forward import GeGLU, MixtureOfExperts, SwiGLU
from loom.nn.function import Function, FunctionContext
from loom.nn.normalization import BatchNorm, GroupNorm, InstanceNorm, L2Norm, LayerNorm, RMSNorm
from loom.nn.padding import Crop1D, Crop2D, Crop3D, ZeroPadding1D, ZeroPadding2D, ZeroPadding3D
from loom.nn.pooling import (
    AvgPool1D,
    AvgPool2D,
    AvgPool3D,
    GlobalAvgPool1D,
    GlobalAvgPool2D,
    GlobalAvgPool3D,
    GlobalMaxPool1D,
    GlobalMaxPool2D,
    GlobalMaxPool3D,
    MaxPool1D,
    MaxPool2D,
    MaxPool3D,
)
from loom.nn.position_bias import ALiBi, PositionBias, RelativeBias
from loom.nn.randomness import GaussianNoise, SpatialDropout1D, SpatialDropout2D, SpatialDropout3D
from loom.nn.recurrent import GRU, LSTM, RNN
from loom.nn.reparametrization import SpectralNorm, WeightNorm
from loom.nn.rotary import DynamicRule, Llama3Rule, LongRopeRule, Rotary, RotaryRule, YarnRule
from loom.nn.sequence import ClassToken, SequencePool
from loom.nn.slicing import Slice
from loom.nn.softmax import (
    AdaptiveSoftmax,
    Entmax,
    GridSoftmax,
    GumbelSoftmax,
    HierarchicalSoftmax,
    MaskedSoftmax,
    MixtureSoftmax,
    Softmax,
    Sparsemax,
)
from loom.nn.structure import Dropout, Flatten, Permute, Reshape
from loom.nn.upsampling import PixelShuffle, PixelUnshuffle, UpSampling1D, UpSampling2D, UpSampling3D

__all__ = [
    "ELU",
    "GRU",
    "LSTM",
    "RNN",
    "ALiBi",
    "Activation",
    "ActivationFunction",
    "AdaptiveAvgPool1D",
    "AdaptiveAvgPool2D",
    "AdaptiveAvgPool3D",
    "AdaptiveMaxPool1D",
    "AdaptiveMaxPool2D",
    "AdaptiveMaxPool3D",
    "AdaptiveSoftmax",
    "AvgPool1D",
    "AvgPool2D",
    "AvgPool3D",
    "BatchNorm",
    "Checkpoint",
    "ClassToken",
    "Composed",
    "Conv1D",
    "Conv2D",
    "Conv3D",
    "ConvTranspose1D",
    "ConvTranspose2D",
    "ConvTranspose3D",
    "Crop1D",
    "Crop2D",
    "Crop3D",
    "Dense",
    "Dropout",
    "DynamicRule",
    "Embedding",
    "Entmax",
    "Expr",
    "Flatten",
    "Function",
    "FunctionContext",
    "GaussianNoise",
    "GeGLU",
    "GlobalAvgPool1D",
    "GlobalAvgPool2D",
    "GlobalAvgPool3D",
    "GlobalMaxPool1D",
    "GlobalMaxPool2D",
    "GlobalMaxPool3D",
    "GridSoftmax",
    "GroupNorm",
    "GumbelSoftmax",
    "HierarchicalSoftmax",
    "InstanceNorm",
    "KMeans",
    "L2Norm",
    "Layer",
    "LayerNorm",
    "LeakyReLU",
    "Llama3Rule",
    "LongRopeRule",
    "Masked",
    "MaskedSoftmax",
    "MaxPool1D",
    "MaxPool2D",
    "MaxPool3D",
    "MixtureOfExperts",
    "MixtureSoftmax",
    "MultiHeadAttention",
    "PReLU",
    "Parallel",
    "Permute",
    "PixelShuffle",
    "PixelUnshuffle",
    "PositionBias",
    "PositionalEmbedding",
    "RMSNorm",
    "RelativeBias",
    "Reshape",
    "Residual",
    "Rotary",
    "RotaryRule",
    "Scale",
    "SequencePool",
    "Sequential",
    "SinusoidalPositions",
    "Slice",
    "SoftCap",
    "Softmax",
    "Sparsemax",
    "SpatialDropout1D",
    "SpatialDropout2D",
    "SpatialDropout3D",
    "SpectralNorm",
    "SwiGLU",
    "TiedHead",
    "UpSampling1D",
    "UpSampling2D",
    "UpSampling3D",
    "WeightNorm",
    "YarnRule",
    "ZeroPadding1D",
    "ZeroPadding2D",
    "ZeroPadding3D",
    "layer_from_config",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise attribute_error(__name__, name, __all__)
