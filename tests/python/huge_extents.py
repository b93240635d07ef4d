"""Networks of extents where arithmetic wraps: run as a program, it tries random ones in a process of its own.

    python huge_extents.py SEED COUNT

A crash ends the process; what is built to a wrong shape, refused though it is allowed, or refused by
something else than an error of loom's is printed, and the exit status is 1. Expected shapes come from
Python's integers, which never wrap.
"""

from __future__ import annotations

import json
import random
import resource
import struct
import sys
import tempfile
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import loom
from loom import nn

# What docs/layers.md promises.
MOST_ELEMENTS = 1 << 40
MOST_REACH = (1 << 31) - 1
# How much memory a process may take beyond what it has when it starts.
MEMORY = 1 << 28
# Networks up to this size are run as well as built.
SMALL = 1 << 12
# Layers whose many weights would take long to draw.
DRAWN = (
    "conv",
    "dense",
    "embedding",
    "geglu",
    "gru",
    "lstm",
    "multi_head",
    "positional",
    "rnn",
    "swiglu",
    "tied_head",
)

Config = dict[str, Any]
Shape = tuple[int, ...]


class RefusedError(Exception):
    """What the reference refuses."""


def limit_memory() -> None:
    """Lets the process have little more memory than it has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def near(draw: random.Random) -> int:
    """A number near those where something wraps or is limited."""
    power = draw.choice((0, 1, 2, 3, 5, 8, 12, 16, 20, 24, 30, 31, 32, 33, 40, 41, 48, 62, 63, 64))
    return max(0, draw.choice((1 << power, 3 << power >> 1)) + draw.randint(-2, 2))


def small(draw: random.Random) -> int:
    return draw.randint(1, 9)


def number(draw: random.Random) -> int:
    """Mostly an everyday number."""
    return near(draw) if draw.random() < 0.25 else small(draw)


def shape_of(draw: random.Random, rank: int) -> Shape:
    """An input shape that may hold something large."""
    extents = [small(draw) for _ in range(rank)]
    if draw.random() < 0.3:
        extents[draw.randrange(rank)] = near(draw)
    return tuple(extents)


def some(draw: random.Random, **options: Callable[[], Any]) -> Config:
    """Each option with even odds."""
    return {name: value() for name, value in options.items() if draw.random() < 0.5}


def several(draw: random.Random, axes: int, one: Callable[[random.Random], int] = number) -> list[int]:
    return [one(draw) for _ in range(axes)]


def within(what: int, most: int = MOST_ELEMENTS) -> int:
    if what > most:
        raise RefusedError
    return what


def check_shape(shape: Shape) -> Shape:
    if not shape or 0 in shape:
        raise RefusedError
    within(prod(shape))
    return shape


# Layers with windows: the reference knows their output and what they refuse.


def windows(config: Config, shape: Shape, axes: int, transposed: bool) -> Shape:
    """Extents of what a window makes, and whether it is within the limits."""
    if len(shape) != axes + 1:
        raise RefusedError
    pool = "pool_size" in config
    kernel: list[int] = config["pool_size" if pool else "kernel_size"]
    stride: list[int] = config.get("stride", kernel if pool else [1] * axes)
    padding: Any = config.get("padding", [0] * axes)
    dilation: list[int] = config.get("dilation", [1] * axes)
    added: list[int] = config.get("output_padding", [0] * axes)
    numbers = [*kernel, *stride, *dilation, *added, *(padding if isinstance(padding, list) else ())]
    if min(kernel + stride + dilation) < 1 or max(numbers) > MOST_REACH or max(shape[1:]) > MOST_REACH:
        raise RefusedError
    if pool and any(2 * pad > size for pad, size in zip(padding, kernel, strict=True)):
        raise RefusedError
    if transposed and any(
        extra >= max(step, distance) for extra, step, distance in zip(added, stride, dilation, strict=True)
    ):
        raise RefusedError
    if transposed and padding == "same" and any(added):
        raise RefusedError
    made, bordered = [], []
    for axis, extent in enumerate(shape[1:]):
        reach = dilation[axis] * (kernel[axis] - 1) + 1
        step, pad = stride[axis], 0 if isinstance(padding, str) else padding[axis]
        if transposed:
            whole = (extent - 1) * step + reach
            out = extent * step if padding == "same" else whole + added[axis] - 2 * pad
            before = max(0, reach - step) // 2 if padding == "same" else pad
            inner, windows_end = out, whole
        else:
            out = -(-extent // step) if padding == "same" else (extent + 2 * pad - reach) // step + 1
            before = max(0, (out - 1) * step + reach - extent) // 2 if padding == "same" else pad
            inner, windows_end = extent, (out - 1) * step + reach
        if out < 1:
            raise RefusedError
        made.append(out)
        within(max(out, windows_end, inner + before), MOST_REACH)
        bordered.append(max(windows_end, inner + before))
    channels = shape[0] if pool or not transposed else config["filters"]
    within(channels * prod(bordered))
    if pool:
        return (shape[0], *made)
    filters, groups = config["filters"], config.get("groups", 1)
    if filters < 1 or groups < 1 or filters % groups or shape[0] % groups:
        raise RefusedError
    within(filters * (shape[0] // groups if not transposed else 1) * prod(kernel))
    if transposed:
        within(shape[0] * (filters // groups) * prod(kernel))
    return check_shape((filters, *made))


def convolution(draw: random.Random, axes: int, transposed: bool) -> tuple[Config, Shape]:
    kind = "conv_transpose" if transposed else "conv"
    filters = number(draw)
    config: Config = {"type": f"{kind}{axes}d", "filters": filters, "kernel_size": several(draw, axes)}
    config |= some(
        draw,
        stride=lambda: several(draw, axes),
        padding=lambda: draw.choice(["same", "valid", several(draw, axes)]),
        dilation=lambda: several(draw, axes),
        bias=lambda: draw.random() < 0.5,
    )
    if draw.random() < 0.2:
        config["groups"] = draw.choice([number(draw), filters])
    if transposed and draw.random() < 0.3:
        config["output_padding"] = several(draw, axes, lambda draw: draw.choice([0, 1, number(draw)]))
    return config, shape_of(draw, axes + 1)


def pool(draw: random.Random, axes: int, kind: str) -> tuple[Config, Shape]:
    config: Config = {"type": f"{kind}_pool{axes}d", "pool_size": several(draw, axes)}
    config |= some(draw, stride=lambda: several(draw, axes))
    if draw.random() < 0.3:
        config["padding"] = [draw.choice([0, size // 2, number(draw)]) for size in config["pool_size"]]
    return config, shape_of(draw, axes + 1)


def reference_of_windows(config: Config, shape: Shape) -> Shape:
    kind: str = config["type"]
    given = dict(config)
    if given.get("padding") == "valid":
        del given["padding"]
    made = windows(given, shape, int(kind[-2]), kind.startswith("conv_transpose"))
    if kind.startswith("max_pool"):
        within(prod(shape[1:]), MOST_REACH)
    return made


# Layers whose output is known, but not all that they refuse.


def reshape(draw: random.Random) -> tuple[Config, Shape]:
    shape = shape_of(draw, draw.randint(1, 3))
    extents = [draw.choice([-1, number(draw), *shape]) for _ in range(draw.randint(1, 4))]
    if draw.random() < 0.4:
        # As many elements as the input has, if products wrap.
        factor = draw.choice([3, 5, 7, 9, 11])
        inverse = pow(factor, -1, 1 << 64) * prod(shape) % (1 << 64)
        extents = [factor, inverse, *extents[:0]]
    return {"type": "reshape", "shape": extents}, shape


def reference_of_reshape(config: Config, shape: Shape) -> Shape:
    extents: list[int] = config["shape"]
    if extents.count(-1) > 1 or any(extent < 1 and extent != -1 for extent in extents):
        raise RefusedError
    known = prod(extent for extent in extents if extent > 0)
    if prod(shape) % known or (-1 not in extents and known != prod(shape)):
        raise RefusedError
    return check_shape(tuple(prod(shape) // known if extent == -1 else extent for extent in extents))


def last_axis(size: Callable[[Config, int], int]) -> Callable[[Config, Shape], Shape]:
    return lambda config, shape: (*shape[:-1], size(config, shape[-1]))


def same(_: Config, shape: Shape) -> Shape:
    return shape


def recurrent(draw: random.Random) -> tuple[Config, Shape]:
    config: Config = {"type": draw.choice(["rnn", "lstm", "gru"]), "units": number(draw)}
    # The usual one takes the cube of the units.
    config["recurrent_initializer"] = "zeros"
    config |= some(
        draw,
        layers=lambda: number(draw),
        bidirectional=lambda: draw.random() < 0.5,
        return_sequences=lambda: draw.random() < 0.5,
        bias=lambda: draw.random() < 0.5,
        initial_state=lambda: "learned",
    )
    return config, shape_of(draw, 2)


def reference_of_recurrent(config: Config, shape: Shape) -> Shape:
    width: int = config["units"] * (2 if config.get("bidirectional") else 1)
    return (shape[0], width) if config.get("return_sequences") else (width,)


def attention(draw: random.Random) -> tuple[Config, Shape]:
    heads = number(draw)
    config: Config = {"type": "multi_head_attention", "heads": heads}
    config |= some(
        draw,
        key_value_heads=lambda: draw.choice([1, heads, number(draw)]),
        head_dim=lambda: number(draw),
        causal=lambda: draw.random() < 0.5,
        window=lambda: number(draw),
        rotary=lambda: {"base": 100.0},
        qk_norm=lambda: draw.random() < 0.5,
    )
    return config, shape_of(draw, 2)


def parallel(draw: random.Random) -> tuple[Config, Shape]:
    branches = [[{"type": "dense", "units": number(draw)}] for _ in range(draw.randint(1, 3))]
    config: Config = {"type": "parallel", "branches": branches}
    if draw.random() < 0.5:
        units = number(draw)
        config["branches"] = [[{"type": "dense", "units": units}] for _ in branches]
        config |= {"combine": "grid_scatter", "grid": several(draw, 2)}
        if draw.random() < 0.7:
            config["places"] = [several(draw, 2, lambda draw: number(draw) - 1) for _ in branches]
    else:
        config["combine"] = draw.choice(["concat", "add", "average", "filter"])
    return config, shape_of(draw, draw.randint(1, 3))


def reference_of_parallel(config: Config, shape: Shape) -> Shape:
    units = [branch[0]["units"] for branch in config["branches"]]
    if config["combine"] == "grid_scatter":
        return (*config["grid"], *shape[:-1], units[0])
    if config["combine"] != "concat":
        return (*shape[:-1], units[0])
    if len(shape) < 3:
        return (*shape[:-1], sum(units))
    return (shape[0] * len(units), *shape[1:-1], units[0])


def nested(draw: random.Random) -> tuple[Config, Shape]:
    one, other = number(draw), number(draw)
    choices: list[tuple[Config, int]] = [
        ({"type": "grid_softmax", "rows": one, "columns": other}, one * other),
        ({"type": "hierarchical_softmax", "groups": one, "leaves": other}, one + other),
        ({"type": "hierarchical_softmax", "groups": 2, "leaves": [one, other]}, 2 + one + other),
        ({"type": "adaptive_softmax", "cutoffs": sorted({one, other})}, one + other + 9),
        ({"type": "mixture_softmax", "components": one}, one * (1 + other)),
    ]
    config, logits = draw.choice(choices)
    last = draw.choice([logits, logits % (1 << 64), number(draw)])
    return config, (*shape_of(draw, draw.randint(1, 2))[1:], last)


def reference_of_nested(config: Config, shape: Shape) -> Shape:
    kind, last = config["type"], shape[-1]
    if kind == "grid_softmax":
        return shape
    if kind == "mixture_softmax":
        return (*shape[:-1], last // config["components"] - 1)
    if kind == "adaptive_softmax":
        return (*shape[:-1], last - len(config["cutoffs"]))
    return (*shape[:-1], last - config["groups"])


def plain(
    kind: str, **numbers: Callable[[random.Random], Any]
) -> Callable[[random.Random], tuple[Config, Shape]]:
    def make(draw: random.Random) -> tuple[Config, Shape]:
        config: Config = {"type": kind, **{name: value(draw) for name, value in numbers.items()}}
        return config, shape_of(draw, draw.randint(1, 4))

    return make


Maker = Callable[[random.Random], tuple[Config, Shape]]
Reference = Callable[[Config, Shape], Shape]

# Each kind: what makes one, what its output is, and whether the reference knows all that is refused.
KINDS: list[tuple[Maker, Reference, bool]] = [
    *(
        (lambda draw, axes=axes, back=back: convolution(draw, axes, back), reference_of_windows, True)
        for axes in (1, 2, 3)
        for back in (False, True)
    ),
    *(
        (lambda draw, axes=axes, kind=kind: pool(draw, axes, kind), reference_of_windows, True)
        for axes in (1, 2, 3)
        for kind in ("max", "avg")
    ),
    (reshape, reference_of_reshape, True),
    (recurrent, reference_of_recurrent, False),
    (attention, same, False),
    (parallel, reference_of_parallel, False),
    (nested, reference_of_nested, False),
    (plain("dense", units=number), last_axis(lambda config, _: config["units"]), False),
    (plain("kmeans", clusters=number), last_axis(lambda config, _: config["clusters"]), False),
    (plain("swiglu", hidden=number), same, False),
    (plain("geglu", hidden=number, bias=lambda draw: True), same, False),
    (
        plain("embedding", vocabulary=number, width=number),
        lambda config, shape: (*shape, config["width"]),
        False,
    ),
    (plain("tied_head", vocabulary=number), last_axis(lambda config, _: config["vocabulary"]), False),
    (plain("positional_embedding", max_time=number), same, False),
    (plain("sinusoidal_positions", max_time=number), same, False),
    (plain("layer_norm", axes=number), same, False),
    (plain("rms_norm"), same, False),
    (plain("group_norm", groups=number), same, False),
    (plain("batch_norm"), same, False),
    (plain("flatten"), lambda _, shape: (prod(shape),), False),
    (
        plain("permute", axes=lambda draw: draw.choice([[1, 0], [2, 0, 1], [number(draw), 0]])),
        lambda config, shape: tuple(shape[axis] for axis in config["axes"]),
        False,
    ),
    (plain("softmax"), same, False),
    (plain("masked_softmax", axis=lambda draw: draw.choice([0, -1])), same, False),
    (plain("sparsemax"), same, False),
    (plain("entmax", alpha=lambda draw: 1.5), same, False),
    (plain("gumbel_softmax"), same, False),
    (plain("dropout", rate=lambda draw: 0.3), same, False),
    (plain("global_max_pool2d"), lambda _, shape: shape[:1], False),
    (plain("global_avg_pool3d"), lambda _, shape: shape[:1], False),
]


def wrapped(draw: random.Random, config: Config) -> Config:
    """The layer, at times inside of another that leaves its output as it is."""
    around = draw.random()
    if around < 0.8:
        return config
    if around < 0.9:
        return {"type": "sequential", "layers": [config]}
    return {"type": "parallel", "branches": [[config]], "combine": "add"}


# Ways in.


def of_code(config: Config, shape: Shape) -> loom.Network:
    layer = nn.layer_from_config(config)
    return loom.Sequential([layer], input_shape=shape)


def of_json(config: Config, shape: Shape) -> loom.Network:
    return loom.Network.from_json(json.dumps(description(config, shape)))


def description(config: Config, shape: Shape) -> Config:
    cell = {"at": [0, 0, 0], "layers": [config]}
    return {"input_shape": shape, "grid": [1, 1, 1], "precision": "float32", "seed": 0, "cells": [cell]}


def of_file(config: Config, shape: Shape) -> loom.Network:
    """From a file whose header describes the network and which holds nothing else."""
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        file.write(file_of(description(config, shape)))
        file.flush()
        return loom.load(file.name)


def file_of(config: Config) -> bytes:
    header = {"__metadata__": {"loom.format": "1", "loom.config": json.dumps(config)}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def try_one(draw: random.Random) -> str | None:
    """What is wrong with one random network, if something is."""
    make, reference, complete = draw.choice(KINDS)
    config, shape = make(draw)
    if config["type"].startswith(DRAWN):
        config["weight_initializer"] = "zeros"
    way = draw.choice([of_code, of_json, of_file])
    inside = wrapped(draw, config)
    told = f"{way.__name__} {json.dumps(inside)} of {shape}"
    try:
        expected: Shape | None = reference(config, check_shape(shape))
    except (RefusedError, IndexError, ZeroDivisionError):
        expected = None
    try:
        net = way(inside, shape)
        found = net.output_shape
    except loom.OutOfMemoryError:
        return None
    except loom.SerializationError as error:
        # A file without weights is refused once its extents are found to be right, but not before.
        lacks = way is of_file and "0.0.0.0." in str(error)
        return f"{told}: {error}" if expected and complete and not lacks else None
    except loom.LoomError as error:
        return f"{told}: {error}, expected {expected}" if expected and complete else None
    except Exception as error:  # noqa: BLE001 - what else there is, is what is looked for
        return f"{told}: {type(error).__name__}: {error}"
    if complete and expected is None:
        return f"{told}: is {found}, but cannot be"
    if expected is not None and found != expected:
        return f"{told}: is {found}, not {expected}"
    # The largest windows are right, but slow.
    window: list[int] = config.get("pool_size", config.get("kernel_size", []))
    return run(draw, net, told, shape, found) if prod(window) <= SMALL else None


def run(draw: random.Random, net: loom.Network, told: str, shape: Shape, output: Shape) -> str | None:
    """Runs a small network: it must end in an output, or in an error of loom's."""
    if max(prod(shape), prod(output), net.weight_bytes // 16) > SMALL:
        return None
    rows = draw.choice([1, 3])
    try:
        y = net.predict(np.zeros((rows, *shape), np.float32), batch_size=max(1, near(draw)) % (1 << 64) or 1)
        return None if y.shape == (rows, *output) else f"{told}: predicted {y.shape}"
    except loom.LoomError as error:
        return f"{told}: {error}" if isinstance(error, loom.InternalError) else None
    except Exception as error:  # noqa: BLE001 - what else there is, is what is looked for
        return f"{told}: {type(error).__name__}: {error}"


def main(seed: int, count: int) -> int:
    loom.Sequential([nn.Dense(1)], input_shape=1).predict(np.zeros((1, 1)))
    limit_memory()
    wrong = 0
    for number_of_network in range(count):
        sys.stderr.write(f"\r{number_of_network}")
        sys.stderr.flush()
        problem = try_one(random.Random(seed * 1_000_003 + number_of_network))
        if problem is not None:
            wrong += 1
            sys.stdout.write(f"{seed}/{number_of_network}: {problem}\n")
            sys.stdout.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
