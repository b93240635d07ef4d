"""Training by local steps, for processes that reach each other over a slow network."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from loom import _native
from loom._settings.checks import real, whole
from loom.data import ArraySource, ByShard, Data, TrainingBatch, as_source
from loom.data.loading import share
from loom.data.splitting import taken
from loom.distributed import Communicator
from loom.distributed.finding import chosen
from loom.engine import engine_of
from loom.errors import ConfigError, DataError
from loom.network import Network
from loom.trainer import Trainer
from loom.training.automatic import settled
from loom.training.config import TrainingConfig, check_training
from loom.training.form import Form
from loom.training.identity import data_identity, settings_identity
from loom.training.labelling import as_known, learn_classes
from loom.training.named_targets import settled_by_targets
from loom.training.ported import packed, settled_outputs
from loom.training.settings import refuse_of_steps
from loom.training.sharing import Sharing, arithmetic

__all__ = ["LocalResult", "train_locally"]


@dataclass(frozen=True)
class LocalResult:
    """What a training by local steps has come to.

    Args:
        loss_history: The mean loss of each round, over all workers' rows.
        rounds: How many rounds there were.
        rows: How many samples were learned from.
        exchanged_bytes: How many bytes of weights this process has sent.
    """

    loss_history: list[float]
    rounds: int
    rows: int
    exchanged_bytes: int


def train_locally(
    network: Network,
    data: Data,
    config: TrainingConfig | None = None,
    *,
    workers: int = 8,
    local_steps: int = 50,
    outer_rate: float = 0.7,
    outer_momentum: float = 0.9,
    distributed: Communicator | Literal["auto"] | None = "auto",
) -> LocalResult:
    """Trains in rounds: workers take steps by themselves, then their mean moves the network.

    In a round each worker begins with the network's weights, and takes `local_steps` steps of the config's
    optimizer, whose moments it keeps from round to round, over rows of its own. What the workers have moved
    by on average is then a gradient of the outer optimizer, which is Nesterov's (DiLoCo: Douillard and
    others, 2023). Processes exchange weights once a round, instead of gradients at every step.

    How many workers there are is a property of the training, and not of how many processes compute them: the
    same number gives the same bits on any number of processes of one kind of device, one included, which goes
    through the workers one after the other. With one worker, one local step, an outer rate of 1 and no
    momentum it is `loom.Trainer`'s training.

    Args:
        network: The network; it learns in place. What layers keep, such as running statistics, becomes the
            workers' mean.
        data: (x, y) or (x, y, weight) arrays or a table of `loom.data.columns`, whose rows are dealt anew in
            every epoch; or what `loom.data.by_shard` has made, of which each worker reads a shard.
            `batch_size` counts the rows of all workers' steps together. Labels and named inputs and outputs
            are as in `loom.train`.
        config: How the workers' training goes; a schedule spans a worker's steps. What is not for it is
            refused: validation, early stopping, metrics, `accumulate`, and how steps in shards are exchanged.
        workers: How many workers there are.
        local_steps: How many steps a worker takes in a round.
        outer_rate: The learning rate of the outer optimizer.
        outer_momentum: Its momentum, from 0 to below 1.
        distributed: The processes that share the training, as in `loom.train`.

    Returns:
        The course of the training.

    Raises:
        ConfigError: A setting is out of range, there are more processes than workers, or processes differ.
        DataError: The data is neither.
        NonFiniteError: A loss or a gradient is not finite; the network has the weights of the last round.

    Examples:
        >>> x = np.linspace(-1, 1, 64)[:, None]
        >>> net = loom.Sequential([nn.Dense(1)], input_shape=1, seed=0)
        >>> config = loom.TrainingConfig(epochs=20, batch_size=16, learning_rate=0.05)
        >>> result = loom.train_locally(net, (x, 3 * x), config, workers=4, local_steps=10)
        >>> result.loss_history[-1] < result.loss_history[0]
        True
    """
    config = check_training(config)
    where = "train_locally"
    count = whole(where, "workers", workers, least=1, most=1 << 16)
    each = whole(where, "local_steps", local_steps, least=1)
    rate = real(where, "outer_rate", outer_rate, above=0.0)
    momentum = real(where, "outer_momentum", outer_momentum, least=0.0, below=1.0)
    communicator = chosen(distributed)
    if count < communicator.size:
        raise ConfigError(
            f"{communicator.size} processes need as many workers, and there are {count}; set "
            f"workers={communicator.size}"
        )
    measured = ("metrics", "early_stopping", "validation_split")
    if refused := [name for name in measured if getattr(config, name)]:
        raise ConfigError(f"{where} does not take {' and '.join(refused)}; evaluate the network afterwards")
    refuse_of_steps(where, config, "its workers exchange weights, each after local_steps steps of its own")
    with Sharing(communicator, count) as shared:
        config = replace(config, device=shared.device(config.device))
        engine_of(network).build()
        config, data = _known(network, config, data)
        shared.check_same(
            {
                "version": _native.__version__,
                "arithmetic": arithmetic(),
                "training": settings_identity(config),
                "outer": [count, each, rate, momentum],
                "data": data_identity(_as_rows(network, config, data)),
                "network": json.loads(engine_of(network).native.config()),
                "weights": network.fingerprint(),
            }
        )
        outer = _Outer(network, shared, rate, momentum)
        parts, total = _parts(network, data, config, count)
        own = [_Worker(network, config, parts(number), total) for number in shared.own_shards]
        return _rounds(own, outer, shared, each)


def _known(network: Network, config: TrainingConfig, data: Data) -> tuple[TrainingConfig, Data]:
    """Returns settings and data as workers take them; the network learns its labels and columns."""
    engine = engine_of(network)
    config, seen = settled_by_targets(engine, settled_outputs(engine, config), data, learns=True)
    data = as_known(engine, cast("Data", seen), config, learns=True)
    config = learn_classes(engine, config, data)
    return settled(network, config, _as_rows(network, config, data)), data


def _as_rows(network: Network, config: TrainingConfig, data: Data) -> Data:
    """Returns data with a row for each sample, in which inputs and outputs have no names."""
    if isinstance(data, ByShard):
        return data
    return cast("Data", packed(engine_of(network), config, data))


def _rounds(own: list[_Worker], outer: _Outer, shared: Sharing, each: int) -> LocalResult:
    losses: list[float] = []
    rows = 0
    while True:
        for worker in own:
            worker.run(outer.state, each)
        told = json.dumps([worker.told() for worker in own]).encode()
        all_told = [tuple(part) for each in shared.communicator.to_all(told) for part in json.loads(each)]
        steps = sum(part[0] for part in all_told)
        if steps == 0:
            return LocalResult(losses, len(losses), rows, outer.sent)
        # In the workers' order, so that it is the same number everywhere.
        learned = sum(part[1] for part in all_told)
        heft = sum(part[3] for part in all_told)
        losses.append(sum(part[2] for part in all_told) / heft if heft else math.nan)
        rows += learned
        outer.step([worker.weights() for worker in own], [part[0] > 0 for part in all_told])


class _Worker:
    """One worker: a network of its own, and its rows.

    Args:
        network: What it is a copy of.
        config: How it learns.
        batches: Its batches, epoch after epoch; None for steps in which it has no rows.
        total: How many steps it takes at most; None where nobody knows.
    """

    def __init__(
        self, network: Network, config: TrainingConfig, batches: Iterator[Any], total: int | None
    ) -> None:
        self._network = copy.deepcopy(network)
        self._trainer = Trainer(self._network, config, total_steps=total)
        self._batches = batches
        self._told = (0, 0, 0.0, 0.0)

    def run(self, state: dict[str, NDArray[Any]], steps: int) -> None:
        """Takes up to so many steps from these weights."""
        self._network.load_state_dict(state, strict=False)
        taken, rows, loss = 0, 0, 0.0
        for _ in range(steps):
            batch = next(self._batches, None)
            if batch is None:
                break
            found = self._trainer.step(batch.input, batch.target, batch.weight)
            taken += 1
            if math.isfinite(found):
                # Nothing was learned in a step that was left out.
                count = _count(batch)
                rows += count
                loss += found * count
        self._told = (taken, rows, loss, float(rows))

    def told(self) -> tuple[int, int, float, float]:
        """Returns the newest round's steps and rows, its summed loss, and what that is a mean over."""
        return self._told

    def weights(self) -> dict[str, NDArray[Any]]:
        """Returns what it has come to."""
        return dict(self._network.state_dict())


class _Outer:
    """The network that the workers move, by Nesterov's rule; each process computes a slice of it.

    Args:
        network: The network.
        shared: This process's part.
        rate: The learning rate.
        momentum: The momentum.
    """

    def __init__(self, network: Network, shared: Sharing, rate: float, momentum: float) -> None:
        self._network, self._shared = network, shared
        self._rate, self._momentum = rate, momentum
        self.state = {name: np.array(values) for name, values in network.state_dict().items()}
        if not self.state:
            raise ConfigError("train_locally takes a network with weights; this one has none to learn")
        kept = _kept_names(network)
        self._is_kept = np.concatenate(
            [np.full(values.size, name in kept) for name, values in self.state.items()]
        )
        count = len(self._is_kept)
        ranks = shared.communicator.size
        self._slices = [share(count, ranks, rank) for rank in range(ranks)]
        self._own = self._slices[shared.communicator.rank]
        self._dtype = next(iter(self.state.values())).dtype
        self._velocity = np.zeros(self._own.stop - self._own.start)
        self.sent = 0

    def _flat(self, state: dict[str, NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate([np.asarray(state[name], self._dtype).ravel() for name in self.state])

    def step(self, found: list[dict[str, NDArray[Any]]], counted: list[bool]) -> None:
        """Moves the network by the mean of those workers that have learned."""
        flat = [self._flat(state) for state in found]
        parts = [b"".join(each[cut].tobytes() for each in flat) for cut in self._slices]
        self.sent += sum(map(len, parts))
        came = b"".join(self._shared.communicator.to_each(parts))
        workers = np.frombuffer(came, self._dtype).reshape(len(counted), -1)
        total = np.zeros(workers.shape[1])
        for worker in workers[np.array(counted)]:
            total += worker
        mean = total / sum(counted)
        before = self._flat(self.state)[self._own].astype("float64")
        kept = self._is_kept[self._own]
        gradient = np.where(kept, 0.0, before - mean)
        self._velocity = self._momentum * self._velocity + gradient
        moved = before - self._rate * (gradient + self._momentum * self._velocity)
        own = np.where(kept, mean, moved).astype(self._dtype).tobytes()
        self.sent += len(own)
        whole_state = np.frombuffer(b"".join(self._shared.communicator.to_all(own)), self._dtype)
        at = 0
        for name, values in self.state.items():
            self.state[name] = whole_state[at : at + values.size].reshape(values.shape)
            at += values.size
        self._network.load_state_dict(self.state)


def _kept_names(network: Network) -> set[str]:
    """Returns the names of what layers keep beside their parameters."""
    return {
        name
        for layer in network.layers
        for kept in layer.states
        for name in network.state_dict()
        if name.endswith(f".{kept}")
    }


def _parts(
    network: Network, data: Data, config: TrainingConfig, workers: int
) -> tuple[Callable[[int], Iterator[TrainingBatch]], int | None]:
    """Returns what gives a worker's batches by its number, and how many steps one takes at most."""
    if isinstance(data, ByShard):
        counts = [data.steps(epoch, workers) for epoch in range(config.epochs)]
        total = None if None in counts else sum(count or 0 for count in counts)
        return lambda number: _of_shard(data.data.of_shard(number, workers), config.epochs), total or None
    source = as_source(_as_rows(network, config, data))
    if not isinstance(source, ArraySource):
        raise DataError(
            "train_locally takes arrays, or data of loom.data.by_shard: what each worker learns from has to "
            "be known"
        )
    if config.batch_size < workers:
        raise ConfigError(
            f"train_locally: batches of {config.batch_size} samples are too small for {workers} workers; set "
            f"batch_size to {workers} or more"
        )
    given: Any = data
    batch = source.batch
    if config.class_weight is not None:
        form = Form.of(engine_of(network), config)
        if not form.counts(form.examples(batch)):
            raise form.nothing_counts("data")
    if engine_of(network).ports is not None:
        # A trainer takes names.
        batch = given if isinstance(given, TrainingBatch) else TrainingBatch(*given)
    total = config.epochs * -(-source.rows // config.batch_size)
    return lambda number: _of_arrays(batch, source.rows, config, (number, workers)), total


def _of_shard(part: Iterable[Any], epochs: int) -> Iterator[TrainingBatch]:
    for epoch in range(epochs):
        if hasattr(part, "set_epoch"):
            part.set_epoch(epoch)
        for batch in part:
            if batch is None:
                continue
            yield batch if isinstance(batch, TrainingBatch) else TrainingBatch(*batch)


def _of_arrays(
    batch: TrainingBatch, samples: int, config: TrainingConfig, worker: tuple[int, int]
) -> Iterator[TrainingBatch]:
    number, workers = worker
    for epoch in range(config.epochs):
        order = np.arange(samples)
        if config.shuffle:
            order = np.random.default_rng((config.seed, epoch)).permutation(samples)
        for start in range(0, samples, config.batch_size):
            rows = order[start : start + config.batch_size]
            rows = rows[share(len(rows), workers, number)]
            if len(rows):
                yield cast("TrainingBatch", taken(batch, rows))


def _count(batch: TrainingBatch) -> int:
    """Returns how many samples a batch has."""
    given: Any = batch.input
    return len(next(iter(given.values())) if isinstance(given, Mapping) else given)
