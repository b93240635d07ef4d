"""How far a network's answers are from the right ones, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from loom._settings.checks import whole
from loom.callbacks.base import Callback, Logs
from loom.errors import ConfigError

if TYPE_CHECKING:
    from loom.data import Data
    from loom.reports import DeviationCourse, DeviationReport

__all__ = ["DeviationHistory"]


@dataclass(eq=False)
class DeviationHistory(Callback):
    """Measures by how much answers deviate after each epoch, and keeps what it finds.

    It evaluates the network as `loom.evaluate(..., deviation=True)` does, under the run's loss. Training
    goes on as if nobody looked.

    Args:
        data: What the network is measured on, as `loom.evaluate` takes it; the run's validation data
            where None. It is gone through once for every epoch that is measured.
        frequency: Measures every so many epochs.

    Raises:
        ConfigError: The frequency is below 1; or, when training begins, there is no data.

    Examples:
        >>> net = loom.Sequential([nn.Dense(1)], input_shape=2)
        >>> watcher = loom.DeviationHistory()
        >>> data = (np.eye(2), np.array([1.0, 2.0]))
        >>> config = loom.TrainingConfig(epochs=3, learning_rate=0.1, verbose=False)
        >>> _ = net.fit(data, config, validation=data, callbacks=[watcher])
        >>> watcher.course.epochs, len(watcher.scores), sorted(watcher.milestones)[:3]
        ((0, 1, 2), 3, [10, 20, 30])
    """

    # Measuring takes as long as it takes, and goes through data of the user's.
    interruptible: ClassVar[bool] = True

    data: Data | None = field(default=None, repr=False)
    frequency: int = 1

    def __post_init__(self) -> None:
        self.frequency = whole("DeviationHistory", "frequency", self.frequency, least=1)
        self._forget()

    def _forget(self) -> None:
        from loom.reports import DeviationCourse

        self.course: DeviationCourse = DeviationCourse()
        """What was measured, epoch by epoch; see `loom.plot.deviation_course`."""
        self.report: DeviationReport | None = None
        """The newest report; None before any, and in a resumed run until the next."""

    @property
    def scores(self) -> tuple[float, ...]:
        """The quality score after each epoch that was measured."""
        return self.course.scores

    @property
    def milestones(self) -> dict[int, int | None]:
        """For 10, 20, ... 100 the first epoch, counted from 0, whose score was at least that; or None."""
        return self.course.first_epochs

    def state_dict(self) -> dict[str, Any]:
        """Returns what was measured so far."""
        return self.course.to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes it back."""
        self.course = type(self.course).from_dict(state)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Forgets an earlier run, unless this one goes on from it; refuses to run without data."""
        if not self._resumed:
            self._forget()
        if self._measured_on is None:
            raise ConfigError(
                "DeviationHistory has nothing to measure on: give the run validation data, or give it data="
            )

    @property
    def _measured_on(self) -> Data | None:
        return self.params.get("validation_data") if self.data is None else self.data

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Measures."""
        if (epoch + 1) % self.frequency == 0:
            found = self.network.evaluate(self._measured_on, metrics=(), deviation=True)["deviation"]
            course = self.course.with_epoch(epoch, found)
            # Ctrl-C may come while it measures, and then nothing is kept.
            self.report, self.course = found, course
