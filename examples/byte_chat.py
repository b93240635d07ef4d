"""Trains a small model of bytes on a text, and writes it in four bits as a file that chats.

    python examples/byte_chat.py TEXT [--steps N] [--device DEVICE] [--seed SEED] [--output model.gguf]
    loom chat model.gguf

A line is what somebody says: whoever chats says one, and the model the next. 4 blocks of 4 heads, width 128:
as little as it is, on a play it answers in lines of one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import loom
from loom import nn

BLOCKS, HEADS, WIDTH, CONTEXT, BATCH = 4, 4, 128, 64, 12
NEWLINE = ord("\n")


def network(seed: int) -> loom.Network:
    """Builds the model."""
    attention = nn.MultiHeadAttention(HEADS, causal=True, rotary=nn.Rotary(), bias=False)
    # Rows of a multiple of 32 have room for blocks of four bits.
    block = [nn.Residual([nn.RMSNorm(), attention]), nn.Residual([nn.RMSNorm(), nn.SwiGLU(352)])]
    layers = [nn.Embedding(256, WIDTH), *BLOCKS * block, nn.RMSNorm(), nn.Dense(256, bias=False)]
    return loom.Sequential(layers, input_shape=CONTEXT, seed=seed)


def train(net: loom.Network, text: bytes, steps: int, device: str, seed: int) -> None:
    """Learns from random pieces of the text."""
    config = loom.TrainingConfig(
        loss="cross_entropy",
        optimizer=loom.AdamW(beta1=0.9, beta2=0.99, weight_decay=0.1),
        learning_rate=2e-3,
        schedule=loom.schedules.Warmup(min(100, steps // 2), then=loom.schedules.Cosine(end_factor=0.1)),
        gradient_clip=1.0,
        device=device,
        seed=seed,
    )
    trainer = loom.Trainer(net, config, total_steps=steps)
    draws = np.random.default_rng(seed)
    tokens = np.frombuffer(text, np.uint8).astype(np.int64)
    losses = []
    for step in range(1, steps + 1):
        starts = draws.integers(0, len(tokens) - CONTEXT, BATCH)
        pieces = tokens[starts[:, None] + np.arange(CONTEXT + 1)]
        losses.append(trainer.step(pieces[:, :-1], pieces[:, 1:]))
        if step % 200 == 0 or step == steps:
            print(f"step {step:5}  loss {np.mean(losses):.3f}", flush=True)
            losses.clear()


def vocabulary() -> dict[str, object]:
    """Says, as GGUF does, that tokens are bytes, that a line is said, and that its end ends an answer."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in seen]
    # GPT-2 writes bytes that cannot be seen by characters that can.
    shown = {**{byte: chr(byte) for byte in seen}, **{byte: chr(256 + at) for at, byte in enumerate(hidden)}}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [shown[byte] for byte in range(256)],
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.token_type": [1] * 256,
        "tokenizer.ggml.eos_token_id": NEWLINE,
        "tokenizer.chat_template": "{% for m in messages %}{{ m.content }}{{ '\\n' }}{% endfor %}",
    }


def main() -> None:
    """Trains, packs, writes, and says something."""
    parser = argparse.ArgumentParser(description="Trains a model of bytes that chats.")
    parser.add_argument("text", type=Path, help="a text file, such as a play")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--device", default="cpu", help='"cpu", "gpu", "gpu:1"; "auto" takes what is best')
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("model.gguf"))
    options = parser.parse_args()

    text = options.text.read_bytes()
    cut = len(text) * 9 // 10
    net = network(options.seed)
    train(net, text[:cut], options.steps, options.device, options.seed)
    loom.save_gguf(net.to("cpu"), options.output, dtype="q4_0", metadata=vocabulary())

    model = loom.text.load(options.output, capacity=512)
    held_out = list(text[cut : cut + 2000])
    print(f"perplexity of text it has not seen, in four bits: {loom.text.perplexity(model, held_out):.2f}")
    said = text[cut:].decode("utf-8", "replace").split("\n")[1] or "Well?"
    answer = model.chat(
        [{"role": "user", "content": said}], max_tokens=200, temperature=0.8, seed=options.seed
    )
    print(f"> {said}\n{answer.finish().text}")
    print(f"loom chat {options.output}")


if __name__ == "__main__":
    main()
