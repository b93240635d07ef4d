"""What the estimators have in common: how their networks are made, learn and compute."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from inspect import signature
from multiprocessing import current_process
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from loom._settings.arguments import check_arguments
from loom.callbacks import EarlyStopping
from loom.convert import as_real_array
from loom.engine import engine_of
from loom.errors import ConfigError, DataError, NonFiniteError
from loom.metrics import MetricLike, name_of, resolve
from loom.sklearn.architecture import built, hidden_layers
from loom.trainer import Trainer
from loom.training import train
from loom.training.config import TrainingConfig
from loom.training.settings import refuse_of_steps

if TYPE_CHECKING:
    from typing_extensions import Self

    from loom.losses import LossLike
    from loom.network import Network

__all__ = ["Learner", "Samples"]

Samples: TypeAlias = "tuple[NDArray[Any], NDArray[Any], NDArray[np.float64] | None]"
"""Inputs, targets as a loss takes them, and how much each sample counts."""

_OPTIONS = {each.name for each in fields(TrainingConfig)} - {"loss", "metrics", "seed"}
"""Settings of training, in which what an estimator decides by itself is not among its options."""
_MOST_SEED = np.iinfo(np.int32).max


class Learner(BaseEstimator):
    """Base of the estimators: a network that is made in `fit` and learns as `loom.train` does."""

    if not TYPE_CHECKING:

        def __new__(cls, *args: object, **parameters: object) -> Self:
            """Refuses parameters that there are not, with the name that is right or where else they go."""
            known = signature(cls.__init__).parameters
            for name in parameters:
                if name not in known and name in _OPTIONS:
                    raise ConfigError(f"{cls.__name__} has no {name}; options={{{name!r}: ...}} takes it")
            check_arguments(cls, args, parameters)
            return super().__new__(cls)

    def _validated(self, *arrays: object, **checks: Any) -> Any:  # noqa: ANN401 - X, or X and y
        """Checks what came in, and notes or compares the features, in any version of scikit-learn."""
        checks.setdefault("dtype", (np.float64, np.float32))
        try:
            from sklearn.utils.validation import validate_data
        except ImportError:
            # Before 1.6.
            return self._validate_data(*arrays, **checks)
        return validate_data(self, *arrays, **checks)

    def _weights(self, sample_weight: object, x: NDArray[Any]) -> NDArray[np.float64] | None:
        """Returns how much each sample counts; None where all count alike."""
        if sample_weight is None:
            return None
        weights: NDArray[np.float64] = _check_sample_weight(sample_weight, x, dtype=np.float64)
        if (weights < 0).any():
            raise DataError("sample_weight must not be negative")
        if not weights.any():
            raise DataError("sample_weight is zero for every sample; at least one must count")
        return weights

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Ctrl-C, where it ends what is done here half way, leaves the estimator as it was.

        A network that learned further before then has learned; one that was made anew is none of the
        estimator's.
        """
        before = dict(vars(self))
        try:
            yield
        except KeyboardInterrupt:
            self.__dict__ = before
            raise

    def _begin(self, n_outputs: int, *, further: bool) -> None:
        """Makes the network, unless there is one that goes on to learn; settles what is drawn at random."""
        if further and hasattr(self, "network_"):
            return
        random = check_random_state(self.random_state)
        initial, self._seed = (int(random.randint(_MOST_SEED)) for _ in range(2))
        self.network_: Network = self._made(n_outputs, initial)
        self.loss_curve_: list[float] = []
        self.n_iter_ = 0
        self.best_loss_: float | None = None
        for name in ("validation_loss_curve_", "validation_scores_", "best_validation_score_"):
            if hasattr(self, name):
                delattr(self, name)

    def _made(self, n_outputs: int, seed: int) -> Network:
        """Makes the network, from the parameters."""
        layers = [] if self.network is not None else hidden_layers(self.hidden, self.activation, self.dropout)
        return built(self.network, layers, self.n_features_in_, n_outputs, self.precision, seed)

    def _learn(
        self,
        data: Samples,
        loss: LossLike,
        score: MetricLike,
        *,
        once: bool,
        strata: NDArray[Any] | None = None,
    ) -> None:
        """Learns from samples.

        Args:
            data: Inputs, targets as the loss takes them, and weights.
            loss: What is to become small.
            score: What is measured of samples that are held out, beside the loss.
            once: Whether the data is gone through once, and the optimizer goes on from where it was.
            strata: The classes of which a share each is held out.
        """
        if once:
            self._pass(data, loss)
            return
        validation: Samples | None = None
        if self.early_stopping:
            data, validation = self._held_out(data, strata)
        # The loss tells more of a few samples than the score does, and from the first epoch on.
        patience, monitor = self.n_iter_no_change, "loss" if validation is None else "val_loss"
        if patience is None and validation is not None:
            # Nothing stops it, but the best epoch's weights are still what is kept.
            patience = self.epochs
        stopping = None
        if patience is not None:
            stopping = EarlyStopping(
                monitor,
                patience=patience,
                min_delta=self.tol,
                mode="min",
                restore_best_weights=validation is not None,
            )
        result = train(
            self.network_,
            self._shaped(data),
            self._settings(
                len(data[0]),
                loss,
                epochs=self.epochs,
                schedule=self.schedule,
                metrics=() if validation is None else (score,),
                early_stopping=stopping,
            ),
            None if validation is None else self._shaped(validation),
            () if self.callbacks is None else self.callbacks,
            run=self.run,
        )
        self._note(result.loss_history)
        if validation is not None:
            # Nothing was measured where Ctrl-C came in the first epoch.
            names = ("loss", name_of(resolve(score)))
            losses, scores = (result.metrics.get(f"val_{name}", []) for name in names)
            self.validation_loss_curve_ = [*getattr(self, "validation_loss_curve_", ()), *losses]
            self.validation_scores_ = [*getattr(self, "validation_scores_", ()), *scores]
            self.best_validation_score_ = scores[_best_epoch(losses, self.tol)] if scores else None
        if result.interrupted:
            warnings.warn(
                "Ctrl-C ended the training; the estimator has what was learned until then", stacklevel=4
            )

    def _settings(self, rows: int, loss: LossLike, **settings: Any) -> TrainingConfig:  # noqa: ANN401 - of many kinds
        settings |= {
            "batch_size": min(200, rows) if self.batch_size == "auto" else self.batch_size,
            "learning_rate": self.learning_rate,
            "optimizer": self.optimizer,
            "loss": loss,
            "device": self.device,
            "seed": self._seed,
            "shuffle": self.shuffle,
            "verbose": bool(self.verbose),
        }
        options = {} if self.options is None else dict(self.options)
        if twice := sorted(settings.keys() & options.keys()):
            raise ConfigError(f'options holds "{twice[0]}", which is for the estimator to decide')
        return TrainingConfig(**settings, **options)

    def _pass(self, data: Samples, loss: LossLike) -> None:
        x, y, weights = self._shaped(data)
        rows = len(x)
        config = self._settings(rows, loss)
        refuse_of_steps("partial_fit", config, "each of its steps is one update, by batch_size samples")
        trainer = Trainer(self.network_, config, resume=True)
        order = np.arange(rows)
        if config.shuffle:
            np.random.default_rng((self._seed, self.n_iter_)).shuffle(order)
        total = heft = 0.0
        for start in range(0, rows, config.batch_size):
            batch = order[start : start + config.batch_size]
            weight = None if weights is None else weights[batch]
            mass = len(batch) if weight is None else float(weight.sum())
            if not mass:
                # Nothing to learn: classes of weight zero.
                continue
            total += mass * trainer.step(x[batch], y[batch], weight)
            heft += mass
        self._note([total / heft if heft else math.nan])

    def _note(self, losses: list[float]) -> None:
        self.loss_curve_ = [*self.loss_curve_, *losses]
        self.n_iter_ = len(self.loss_curve_)
        self.best_loss_ = min(self.loss_curve_, default=None)

    def _held_out(self, data: Samples, strata: NDArray[Any] | None) -> tuple[Samples, Samples]:
        x, y, weights = data
        share, seed = self.validation_fraction, self._seed
        kept, held = train_test_split(np.arange(len(x)), test_size=share, random_state=seed, stratify=strata)
        both = [(x[rows], y[rows], None if weights is None else weights[rows]) for rows in (kept, held)]
        return both[0], both[1]

    def _shaped(self, data: Samples) -> Samples:
        return self._as_input(data[0]), data[1], data[2]

    def _as_input(self, x: NDArray[Any]) -> NDArray[Any]:
        """Gives samples the form that the network reads: images, sequences, whole numbers."""
        shape = self.network_.input_shape
        if engine_of(self.network_).reads_indices:
            numbers = x.astype(np.int64)
            # What is no whole number is refused by the network, which says why.
            x = numbers if np.array_equal(numbers, x) else x
        else:
            try:
                x = as_real_array(x, self.network_.precision, what="X")
            except NonFiniteError as error:
                # Arrays that cannot be used are ValueErrors to scikit-learn.
                raise DataError(str(error)) from error
        return x if len(shape) == 1 else x.reshape(len(x), *shape)

    def _outputs(self, X: object) -> NDArray[np.float64]:
        """Returns what the network gives."""
        check_is_fitted(self, "network_")
        x = self._validated(X, reset=False)
        return self.network_.predict(self._as_input(x)).astype(np.float64)


def _best_epoch(losses: list[float], tol: float) -> int:
    """Returns the epoch whose weights early stopping has kept."""
    best = 0
    known = np.nan_to_num(losses, nan=np.inf)
    for epoch, loss in enumerate(known):
        if loss < known[best] - tol:
            best = epoch
    return best


def _share_processors() -> None:
    """Takes joblib's word in its worker processes for how many threads each of them may have.

    It has counted processors and workers, and tells libraries of OpenMP; loom reads the variable of its own
    when it first computes.
    """
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if current_process().name.startswith("LokyProcess") and threads.isdecimal():
        os.environ.setdefault("LOOM_NUM_THREADS", threads)


_share_processors()
