"""A type for each layer against one type for all, at equal bytes: loss and accuracy of two trained networks.

    python benches/peers/bits.py MNIST TEXT [--network NAME]
    python benches/peers/bits.py --table

MNIST is the folder of its IDX files, TEXT a text file. The convolutional network and the character model are
those of numeric_types.py, trained in float32 once. For the bytes of every single type `Network.fit_bits`
chooses types by 8,000 images, or 800 texts, of what the network has learned from; then both are scored on
what it has not seen: 10,000 images, the last tenth of the texts. The rows go into results/bits.csv beside
this script; `--table` prints them as the tables of docs/analysis/bits.md.
"""

from __future__ import annotations

import argparse
import copy
import csv
from pathlib import Path
from typing import Any, cast

import loom
from numeric_types import Study, studies, trained

RESULTS = Path(__file__).parent / "results" / "bits.csv"
COLUMNS = (
    "network",
    "type",
    "bytes",
    "loss",
    "accuracy",
    "fitted_bytes",
    "fitted_loss",
    "fitted_accuracy",
    "types",
)
CHOSEN_BY = {"convolution": (8000, 1), "characters": (800, 0)}
"""How many samples types are chosen by, and how often layers are measured again around a choice."""


def scores(study: Study, net: loom.Network) -> tuple[float, float]:
    """Returns loss and accuracy in percent on what was held out."""
    found = net.evaluate(study.held_out, loss="cross_entropy", metrics=["accuracy"], batch_size=256)
    return found["loss"], 100.0 * found["accuracy"]


def compare(study: Study, net: loom.Network) -> list[dict[str, object]]:
    """Returns a row for each type."""
    count, refinements = CHOSEN_BY[study.name]
    x, y = study.learned
    data, validation = (x[:count], y[:count]), (x[count : count + 100], y[count : count + 100])
    sensitivity = loom.analysis.sensitivity(net, data, loss="cross_entropy")
    sensitivity.print()
    fitted: dict[int, tuple[int, float, float, str]] = {}
    rows: list[dict[str, object]] = []
    for dtype in sensitivity.dtypes:
        single = copy.deepcopy(net).morph(cast("Any", dtype))
        budget = single.weight_bytes
        if budget not in fitted:
            mixed = copy.deepcopy(net)
            report = mixed.fit_bits(
                data,
                max_bytes=budget,
                validation=validation,
                loss="cross_entropy",
                sensitivity=sensitivity,
                refinements=refinements,
            )
            fitted[budget] = (mixed.weight_bytes, *scores(study, mixed), " ".join(report.chosen.dtypes))
        row = (study.name, dtype, budget, *scores(study, single), *fitted[budget])
        rows.append(dict(zip(COLUMNS, row, strict=True)))
        print(rows[-1], flush=True)
    return rows


def write(rows: list[dict[str, object]]) -> None:
    """Replaces the rows of a network."""
    known = read() if RESULTS.exists() else []
    kept = [row for row in known if row["network"] != rows[0]["network"]]
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*kept, *rows])


def read() -> list[dict[str, object]]:
    """Returns what was measured."""
    with RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


def table() -> None:
    """Prints what was measured, in Markdown, the largest budget first."""
    rows = read()
    for network in dict.fromkeys(str(row["network"]) for row in rows):
        print(f"\n{network}\n")
        print("| one type | bytes | loss | accuracy | fitted, bytes | loss | accuracy | loss saved |")
        print(f"|---|{'---:|' * 7}")
        own = [row for row in rows if row["network"] == network]
        for row in sorted(own, key=lambda row: -int(str(row["bytes"]))):
            size, fitted = int(str(row["bytes"])), int(str(row["fitted_bytes"]))
            loss, mixed = float(str(row["loss"])), float(str(row["fitted_loss"]))
            accuracies = [f"{float(str(row[name])):.2f}" for name in ("accuracy", "fitted_accuracy")]
            print(
                f"| `{row['type']}` | {size:,} | {loss:.5f} | {accuracies[0]} | {fitted:,} | {mixed:.5f} "
                f"| {accuracies[1]} | {loss - mixed:+.5f} |"
            )


def main() -> None:
    """Trains, chooses, scores."""
    parser = argparse.ArgumentParser(description="A type for each layer against one type for all.")
    parser.add_argument("folder", type=Path, nargs="?", help="where MNIST's IDX files are")
    parser.add_argument("text", type=Path, nargs="?", help="a text file")
    parser.add_argument("--network", default=None, help="one network alone")
    parser.add_argument(
        "--cache", type=Path, default=Path("target/numeric_types"), help="for float32 networks"
    )
    parser.add_argument("--table", action="store_true", help="prints the tables alone")
    options = parser.parse_args()
    if not options.table:
        if options.folder is None or options.text is None:
            parser.error("MNIST and TEXT are needed to measure")
        for study in studies(options.folder, options.text, "cpu"):
            if study.name in CHOSEN_BY and options.network in {None, study.name}:
                write(compare(study, trained(study, options.cache)))
    table()


if __name__ == "__main__":
    main()
