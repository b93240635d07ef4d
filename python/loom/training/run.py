"""A training from what was asked for to its result: what is settled before its loop, and after it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from os import PathLike
from threading import get_ident
from typing import Any, cast

from loom import _native
from loom._interrupts import Interrupts
from loom._settings.checks import flag
from loom._settings.suggestions import shown
from loom.callbacks import Callback
from loom.data import Data
from loom.engine import engine_of
from loom.errors import ConfigError
from loom.losses import AUTO
from loom.measuring import Observe
from loom.training.automatic import settled, settled_by_target
from loom.training.config import TrainingConfig, check_training
from loom.training.identity import callbacks_identity, learning_identity, run_identity, settings_identity
from loom.training.labelling import as_known, learn_classes
from loom.training.loop import Run
from loom.training.named_targets import settled_by_targets
from loom.training.ported import packed, settled_outputs
from loom.training.result import TrainingResult
from loom.training.run_folder import RunFolder, run_folder
from loom.training.run_keeper import RunKeeper
from loom.training.run_store import RunStore
from loom.training.settings import TargetRule
from loom.training.shared_store import SharedStore
from loom.training.sharing import Sharing, arithmetic, require_alone, sharing
from loom.training.sized import dealt, told
from loom.training.trainable import TrainableNetwork
from loom.training.witness import witness

__all__ = ["run_training"]


def run_training(
    network: TrainableNetwork,
    data: Data,
    config: TrainingConfig | None,
    validation: Data | None,
    callbacks: Iterable[Callback],
    resume: bool,
    *,
    observe: Observe | None = None,
    tween: TargetRule | None = None,
    run: RunFolder | str | PathLike[str] | None = None,
    receipt: bool | str = False,
    distributed: object = None,
) -> TrainingResult:
    """Trains a network, by backpropagation or by targets.

    Args:
        network: The network.
        data: As in `train`.
        config: How the training goes; the defaults where None.
        validation: Data that is measured but not learned from.
        callbacks: What else runs.
        resume: Goes on where the network's last training stopped.
        observe: What backpropagation measures; nothing where None.
        tween: How it learns by targets; by backpropagation where None.
        run: The folder that keeps the run; none where None.
        receipt: Whether the result is to have a receipt, or how often weights are hashed for it.
        distributed: The processes that share the training; see `train`.

    Returns:
        The course of the run.
    """
    config = check_training(config)
    shared: Sharing | None = None
    if tween is None:
        shared, config = sharing(distributed, config, run)
    elif run is not None:
        require_alone("learning by targets")
    if shared is not None and observe is not None:
        raise ConfigError("a training in shards does not take observe=: measures are of whole steps")
    if tween is not None and engine_of(network).ports is not None:
        mode = tween.engine_settings()["mode"]
        if mode != "chain_rule":
            raise ConfigError(
                f"{mode} passes targets back from one output through one layer after another, and this "
                'network has names for inputs or outputs; use mode="chain_rule", whose targets follow '
                "gradients, or train it by backpropagation"
            )
    config = settled_outputs(engine_of(network), config)
    flag("train", "resume", resume)
    chosen = config.loss == AUTO
    try:
        # What says that it holds something may hold nothing, such as an array of no axes.
        callbacks = list(callbacks)
    except TypeError as error:
        raise ConfigError(
            f"callbacks must be a list of callbacks, got {shown(callbacks)}; put it into [ ]"
        ) from error
    engine = engine_of(network)
    interrupts = Interrupts(terminates=run is not None, patient=shared is not None)
    with interrupts, ExitStack() as stack:
        if shared is not None:
            stack.enter_context(shared)
            shared.listen(interrupts)
            shared.check_same(_course_of(config, run, resume=resume))
            shared.draw_alike()
        # Of samples of any length what is held out is cut off before they are dealt out.
        split = config.validation_split
        with interrupts.open:
            config, seen_data = settled_by_targets(engine, config, data, learns=True)
            data = cast("Data", packed(engine, config, seen_data, learns=True))
            validation = packed(engine, config, validation)
            if engine.sizing is not None:
                if tween is not None:
                    engine.check_fixed("learning by targets")
                config = told(engine, config, data)
                dealt_out, held = dealt(engine, config, data, learns=True)
                data = cast("Data", dealt_out)
                validation = held if validation is None else dealt(engine, config, validation)[0]
                config = replace(config, validation_split=0.0)
            data = as_known(engine, data, config, learns=True)
            validation = None if validation is None else as_known(engine, validation, config)
            config = learn_classes(engine, config, data)
            config = settled(network, config, data)
        if run is not None:
            # What makes a run the one that it is, is known before its data is gone through.
            config = settled_by_target(engine_of(network), config, None)
        keeper: RunKeeper | None = None
        if run is not None:
            engine_of(network).check_idle("a second training")
            with interrupts.open:
                identity = run_identity(
                    data, validation, replace(config, validation_split=split), observe, tween
                )
            store = RunStore(run) if shared is None else SharedStore(run, shared)
            keeper = RunKeeper(stack.enter_context(store), network, identity)
            resume = keeper.resumes or resume
        with interrupts.open:
            told_of = learning_identity(replace(config, validation_split=split), observe, tween)
            learning = {**told_of, **callbacks_identity(callbacks)}
            seen = witness(receipt, learning, data, validation)
        claim, mine = engine.claim(), False
        try:
            with claim:
                mine = True
                training = Run(
                    network,
                    data,
                    config,
                    validation,
                    callbacks,
                    resume,
                    observe,
                    tween,
                    interrupts,
                    keeper,
                    seen,
                    chosen,
                    shared,
                )
                result = training.result()
        finally:
            # A second Ctrl-C may come in the very line in which `with` would let go of it.
            if mine and engine.trained_by == get_ident():
                claim.__exit__(None, None, None)
    if interrupts.came_late() and result.stop_reason == "finished":
        result = replace(result, stop_reason="interrupted")
    if interrupts.terminated:
        # As whoever is ended by the signal itself, once all is kept.
        sys.exit(128 + signal.SIGTERM)
    if interrupts.urged or (result.interrupted and config.on_interrupt == "raise"):
        raise KeyboardInterrupt
    return result


def _course_of(
    config: TrainingConfig, run: RunFolder | str | PathLike[str] | None, *, resume: bool
) -> dict[str, Any]:
    """Returns what processes have in common before any of them has looked at its data."""
    return {
        "version": _native.__version__,
        "arithmetic": arithmetic(),
        "training": settings_identity(config),
        "run": None if run is None else str(run_folder(run)),
        "resume": resume,
    }
