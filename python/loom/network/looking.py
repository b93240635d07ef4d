"""Looking at what layers make of samples in inference, and at what the output owes to its input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import flag, items, whole
from loom._settings.suggestions import shown, unknown
from loom._typing import ArrayLike, RealArray
from loom.engine import Engine, HasEngine, engine_of
from loom.engine.endings import judging
from loom.engine.labels import as_indices
from loom.engine.ports import Ports
from loom.errors import ConfigError, DataError, ShapeError, StateError
from loom.losses import LossLike
from loom.network.layers import LayerHandle
from loom.network.selecting import LayerLike, find_layers
from loom.training.record import record_of

if TYPE_CHECKING:
    from loom.training.trainable import TrainableNetwork

__all__ = [
    "Activations",
    "TargetLike",
    "activations",
    "at_index",
    "check_differentiable",
    "chosen_outputs",
    "input_gradients",
    "layer_values",
    "outputs_of",
]

LayerValue: TypeAlias = Literal["input", "preactivation", "output", "attention_weights"]

TargetLike: TypeAlias = "int | Sequence[int] | NDArray[Any]"
"""Which output is meant, as `Network.input_gradients` says."""


class Activations(dict[str, NDArray[Any]]):
    """What layers have made of samples: an array by each layer's path, (samples, ...).

    Args:
        values: The arrays by path.
        attention: The weights of attention layers by path.
    """

    def __init__(
        self, values: Mapping[str, NDArray[Any]] = {}, attention: Mapping[str, NDArray[Any]] = {}
    ) -> None:
        super().__init__(values)
        self.attention: dict[str, NDArray[Any]] = dict(attention)
        """The weights of attention layers by path, (samples, heads, queries, keys), where asked for."""


def activations(
    self: HasEngine,
    x: ArrayLike,
    layers: Sequence[LayerLike] | None = None,
    batch_size: int = 256,
    *,
    attention: bool = False,
) -> Activations:
    """Returns what layers make of samples in inference, dropout off, whatever ran before.

    It leaves no trace: what `layer.activation` shows, what stateful layers carry, running statistics
    and draws stay as they were, and observers are not called. What comes behind the last layer that is
    asked for is not computed.

    Args:
        x: (rows, *input_shape) the samples.
        layers: Which layers: handles, those inside others as well, paths such as "0.0.0.1.layers.0", or
            (z, y, x, l); every layer of every cell where None.
        batch_size: How many samples are computed at a time.
        attention: Whether `.attention` of the result has the weights of attention layers, (rows, heads,
            queries, keys): of those among `layers` and inside them. Each query's weights sum to 1 over
            the keys, or are zero where it sees none.

    Returns:
        (rows, *output_shape of the layer) by path, in the order that was asked for. Of sequences of several
        lengths there are as many steps as the longest has; those behind a sequence's own mean nothing.

    Raises:
        CellIndexError: There is no such layer.
        ConfigError: A handle is of another network, or no layer has the path.
        ShapeError: The samples do not have the network's input shape.
        NonFiniteError: They hold NaN or infinity.
        DataError: There are no samples.

    Examples:
        >>> net = loom.Sequential([nn.Residual([nn.Dense(8), nn.Dense(4)]), nn.Dense(2)], input_shape=4)
        >>> found = net.activations(np.ones((3, 4)), [net.layers[0].layers[0], "0.0.0.1"])
        >>> {path: values.shape for path, values in found.items()}
        {'0.0.0.0.layers.0': (3, 8), '0.0.0.1': (3, 2)}
        >>> net = loom.Sequential([nn.MultiHeadAttention(heads=2, causal=True)], input_shape=(5, 4))
        >>> net.activations(np.ones((3, 5, 4)), attention=True).attention["0.0.0.0"].shape
        (3, 2, 5, 5)
    """
    chosen = find_layers(self, layers)
    attending = []
    if flag("activations", "attention", attention):
        for layer in chosen:
            attending += [it for it in (layer, *layer.inner) if it.kind == "multi_head_attention"]
        attending = list(dict.fromkeys(attending))
    asked: list[tuple[LayerHandle, LayerValue]] = [(layer, "output") for layer in chosen]
    asked += [(layer, "attention_weights") for layer in attending]
    values = layer_values(self, asked, x, batch_size=batch_size)
    paths = [layer.path for layer in chosen]
    weights = values[len(paths) :]
    return Activations(
        dict(zip(paths, values, strict=False)),
        {layer.path: array for layer, array in zip(attending, weights, strict=True)},
    )


def layer_values(
    network: HasEngine, asked: Sequence[tuple[LayerHandle, LayerValue]], x: ArrayLike, *, batch_size: int
) -> list[NDArray[Any]]:
    """Returns what layers read or make of samples in inference, as `activations` does.

    Args:
        network: The network.
        asked: Layers with what is meant of each.
        x: (rows, *input_shape) the samples.
        batch_size: How many samples are computed at a time.

    Returns:
        (rows, ...) for each that was asked for.

    Raises:
        DataError: There are no samples, or nothing is asked for.
    """
    size = whole("activations", "batch_size", batch_size, least=1)
    engine = engine_of(network)
    engine.check_thread()
    array = engine.as_input(x)
    if array.ndim == 0 or len(array) == 0:
        raise DataError(f"there are no samples to look at: x has shape {array.shape}")
    if not asked:
        raise DataError("the network has no layers to look at")
    places = [(layer.places, value) for layer, value in asked]
    return _values(engine, places, array, size)


def _values(
    engine: Engine, places: Sequence[tuple[Sequence[int], str]], x: RealArray, size: int
) -> list[NDArray[Any]]:
    if len(x) <= size or x.shape[1:] != engine.input_shape:
        return engine.native.layer_values(x, size, places)
    # One call a batch, so that Ctrl-C is heard between them.
    made: list[NDArray[Any]] = []
    for start in range(0, len(x), size):
        parts = engine.native.layer_values(x[start : start + size], size, places)
        made = made or [np.empty((len(x), *part.shape[1:]), part.dtype) for part in parts]
        for whole_array, part in zip(made, parts, strict=True):
            whole_array[start : start + size] = part
    return made


def input_gradients(
    self: TrainableNetwork,
    x: ArrayLike,
    y: ArrayLike | Mapping[str, ArrayLike] | None = None,
    *,
    loss: LossLike | Mapping[str, LossLike] | None = None,
    target: TargetLike | Mapping[str, TargetLike] | None = None,
    batch_size: int = 256,
) -> RealArray:
    """Returns for each sample the gradient of its loss, or of one of its outputs, with respect to it.

    The pass is that of `predict`: dropout off, running statistics fixed. It leaves no trace: the
    gradients of parameters, what layers show and carry, and draws stay as they were.

    Args:
        x: (rows, *input_shape) the samples.
        y: Targets, as the loss takes them: the gradient is that of each sample's own loss, so that it
            depends neither on the other samples nor on `batch_size`. Class weights and label smoothing
            of a training do not count.
        loss: Which loss; that of the last training where None.
        target: Instead of `y`, which output: its index, the same for all samples; or (rows,) one for
            each. Where outputs have several axes an index is a tuple of as many numbers, and one for
            each sample (rows, axes). May be left out where there is one output only. Of named outputs by
            name, target={"kind": 2}; what several names say adds up.
        batch_size: How many samples are computed at a time.

    Returns:
        (rows, *input_shape) the gradients; of named inputs a dictionary of arrays, without those of whole
        numbers.

    Raises:
        ConfigError: Neither of `y` and `target` is given where there are several outputs, or both are; a
            target is out of range; or the network reads whole numbers, which have no gradient.
        StateError: There is no loss: the network was not trained here, and none is given.
        ShapeError: The samples do not have the network's input shape, or targets do not fit.
        NonFiniteError: They hold NaN or infinity.
        DataError: There are no samples, or other numbers of samples and targets.

    Examples:
        >>> net = loom.Sequential([nn.Dense(3)], input_shape=2, precision="float64")
        >>> gradients = net.input_gradients(np.ones((4, 2)), target=1)
        >>> bool((gradients == net.layers[0].weight[1]).all())
        True
        >>> net.input_gradients(np.ones((4, 2)), [0, 2, 1, 0], loss="cross_entropy").shape
        (4, 2)
    """
    size = whole("input_gradients", "batch_size", batch_size, least=1)
    engine = engine_of(self)
    engine.check_fixed("input_gradients")
    engine.check_thread()
    array = engine.as_input(x)
    check_differentiable(engine)
    if array.ndim == 0 or len(array) == 0:
        raise DataError(f"there are no samples: x has shape {array.shape}")
    if array.shape[1:] != engine.input_shape:
        # For the engine's own message.
        engine.native.input_gradient(array, np.zeros((len(array), 1), array.dtype), size)
    if y is not None and target is not None:
        raise ConfigError("input_gradients takes y, for the loss, or target, for an output, not both")
    ports = engine.ports
    if ports is not None and ports.outputs:
        to_output = _to_outputs(self, ports, array, y, loss, target, size)
    elif y is None:
        index = chosen_outputs(target, tuple(engine.native.output_shape()), len(array))
        to_output = np.zeros((len(array), *engine.native.output_shape()), array.dtype)
        to_output[_places(index)] = 1.0
    else:
        chosen = _loss_of(self) if loss is None else loss
        output = _outputs_of(engine, array, size)
        y = as_indices(engine, y, chosen)
        # That of a mean over all samples, of which each counts for itself here.
        to_output = judging(engine)(chosen, output, y)[1]
        to_output = to_output * len(array)
    gradients = np.empty_like(array)
    # One call a batch, so that Ctrl-C is heard between them.
    for start in range(0, len(array), size):
        rows = slice(start, start + size)
        gradients[rows] = engine.native.input_gradient(array[rows], to_output[rows], size)
    if ports is not None and ports.inputs:
        # Type checkers know networks with a single input.
        return cast("RealArray", ports.unpack_inputs(gradients))
    return gradients


def _to_outputs(
    network: TrainableNetwork,
    ports: Ports,
    array: RealArray,
    y: object,
    loss: object,
    target: object,
    size: int,
) -> RealArray:
    """Returns for each sample the gradient of its losses, or of what is chosen, to all outputs."""
    engine, shapes = engine_of(network), ports.output_shapes()
    if y is None:
        if not isinstance(target, Mapping):
            listed = ", ".join(f'"{name}"' for name in shapes)
            raise ConfigError(
                f"the network has the outputs {listed}: say by name which is meant, "
                f'target={{"{next(iter(shapes))}": 0}}, or give y by name, for the losses'
            )
        parts = {name: np.zeros((len(array), *shape), array.dtype) for name, shape in shapes.items()}
        for name, chosen in target.items():
            if name not in shapes:
                raise unknown("target: output", name, shapes)
            parts[name][_places(chosen_outputs(chosen, shapes[name], len(array)))] = 1.0
        return ports.pack_gradients(parts, engine.precision)
    weights: Mapping[str, float] = {}
    if loss is None:
        loss = _loss_of(network)
        judged = record_of(network).judged_by
        weights = cast("Mapping[str, float]", {} if judged is None else judged.loss_weights or {})
    each = cast("Mapping[str, LossLike]", loss if isinstance(loss, Mapping) else dict.fromkeys(shapes, loss))
    outputs = ports.unpack(_outputs_of(engine, array, size))
    y = as_indices(engine, y, each)
    parts = {}
    for name in shapes:
        if not isinstance(y, Mapping) or name not in y or name not in each:
            raise DataError(f'input_gradients: y and loss are by output, and "{name}" is missing')
        gradient = judging(engine, name)(each[name], outputs[name], y[name])[1]
        parts[name] = gradient * (len(array) * weights.get(name, 1.0))
    return ports.pack_gradients(parts, engine.precision)


def _places(index: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    return (np.arange(len(index)), *index.T)


def at_index(outputs: RealArray, index: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns each sample's output at its index, as `chosen_outputs` has them.

    Args:
        outputs: (rows, *output_shape).
        index: (rows, axes).
    """
    found: NDArray[np.float64] = outputs[_places(index)].astype(np.float64)
    return found


def _loss_of(network: TrainableNetwork) -> LossLike:
    trained = record_of(network).judged_by
    if trained is None:
        raise StateError(
            "input_gradients has no loss: the network was not trained here; give one, such as "
            'loss="cross_entropy"'
        )
    return cast("LossLike", trained.loss)


def check_differentiable(engine: Engine) -> None:
    """Refuses, with a ConfigError, a network whose input has no gradient; it has been built."""
    ports = engine.ports
    named = ports is not None and bool(ports.inputs)
    if None not in engine.native.index_limits() if named else engine.reads_indices:
        raise ConfigError("the network reads whole numbers, which have no gradient")


def outputs_of(network: HasEngine, x: ArrayLike, *, batch_size: int) -> RealArray:
    """Returns what `predict` does, without a trace.

    Args:
        network: The network.
        x: (rows, *input_shape) the samples.
        batch_size: How many samples are computed at a time.
    """
    engine = engine_of(network)
    return _outputs_of(engine, engine.as_input(x), batch_size)


def _outputs_of(engine: Engine, array: RealArray, size: int) -> RealArray:
    (output,) = _values(engine, [((), "output")], array, size)
    return output


def chosen_outputs(target: object, shape: tuple[int, ...], rows: int) -> NDArray[np.int64]:
    """Returns the index of an output for each sample, (rows, axes).

    Args:
        target: What `input_gradients` takes.
        shape: One sample's outputs.
        rows: How many samples there are.

    Raises:
        ConfigError: It is no index, or out of range; or it was left out, and there are several outputs.
        ShapeError: It is neither one index nor one for each sample.
    """
    axes = len(shape)
    if target is None:
        if prod(shape) != 1:
            raise ConfigError(f"which of the outputs {shape} is meant? Give target=, or y= for the loss")
        return np.zeros((rows, axes), np.int64)
    try:
        given = np.asarray(target)
    except ValueError:
        # Parts of different lengths.
        given = np.empty(0, object)
    if given.dtype.kind not in "iu":
        raise ConfigError(
            f"target is the index of an output, a whole number for each axis, got {shown(target)}"
        )
    one = items(target) if isinstance(target, tuple) else None
    if given.ndim == 0 and axes == 1:
        index = np.full((rows, 1), given)
    elif one is not None and given.shape == (axes,):
        index = np.tile(given, (rows, 1))
    elif given.shape == (rows,) and axes == 1:
        index = given[:, None]
    elif given.shape == (rows, axes):
        index = given
    else:
        raise ShapeError(
            f"target must be one index into outputs {shape}, or one for each of {rows} samples, got shape "
            f"{given.shape}"
        )
    if ((index < -np.array(shape)) | (index >= np.array(shape))).any():
        raise ConfigError(f"target {shown(target)} is out of range: outputs have shape {shape}")
    found: NDArray[np.int64] = index.astype(np.int64) % np.array(shape)
    return found
