"""Writes schedules.json beside this file: the rates of PyTorch's schedulers, step by step.

Run it with a Python that has torch.
"""

import json
import warnings
from pathlib import Path

import torch
from torch.optim import lr_scheduler as torch_schedules

RATE, TOTAL = 0.1, 37


def cases():
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


def run(make):
    parameter = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.SGD([parameter], lr=RATE)
    schedule = make(optimizer)
    rates = []
    for _ in range(TOTAL):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return rates


def main():
    warnings.simplefilter("ignore")
    lines = ",\n".join(
        json.dumps({"schedule": ours, "rates": run(make)}, separators=(",", ":")) for ours, make in cases()
    )
    header = f'"torch":"{torch.__version__}","rate":{RATE},"total":{TOTAL}'
    Path(__file__).with_suffix(".json").write_text(f'{{{header},"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
