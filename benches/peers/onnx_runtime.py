"""Every kind of layer, written as ONNX and run by ONNX Runtime, compared with what loom computes.

    PYTHONPATH=python PYTHON_WITH_ONNXRUNTIME benches/peers/onnx_runtime.py [--opset 17]

needs onnx 1.23.2, onnxruntime 1.32.0, numpy and rich. Samples are those of the engine's own tests, every
option at least once, on each shape that they take. Prints the largest difference of each kind, the largest
of the same with weights packed as int8, which go out as codes, and the largest of what comes back through
`loom.models.onnx.load`; exits with 1 where one is above 1e-5.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime

import loom
from loom import _native, nn
from loom.models.onnx import load
from loom.models.onnx.export import onnx_model

SHAPES: list[tuple[int, ...]] = [
    *((extent,) for extent in range(2, 17)),
    (2, 4),
    (3, 4),
    (4, 6),
    (4, 8),
    (6, 4),
    (2, 6, 6),
    (4, 5, 5),
    (4, 4, 4, 4),
]


def built(layer: dict[str, Any], shape: tuple[int, ...]) -> loom.Network | None:
    """Returns a network of one layer; None where that does not take the shape."""
    try:
        return loom.Sequential([layer], input_shape=shape, seed=1).build()
    except loom.LoomError:
        return None


def networks() -> Iterator[tuple[str, loom.Network]]:
    """Yields networks of one layer, and such of two cells for layers with a second input."""
    for kind, samples in json.loads(_native.layer_samples()).items():
        for sample in samples:
            for shape in SHAPES:
                net = built(sample, shape)
                if net is not None:
                    yield kind, net
    cross = loom.Network(input_shape=(3, 4), grid=(1, 2), seed=1)
    cross[0, 0].add(nn.Dense(4, activation="tanh"))
    cross[0, 1].add(nn.Dense(4), nn.MultiHeadAttention(2, cross=True))
    yield "multi_head_attention", cross.link((0, 0), (0, 1), "context")
    for kind in (nn.RNN, nn.LSTM, nn.GRU):
        states = 2 if kind is nn.LSTM else 1
        net = loom.Network(input_shape=(2, 6), grid=(1, 2), seed=1)
        net[0, 0].add(nn.Flatten(), nn.Dense(3 * states))
        net[0, 1].add(nn.Dense(6 * 2), nn.Reshape((4, 3)), kind(3, initial_state="context"))
        yield kind.kind, net.link((0, 0), (0, 1), "context")


def difference(net: loom.Network, x: Any, opset: int) -> float:  # noqa: ANN401 - an array
    """Returns how far ONNX Runtime is from what a network computes."""
    model = onnx_model(net, opset).SerializeToString()
    (made,) = onnxruntime.InferenceSession(model).run(None, {"input": x})
    return float(np.abs(made - net.predict(x)).max())


def drawn(net: loom.Network) -> Any:  # noqa: ANN401 - an array of floats or of whole numbers
    """Moves weights and states off where they start, and returns something to read."""
    rng = np.random.default_rng(0)
    for layer in net.layers:
        for name, values in layer.parameters.items():
            layer[name] = values + 0.1 * rng.normal(size=values.shape).astype(np.float32)
        if layer.states:
            layer.states = {name: 0.5 + rng.random(values.shape) for name, values in layer.states.items()}
    shape = (3, *net.input_shape)
    first = net.layers[0].config
    if isinstance(first, nn.Embedding):
        return rng.integers(0, first.vocabulary, shape)
    return rng.normal(size=shape).astype(np.float32)


def main() -> int:
    """Compares, and prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--opset", type=int, default=17)
    opset = parser.parse_args().opset
    out: dict[str, float] = {}
    packed: dict[str, float] = {}
    back: dict[str, float] = {}
    counts: dict[str, int] = {}
    refused: dict[str, int] = {}
    for kind, net in networks():
        try:
            x = drawn(net)
            model = onnx_model(net, opset).SerializeToString()
        except loom.InvalidValueError:
            refused[kind] = refused.get(kind, 0) + 1
            continue
        expected = net.predict(x)
        counts[kind] = counts.get(kind, 0) + 1
        out[kind] = max(out.get(kind, 0.0), difference(net, x, opset))
        packed[kind] = max(packed.get(kind, 0.0), difference(net.morph("int8"), x, opset))
        try:
            again = load(model).predict(x)
            back[kind] = max(back.get(kind, 0.0), float(np.abs(again - expected).max()))
        except loom.SerializationError:
            refused[kind] = refused.get(kind, 0) + 1
    print(
        "| layer | networks | to ONNX Runtime | as int8 | and back | not read back |\n"
        "|---|---|---|---|---|---|"
    )
    for kind, most in out.items():
        there = f"{back[kind]:.0e}" if kind in back else ""
        print(
            f"| {kind} | {counts[kind]} | {most:.0e} | {packed[kind]:.0e} | {there} | "
            f"{refused.get(kind, '')} |"
        )
    return int(max(*out.values(), *packed.values(), *back.values()) > 1e-5)


if __name__ == "__main__":
    sys.exit(main())
