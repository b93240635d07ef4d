"""Trains a character model on a text file, then generates text with a key-value cache.

    python examples/char_gpt.py TEXT [--steps N] [--device DEVICE] [--seed SEED] [--generate N]

4 blocks of 4 heads, width 128, context 64, batch 12: on tiny-shakespeare (the first 90 %
for training, the rest for validation) 2,000 steps reach a validation loss below 1.90.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import loom
from loom import nn

BLOCKS, HEADS, WIDTH, CONTEXT, BATCH = 4, 4, 128, 64, 12


def network(vocabulary: int, seed: int) -> loom.Network:
    """Builds the model."""
    # Characters look back over one context, however long the text has become.
    attention = nn.MultiHeadAttention(HEADS, causal=True, window=CONTEXT, rotary=nn.Rotary(), bias=False)
    block = [nn.Residual([nn.RMSNorm(), attention]), nn.Residual([nn.RMSNorm(), nn.SwiGLU(8 * WIDTH // 3)])]
    return loom.Sequential(
        [
            nn.Embedding(vocabulary, WIDTH),
            *BLOCKS * block,
            nn.RMSNorm(),
            nn.Dense(vocabulary, bias=False),
        ],
        input_shape=CONTEXT,
        seed=seed,
    )


def windows(
    text: NDArray[np.int64], starts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cuts pieces of the context's length out of the text: characters, and what follows each."""
    pieces = text[starts[:, None] + np.arange(CONTEXT + 1)]
    return pieces[:, :-1], pieces[:, 1:]


def train(net: loom.Network, text: NDArray[np.int64], steps: int, device: str, seed: int) -> None:
    """Learns from random pieces of the text."""
    schedule = loom.schedules.Warmup(100, then=loom.schedules.Cosine(end_factor=0.1))
    config = loom.TrainingConfig(
        loss="cross_entropy",
        optimizer=loom.AdamW(beta1=0.9, beta2=0.99, weight_decay=0.1),
        learning_rate=2e-3,
        schedule=schedule,
        gradient_clip=1.0,
        device=device,
        seed=seed,
    )
    trainer = loom.Trainer(net, config, total_steps=steps)
    random = np.random.default_rng(seed)
    started = time.perf_counter()
    recent: list[float] = []
    for step in range(1, steps + 1):
        recent.append(trainer.step(*windows(text, random.integers(0, len(text) - CONTEXT, BATCH))))
        if step % 200 == 0 or step == steps:
            seconds = time.perf_counter() - started
            print(
                f"step {step:5}  loss {np.mean(recent):.3f}  {1e3 * seconds / step:.1f} ms a step", flush=True
            )
            recent.clear()


def generate(net: loom.Network, prompt: NDArray[np.int64], count: int, seed: int) -> list[int]:
    """Continues a text by characters drawn as likely as the model finds them."""
    random = np.random.default_rng(seed)
    session = net.session(capacity=len(prompt) + count)
    scores = session(prompt[None])[0, -1]
    made: list[int] = []
    for _ in range(count):
        likely = np.exp((scores - scores.max()) / 0.8)
        made.append(int(random.choice(len(likely), p=likely / likely.sum())))
        scores = session(np.array([[made[-1]]]))[0, -1]
    return made


def check_cache(net: loom.Network, text: NDArray[np.int64]) -> float:
    """Returns how far the scores of single steps with a cache are from those of the whole, at most."""
    piece = text[None, :CONTEXT]
    session = net.session(capacity=CONTEXT)
    one_by_one = np.concatenate([session(piece[:, step : step + 1]) for step in range(CONTEXT)], axis=1)
    return float(np.abs(one_by_one - net.predict(piece)).max())


def main() -> None:
    """Trains, validates, generates."""
    parser = argparse.ArgumentParser(description="Trains a character model.")
    parser.add_argument("text", type=Path, help="the text file")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--device", default="cpu", help='"cpu", "gpu", "gpu:1"; "auto" takes what is best')
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--generate", type=int, default=400, help="how many characters to write")
    options = parser.parse_args()

    text = options.text.read_text()
    characters = sorted(set(text))
    numbers = {character: number for number, character in enumerate(characters)}
    encoded = np.array([numbers[character] for character in text])
    cut = len(encoded) * 9 // 10
    learned, held_out = encoded[:cut], encoded[cut:]

    net = network(len(characters), options.seed)
    train(net, learned, options.steps, options.device, options.seed)
    validation = windows(held_out, np.arange(0, len(held_out) - CONTEXT, CONTEXT))
    measured = net.evaluate(validation, loss="cross_entropy", batch_size=64)
    print(f"validation loss {measured['loss']:.3f}")
    print(f"largest difference between cached and uncached scores {check_cache(net, held_out):g}")
    prompt = np.array([numbers.get(character, 0) for character in "\n"])
    print("".join(characters[number] for number in generate(net, prompt, options.generate, options.seed)))


if __name__ == "__main__":
    main()
