"""The manual loop: forward with history, backward, clip, apply."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast

import numpy as np

from loom import optimizers
from loom._settings.calls import explained
from loom._settings.checks import flag, real
from loom._typing import ArrayLike, RealArray
from loom.convert import as_real_array
from loom.engine import Engine, HasEngine, engine_of
from loom.engine.class_axis import noted
from loom.engine.statistics import GradientStats, layer_gradients
from loom.optimizers import Optimizer, OptimizerLike

__all__ = [
    "apply_gradients",
    "backward",
    "clip_gradients",
    "current_optimizer",
    "forward",
    "gradient_stats",
    "set_optimizer",
    "zero_gradients",
]

_GRADIENT = (
    "it is the loss's: value, gradient = loom.losses.cross_entropy(net.forward(x), y), and then "
    "net.backward(gradient)"
)


def forward(
    self: HasEngine,
    x: ArrayLike | Mapping[str, ArrayLike],
    training: bool = True,
    *,
    input_gradients: bool = False,
) -> RealArray:
    """Returns the output, and keeps what every layer has made: for `backward`, and to be looked at.

    So it does of layers inside others.

    In training, dropout and Gumbel noise are drawn anew in every pass, and running
    statistics move. The draws go by the seed, the committed step and the passes since it,
    so that a network which was saved with its optimizer's state goes on as it would have.
    Passes that `backward` follows, one after the other before `apply_gradients`, draw as
    the parts of one batch, as `loom.train` does with `accumulate`.

    With `training=False` the pass is that of `predict`: it draws nothing and moves nothing.
    `layer.activation` then shows what inference makes of these rows, and `backward` gives
    the gradients of what was computed: dropout off, running statistics fixed. All rows go
    through at once; for many rows whose layers nobody looks at, `predict` needs less memory.

    Args:
        x: (rows, *input_shape) the samples; of named inputs a dictionary of arrays, or a data frame.
        training: Whether dropout is on and running statistics move.
        input_gradients: Whether `backward` is to keep the gradient of what every layer reads, those inside
            others as well, for `layer.input_gradient`.

    Returns:
        (rows, *output_shape) in the network's precision; of named outputs a dictionary of arrays.

    Raises:
        ShapeError: The samples do not have the network's input shape.
        NonFiniteError: They hold NaN or infinity.
        StateError: The network is being trained: by `loom.train`, where `training` is on, or
            by another thread.

    Examples:
        >>> net = loom.Sequential([nn.Dense(4), nn.Dropout(0.5)], input_shape=3, seed=1)
        >>> samples = np.stack([net.forward(np.ones((1, 3))) for _ in range(200)])
        >>> bool(samples.std(axis=0).max() > 0)  # Monte Carlo dropout
        True
        >>> output = net.forward(np.ones((1, 3)), training=False)
        >>> bool((output == net[0, 0, 0, 1].activation).all())
        True
    """
    engine = engine_of(self)
    if flag("forward", "training", training):
        engine.check_idle("forward with training on")
    keep = flag("forward", "input_gradients", input_gradients)
    sizing = engine.sizing
    if sizing is None:
        array = engine.as_input(x)
    else:
        samples = sizing.samples(x)
        array = sizing.all_rows(samples)
        sizing.newest = samples, sizing.steps()
    levels = engine.observation.levels
    output, engine.last_forward_time, figures = engine.native.forward(array, training, levels, keep)
    if figures is not None:
        engine.observation.tell(figures)
    ports = engine.ports
    if sizing is not None:
        everyone = range(len(samples))
        parts = sizing.split(output).items()
        made = {name: sizing.cut(part, samples, everyone, name) for name, part in parts}
        return _noted(engine, sizing.outputs(samples, made))
    return _noted(engine, output if ports is None or not ports.outputs else ports.unpack(output))


def _noted(engine: Engine, made: object) -> RealArray:
    """Tells losses of outputs that lead with channels; returns what was made."""
    ports = engine.ports
    for name, output in (made if isinstance(made, dict) else {"": made}).items():
        # Those of samples of open extents may be lists.
        if isinstance(output, np.ndarray):
            noted(engine.config, output, ports.cell_of(name) if name and ports is not None else None)
    # Type checkers know networks with a single output.
    return cast("RealArray", made)


@explained(gradient=_GRADIENT)
def backward(self: HasEngine, gradient: ArrayLike | Mapping[str, ArrayLike]) -> RealArray:
    """Adds to all gradients, from the newest `forward` back, in training or not.

    Args:
        gradient: (rows, *output_shape) of the loss with respect to the output; of named outputs a
            dictionary of arrays.

    Returns:
        (rows, *input_shape) that of the loss with respect to the input; of named inputs a dictionary of
        arrays, without those of whole numbers.

    Raises:
        StateError: There was no forward pass, or the weights, or the running statistics that it
            read, have moved since.
        ShapeError: The gradient does not have the output's shape.
        NonFiniteError: It holds NaN or infinity.
    """
    engine = engine_of(self)
    engine.check_idle("backward")
    ports = engine.ports
    if ports is not None and ports.outputs:
        sizing = engine.sizing
        if sizing is not None and isinstance(gradient, Mapping):
            known = sizing.output_lengths
            gradient = {
                name: sizing.gradient_rows(each, name) if name in known else each
                for name, each in gradient.items()
            }
        array = ports.pack_gradients(gradient, engine.precision)
        if sizing is not None:
            return cast("RealArray", sizing.input_gradients(engine.native.backward(array)))
    elif engine.sizing is not None:
        return cast(
            "RealArray",
            engine.sizing.input_gradients(engine.native.backward(engine.sizing.gradient_rows(gradient))),
        )
    else:
        array = as_real_array(cast("ArrayLike", gradient), engine.precision, what="gradient")
    found = engine.native.backward(array)
    return found if ports is None or not ports.inputs else cast("RealArray", ports.unpack_inputs(found))


def clip_gradients(self: HasEngine, max_norm: float) -> float:
    """Scales all gradients together where their global L2 norm exceeds a limit.

    Args:
        max_norm: The limit; above zero.

    Returns:
        The norm before.

    Raises:
        StateError: There are no gradients.
        NonFiniteError: The norm is infinite or NaN; the gradients stay as they are.
    """
    engine = engine_of(self)
    engine.check_idle("clip_gradients")
    return engine.native.clip_gradients(real("clip_gradients", "max_norm", max_norm, above=0.0))


@explained(
    learning_rate="how far? net.apply_gradients(1e-3)",
    lr="net.apply_gradients(1e-3)",
    more='it takes the rate alone: net.set_optimizer("adam") before, then net.apply_gradients(1e-3)',
)
def apply_gradients(self: HasEngine, learning_rate: float) -> None:
    """Moves every trainable parameter by its gradient, and clears the gradients.

    Args:
        learning_rate: The step size.

    Raises:
        StateError: There are no gradients.
    """
    engine = engine_of(self)
    engine.check_idle("apply_gradients")
    engine.native.apply_gradients(real("apply_gradients", "learning_rate", learning_rate, least=0.0))


def zero_gradients(self: HasEngine) -> None:
    """Forgets all gradients."""
    engine = engine_of(self)
    engine.check_idle("zero_gradients")
    engine.native.zero_gradients()


def set_optimizer(self: HasEngine, optimizer: OptimizerLike) -> None:
    """Chooses the rule that `apply_gradients` follows, with fresh moments; AdamW before.

    Args:
        optimizer: An optimizer, or the name of one.

    Raises:
        ConfigError: The name is unknown or a setting out of range.
    """
    engine = engine_of(self)
    engine.check_idle("set_optimizer")
    engine.native.set_optimizer(json.dumps(optimizers.resolve(optimizer).to_config()))
    engine.optimizer_chosen = True
    engine.note_change()


def current_optimizer(self: HasEngine) -> Optimizer | None:
    """The optimizer whose moments the network holds, with its settings; None before there is any.

    It is that of the newest training, of `set_optimizer` or of the file that the network was loaded
    from with its optimizer's state, and `apply_gradients` follows it. Learning by targets with momentum
    has no optimizer, so None. To choose another one there is `set_optimizer`.
    """
    engine = engine_of(self)
    state = engine.native.training_state()
    begun = any(state[count] for count in ("epoch", "batch", "step", "updates"))
    config = json.loads(state["optimizer"])
    if not (begun or engine.optimizer_chosen) or config["type"] not in optimizers.FAMILY.kinds:
        return None
    return optimizers.resolve(config)


def gradient_stats(self: HasEngine) -> GradientStats:
    """Returns each trainable layer's gradient in figures, with flags for vanishing and exploding.

    `net.gradient_stats().print()` writes them as a table.

    Raises:
        StateError: There are no gradients.
    """
    return layer_gradients(engine_of(self).native.gradient_statistics())
