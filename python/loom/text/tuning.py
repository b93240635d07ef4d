"""Language models trained further on texts of one's own, and on which of two answers is better."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import real, whole
from loom._settings.suggestions import shown
from loom.data import TrainingBatch, by_shard
from loom.engine import engine_of
from loom.errors import ConfigError
from loom.losses import DPO
from loom.network.adapting import left_out, trained_alone
from loom.text.examples import Examples, Row, completed, examples, filled
from loom.text.scores import makes_probabilities
from loom.training.backpropagation import train
from loom.training.config import TrainingConfig

if TYPE_CHECKING:
    from typing_extensions import Self

    from loom.callbacks import Callback
    from loom.text.model import LanguageModel
    from loom.training.result import TrainingResult
    from loom.training.run_folder import RunFolder

__all__ = ["align", "fine_tune"]

_USUAL = TrainingConfig(
    epochs=1, batch_size=8, loss="cross_entropy", optimizer="adamw", learning_rate=2e-4, gradient_clip=1.0
)


_OF_CLASSES = ("classes-missing-in-training", "one-class-output", "sorted-labels", "start-loss")


def fine_tune(
    model: LanguageModel,
    rows: Iterable[Row] | Examples,
    config: TrainingConfig | None = None,
    *,
    adapter: str | None = "default",
    rank: int = 8,
    alpha: float | None = None,
    dropout: float = 0.0,
    targets: str | Iterable[str] | None = None,
    rank_stabilized: bool = False,
    decomposed: bool = False,
    length: int | None = None,
    completions: bool = True,
    join: bool = False,
    pack: bool = False,
    cut: bool = False,
    validation: Iterable[Row] | Examples | None = None,
    callbacks: Iterable[Callback] = (),
    run: RunFolder | str | PathLike[str] | None = None,
) -> TrainingResult:
    """Trains a language model further, by an adapter or as a whole.

    Args:
        model: The model; it learns in place. With packed weights, such as of
            `loom.text.load(path, dtype="int4")`, the adapter is trained beside them as they are (QLoRA).
        rows: Texts, prompts with completions, or chats, as `loom.text.examples` takes them; or what that
            made.
        config: How the training goes; one epoch of batches of 8 by AdamW at a rate of 2e-4, gradients
            clipped at 1, where None. Its loss is "cross_entropy".
        adapter: The name of the adapter that is trained: added with the settings below where there is none,
            trained further, and in use from then on, where there is. Others that are in use are computed with
            and stay as they are. None trains what of the network is not frozen.
        rank: As in `Network.add_adapter`, as are those up to `decomposed`.
        alpha: See `rank`.
        dropout: See `rank`.
        targets: See `rank`.
        rank_stabilized: See `rank`.
        decomposed: See `rank`.
        length: As in `loom.text.examples`, as are those up to `cut`.
        completions: See `length`.
        join: See `length`.
        pack: See `length`.
        cut: See `length`.
        validation: Rows that are measured but not learned from.
        callbacks: As in `loom.train`.
        run: As in `loom.train`.

    Returns:
        What `loom.train` returns.

    Raises:
        ConfigError: As for `loom.text.examples`, `Network.add_adapter` and `loom.train`.
        ShapeError: The network cannot read rows of that length.
    """
    chosen = _USUAL if config is None else config
    options: dict[str, Any] = {"length": length, "completions": completions, "join": join}
    options |= {"pack": pack, "cut": cut}
    data = rows if isinstance(rows, Examples) else examples(model, rows, **options)
    steps = data.length
    held = validation
    if held is not None and not isinstance(held, Examples):
        held = examples(model, held, **{**options, "length": steps, "pack": data.is_packed})
    settings = {
        "rank": rank,
        "alpha": alpha,
        "dropout": dropout,
        "targets": targets,
        "rank_stabilized": rank_stabilized,
        "decomposed": decomposed,
    }
    if held is not None and (held.length, held.is_packed) != (steps, data.is_packed):
        raise ConfigError(
            "fine_tune: the rows of validation must be as long as the others, and packed as they are"
        )
    with _training(model, steps, packed=data.is_packed), _learning(model, adapter, settings):
        return train(model.network, data, _told(chosen), held, callbacks, run=run)


def align(
    model: LanguageModel,
    rows: Iterable[Mapping[str, Any]],
    config: TrainingConfig | None = None,
    *,
    beta: float = 0.1,
    adapter: str | None = "default",
    rank: int = 8,
    alpha: float | None = None,
    dropout: float = 0.0,
    targets: str | Iterable[str] | None = None,
    rank_stabilized: bool = False,
    decomposed: bool = False,
    length: int | None = None,
    cut: bool = False,
    callbacks: Iterable[Callback] = (),
) -> TrainingResult:
    """Trains a language model to prefer one of two answers (DPO, Rafailov et al. 2023).

    With p the probability that the model gives an answer and r the one that it gave it before, without the
    adapter, the loss of a pair is
    `-log sigmoid(beta (log p(chosen) / r(chosen) - log p(rejected) / r(rejected)))`; see `loom.losses.DPO`,
    which NumPy computes.

    Args:
        model: The model; it learns in place.
        rows: Pairs: {"prompt": ..., "chosen": ..., "rejected": ...}, texts or messages.
        config: How the training goes; as for `fine_tune` where None, with a rate of 5e-5. Its batch_size
            counts pairs, and its loss is not looked at.
        beta: How dear it is to go away from what the model said before.
        adapter: As in `fine_tune`, as are those up to `cut`.
        rank: See `adapter`.
        alpha: See `adapter`.
        dropout: See `adapter`.
        targets: See `adapter`.
        rank_stabilized: See `adapter`.
        decomposed: See `adapter`.
        length: See `adapter`.
        cut: See `adapter`.
        callbacks: As in `loom.train`.

    Returns:
        What `loom.train` returns.

    Raises:
        ConfigError: A row is no pair, or as in `fine_tune`.
    """
    chosen = replace(_USUAL, learning_rate=5e-5) if config is None else config
    strength = real("align", "beta", beta, above=0.0)
    spelled = []
    for number, row in enumerate(rows):
        given: object = row
        if not isinstance(given, Mapping) or not {"prompt", "chosen", "rejected"} <= set(given):
            raise ConfigError(
                f'align: row {number} must have "prompt", "chosen" and "rejected", got {shown(row)}'
            )
        spelled += [completed(model, row["prompt"], row[which], number) for which in ("chosen", "rejected")]
    if not spelled:
        raise ConfigError("align: there are no rows")
    if makes_probabilities(model.network):
        raise ConfigError(
            "align: the network ends in a softmax, and the loss of pairs is one of scores: leave that layer "
            "out"
        )
    most = None if length is None else whole("align", "length", length, least=1, most=1 << 24)
    data = filled(spelled, most, cut=cut, pad=model.vocabulary.pad)
    settings = {
        "rank": rank,
        "alpha": alpha,
        "dropout": dropout,
        "targets": targets,
        "rank_stabilized": rank_stabilized,
        "decomposed": decomposed,
    }
    # The last label is no token's: it says how likely the answer was.
    x, y, weight = (np.pad(each, ((0, 0), (0, 1))) for each in data)
    data = Examples(x.astype(np.int32), y.astype(np.int32), weight.astype(np.float32))
    with _training(model, data.length), _learning(model, adapter, settings):
        with nullcontext() if adapter is None else left_out(model.network, adapter):
            before = _log_probabilities(model, data)
        pairs = _Pairs(data, before, chosen.batch_size, chosen.seed, shuffle=bool(chosen.shuffle))
        # Each shard of a step has whole pairs.
        told = replace(_told(chosen), loss=DPO(strength))
        return train(model.network, by_shard(pairs), told, None, callbacks)


@contextmanager
def _learning(model: LanguageModel, adapter: str | None, settings: Mapping[str, Any]) -> Iterator[None]:
    """Has training move an adapter, which is added where it is not there, and no other."""
    if adapter is None:
        yield
        return
    if adapter not in model.network.adapters:
        model.network.add_adapter(adapter, **settings)
    with trained_alone(model.network, adapter):
        yield


def _told(config: TrainingConfig) -> TrainingConfig:
    """Returns the settings without warnings of classes, which tokens only look like."""
    return replace(config, ignore_findings=tuple({*config.ignore_findings, *_OF_CLASSES}))


@contextmanager
def _training(model: LanguageModel, steps: int, *, packed: bool = False) -> Iterator[None]:
    """Gives the network as many steps meanwhile as rows have, and nobody else the turn."""
    with model.lock:
        engine = engine_of(model.network)
        before = tuple(model.network.input_shape)
        # One that reads any number of steps takes rows of any length as it is.
        is_open = None in before
        if is_open and packed:
            raise ConfigError(
                "fine_tune: pack=True needs a network that reads a number of steps, and this one reads any: "
                "build it with input_shape=(steps,)"
            )
        try:
            if not is_open:
                engine.resize((steps,), packed=packed)
            yield
        finally:
            if not is_open:
                engine.resize(before)
            # Keys and values that are kept are of other weights.
            model.forget()


def _log_probabilities(model: LanguageModel, data: Examples) -> NDArray[np.float64]:
    """Returns how likely the network finds what counts in each row: the sum of the logarithms."""
    found = np.zeros(len(data.x))
    for row, (x, y, weight) in enumerate(zip(*data, strict=True)):
        scores = model.network.predict(x[None])[0].astype(np.float64)
        top = scores.max(axis=-1)
        sums = top + np.log(np.exp(scores - top[:, None]).sum(axis=-1))
        found[row] = ((scores[np.arange(len(y)), y] - sums) * weight).sum()
    return found


class _Pairs:
    """Pairs of rows, better and worse by turns, in batches of an order of each epoch's own."""

    def __init__(
        self,
        data: Examples,
        before: NDArray[np.float64],
        batch_size: int,
        seed: int,
        *,
        shuffle: bool,
    ) -> None:
        self._x = data.x
        self._y = DPO.targets(np.where(data.weight > 0, data.y, -1), before)
        self._batch_size, self._seed, self._shuffle = batch_size, seed, shuffle
        self._epoch = 0
        self._shard: tuple[int, int] | None = None

    def __len__(self) -> int:
        return math.ceil(len(self._x) / (2 * self._batch_size))

    def set_epoch(self, epoch: int) -> None:
        """Says which epoch is iterated next."""
        self._epoch = epoch

    def of_shard(self, shard: int, shards: int) -> Self:
        """Returns the pairs of each batch that one of several shards has, or None for those without any.

        Args:
            shard: Its number, from 0.
            shards: How many there are.
        """
        found = copy(self)
        found._shard = shard, shards
        return found

    def steps_by_shard(self, epoch: int, shards: int) -> int:
        """Returns how many steps an epoch has."""
        del epoch, shards
        return len(self)

    def __iter__(self) -> Iterator[TrainingBatch | None]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        count = len(self._x) // 2
        order: Sequence[int] = range(count)
        if self._shuffle:
            order = np.random.default_rng((self._seed, epoch)).permutation(count).tolist()
        for start in range(0, count, self._batch_size):
            chosen = order[start : start + self._batch_size]
            if self._shard is not None:
                shard, shards = self._shard
                chosen = chosen[len(chosen) * shard // shards : len(chosen) * (shard + 1) // shards]
            rows = [row for pair in chosen for row in (2 * pair, 2 * pair + 1)]
            yield TrainingBatch(self._x[rows], self._y[rows]) if rows else None
