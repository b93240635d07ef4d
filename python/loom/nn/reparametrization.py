"""Layers whose weight is made of other parameters."""

from __future__ import annotations

from dataclasses import dataclass

from loom.errors import ConfigError
from loom.nn._layer import FAMILY, Layer
from loom.nn.composite import LayersLike

__all__ = ["SpectralNorm", "WeightNorm"]

_KINDS = ("dense", "conv1d", "conv2d", "conv3d")


class _Remade(Layer):
    """Base of the two: one layer with one weight."""

    __slots__ = ()

    def _check(self, layers: tuple[Layer, ...]) -> None:
        name = type(self).__name__
        if len(layers) != 1:
            raise ConfigError(f"{name}: expected one layer, got {len(layers)}; wrap each by itself")
        if layers[0].kind not in _KINDS:
            raise ConfigError(
                f"{name}: expected nn.Dense or nn.Conv1D, Conv2D or Conv3D, whose weight is made anew, "
                f"got {type(layers[0]).__name__}"
            )


@FAMILY.register("weight_norm")
@dataclass(frozen=True)
class WeightNorm(_Remade):
    """A layer whose weight is `gain * v / |v|`, each output's by itself (Salimans and Kingma 2016).

    The parameters are `0.weight`, v, in the shape of the layer's own weight; `gain` (outputs,); and the
    layer's bias, `0.bias`. The gain begins with the lengths of v, so that training begins where it would
    without. In PyTorch v is `parametrizations.weight.original1` and the gain, with extents of 1 behind it,
    `original0`. An output whose v is zero stays zero. What is computed from v is not packed, so a layer's
    numeric type leaves v as it is.

    Args:
        layers: The layer: `nn.Dense`, or a convolution.

    Raises:
        ConfigError: It is another layer, or there are several.

    Examples:
        >>> net = loom.Sequential([nn.WeightNorm(nn.Dense(3))], input_shape=4)
        >>> {name: p.shape for name, p in net.layers[0].parameters.items()}
        {'0.weight': (3, 4), 'gain': (3,), '0.bias': (3,)}
    """

    layers: LayersLike

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.layers)  # type: ignore[arg-type]


@FAMILY.register("spectral_norm")
@dataclass(frozen=True)
class SpectralNorm(_Remade):
    """A layer whose weight is divided by its largest singular value (Miyato et al. 2018).

    The singular value is that of the weight as a matrix with a row for each output, as a power iteration
    estimates it: every step of training makes one iteration, from the state `left_vector` (outputs,) that
    the one before has left (`_u` in PyTorch); inference does the same and keeps nothing. The parameter
    `0.weight` is the weight before that. Gradients are those of what is computed, the iteration included;
    PyTorch holds its vectors still, which is the same once they have converged. A layer's numeric type
    leaves the weight as it is.

    Args:
        layers: The layer: `nn.Dense`, or a convolution.

    Raises:
        ConfigError: It is another layer, or there are several.

    Examples:
        >>> net = loom.Sequential([nn.SpectralNorm(nn.Conv2D(8, 3)), nn.Flatten()], input_shape=(1, 5, 5))
        >>> net.layers[0].states["left_vector"].shape
        (8,)
    """

    layers: LayersLike

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check(self.layers)  # type: ignore[arg-type]
