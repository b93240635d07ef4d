"""How many images a second a folder with augmentation gives, in loom and in torchvision.

    python benches/peers/images.py [--torch PYTHON] [--images COUNT] [--rounds COUNT]

Writes folders of 28x28 grey PNGs and of 224x224 colour JPEGs into a temporary place, and goes through each
with both: flip, a shift by a fourteenth, brightness, contrast and, in colour, saturation by a fifth, and a
rectangle erased of every fourth image, batches of 128 or 32. Loom has 0, 1 and 2 threads, torchvision 0, 1
and 2 processes, which is how each goes to work; the best round of each is told. PYTHON is an interpreter that
has PyTorch and torchvision, where this one has not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

KINDS = {"28x28 png": (28, "png", "L", 128), "224x224 jpg": (224, "jpg", "RGB", 32)}
WORKERS = (0, 1, 2)


def write(folder: Path, side: int, ending: str, mode: str, count: int) -> None:
    """Writes images that are smooth, as photographs are, in two classes."""
    from PIL import Image

    draw = np.random.default_rng(0)
    for number in range(count):
        place = folder / str(number % 2)
        place.mkdir(parents=True, exist_ok=True)
        coarse = draw.integers(0, 256, (side // 8 + 1, side // 8 + 1, 3)).astype(np.uint8)
        image = Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC).convert(mode)
        image.save(place / f"{number:06}.{ending}", quality=90)


def rate(batches: Iterable[Any]) -> float:
    """Goes through an epoch; returns images a second."""
    started, count = time.perf_counter(), 0
    for batch in batches:
        count += len(batch[0] if isinstance(batch, (tuple, list)) else batch.input)
    return count / (time.perf_counter() - started)


def in_loom(folder: Path, kind: str, workers: int) -> float:
    """Returns images a second of loom."""
    import loom

    side, _, mode, batch = KINDS[kind]
    colour = 0.2 if mode == "RGB" else 0.0
    augment = loom.data.Augment(
        flip=0.5, crop=side // 14, brightness=0.2, contrast=0.2, saturation=colour, erase=0.25
    )
    return rate(loom.data.image_folder(folder, batch_size=batch, augment=augment, workers=workers))


def in_torchvision(folder: Path, kind: str, workers: int) -> float:
    """Returns images a second of torchvision."""
    import torch
    from torchvision import datasets, transforms

    side, _, mode, batch = KINDS[kind]
    steps = [
        *([transforms.Grayscale()] if mode == "L" else []),
        transforms.RandomHorizontalFlip(),
        transforms.RandomCrop(side, padding=side // 14),
        transforms.ColorJitter(0.2, 0.2, 0.2 if mode == "RGB" else 0.0),
        transforms.ToTensor(),
        transforms.RandomErasing(0.25),
    ]
    data = datasets.ImageFolder(str(folder), transforms.Compose(steps))
    if workers == 0:
        torch.set_num_threads(2)
    loader = torch.utils.data.DataLoader(data, batch_size=batch, shuffle=True, num_workers=workers)
    return rate(loader)


def measured(python: str, peer: str, folder: Path, kind: str, workers: int) -> float | None:
    """Measures in a process of its own; None where the peer is not there."""
    call = [python, __file__, "--peer", peer, str(folder), kind, str(workers)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    return float(json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 else None


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        peer, folder, kind, workers = options.peer
        measure = in_loom if peer == "loom" else in_torchvision
        print(json.dumps(measure(Path(folder), kind, int(workers))))
        return
    with tempfile.TemporaryDirectory() as place:
        for kind, (side, ending, mode, _) in KINDS.items():
            folder = Path(place) / kind.split()[0]
            count = options.images if side < 100 else options.images // 5
            write(folder, side, ending, mode, count)
            best: dict[tuple[str, int], float] = {}
            for _ in range(options.rounds):
                for workers in WORKERS:
                    for peer, python in (("loom", sys.executable), ("torchvision", options.torch)):
                        found = measured(python, peer, folder, kind, workers)
                        if found is not None:
                            best[peer, workers] = max(found, best.get((peer, workers), 0.0))
            for (peer, workers), value in sorted(best.items()):
                print(f"{kind:12} {peer:12} workers {workers}: {value:8,.0f} images a second")


if __name__ == "__main__":
    main()
