"""The gradients of a network that trains, on some samples."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from loom.convert import as_numpy
from loom.engine import Engine, engine_of
from loom.engine.endings import judging
from loom.engine.labels import as_indices
from loom.errors import DataError

if TYPE_CHECKING:
    from loom._typing import ArrayLike, Foreign

__all__ = ["gradients_of"]


def gradients_of(
    network: Any,  # noqa: ANN401 - the network's own class would be a circular import
    x: ArrayLike,
    y: Foreign,
    config: Any,  # noqa: ANN401 - as above
) -> dict[str, NDArray[Any]]:
    """Returns the gradient of every parameter on some samples, dropout off, computed on a copy.

    Args:
        network: The network.
        x: (rows, *input_shape) the samples.
        y: Their targets.
        config: The run's `TrainingConfig`.
    """
    copy = deepcopy(network).to("cpu")
    y = as_indices(engine_of(copy), y, config.loss)
    named = isinstance(x, Mapping) or engine_of(copy).sizing is not None
    output = copy.forward(x if named else as_numpy(x, what="sample"), training=False)
    copy.zero_gradients()
    if isinstance(config.loss, Mapping):
        copy.backward(_of_outputs(engine_of(copy), config, output, y))
        return _gradients(copy)
    copy.backward(
        judging(engine_of(copy))(
            config.loss, output, y, label_smoothing=config.label_smoothing, class_weight=config.class_weight
        )[1]
    )
    return _gradients(copy)


def _of_outputs(engine: Engine, config: Any, output: Any, y: Any) -> dict[str, NDArray[Any]]:  # noqa: ANN401 - by name
    """Returns the gradients of the losses of outputs with names; class weights do not count."""
    if not isinstance(y, Mapping) or set(y) != set(output):
        raise DataError(f"sample: targets are by output, of {', '.join(output)}")
    weights = config.loss_weights or {}
    return {
        name: weights.get(name, 1.0) * judging(engine, name)(config.loss[name], output[name], y[name])[1]
        for name in output
    }


def _gradients(network: Any) -> dict[str, NDArray[Any]]:  # noqa: ANN401 - as above
    return {
        f"{layer.path}.{name}": values for layer in network.layers for name, values in layer.gradients.items()
    }
