"""What each numeric type costs a language model: perplexity of text it has not seen, beside float32.

    python benches/language/perplexity.py [TEXT ...] [--steps N] [--seed SEED]

Trains the model of bytes of examples/byte_chat.py, on the pages of this documentation where no texts are
named, packs copies of it in every numeric type, with float activations and with those in int8, and has it
keep keys and values in fewer bits; prints a table of each.
"""

from __future__ import annotations

import argparse
import sys
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, cast

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples"))

from tokenizers import Tokenizer, decoders, models  # noqa: E402

import byte_chat  # noqa: E402 - from the folder above
import loom  # noqa: E402

if TYPE_CHECKING:
    from loom._typing import CacheTypeName, NumericTypeName

TYPES = (
    "float16",
    "bfloat16",
    "float8_e4m3",
    "float8_e5m2",
    "mxfp8_e4m3",
    "int8",
    "q8_0",
    "int4",
    "nf4",
    "q4_0",
    "mxfp4",
    "float4_e2m1",
    "int2",
    "ternary",
    "binary",
)
INTEGERS = ("int8", "q8_0", "int4", "q4_0", "int2", "ternary", "binary")


def tokenizer() -> Tokenizer:
    """Tokens that are bytes."""
    made = Tokenizer(models.BPE({f"<0x{byte:02X}>": byte for byte in range(256)}, [], byte_fallback=True))
    made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return made


def main() -> None:
    """Trains, packs, measures."""
    parser = argparse.ArgumentParser(description="Perplexity of every numeric type.")
    parser.add_argument("texts", nargs="*", type=Path, help="text files; the last tenth is not learned")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--unseen", type=int, default=8000, help="how many bytes are foretold")
    options = parser.parse_args()

    paths = options.texts or sorted((ROOT / "docs").rglob("*.md"))
    text = b"\n".join(path.read_bytes() for path in paths)
    cut = len(text) * 9 // 10
    net = byte_chat.network(options.seed)
    byte_chat.train(net, text[:cut], options.steps, "cpu", options.seed)
    unseen = list(text[cut : cut + options.unseen])

    def perplexity(dtype: str, activations: str | None = None, cache: CacheTypeName | None = None) -> float:
        packed = deepcopy(net)
        if dtype != "float32":
            packed.morph(cast("NumericTypeName", dtype), activations=activations)
        model = loom.text.LanguageModel(packed, tokenizer(), capacity=256, cache_dtype=cache)
        return loom.text.perplexity(model, unseen)

    exact = perplexity("float32")
    print(f"{len(text):,} bytes, {options.steps} steps; float32: {exact:.3f}\n")
    print("| weights | perplexity | beside float32 | with int8 activations |")
    print("|---|---|---|---|")
    for dtype in TYPES:
        found = perplexity(dtype)
        rounded = f"{perplexity(dtype, 'int8'):.3f}" if dtype in INTEGERS else ""
        print(f"| {dtype} | {found:.3f} | {found / exact - 1:+.2%} | {rounded} |", flush=True)
    print("\n| keys and values | perplexity | beside float32 |")
    print("|---|---|---|")
    caches: tuple[CacheTypeName, ...] = ("float16", "q8_0")
    for cache in caches:
        found = perplexity("float32", cache=cache)
        print(f"| {cache} | {found:.4f} | {found / exact - 1:+.3%} |", flush=True)


if __name__ == "__main__":
    main()
