"""Rates of schedules, against a plain transcription of what each says."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

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
    return 1.0


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
