"""What a network's weights are packed as, and what becomes of their masters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from loom import _native
from loom._settings.checks import items, real, whole
from loom._settings.suggestions import shown
from loom._typing import ArrayLike, NumericTypeName
from loom.engine import HasEngine, NetworkT, engine_of
from loom.errors import ConfigError, DTypeError
from loom.network.layers import LayerHandle, layers_of

__all__ = ["calibrate", "drop_master", "morph", "unpack"]


def morph(
    self: NetworkT,
    dtype: NumericTypeName,
    where: Callable[[LayerHandle], object] | None = None,
    granularity: str | None = None,
    calibration: str = "absmax",
    rounding: Literal["nearest", "stochastic"] = "nearest",
    activations: str | None = None,
    parameters: str | Sequence[str] | None = None,
) -> NetworkT:
    """Changes the numeric type that layers compute from.

    The weights are packed as that type and the forward pass reads them; training
    goes on through them to the full-precision master, which is kept. The network's
    own precision goes back to the master. Scales are found anew, by the same rule,
    whenever a master has moved, so after each step of training, too; files keep the
    rule.

    Args:
        dtype: The name of a numeric type, such as "int8", "bfloat16" or "ternary"; `loom.dtypes()`
            lists them. "float32" ("float64" in a network of that precision) is the masters.
        where: Which layers, as a function of the layer; all where None.
        granularity: Which weights share a scale: "channel" (each output), "tensor", or
            "block(n)" (each n inputs of an output); as the type has it where None.
        calibration: How the scales are found. "absmax": by the type's own rule, from
            the largest magnitude (`loom.dtypes()` has it). "percentile(99.9)": from
            that percentile of the magnitudes, as `numpy.percentile` has it; what lies
            beyond saturates. "mse": so that the squared error of the weights that
            share the scale is least; once `calibrate` has measured what they multiply,
            each error counts as much as the mean square of that. Types with scales by
            a published format (q4_0, q8_0, mxfp8, mxfp4) or without scales take
            "absmax" alone.
        rounding: "nearest", ties to even; or "stochastic": up or down at random, so that
            the mean of many draws is the weight itself. Draws are keyed by the network's
            seed and the number of updates: each step of training draws anew, any device
            draws the same, and so does a training that is resumed.
        activations: "int8" has inference quantise each row of what a product reads to eight
            bits (of a convolution each sample, of a recurrence its state before every step;
            of products with q8_0, q4_0 and mxfp4 each 32 elements of a row), for weights of
            int8, int4, int2, ternary, binary, q8_0, q4_0 or mxfp4, and sum the products
            exactly in integers; files keep it. None leaves activations in float. Training
            does so in any case, as does a head that is tied to an Embedding whose table
            does not lie in blocks along its rows; transposed convolutions refuse "int8".
        parameters: The name of a parameter of the chosen layers, or several: just those
            change, and biases, gains of norms and positions may be among them. None for
            all weights of the layers; what was chosen by name before is forgotten then.

    Returns:
        The network.

    Raises:
        DTypeError: The type is unknown, or cannot have that granularity, calibration,
            rounding or those activations.
        InvalidValueError: The granularity, calibration or rounding is unknown, weights do
            not fit the type, a layer cannot quantise its activations or has no parameter
            of such a name. Nothing has changed then.

    Examples:
        >>> net = loom.Sequential([nn.Dense(8), nn.Dense(2)], input_shape=4)
        >>> _ = net.calibrate(np.ones((3, 4))).morph("int4", calibration="mse")
        >>> net[0, 0, 0, 1].weights.versions["int4"].calibration
        'mse'
        >>> _ = net.morph("int8", parameters="bias")
        >>> {name: stored.dtype for name, stored in net[0, 0, 0, 0].weights.stored.items()}
        {'weight': 'int4', 'bias': 'int8'}
    """
    if not isinstance(dtype, str):
        raise DTypeError(f'morph takes the name of a numeric type, such as "int8", got {shown(dtype)}')
    for name, value, wanted in (
        ("granularity", granularity, '"channel", "tensor" or "block(n)"'),
        ("calibration", calibration, '"absmax", "percentile(99.9)" or "mse"'),
        ("rounding", rounding, '"nearest" or "stochastic"'),
        ("activations", activations, '"int8", or None for float'),
    ):
        optional = name in {"granularity", "activations"}
        if not (isinstance(value, str) or (optional and value is None)):
            raise ConfigError(f"{name} is {wanted}, got {shown(value)}")
    names = None if parameters is None else _names(parameters)
    layers = _chosen(self, where)
    engine = engine_of(self)
    recipe = (granularity, calibration, rounding)
    engine.change(lambda native: native.morph(dtype, layers, recipe, activations, names))
    return self


def calibrate(self: NetworkT, x: ArrayLike, percentile: float = 99.9, batch_size: int = 256) -> NetworkT:
    """Measures what every layer is given to read, in inference over samples of the data.

    `layer.input_range` then has the largest magnitude, a percentile of the magnitudes, and
    the mean square of each feature. From here on `morph(..., calibration="mse")` weighs the
    error of each weight of a matrix product or a convolution by the mean square of what it
    multiplies; weights that are packed so already are packed anew. What was measured before
    is replaced; files keep it.

    Args:
        x: (rows, *input_shape) samples that are like what the network will see; some
            hundreds will do. Of open extents in any form that `predict` takes; nothing is padded.
        percentile: Which percentile of the magnitudes, above 0 and up to 100.
        batch_size: How many are computed at a time.

    Returns:
        The network.

    Raises:
        ShapeError: The samples do not have the network's input shape.
        ConfigError: A setting is out of range.
        NonFiniteError: They hold NaN or infinity, or a layer makes such of them.
        StateError: The network is training.
    """
    percent = real("calibrate", "percentile", percentile, above=0.0, most=100.0)
    size = whole("calibrate", "batch_size", batch_size, least=1)
    engine = engine_of(self)
    ranges = _native.InputRanges(percent)
    sizing = engine.sizing
    if sizing is None:
        array = engine.as_input(x)
        engine.change(lambda native: ranges.add(native, array, size))
    else:
        engine.check_thread()
        samples = sizing.samples(x)
        for chosen in sizing.alike(samples, size, exact=True):
            with sizing.lock:
                rows = sizing.together(samples, chosen, exact=True)
                ranges.add(engine.native, rows, size)
    engine.change(lambda native: native.take_ranges(ranges))
    return self


def drop_master(self: NetworkT) -> NetworkT:
    """Frees the full-precision masters of packed weights, to deploy a network that is trained.

    Inference goes on as it was, and files hold the packed weights alone. Training, other
    numeric types and reading or setting the full-precision weights are refused from here
    on, until `unpack` makes masters again. Gradients and the optimizer's moments go too.

    Returns:
        The network.

    Raises:
        StateError: A layer's weights are not packed; nothing has changed then.
    """
    engine = engine_of(self)
    engine.change(lambda native: native.drop_masters(None))
    return self


def unpack(self: NetworkT, where: Callable[[LayerHandle], object] | None = None) -> NetworkT:
    """Makes masters again of packed weights after `drop_master`: the network can be trained again.

    Each weight of the new master is what its code stands for; what the network computes
    stays the same until a weight moves.

    Args:
        where: Which layers, as a function of the layer; all where None.

    Returns:
        The network.

    Raises:
        StateError: No master of those layers was dropped, so there is nothing to unpack.

    Examples:
        >>> net = loom.Sequential([nn.Dense(2)], input_shape=3).morph("int8")
        >>> net.drop_master().unpack()[0, 0, 0, 0].weights.dropped
        False
    """
    layers = _chosen(self, where)
    engine = engine_of(self)
    engine.change(lambda native: native.unpack(layers))
    return self


def _chosen(
    network: HasEngine, where: Callable[[LayerHandle], object] | None
) -> list[tuple[int, int, int, int]] | None:
    if where is None:
        return None
    if not callable(where):
        raise ConfigError(
            f"where is a function that takes a layer and says whether it is meant, got {shown(where)}"
        )
    return [layer.at for layer in layers_of(network) if where(layer)]


def _names(parameters: object) -> list[str]:
    names = [parameters] if isinstance(parameters, str) else items(parameters)
    if not names or not all(isinstance(name, str) for name in names):
        raise ConfigError(
            f'parameters is the name of a parameter, or several, such as "bias", got {shown(parameters)}'
        )
    return [str(name) for name in names]
