"""Learning-rate schedules: factors that multiply the learning rate, step by step.

A schedule is a function of the step number alone, so training resumed from a
file needs no state of it. Where `steps` is None the schedule spans the whole
run (after the warm-up, where there is one). `Epochs` around a schedule has its
lengths count epochs instead of steps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from loom import _native
from loom._figures import empty_figure, finished
from loom._settings.checks import real, whole
from loom._settings.encoding import Tagged, TaggedFamily
from loom._settings.spellings import attribute_error
from loom._settings.suggestions import shown, unknown
from loom._typing import ScheduleName
from loom.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "Constant",
    "Cosine",
    "CosineRestarts",
    "Epochs",
    "Exponential",
    "Linear",
    "OneCycle",
    "Polynomial",
    "Schedule",
    "ScheduleLike",
    "Step",
    "Warmup",
    "plot_schedules",
    "require_known_epochs",
    "require_known_length",
    "resolve",
]


_BOUNDS: dict[str, dict[str, float]] = {
    "end_factor": {"least": 0.0},
    "period_factor": {"least": 1.0},
    "gamma": {"above": 0.0},
    "power": {"above": 0.0},
    "rise": {"above": 0.0, "below": 1.0},
    "div_factor": {"above": 0.0},
    "final_div_factor": {"above": 0.0},
}


class Schedule(Tagged):
    """Base of the schedule configurations."""

    __slots__ = ()

    def rate(self, base: float, step: int, total: int) -> float:
        """Returns the learning rate of one step, for loops of one's own.

        Args:
            base: The learning rate that the schedule starts from.
            step: The number of the step, from 0.
            total: How many steps the whole run has.

        Returns:
            The rate that training takes at that step.

        Raises:
            ConfigError: A number is out of range.
        """
        name = type(self).__name__
        require_known_epochs(self)
        return _native.schedule_rate(
            json.dumps(self.to_config()),
            real(name, "base", base),
            whole(name, "step", step, least=0),
            whole(name, "total", total, least=0),
        )

    def plot(self, total: int, base: float = 1.0, path: str | Path | None = None) -> Figure:
        """Draws the learning rate over the steps of a run; `loom.plot.schedule` draws several.

        Args:
            total: How many steps the whole run has.
            base: The learning rate that the schedule starts from.
            path: Where to write the picture; its ending says the format.

        Returns:
            The matplotlib figure.

        Raises:
            MissingExtraError: Matplotlib is not installed.
            ConfigError: A number is out of range.
            FileError: The picture cannot be written.
        """
        return plot_schedules(self, total, base, path)

    def __post_init__(self) -> None:
        where = type(self).__name__
        for field in fields(cast(Any, self)):
            value = getattr(self, field.name)
            if field.name in {"steps", "period", "steps_per_epoch"}:
                # Where None may be given it stands for the whole run.
                if value is not None or field.default is not None:
                    value = whole(where, field.name, value, least=1)
            elif field.name in _BOUNDS:
                value = real(where, field.name, value, **_BOUNDS[field.name])
            object.__setattr__(self, field.name, value)


ScheduleLike: TypeAlias = "ScheduleName | Schedule | Mapping[str, Any]"

FAMILY: TaggedFamily[Schedule] = TaggedFamily("schedule")


@FAMILY.register("constant")
@dataclass(frozen=True)
class Constant(Schedule):
    """The learning rate as it is."""


@FAMILY.register("linear")
@dataclass(frozen=True)
class Linear(Schedule):
    """A straight line from 1 to `end_factor`, which then stays.

    Args:
        end_factor: The factor at the end.
        steps: How many steps the line takes; the whole run by default.
    """

    end_factor: float = 0.0
    _: KW_ONLY
    steps: int | None = None


@FAMILY.register("cosine")
@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine wave from 1 to `end_factor`, which then stays.

    Args:
        end_factor: The factor at the end.
        steps: How many steps the wave takes; the whole run by default.
    """

    _: KW_ONLY
    end_factor: float = 0.0
    steps: int | None = None


@FAMILY.register("cosine_restarts")
@dataclass(frozen=True)
class CosineRestarts(Schedule):
    """Cosine waves from 1 to `end_factor`, one after the other (Loshchilov and Hutter 2017).

    Args:
        period: How many steps the first wave takes.
        period_factor: How many times longer each wave is than the one before;
            at least 1.
        end_factor: The factor at the end of each wave.
    """

    period: int
    _: KW_ONLY
    period_factor: float = 1.0
    end_factor: float = 0.0


@FAMILY.register("exponential")
@dataclass(frozen=True)
class Exponential(Schedule):
    """`gamma ** (step / steps)`.

    Args:
        gamma: The factor after `steps` steps; above zero.
        steps: Over how many steps the rate falls to `gamma` of itself.
    """

    gamma: float
    steps: int = 1


@FAMILY.register("step")
@dataclass(frozen=True)
class Step(Schedule):
    """`gamma ** (step // steps)`: a drop every so many steps.

    Args:
        steps: How many steps lie between two drops.
        gamma: What each drop multiplies the rate by; above zero.
    """

    steps: int
    gamma: float = 0.1


@FAMILY.register("polynomial")
@dataclass(frozen=True)
class Polynomial(Schedule):
    """`end_factor + (1 - end_factor) * (1 - step / steps) ** power`, then `end_factor`.

    Args:
        power: The exponent; above zero.
        end_factor: The factor at the end.
        steps: How many steps the fall takes; the whole run by default.
    """

    power: float = 1.0
    _: KW_ONLY
    end_factor: float = 0.0
    steps: int | None = None


@FAMILY.register("one_cycle")
@dataclass(frozen=True)
class OneCycle(Schedule):
    """One rise and one long fall, both half cosine waves (Smith and Topin 2018).

    The rate starts at 1 / div_factor, reaches 1 (the configured learning rate)
    after `rise` of the steps, and ends at 1 / (div_factor * final_div_factor).
    Where `rise` of the steps comes to less than one, the first step is part of
    the fall. PyTorch's OneCycleLR has the same rates for every number of steps.

    Args:
        rise: The share of the steps spent rising; between 0 and 1.
        div_factor: The configured rate over the first one.
        final_div_factor: The first rate over the last one.
        steps: How many steps the cycle takes; the whole run by default.
    """

    _: KW_ONLY
    rise: float = 0.3
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    steps: int | None = None


@FAMILY.register("warmup")
@dataclass(frozen=True)
class Warmup(Schedule):
    """A straight rise to 1 over the first steps, then another schedule from its start.

    Args:
        steps: How many steps the rise takes.
        then: The schedule that follows; constant by default.
    """

    steps: int
    then: ScheduleLike = Constant()

    def __post_init__(self) -> None:
        then = resolve(self.then)
        if isinstance(then, Warmup):
            raise ConfigError("Warmup: then must not be another Warmup")
        object.__setattr__(self, "then", then)
        super().__post_init__()


@FAMILY.register("epochs")
@dataclass(frozen=True)
class Epochs(Schedule):
    """Another schedule whose lengths count epochs instead of steps.

    `Epochs(Step(30))` drops the rate every 30 epochs, `Epochs(Warmup(5, then=Cosine()))` rises for 5
    epochs; between whole epochs the rate goes on changing from step to step. As what follows a
    `Warmup` it counts from the end of the rise.

    Args:
        schedule: The schedule.
        steps_per_epoch: How many steps an epoch has. `loom.train` knows it; loops of one's own, and
            data without len(), have to give it.

    Examples:
        >>> halving = loom.schedules.Epochs(loom.schedules.Step(2, gamma=0.5), steps_per_epoch=100)
        >>> [halving.rate(0.1, step, 1000) for step in (0, 199, 200, 400)]
        [0.1, 0.1, 0.05, 0.025]
    """

    schedule: ScheduleLike
    steps_per_epoch: int | None = None

    def __post_init__(self) -> None:
        schedule = resolve(self.schedule)
        if _epochs_in(schedule) is not None:
            raise ConfigError("Epochs: schedule must not count epochs itself")
        object.__setattr__(self, "schedule", schedule)
        super().__post_init__()


def _epochs_in(schedule: ScheduleLike) -> Epochs | None:
    if isinstance(schedule, Warmup):
        return _epochs_in(schedule.then)
    return schedule if isinstance(schedule, Epochs) else None


def require_known_epochs(schedule: ScheduleLike) -> None:
    """Refuses a schedule that counts epochs and does not say how many steps one has.

    Args:
        schedule: The schedule.

    Raises:
        ConfigError: It is one.
    """
    counted = _epochs_in(schedule)
    if counted is not None and counted.steps_per_epoch is None:
        raise ConfigError(
            "Epochs: nothing says here how many steps an epoch has; give the schedule its steps_per_epoch"
        )


def require_known_length(schedule: ScheduleLike, why: str) -> None:
    """Refuses a schedule that has to know how long a run is, where nobody does.

    Args:
        schedule: The schedule.
        why: Why nobody knows, and what tells it, for the message.

    Raises:
        ConfigError: It is such a one.
    """
    require_known_epochs(schedule)
    if isinstance(schedule, Schedule) and _spans_the_run(schedule):
        raise ConfigError(f"{type(schedule).__name__} spans the whole run, whose length is unknown {why}")


def _spans_the_run(schedule: Schedule) -> bool:
    if isinstance(schedule, Warmup):
        return isinstance(schedule.then, Schedule) and _spans_the_run(schedule.then)
    if isinstance(schedule, Epochs):
        return isinstance(schedule.schedule, Schedule) and _spans_the_run(schedule.schedule)
    return getattr(schedule, "steps", 1) is None


def resolve(value: ScheduleLike | None) -> Schedule:
    """Returns the schedule that a `schedule=` argument means.

    Args:
        value: A schedule, the name of one that needs no settings, its JSON
            form, or None for constant.

    Returns:
        The schedule.

    Raises:
        ConfigError: The name or a key is unknown, or a value out of range.
    """
    if value is None:
        return Constant()
    if isinstance(value, Schedule):
        return value
    if isinstance(value, Mapping):
        return FAMILY.from_config(value)
    kind: object = value
    if isinstance(kind, str) and kind in FAMILY.kinds:
        return FAMILY.from_config({"type": kind})
    if callable(kind) and not isinstance(kind, type):
        raise ConfigError(
            f"a schedule is one of loom.schedules, which files can hold, got the function {shown(value)}; "
            "Epochs(Step(30)) and Warmup(5, then=Cosine()) make most of what functions do"
        )
    raise unknown("schedule", value, FAMILY.kinds)


_MOST_POINTS = 2000


def plot_schedules(
    schedule: ScheduleLike | Mapping[str, ScheduleLike],
    total: int,
    base: float = 1.0,
    path: str | Path | None = None,
) -> Figure:
    """Draws the learning rate over the steps of a run.

    Args:
        schedule: A schedule, or its name; or several, by what they are called in the legend.
        total: How many steps the whole run has.
        base: The learning rate that each starts from.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ConfigError: A number is out of range, or a schedule counts epochs and does not say how many
            steps one has.
        FileError: The picture cannot be written.
    """
    steps = whole("plot.schedule", "total", total, least=1)
    several = isinstance(schedule, Mapping) and "type" not in schedule
    drawn: Mapping[str, Any] = cast("Mapping[str, Any]", schedule) if several else {"": schedule}
    chosen = {name: resolve(entry) for name, entry in drawn.items()}
    shown = np.unique(np.linspace(0, steps - 1, min(steps, _MOST_POINTS)).astype(np.int64))
    courses = {name: [it.rate(base, int(step), steps) for step in shown] for name, it in chosen.items()}
    figure = empty_figure(width=6.0, height=3.5)
    axes = figure.add_subplot()
    for name, rates in courses.items():
        axes.plot(shown, rates, label=name)
    axes.set_xlabel("step")
    axes.set_ylabel("learning rate")
    axes.set_ylim(bottom=0.0)
    axes.grid(visible=True, alpha=0.3)
    if several:
        figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return finished(figure, path)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise attribute_error(__name__, name, __all__)
