"""Draws the learning benchmarks' results for the documentation.

    python benches/learning/plots.py

Writes docs/learning/*.svg from benches/learning/results.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

from common import RESULTS, interval
from loom._figures import empty_figure, finished
from loom._palette import COLORS, INK

STYLES = ("solid", "dashed")
PLOTS = Path(__file__).parents[2] / "docs" / "learning"
CHASE = (
    "adam, explosions let be",
    "adam, one tick, explosions let be",
    "chain rule, one tick, explosions let be",
    "adam",
    "chain rule, 4 local steps",
    "chain rule",
    "layerwise",
    "difference",
    "repeat last label",
    "frozen lower layers",
)
STREAMS = (
    "adam, 4 updates, explosions let be",
    "sgd, 4 updates, explosions let be",
    "chain rule, 4 local steps",
    "adam",
    "sgd",
    "chain rule",
    "adam, one tick, explosions let be",
    "sgd, one tick, explosions let be",
    "chain rule, one tick, explosions let be",
    "difference",
    "difference reconstruction",
    "layerwise",
    "frozen lower layers",
)


def rows(name: str) -> list[dict[str, str]]:
    """Returns the rows of a table."""
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def chase() -> None:
    """Draws accuracy by window."""
    groups: dict[str, list[list[float]]] = defaultdict(list)
    for row in rows("chase"):
        if row["loss"] in ("softmax", "-"):
            groups[row["row"]].append([float(row[f"window {number}"]) for number in range(10)])
    figure = empty_figure(width=9.5, height=4.5)
    axes = figure.add_subplot()
    for number, name in enumerate(CHASE):
        means, halves = zip(*(interval(values) for values in zip(*groups[name], strict=True)), strict=True)
        axes.errorbar(
            range(1, 11), means, yerr=halves, label=name, capsize=2, linestyle=STYLES[number // len(COLORS)]
        )
    for switch in (10 / 3, 20 / 3):
        axes.axvline(switch + 0.5, color=INK, linewidth=0.8, linestyle=":")
    axes.set(xlabel="tenth of the run", ylabel="accuracy, %", ylim=(0, 100))
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    finished(figure, PLOTS / "chase.svg")


def streams() -> None:
    """Draws accuracy on streams in batches of 16."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for row in rows("streams"):
        if row["batch"] == "16":
            groups[row["protocol"], row["row"]].append(float(row["stream"]))
    figure = empty_figure(width=8.0, height=4.5)
    axes = figure.add_subplot()
    for offset, protocol in ((-0.2, "permuted"), (0.2, "relabelled")):
        means, halves = zip(*(interval(groups[protocol, name]) for name in STREAMS), strict=True)
        places = [number + offset for number in range(len(STREAMS))]
        axes.barh(places, means, 0.38, xerr=halves, label=protocol, capsize=2)
    axes.set(
        yticks=range(len(STREAMS)), yticklabels=STREAMS, xlabel="accuracy before learning, %", xlim=(0, 100)
    )
    axes.invert_yaxis()
    axes.legend(loc="lower right")
    finished(figure, PLOTS / "streams.svg")


if __name__ == "__main__":
    chase()
    streams()
