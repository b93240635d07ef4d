"""What a layer makes of samples, as a transformer of scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_array, check_is_fitted

from loom import nn
from loom._settings.checks import whole
from loom._settings.suggestions import shown
from loom._typing import Precision
from loom.data.standardizing import divisors
from loom.errors import ConfigError
from loom.network import Network
from loom.network.selecting import layer_at
from loom.sklearn.architecture import built, hidden_layers
from loom.sklearn.estimator import Learner

if TYPE_CHECKING:
    from typing_extensions import Self

    from loom.activations import ActivationLike
    from loom.callbacks import Callback
    from loom.network.layers import LayerHandle
    from loom.optimizers import OptimizerLike
    from loom.schedules import ScheduleLike
    from loom.sklearn.architecture import Layers
    from loom.training.run_folder import RunFolder

__all__ = ["LoomTransformer"]


def _autoencodes(transformer: LoomTransformer) -> bool:
    """Whether it learns to give samples back, rather than to have somebody else's layers."""
    source = transformer.source
    return source is None or (callable(source) and not hasattr(source, "fit"))


class LoomTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Learner):
    """What a layer makes of samples: of an autoencoder, of a network there is, or of an estimator.

    By itself it learns, without labels, to give samples back from a few numbers, which `transform` returns.
    The features that are given back are scaled to mean 0 and variance 1; those that are read are not: put a
    `StandardScaler` before it.

    Args:
        n_components: How many numbers the autoencoder passes on.
        source: Whose layer it is. None is an autoencoder of `hidden`; a function of n_features and n_outputs
            returns the layers of another. A `loom.Network` is used as it is, and learns nothing. A
            `LoomClassifier` or `LoomRegressor` is cloned and learns in `fit`, from y.
        layer: The layer: its number, its path such as "0.0.0.2", or its place (depth, row, column, number).
            None is the narrowest of an autoencoder, and otherwise the last but one.
        hidden: How wide the layers before the narrowest are; those behind it have the same widths in reverse.
        activation: What follows each of them: a name, or an object such as `nn.LeakyReLU(0.2)`.
        dropout: The share of each hidden layer's outputs that are left out at each step.
        optimizer: An optimizer, or the name of one: sgd, adam, adamw, lion, rmsprop.
        learning_rate: The step size, before the schedule.
        schedule: How the learning rate changes in `fit`.
        epochs: How often `fit` goes through the samples at most.
        batch_size: How many samples make one step; "auto" is 200, or all where there are fewer.
        shuffle: Whether samples are shuffled anew for each epoch.
        early_stopping: Whether a share of the samples is held out, and the loss on it decides when to stop
            and which epoch's weights are kept. Otherwise the training loss decides when to stop.
        validation_fraction: The share that is held out.
        n_iter_no_change: After how many epochs without improvement `fit` stops; None never stops it.
        tol: What counts as an improvement must be larger than this.
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
        layer_: The path of the layer.
        network_: The network; `network_.save(path)` writes it.
        loss_curve_: The autoencoder's training loss of each epoch.
        n_iter_: How many epochs these are.
        best_loss_: The least of them.
        validation_scores_: R2 of what was held out, at each epoch, with early stopping;
            `validation_loss_curve_` is its loss, and `best_validation_score_` the score with the weights that
            were kept.
        n_features_in_: How many features there are; `feature_names_in_` are their names, where X had names.

    Raises:
        MissingExtraError: scikit-learn is not installed.

    Examples:
        >>> import numpy as np
        >>> from loom.sklearn import LoomTransformer
        >>> X = np.random.default_rng(0).normal(size=(50, 2)) @ np.ones((2, 6))
        >>> LoomTransformer(2, hidden=(8,), epochs=5, random_state=0).fit_transform(X).shape
        (50, 2)
    """

    def __init__(
        self,
        n_components: int = 8,
        *,
        source: Any = None,  # noqa: ANN401 - a network, an estimator or a function
        layer: int | str | Sequence[int] | None = None,
        hidden: Iterable[int] = (64,),
        activation: ActivationLike = "relu",
        dropout: float = 0.0,
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
        precision: Precision = "float32",
        device: str = "cpu",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
        callbacks: Iterable[Callback] | None = None,
        run: RunFolder | str | PathLike[str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.n_components = n_components
        self.source = source
        self.layer = layer
        self.hidden = hidden
        self.activation = activation
        self.dropout = dropout
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
        self.precision = precision
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks
        self.run = run
        self.options = options

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Learns from samples, unless the network is one that has learned.

        Args:
            X: (samples, features) numbers.
            y: What the estimator in `source` learns; ignored otherwise.
            sample_weight: (samples,) how much each sample counts.

        Returns:
            The transformer.

        Raises:
            ValueError: An array cannot be used; errors of loom's that tell what is wrong derive from it.
            KeyboardInterrupt: Ctrl-C came before or after the training, and the estimator is as it was. While
                the network learns, it ends the training with a warning, and the estimator has what was
                learned.
        """
        with self._whole():
            self._fit(X, y, sample_weight)
        return self

    def _fit(self, X: ArrayLike, y: ArrayLike | None, sample_weight: ArrayLike | None) -> None:
        x = self._validated(X)
        if isinstance(self.source, Network):
            self.network_ = built(self.source, (), x.shape[1], None, self.precision, 0).to(self.device)
        elif _autoencodes(self):
            self._autoencode(x, self._weights(sample_weight, x))
        else:
            if not hasattr(self.source, "fit"):
                raise ConfigError(
                    "source must be a loom.Network, a LoomClassifier or LoomRegressor, a function, or None, "
                    f"got {shown(self.source)}"
                )
            options = {} if sample_weight is None else {"sample_weight": sample_weight}
            self.source_ = clone(self.source).fit(X, y, **options)
            self.network_ = self.source_.network_
        layer = self._found()
        self.layer_ = layer.path
        self._n_features_out = prod(layer.output_shape)

    def _autoencode(self, x: NDArray[Any], weights: NDArray[np.float64] | None) -> None:
        self._begin(x.shape[1], further=False)
        rows = x.astype(np.float64)
        mean = np.average(rows, axis=0, weights=weights)
        spread = np.sqrt(np.average((rows - mean) ** 2, axis=0, weights=weights))
        self._mean, self._scale = mean, divisors(mean, spread)
        self._learn((x, (rows - mean) / self._scale, weights), "mse", "r2", once=False)

    def _made(self, n_outputs: int, seed: int) -> Network:
        layers: Layers = ()
        if self.source is None:
            code = whole("LoomTransformer", "n_components", self.n_components, least=1)
            widths = tuple(self.hidden)
            layers = [
                *hidden_layers(widths, self.activation, self.dropout),
                nn.Dense(code),
                *hidden_layers(reversed(widths), self.activation, self.dropout),
            ]
        return built(self.source, layers, n_outputs, n_outputs, self.precision, seed)

    def _found(self) -> LayerHandle:
        layers, wanted = self.network_.layers, self.layer
        if wanted is None:
            if self.source is None:
                return layers[len(hidden_layers(self.hidden, self.activation, self.dropout))]
            if len(layers) < 2:
                raise ConfigError("the network has one layer alone: say layer=0 for what that gives")
            # Of those that are as narrow the first: layers of activations come behind it.
            narrow = min(layers[:-1], key=lambda layer: prod(layer.output_shape))
            return narrow if _autoencodes(self) else layers[-2]
        if isinstance(wanted, (str, Sequence)):
            return layer_at(self.network_, wanted)
        if not -len(layers) <= wanted < len(layers):
            raise ConfigError(f"layer {wanted} is not there: the network has {len(layers)} layers")
        return layers[wanted]

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Returns what the layer makes of samples.

        Args:
            X: (samples, features) numbers.

        Returns:
            (samples, outputs of the layer), of X's type.
        """
        check_is_fitted(self, "network_")
        x = self._validated(X, reset=False)
        values = self.network_.activations(self._as_input(x), [self.layer_])[self.layer_]
        return values.reshape(len(x), -1).astype(x.dtype)

    @available_if(_autoencodes)  # type: ignore[untyped-decorator] # scikit-learn has no types
    def inverse_transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Returns the samples that an autoencoder makes of what `transform` has made of some.

        Args:
            X: (samples, outputs of the layer).

        Returns:
            (samples, features) numbers.

        Raises:
            ConfigError: What is behind the layer is more than layers in a row.
        """
        check_is_fitted(self, "_scale")
        layers = self.network_.layers
        places = [index for index, layer in enumerate(layers) if layer.path == self.layer_]
        if not places or self.network_.grid != (1, 1, 1):
            raise ConfigError(
                "the way back leads through layers in a row, not through cells or inside layers"
            )
        rest = Network(layers[places[0]].output_shape, precision=self.network_.precision)
        for index, layer in enumerate(layers[places[0] + 1 :]):
            rest[0, 0, 0].insert(index, layer)
        x = check_array(X, dtype=(np.float64, np.float32))
        outputs = rest.predict(x.reshape(len(x), *rest.input_shape))
        return outputs.astype(np.float64) * self._scale + self._mean

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 - scikit-learn's own class, of some versions
        """Returns what scikit-learn is to know: that numbers keep their type."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
