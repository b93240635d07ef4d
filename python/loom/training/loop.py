"""The training loop: the engine's own, in slices of time, with callbacks and progress between them."""

from __future__ import annotations

import json
import math
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from loom import _native, metrics
from loom._interrupts import Interrupts
from loom.callbacks import Callback, CallbackList, EarlyStopping
from loom.data import ArraySource, ByShard, Data, TrainingBatch, as_source
from loom.data.splitting import hold_out
from loom.diagnosis.case import Case
from loom.diagnosis.names import ALL
from loom.engine import engine_of
from loom.errors import ConfigError, DataError
from loom.losses import name_of as loss_name
from loom.losses import read_as
from loom.measuring import BottleneckWarning, Measures, Observe
from loom.measuring.report import bottleneck_message, report
from loom.training.automatic import is_open, settled_by_target
from loom.training.config import TrainingConfig
from loom.training.course import Course
from loom.training.evaluation import Evaluation, in_order, joined
from loom.training.feed import ArrayFeed, BatchFeed
from loom.training.form import Form, Seen
from loom.training.identity import run_identity
from loom.training.labelling import with_indices
from loom.training.logs import logged
from loom.training.notes import read_notes, write_notes
from loom.training.progress import reporter
from loom.training.record import record_of
from loom.training.result import StopReason, TrainingResult
from loom.training.run_keeper import RunKeeper
from loom.training.settings import TargetRule, engine_config, with_own_losses
from loom.training.shard_feed import ShardFeed
from loom.training.sharing import Sharing
from loom.training.signs import case_of, refuse_batches_of_one, warn_of_endings, warn_of_mistakes
from loom.training.trainable import TrainableNetwork
from loom.training.witness import Witness, device_identity

__all__ = ["Run"]

_SLICE_SECONDS = 0.05

_ORDER = "loom.order"
"""What the data's order is kept under, among the callbacks' states."""

Feed: TypeAlias = "ArrayFeed | BatchFeed | ShardFeed"
"""Gives a trainer the data, epoch after epoch."""


class Run:
    """One training run; making it checks everything and changes no weights."""

    def __init__(
        self,
        network: TrainableNetwork,
        data: Data,
        config: TrainingConfig,
        validation: Data | None,
        callbacks: Iterable[Callback],
        resume: bool,
        observe: Observe | None,
        tween: TargetRule | None,
        interrupts: Interrupts,
        keeper: RunKeeper | None,
        seen_by: Witness | None,
        chosen: bool,
        shared: Sharing | None,
    ) -> None:
        self.network = network
        self.chosen = chosen
        self.shared = shared
        self.keeper = keeper
        self.witness = seen_by
        self.engine = engine_of(network)
        self.record = record_of(network)
        self.config = config
        self.interrupts = interrupts
        self.observe, self.tween = observe, tween
        if not is_open(config):
            self._follow(config)
        self.measures = Measures(network)
        self.watched = observe is not None or tween is not None
        self.held_out: Data | None = None
        state = self.engine.native.training_state()
        self.resumed = resume and any(state[count] for count in ("epoch", "batch", "step", "updates"))
        if keeper is not None:
            keeper.before_data()
        with interrupts.open:
            self.feed, self.validation, case = self._data(data, validation)
        config = self.config
        if keeper is not None:
            keeper.after_data()
        if self.resumed and state["batch"]:
            self._check_order()
        if self.form.sizing is not None:
            self.form.sizing.take(self.feed.first[0])
        _native.check_examples(self.engine.native, self.settings, self.feed.first)
        if isinstance(self.feed, ArrayFeed):
            refuse_batches_of_one(self.engine, len(self.feed.first[0]), config.batch_size)
        with interrupts.open:
            if case is not None:
                warn_of_mistakes(case, config.ignore_findings)
            elif not self.resumed and ALL not in config.ignore_findings:
                warn_of_endings(self.engine, config)
        self.total_steps = self.feed.total_steps(config)
        if shared is not None:
            identity = run_identity(data, validation, config, observe, tween)
            identity["network"] = json.loads(self.engine.native.config())
            identity["weights"] = network.fingerprint()
            shared.check_same(identity)
            with interrupts.open:
                config = replace(config, device=shared.device(config.device, placed=self.engine.placed))
        self.engine.place_for_training(config.device)
        if shared is not None:
            # Kinds of GPUs add up in orders of their own.
            shared.check_same({"device": device_identity(self.engine.device)})
        self.progress = reporter(verbose=config.verbose) if shared is None or shared.leads else None
        stopping = config.early_stopping if isinstance(config.early_stopping, EarlyStopping) else None
        with interrupts.open:
            listed = [self.progress, logged(), stopping, *callbacks]
            if shared is not None:
                listed = [*shared.callbacks(hook for hook in listed if hook is not None)]
            # Every process gives a receipt.
            listed.append(seen_by)
        if keeper is not None:
            keeper.check_device(self.engine.device)
            listed += keeper.callbacks(listed)
        # Callbacks have it; the learning rate follows the steps.
        self.params: dict[str, Any] = {
            "epochs": config.epochs,
            "steps": self.feed.steps,
            "batch_size": config.batch_size,
            "metrics": [metrics.name_of(metric) for metric in self.metrics],
            "verbose": config.verbose,
            "chosen_loss": loss_name(config.loss) if chosen else None,
            "device": self.engine.device,
            "resumed": self.resumed,
            "validation_data": self.held_out,
            "config": config,
            "learning_rate": None,
            "samples": 0,
        }
        with interrupts.open:
            hooks = [hook for hook in listed if hook is not None]
            self.hooks = CallbackList(hooks, network, self.params, interrupts)
        if shared is not None:
            shared.begin(wants_batches=self.hooks.wants_batches)
        if shared is not None and not resume:
            shared.split_at_once(self.engine.native)
        self.trainer = self._trainer(resume)
        self.stop_reason: StopReason = "finished"
        self.course = Course() if keeper is None else keeper.course
        # Whether nothing is half done, so that the run can be kept as it is.
        self.settled = False
        # Each layer's link budgets at the ends of epochs, where no history is kept.
        self.budgets: list[NDArray[np.float64]] = []

    def _follow(self, config: TrainingConfig) -> None:
        """Takes up the settings, once the loss is among them."""
        config = with_own_losses(config)
        self.config = config
        self.form = Form.of(self.engine, config)
        shape = self.form.output_shape
        self.settings = engine_config(config, shape, observe=self.observe, tween=self.tween)
        named = isinstance(config.loss, Mapping)
        listed = cast("Sequence[metrics.MetricLike]", config.metrics)
        self.metrics = metrics.resolve_all(listed, None if named else read_as(config.loss))
        self.functions = [metric for metric in self.metrics if not metrics.in_engine(metric)]

    def _form_of(self, first: TrainingBatch) -> Form:
        """Returns what examples look like; chooses the loss by the first of them where it is open."""
        if is_open(self.config):
            self._follow(settled_by_target(self.engine, self.config, first.target))
        return self.form

    def _data(self, data: Data, validation: Data | None) -> tuple[Feed, Evaluation | None, Case | None]:
        """Returns what is learned from, measured on and looked at; runs code of whoever made the data."""
        config = self.config
        source = as_source(data)
        held_out = None if validation is None else as_source(validation)
        if held_out is None and config.validation_split > 0:
            if not isinstance(source, ArraySource):
                raise DataError("validation_split needs data in arrays; give validation= for batches")
            source, held_out = hold_out(source, config.validation_split)
        if held_out is not None:
            self.held_out = held_out.batch if isinstance(held_out, ArraySource) else held_out.batches
        feed: Feed
        if isinstance(source, ArraySource):
            feed = ArrayFeed(source, self.form, config)
        else:
            source.require_epochs(config.epochs)
            position = None if self.keeper is None else self.keeper.position
            epoch = self.engine.native.training_state()["epoch"] if self.resumed else 0
            if self.shared is not None and isinstance(source.batches, ByShard):
                feed = ShardFeed(source.batches, self._form_of, config, epoch, self.shared)
            else:
                feed = BatchFeed(source, self._form_of, config, epoch, position)
        measured = None if held_out is None else Evaluation(self.network, self.config, held_out)
        if measured is not None:
            measured.check()
        case = None
        # What is told of data and endings is of one input and one output.
        if (
            not self.resumed
            and ALL not in config.ignore_findings
            and self.engine.ports is None
            and self.form.sizing is None
        ):
            first = with_indices(source, self.form.classes) if isinstance(source, ArraySource) else feed.first
            held = None if held_out is None else with_indices(held_out, self.form.classes)
            case = case_of(self.engine, self.config, first, held, chosen=self.chosen)
        return feed, measured, case

    def _trainer(self, resume: bool) -> _native.Trainer:
        self.revision = self.engine.revision
        levels = self.engine.observation.levels
        self.observed = levels > 0
        if self.form.sizing is not None:
            self.form.sizing.take(self.feed.first[0])
        trainer = _native.Trainer(
            self.engine.native, self.settings, self.feed.first, self.total_steps, resume, levels
        )
        if self.functions:
            trainer.keep_outputs()
        return trainer

    def result(self) -> TrainingResult:
        """Runs, and says how it went."""
        self.record.judged_by = replace(self.config, early_stopping=None)
        self.record.receipt = None
        started = time.perf_counter()
        if self.resumed:
            self.hooks.load_states(read_notes(self.engine.native))
        keeper = self.keeper
        if keeper is not None and keeper.result is not None:
            self.record.receipt = keeper.result.receipt
            return keeper.result
        with ExitStack() as stack:
            # An `__exit__` is run to its end, whatever is raised, and however often Ctrl-C comes.
            stack.callback(self._let_go)
            self.record.take_notes = self._take_notes
            try:
                self._learn()
                if self.shared is not None and self.shared.gathers:
                    self.shared.gather(self.engine.native, everywhere=True)
            finally:
                try:
                    self.hooks.run("on_train_end", self.course.logs())
                finally:
                    self._take_notes()
            self.engine.native.synchronize()
            self._note_stop()
            seconds = time.perf_counter() - started
            result = self.course.result(seconds, self.engine.device, self.stop_reason, self.hooks.message)
            if self.witness is not None:
                made = self.witness.receipt(self.network, result.loss_history, result.stop_reason)
                result, self.record.receipt = replace(result, receipt=made), made
            if keeper is not None and not result.interrupted:
                keeper.finish(result)
        if self.watched:
            self._warn_of_bottlenecks()
        return result

    def _let_go(self) -> None:
        self.record.take_notes = None
        self.engine.note_change()

    def _learn(self) -> None:
        """Runs all epochs, or as many as nobody stops, and keeps what they have come to."""
        keeper = self.keeper
        try:
            stops = self.hooks.run("on_train_begin", {})
            if self.shared is None:
                self.interrupts.check()
            else:
                self.hooks.stop_requested = stops = self.shared.any(one=stops)
            if keeper is not None:
                keeper.before_epochs()
            if keeper is not None and keeper.ended is not None:
                self.stop_reason, self.hooks.message = keeper.ended["stop_reason"], keeper.ended["message"]
            elif not stops:
                self._epochs()
        except KeyboardInterrupt:
            if self.interrupts.urged:
                raise
            self.interrupts.begin_ending()
            self.stop_reason = "interrupted"
            if keeper is not None and self.settled:
                keeper.save()
            return
        self._note_stop()
        if keeper is not None and keeper.ended is None:
            # Before callbacks clean up, so that a run of more epochs goes on from here.
            keeper.ended = {"stop_reason": self.stop_reason, "message": self.hooks.message}
            keeper.save()

    def _note_stop(self) -> None:
        if self.hooks.stop_requested and self.stop_reason == "finished":
            self.stop_reason = "stopped"

    def _take_notes(self) -> None:
        """Keeps the callbacks' states with the training state, and within epochs the data's order."""
        states = self.hooks.states()
        if self.engine.native.training_state()["batch"]:
            states.append((_ORDER, self.feed.order))
        write_notes(self.engine.native, states)

    def _check_order(self) -> None:
        """Refuses to go on within an epoch whose other steps have been of another order.

        Samples would come twice, and others never.
        """
        kept = dict(read_notes(self.engine.native)).get(_ORDER, {})
        now = self.feed.order
        # What is kept of data that came in another way says nothing of this.
        other = [name for name in now if name in kept and kept[name] != now[name]]
        if other:
            told = "; ".join(f"{name} was {kept[name]} and is {now[name]}" for name in other)
            ends = self.engine.native.training_state()["epoch"] + 1
            raise ConfigError(
                "the training stopped in the middle of an epoch, and from there on some samples would come "
                f"twice and others never: {told}. Let that epoch end as it began, epochs={ends}, and change "
                "this then; or begin anew, resume=False"
            )

    def _warn_of_bottlenecks(self) -> None:
        kept = bool(len(self.measures.history))
        budgets = np.mean(self.budgets, axis=0) if self.budgets and not kept else None
        found = report(self.network, self.settings, budgets).bottlenecks
        if found:
            # Of whoever called `train` or `fit`.
            warnings.warn(bottleneck_message(found), BottleneckWarning, stacklevel=5)

    def _live_measures(self, rate: float) -> dict[str, float]:
        """Returns what is shown of the measures while the network learns."""
        newest = _native.measures(self.engine.native) if self.watched else {"steps": 0}
        if not newest["steps"]:
            return {}
        return {
            "gap": newest["avg_gap"],
            "rate": rate * newest["rate_factor"],
            "explosions": int(newest["explosions"]),
        }

    def _epochs(self) -> None:
        state = self.engine.native.training_state()
        done = state["batch"]
        for epoch in range(state["epoch"], self.config.epochs):
            self.hooks.run("on_epoch_begin", epoch, {})
            if self.shared is not None:
                self.hooks.stop_requested = self.shared.any(one=self.hooks.stop_requested)
            if self.hooks.stop_requested:
                return
            started = time.perf_counter()
            seen = self._steps(done)
            if seen is None:
                return
            done = 0
            if self._finish_epoch(epoch, started, seen):
                return

    def _steps(self, done: int) -> list[Seen] | None:
        """Runs the rest of an epoch; returns outputs and targets where metrics need them.

        Returns None where a callback stopped in the middle of it.
        """
        hooks = self.hooks
        wants_batches = hooks.wants_batches
        seen: list[Seen] = []
        loss_sum = weight = 0.0
        self._follow_changes()
        changed = hooks.may_change_data
        keeper = self.keeper
        if keeper is not None:
            keeper.before_epoch()
        with self.interrupts.open:
            self.feed.begin(self.trainer, done, changed)
        if keeper is not None:
            keeper.within_data(done)
        due = False
        while self._ready():
            self.settled = False
            if keeper is not None and due:
                keeper.save()
            if wants_batches:
                hooks.run("on_train_batch_begin", done, {})
            if (wants_batches or self.shared is not None) and self._stops():
                return None
            if self._follow_changes() and isinstance(self.feed, ArrayFeed):
                self.feed.begin(self.trainer, done, changed)
            single = wants_batches or bool(self.functions) or self.observed
            report = self.feed.run(self.trainer, single, _SLICE_SECONDS, self.shared)
            done += report.steps
            self.params["learning_rate"] = report.rate
            self.course.rows += report.rows
            self.params["samples"] = self.course.rows
            self.course.skipped += report.skipped
            self.course.exploded += report.exploded
            self.course.note_times(report.times, report.parts)
            loss_sum += report.loss_sum
            weight += report.weight
            if self.functions and not report.skipped:
                newest = [self.form.told(*each) for each in self.trainer.newest()]
                read = getattr(self.feed, "newest", [])
                if read and self.form.ports is not None:
                    # What a step in shards gives is of one batch.
                    newest = newest if self.shared is None else [joined(newest)]
                    seen += [
                        self.form.seen(examples[0], cast("Any", made), cast("Any", wanted), examples[2])
                        for examples, (made, wanted, _) in zip(read, newest, strict=True)
                    ]
                else:
                    seen += newest
            if self.observed:
                with self.interrupts.open:
                    self.engine.observation.tell(self.trainer.layer_statistics())
            if wants_batches:
                loss = report.loss_sum / report.weight if report.weight else report.loss
                hooks.run("on_train_batch_end", done - 1, {"loss": loss})
            if self.progress is not None:
                mean = loss_sum / weight if weight else math.nan
                live = self._live_measures(report.rate)
                self.progress.on_progress(done, self.feed.steps, mean, live)
            if keeper is not None:
                # What metrics have summed up is in no state.
                due = keeper.is_due(report.steps) and not self.metrics
                with self.interrupts.open:
                    keeper.note_place(self.feed.position())
                # Where data is asked for its position, the next batch moves that on.
                self.settled = not self.metrics and keeper.position is None
            if self._stops():
                return None
            self._check()
        self.settled = False
        return seen

    def _stops(self) -> bool:
        """Whether a callback ends the training after a step, here or in another process."""
        hooks = self.hooks
        if self.shared is not None and self.shared.counts_batches:
            hooks.stop_requested = self.shared.any(one=hooks.stop_requested)
        return hooks.stop_requested

    def _check(self) -> None:
        """Lets a Ctrl-C end the training, in all its processes after the same step."""
        if self.shared is None:
            self.interrupts.check()
        else:
            self.shared.check()

    def _ready(self) -> bool:
        """Whether the epoch has another step; takes it from the user's iterator."""
        with self.interrupts.open:
            return self.feed.ready()

    def _follow_changes(self) -> bool:
        """Prepares anew, without losing anything, after a callback has changed the layers."""
        if self.revision == self.engine.revision:
            return False
        if self.shared is not None:
            # Which layers there are does not change while they train: each process goes on with its part.
            self.shared.split_at_once(self.engine.native)
        self.trainer = self._trainer(resume=True)
        return True

    def _finish_epoch(self, epoch: int, started: float, seen: list[Seen]) -> bool:
        """Measures, records and tells the callbacks what an epoch has come to; whether they stop the run.

        What was learned is recorded, and the callbacks hear of it, even if measuring is cut short.
        """
        loss, known = self.trainer.end_epoch()
        if self.watched and self.measures.steps:
            self.budgets.append(self.measures.link_budgets)
        names = ["loss", *(metrics.name_of(metric) for metric in self.metrics)]
        logs = {"loss": loss}
        interrupted: KeyboardInterrupt | None = None
        try:
            with self.interrupts.open:
                logs.update(in_order(self.metrics, known, seen))
            logs.update(self._validate(epoch, names))
        except KeyboardInterrupt as interrupt:
            interrupted = interrupt
        finally:
            if self.validation is not None:
                names += [f"val_{name}" for name in (*names, *self.validation.loss_names)]
            logs = {name: logs.get(name, math.nan) for name in names}
            for name, value in logs.items():
                self.course.history.setdefault(name, []).append(value)
            self.course.epoch_times.append(time.perf_counter() - started)
        stops = self.hooks.run("on_epoch_end", epoch, logs)
        if self.shared is not None and self.shared.agree(self.network.fingerprint(), stops=stops):
            self.hooks.stop_requested = stops = True
        if interrupted is not None:
            raise interrupted
        if self.keeper is not None:
            self.keeper.end_epoch(epoch, logs)
            with self.interrupts.open:
                self.keeper.note_place(self.feed.position())
            if not stops and epoch + 1 < self.config.epochs:
                self.settled = True
                self._check()
                self.settled = False
                self.keeper.may_save()
        elif self.shared is not None and not stops:
            self._check()
        return stops

    def _validate(self, epoch: int, names: list[str]) -> dict[str, float]:
        if self.validation is None:
            return {}
        if (epoch + 1) % self.config.validation_frequency:
            return dict.fromkeys((f"val_{name}" for name in (*names, *self.validation.loss_names)), math.nan)
        try:
            self.hooks.run("on_test_begin", {})
            with self.interrupts.open:
                found = self.validation.run()
        except BaseException:
            self.hooks.end_measuring()
            raise
        self.hooks.run("on_test_end", found)
        return {f"val_{name}": value for name, value in found.items()}
