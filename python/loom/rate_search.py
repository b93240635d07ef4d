"""Which learning rates a network learns at: the range test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from loom._figures import check_drawn, empty_figure, finished
from loom._palette import COLORS, FAINT
from loom._settings.calls import explained
from loom._settings.checks import real, whole
from loom.data import Data, as_source
from loom.engine import engine_of
from loom.errors import ConfigError, DataError, NonFiniteError
from loom.network import Network
from loom.network.pickling import bare_copy
from loom.reports.base import TabularReport
from loom.schedules import Exponential
from loom.training.automatic import settled_by_source
from loom.training.config import TrainingConfig, check_training
from loom.training.labelling import as_known, learn_classes
from loom.training.named_targets import settled_by_targets
from loom.training.ported import packed, settled_outputs
from loom.training.rehearsal import Rehearsal, batches

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["RateSearch", "find_rate", "plot_rates"]

_SMOOTHING = 0.9
"""The share of the mean so far in each smoothed loss."""
_EXPLODED = 4.0
"""How many times the best smoothed loss a smoothed loss is that has exploded; it is above the first, too."""
_UNSETTLED = 10
"""Of fewer losses the mean is mostly which batches came first: about as many as it is a mean of later."""
_NO_FALL = 1e-6
"""A smaller fall, as a share of the start, is rounding."""
_FEWEST = 8
"""With fewer steps there is no course to read."""


@dataclass(frozen=True, eq=False)
class RateSearch(TabularReport):
    """What a learning-rate range test has shown.

    Args:
        rates: (steps,) the learning rate of each step, rising by a constant factor.
        losses: (steps,) the batch's loss before that step.
        smoothed: (steps,) their exponential mean, corrected for its start.
        exploded: Whether the loss exploded before the largest rate was reached.
        steepest: The rate at which the smoothed loss falls fastest, the first steps aside; NaN where it never
            falls.
        tenth_of_minimum: A tenth of the rate with the smallest smoothed loss; NaN where it never falls.
    """

    rates: NDArray[np.float64]
    losses: NDArray[np.float64]
    smoothed: NDArray[np.float64]
    exploded: bool
    steepest: float
    tenth_of_minimum: float

    @property
    def suggestion(self) -> float:
        """The smaller of the two suggestions; NaN where the loss never fell."""
        return min(self.steepest, self.tenth_of_minimum)

    def columns(self) -> dict[str, Any]:
        """Returns a row for each step: rate, loss, smoothed."""
        return {"rate": self.rates, "loss": self.losses, "smoothed": self.smoothed}

    def __str__(self) -> str:
        end = "where the loss exploded" if self.exploded else "without an explosion"
        return (
            f"{len(self.rates)} steps from a rate of {self.rates[0]:.3g} to {self.rates[-1]:.3g}, {end}\n"
            f"the loss falls fastest at {self.steepest:.3g}; a tenth of the rate of its minimum is "
            f"{self.tenth_of_minimum:.3g}\n"
            f"suggested: learning_rate={self.suggestion:.2g}"
        )

    __repr__ = __str__

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draws the loss over the rate, with both suggestions.

        Args:
            path: Where to write the picture; its ending says the format.

        Returns:
            The matplotlib figure.

        Raises:
            MissingExtraError: Matplotlib is not installed.
            FileError: The picture cannot be written.
        """
        return plot_rates(self, path)


@explained(more="samples and targets go in as one argument, (x, y)")
def find_rate(
    net: Network,
    data: Data,
    config: TrainingConfig | None = None,
    *,
    smallest: float = 1e-7,
    largest: float = 10.0,
    steps: int = 100,
) -> RateSearch:
    """Finds a learning rate by the range test of L. N. Smith (2015, arXiv:1506.01186).

    A copy of the network learns from one batch after another while the rate rises by a constant factor
    each step, with the config's optimizer, loss and clipping. The loss falls first slowly, then fast, and
    at last explodes, where the test ends. A good rate lies where it falls fast. The network itself stays as
    it is, bit for bit: weights, optimizer's state, and what random numbers are drawn next.

    Args:
        net: The network.
        data: (x, y) or (x, y, weight) arrays, a `TrainingBatch`, or an iterable of either that can be
            iterated more than once; of named inputs and outputs dictionaries of arrays, as in training.
        config: How the training goes; its learning rate and schedule do not count.
        smallest: The first step's rate.
        largest: The last step's rate.
        steps: How many steps.

    Returns:
        Rates, losses and suggestions, with a `plot`.

    Raises:
        ConfigError: A setting is out of range.
        DataError: The data is empty, of unequal length, of no known form, or can be iterated only once; or
            the loss exploded at once.
        ShapeError: It does not fit the network.
        NonFiniteError: It holds NaN or infinity.
        StateError: The network is being trained.

    Examples:
        >>> x = np.random.default_rng(0).normal(size=(256, 4))
        >>> net = loom.Sequential([nn.Dense(16, activation="tanh"), nn.Dense(1)], input_shape=4)
        >>> found = loom.find_rate(net, (x, x.sum(axis=1)), loom.TrainingConfig(batch_size=32))
        >>> bool(1e-4 < found.suggestion < 1.0)
        True
    """
    config = check_training(config)
    first = real("find_rate", "smallest", smallest, above=0.0)
    last = real("find_rate", "largest", largest, above=0.0)
    count = whole("find_rate", "steps", steps, least=_FEWEST)
    if last <= first:
        raise ConfigError(f"find_rate: largest must be above smallest, got {first:g} and {last:g}")
    engine = engine_of(net)
    engine.check_idle("find_rate")
    engine.check_fixed("find_rate")
    engine.build()
    # Of named inputs and outputs one row for each sample, as training takes them.
    config = settled_outputs(engine, config)
    told = engine.native.card()
    try:
        # The copy remembers what labels there are; the network is as it was.
        config, seen = settled_by_targets(engine, config, data, learns=True)
        data = as_known(engine, cast("Data", packed(engine, config, seen)), config)
        config = learn_classes(engine, config, data)
        config, source = settled_by_source(net, config, as_source(data))
        rising = Exponential(gamma=last / first, steps=count - 1)
        chosen = replace(config, learning_rate=first, schedule=rising)
        if config.device == "auto" and engine.device != "cpu":
            chosen = replace(chosen, device=engine.device)
        rehearsal = Rehearsal(bare_copy(net), chosen, count)
    finally:
        engine.native.set_card(told)
    rates: list[float] = []
    losses: list[float] = []
    smoothed: list[float] = []
    mean, exploded, counts = 0.0, False, False
    for step, batch in zip(range(count), batches(source, config), strict=False):
        examples = rehearsal.prepare(batch)
        counts = counts or rehearsal.form.counts(examples)
        try:
            loss, rate = rehearsal.step(examples)
        except NonFiniteError:
            exploded = True
            break
        if np.isnan(loss):
            # Left out, while mixed precision looks for its scale.
            continue
        rates.append(rate)
        losses.append(loss)
        mean = _SMOOTHING * mean + (1 - _SMOOTHING) * loss
        smoothed.append(mean / (1 - _SMOOTHING ** len(losses)))
        # Some losses go below 0, and some fall so far that a multiple of the best is still little.
        best = min(smoothed)
        rise = smoothed[-1] - best
        if step >= _FEWEST and smoothed[-1] > smoothed[0] and rise > (_EXPLODED - 1) * abs(best):
            exploded = True
            break
    if not counts:
        raise rehearsal.form.nothing_counts("data")
    if len(rates) < 3:
        raise DataError(
            f"the loss exploded after {len(rates)} steps, at a rate of {first:g}: look at the data and the "
            "weights with loom.doctor, or take a smaller `smallest`"
        )
    return _read(np.asarray(rates), np.asarray(losses), np.asarray(smoothed), exploded)


def _read(
    rates: NDArray[np.float64], losses: NDArray[np.float64], smoothed: NDArray[np.float64], exploded: bool
) -> RateSearch:
    begin = min(_UNSETTLED, len(rates) // 4)
    lowest = begin + int(np.argmin(smoothed[begin:]))
    if smoothed[begin] - smoothed[lowest] <= _NO_FALL * abs(smoothed[begin]):
        return RateSearch(rates, losses, smoothed, exploded, float("nan"), float("nan"))
    # The slope of a line through neighbours: that between two steps is mostly which batch came next.
    reach = max(len(rates) // 20, 1)
    positions = np.log(rates)
    places = range(min(begin + reach, lowest), lowest + 1)
    slopes = [
        np.polyfit(
            positions[max(place - reach, begin) : place + reach + 1],
            smoothed[max(place - reach, begin) : place + reach + 1],
            1,
        )[0]
        for place in places
    ]
    steepest = float(rates[places[int(np.argmin(slopes))]])
    return RateSearch(rates, losses, smoothed, exploded, steepest, float(rates[lowest]) / 10)


def plot_rates(search: RateSearch, path: str | Path | None = None) -> Figure:
    """Draws the loss of a range test over the learning rate, with both suggestions.

    Args:
        search: What `loom.find_rate` has returned.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ConfigError: Something else is given.
        FileError: The picture cannot be written.
    """
    check_drawn("learning_rates", search, RateSearch)
    figure = empty_figure(width=6.0, height=3.8)
    axes = figure.add_subplot()
    axes.plot(search.rates, search.losses, color=FAINT, linewidth=0.8, label="loss of each batch")
    axes.plot(search.rates, search.smoothed, color=COLORS[0], linewidth=1.8, label="smoothed")
    for rate, name, color, style in (
        (search.steepest, "steepest", COLORS[1], "--"),
        (search.tenth_of_minimum, "a tenth of the minimum's", COLORS[2], ":"),
    ):
        if np.isfinite(rate):
            axes.axvline(rate, color=color, linestyle=style, label=f"{name}: {rate:.2g}")
    axes.set_xscale("log")
    # What exploded would press all else to the bottom.
    best = float(search.smoothed.min())
    top = max(float(search.smoothed[0]), best + (_EXPLODED - 1) * abs(best))
    low = min(float(search.losses[np.isfinite(search.losses)].min()), best)
    margin = 0.05 * (top - low) or 1.0
    axes.set_ylim(low - margin, top + margin)
    axes.set_xlabel("learning rate")
    axes.set_ylabel("loss")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize=8)
    return finished(figure, path)
