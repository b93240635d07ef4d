"""Fine-tunes a language model of bytes on a text: first whole, then an adapter beside weights of four bits.

    python examples/fine_tune.py TEXT [--other OTHER] [--epochs N] [--device DEVICE] [--output FOLDER]

Without --other the last fifth of TEXT is what the adapter learns. It writes before and after, and says how
well the model foretells the end of that text with the adapter and without.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tokenizers import Tokenizer, decoders, models

import loom
from loom import nn

BLOCKS, HEADS, WIDTH, CONTEXT = 2, 4, 96, 64


def byte_model(seed: int) -> loom.text.LanguageModel:
    """Builds a model whose tokens are bytes."""
    vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    attention = nn.MultiHeadAttention(HEADS, causal=True, window=CONTEXT, rotary=nn.Rotary(), bias=False)
    block = [nn.Residual([nn.RMSNorm(), attention]), nn.Residual([nn.RMSNorm(), nn.SwiGLU(256)])]
    layers = [nn.Embedding(256, WIDTH), *BLOCKS * block, nn.RMSNorm(), nn.Dense(256, bias=False)]
    net = loom.Sequential(layers, input_shape=CONTEXT, seed=seed)
    return loom.text.LanguageModel(net, tokenizer, capacity=1024)


def learn(model: loom.text.LanguageModel, text: str, adapter: str | None, epochs: int, device: str) -> None:
    """Trains on a running text."""
    config = loom.TrainingConfig(
        epochs=epochs,
        batch_size=16,
        loss="cross_entropy",
        optimizer="adamw",
        learning_rate=3e-3,
        schedule=loom.schedules.Cosine(end_factor=0.1),
        gradient_clip=1.0,
        device=device,
    )
    loom.text.fine_tune(model, [text], config, adapter=adapter, rank=8, length=CONTEXT, join=True)


def main() -> None:
    """Trains, packs, trains an adapter, and compares."""
    parser = argparse.ArgumentParser(description="Fine-tunes a model of bytes.")
    parser.add_argument("text", type=Path, help="a text file")
    parser.add_argument("--other", type=Path, help="what the adapter learns; the end of the text by default")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device", default="cpu", help='"cpu", "gpu", "gpu:1"; "auto" takes what is best')
    parser.add_argument("--output", type=Path, default=Path("adapter"), help="the adapter's folder")
    options = parser.parse_args()

    text = options.text.read_text(encoding="utf-8")
    cut = len(text) * 4 // 5
    other = text[cut:] if options.other is None else options.other.read_text(encoding="utf-8")
    first = text[:cut] if options.other is None else text
    held = other[-len(other) // 10 :]
    other = other[: -len(other) // 10]

    model = byte_model(seed=0)
    learn(model, first, None, options.epochs, options.device)
    model.network.morph("int4").drop_master()
    prompt = first[:16]
    print("before:", model.complete(prompt, max_tokens=80, temperature=0.7, seed=0).text)
    learn(model, other, "default", options.epochs, options.device)
    print("after: ", model.complete(prompt, max_tokens=80, temperature=0.7, seed=0).text)
    adapted = loom.text.perplexity(model, held)
    model.network.save_adapter(options.output, modules="loom")
    model.network.use_adapters()
    model.forget()
    plain = loom.text.perplexity(model, held)
    print(f"perplexity of text it has not seen: {plain:.2f} without the adapter, {adapted:.2f} with it")


if __name__ == "__main__":
    main()
