"""How weights, their changes and gradients are distributed, epoch by epoch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loom._figures import empty_figure, finished
from loom._palette import COLORS
from loom._settings.checks import whole
from loom._settings.suggestions import shown
from loom.callbacks._gradients import gradients_of
from loom.callbacks._states import moving
from loom.callbacks.base import Callback, Logs
from loom.errors import ConfigError, DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from loom._typing import ArrayLike

__all__ = ["WeightHistogram", "WeightHistograms"]

_PARTS = ("weights", "changes", "gradients")


class WeightHistogram(NamedTuple):
    """One parameter in one epoch.

    Args:
        epoch: The epoch, counted from 0.
        counts: (bins,) how many elements lie in each bin.
        edges: (bins + 1,) where bins begin and end.
        mean: The mean of all elements.
        norm: Their L2 norm.
    """

    epoch: int
    counts: NDArray[np.int64]
    edges: NDArray[np.float64]
    mean: float
    norm: float


class WeightHistograms(Callback):
    """Keeps histograms of every parameter, of how it has changed since the epoch before, and of gradients.

    The norm of the changes beside that of the weights says how fast a layer learns: about 1e-3 a step is
    usual, 0 is a layer that stands still.

    Args:
        sample: (x, y) some samples, on which gradients are computed after each epoch, on a copy of the
            network; of named inputs and outputs dictionaries, whose class weights do not count. Without it
            there are none.
        frequency: Every so many epochs.
        bins: How many bins.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> net = loom.Sequential([nn.Dense(4), nn.Dense(1)], input_shape=2)
        >>> watcher = loom.WeightHistograms(sample=(np.eye(2), np.ones(2)), bins=8)
        >>> config = loom.TrainingConfig(epochs=3, verbose=False)
        >>> _ = loom.train(net, (np.eye(2), np.ones(2)), config, callbacks=[watcher])
        >>> [entry.epoch for entry in watcher.weights["0.0.0.0.weight"]]
        [0, 1, 2]
        >>> int(watcher.gradients["0.0.0.1.weight"][-1].counts.sum())
        4
    """

    # It computes, and that takes as long as it takes.
    interruptible: ClassVar[bool] = True

    def __init__(
        self, *, sample: tuple[ArrayLike, ArrayLike] | None = None, frequency: int = 1, bins: int = 40
    ) -> None:
        given: object = sample
        if given is not None and not (isinstance(given, (tuple, list)) and len(given) == 2):
            raise ConfigError(
                f"WeightHistograms: sample must be (x, y), samples and their targets, got {shown(sample)}"
            )
        self.sample = sample
        self.frequency = whole("WeightHistograms", "frequency", frequency, least=1)
        self.bins = whole("WeightHistograms", "bins", bins, least=1)
        self._forget()

    def __repr__(self) -> str:
        return f"WeightHistograms({len(self.weights)} parameters)"

    def _forget(self) -> None:
        self.weights: dict[str, list[WeightHistogram]] = {}
        """What the parameters were after each epoch, by name."""
        self.changes: dict[str, list[WeightHistogram]] = {}
        """By how much they have changed since the one before, or since training began."""
        self.gradients: dict[str, list[WeightHistogram]] = {}
        """Their gradients on the sample."""
        self._before: dict[str, NDArray[Any]] = {}

    def state_dict(self) -> dict[str, Any]:
        """Returns what was kept so far, and the parameters after the newest epoch of it."""
        kept = {
            part: {
                name: [[epoch, counts.tolist(), *more] for epoch, counts, *more in entries]
                for name, entries in getattr(self, part).items()
            }
            for part in _PARTS
        }
        return {**kept, "before": self._before}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes that back."""
        for part in _PARTS:
            entries = {
                name: [
                    WeightHistogram(int(epoch), np.array(counts, np.int64), np.array(edges), mean, norm)
                    for epoch, counts, edges, mean, norm in listed
                ]
                for name, listed in state[part].items()
            }
            setattr(self, part, entries)
        self._before = {name: np.array(values) for name, values in state["before"].items()}

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Forgets an earlier run, unless this one goes on from it; changes are then of whole epochs."""
        if not self._resumed:
            self._forget()
        if not self._before:
            self._before = moving(self.network)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Counts."""
        if (epoch + 1) % self.frequency:
            return
        now = moving(self.network)
        for name, values in now.items():
            self._add(self.weights, name, epoch, values)
            before = self._before.get(name)
            if before is not None and before.shape == values.shape:
                self._add(self.changes, name, epoch, values - before)
        self._before = now
        if self.sample is not None:
            for name, values in gradients_of(self.network, *self.sample, self.params["config"]).items():
                self._add(self.gradients, name, epoch, values)

    def _add(
        self, kept: dict[str, list[WeightHistogram]], name: str, epoch: int, values: NDArray[Any]
    ) -> None:
        numbers = np.asarray(values, np.float64).ravel()
        if numbers.size:
            finite = numbers[np.isfinite(numbers)]
            counts, edges = np.histogram(finite, self.bins, _range(finite, self.bins))
            norm = float(np.linalg.norm(numbers))
            kept.setdefault(name, []).append(
                WeightHistogram(epoch, counts, edges, float(numbers.mean()), norm)
            )

    def plot(
        self,
        name: str,
        of: Literal["weights", "changes", "gradients"] = "weights",
        path: str | Path | None = None,
    ) -> Figure:
        """Draws a parameter's histograms, one line an epoch, the newest darkest.

        Args:
            name: The parameter, such as "0.0.0.0.weight".
            of: "weights", "changes" or "gradients".
            path: Where to write the picture; its ending says the format.

        Returns:
            The matplotlib figure.

        Raises:
            ConfigError: There is no such part.
            DataError: Nothing was kept of that parameter.
            MissingExtraError: Matplotlib is not installed.
            FileError: The picture cannot be written.
        """
        if of not in _PARTS:
            raise ConfigError(f"plot draws {', '.join(_PARTS)}, got {of!r}")
        kept = getattr(self, of).get(name)
        if not kept:
            known = ", ".join(getattr(self, of)) or "none"
            raise DataError(f'no {of} were kept of "{name}". Kept: {known}')
        figure = empty_figure(width=6.0, height=3.5)
        axes = figure.add_subplot()
        for place, entry in enumerate(kept, start=1):
            middles = (entry.edges[1:] + entry.edges[:-1]) / 2
            density = entry.counts / max(entry.counts.sum(), 1) / np.diff(entry.edges)
            label = f"epoch {entry.epoch + 1}" if place in (1, len(kept)) else None
            axes.plot(middles, density, color=COLORS[0], alpha=0.15 + 0.85 * place / len(kept), label=label)
        axes.set_title(f"{of} of {name}")
        axes.set_ylabel("density")
        axes.set_ylim(bottom=0.0)
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize=8)
        return finished(figure, path)


def _range(numbers: NDArray[np.float64], bins: int) -> tuple[float, float]:
    """Returns where the first bin begins and the last one ends: as far apart as bins have to be to differ."""
    if not numbers.size:
        return 0.0, 1.0
    low, high = float(numbers.min()), float(numbers.max())
    least = 2 * bins * float(np.spacing(max(abs(low), abs(high))))
    if high - low >= least:
        return low, high
    beside = max(0.5, least)
    return low - beside, high + beside
