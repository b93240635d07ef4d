"""Writes schedules.json beside this file: the rates of PyTorch's schedulers, step by step.

Run it with a Python that has torch.
"""

import json
import random
import warnings
from pathlib import Path

import torch
from torch.optim import lr_scheduler as torch_schedules

RATE, TOTAL = 0.1, 37
SHORTEST = range(1, 21)


def cases():
    """Returns each of loom's schedules with the number of steps and what makes PyTorch's."""
    yield from ((ours, TOTAL, make) for ours, make in long_runs())
    yield from short_runs()


def long_runs():
    s = torch_schedules
    yield {"type": "linear", "end_factor": 0.3}, lambda o: s.LinearLR(o, 1.0, 0.3, TOTAL)
    yield {"type": "linear", "steps": 7}, lambda o: s.LinearLR(o, 1.0, 0.0, 7)
    yield {"type": "cosine", "end_factor": 0.1}, lambda o: s.CosineAnnealingLR(o, TOTAL, 0.1 * RATE)
    yield {"type": "cosine_restarts", "period": 6}, lambda o: s.CosineAnnealingWarmRestarts(o, 6)
    yield (
        {"type": "cosine_restarts", "period": 3, "period_factor": 3.0, "end_factor": 0.1},
        lambda o: s.CosineAnnealingWarmRestarts(o, 3, 3, 0.1 * RATE),
    )
    yield {"type": "exponential", "gamma": 0.9}, lambda o: s.ExponentialLR(o, 0.9)
    yield {"type": "step", "steps": 4, "gamma": 0.5}, lambda o: s.StepLR(o, 4, 0.5)
    yield {"type": "polynomial", "power": 2.0}, lambda o: s.PolynomialLR(o, TOTAL, 2.0)
    yield {"type": "one_cycle"}, lambda o: s.OneCycleLR(o, RATE, TOTAL, cycle_momentum=False)
    shape = {"div_factor": 10.0, "final_div_factor": 100.0}
    yield (
        {"type": "one_cycle", "rise": 0.55, **shape},
        lambda o: s.OneCycleLR(o, RATE, TOTAL, pct_start=0.55, cycle_momentum=False, **shape),
    )


def short_runs():
    s = torch_schedules
    draw = random.Random(7)
    for total in SHORTEST:
        for ours in one_cycles(draw, total):
            theirs = {
                "pct_start": ours.get("rise", 0.3),
                "div_factor": ours.get("div_factor", 25.0),
                "final_div_factor": ours.get("final_div_factor", 1e4),
            }

            def make(optimizer, total=total, theirs=theirs):
                return s.OneCycleLR(optimizer, RATE, total, cycle_momentum=False, **theirs)

            yield ours, total, make
    for total in range(1, 5):
        end, power, steps = draw.uniform(0, 1), draw.uniform(0.3, 3), draw.randint(1, 4)
        made = [
            ({"type": "linear", "end_factor": end}, lambda o, n=total, e=end: s.LinearLR(o, 1.0, e, n)),
            (
                {"type": "linear", "end_factor": end, "steps": steps},
                lambda o, n=steps, e=end: s.LinearLR(o, 1.0, e, n),
            ),
            (
                {"type": "cosine", "end_factor": end},
                lambda o, n=total, e=end: s.CosineAnnealingLR(o, n, e * RATE),
            ),
            (
                {"type": "cosine_restarts", "period": steps, "period_factor": 2.0, "end_factor": end},
                lambda o, n=steps, e=end: s.CosineAnnealingWarmRestarts(o, n, 2, e * RATE),
            ),
            ({"type": "exponential", "gamma": power}, lambda o, p=power: s.ExponentialLR(o, p)),
            (
                {"type": "step", "steps": steps, "gamma": power},
                lambda o, n=steps, p=power: s.StepLR(o, n, p),
            ),
            (
                {"type": "polynomial", "power": power},
                lambda o, n=total, p=power: s.PolynomialLR(o, n, p),
            ),
            (
                {"type": "polynomial", "power": power, "steps": steps},
                lambda o, n=steps, p=power: s.PolynomialLR(o, n, p),
            ),
        ]
        for ours, make in made:
            yield ours, total, make
        # A rise as long as the run, longer, and shorter where there is room.
        for rise in range(2, total + 3):
            then = max(total - rise, 1)
            yield (
                {"type": "warmup", "steps": rise, "then": {"type": "cosine", "end_factor": end}},
                total,
                lambda o, n=rise, t=then, e=end: s.SequentialLR(
                    o, [s.LinearLR(o, 1.0 / n, 1.0, n - 1), s.CosineAnnealingLR(o, t, e * RATE)], [n]
                ),
            )


def one_cycles(draw, total):
    """Returns the usual one and some with settings of their own."""
    yield {"type": "one_cycle"}
    for _ in range(4):
        rise = draw.choice([draw.uniform(0.01, 0.99), draw.choice([0.1, 0.25, 0.5, 0.75, 0.9])])
        # PyTorch divides by zero where the peak is at the first step.
        if rise * total != 1.0:
            yield {
                "type": "one_cycle",
                "rise": rise,
                "div_factor": draw.uniform(0.5, 50),
                "final_div_factor": 10 ** draw.uniform(-1, 5),
            }


def run(make, total):
    parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.SGD([parameter], lr=RATE)
    schedule = make(optimizer)
    rates = []
    for _ in range(total):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


def main():
    warnings.simplefilter("ignore")
    lines = ",\n".join(
        json.dumps({"schedule": ours, "rates": run(make, total)}, separators=(",", ":"))
        for ours, total, make in cases()
    )
    header = f'"torch":"{torch.__version__}","rate":{RATE}'
    Path(__file__).with_suffix(".json").write_text(f'{{{header},"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
