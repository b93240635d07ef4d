"""A network that predicts numbers, as an estimator of scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import column_or_1d

from loom._typing import Precision
from loom.data.standardizing import divisors
from loom.errors import ConfigError, ShapeError, StateError
from loom.losses import name_of, resolve
from loom.sklearn.estimator import Learner

if TYPE_CHECKING:
    from typing_extensions import Self

    from loom.activations import ActivationLike
    from loom.callbacks import Callback
    from loom.losses import LossLike
    from loom.optimizers import OptimizerLike
    from loom.schedules import ScheduleLike
    from loom.sklearn.architecture import Architecture
    from loom.training.run_folder import RunFolder

__all__ = ["LoomRegressor"]


class LoomRegressor(MultiOutputMixin, RegressorMixin, Learner):
    """A network that predicts numbers.

    Parameters are scikit-learn's in kind: they are checked in `fit`, and can be searched over. Samples should
    be of similar scales: put a `StandardScaler` before it. Targets need not be: it scales them itself.

    Args:
        hidden: How wide the hidden layers are, of a network that is made here.
        activation: What follows each of them: a name, or an object such as `nn.LeakyReLU(0.2)`.
        dropout: The share of each hidden layer's outputs that are left out at each step.
        network: What the network is made of, where not of `hidden`: a list of layers, to which an output
            layer is added; a function of n_features and n_outputs that returns all layers, or a network; or a
            `loom.Network`, which is copied with its weights and need not read flat samples. Its outputs are
            the targets, scaled.
        loss: What is to become small, of the scaled targets: mse, mae, huber, log_cosh, or an object such as
            `loom.losses.Huber(2)`.
        scale_target: Whether the network learns targets of mean 0 and variance 1, and predictions are scaled
            back.
        optimizer: An optimizer, or the name of one: sgd, adam, adamw, lion, rmsprop.
        learning_rate: The step size, before the schedule.
        schedule: How the learning rate changes in `fit`; `partial_fit` leaves it as it is.
        epochs: How often `fit` goes through the samples at most.
        batch_size: How many samples make one step; "auto" is 200, or all where there are fewer.
        shuffle: Whether samples are shuffled anew for each epoch.
        early_stopping: Whether a share of the samples is held out, and the loss on it decides when to stop
            and which epoch's weights are kept. Otherwise the training loss decides when to stop.
        validation_fraction: The share that is held out.
        n_iter_no_change: After how many epochs without improvement `fit` stops; None never stops it.
        tol: What counts as an improvement must be larger than this.
        warm_start: Whether another `fit` goes on from the weights there are; the optimizer begins anew.
        precision: "float32", "float64" or "mixed": the arithmetic of a network that is made here.
        device: "cpu", "gpu", "gpu:1", or "auto"; see `loom.TrainingConfig`.
        random_state: What initial weights, shuffling, dropout and the share held out are drawn from. The same
            number gives the same bits.
        verbose: Whether progress is shown.
        callbacks: Callbacks of loom's, which run in `fit`.
        run: A folder that keeps the run of `fit`, which then survives whatever ends the process; see
            `loom.train`.
        options: Further settings of `loom.TrainingConfig` by name, such as {"gradient_clip": 1.0}.

    Attributes:
        target_mean_: The mean of each target, and `target_scale_` what it was divided by; the network gives
            scaled targets.
        network_: The network; `network_.save(path)` writes it, with both in its card.
        loss_curve_: The training loss of each epoch, `partial_fit` and warm starts included.
        n_iter_: How many epochs these are.
        best_loss_: The least of them.
        validation_scores_: R2 of what was held out, at each epoch, with early stopping; of several outputs
            the mean of each one's, as `score` has it. `validation_loss_curve_` is its loss, and
            `best_validation_score_` the score with the weights that were kept.
        n_features_in_: How many features there are; `feature_names_in_` are their names, where X had names.

    Raises:
        MissingExtraError: scikit-learn is not installed.

    Examples:
        >>> import numpy as np
        >>> from loom.sklearn import LoomRegressor
        >>> X = np.linspace(-1, 1, 100)[:, None]
        >>> model = LoomRegressor((16,), learning_rate=0.02, random_state=0).fit(X, 1000 + 50 * X[:, 0] ** 2)
        >>> model.score(X, 1000 + 50 * X[:, 0] ** 2) > 0.95
        True
    """

    def __init__(
        self,
        hidden: Iterable[int] = (64, 64),
        *,
        activation: ActivationLike = "relu",
        dropout: float = 0.0,
        network: Architecture | None = None,
        loss: LossLike = "mse",
        scale_target: bool = True,
        optimizer: OptimizerLike = "adamw",
        learning_rate: float = 1e-3,
        schedule: ScheduleLike = "constant",
        epochs: int = 200,
        batch_size: int | str = "auto",
        shuffle: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int | None = 10,
        tol: float = 1e-4,
        warm_start: bool = False,
        precision: Precision = "float32",
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
        callbacks: Iterable[Callback] | None = None,
        run: RunFolder | str | PathLike[str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.hidden = hidden
        self.activation = activation
        self.dropout = dropout
        self.network = network
        self.loss = loss
        self.scale_target = scale_target
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.epochs = epochs
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.warm_start = warm_start
        self.precision = precision
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks
        self.run = run
        self.options = options

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learns from samples.

        Args:
            X: (samples, features) numbers.
            y: (samples,) what is to be predicted, or (samples, outputs).
            sample_weight: (samples,) how much each sample counts.

        Returns:
            The estimator.

        Raises:
            ValueError: An array cannot be used; errors of loom's that tell what is wrong derive from it.
            KeyboardInterrupt: Ctrl-C came before or after the training, and the estimator is as it was. While
                the network learns, it ends the training with a warning, and the estimator has what was
                learned.
        """
        with self._whole():
            return self._fit(X, y, sample_weight, once=False)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Goes through samples once, and learns on from what there is; targets stay scaled as at first.

        Args:
            X: (samples, features) numbers.
            y: (samples,) what is to be predicted, or (samples, outputs).
            sample_weight: (samples,) how much each sample counts.

        Returns:
            The estimator.

        Raises:
            ValueError: An array cannot be used.
        """
        if self.early_stopping:
            raise StateError("partial_fit has nothing to hold out: early_stopping is for fit")
        with self._whole():
            return self._fit(X, y, sample_weight, once=True)

    def _fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        *,
        once: bool,
    ) -> Self:
        if name_of(resolve(self.loss)) in ("cross_entropy", "nll", "binary_cross_entropy"):
            raise ConfigError(
                f'the loss "{self.loss}" is for classes: take "mse", "mae", "huber" or "log_cosh"'
            )
        further = hasattr(self, "network_") and (once or self.warm_start)
        x, values = self._validated(X, y, multi_output=True, y_numeric=True, reset=not further)
        if values.ndim == 2 and values.shape[1] == 1:
            values = column_or_1d(values, warn=True)
        weights = self._weights(sample_weight, x)
        if weights is not None and not weights.all():
            # Who does not count at all is not there.
            x, values, weights = x[weights > 0], values[weights > 0], weights[weights > 0]
        rows = values.astype(np.float64).reshape(len(x), -1)
        if not further:
            self._single = values.ndim == 1
            self.target_mean_, self.target_scale_ = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
            if self.scale_target:
                self.target_mean_ = np.average(rows, axis=0, weights=weights)
                spread = np.sqrt(np.average((rows - self.target_mean_) ** 2, axis=0, weights=weights))
                self.target_scale_ = divisors(self.target_mean_, spread)
        elif rows.shape[1:] != self.target_mean_.shape:
            raise ShapeError(f"y has {rows.shape[1]} outputs, before it had {len(self.target_mean_)}")
        self._begin(rows.shape[1], further=further)
        targets = (rows - self.target_mean_) / self.target_scale_
        self._learn((x, targets, weights), self.loss, _r2, once=once)
        scaling = {"mean": self.target_mean_.tolist(), "scale": self.target_scale_.tolist()}
        card = self.network_.card
        self.network_.card = replace(card, metadata={**card.metadata, "target": scaling})
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Returns what is predicted for each sample.

        Args:
            X: (samples, features) numbers.

        Returns:
            (samples,), or (samples, outputs) where there were several.
        """
        outputs = self._outputs(X) * self.target_scale_ + self.target_mean_
        return outputs[:, 0] if self._single else outputs


def _r2(outputs: NDArray[Any], targets: NDArray[Any]) -> float:
    """R2 as `score` has it: the mean of each output's; 0 or 1 where its targets do not vary."""
    found, wanted = (array.astype(np.float64).reshape(len(array), -1) for array in (outputs, targets))
    missed = ((found - wanted) ** 2).sum(axis=0)
    spread = ((wanted - wanted.mean(axis=0)) ** 2).sum(axis=0)
    varies = spread > 0
    parts = np.where(varies, 1.0 - missed / np.where(varies, spread, 1.0), missed == 0)
    return float(parts.mean())
