"""`loom bench`: how fast a few fixed networks are here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from loom.command_line.output import table, write, write_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from loom.network import Network

__all__ = ["command"]

_ROWS = 256
_BATCH = 64
_MOST_EPOCHS = 1000


@click.command("bench", epilog="Example: loom bench --device gpu")
@click.option(
    "--device", "chosen", multiple=True, help="A device; all but software GPUs where none is given."
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.001),
    default=0.5,
    show_default=True,
    help="How long each of the three measurements of a network lasts.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
def command(chosen: tuple[str, ...], seconds: float, *, as_json: bool) -> None:
    """Measure a few fixed networks here: a matter of seconds."""
    from loom.device import check_device, devices

    names = [check_device("bench", name) for name in chosen]
    names = names or [device.name for device in devices() if not device.software]
    measured = [_measure(kind, device, seconds) for device in names for kind in _networks()]
    if as_json:
        write_json(measured)
        return
    header = ("network", "device", "one sample, us", "predicts, rows/s", "trains, rows/s")
    table(
        header,
        [
            (
                row["network"],
                row["device"],
                f"{row['one_sample_us']:,.0f}",
                f"{row['predict_rows_per_s']:,.0f}",
                f"{row['train_rows_per_s']:,.0f}",
            )
            for row in measured
        ],
    )
    write(f"rows at once: {_ROWS} predicted, {_BATCH} trained with AdamW; float32")


def _networks() -> dict[str, tuple[list[Any], tuple[int, ...]]]:
    """Returns layers and input shapes by name; all tell ten classes."""
    from loom import nn

    image = [
        nn.Conv2D(16, 3, activation="relu"),
        nn.MaxPool2D(2),
        nn.Conv2D(32, 3, activation="relu"),
        nn.MaxPool2D(2),
        nn.Flatten(),
        nn.Dense(10),
    ]
    block = [
        nn.Residual([nn.LayerNorm(), nn.MultiHeadAttention(4)]),
        nn.Residual([nn.LayerNorm(), nn.Dense(128, activation="gelu"), nn.Dense(64)]),
    ]
    wide = [nn.Dense(512, activation="relu"), nn.Dense(512, activation="relu"), nn.Dense(10)]
    return {
        "perceptron 784-512-512-10": (wide, (784,)),
        "convolutional 28 x 28": (image, (1, 28, 28)),
        "transformer 32 x 64": ([*block, nn.Flatten(), nn.Dense(10)], (32, 64)),
    }


def _measure(name: str, device: str, seconds: float) -> dict[str, Any]:
    import numpy as np

    from loom.network import Sequential

    layers, shape = _networks()[name]
    net = Sequential(layers, shape).to(device)
    draws = np.random.default_rng(0)
    x = draws.normal(size=(_ROWS, *shape)).astype(np.float32)
    y = draws.integers(10, size=_ROWS)
    one = _rate(lambda: net.predict(x[:1]), seconds)
    return {
        "network": name,
        "device": net.device,
        "one_sample_us": 1e6 / one,
        "predict_rows_per_s": _ROWS * _rate(lambda: net.predict(x), seconds),
        "train_rows_per_s": _training_rate(net, x, y, seconds),
    }


def _rate(call: Any, seconds: float) -> float:  # noqa: ANN401 - whatever can be called
    """Returns calls a second, by the median of their times."""
    from statistics import median
    from time import perf_counter

    call()
    times: list[float] = []
    began = perf_counter()
    while len(times) < 3 or perf_counter() - began < seconds:
        before = perf_counter()
        call()
        times.append(perf_counter() - before)
    return 1 / median(times)


def _training_rate(net: Network, x: NDArray[Any], y: NDArray[Any], seconds: float) -> float:
    from loom.training.backpropagation import train
    from loom.training.config import TrainingConfig

    def trained(epochs: int) -> float:
        config = TrainingConfig(
            epochs=epochs, batch_size=_BATCH, loss="cross_entropy", device=net.device, verbose=False
        )
        return train(net, (x, y), config).throughput

    trained(1)
    once = trained(1)
    return trained(max(1, min(_MOST_EPOCHS, round(seconds * once / len(x)))))
