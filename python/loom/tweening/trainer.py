"""Learning by targets, over whole data sets."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike

from loom.callbacks import Callback
from loom.data import Data
from loom.network import Network
from loom.training import run_training
from loom.training.config import TrainingConfig, check_training
from loom.training.record import record_of
from loom.training.result import TrainingResult
from loom.training.run_folder import RunFolder
from loom.tweening.config import TweenConfig, check_tween
from loom.tweening.state import TweenState

__all__ = ["TweenTrainer"]


class TweenTrainer:
    """Trains a network by targets, as `loom.train` does by backpropagation.

    Args:
        network: The network; it learns in place.
        config: How it learns; the defaults where None.

    Raises:
        ConfigError: The config is no `TweenConfig`.

    Examples:
        >>> net = loom.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(2)], input_shape=2)
        >>> trainer = loom.TweenTrainer(net, loom.TweenConfig.target_prop(history=1))
        >>> training = loom.TrainingConfig(epochs=3, loss="cross_entropy", verbose=False)
        >>> result = trainer.fit((np.eye(2), np.array([0, 1])), training)
        >>> result.explosions
        0
        >>> trainer.state.history.gaps.shape
        (3, 2)
    """

    def __init__(self, network: Network, config: TweenConfig | None = None) -> None:
        self.network = network
        self.config = check_tween(config)
        self._training = TrainingConfig()

    def fit(
        self,
        data: Data,
        training: TrainingConfig | None = None,
        validation: Data | None = None,
        callbacks: Iterable[Callback] = (),
        resume: bool = False,
        run: RunFolder | str | PathLike[str] | None = None,
        receipt: bool | str = False,
    ) -> TrainingResult:
        """Trains the network; data, callbacks and result are those of `loom.train`.

        Args:
            data: (x, y) or (x, y, weight) arrays, a `TrainingBatch`, or an iterable of either.
            training: How the training goes. A learning rate given there replaces `base_rate`;
                its optimizer and depth scale are backpropagation's, and are not looked at.
            validation: Data that is measured but not learned from.
            callbacks: What else runs.
            resume: Goes on where the network's last training stopped, feedback maps and
                velocities included.
            run: A folder, or a `loom.RunFolder`, that keeps the run, as in `loom.train`.
            receipt: Whether the result is to have a receipt, as in `loom.train`.

        Returns:
            The course of the run.

        Raises:
            ConfigError: A setting does not fit the network or the data; or the folder's run began with
                others.
            FileError: The run cannot be kept.
            DataError: The data is empty, of unequal length, or of no known form.
            ShapeError: It does not fit the network.
            DeviceError: The config names a GPU that is not there, or the GPU failed.
            NonFiniteError: It holds NaN or infinity; or a loss became so, and explosions are not
                detected.
            StateError: The network is training already; or the mode needs a feedback map that a
                layer does not have, or does not know a link.

        Warns:
            DoctorWarning: What is most likely a mistake, as in `loom.train`.
            BottleneckWarning: Layers' link budgets were below 0.5 on average.
        """
        settings = check_training(training)
        result = run_training(
            self.network,
            data,
            settings,
            validation,
            callbacks,
            resume,
            tween=self.config,
            run=run,
            receipt=receipt,
        )
        self._training = record_of(self.network).judged_by or settings
        return result

    @property
    def state(self) -> TweenState:
        """What the newest training has left; it can go on from there, step by step."""
        return TweenState.left_by(self.network, self.config, self._training)

    def __repr__(self) -> str:
        return f"TweenTrainer({self.config!r})"
