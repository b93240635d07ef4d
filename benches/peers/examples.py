"""The documentation's five larger examples in loom and in PyTorch: what each reaches on data held out.

    python benches/peers/examples.py [--torch PYTHON] [--seeds COUNT] [--only NAME]

A U-Net, a Siamese network, a two-tower recommender, a table with entity embeddings, and a classifier of
sequences of any length, as in docs/guides (networks.md, several-inputs.md, any-length.md). Both sides have
the same data, layers, optimizer (Adam, batches of 32), rate and number of epochs, and draw weights and the
order of samples as each does by itself; so each is trained with several seeds, and what is told is the mean
and the range. PYTHON is an interpreter that has PyTorch, where this one has not.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Task = dict[str, Any]


def unet() -> Task:
    """Discs in noise."""
    rng = np.random.default_rng(0)
    places, radii = rng.uniform(4, 12, (400, 2, 1, 1)), rng.uniform(2, 4, (400, 1, 1))
    rows, columns = np.mgrid[:16, :16]
    discs = (rows - places[:, 0]) ** 2 + (columns - places[:, 1]) ** 2 < radii**2
    images = (discs + rng.normal(0, 0.5, discs.shape))[:, None].astype(np.float32)
    return {
        "train": ([images[:320]], discs[:320].astype(np.int64)),
        "held": ([images[320:]], discs[320:].astype(np.int64)),
        "epochs": 8,
        "rate": 5e-3,
        "loss": "cross_entropy",
        "figure": "intersection over union",
    }


def write_digits(place: Path) -> None:
    """Writes the digits that come with loom, for an interpreter without it."""
    import loom

    parts = loom.datasets.digits(test_fraction=0.2, seed=0)
    arrays = {f"{name}{number}": getattr(part, name) for number, part in enumerate(parts) for name in "xy"}
    np.savez(place, **arrays)


def siamese() -> Task:
    """Pairs of digits."""
    digits = np.load(os.environ["DIGITS"])

    def pairs(part: int, count: int, seed: int) -> tuple[list[Array], Array]:
        rng = np.random.default_rng(seed)
        x, y = digits[f"x{part}"], digits[f"y{part}"]
        x = x.reshape(len(x), -1)
        first = rng.integers(0, len(x), count)
        alike = [rng.choice(np.flatnonzero(y == y[number])) for number in first[: count // 2]]
        second = np.concatenate([alike, rng.integers(0, len(x), count - count // 2)]).astype(int)
        return [np.stack([x[first], x[second]], axis=1).astype(np.float32)], y[first] == y[second]

    return {
        "train": pairs(0, 6000, 0),
        "held": pairs(1, 1000, 1),
        "epochs": 12,
        "rate": 3e-3,
        "loss": "binary_cross_entropy",
        "figure": "accuracy",
    }


def towers() -> Task:
    """Who likes what."""
    rng = np.random.default_rng(0)
    users, films, likes = 30, 50, 3000
    who, what = rng.integers(0, users, likes), rng.integers(0, films, likes)
    tastes, looks = rng.normal(size=(users, 2)), rng.normal(size=(films, 2))
    stars = np.tanh((tastes[who] * looks[what]).sum(axis=1)).astype(np.float32)
    return {
        "train": ([who[:2500], what[:2500]], stars[:2500]),
        "held": ([who[2500:], what[2500:]], stars[2500:]),
        "epochs": 40,
        "rate": 5e-3,
        "loss": "mse",
        "figure": "share of variance left",
    }


def entities() -> Task:
    """Sales by shop, day and price."""
    rng = np.random.default_rng(0)
    rows = 1000
    shop, day = rng.integers(0, 12, rows), rng.integers(0, 7, rows)
    price = rng.normal(size=(rows, 1)).astype(np.float32)
    sold = (np.sin(shop) + np.cos(day) - 0.5 * price[:, 0]).astype(np.float32)
    return {
        "train": ([price[:600], shop[:600], day[:600]], sold[:600]),
        "held": ([price[600:], shop[600:], day[600:]], sold[600:]),
        "epochs": 40,
        "rate": 1e-2,
        "loss": "mse",
        "figure": "share of variance left",
    }


def lengths() -> Task:
    """Texts of 3 to 39 words, one of which decides."""
    rng = np.random.default_rng(0)
    texts = [rng.integers(2, 500, rng.integers(3, 40)) for _ in range(960)]
    labels = rng.integers(0, 2, len(texts))
    for text, label in zip(texts, labels, strict=True):
        text[rng.integers(len(text))] = label
    return {
        "train": ([texts[:560]], labels[:560]),
        "held": ([texts[560:]], labels[560:]),
        "epochs": 8,
        "rate": 1e-2,
        "loss": "cross_entropy",
        "figure": "accuracy",
    }


TASKS: dict[str, Callable[[], Task]] = {
    "U-Net": unet,
    "Siamese": siamese,
    "two towers": towers,
    "entity embeddings": entities,
    "any length": lengths,
}


def score(figure: str, output: Array, target: Array) -> float:
    """Returns what a figure is of outputs."""
    if figure == "share of variance left":
        return float(((output.reshape(len(target)) - target) ** 2).mean() / target.var())
    if output.ndim == 4:
        said = output.argmax(axis=1) == 1
        # Of the discs' pixels and of the others', as the mean over classes is meant.
        both = [
            ((said == kind) & (target == kind)).sum() / ((said == kind) | (target == kind)).sum()
            for kind in (0, 1)
        ]
        return float(np.mean(both))
    said = output.argmax(axis=1) if output.shape[1] > 1 else output[:, 0] > 0
    return float((said == target).mean())


def in_loom(name: str, seed: int) -> tuple[float, float]:
    """Trains in loom; returns the figure and the seconds."""
    import loom
    from loom import nn

    task = TASKS[name]()
    names: tuple[str, ...] = ("x",)
    if name == "U-Net":

        def block(filters: int) -> nn.Layer:
            return nn.Conv2D(filters, kernel_size=3, padding="same", activation="relu")

        net = loom.Network((1, 16, 16), grid=(1, 5), seed=seed)
        net[0, 0].add(block(8))
        net[0, 1].add(nn.MaxPool2D(2), block(16))
        net[0, 2].add(nn.MaxPool2D(2), block(32), nn.UpSampling2D(2))
        net.link((0, 1), (0, 3), combine="concat")[0, 3].add(block(16), nn.UpSampling2D(2))
        net.link((0, 0), (0, 4), combine="concat")[0, 4].add(block(8), nn.Conv2D(2, kernel_size=1))
    elif name == "Siamese":
        towers = [nn.Dense(64, activation="relu"), nn.Dense(16), nn.Permute((1, 0))]
        distance = [nn.Dense(1, bias=False), nn.Flatten(), nn.Expr("x * x"), nn.Dense(1)]
        net = loom.Sequential([*towers, *distance], input_shape=(2, 64), seed=seed)
        net.layers[3].weight = [[1.0, -1.0]]
        net.layers[3].trainable = False
    elif name == "two towers":
        names = ("user", "film")
        net = loom.Network(
            inputs={"user": loom.Categories(30), "film": loom.Categories(50)}, grid=(1, 3), seed=seed
        )
        net[0, 0].add(nn.Embedding(30, 8), nn.Flatten())
        net.enter("film", (0, 1))[0, 1].add(nn.Embedding(50, 8), nn.Flatten())
        net.link((0, 0), (0, 2), combine="multiply")[0, 2].add(nn.Dense(1))
    elif name == "entity embeddings":
        names = ("price", "shop", "day")
        inputs: Any = {"price": 1, "shop": loom.Categories(12), "day": loom.Categories(7)}
        net = loom.Network(inputs=inputs, grid=(1, 4), seed=seed)
        net.enter("shop", (0, 1))[0, 1].add(nn.Embedding(12, 3), nn.Flatten())
        net.enter("day", (0, 2))[0, 2].add(nn.Embedding(7, 3), nn.Flatten())
        net.link((0, 0), (0, 3), combine="concat").link((0, 1), (0, 3), combine="concat")
        net[0, 3].add(nn.Dense(32, activation="relu"), nn.Dense(1))
    else:
        layers = [nn.Embedding(500, 16), nn.LSTM(16, bidirectional=True), nn.Dense(2)]
        net = loom.Sequential(layers, input_shape=(None,), seed=seed)

    def form(parts: list[Any]) -> Any:  # noqa: ANN401 - an array, or arrays by name
        return parts[0] if names == ("x",) else dict(zip(names, parts, strict=True))

    (x, y), (held, truth) = task["train"], task["held"]
    y = y.astype(np.float32) if task["loss"] == "binary_cross_entropy" else y
    started = time.perf_counter()
    net.fit(
        form(x),
        y,
        epochs=task["epochs"],
        batch_size=32,
        learning_rate=task["rate"],
        loss=task["loss"],
        seed=seed,
        verbose=False,
    )
    seconds = time.perf_counter() - started
    return score(task["figure"], np.asarray(net.predict(form(held))), truth), seconds


def in_torch(name: str, seed: int) -> tuple[float, float]:
    """Trains in PyTorch; returns the figure and the seconds."""
    import torch
    from torch import nn
    from torch.nn import functional

    torch.manual_seed(seed)
    torch.set_num_threads(2)
    task = TASKS[name]()

    def block(read: int, made: int) -> Any:  # noqa: ANN401 - a module
        return nn.Sequential(nn.Conv2d(read, made, 3, padding="same"), nn.ReLU())

    class UNet(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList([block(1, 8), block(8, 16), block(16, 32)])
            self.up = nn.ModuleList([block(48, 16), block(24, 8)])
            self.last = nn.Conv2d(8, 2, 1)

        def forward(self, x: Any) -> Any:  # noqa: ANN401
            one = self.down[0](x)
            two = self.down[1](functional.max_pool2d(one, 2))
            three = self.down[2](functional.max_pool2d(two, 2))
            back = self.up[0](torch.cat([functional.interpolate(three, scale_factor=2), two], 1))
            return self.last(self.up[1](torch.cat([functional.interpolate(back, scale_factor=2), one], 1)))

    class Siamese(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tower = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
            self.last = nn.Linear(16, 1)

        def forward(self, x: Any) -> Any:  # noqa: ANN401
            made = self.tower(x)
            return self.last((made[:, 0] - made[:, 1]) ** 2)

    class Towers(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.user, self.film, self.last = nn.Embedding(30, 8), nn.Embedding(50, 8), nn.Linear(8, 1)

        def forward(self, user: Any, film: Any) -> Any:  # noqa: ANN401
            return self.last(self.user(user) * self.film(film))

    class Entities(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.shop, self.day = nn.Embedding(12, 3), nn.Embedding(7, 3)
            self.last = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 1))

        def forward(self, price: Any, shop: Any, day: Any) -> Any:  # noqa: ANN401
            return self.last(torch.cat([price, self.shop(shop), self.day(day)], 1))

    class Lengths(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(500, 16)
            self.lstm, self.last = nn.LSTM(16, 16, bidirectional=True, batch_first=True), nn.Linear(32, 2)

        def forward(self, texts: list[Any]) -> Any:  # noqa: ANN401
            padded = nn.utils.rnn.pad_sequence(texts, batch_first=True)
            packed = nn.utils.rnn.pack_padded_sequence(
                self.embed(padded), [len(text) for text in texts], batch_first=True, enforce_sorted=False
            )
            hidden = self.lstm(packed)[1][0]
            return self.last(torch.cat([hidden[0], hidden[1]], 1))

    modules: dict[str, Any] = {
        "U-Net": UNet,
        "Siamese": Siamese,
        "two towers": Towers,
        "entity embeddings": Entities,
        "any length": Lengths,
    }
    net = modules[name]()
    losses: dict[str, Any] = {
        "cross_entropy": functional.cross_entropy,
        "mse": lambda given, wanted: functional.mse_loss(given[:, 0], wanted),
        "binary_cross_entropy": lambda given, wanted: functional.binary_cross_entropy_with_logits(
            given[:, 0], wanted.float()
        ),
    }
    loss, optimizer = losses[task["loss"]], torch.optim.Adam(net.parameters(), lr=task["rate"])
    (x, y), (held, truth) = task["train"], task["held"]

    def of(parts: list[Any], rows: Any) -> list[Any]:  # noqa: ANN401
        ragged = isinstance(parts[0], list)
        if ragged:
            return [[torch.from_numpy(parts[0][row]) for row in rows]]
        return [torch.from_numpy(np.ascontiguousarray(part[rows])) for part in parts]

    started = time.perf_counter()
    for _ in range(task["epochs"]):
        for rows in torch.randperm(len(y)).split(32):
            optimizer.zero_grad()
            loss(net(*of(x, rows.numpy())), torch.from_numpy(y[rows.numpy()])).backward()
            optimizer.step()
    seconds = time.perf_counter() - started
    with torch.no_grad():
        output = net(*of(held, np.arange(len(truth)))).numpy()
    return score(task["figure"], output, truth), seconds


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", choices=TASKS)
    parser.add_argument("--peer", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        peer, name, seeds = options.peer
        train = in_loom if peer == "loom" else in_torch
        print(json.dumps([train(name, seed) for seed in range(int(seeds))]))
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DIGITS"] = str(Path(folder) / "digits.npz")
        write_digits(Path(folder) / "digits.npz")
        for name in [options.only] if options.only else TASKS:
            for peer, python in (("loom", sys.executable), ("PyTorch", options.torch)):
                call = [python, __file__, "--peer", peer, name, str(options.seeds)]
                done = subprocess.run(call, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise SystemExit(done.stderr)
                figures, seconds = np.array(json.loads(done.stdout.splitlines()[-1])).T
                print(
                    f"{name:18} {peer:8} {TASKS[name]()['figure']:24} {figures.mean():.3f} "
                    f"({figures.min():.3f} to {figures.max():.3f}), {np.median(seconds):.2f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
