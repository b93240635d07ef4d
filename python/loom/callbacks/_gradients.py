"""The gradients of a network that trains, on some samples."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from loom import losses
from loom.convert import as_numpy
from loom.engine import engine_of
from loom.engine.labels import as_indices

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
    output = copy.forward(as_numpy(x, what="sample"), training=False)
    # A softmax that ends a network is the cross-entropy's own.
    absorbed = losses.is_classification(config.loss) and copy.layers[-1].kind == "softmax"
    judge = losses.behind_softmax if absorbed else losses.value_and_gradient
    copy.zero_gradients()
    copy.backward(
        judge(
            config.loss, output, y, label_smoothing=config.label_smoothing, class_weight=config.class_weight
        )[1]
    )
    return {
        f"{layer.path}.{name}": values for layer in copy.layers for name, values in layer.gradients.items()
    }
