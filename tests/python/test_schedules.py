"""Rates of schedules, against a plain transcription of what each says."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies

import loom
from loom import schedules

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "schedules.json").read_text())


def factor(schedule: schedules.Schedule, step: int, total: int) -> float:
    """What the rate is multiplied by."""
    steps = max(1, getattr(schedule, "steps", None) or total)
    past = min(1.0, step / steps)
    match schedule:
        case schedules.Linear(end_factor=end):
            return 1 + (end - 1) * past
        case schedules.Cosine(end_factor=end):
            return half_wave(1, end, past)
        case schedules.CosineRestarts(period=period, period_factor=longer, end_factor=end):
            start, length = 0.0, float(period)
            while step >= start + length:
                start, length = start + length, length * longer
            return half_wave(1, end, (step - start) / length)
        case schedules.Exponential(gamma=gamma, steps=over):
            return float(gamma ** (step / over))
        case schedules.Step(gamma=gamma, steps=apart):
            return float(gamma ** (step // apart))
        case schedules.Polynomial(power=power, end_factor=end):
            return float(end + (1 - end) * (1 - past) ** power)
        case schedules.OneCycle(rise=rise, div_factor=first, final_div_factor=final):
            peak, last = rise * steps - 1, steps - 1
            place = min(step, last)
            if 0 < place <= peak or place == 0 < peak:
                return half_wave(1 / first, 1, place / peak)
            return half_wave(1, 1 / first / final, (place - peak) / (last - peak))
        case schedules.Warmup(steps=rise, then=then):
            assert isinstance(then, schedules.Schedule)
            return (step + 1) / rise if step < rise else factor(then, step - rise, max(0, total - rise))
        case schedules.Epochs(schedule=counted, steps_per_epoch=steps):
            assert isinstance(counted, schedules.Schedule)
            assert steps is not None
            return factor(in_steps(counted, steps), step, total)
    return 1.0


def in_steps(schedule: schedules.Schedule, epoch: int) -> schedules.Schedule:
    """The same schedule with its lengths in steps."""
    lengths = {
        name: epoch * length
        for name in ("steps", "period")
        if (length := getattr(schedule, name, None)) is not None
    }
    if isinstance(schedule, schedules.Warmup) and isinstance(schedule.then, schedules.Schedule):
        return dataclasses.replace(schedule, **lengths, then=in_steps(schedule.then, epoch))
    return dataclasses.replace(schedule, **lengths)  # type: ignore[type-var]


def half_wave(start: float, end: float, past: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * past)) / 2


@pytest.mark.parametrize("total", range(1, 21))
def test_rates_of_short_runs_are_those_of_pytorch(total: int) -> None:
    cases = [case for case in GOLDEN["cases"] if len(case["rates"]) == total]
    assert len(cases) >= 3
    for case in cases:
        schedule = schedules.resolve(case["schedule"])
        for step, expected in enumerate(case["rates"]):
            found = schedule.rate(GOLDEN["rate"], step, total)
            assert found == pytest.approx(expected, rel=1e-13, abs=1e-15), (case["schedule"], step)


def plain_schedules() -> strategies.SearchStrategy[schedules.Schedule]:
    end = strategies.floats(0, 2)
    length = strategies.integers(1, 40)
    span = strategies.none() | length
    above = strategies.floats(0.1, 3)
    return strategies.one_of(
        strategies.just(schedules.Constant()),
        strategies.builds(schedules.Linear, end_factor=end, steps=span),
        strategies.builds(schedules.Cosine, end_factor=end, steps=span),
        strategies.builds(
            schedules.CosineRestarts,
            period=length,
            period_factor=strategies.sampled_from([1.0, 1.5, 2.0, 3.0]),
            end_factor=end,
        ),
        strategies.builds(schedules.Exponential, gamma=strategies.floats(0.5, 1.1), steps=length),
        strategies.builds(schedules.Step, gamma=above, steps=length),
        strategies.builds(schedules.Polynomial, power=above, end_factor=end, steps=span),
        strategies.builds(
            schedules.OneCycle,
            rise=strategies.floats(0.01, 0.99),
            div_factor=strategies.floats(0.5, 50),
            final_div_factor=strategies.floats(0.1, 1e5),
            steps=span,
        ),
    )


@settings(max_examples=400, deadline=None, derandomize=True)
@given(plain_schedules(), strategies.integers(0, 40), strategies.integers(0, 60))
def test_every_schedule_is_its_formula(schedule: schedules.Schedule, rise: int, total: int) -> None:
    """Also past the run's end, and where the warm-up takes all of it or more."""
    chosen = schedules.Warmup(rise, schedule) if rise else schedule
    for step in range(total + 3):
        expected = 0.3 * factor(chosen, step, total)
        found = chosen.rate(0.3, step, total)
        assert math.isfinite(found)
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12), (chosen, step, total)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(plain_schedules(), strategies.integers(0, 5), strategies.integers(1, 9), strategies.integers(0, 60))
def test_schedules_count_epochs(schedule: schedules.Schedule, rise: int, epoch: int, total: int) -> None:
    """Around a warm-up, and behind one that counts steps."""
    counted = schedules.Epochs(schedules.Warmup(rise, schedule) if rise else schedule, epoch)
    chosen = schedules.Warmup(7, counted) if rise % 2 else counted
    for step in range(total + 3):
        expected = 0.3 * factor(chosen, step, total)
        assert chosen.rate(0.3, step, total) == pytest.approx(expected, rel=1e-9, abs=1e-12), (chosen, step)


class Rates(loom.Callback):
    """Notes the rate of every step, and stops after some."""

    def __init__(self, most: int | None = None) -> None:
        self.rates: list[float] = []
        self.most = most

    def on_train_batch_end(self, batch: int, logs: Any = None) -> bool | None:
        self.rates.append(self.params["learning_rate"])
        return len(self.rates) == self.most or None


EVERY_TWO = schedules.Epochs(schedules.Step(2, gamma=0.5))


def by_epochs(epochs: int = 5) -> loom.TrainingConfig:
    return loom.TrainingConfig(
        epochs=epochs, batch_size=4, learning_rate=0.8, schedule=EVERY_TWO, device="cpu", verbose=False
    )


def test_training_counts_epochs_and_resumes_in_the_middle_of_one(tmp_path: Path) -> None:
    x, y = np.ones((10, 2)), np.zeros((10, 1))
    whole, first, second = Rates(), Rates(most=7), Rates()
    net = loom.Sequential([loom.nn.Dense(1)], input_shape=2)
    loom.train(net, (x, y), by_epochs(), callbacks=[whole])
    assert whole.rates == [0.8] * 6 + [0.4] * 6 + [0.2] * 3
    again = loom.Sequential([loom.nn.Dense(1)], input_shape=2)
    loom.train(again, (x, y), by_epochs(), callbacks=[first])
    again.save(tmp_path / "half.loom", optimizer=True)
    resumed = loom.load(tmp_path / "half.loom")
    # A run that goes on for longer keeps the length of its epochs.
    loom.train(resumed, (x, y), by_epochs(epochs=7), callbacks=[second], resume=True)
    assert first.rates + second.rates == [*whole.rates, *[0.2] * 3, *[0.1] * 3]


def test_batches_have_to_say_how_long_an_epoch_is() -> None:
    net = loom.Sequential([loom.nn.Dense(1)], input_shape=2)

    class Batches:
        def __iter__(self) -> Any:
            return iter([(np.ones((2, 2)), np.zeros((2, 1)))] * 3)

    refused: list[Callable[[], object]] = [
        lambda: loom.train(net, Batches(), by_epochs()),
        lambda: loom.Trainer(net, by_epochs()),
        lambda: loom.TweenState(net, loss=by_epochs()),
        lambda: EVERY_TWO.rate(0.1, 0, 1),
        lambda: EVERY_TWO.plot(10),
    ]
    for call in refused:
        with pytest.raises(loom.ConfigError, match="steps_per_epoch"):
            call()
    told = Rates()
    config = dataclasses.replace(by_epochs(3), schedule=dataclasses.replace(EVERY_TWO, steps_per_epoch=3))
    loom.train(net, Batches(), config, callbacks=[told])
    assert told.rates == [0.8] * 6 + [0.4] * 3
    with pytest.raises(loom.ConfigError, match="must not count epochs itself"):
        schedules.Epochs(schedules.Warmup(2, EVERY_TWO))


def test_learning_by_targets_counts_epochs() -> None:
    net = loom.Sequential([loom.nn.Dense(3), loom.nn.Dense(1)], input_shape=2)
    told = Rates()
    loom.TweenTrainer(net).fit((np.ones((8, 2)), np.zeros((8, 1))), by_epochs(3), callbacks=[told])
    assert told.rates == [0.8] * 4 + [0.4] * 2


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_schedules_are_drawn(tmp_path: Path, ending: str) -> None:
    several = {"cosine": "cosine", "restarts": schedules.CosineRestarts(25)}
    loom.plot.schedule(several, 100, 0.1, tmp_path / f"rates.{ending}")
    assert (tmp_path / f"rates.{ending}").stat().st_size > 1000
    (axes,) = schedules.Linear().plot(5, base=2.0).axes
    (line,) = axes.get_lines()
    np.testing.assert_allclose(line.get_ydata(), [2.0, 1.6, 1.2, 0.8, 0.4])
    # Of long runs some points are enough.
    (axes,) = schedules.Linear().plot(1_000_000).axes
    assert len(axes.get_lines()[0].get_xdata()) == 2000


def test_training_follows_the_rates() -> None:
    """Plain descent along a constant gradient moves the weight by the rate of each step."""
    total = 3
    net = loom.Sequential([loom.nn.Dense(1, bias=False)], input_shape=1, precision="float64")
    schedule = schedules.OneCycle()
    config = loom.TrainingConfig(
        learning_rate=0.5, loss="mae", optimizer=loom.SGD(), schedule=schedule, device="cpu"
    )
    trainer = loom.Trainer(net, config, total_steps=total)
    for step in range(total):
        before = float(net.layers[0].weight[0, 0])
        trainer.step([[1.0]], [[-1e6]])
        moved = before - float(net.layers[0].weight[0, 0])
        assert moved == pytest.approx(schedule.rate(0.5, step, total), abs=1e-9)


@pytest.mark.parametrize(
    "arguments", [(float("nan"), 0, 1), (0.1, -1, 1), (0.1, 0, -1), (0.1, 0.5, 1), ("a", 0, 1)]
)
def test_numbers_that_are_none_are_refused(arguments: tuple[Any, Any, Any]) -> None:
    with pytest.raises(loom.ConfigError, match="Cosine: "):
        schedules.Cosine().rate(*arguments)


@pytest.mark.parametrize("schedule", ["cosine", schedules.Warmup(5, then="linear"), schedules.OneCycle()])
def test_who_takes_steps_one_by_one_says_how_many(schedule: Any) -> None:
    """Without it nothing moved after the first step."""
    config = loom.TrainingConfig(schedule=schedule, loss="mse", device="cpu")
    net = loom.Sequential([loom.nn.Dense(1)], input_shape=1)
    with pytest.raises(loom.ConfigError, match=r"spans the whole run, .* total_steps="):
        loom.Trainer(net, config)
    loom.Trainer(net, config, total_steps=9).step([[1.0]], [[1.0]])
    with pytest.raises(loom.ConfigError, match=r"spans the whole run, .* total_updates="):
        loom.Stepper(loom.Mesh(net, window=2), config)
    loom.Stepper(loom.Mesh(net, window=2), config, total_updates=9).step([[1.0]], [[1.0]])
