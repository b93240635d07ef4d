"""Training by backpropagation, as users call it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from os import PathLike
from typing import Literal

from loom._settings.calls import explained
from loom.callbacks import Callback
from loom.data import Data
from loom.distributed import Communicator
from loom.measuring import Observe
from loom.measuring.settings import resolve_observe
from loom.training.config import TrainingConfig
from loom.training.result import TrainingResult
from loom.training.run import run_training
from loom.training.run_folder import RunFolder
from loom.training.trainable import TrainableNetwork

__all__ = ["train"]


_SETTING = "settings are the config's: loom.TrainingConfig({0}=...), or all in one, net.fit(x, y, {0}=...)"


@explained(
    data="what is learned from? loom.train(net, (x, y), config)",
    validation_data="validation= of loom.train; validation_data= of net.fit",
    **{field.name: _SETTING.format(field.name) for field in fields(TrainingConfig)},
)
def train(
    network: TrainableNetwork,
    data: Data,
    config: TrainingConfig | None = None,
    validation: Data | None = None,
    callbacks: Iterable[Callback] = (),
    resume: bool = False,
    observe: bool | Observe = False,
    rate_scale: Mapping[str, float] | None = None,
    run: RunFolder | str | PathLike[str] | None = None,
    receipt: bool | str = False,
    *,
    distributed: Communicator | Literal["auto"] | None = "auto",
) -> TrainingResult:
    """Trains a network by backpropagation.

    The network moves to the config's device and stays there. With "auto" that is where
    `Network.to`, or an earlier config that named a device, has placed it; otherwise the
    first GPU that is hardware, or the CPU where there is none. The result and the
    progress say which.

    Ctrl-C ends the run after the step: the network keeps what it has learned, and the
    result says so. It never leaves a step, an epoch's end or loom's own callbacks half done.

    Args:
        network: The network; it learns in place.
        data: (x, y) or (x, y, weight) arrays, a `TrainingBatch`, or an iterable of either,
            which is iterated once for every epoch.
        config: How the training goes; the defaults where None.
        validation: Data that is measured but not learned from.
        callbacks: What else runs. With a batch hook, Python is called after every step.
        resume: Goes on where the network's last training stopped, in the middle of an
            epoch if need be, bit for bit as if it never had; `epochs` then counts those
            that are done, and callbacks go on where they were. Metrics of an epoch that was
            broken off are of the rest of it; its loss is of all. Where Ctrl-C ended validation, that is not
            made up for: the epoch's logs of it are nan. A network that was never
            trained begins; one from a file without training state is refused.
        observe: True, or a `loom.Observe`, measures every layer at every step, and can take
            explosions back; see `Network.measures`.
        rate_scale: What the learning rate is multiplied by in some layers, {"0.0.0.*": 0.1}: set before
            the run as `Network.scale_rates` does, and kept by the network.
        run: A folder, or a `loom.RunFolder`, that keeps everything that the run is. Whatever ends the
            process, the same line goes on from there, to the same bits as if nothing had; once the run
            has ended, the line gives its result, and the network its weights, at once.
        receipt: Whether the result is to have a `loom.Receipt`: hashes of everything that went in, and of
            the weights before, after each epoch and at the end, by which `loom.reproduce` proves them.
            "steps" hashes them after each step, too. That takes as long as writing the network to
            memory; the data is hashed once.
        distributed: The processes that share the training: those that mpiexec or `loom launch` has started
            with this one, a communicator of `loom.distributed`, or None for this process alone.

    Returns:
        The course of the run.

    Raises:
        ConfigError: A setting does not fit the network or the data; or the folder's run began with other
            settings or data, and the message says with which; or a training that stopped within an epoch is
            to go on with samples in another order.
        FileError: The run cannot be kept, for want of space, say; its folder holds the last good state.
        DataError: The data is empty, of unequal length, or of no known form.
        ShapeError: It does not fit the network.
        DeviceError: The config names a GPU that is not there, or the GPU failed; the weights
            are then those that were last brought back from it.
        NonFiniteError: It holds NaN or infinity, or a loss or gradient became so; the
            weights are then those from before that step.
        StateError: The network is training already; or it is to resume, and was loaded from a
            file that was saved without `optimizer=True`; or another process trains in the folder.
        KeyboardInterrupt: Ctrl-C came twice; or once, where the config has `on_interrupt="raise"`.

    Warns:
        DoctorWarning: Layers, settings or data show what is most likely a mistake; the message begins with
            the finding's name, which `TrainingConfig.ignore_findings` takes. `loom.doctor` looks for more.
        BottleneckWarning: The training was observed, and layers' link budgets were below 0.5 on
            average.

    Examples:
        >>> net = loom.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(2)], input_shape=2)
        >>> config = loom.TrainingConfig(epochs=3, loss="cross_entropy", verbose=False)
        >>> result = loom.train(net, (np.eye(2), np.array([0, 1])), config)
        >>> len(result.loss_history)
        3
    """
    watch = resolve_observe(observe)
    if rate_scale is not None:
        network.scale_rates(rate_scale)
    return run_training(
        network,
        data,
        config,
        validation,
        callbacks,
        resume,
        observe=watch,
        run=run,
        receipt=receipt,
        distributed=distributed,
    )
