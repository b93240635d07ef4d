"""Learning from a whole data set at once by L-BFGS."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from loom import losses
from loom._settings.checks import choice, real, whole
from loom._typing import ArrayLike
from loom.convert import as_numpy, as_real_array
from loom.data.labels import as_names
from loom.data.weights import counting
from loom.engine import Engine, engine_of
from loom.engine.endings import judging
from loom.engine.labels import as_indices, known_classes
from loom.engine.ports import Ports, by_name
from loom.errors import ConfigError, DataError, NonFiniteError, ShapeError
from loom.network import Network
from loom.network.learning import learning_parameters
from loom.training.automatic import settled_by_target
from loom.training.config import TrainingConfig, check_training
from loom.training.labelling import weighed
from loom.training.named_targets import settled_by_targets
from loom.training.output_figures import OutputWeights, part_of_loss
from loom.training.ported import counting_by_output, settled_outputs

__all__ = ["LBFGS"]

Vector = NDArray[np.float64]

_SUFFICIENT, _CURVATURE = 1e-4, 0.9
"""What of the slope a step must gain, and how much of it may be left at its end (Wolfe's conditions)."""
_TRIES = 25
"""How many steps along a line are tried."""
_NARROW = 1e-9
"""How little weights change where a line is not looked at more closely."""


@dataclass(frozen=True)
class _Point:
    """A place on a line: the step, the loss there, its gradient, and the slope along the line."""

    step: float
    loss: float
    gradient: Vector
    slope: float


class LBFGS:
    """Learns from a whole data set at once, by the curvature that past gradients tell of.

    Limited-memory BFGS (Liu and Nocedal 1989) with a line search by Wolfe's strong conditions, as PyTorch has
    it. It is for problems of moderate size whose data go through the network at once: every iteration takes a
    few passes over all of it, and often hundreds of steps of other rules are saved. The loss is that of
    inference, with dropout off and running statistics as they are, so that it is the same function each time.
    Vectors are kept in double precision on the host; the network computes where it is.

    Args:
        network: The network; it learns in place.
        config: Its loss, class weights, label smoothing and the weights of outputs count.
        history: How many past steps tell of the curvature.
        learning_rate: The step along each direction that is tried first, and taken without a line search.
        line_search: "wolfe", or None for steps of `learning_rate`.

    Raises:
        ConfigError: A setting is out of range; or the config has what is of steps, such as regularizers.

    Examples:
        >>> x = np.linspace(-1, 1, 40).reshape(-1, 1)
        >>> net = loom.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(1)], input_shape=1, seed=0)
        >>> losses = loom.LBFGS(net, loom.TrainingConfig(loss="mse")).fit(x, np.sin(3 * x), iterations=60)
        >>> losses[-1] < 1e-3
        True
    """

    def __init__(
        self,
        network: Network,
        config: TrainingConfig | None = None,
        *,
        history: int = 100,
        learning_rate: float = 1.0,
        line_search: Literal["wolfe"] | None = "wolfe",
    ) -> None:
        engine = engine_of(network)
        chosen = check_training(config)
        if chosen.regularizers is not None or chosen.gradient_noise:
            raise ConfigError("LBFGS: regularizers and gradient_noise are of single steps; leave them out")
        if chosen.saved_activations is not None:
            raise ConfigError(
                "LBFGS: a search along a line wants exact gradients; leave saved_activations out"
            )
        engine.check_fixed("LBFGS")
        engine.build()
        if isinstance(chosen.loss, str) and chosen.loss == losses.AUTO:
            raise ConfigError('LBFGS: say what is minimised: TrainingConfig(loss="mse")')
        self.network = network
        self.config = weighed(engine, settled_outputs(engine, chosen))
        self.history = whole("LBFGS", "history", history, least=1, most=1 << 31)
        self.learning_rate = real("LBFGS", "learning_rate", learning_rate, above=0.0)
        if line_search is not None:
            choice("LBFGS", "line_search", line_search, ("wolfe",))
        self.line_search = line_search
        # The changes of weights and of gradients, newest last.
        self._steps: deque[tuple[Vector, Vector, float]] = deque(maxlen=self.history)
        self._forget()

    def __repr__(self) -> str:
        return f"LBFGS(history={self.history}, learning_rate={self.learning_rate})"

    def _forget(self) -> None:
        self._steps.clear()
        self._scale = 1.0
        # Whether any direction was followed; the newest, the gradient before it, and how far it went.
        self._begun = False
        self._before: tuple[Vector, Vector, float] | None = None
        # The parameters that learned, what they have come to, and what the network could hold of that.
        self._names: list[str] = []
        self._reached: Vector = np.empty(0)
        self._left: Vector = np.empty(0)

    def fit(
        self,
        x: ArrayLike | Mapping[str, ArrayLike],
        y: ArrayLike | Mapping[str, ArrayLike],
        weight: ArrayLike | Mapping[str, ArrayLike] | None = None,
        *,
        iterations: int = 20,
        gradient_tolerance: float = 1e-7,
        change_tolerance: float = 1e-9,
    ) -> list[float]:
        """Learns, until the loss is flat or changes no more; another call goes on with what is known.

        Where weights were set since, or other parameters learn, it begins anew. Whatever ends it early, the
        weights are those after the last iteration that was completed.

        Args:
            x: (rows, *input_shape) the samples; of named inputs a dictionary.
            y: (rows, ...) values, or class indices; of named outputs a dictionary.
            weight: (rows,) how much each sample counts, or (rows, ...) each step or pixel; of named outputs
                these are given by name.
            iterations: The most directions to follow.
            gradient_tolerance: The end is where no element of the gradient is larger,
            change_tolerance: or where weights, or the loss, change by less.

        Returns:
            The loss before the first iteration and after each.

        Raises:
            NonFiniteError: The loss or a gradient is not finite where it begins; or, without a line search,
                where a step ends.
            ShapeError: The data does not fit the network.
            StateError: The network is being trained.
        """
        count = whole("LBFGS", "iterations", iterations, least=1)
        flat = real("LBFGS", "gradient_tolerance", gradient_tolerance, least=0.0)
        small = real("LBFGS", "change_tolerance", change_tolerance, least=0.0)
        engine = engine_of(self.network)
        engine.check_idle("LBFGS")
        # What losses of one's own take is told by targets.
        config, _ = settled_by_targets(engine, self.config, cast("Any", (x, y)))
        if weight is not None:
            y = _counting(engine, y, weight, config.loss)
        y = cast("Any", as_indices(engine, y, config.loss))
        if isinstance(config.loss, Mapping):
            y = cast("Any", by_name("target", y, tuple(config.loss)))
        of_one = isinstance(config.loss, losses.OwnLoss)
        self.config = settled_by_target(engine, config, cast("ArrayLike", y)) if of_one else config
        moved = _Parameters(self.network)
        counts: Any = None
        if weight is not None and isinstance(config.loss, Mapping):
            counts = _weights_of_outputs(engine, weight, len(next(iter(cast("Any", y).values()))))
        elif weight is not None:
            counts = as_real_array(cast("ArrayLike", weight), "float64", what="weight")
        # Training takes a softmax that ends an output into losses over classes.
        names = config.loss if isinstance(config.loss, Mapping) else ("",)
        self._judges = {name: judging(engine, name) for name in names}

        def evaluate(weights: Vector) -> tuple[float, Vector]:
            moved.write(weights)
            try:
                loss, gradient = self._loss(x, y, counts), moved.gradient()
            except NonFiniteError:
                loss = math.nan
            if math.isfinite(loss) and np.isfinite(gradient).all():
                return loss, gradient
            # Further than any step may go.
            return math.inf, np.full_like(weights, math.nan)

        weights = moved.read()
        if self._names == moved.names and np.array_equal(weights, self._left):
            weights = self._reached
        else:
            self._forget()
        self._names = moved.names
        try:
            loss, gradient = evaluate(weights)
            if not math.isfinite(loss):
                raise NonFiniteError("LBFGS: the loss or its gradient is not finite where it begins")
            told = [loss]
            begin = _Point(0.0, loss, gradient, 0.0)
            for reached, found in self._iterations(evaluate, weights, begin, count, flat, small):
                weights = reached
                told.append(found)
        finally:
            moved.write(weights)
            self._reached, self._left = weights, moved.read()
            self.network.zero_gradients()
        return told

    def _iterations(
        self,
        evaluate: Callable[[Vector], tuple[float, Vector]],
        weights: Vector,
        here: _Point,
        count: int,
        flat: float,
        small: float,
    ) -> Iterator[tuple[Vector, float]]:
        """Follows directions from here; yields the weights and the loss after each."""
        loss, gradient = here.loss, here.gradient
        for _ in range(count):
            if np.abs(gradient).max(initial=0.0) <= flat:
                break
            direction = self._direction(gradient)
            before = loss
            slope = float(gradient @ direction)
            if slope > -small:
                break
            first = 1.0 if self._begun else min(1.0, 1.0 / float(np.abs(gradient).sum()))
            begin = _Point(0.0, loss, gradient, slope)
            line = _line(evaluate, weights, direction)
            if self.line_search is None:
                end = line(first * self.learning_rate)
                if not math.isfinite(end.loss):
                    raise NonFiniteError(
                        "LBFGS: a step ends where the loss or its gradient is not finite; the weights are "
                        'those before it. Take a smaller learning_rate, or line_search="wolfe"'
                    )
            else:
                end = _search(line, begin, first * self.learning_rate, float(np.abs(direction).max()))
            self._before, self._begun = (direction, gradient, end.step), True
            weights = weights + end.step * direction
            loss, gradient = end.loss, end.gradient
            yield weights, loss
            if float(np.abs(direction * end.step).max()) <= small or abs(loss - before) < small:
                break

    def _direction(self, gradient: Vector) -> Vector:
        """Returns where to go, by the two loops over what is known of the curvature."""
        if self._before is not None:
            direction, before, step = self._before
            changed, way = gradient - before, direction * step
            product = float(changed @ way)
            if product > 1e-10:
                self._steps.append((way, changed, 1.0 / product))
                self._scale = product / float(changed @ changed)
            # A search that is broken off looks from here again.
            self._before = None
        found = -gradient
        shares = []
        for way, changed, inverse in reversed(self._steps):
            share = inverse * float(way @ found)
            shares.append(share)
            found = found - share * changed
        found = found * self._scale
        for (way, changed, inverse), share in zip(self._steps, reversed(shares), strict=True):
            found = found + way * (share - inverse * float(changed @ found))
        return found

    def _loss(self, x: Any, y: Any, weight: Any) -> float:  # noqa: ANN401 - arrays or names
        """Computes the loss, and leaves its gradients with the network."""
        self.network.zero_gradients()
        output: Any = self.network.forward(x, training=False)
        config = self.config
        if not isinstance(config.loss, Mapping):
            loss, gradient = self._judges[""](
                config.loss,
                output,
                y,
                weight,
                config.label_smoothing,
                config.class_weight,
            )
            self.network.backward(gradient)
            return loss
        total, gradients = 0.0, {}
        of_classes = cast("Mapping[str, list[float]]", config.class_weight or {})
        for name, of in config.loss.items():
            smoothing = config.label_smoothing if losses.target_kind(of) == "classes" else 0.0
            loss, gradient = part_of_loss(
                partial(self._judges[name], of),
                output[name],
                np.asarray(y[name]),
                (None, len(output[name])) if weight is None else (weight.counts[name], weight.divisor),
                smoothing,
                of_classes.get(name),
            )
            share = (config.loss_weights or {}).get(name, 1.0)
            total += share * loss
            gradients[name] = gradient * gradient.dtype.type(share)
        self.network.backward(gradients)
        return total


def _counting(engine: Engine, y: Any, weight: Any, loss: Any) -> Any:  # noqa: ANN401 - arrays or names
    """Returns targets of which those of weight 0 are such as the loss takes."""
    if isinstance(loss, Mapping):
        ports = cast("Ports", engine.ports)
        return counting_by_output(ports, y, weight, loss, ports.labels())
    if isinstance(weight, Mapping):
        raise DataError(
            "weights by name are of named outputs, and this network has one output: give an array"
        )
    known = known_classes(engine).get("")
    labels = losses.is_classification(loss) or known is not None
    return counting(
        as_names(y), as_numpy(weight, what="weight"), labels=labels, own=losses.is_own(loss), classes=known
    )


def _weights_of_outputs(engine: Engine, weight: Any, rows: int) -> OutputWeights:  # noqa: ANN401 - as given
    """Returns how much rows of named outputs count, or places of these."""
    ports = cast("Ports", engine.ports)
    if isinstance(weight, Mapping):
        counts = ports.pack_weights(weight, rows, "float64")
    else:
        counts = as_real_array(weight, "float64", what="weight")
        outputs = len(ports.output_names)
        if counts.shape not in {(rows,), (rows, outputs)}:
            raise ShapeError(
                f"weight: of named outputs expected ({rows},), a number for each sample, or "
                f"({rows}, {outputs}), one for each output; those of steps or pixels come by name, got shape "
                f"{counts.shape}"
            )
    if not counts.any():
        raise DataError("the weight of every row is zero, and at least one must count")
    return OutputWeights.of(ports, counts, rows)


class _Parameters:
    """The parameters that learn, as one vector."""

    def __init__(self, network: Network) -> None:
        learning = learning_parameters(network.build())
        self._held = [
            (layer, name, np.shape(values))
            for layer in network.layers
            for name, values in layer.parameters.items()
            if f"{layer.path}.{name}" in learning
        ]
        if not self._held:
            raise ConfigError("LBFGS: no parameter learns; all are frozen, or there are none")
        self.names = [f"{layer.path}.{name}{shape}" for layer, name, shape in self._held]

    def read(self) -> Vector:
        parts = [np.asarray(layer.parameters[name], np.float64).ravel() for layer, name, _ in self._held]
        return np.concatenate(parts)

    def write(self, weights: Vector) -> None:
        start = 0
        for layer, name, shape in self._held:
            end = start + math.prod(shape)
            layer.parameters[name] = weights[start:end].reshape(shape)
            start = end

    def gradient(self) -> Vector:
        by_layer: dict[str, Mapping[str, NDArray[Any]]] = {}
        parts = []
        for layer, name, _ in self._held:
            if layer.path not in by_layer:
                by_layer[layer.path] = layer.gradients
            parts.append(np.asarray(by_layer[layer.path][name], np.float64).ravel())
        return np.concatenate(parts)


def _line(
    evaluate: Callable[[Vector], tuple[float, Vector]], weights: Vector, direction: Vector
) -> Callable[[float], _Point]:
    def at(step: float) -> _Point:
        loss, gradient = evaluate(weights + step * direction)
        return _Point(step, loss, gradient, float(gradient @ direction))

    return at


def _search(line: Callable[[float], _Point], begin: _Point, step: float, extent: float) -> _Point:
    """Returns a point that meets Wolfe's strong conditions (Nocedal and Wright 2006, 3.5 and 3.6)."""
    gained = _SUFFICIENT * begin.slope
    before, now, tried = begin, line(step), 0
    bracket: list[_Point] = []
    while tried < _TRIES:
        if now.loss > begin.loss + now.step * gained or (tried > 1 and now.loss >= before.loss):
            bracket = [before, now]
            break
        if abs(now.slope) <= -_CURVATURE * begin.slope:
            return now
        if now.slope >= 0:
            bracket = [before, now]
            break
        least, most = now.step + 0.01 * (now.step - before.step), now.step * 10
        before, now = now, line(_cubic(before, now, (least, most)))
        tried += 1
    if not bracket:
        return begin if begin.loss <= now.loss else now
    # The end with the lower loss first.
    low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
    stuck = False
    while tried < _TRIES:
        left, right = sorted((bracket[0].step, bracket[1].step))
        if (right - left) * extent < _NARROW:
            break
        step = _cubic(bracket[0], bracket[1])
        margin = 0.1 * (right - left)
        if min(right - step, step - left) < margin:
            # Near an end twice in a row: further inside.
            if stuck or step >= right or step <= left:
                step = right - margin if abs(step - right) < abs(step - left) else left + margin
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        now = line(step)
        tried += 1
        if now.loss > begin.loss + now.step * gained or now.loss >= bracket[low].loss:
            bracket[high] = now
            low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
            continue
        if abs(now.slope) <= -_CURVATURE * begin.slope:
            return now
        if now.slope * (bracket[high].step - bracket[low].step) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = now
    return bracket[low]


def _cubic(one: _Point, other: _Point, bounds: tuple[float, float] | None = None) -> float:
    """Returns where a cubic through two points, with their slopes, is least within bounds."""
    least, most = bounds or tuple(sorted((one.step, other.step)))
    first, last = (one, other) if one.step <= other.step else (other, one)
    width = last.step - first.step
    if width == 0 or not math.isfinite(one.loss + other.loss):
        return (least + most) / 2
    middle = one.slope + other.slope - 3 * (one.loss - other.loss) / (one.step - other.step)
    square = middle * middle - one.slope * other.slope
    if not square >= 0:
        return (least + most) / 2
    root = math.sqrt(square)
    divisor = last.slope - first.slope + 2 * root
    if divisor == 0:
        return (least + most) / 2
    place = last.step - width * ((last.slope + root - middle) / divisor)
    return min(max(place, least), most)
