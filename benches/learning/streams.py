"""Streams of MNIST tasks: permuted pixels, new labels, and two digits at a time.

    python benches/learning/streams.py MNIST [--device DEVICE] [--seeds N] [--only ROW]
        [--protocol NAME] [--batch N]

- permuted: a new permutation of the pixels every 5,000 samples, ten of them, one pass, batch 1 and 16;
  the accuracy of each prediction before it is learned from.
- relabelled: a new permutation of the labels every 5,000 samples, ten of them; the same accuracy.
- split: the digits 0 and 1, then 2 and 3, and so on, 5,000 samples of each pair, batch 16; the accuracy
  over all ten digits afterwards.

Every trainer's rate is chosen from the same grid with seed 1000, for single samples by the first four of the
ten tasks; all see the same samples in the same order.

Rows with four updates take as many steps of backpropagation on every batch: the control of four local steps.

Rows with ticks are clocked by a mesh, and each answer is counted for, and learned from, the samples that
it answers. With a tick a layer those are the last ones shown; with one tick, those shown two ticks earlier,
while the next ones are already on their way. Batches of such rows are cut from the whole stream, and so may
span two tasks; what is left over at its end is a smaller batch. With single samples they are run on permuted
pixels alone, explosions let be.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

import common
import loom
from chase import CLOCKED, FROZEN, ONE_TICK, TRAINERS, UNWATCHED, tween, watched
from loom import nn

TASKS, SAMPLES = 10, 5000
RATES = {1: (0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01), 16: (0.001, 0.003, 0.01, 0.03, 0.1)}
# What several local steps are compared with: as many updates by backpropagation on each batch.
UPDATES = 4
REPEATED = tuple(f"{row}, {UPDATES} updates{UNWATCHED}" for row in ("sgd", "adam"))
# Of how many tasks a rate is chosen by.
TUNING = {1: 4, 16: TASKS}
PROTOCOLS = {"permuted": (1, 16), "relabelled": (1, 16), "split": (16,)}


def rows(protocol: str, batch: int) -> tuple[str, ...]:
    """Returns the rows of one part of the table."""
    if protocol == "split":
        return (*TRAINERS, *CLOCKED)
    if batch > 1:
        return (*TRAINERS, *CLOCKED, *REPEATED)
    return (
        (*TRAINERS, *(row for row in CLOCKED if row.endswith(UNWATCHED)))
        if protocol == "permuted"
        else TRAINERS
    )


def tasks(protocol: str, seed: int, train: loom.datasets.Part) -> list[loom.datasets.Part]:
    """Returns the samples of every task, in the order in which they come."""
    random = np.random.default_rng(seed)
    if protocol == "split":
        found = []
        for first in range(0, 10, 2):
            rows = np.flatnonzero((train.y == first) | (train.y == first + 1))
            rows = random.choice(rows, SAMPLES, replace=False)
            found.append(loom.datasets.Part(train.x[rows], train.y[rows]))
        return found
    order = random.permutation(len(train.x))[: TASKS * SAMPLES].reshape(TASKS, SAMPLES)
    found = []
    for rows in order:
        if protocol == "permuted":
            x, y = train.x[rows][:, random.permutation(train.x.shape[1])], train.y[rows]
        else:
            x, y = train.x[rows], random.permutation(10)[train.y[rows]].astype(train.y.dtype)
        found.append(loom.datasets.Part(np.ascontiguousarray(x), y))
    return found


def run(
    row: str,
    protocol: str,
    batch: int,
    rate: float,
    seed: int,
    device: str,
    data: common.Parts,
    passed: int = TASKS,
) -> dict[str, float]:
    """Passes a stream, or the first tasks of it; returns accuracies in percent."""
    train, _, test = data
    layers = [nn.Dense(256, activation="leaky_relu"), nn.Dense(128, activation="leaky_relu"), nn.Dense(10)]
    net = loom.Sequential(layers, input_shape=train.x.shape[1], seed=seed)
    if row.startswith(FROZEN):
        for layer in range(2):
            net[0, 0, 0, layer].trainable = False
    training = loom.TrainingConfig(
        batch_size=batch,
        learning_rate=rate / 10 if row.startswith("adam") else rate,
        loss="cross_entropy",
        optimizer=loom.Adam() if row.startswith("adam") else loom.SGD(momentum=0.9),
        shuffle=False,
        metrics=["accuracy"],
        on_nonfinite="skip",
        seed=seed,
        device=device,
        verbose=False,
    )
    learn = clocked if row in CLOCKED else repeated if row in REPEATED else unclocked
    accuracies = learn(row, net, training, tasks(protocol, seed, train)[:passed])
    later = accuracies[1:] or accuracies
    figures = {"stream": float(np.mean(accuracies)), "last task": accuracies[-1], "worst task": min(later)}
    return {**figures, "all": 100.0 - common.error(net, test) if protocol == "split" else float("nan")}


def unclocked(
    row: str, net: loom.Network, training: loom.TrainingConfig, parts: list[loom.datasets.Part]
) -> list[float]:
    """Learns task after task; returns the accuracy of each."""
    accuracies = []
    for number, task in enumerate(parts):
        # What a prediction was before it is learned from is what the accuracy in training counts.
        settings = dataclasses.replace(training, epochs=number + 1)
        config = tween(row)
        if config is not None:
            result = loom.TweenTrainer(net, config).fit(task, settings, resume=number > 0)
        else:
            result = loom.train(net, task, settings, resume=number > 0, observe=watched(row))
        accuracies.append(100.0 * result.metrics["accuracy"][-1])
    return accuracies


def repeated(
    row: str, net: loom.Network, training: loom.TrainingConfig, parts: list[loom.datasets.Part]
) -> list[float]:
    """Takes several steps on every batch; returns the accuracy of each task before the first of them."""
    trainer = loom.Trainer(net, training, observe=watched(row))
    accuracies = []
    for task in parts:
        hits = 0
        for first in range(0, len(task.x), training.batch_size):
            x, y = (part[first : first + training.batch_size] for part in (task.x, task.y))
            hits += int(np.sum(np.argmax(net.predict(x), axis=1) == y))
            for _ in range(UPDATES):
                trainer.step(x, y)
        accuracies.append(100.0 * hits / len(task.x))
    return accuracies


def clocked(
    row: str, net: loom.Network, training: loom.TrainingConfig, parts: list[loom.datasets.Part]
) -> list[float]:
    """Clocks the whole stream; returns the accuracy of each task."""
    x, y = (np.concatenate([getattr(part, name) for part in parts]) for name in "xy")
    batch = training.batch_size
    whole = len(x) // batch * batch
    hits = [clock(row, net, training, x[:whole].reshape(-1, batch, x.shape[1]), y[:whole].reshape(-1, batch))]
    if whole < len(x):
        hits.append(clock(row, net, training, x[None, whole:], y[None, whole:], resume=True))
    return [100.0 * float(np.mean(task)) for task in np.split(np.concatenate(hits), len(parts))]


def clock(
    row: str,
    net: loom.Network,
    training: loom.TrainingConfig,
    inputs: NDArray[np.float32],
    labels: NDArray[np.int64],
    resume: bool = False,
) -> NDArray[np.bool_]:
    """Shows batches to a mesh, and after the last whatever brings out its answers; returns what was right."""
    depth = len(net.layers)
    late = depth - 1 if ONE_TICK in row else 0
    config = tween(row)
    mesh = loom.Mesh(net, rows=inputs.shape[1], window=depth)
    stepper = loom.Stepper(
        mesh,
        training,
        ticks=1 if late else depth,
        resume=resume,
        tween=config,
        observe=watched(row) if config is None else False,
    )
    hits = []
    for number in range(len(inputs) + late):
        answered = labels[number - late] if number >= late else None
        stepper.step(inputs[min(number, len(inputs) - 1)], answered)
        if answered is not None:
            hits.append(np.argmax(mesh.output(), axis=1) == answered)
    return np.concatenate(hits)


def main() -> None:
    """Fills the table."""
    parser = common.options("Streams of MNIST tasks.", seeds=5)
    parser.add_argument("--protocol", choices=PROTOCOLS, default=None)
    parser.add_argument("--batch", type=int, choices=RATES, default=None)
    options = parser.parse_args()
    data = common.digits(options.folder, flat=True)
    names = ["stream", "last task", "worst task", "all", "rate"]
    table = common.Table("streams", ["protocol", "batch", "row", "seed"], names)
    for protocol in PROTOCOLS if options.protocol is None else [options.protocol]:
        score = "all" if protocol == "split" else "stream"
        for batch in PROTOCOLS[protocol] if options.batch is None else [options.batch]:
            for row in rows(protocol, batch) if options.only is None else [options.only]:
                tried = {
                    rate: run(row, protocol, batch, rate, 1000, options.device, data, TUNING[batch])[score]
                    for rate in RATES[batch]
                }
                rate = max(tried, key=lambda rate: np.nan_to_num(tried[rate]))
                for seed in common.seeds(options):
                    found = run(row, protocol, batch, rate, seed, options.device, data)
                    table.add([protocol, batch, row, seed], {**found, "rate": rate})
                print(protocol, batch, row, rate, flush=True)
    table.show()


if __name__ == "__main__":
    main()
