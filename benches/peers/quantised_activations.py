"""What quantised activations cost a language model: perplexity of text that it has not seen.

Trains a model of characters on a text in float32, packs its weights in each type, and prints the perplexity
of the text's last tenth with activations in float and in int8:

    python benches/peers/quantised_activations.py TEXT [--steps N]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import loom
from loom import nn
from loom._typing import NumericTypeName

BLOCKS, HEADS, WIDTH, CONTEXT, BATCH = 4, 4, 128, 64, 12
TYPES: tuple[NumericTypeName, ...] = ("float32", "q8_0", "q4_0", "mxfp4", "int8", "int4")


def trained(text: np.ndarray, words: int, steps: int) -> loom.Network:
    """A small Llama of characters."""
    attention = nn.MultiHeadAttention(HEADS, causal=True, rotary=nn.Rotary(), bias=False)
    block = [nn.Residual([nn.RMSNorm(), attention]), nn.Residual([nn.RMSNorm(), nn.SwiGLU(3 * WIDTH)])]
    layers = [nn.Embedding(words, WIDTH), *BLOCKS * block, nn.RMSNorm(), nn.Dense(words, bias=False)]
    net = loom.Sequential(layers, input_shape=CONTEXT, seed=1)
    config = loom.TrainingConfig(
        loss="cross_entropy",
        optimizer=loom.AdamW(beta2=0.99, weight_decay=0.1),
        learning_rate=2e-3,
        schedule=loom.schedules.Cosine(end_factor=0.1),
        gradient_clip=1.0,
    )
    trainer = loom.Trainer(net, config, total_steps=steps)
    random = np.random.default_rng(1)
    for _ in range(steps):
        starts = random.integers(0, len(text) - CONTEXT, BATCH)
        pieces = text[starts[:, None] + np.arange(CONTEXT + 1)]
        trainer.step(pieces[:, :-1], pieces[:, 1:])
    return net


def perplexity(net: loom.Network, text: np.ndarray) -> float:
    """Of whole contexts side by side."""
    count = (len(text) - 1) // CONTEXT
    x = text[: count * CONTEXT].reshape(count, CONTEXT)
    y = text[1 : count * CONTEXT + 1].reshape(count, CONTEXT)
    total = 0.0
    for first in range(0, count, 64):
        scores = net.predict(x[first : first + 64]).astype(np.float64)
        scores -= scores.max(axis=-1, keepdims=True)
        logs = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
        total -= np.take_along_axis(logs, y[first : first + 64, :, None], axis=-1).sum()
    return float(np.exp(total / y.size))


def main() -> None:
    """Prints a row for each type."""
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=Path)
    parser.add_argument("--steps", type=int, default=1500)
    options = parser.parse_args()
    letters, text = np.unique(list(options.text.read_text(encoding="utf-8")), return_inverse=True)
    cut = len(text) * 9 // 10
    net = trained(text[:cut], len(letters), options.steps)
    for dtype in TYPES:
        net.morph(dtype)
        told = f"{dtype:8} {perplexity(net, text[cut:]):8.4f}"
        if dtype != "float32":
            net.morph(dtype, activations="int8")
            told += f" {perplexity(net, text[cut:]):8.4f}"
        print(told, flush=True)


if __name__ == "__main__":
    main()
