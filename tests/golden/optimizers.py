"""Writes optimizers.json beside this file: 100 steps of PyTorch's optimizers.

Run it with a Python that has torch. Weights and gradients follow fixed formulas
in fractions that float32 holds exactly; the Rust test repeats them. No element's
gradient stands still: centred RMSprop then divides by the root of a difference of
equal numbers, and PyTorch's own float32 is 1e-3 away from its float64.
"""

import json
from pathlib import Path

import torch

WEIGHTS, STEPS = 24, 100
CHECKPOINTS = [1, 2, 10, 100]


def initial():
    return [((17 * i) % 23 - 11) / 8 for i in range(WEIGHTS)]


def gradient(step):
    return [((37 * i + 101 * step + 2 * i * step) % 61 - 30) / 32 / 2 ** (i % 8) for i in range(WEIGHTS)]


def rate(base, step):
    return base * (1 - step / 128)


def sgd():
    for decay in (0.0, 0.01):
        for momentum, nesterov in ((0.0, False), (0.9, False), (0.9, True)):
            options = {"momentum": momentum, "nesterov": nesterov, "weight_decay": decay}
            yield torch.optim.SGD, {"type": "sgd", **options}, options, 0.05


def adam():
    for cls, kind in ((torch.optim.Adam, "adam"), (torch.optim.AdamW, "adamw")):
        for decay in (0.0, 0.1):
            for beta1, beta2, epsilon in ((0.9, 0.999, 1e-8), (0.5, 0.98, 1e-3)):
                ours = {
                    "type": kind,
                    "beta1": beta1,
                    "beta2": beta2,
                    "epsilon": epsilon,
                    "weight_decay": decay,
                }
                theirs = {"betas": (beta1, beta2), "eps": epsilon, "weight_decay": decay}
                yield cls, ours, theirs, 0.01


def rmsprop():
    for decay in (0.0, 0.01):
        for centered in (False, True):
            for momentum in (0.0, 0.9):
                for alpha, epsilon in ((0.99, 1e-8), (0.9, 1e-4)):
                    shared = {
                        "alpha": alpha,
                        "momentum": momentum,
                        "centered": centered,
                        "weight_decay": decay,
                    }
                    ours = {"type": "rmsprop", "epsilon": epsilon, **shared}
                    yield torch.optim.RMSprop, ours, {"eps": epsilon, **shared}, 0.001


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of Chen et al. 2023, which PyTorch does not have."""

    def __init__(self, weights, lr, foreach, **settings):
        assert not foreach
        super().__init__(weights, {"lr": lr, **settings})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for weight in group["params"]:
                state = self.state[weight]
                mean = state.get("mean", torch.zeros_like(weight))
                sign = torch.sign(beta1 * mean + (1 - beta1) * weight.grad)
                weight -= group["lr"] * (sign + group["weight_decay"] * weight)
                state["mean"] = beta2 * mean + (1 - beta2) * weight.grad


def lion():
    for decay in (0.0, 0.1):
        for beta1, beta2 in ((0.9, 0.99), (0.5, 0.98)):
            ours = {"type": "lion", "beta1": beta1, "beta2": beta2, "weight_decay": decay}
            yield Lion, ours, {"betas": (beta1, beta2), "weight_decay": decay}, 0.001


class NAdam(torch.optim.Optimizer):
    """Dozat 2016 with one momentum for all steps, as Optax has it; PyTorch's momentum grows."""

    def __init__(self, weights, lr, foreach, **settings):
        assert not foreach
        super().__init__(weights, {"lr": lr, **settings})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for weight in group["params"]:
                state = self.state[weight]
                number = state["number"] = state.get("number", 0) + 1
                gradient = weight.grad + group["weight_decay"] * weight
                mean = beta1 * state.get("mean", torch.zeros_like(weight)) + (1 - beta1) * gradient
                square = beta2 * state.get("square", torch.zeros_like(weight)) + (1 - beta2) * gradient**2
                ahead = beta1 * mean / (1 - beta1 ** (number + 1))
                ahead = ahead + (1 - beta1) * gradient / (1 - beta1**number)
                weight -= group["lr"] * ahead / ((square / (1 - beta2**number)).sqrt() + group["eps"])
                state["mean"], state["square"] = mean, square


def others():
    for decay in (0.0, 0.01):
        for epsilon in (1e-10, 1e-3):
            ours = {"type": "adagrad", "epsilon": epsilon, "weight_decay": decay}
            yield torch.optim.Adagrad, ours, {"eps": epsilon, "weight_decay": decay}, 0.01
        for rho, epsilon in ((0.9, 1e-6), (0.5, 1e-3)):
            ours = {"type": "adadelta", "rho": rho, "epsilon": epsilon, "weight_decay": decay}
            yield torch.optim.Adadelta, ours, {"rho": rho, "eps": epsilon, "weight_decay": decay}, 1.0
        for cls, kind in ((torch.optim.Adamax, "adamax"), (NAdam, "nadam"), (torch.optim.RAdam, "radam")):
            for beta1, beta2, epsilon in ((0.9, 0.999, 1e-8), (0.5, 0.98, 1e-3)):
                ours = {
                    "type": kind,
                    "beta1": beta1,
                    "beta2": beta2,
                    "epsilon": epsilon,
                    "weight_decay": decay,
                }
                theirs = {"betas": (beta1, beta2), "eps": epsilon, "weight_decay": decay}
                yield cls, ours, theirs, 0.01


def run(cls, options, base, dtype):
    weights = torch.nn.Parameter(torch.tensor(initial(), dtype=dtype))
    optimizer = cls([weights], lr=base, foreach=False, **options)
    found = []
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = rate(base, step)
        weights.grad = torch.tensor(gradient(step), dtype=dtype)
        optimizer.step()
        if step + 1 in CHECKPOINTS:
            found.append(weights.detach().tolist())
    return found


def main():
    cases = []
    for cls, ours, theirs, base in [*sgd(), *adam(), *rmsprop(), *lion(), *others()]:
        double = run(cls, theirs, base, torch.float64)
        single = run(cls, theirs, base, torch.float32)
        single = [[float(f"{x:.9g}") for x in row] for row in single]
        cases.append({"optimizer": ours, "rate": base, "float64": double, "float32": single})
    path = Path(__file__).with_suffix(".json")
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    header = f'"torch":"{torch.__version__}","checkpoints":{CHECKPOINTS}'
    path.write_text(f'{{{header},"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
