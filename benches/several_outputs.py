"""What several outputs and layers by expression cost, beside what they are made of, in one run.

    chrt -r 10 python benches/several_outputs.py [--rounds COUNT]

Two heads on one trunk, trained together, beside the two trained alone, less the trunk's own time, which both
have: with nothing lost that is 1. Then a network with an activation by expression beside the built-in one.
Epochs of arrays in turn; ratios are those of each round, and of these the median is told, with the quartiles.
One above 1 is faster than what it is compared with.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import loom
from loom import nn

ROWS, WIDTH, BATCH = 4096, 512, 256
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, WIDTH)).astype(np.float32)
Y: dict[str, Any] = {
    "kind": RNG.integers(0, 128, ROWS),
    "age": RNG.normal(size=(ROWS, 64)).astype(np.float32),
}
LOSS = {"kind": "cross_entropy", "age": "huber"}


def heads(*names: str) -> loom.Network:
    """Returns a trunk with these heads; without any, the trunk."""
    net = loom.Network(input_shape=WIDTH, grid=(1, 3), seed=0)
    net[0, 0].add(nn.Dense(WIDTH, activation="tanh"), nn.Dense(WIDTH, activation="tanh"))
    units = {"kind": 128, "age": 64}
    for column, name in enumerate(names, 1):
        at = (0, column)
        if column > 1:
            net.link((0, 0), at, combine="replace")
        net[at].add(nn.Dense(256, activation="relu"), nn.Dense(units[name]))
        net.output(name, at)
    return net


def stack(activation: Callable[[], nn.Layer]) -> loom.Network:
    """Returns dense layers with an activation after each."""
    layers = [layer for _ in range(3) for layer in (nn.Dense(WIDTH), nn.LayerNorm(), activation())]
    return loom.Sequential([*layers, nn.Dense(64)], input_shape=WIDTH, seed=0)


def epoch(net: loom.Network, y: Any, loss: Any) -> Callable[[], float]:  # noqa: ANN401 - targets, and losses
    """Returns what trains an epoch and tells its seconds."""
    # That targets of the trunk alone lie beyond its tanh is no matter here.
    quiet: dict[str, Any] = {"verbose": False, "ignore_findings": ("targets-out-of-reach",)}
    config = loom.TrainingConfig(epochs=1, batch_size=BATCH, loss=loss, device="cpu", **quiet)

    def run() -> float:
        started = time.perf_counter()
        loom.train(net, (X, y), config)
        return time.perf_counter() - started

    return run


def main() -> None:
    """Prints the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    trunk = RNG.normal(size=(ROWS, WIDTH)).astype(np.float32)
    gelu = "0.5 * x * (1 + tanh(0.7978845608 * (x + 0.044715 * x ** 3)))"
    runs = {
        "both heads": epoch(heads("kind", "age"), Y, LOSS),
        "kind": epoch(heads("kind"), {"kind": Y["kind"]}, {"kind": "cross_entropy"}),
        "age": epoch(heads("age"), {"age": Y["age"]}, {"age": "huber"}),
        "trunk": epoch(heads(), trunk, "mse"),
        "gelu, built in": epoch(stack(lambda: nn.Activation("gelu_tanh")), Y["age"], "mse"),
        "gelu, by expression": epoch(stack(lambda: nn.Expr(gelu)), Y["age"], "mse"),
        "silu, built in": epoch(stack(lambda: nn.Activation("silu")), Y["age"], "mse"),
        "silu, by expression": epoch(stack(lambda: nn.Expr("x * sigmoid(x)")), Y["age"], "mse"),
        "softplus, built in": epoch(stack(lambda: nn.Activation("softplus")), Y["age"], "mse"),
        "softplus, by expression": epoch(stack(lambda: nn.Expr("softplus(x)")), Y["age"], "mse"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            found = run()
            if number:
                seconds[name].append(found)
    times = {name: np.array(each) for name, each in seconds.items()}
    for name, value in times.items():
        print(f"{name:26} {1e3 * np.median(value):8.1f} ms an epoch")
    parts = times["kind"] + times["age"] - times["trunk"]
    tell("both heads, beside the sum of their parts", parts / times["both heads"])
    for name in ("gelu", "silu", "softplus"):
        ratios = times[f"{name}, built in"] / times[f"{name}, by expression"]
        tell(f"{name} by expression, beside the built-in one", ratios)


def tell(what: str, ratios: NDArray[np.float64]) -> None:
    """Prints a ratio of speeds."""
    low, middle, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    print(f"{what}: {middle:.3f} of the speed ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
