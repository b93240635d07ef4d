"""A network that tells classes apart, as an estimator of scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from loom._typing import Precision
from loom.errors import DataError, StateError
from loom.sklearn.estimator import Learner

if TYPE_CHECKING:
    from typing_extensions import Self

    from loom.activations import ActivationLike
    from loom.callbacks import Callback
    from loom.optimizers import OptimizerLike
    from loom.schedules import ScheduleLike
    from loom.sklearn.architecture import Architecture
    from loom.training.run_folder import RunFolder

__all__ = ["LoomClassifier"]


class LoomClassifier(ClassifierMixin, Learner):
    """A network that tells classes apart.

    Parameters are scikit-learn's in kind: they are checked in `fit`, and can be searched over. Samples should
    be of similar scales: put a `StandardScaler` before it.

    Args:
        hidden: How wide the hidden layers are, of a network that is made here.
        activation: What follows each of them: a name, or an object such as `nn.LeakyReLU(0.2)`.
        dropout: The share of each hidden layer's outputs that are left out at each step.
        network: What the network is made of, where not of `hidden`: a list of layers, to which an output
            layer is added; a function of n_features and n_outputs that returns all layers, or a network; or a
            `loom.Network`, which is copied with its weights and need not read flat samples. Its outputs are
            logits, one for each class.
        optimizer: An optimizer, or the name of one: sgd, adam, adamw, lion, rmsprop.
        learning_rate: The step size, before the schedule.
        schedule: How the learning rate changes in `fit`; `partial_fit` leaves it as it is.
        epochs: How often `fit` goes through the samples at most.
        batch_size: How many samples make one step; "auto" is 200, or all where there are fewer.
        shuffle: Whether samples are shuffled anew for each epoch.
        class_weight: How much each class counts: a mapping from label to weight, or "balanced", by which
            rare classes count as much as frequent ones.
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
        classes_: The labels, in the order of the network's outputs.
        network_: The network; `network_.save(path)` writes it, with the labels in its card.
        loss_curve_: The training loss of each epoch, `partial_fit` and warm starts included.
        n_iter_: How many epochs these are.
        best_loss_: The least of them.
        validation_scores_: The accuracy of what was held out, at each epoch, with early stopping;
            `validation_loss_curve_` is its loss, and `best_validation_score_` the score with the weights that
            were kept.
        n_features_in_: How many features there are; `feature_names_in_` are their names, where X had names.

    Raises:
        MissingExtraError: scikit-learn is not installed.

    Examples:
        >>> from sklearn.datasets import make_moons
        >>> from loom.sklearn import LoomClassifier
        >>> X, y = make_moons(noise=0.1, random_state=0)
        >>> model = LoomClassifier((16,), learning_rate=0.05, random_state=0).fit(X, y)
        >>> model.score(X, y) > 0.95
        True
    """

    def __init__(
        self,
        hidden: Iterable[int] = (64, 64),
        *,
        activation: ActivationLike = "relu",
        dropout: float = 0.0,
        network: Architecture | None = None,
        optimizer: OptimizerLike = "adamw",
        learning_rate: float = 1e-3,
        schedule: ScheduleLike = "constant",
        epochs: int = 200,
        batch_size: int | str = "auto",
        shuffle: bool = True,
        class_weight: Mapping[Any, float] | str | None = None,
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
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.schedule = schedule
        self.epochs = epochs
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.class_weight = class_weight
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
            y: (samples,) labels of any kind; or (samples, labels) zeros and ones, where a sample has
                several labels or none.
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
            return self._fit(X, y, sample_weight, once=False, classes=None)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Goes through samples once, and learns on from what there is.

        Args:
            X: (samples, features) numbers.
            y: (samples,) labels, or (samples, labels) zeros and ones.
            classes: All labels that will come; needed in the first call.
            sample_weight: (samples,) how much each sample counts.

        Returns:
            The estimator.

        Raises:
            ValueError: There are labels that are not among the classes, or an array cannot be used.
        """
        if self.early_stopping:
            raise StateError("partial_fit has nothing to hold out: early_stopping is for fit")
        with self._whole():
            return self._fit(X, y, sample_weight, once=True, classes=classes)

    def _fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        *,
        once: bool,
        classes: ArrayLike | None,
    ) -> Self:
        further = hasattr(self, "network_") and (once or self.warm_start)
        if hasattr(y, "toarray"):
            y = y.toarray()
        x, labels = self._validated(X, y, multi_output=True, reset=not further)
        weights = self._weights(sample_weight, x)
        if weights is not None and not weights.all():
            # Who does not count at all is not there.
            x, labels, weights = x[weights > 0], labels[weights > 0], weights[weights > 0]
        check_classification_targets(labels)
        several = type_of_target(labels) == "multilabel-indicator"
        if several:
            found = np.arange(labels.shape[1])
        else:
            labels = column_or_1d(labels, warn=True)
            found = np.unique(labels)
        if not further:
            if once and classes is None and not several:
                raise DataError("the first call of partial_fit needs all labels that will come: classes=")
            self.classes_ = found if classes is None else np.unique(np.asarray(classes))
            self._multilabel = several
        if several != self._multilabel or not np.isin(found, self.classes_).all():
            raise DataError(f"y has labels {found} that are not among the classes {self.classes_}")
        if self.class_weight is not None:
            factors = self._class_weights(labels, once)
            weights = factors if weights is None else weights * factors
        self._begin(len(self.classes_), further=further)
        if several:
            samples = x, labels.astype(np.float64), weights
            self._learn(samples, "binary_cross_entropy", _subset_accuracy, once=once)
        else:
            targets = np.searchsorted(self.classes_, labels).astype(np.int32)
            self._learn((x, targets, weights), "cross_entropy", "accuracy", once=once, strata=targets)
        names = [str(label) for label in self.classes_]
        self.network_.card = replace(self.network_.card, labels=names)
        return self

    def _class_weights(self, labels: NDArray[Any], once: bool) -> NDArray[np.float64]:
        if once and self.class_weight == "balanced":
            raise StateError(
                'class_weight="balanced" needs all samples at once: give partial_fit a dictionary of weights '
                "(sklearn.utils.compute_class_weight)"
            )
        factors: NDArray[np.float64] = compute_sample_weight(self.class_weight, labels)
        return factors

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Returns how much speaks for each class: what the network gives.

        Args:
            X: (samples, features) numbers.

        Returns:
            (samples, classes) logits; of two classes (samples,) the second's minus the first's.
        """
        logits = self._outputs(X)
        if self._multilabel or len(self.classes_) > 2:
            return logits
        return logits[:, -1] - logits[:, 0]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Returns the most likely label of each sample.

        Args:
            X: (samples, features) numbers.

        Returns:
            (samples,) labels, or (samples, labels) zeros and ones.
        """
        decided = self.decision_function(X)
        if self._multilabel:
            return (decided > 0).astype(np.int64)
        chosen = decided.argmax(axis=1) if decided.ndim > 1 else (decided > 0).astype(np.int64)
        labels: NDArray[Any] = self.classes_[chosen]
        return labels

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Returns how likely each class is.

        Args:
            X: (samples, features) numbers.

        Returns:
            (samples, classes) probabilities in the order of `classes_`; with several labels a sample, each
            one's own.
        """
        probabilities: NDArray[np.float64] = np.exp(self.predict_log_proba(X))
        return probabilities

    def predict_log_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Returns the logarithm of `predict_proba`, which does not vanish where that does.

        Args:
            X: (samples, features) numbers.

        Returns:
            (samples, classes) logarithms.
        """
        logits = self._outputs(X)
        if self._multilabel:
            return -np.logaddexp(0, -logits)
        shifted = logits - logits.max(axis=1, keepdims=True)
        logarithms: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        return logarithms

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 - scikit-learn's own class, of some versions
        """Returns what scikit-learn is to know: that there may be several labels."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _subset_accuracy(outputs: NDArray[Any], targets: NDArray[Any]) -> float:
    return float(np.mean(((outputs > 0) == (targets > 0.5)).all(axis=1)))
