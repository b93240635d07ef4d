"""Learning from a stream of samples while a mesh is clocked."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from os import PathLike
from typing import Any, TypeAlias, cast

from loom import _native
from loom._interrupts import Interrupts
from loom._settings.checks import flag, whole
from loom._settings.suggestions import shown
from loom._typing import ArrayLike
from loom.convert import as_numpy
from loom.data import as_target
from loom.engine import engine_of
from loom.engine.class_axis import leads_with_channels
from loom.engine.labels import as_indices
from loom.errors import ConfigError, DataError
from loom.grid import locate_given
from loom.losses import (
    AUTO,
    ClassWeight,
    OwnLoss,
    class_count,
    expand_class_weight,
    has_weight,
    is_classification,
    suited,
)
from loom.measuring import Observe
from loom.measuring.settings import resolve_observe, watch_settings
from loom.mesh.keeping import MeshKeeper
from loom.mesh.mesh import Mesh, native_mesh
from loom.mesh.result import SteppingResult
from loom.schedules import require_known_epochs, require_known_length
from loom.training.automatic import is_open
from loom.training.config import TrainingConfig, check_training
from loom.training.identity import settings_identity
from loom.training.labelling import weighed
from loom.training.named_targets import settled_by_targets
from loom.training.output_figures import target_kinds
from loom.training.ported import settled_outputs
from loom.training.record import record_of
from loom.training.run_folder import RunFolder
from loom.training.run_store import RunStore
from loom.training.settings import engine_config, refuse_of_steps
from loom.training.sharing import require_alone
from loom.tweening.config import TweenConfig, check_tween

__all__ = ["Stepper", "SteppingResult", "train_stepping"]

Sampled: TypeAlias = "ArrayLike | Mapping[str, ArrayLike]"
"""A sample's input or target: an array, or of named inputs and outputs arrays by name."""

Stream: TypeAlias = "Iterable[tuple[Sampled, Sampled | None]]"

_END = object()


class Stepper:
    """Trains a mesh one sample at a time, for streams that depend on what the mesh has answered.

    Each sample is the input for some ticks; then the output cell is compared with the sample's
    target, where it has one. Every so many samples the mean gradient of the losses since the last
    update goes back through the window, and the weights move.

    Args:
        mesh: The mesh; it is in training mode.
        config: Loss, optimizer, schedule, learning rate and clipping count; the defaults where
            None. The mesh stays where it is.
        ticks: Ticks for each sample.
        update_every: Samples between two updates, with targets or without.
        output: The cell whose output is compared with targets; where None the last one, or, where outputs
            have names, all of these: the config then has a loss for each, as in `loom.train`.
        total_updates: How many updates there will be, for schedules that span the run.
        resume: Goes on with the optimizer's state of the network's last training.
        tween: Learns by neural tweening: every layer has a target at every tick; its rule, depth
            scale and measures count, and explosions are taken back. Its mode is "chain_rule", or
            "layerwise" in a grid without links. With several `local_steps` layers take more of them
            toward the targets of all ticks that a target has reached.
        observe: True, or a `loom.Observe`, measures every layer; see `Network.measures`.

    Raises:
        ConfigError: A setting is out of range, the schedule spans the run and nobody says how long it is, or
            the config has regularizers, gradient noise, `accumulate` or settings of shards.
        InvalidValueError: The window is shorter than the ticks between two updates, the output cell
            ends in a softmax that the loss computes itself or hands on the input alone, or the tween
            mode is one of the difference modes, whose feedback maps know no ticks.
        StateError: The mesh is not in training mode, or targets are layerwise and there are links.

    Examples:
        >>> net = loom.Network(input_shape=1, grid=(1, 2))
        >>> _ = net[0, 0].add(nn.Dense(8, activation="tanh"))
        >>> _ = net[0, 1].add(nn.Dense(1))
        >>> _ = net.link((0, 0), (0, 0), combine="concat")
        >>> mesh = loom.Mesh(net, window=4)
        >>> stepper = loom.Stepper(mesh, loom.TrainingConfig(learning_rate=0.05))
        >>> stepper.step(np.ones((1, 1)))
        >>> losses = [stepper.step(np.ones((1, 1)), np.full((1, 1), 0.5)) for _ in range(100)]
        >>> losses[-1] < losses[0]
        True
    """

    def __init__(
        self,
        mesh: Mesh,
        config: TrainingConfig | None = None,
        *,
        ticks: int = 1,
        update_every: int = 1,
        output: Sequence[int] | None = None,
        total_updates: int | None = None,
        resume: bool = False,
        tween: TweenConfig | None = None,
        observe: bool | Observe = False,
    ) -> None:
        settings = check_training(config)
        if not isinstance(mesh, Mesh):
            raise ConfigError(f"a Stepper trains a loom.Mesh, got {shown(mesh)}")
        if settings.regularizers or settings.gradient_noise:
            # Updates between windows are without them, and nobody would notice.
            raise ConfigError(
                "a mesh learns without regularizers and gradient_noise; leave them out, an optimizer's "
                "weight_decay counts"
            )
        if settings.saved_activations is not None:
            raise ConfigError("a mesh keeps what its cells held as they held it; leave saved_activations out")
        refuse_of_steps(
            "a loom.Stepper",
            settings,
            "samples come one by one, and how many of them go into an update is said by update_every=",
        )
        network = mesh.network
        engine = engine_of(network)
        ports = engine.ports
        self._ports = ports if output is None and ports is not None and ports.outputs else None
        if self._ports is not None:
            settings = replace(weighed(engine, settled_outputs(engine, settings)), metrics=())
        elif isinstance(settings.loss, Mapping):
            raise ConfigError(
                "losses by name are of named outputs, and samples are compared with one cell's: give one loss"
            )
        if output is None:
            settings = weighed(engine, settings)
        # What another cell makes is of no class that the network has names for.
        self._knows_labels = output is None
        self._chooses = is_open(settings)
        self._seen = False
        self._own = settings.loss if isinstance(settings.loss, OwnLoss) else None
        settings = replace(settings, loss="mse") if self._chooses and self._own is None else settings
        engine.check_idle("a stepper")
        first = "gpu:0" if settings.device == "gpu" else settings.device
        if first not in {"auto", network.device}:
            raise ConfigError(
                f"the mesh is on {network.device}, the config names {settings.device}; move the network "
                "before the mesh is made"
            )
        if output is None:
            cell = None
            self._shape = network.output_shape
        else:
            cell, layer = locate_given(engine.grid, output)
            if layer is not None:
                raise ConfigError(f"output is a cell, (depth, row, column), not a layer; got {shown(output)}")
            self._shape = tuple(mesh.output(cell).shape[1:])
        self._channels_first = leads_with_channels(engine.config, self._shape, cell)
        extents = (
            whole("Stepper", "ticks", ticks, least=1),
            whole("Stepper", "update_every", update_every, least=1),
            1 if total_updates is None else whole("Stepper", "total_updates", total_updates, least=1),
        )
        rule = None if tween is None else check_tween(tween)
        if total_updates is None:
            require_known_length(
                settings.schedule,
                "where samples come one by one; say how many updates there will be, total_updates=1000, or "
                "give the schedule its steps",
            )
        require_known_epochs(settings.schedule)
        self.mesh = mesh
        self._made_of = (extents, cell, flag("Stepper", "resume", resume))
        self._rules = (resolve_observe(observe), rule)
        self._follow(settings)

    def _follow(self, settings: TrainingConfig) -> None:
        """Takes up the settings; the loss among them is mse until a target says otherwise."""
        observe, tween = self._rules
        known = replace(settings, metrics=())
        learning = engine_config(known, self._shape, observe=observe, tween=tween)
        self.config = settings
        by_output = settings.loss if isinstance(settings.loss, Mapping) else {}
        self._of_outputs = target_kinds(by_output)
        self._classes = not by_output and is_classification(settings.loss)
        of_one = None if by_output else cast("ClassWeight | None", settings.class_weight)
        self._of_classes = expand_class_weight(of_one, class_count(self._shape))
        self._native = _native.Stepper(native_mesh(self.mesh), learning, *self._made_of)
        record_of(self.mesh.network).judged_by = settings

    def _choose(self, target: ArrayLike) -> None:
        """Chooses the loss by the first target; of one of the user's own, what it takes."""
        self._chooses = False
        loss = suited(self._shape, as_numpy(target, what="target"))
        if self._own is not None:
            self._refollow(replace(self.config, loss=self._own.of_classes(classes=loss == "cross_entropy")))
            return
        if loss == self.config.loss:
            return
        if self._seen:
            raise ConfigError(
                f'the first target has class labels, for which loss="{loss}" is right: name it in the '
                "config, since samples without targets came before"
            )
        self._follow(replace(self.config, loss=loss))

    def _refollow(self, settings: TrainingConfig) -> None:
        """Takes up what targets say of losses of the user's own, before anything was seen."""
        if self._seen:
            raise ConfigError(
                "what a loss of your own takes is told by the first target, and samples without targets came "
                "before: begin with one that has a target"
            )
        self._follow(settings)

    def step(self, x: Sampled, y: Sampled | None = None) -> float | None:
        """Shows a sample to the mesh, and learns from its target.

        Args:
            x: (rows, *input_shape) the input; of named inputs a dictionary of arrays.
            y: (rows, ...) values, or class indices; of named outputs a dictionary of arrays. None where there
                is nothing to learn.

        Returns:
            The loss; None without a target, or where `class_weight` is zero for all of its classes, from
            which nothing is learned.

        Raises:
            ShapeError: The sample does not fit the mesh.
            NonFiniteError: The loss or a gradient is not finite.
            StateError: The network has changed since the mesh was made, or is training.
        """
        engine = engine_of(self.mesh.network)
        engine.check_idle("a step")
        sample = engine.as_input(x)
        target = None
        if y is not None and self._ports is not None:
            settled, _ = settled_by_targets(engine, self.config, cast("Any", (None, y)))
            if settled != self.config:
                self._refollow(settled)
            target = self._ports.pack_targets(y, self._of_outputs, engine.precision)
        elif y is not None:
            array = cast("ArrayLike", y)
            if self._knows_labels:
                judged_by = AUTO if self._chooses and self._own is None else self.config.loss
                array = cast("ArrayLike", as_indices(engine, array, judged_by))
            if self._chooses:
                self._choose(array)
            target = as_target(
                array,
                self._shape,
                classification=self._classes,
                precision=engine.precision,
                channels_first=self._channels_first,
            )
            weights = self._of_classes if target.dtype.kind == "i" else None
            if weights is not None and not has_weight(target, weights).any():
                # The mean over rows whose classes have no weight is none.
                target = None
        loss = self._native.step(sample, target)
        self._seen = True
        return loss

    def update(self) -> None:
        """Updates by the losses since the last update, before its time; nothing where there are none."""
        engine_of(self.mesh.network).check_idle("an update")
        self._native.update()

    @property
    def result(self) -> SteppingResult:
        """What training has done so far; it has no total time."""
        return SteppingResult(**self._native.result(), device=self.mesh.network.device)

    def __repr__(self) -> str:
        return f"Stepper({self.mesh!r}, {self.config!r})"


def train_stepping(
    mesh: Mesh,
    stream: Stream,
    config: TrainingConfig | None = None,
    *,
    ticks: int = 1,
    update_every: int = 1,
    output: Sequence[int] | None = None,
    total_updates: int | None = None,
    resume: bool = False,
    tween: TweenConfig | None = None,
    observe: bool | Observe = False,
    run: RunFolder | str | PathLike[str] | None = None,
) -> SteppingResult:
    """Trains a mesh on a stream, by truncated backpropagation through time or by tweening.

    Ctrl-C ends the run after the sample: the network keeps what it has learned, and the result says
    so. What is left at the end makes a last update.

    Args:
        mesh: The mesh, in training mode.
        stream: (x, y) pairs, y None where there is nothing to learn; with names dictionaries.
        config: As in `Stepper`, as all that follows.
        ticks: Ticks for each sample.
        update_every: Samples between two updates.
        output: As in `Stepper`.
        total_updates: How many updates there will be, for schedules that span the run.
        resume: Goes on with the optimizer's state of the network's last training.
        tween: Learns by neural tweening, with targets at every tick.
        observe: Measures every layer.
        run: A folder, or a `loom.RunFolder`, that keeps the run, as in `loom.train`. The stream is gone
            through up to where the run goes on; one with `state_dict` and `load_state_dict` goes there by
            itself, which one that depends on what the mesh answers has to. Nothing is the best there.

    Returns:
        The losses and counts.

    Raises:
        ConfigError: A setting is out of range.
        DataError: The stream holds something else than pairs.
        ShapeError: A sample does not fit.
        NonFiniteError: A loss or gradient is not finite.
        StateError: The mesh is not in training mode, or its network has changed.
        KeyboardInterrupt: Ctrl-C came twice, or once with `on_interrupt="raise"` in the config.

    Examples:
        >>> net = loom.Network(input_shape=1, grid=(1, 2))
        >>> _ = net[0, 0].add(nn.Dense(8, activation="tanh"))
        >>> _ = net[0, 1].add(nn.Dense(1))
        >>> _ = net.link((0, 0), (0, 0), combine="concat")
        >>> bits = np.random.default_rng(0).choice([-1.0, 1.0], (200, 1, 1))
        >>> shifted = [None, None, *bits[:-2]]
        >>> mesh = loom.Mesh(net, window=6)
        >>> config = loom.TrainingConfig(learning_rate=0.02)
        >>> result = loom.train_stepping(mesh, zip(bits, shifted), config, update_every=2)
        >>> result.samples, result.updates, len(result.losses)
        (200, 99, 198)
    """
    started = time.perf_counter()
    settings, watch = check_training(config), resolve_observe(observe)
    if run is not None and isinstance(settings.loss, str) and settings.loss == AUTO:
        # What makes a run the one that it is, is known before its stream is gone through.
        settings = replace(settings, loss="mse")
    keeper: MeshKeeper | None = None
    interrupted = False
    with Interrupts() as interrupts, ExitStack() as stack:
        if run is not None:
            if not isinstance(mesh, Mesh):
                raise ConfigError(f"train_stepping trains a loom.Mesh, got {mesh!r}")
            require_alone("train_stepping")
            identity = {
                "learning": "stepping",
                "training": settings_identity(settings),
                "tween": None if tween is None else check_tween(tween).engine_settings(),
                "observe": None if watch is None else watch_settings(watch),
                "stepping": {
                    "ticks": ticks,
                    "update_every": update_every,
                    "output": None if output is None else list(output),
                    "total_updates": total_updates,
                    "rows": mesh.rows,
                    "window": mesh.window,
                },
                "data": {"type": type(stream).__qualname__},
            }
            keeper = MeshKeeper(stack.enter_context(RunStore(run)), mesh, identity)
            resume = resume or keeper.resumes
            if keeper.result is not None:
                return keeper.result
        stepper = Stepper(
            mesh,
            settings,
            ticks=ticks,
            update_every=update_every,
            output=output,
            total_updates=total_updates,
            resume=resume,
            tween=tween,
            observe=observe,
        )
        seen = 0 if keeper is None else keeper.before.samples
        try:
            with interrupts.open:
                samples = _samples(stream, keeper)
            while True:
                with interrupts.open:
                    sample = next(samples, _END)
                if sample is _END:
                    break
                stepper.step(*_pair(sample))
                seen += 1
                # Between two updates a mesh's window holds what no file does.
                if keeper is not None and keeper.is_due() and seen % update_every == 0:
                    with interrupts.open:
                        position = _position(stream)
                    keeper.save(stepper.result, position)
                interrupts.check()
        except KeyboardInterrupt:
            if interrupts.urged:
                raise
            interrupts.begin_ending()
            interrupted = True
            # A stream that says where it is may have gone on already.
            if keeper is not None and seen % update_every == 0 and not hasattr(stream, "state_dict"):
                keeper.save(stepper.result, None)
        stepper.update()
        if keeper is not None and not interrupted:
            return keeper.finish(stepper.result)
    interrupted = interrupts.came_late() or interrupted
    if interrupts.urged or (interrupted and settings.on_interrupt == "raise"):
        raise KeyboardInterrupt
    result = stepper.result if keeper is None else keeper.total(stepper.result)
    seconds = time.perf_counter() - started
    return replace(result, total_time=seconds, interrupted=interrupted)


def _samples(stream: Stream, keeper: MeshKeeper | None) -> Iterator[object]:
    """Returns what is still to be learned from."""
    anything: Any = stream
    goes_on = keeper is not None and keeper.position is not None
    if keeper is not None and goes_on:
        anything.load_state_dict(keeper.position)
    try:
        found: Iterator[object] = iter(anything)
    except TypeError as error:
        raise DataError(f"train_stepping: stream must give (x, y) pairs, got {shown(stream)}") from error
    for _ in range(0 if keeper is None or goes_on else keeper.before.samples):
        next(found, None)
    return found


def _position(stream: Stream) -> object:
    """Returns what a stream says of where it is; None where it says nothing."""
    anything: Any = stream
    stateful = hasattr(stream, "state_dict") and hasattr(stream, "load_state_dict")
    return anything.state_dict() if stateful else None


def _pair(sample: object) -> tuple[Sampled, Sampled | None]:
    if isinstance(sample, (tuple, list)) and len(sample) == 2:
        return sample[0], sample[1]
    raise DataError(f"a stream holds (x, y) pairs, got {type(sample).__name__}")
