"""Every sample of every layer that the engine knows, each in a network that it fits into."""

from __future__ import annotations

import itertools
import json
from typing import Any

import loom
from loom import _native, nn

SAMPLES: dict[str, list[dict[str, Any]]] = json.loads(_native.layer_samples())
SHAPES = [
    *[(extent,) for extent in range(1, 51)],
    *itertools.product((5, 6, 4, 8, 12, 3, 2, 1), (4, 6, 8, 7, 5, 9, 10, 12)),
    *[(channels, extent, extent) for channels in (1, 2, 3, 4, 6, 8) for extent in (4, 6, 8, 9)],
    *[(channels, 5, 6) for channels in range(1, 10)],
    *[(channels, extent, extent, extent) for channels in (1, 2, 3, 4, 6) for extent in (3, 4, 5, 6)],
    (2, 3, 4, 9),
    (4, 3, 2),
    (2, 3, 4),
    (1, 3),
]


def built(config: dict[str, Any], precision: str) -> loom.Network:
    """A network of this layer, for the first shape that it takes."""
    fitting = (net for shape in SHAPES if (net := around(config, shape, precision)) is not None)
    return next(fitting)


def around(config: dict[str, Any], shape: tuple[int, ...], precision: str) -> loom.Network | None:
    """A network of this layer, with what it needs beside it; None where the shape does not fit."""
    rows: list[list[Any]] = [[config]]
    if config.get("tied_to"):
        rows = [[nn.Embedding(9, 4), config]]
    if config.get("cross"):
        rows = [[], [config]]
    if config.get("initial_state") == "context":
        rows = [[nn.Flatten()], [nn.Reshape(shape)], [config]]
    net = loom.Network(shape, (1, len(rows)), precision=precision, seed=3)
    for column, layers in enumerate(rows):
        net[0, column].add(*layers)
    if len(rows) > 1:
        net.link((0, 0), (0, -1), "context")
    try:
        return net.build()
    except loom.LoomError:
        return None
