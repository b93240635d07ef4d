"""Learning step by step, from data that comes as it comes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, NoReturn, cast

from loom import _native, optimizers
from loom._settings.calls import explained
from loom._settings.checks import flag, whole
from loom._settings.objects import trainer_error, trainer_setting_error
from loom._typing import ArrayLike
from loom.data import TrainingBatch
from loom.data.batches import Named
from loom.engine import engine_of
from loom.errors import DataError, StateError
from loom.measuring import Observe
from loom.measuring.settings import resolve_observe
from loom.network import Network
from loom.network.manual_loop import current_optimizer
from loom.schedules import require_known_epochs, require_known_length
from loom.training.automatic import is_open, settled_by_target
from loom.training.config import TrainingConfig, check_training
from loom.training.feed import counted_share, shared_out
from loom.training.form import Form
from loom.training.labelling import weighed
from loom.training.named_targets import settled_by_targets
from loom.training.ported import packed, settled_outputs
from loom.training.record import record_of
from loom.training.settings import engine_config, refuse_of_steps, with_own_losses
from loom.training.sized import dealt

__all__ = ["Trainer"]

_SETTINGS = frozenset({"config", "lr", *(each.name for each in fields(TrainingConfig))})
"""What somebody may set of a trainer in the hope that it counts."""


class Trainer:
    """Trains a network one update at a time: forward, loss, backward, clip and update in one call.

    For online learning, and for loops that are not `loom.train`'s. The config's loss,
    optimizer, schedule, learning rate and clipping count; epochs, shuffling,
    validation, metrics and early stopping are the caller's, whatever the config says of
    them. The network moves to the config's device, as in `loom.train`.

    What the optimizer keeps of the steps so far belongs to the network. So another learning rate, or another
    loss, takes a new trainer that goes on: `loom.Trainer(net, replace(config, learning_rate=1e-4),
    resume=True)`, with `dataclasses.replace`; and of two trainers of one network the second begins anew what
    both then share.

    Args:
        network: The network; it learns in place.
        config: How the training goes; the defaults where None.
        total_steps: How many steps there will be, for schedules that span the run.
        resume: Goes on with the optimizer's state of the network's last training.
        observe: True, or a `loom.Observe`, measures every layer at every step; see
            `Network.measures`.

    Raises:
        ConfigError: A setting is out of range, the schedule spans the run and nobody says how long it is, or
            the config has `accumulate` or settings of shards: each step is one update.
        DeviceError: The config names a GPU that is not there.

    Examples:
        >>> net = loom.Sequential([nn.Dense(2)], input_shape=3)
        >>> trainer = loom.Trainer(net, loom.TrainingConfig(loss="cross_entropy", learning_rate=0.1))
        >>> first = trainer.step(np.eye(3), np.array([0, 1, 1]))
        >>> trainer.step(np.eye(3), np.array([0, 1, 1])) < first
        True
    """

    @explained(more="the settings stand in the config: loom.Trainer(net, loom.TrainingConfig(...))")
    def __init__(
        self,
        network: Network,
        config: TrainingConfig | None = None,
        *,
        total_steps: int | None = None,
        resume: bool = False,
        observe: bool | Observe = False,
    ) -> None:
        self.network = network
        engine = engine_of(network)
        given = check_training(config)
        refuse_of_steps(
            "loom.Trainer",
            given,
            "each step is one update by the whole of its batch. Give step larger batches, add up gradients "
            "by hand, network.backward before network.apply_gradients, or take loom.train",
        )
        self._config = weighed(engine, settled_outputs(engine, given))
        if total_steps is None:
            require_known_length(
                self.config.schedule,
                "where steps come one by one; say how many, loom.Trainer(..., total_steps=1000), or give the "
                "schedule its steps",
            )
        require_known_epochs(self.config.schedule)
        engine.build()
        engine.check_idle("a trainer")
        engine.place_for_training(self.config.device)
        self._observe = resolve_observe(observe)
        if not is_open(self.config):
            self._follow(self.config)
        self._total = 1 if total_steps is None else whole("Trainer", "total_steps", total_steps, least=1)
        self._resume = flag("Trainer", "resume", resume)
        self._trainer: _native.Trainer | None = None
        self._revision = -1
        self._classes = False

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            raise trainer_error(name)

        def __setattr__(self, name: str, value: object) -> None:
            if name in _SETTINGS:
                raise trainer_setting_error(name)
            super().__setattr__(name, value)

    @property
    def config(self) -> TrainingConfig:
        """How the training goes; "auto" is replaced by the loss that was meant once a batch has told."""
        return self._config

    def _follow(self, config: TrainingConfig) -> None:
        """Takes up the settings, once the loss is among them."""
        config = with_own_losses(config)
        self._config = config
        self._form = Form.of(engine_of(self.network), config)
        self._settings = engine_config(config, self._form.output_shape, observe=self._observe)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a trainer is neither copied nor pickled: what the optimizer keeps belongs to the network, so "
            "that loom.Trainer(copy.deepcopy(net), trainer.config, resume=True) goes on with a copy of it"
        )

    def __repr__(self) -> str:
        return f"Trainer({self.config!r})"

    @explained(y="a batch is two arguments: trainer.step(x, y)")
    def step(self, x: Named, y: Named, weight: Named | None = None) -> float:
        """Learns from one batch.

        Args:
            x: (rows, *input_shape) the samples; of named inputs a dictionary, of open extents also a list.
            y: (rows, ...) values, or class indices; of named outputs a dictionary.
            weight: (rows,) how much each sample counts; of named outputs a dictionary, where it differs.

        Returns:
            The batch's loss before the update; nan where the step was left out.

        Raises:
            ShapeError: The batch does not fit the network.
            NonFiniteError: The loss or a gradient is not finite; nothing has changed.
            StateError: The network is being trained by `loom.train`, or has begun to learn by another
                optimizer since this trainer's last step.
        """
        engine = engine_of(self.network)
        engine.check_idle("a step")
        batch = TrainingBatch(cast("ArrayLike", x), cast("ArrayLike", y), cast("ArrayLike | None", weight))
        config, seen = settled_by_targets(engine, self.config, batch)
        if config != self.config:
            self._follow(config)
        batch = cast("TrainingBatch", packed(engine, self.config, seen))
        sizing = engine.sizing
        if sizing is not None:
            batches, _ = dealt(engine, self.config, [batch])
            batch = next(iter(cast("Iterable[TrainingBatch]", batches)))
        if is_open(self.config):
            self._follow(settled_by_target(engine, self.config, batch.target))
        self._form.forget_weights()
        examples = self._form.examples(batch)
        classes = examples[1].dtype.kind == "i"
        if self._trainer is None or self._revision != engine.revision:
            _native.check_examples(engine.native, self._settings, examples)
            try:
                self._trainer = _native.Trainer(
                    engine.native, self._settings, examples, self._total, self._resume, False
                )
            except StateError:
                self._refuse_another_optimizer()
                raise
            self._resume = True
            self._revision = engine.revision
            self._classes = classes
            record_of(self.network).judged_by = self.config
        if classes != self._classes:
            raise DataError("some batches have class indices as targets and others rows; give one kind only")
        if sizing is not None:
            sizing.take_equal([examples])
            examples = shared_out(examples, counted_share([examples]))
        report = self._trainer.step([examples])
        return report.loss_sum / report.weight if report.weight else float("nan")

    def _refuse_another_optimizer(self) -> None:
        """Says why it cannot go on where the network has learned by another optimizer since the last step."""
        kept = current_optimizer(self.network)
        own = optimizers.resolve(self.config.optimizer)
        if self._trainer is not None and kept is not None and type(kept) is not type(own):
            raise StateError(
                f"the network has learned by {type(kept).__name__} since this trainer's last step, and what "
                f"{type(own).__name__} had kept is gone: it belongs to the network, which learns by one "
                "optimizer at a time. A new trainer begins anew"
            ) from None
