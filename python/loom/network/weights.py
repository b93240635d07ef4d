"""A layer's weights as the engine holds them: full-precision masters, and packed versions of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.suggestions import shown
from loom.engine import engine_of
from loom.errors import ConfigError, DTypeError, StateError
from loom.network.parameters import LayerPlace, Parameters

__all__ = ["InputRange", "PackedParameter", "Stored", "Version", "Weights"]


@dataclass(frozen=True)
class Version:
    """A packed version of a layer's weights.

    Args:
        dtype: Its numeric type.
        granularity: Which weights share a scale: "channel" (each output), "tensor", "block(n)", or
            "none" where there are no scales.
        current: Whether the master has not changed since it was made; it is made anew before
            anything reads it otherwise.
        calibration: How its scales are found: "absmax", "percentile(p)" or "mse".
        rounding: How its weights are rounded: "nearest" or "stochastic".
    """

    dtype: str
    granularity: str
    current: bool
    calibration: str
    rounding: str


@dataclass(frozen=True)
class Stored:
    """What the forward pass reads of one parameter.

    Args:
        dtype: Its numeric type.
        nbytes: Bytes of its codes and scales, or of its master where that is read.
        version: How it is packed; None where the master is read.
    """

    dtype: str
    nbytes: int
    version: Version | None


@dataclass(frozen=True)
class InputRange:
    """What a layer was given to read while `Network.calibrate` measured it.

    Args:
        absmax: The largest magnitude.
        percent: The percentage that was asked for.
        percentile: That percentile of the magnitudes, to one part in 256.
        mean_squares: The mean square of each feature: of each channel of images, volumes and the signals
            of convolutions, otherwise of each element of the last axis.
    """

    absmax: float
    percent: float
    percentile: float
    mean_squares: NDArray[np.float64]


@dataclass(frozen=True)
class PackedParameter:
    """One parameter, packed.

    Args:
        dtype: Its numeric type.
        granularity: Which of its weights share a scale.
        codes: The packed bytes: codes from the lowest bits on, in the order of the engine, which
            has the outputs of a weight as its columns; block formats as published, one output
            after the other.
        scales: The scale of each group: of each output for "channel", one for "tensor",
            (blocks, outputs) for "block(n)"; empty where there are none, or where blocks hold
            their own.
        zero_points: The codes that stand for zero, in the same order; empty but for unsigned integers.
        minima: What is added to codes times scales, in the same order; empty but for types with a minimum.
    """

    dtype: str
    granularity: str
    codes: NDArray[Any]
    scales: NDArray[Any]
    zero_points: NDArray[Any]
    minima: NDArray[Any]


class Weights:
    """A layer's weights: their masters, packed versions, scales and sizes; what `layer.weights` gives.

    Args:
        layer: The layer.
    """

    __slots__ = ("_layer",)

    def __init__(self, layer: LayerPlace) -> None:
        self._layer = layer

    def _state(self) -> dict[str, Any]:
        state = engine_of(self._layer).native.weights_state(self._layer.at)
        prefix = self._layer.prefix
        for what in ("versions", "sizes"):
            state[what] = [
                (name.removeprefix(prefix), *rest) for name, *rest in state[what] if name.startswith(prefix)
            ]
        return state

    @property
    def master(self) -> Parameters:
        """The full-precision parameters by name, which optimizers move."""
        return Parameters(self._layer)

    @property
    def dtype(self) -> str | None:
        """The numeric type that the weights are read in, as `layer.dtype`; None without parameters."""
        whole = engine_of(self._layer).native.layer_dtype(self._layer.at)
        if not self._layer.prefix:
            return whole
        stored = self.stored.values()
        packed = [one.dtype for one in stored if one.version is not None]
        return whole if whole in packed else next(iter(packed or [one.dtype for one in stored]), None)

    @property
    def epoch(self) -> int:
        """A number that grows with every change of the masters."""
        return int(self._state()["epoch"])

    @property
    def dropped(self) -> bool:
        """Whether the masters of what is packed were dropped."""
        return bool(self._state()["dropped"])

    @property
    def versions(self) -> dict[str, Version]:
        """The packed versions by their type.

        Where parameters were morphed by name, [`stored`][loom.weights.Weights.stored] has each
        one's; here is the first of each type.
        """
        found: dict[str, Version] = {}
        for _, *entry in self._state()["versions"]:
            found.setdefault(entry[0], Version(*entry))
        return found

    @property
    def stored(self) -> dict[str, Stored]:
        """What the forward pass reads of each parameter, by name."""
        state = self._state()
        versions = {name: Version(*entry) for name, *entry in state["versions"]}
        own = engine_of(self._layer).precision.replace("mixed", "float32")
        found: dict[str, Stored] = {}
        for name, nbytes in state["sizes"]:
            version = versions.get(name)
            found[name] = Stored(version.dtype if version else own, nbytes, version)
        return found

    def unpack(self) -> Weights:
        """Makes the dropped masters again of the packed weights; see `Network.unpack`.

        Of a layer inside another, those of all that one holds.

        Returns:
            The weights.

        Raises:
            StateError: They were not dropped.
        """
        engine = engine_of(self._layer)
        engine.change(lambda native: native.unpack([self._layer.at]))
        return self

    def nbytes(self, dtype: str | None = None) -> int:
        """Returns the bytes that the weights take, with what stays float and all scales.

        Args:
            dtype: The numeric type that weights would have; those that the forward pass reads
                where None.

        Returns:
            Bytes.

        Raises:
            DTypeError: The type is unknown.
            ConfigError: The layer is inside another, which alone counts in other types.
        """
        if dtype is not None and not isinstance(dtype, str):
            raise DTypeError(f'nbytes takes the name of a numeric type, such as "int8", got {shown(dtype)}')
        if self._layer.prefix:
            if dtype is not None:
                raise ConfigError(
                    f"layer {self._layer.path} is inside another, whose weights are counted in other types "
                    "as a whole: ask that one"
                )
            return sum(stored.nbytes for stored in self.stored.values())
        return engine_of(self._layer).native.weights_nbytes(self._layer.at, dtype)

    def packed(self, name: str) -> PackedParameter:
        """Returns a parameter's codes and scales in the type that the forward pass reads.

        Args:
            name: The parameter.

        Returns:
            Copies of them.

        Raises:
            ConfigError: There is no such parameter.
            StateError: It is not packed.
        """
        self.master.require(name)
        found = engine_of(self._layer).native.packed_parameter(self._layer.at, self._layer.prefix + name)
        if found is None:
            layer = self._layer
            raise StateError(f'"{name}" of layer {layer.path} is not packed; it is read in full precision')
        return PackedParameter(*found)

    def scales(self, name: str) -> NDArray[Any]:
        """Returns the scales of a packed parameter, as [`packed`][loom.weights.Weights.packed] has them."""
        return self.packed(name).scales

    def __repr__(self) -> str:
        return f"Weights({self._layer.path}, dtype={self.dtype}, nbytes={self.nbytes()})"
