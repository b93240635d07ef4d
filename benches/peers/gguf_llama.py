"""Opens a Llama of 1.1 billion parameters in Q4_0 and says how long it takes and what it holds.

The file is made here, in TinyLlama's shape, of random blocks:

    python benches/peers/gguf_llama.py make model.gguf
    python benches/peers/gguf_llama.py open model.gguf
    python benches/peers/gguf_llama.py floats model.gguf     # decoded to float32, to compare

and what conversions of a folder of the Hub's shape hold at most, which is made of such a file:

    python benches/peers/gguf_llama.py folder model.gguf --folder folder
    python benches/peers/gguf_llama.py int4 model.gguf --folder folder
    python benches/peers/gguf_llama.py q4_0 model.gguf --folder folder
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from loom import _native

WIDTH, HIDDEN, BLOCKS, HEADS, SHARED, VOCABULARY = 2048, 5632, 22, 32, 4, 32000


def tensors(blocks: int, output: str) -> list[tuple[str, str, list[int]]]:
    """Returns name, type and shape of every tensor."""
    narrow = WIDTH // HEADS * SHARED
    found = [("token_embd.weight", "q4_0", [VOCABULARY, WIDTH])]
    for block in range(blocks):
        at = f"blk.{block}"
        found += [
            (f"{at}.attn_norm.weight", "float32", [WIDTH]),
            (f"{at}.ffn_norm.weight", "float32", [WIDTH]),
        ]
        found += [
            (f"{at}.{name}.weight", "q4_0", shape)
            for name, shape in (
                ("attn_q", [WIDTH, WIDTH]),
                ("attn_k", [narrow, WIDTH]),
                ("attn_v", [narrow, WIDTH]),
                ("attn_output", [WIDTH, WIDTH]),
                ("ffn_gate", [HIDDEN, WIDTH]),
                ("ffn_up", [HIDDEN, WIDTH]),
                ("ffn_down", [WIDTH, HIDDEN]),
            )
        ]
    return [
        *found,
        ("output_norm.weight", "float32", [WIDTH]),
        ("output.weight", output, [VOCABULARY, WIDTH]),
    ]


def make(path: Path, blocks: int, output: str) -> None:
    """Writes the file, tensor by tensor."""
    rng = np.random.default_rng(0)
    listed = tensors(blocks, output)
    scale = np.frombuffer(np.float16(0.004).tobytes(), np.uint8)

    def content(place: int) -> np.ndarray:
        _, dtype, shape = listed[place]
        if dtype == "float32":
            return np.ones(shape, np.float32).view(np.uint8).reshape(-1)
        if dtype == "q6_k":
            coded = rng.integers(0, 256, (int(np.prod(shape)) // 256, 210), dtype=np.uint8)
            coded[:, 192:208] = rng.integers(1, 32, (len(coded), 16), dtype=np.uint8)
            coded[:, 208:] = np.frombuffer(np.float16(2e-5).tobytes(), np.uint8)
            return coded.reshape(-1)
        coded = rng.integers(0, 256, (int(np.prod(shape)) // 32, 18), dtype=np.uint8)
        coded[:, :2] = scale
        return coded.reshape(-1)

    def number(kind: str, value: float) -> tuple[bool, str, bytes]:
        return (False, kind, np.dtype(kind).type(value).tobytes())

    metadata: list[tuple[str, str | Sequence[str] | tuple[bool, str, bytes]]] = [
        ("general.architecture", "llama"),
        ("llama.context_length", number("uint32", 2048)),
        ("llama.embedding_length", number("uint32", WIDTH)),
        ("llama.block_count", number("uint32", blocks)),
        ("llama.feed_forward_length", number("uint32", HIDDEN)),
        ("llama.attention.head_count", number("uint32", HEADS)),
        ("llama.attention.head_count_kv", number("uint32", SHARED)),
        ("llama.rope.dimension_count", number("uint32", WIDTH // HEADS)),
        ("llama.attention.layer_norm_rms_epsilon", number("float32", 1e-5)),
    ]
    _native.write_gguf(path, metadata, listed, content)


def memory() -> dict[str, int]:
    """Returns what the process holds, in megabytes."""
    lines = (line.split() for line in Path("/proc/self/status").read_text().splitlines())
    kinds = ("VmRSS:", "RssAnon:", "RssFile:", "VmHWM:")
    return {line[0][:-1]: int(line[1]) // 1024 for line in lines if line and line[0] in kinds}


def use(path: Path, floats: bool, tokens: int) -> None:
    """Opens the file and decodes a few tokens."""
    import loom

    print("before", memory())
    started = time.perf_counter()
    net = loom.load(path)
    print(f"open {time.perf_counter() - started:.2f} s", memory())
    if floats:
        net.morph("float32")
        print(f"decoded {time.perf_counter() - started:.2f} s", memory())
    session = net.session(capacity=tokens + 1)
    started = time.perf_counter()
    scores = session([[1]])
    print(f"first token {time.perf_counter() - started:.2f} s", memory())
    chosen, started = [], time.perf_counter()
    for _ in range(tokens):
        chosen.append(int(scores[0, -1].argmax()))
        scores = session([[chosen[-1]]])
    print(f"{tokens / (time.perf_counter() - started):.2f} tokens/s", memory(), chosen)


def folder_of(path: Path, folder: Path) -> None:
    """Writes a folder of the Hub's shape, in float32."""
    from loom.models.gguf import hub_config, hub_tensors
    from loom.tensors import open_tensors, write_safetensors

    folder.mkdir(exist_ok=True)
    with open_tensors(path) as file:
        (folder / "config.json").write_text(json.dumps(hub_config(file)))
        write_safetensors(folder / "model.safetensors", hub_tensors(file))


def convert(what: str, folder: Path) -> None:
    """Packs a folder, and says what was held beside the file's pages."""
    from loom.models import from_hub
    from loom.tensors import open_tensors, write_gguf

    most, done = [memory()["RssAnon"]], threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            most.append(memory()["RssAnon"])

    before, watcher, started = most[0], threading.Thread(target=watch), time.perf_counter()
    watcher.start()
    if what == "int4":
        net = from_hub(folder, "int4", masters=False)
        print(f"{net.weight_bytes / 2**20:.0f} MB of weights")
    else:
        write_gguf(folder / "model.gguf", open_tensors(folder), dtype="q4_0")
    done.set()
    watcher.join()
    taken, after = time.perf_counter() - started, memory()["RssAnon"]
    print(f"{taken:.1f} s, {max(most) - before} MB at most, {after - before} MB after")


def main() -> int:
    """Does what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("make", "open", "floats", "folder", "int4", "q4_0"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--output", choices=("q4_0", "q6_k"), default="q4_0")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--tokens", type=int, default=8)
    args = parser.parse_args()
    if args.what == "make":
        make(args.path, args.blocks, args.output)
    elif args.what == "folder":
        folder_of(args.path, args.folder)
    elif args.what in ("int4", "q4_0"):
        convert(args.what, args.folder)
    else:
        use(args.path, args.what == "floats", args.tokens)
    return 0


if __name__ == "__main__":
    sys.exit(main())
