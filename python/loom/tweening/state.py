"""Learning by targets, call by call."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from typing import Any, NoReturn

from numpy.typing import NDArray

from loom import _native
from loom._settings.checks import file_path, flag, real
from loom._typing import ArrayLike, RealArray
from loom.convert import as_real_array
from loom.data import as_target
from loom.engine import engine_of
from loom.engine.labels import indexed
from loom.errors import InvalidValueError, StateError
from loom.losses import LossLike
from loom.measuring import Measures
from loom.measuring.report import TweenReport, report
from loom.network import Network
from loom.schedules import require_known_epochs
from loom.training.automatic import settled_by_target
from loom.training.config import TrainingConfig
from loom.training.form import Form
from loom.training.labelling import weighed
from loom.training.record import record_of
from loom.training.settings import base_rate, engine_config
from loom.tweening.config import TweenConfig, check_tween
from loom.tweening.feedback import FeedbackMaps

__all__ = ["TweenState"]


class TweenState(Measures):
    """A network that learns by targets, and what each of its layers makes of them.

    One step is four calls: `forward`, `backward`, `measure` and `apply`; `step` makes all four.
    Targets are class indices or one-hot rows for a loss that takes classes, values otherwise.
    What was measured, velocities and feedback maps are the network's own, and stay with it.

    Args:
        network: The network; it learns in place.
        config: How it learns; the defaults where None.
        loss: The last layer's loss, or its name; or a `TrainingConfig`, of which the loss and its
            settings, clipping, learning rate, schedule, seed and device count.
        resume: Goes on from what the network's last training has left; otherwise that is
            forgotten, feedback maps aside.

    Raises:
        ConfigError: A setting is out of range.
        ShapeError: The layers do not fit together.
        StateError: The mode needs a feedback map that a layer does not have; or what there is to
            resume from belongs to another optimizer.
        DeviceError: The config names a GPU that is not there.

    Examples:
        >>> net = loom.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(2)], input_shape=3)
        >>> state = loom.TweenState(net, loom.TweenConfig(base_rate=0.1), loss="cross_entropy")
        >>> x, y = np.eye(3), np.array([0, 1, 1])
        >>> state.forward(x).shape
        (3, 2)
        >>> first = state.backward(y)
        >>> state.measure()
        >>> state.apply()
        True
        >>> state.step(x, y) < first
        True
        >>> [target.shape for target in state.backward_targets]
        [(3, 8), (3, 2)]
    """

    _network: Network

    def __init__(
        self,
        network: Network,
        config: TweenConfig | None = None,
        loss: LossLike | TrainingConfig = "mse",
        resume: bool = False,
    ) -> None:
        super().__init__(network)
        ports = engine_of(network).ports
        if ports is not None and (ports.inputs or ports.outputs):
            raise InvalidValueError(
                "a TweenState takes a network with one input and one output, and this one has names for "
                "them; loom.TweenTrainer trains it, with targets by the chain rule"
            )
        self._configure(config, loss if isinstance(loss, TrainingConfig) else TrainingConfig(loss=loss))
        engine = engine_of(network)
        engine.check_idle("a TweenState")
        engine.place_for_training(self.training.device)
        self._prepare(resume=flag("TweenState", "resume", resume))

    @classmethod
    def left_by(cls, network: Network, config: TweenConfig, training: TrainingConfig) -> TweenState:
        """Returns a view of what learning this way has left; it can go on from there."""
        state = cls.__new__(cls)
        Measures.__init__(state, network)
        state._configure(config, training)
        return state

    def _configure(self, config: TweenConfig | None, training: TrainingConfig) -> None:
        self.config = check_tween(config)
        engine = engine_of(self._network)
        training = weighed(engine, settled_by_target(engine, training, None))
        self.training = training
        self._form = Form.of(engine_of(self._network), training)
        self._settings = engine_config(training, self._form.output_shape, tween=self.config)
        self._native: _native.TweenState | None = None
        self._revision = -1

    def _prepare(self, *, resume: bool) -> _native.TweenState:
        engine = engine_of(self._network)
        require_known_epochs(self.training.schedule)
        self._native = _native.TweenState(engine.native, self._settings, resume)
        self._revision = engine.revision
        record_of(self._network).judged_by = replace(self.training, early_stopping=None)
        return self._native

    def _current(self) -> _native.TweenState:
        """Returns the engine's state, made anew where the network has changed since."""
        if self._native is None or self._revision != engine_of(self._network).revision:
            return self._prepare(resume=True)
        return self._native

    @property
    def network(self) -> Network:
        """The network."""
        return self._network

    # The four calls

    def forward(self, x: ArrayLike) -> RealArray:
        """Runs every layer forward, and keeps what each has made.

        Args:
            x: (rows, *input_shape) the samples.

        Returns:
            (rows, *output_shape) in the network's precision.

        Raises:
            ShapeError: The samples do not have the network's input shape.
            NonFiniteError: They hold NaN or infinity.
            StateError: The network is being trained by another.
        """
        engine = engine_of(self._network)
        engine.check_idle("forward")
        array = engine.as_input(x)
        return self._current().forward(array)

    def backward(self, y: ArrayLike, weight: ArrayLike | None = None) -> float:
        """Makes every layer's target.

        Args:
            y: (rows, ...) what was wanted: values, class indices, labels that the network has learned, or one
                row for each.
            weight: (rows,) how much each sample counts.

        Returns:
            The loss.

        Raises:
            DataError: A label is of no class.
            StateError: There was no forward pass, or the weights have moved since.
            ShapeError: The targets do not fit the output.
        """
        engine_of(self._network).check_idle("backward")
        form = self._form
        target = as_target(
            indexed(y, form.classes),
            form.output_shape,
            classification=form.classification,
            precision=form.precision,
            channels_first=form.channels_first,
        )
        weights = None if weight is None else as_real_array(weight, form.precision, what="weight")
        return self._called("backward", "forward").backward(target, weights)

    def measure(self) -> None:
        """Fills the measures, and looks whether the step before has made the network explode.

        Raises:
            StateError: There was no backward pass.
        """
        engine_of(self._network).check_idle("measure")
        self._called("measure", "backward").measure()

    def apply(self, rate: float | None = None) -> bool:
        """Updates every layer from its own target; after an explosion it takes the step before back.

        Args:
            rate: The learning rate, before depth scale and gate; the adaptive one where None.

        Returns:
            Whether the layers were updated.

        Raises:
            StateError: The step was not measured.
            NonFiniteError: The loss is infinite or NaN, and explosions are not detected.
        """
        engine_of(self._network).check_idle("apply")
        given = None if rate is None else real("apply", "rate", rate, least=0.0)
        return self._called("apply", "measure").apply(given)

    def step(
        self, x: ArrayLike, y: ArrayLike, weight: ArrayLike | None = None, rate: float | None = None
    ) -> float:
        """Learns from one batch: `forward`, `backward`, `measure` and `apply`.

        Args:
            x: (rows, *input_shape) the samples.
            y: (rows, ...) what was wanted.
            weight: (rows,) how much each sample counts.
            rate: The learning rate of this step, as in `apply`; the adaptive one where None.

        Returns:
            The loss before the update.

        Raises:
            ShapeError: The batch does not fit the network.
            NonFiniteError: The loss is infinite or NaN, and explosions are not detected.
            StateError: The network is being trained by another.
        """
        self.forward(x)
        loss = self.backward(y, weight)
        self.measure()
        self.apply(rate)
        return loss

    def _called(self, call: str, before: str) -> _native.TweenState:
        if self._native is None:
            raise StateError(f"{call} comes after {before}; call {before} first")
        return self._native

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the network to a file, with all that learning goes on from and what layers made.

        `loom.load` reads the network; a `TweenState` of it with `resume=True` goes on bit for bit, and holds
        the activations, targets and gradients of the newest step until its next forward pass. A step that
        was begun is begun anew from there.

        Args:
            path: The file; an older one is replaced at the end.

        Raises:
            FileError: The file cannot be written.
            StateError: The network is being trained by another.

        Examples:
            >>> import tempfile
            >>> from pathlib import Path
            >>> state = loom.TweenState(loom.Sequential([nn.Dense(2)], input_shape=3))
            >>> loss = state.step(np.eye(3), np.ones((3, 2)))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     state.save(Path(folder) / "step.loom")
            ...     loaded = loom.load(Path(folder) / "step.loom")
            >>> resumed = loom.TweenState(loaded, resume=True)
            >>> bool((resumed.backward_targets[0] == state.backward_targets[0]).all())
            True
        """
        engine_of(self._network).check_idle("saving a TweenState")
        self._current().save(file_path("TweenState.save", path))

    # What layers made

    @property
    def forward_acts(self) -> list[NDArray[Any]]:
        """(rows, ...) what each layer made in the newest forward pass, logits as they are."""
        return self._called("forward_acts", "forward").activations()

    @property
    def backward_targets(self) -> list[NDArray[Any]]:
        """(rows, ...) each layer's target in the newest backward pass; the last is the real one.

        The last layer's gap compares it with what the output means: probabilities, where the loss
        takes logits. So does, in every mode, that of the layer below a last softmax which is one
        with the loss: its target is the real one, too. Where links arrive behind the last layer, its
        target is like the others'. Layers below one that reads indices keep what they made.
        """
        return self._called("backward_targets", "backward").targets()

    @property
    def chain_gradients(self) -> list[NDArray[Any]]:
        """(rows, ...) the loss's gradient with respect to each layer's output, in chain_rule.

        Where a last softmax is one with the loss, they end at the layer below it.

        Raises:
            StateError: There was no backward pass, or the mode is another.
        """
        return self._called("chain_gradients", "backward").chain_gradients()

    # What is kept from step to step

    @property
    def adaptive_rate(self) -> float:
        """The learning rate, before any schedule, as explosions have left it."""
        return base_rate(self.training, self.config) * self.rate_factor

    @property
    def weight_velocity(self) -> dict[str, NDArray[Any] | dict[str, NDArray[Any]]]:
        """Each layer's velocity by its path: an array like the weight, or a dict where there are several.

        Raises:
            InvalidValueError: The config's optimizer keeps no velocity.
        """
        return self._velocities(biases=False)

    @property
    def bias_velocity(self) -> dict[str, NDArray[Any] | dict[str, NDArray[Any]]]:
        """The same of biases; layers without any are left out.

        Raises:
            InvalidValueError: The config's optimizer keeps no velocity.
        """
        return self._velocities(biases=True)

    def _velocities(self, *, biases: bool) -> dict[str, NDArray[Any] | dict[str, NDArray[Any]]]:
        found: dict[str, NDArray[Any] | dict[str, NDArray[Any]]] = {}
        native = engine_of(self._network).native
        for layer in self._network.layers:
            names = [name for name in layer.parameters if ("bias" in name) == biases]
            arrays = {name: _native.moment(native, layer.at, name, "velocity") for name in names}
            if len(arrays) == 1:
                found[layer.path] = next(iter(arrays.values()))
            elif arrays:
                found[layer.path] = arrays
        return found

    @property
    def feedback(self) -> FeedbackMaps:
        """The feedback maps that learn, by the path of the layer that each goes back through."""
        return FeedbackMaps(self._network)

    def report(self) -> TweenReport:
        """Returns a table of every layer: how targets pass it, its measures, whether it is a bottleneck."""
        return report(self._network, self._settings)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a TweenState is neither copied nor pickled: state.save(path) keeps it, and "
            "loom.TweenState(loom.load(path), state.config, state.training, resume=True) goes on from there"
        )

    def __repr__(self) -> str:
        return (
            f"TweenState({self.config.mode}, {self.steps} steps, mean gap {self.mean_gap:.4g}, "
            f"{self.explosion_count} explosions)"
        )
