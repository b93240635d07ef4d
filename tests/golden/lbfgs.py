"""Writes lbfgs.json beside this file: trainings by PyTorch's L-BFGS.

Run it with a Python that has torch (2.15). A small network, 6 to 8 to 3 with tanh between, learns to map 12 rows onto 12
others by the mean squared error in float64; weights and data follow a fixed formula, which the test repeats. What is kept
are the losses of some iterations and the weights at the end.
"""

import json
from pathlib import Path

import torch

ITERATIONS = 30
CASES = {
    "wolfe": {"lr": 1.0, "history_size": 100, "line_search_fn": "strong_wolfe"},
    "short_history": {"lr": 0.7, "history_size": 4, "line_search_fn": "strong_wolfe"},
    "plain": {"lr": 0.2, "history_size": 10, "line_search_fn": None},
}
SHAPES = [(8, 6), (8,), (3, 8), (3,)]


def array(shape, offset, scale):
    count = int(torch.tensor(shape).prod())
    numbers = [((37 * i + 11 * offset) % 61 - 30) / 32 for i in range(count)]
    return scale * torch.tensor(numbers, dtype=torch.float64).reshape(shape)


def run(settings):
    weights = [array(shape, place, 0.5).requires_grad_() for place, shape in enumerate(SHAPES)]
    x, y = array((12, 6), 5, 1.0), array((12, 3), 9, 1.0)

    def loss():
        first, bias, second, last = weights
        return ((torch.tanh(x @ first.T + bias) @ second.T + last - y) ** 2).mean()

    # One iteration a call, whose first evaluation is of where the one before has ended.
    ends = {"max_iter": 1, "max_eval": 1000, "tolerance_grad": 0.0, "tolerance_change": 0.0}
    rule = torch.optim.LBFGS(weights, **ends, **settings)
    told = []

    def closure():
        rule.zero_grad()
        found = loss()
        found.backward()
        return found

    told += [rule.step(closure).item() for _ in range(ITERATIONS)]
    told.append(loss().item())
    return {"losses": told, "weights": [each.detach().flatten().tolist() for each in weights]}


if __name__ == "__main__":
    found = {name: {"settings": settings, **run(settings)} for name, settings in CASES.items()}
    Path(__file__).with_suffix(".json").write_text(json.dumps({"torch": torch.__version__, **found}) + "\n")
