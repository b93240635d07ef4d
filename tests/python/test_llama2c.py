"""Models of llama2.c: loaded they compute what its C program does; damaged files are refused."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import loom

WIDTH, HIDDEN, LAYERS, HEADS, KEYS, VOCABULARY, TIME = 16, 24, 2, 4, 2, 11, 10
Weights = dict[str, NDArray[np.float32]]


def random_weights(tied: bool) -> Weights:
    random = np.random.default_rng(5)
    keys = WIDTH // HEADS * KEYS
    shapes = {
        "table": (VOCABULARY, WIDTH),
        "attention_norm": (LAYERS, WIDTH),
        "wq": (LAYERS, WIDTH, WIDTH),
        "wk": (LAYERS, keys, WIDTH),
        "wv": (LAYERS, keys, WIDTH),
        "wo": (LAYERS, WIDTH, WIDTH),
        "feed_forward_norm": (LAYERS, WIDTH),
        "w1": (LAYERS, HIDDEN, WIDTH),
        "w2": (LAYERS, WIDTH, HIDDEN),
        "w3": (LAYERS, HIDDEN, WIDTH),
        "norm": (WIDTH,),
        "rotary": (TIME * WIDTH // HEADS,),
        **({} if tied else {"head": (VOCABULARY, WIDTH)}),
    }
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def legacy(weights: Weights) -> bytes:
    vocabulary = VOCABULARY if "head" not in weights else -VOCABULARY
    header = struct.pack("<7i", WIDTH, HIDDEN, LAYERS, HEADS, KEYS, vocabulary, TIME)
    return header + b"".join(array.tobytes() for array in weights.values())


def version_1(weights: Weights) -> bytes:
    numbers = (WIDTH, HIDDEN, LAYERS, HEADS, KEYS, VOCABULARY, TIME)
    header = struct.pack("<Ii7iB", 0x616B3432, 1, *numbers, "head" not in weights).ljust(256, b"\0")
    order = ["attention_norm", "feed_forward_norm", "norm", "table", "wq", "wk", "wv", "wo", "w1", "w2", "w3"]
    names = [*order, *(["head"] if "head" in weights else [])]
    return header + b"".join(weights[name].tobytes() for name in names)


def forward(weights: Weights, tokens: list[int]) -> NDArray[np.float64]:
    """What run.c of llama2.c computes, one token after the other."""
    size = WIDTH // HEADS
    keys: list[list[NDArray[np.float64]]] = [[] for _ in range(LAYERS)]
    values: list[list[NDArray[np.float64]]] = [[] for _ in range(LAYERS)]
    w = {name: array.astype(np.float64) for name, array in weights.items()}

    def norm(x: NDArray[np.float64], gain: NDArray[np.float64]) -> NDArray[np.float64]:
        return gain * x / np.sqrt(np.mean(x * x) + 1e-5)

    def turned(x: NDArray[np.float64], place: int) -> NDArray[np.float64]:
        out = x.copy()
        for i in range(0, len(x), 2):
            angle = place / 10000.0 ** ((i % size) / size)
            cosine, sine = np.cos(angle), np.sin(angle)
            out[i] = x[i] * cosine - x[i + 1] * sine
            out[i + 1] = x[i] * sine + x[i + 1] * cosine
        return out

    scores = []
    for place, token in enumerate(tokens):
        x = w["table"][token]
        for layer in range(LAYERS):
            h = norm(x, w["attention_norm"][layer])
            q = turned(w["wq"][layer] @ h, place)
            keys[layer].append(turned(w["wk"][layer] @ h, place))
            values[layer].append(w["wv"][layer] @ h)
            attended = []
            for head in range(HEADS):
                own = slice(head * size, (head + 1) * size)
                shared = slice(head * KEYS // HEADS * size, (head * KEYS // HEADS + 1) * size)
                dots = np.array([q[own] @ key[shared] for key in keys[layer]]) / np.sqrt(size)
                share = np.exp(dots - dots.max())
                share /= share.sum()
                attended.append(sum(s * v[shared] for s, v in zip(share, values[layer], strict=True)))
            x = x + w["wo"][layer] @ np.concatenate(attended)
            h = norm(x, w["feed_forward_norm"][layer])
            gate = w["w1"][layer] @ h
            x = x + w["w2"][layer] @ (gate / (1 + np.exp(-gate)) * (w["w3"][layer] @ h))
        scores.append(w.get("head", w["table"]) @ norm(x, w["norm"]))
    return np.array(scores)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("write", [legacy, version_1])
def test_a_model_computes_what_its_program_does(tmp_path: Path, write, tied: bool) -> None:
    weights = random_weights(tied)
    path = tmp_path / "model"
    path.write_bytes(write(weights))
    net = loom.load(path)
    tokens = [1, 7, 3, 0, 10, 7, 2, 2, 9, 4]
    expected = forward(weights, tokens)
    np.testing.assert_allclose(net.predict(np.array([tokens]))[0], expected, rtol=2e-4, atol=2e-4)
    session = net.session(capacity=TIME)
    steps = [session(np.array([[token]]))[0, 0] for token in tokens]
    np.testing.assert_allclose(steps, expected, rtol=2e-4, atol=2e-4)
    assert net.input_shape == (TIME,)


def test_other_lengths_and_versions_are_refused(tmp_path: Path) -> None:
    data = version_1(random_weights(True))
    path = tmp_path / "model.bin"
    for cut in (4, 40, 255, len(data) - 4):
        path.write_bytes(data[:cut])
        with pytest.raises(loom.SerializationError, match=r"model\.bin"):
            loom.load(path)
    path.write_bytes(data[:4] + struct.pack("<i", 2) + data[8:])
    with pytest.raises(loom.SerializationError, match=r"version 2.*--version"):
        loom.load(path)
    path.write_bytes(legacy(random_weights(True))[:-4])
    with pytest.raises(loom.SerializationError):
        loom.load(path)


def test_absurd_headers_ask_for_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    random = np.random.default_rng(0)
    for _ in range(200):
        numbers = random.choice([0, 1, 2, 4, 16, 2**31 - 1, -(2**31), -5], size=7)
        path.write_bytes(struct.pack("<7i", *numbers) + bytes(64))
        with pytest.raises((loom.SerializationError, loom.ConfigError)):
            loom.load(path)
