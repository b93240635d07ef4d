"""Times token by token decoding of a Llama's shape on the processor, beside llama.cpp.

Random weights of 135 million parameters (576 wide, 30 blocks, 9 heads over 3, 1,536 hidden, 49,152 words)
or of 1.1 or 8 billion. One sequence, after a prompt of three tokens and after one of 512 (--prompt); the
median of 48 tokens, and that prompt itself. llama.cpp keeps keys and values as float16, loom as --caches
says. Both programs take turns, in processes of their own:

    python benches/peers/language_decode.py --types q4_0 q8_0 --threads 1 2
    python benches/peers/language_decode.py --types q4_0 --llama PYTHON --files FOLDER

PYTHON is an interpreter that has llama-cpp-python, and FOLDER has files of the same shape, SHAPE_TYPE.gguf,
which loom then reads, too. With --rounds both take turns several times, and the best of each counts: others
use the machine. Prompts end in the output of their last step alone, as llama.cpp has it.
What the memory is read at by one thread is printed too, in large pages and in small ones.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

SHAPES = {
    "135m": (576, 30, 9, 3, 1536, 49152),
    "1b": (2048, 22, 32, 4, 5632, 32000),
    "8b": (4096, 32, 32, 8, 14336, 128256),
}

_LOOM = """
import statistics, sys, time
import numpy as np
import loom
from loom import nn

activations = sys.argv[2] if sys.argv[2] != "float" else None
if sys.argv[9]:
    net = loom.text.load(sys.argv[9], activations=activations).network
else:
    width, blocks, heads, shared, hidden, words = map(int, sys.argv[3:9])
    part = [
        nn.Residual([nn.RMSNorm(epsilon=1e-5), nn.MultiHeadAttention(
            heads, key_value_heads=shared, causal=True, rotary=nn.Rotary(), bias=False)]),
        nn.Residual([nn.RMSNorm(epsilon=1e-5), nn.SwiGLU(hidden)]),
    ]
    layers = [nn.Embedding(words, width), *blocks * part, nn.RMSNorm(epsilon=1e-5), nn.TiedHead(words)]
    net = loom.Sequential(layers, input_shape=1024)
    net.build()
    if sys.argv[1] != "float32":
        net.morph(sys.argv[1], activations=activations).drop_master()

def decode(session):
    times = []
    for token in range(52):
        begun = time.perf_counter()
        session(np.array([[10 + token]]))
        times.append(time.perf_counter() - begun)
    return 1 / statistics.median(times[4:])

count, kept = int(sys.argv[10]), {"cache_dtype": sys.argv[11]} if sys.argv[11] else {}
session = net.session(count + 128, **kept)
session(np.array([[5, 6, 7]]))
short = decode(session)
prompt = np.arange(10, count + 10)[None]
net.session(count + 128, **kept)(prompt[:, :64], last=True)
session = net.session(count + 128, **kept)
begun = time.perf_counter()
session(prompt, last=True)
prefill = count / (time.perf_counter() - begun)
print(short, decode(session), prefill)
"""

_LLAMA = """
import statistics, sys, time
from llama_cpp import Llama

threads, count = int(sys.argv[2]), int(sys.argv[3])
model = Llama(
    sys.argv[1], n_ctx=count + 128, n_threads=threads, n_threads_batch=threads, verbose=False, n_batch=512
)

def decode():
    times = []
    for token in range(52):
        begun = time.perf_counter()
        model.eval([10 + token])
        times.append(time.perf_counter() - begun)
    return 1 / statistics.median(times[4:])

model.eval([5, 6, 7])
short = decode()
model.reset()
model.eval(list(range(10, 74)))
model.reset()
begun = time.perf_counter()
model.eval(list(range(10, count + 10)))
prefill = count / (time.perf_counter() - begun)
print(short, decode(), prefill)
"""

_MEMORY = """
import mmap, time
import numpy as np

for advice in (mmap.MADV_HUGEPAGE, mmap.MADV_NOHUGEPAGE):
    held = mmap.mmap(-1, 256 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    held.madvise(advice)
    x = np.frombuffer(held, np.float32)
    x[:] = 1
    best = 1e9
    for _ in range(8):
        begun = time.perf_counter()
        np.dot(x, x)
        best = min(best, time.perf_counter() - begun)
    print(round(x.nbytes / best / 1e9, 1), "GB/s", flush=True)
"""


def _run(python: str, code: str, *arguments: object, threads: int = 1) -> str:
    named = {"LOOM_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1"}
    command = [python, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env={**os.environ, **named}, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def main() -> None:
    """Prints a line for each type, number of threads and program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--types", nargs="+", default=["q4_0", "q8_0", "float32"])
    parser.add_argument("--activations", nargs="+", default=["int8", "float"])
    parser.add_argument("--shape", choices=sorted(SHAPES), default="135m")
    parser.add_argument("--caches", nargs="+", default=["float32"], help="float32, float16 or q8_0")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the long prompt")
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--llama", help="a Python with llama-cpp-python")
    parser.add_argument("--files", help="where the GGUF files are")
    parser.add_argument("--rounds", type=int, default=1, help="how often each is timed; the best counts")
    options = parser.parse_args()
    print("memory, large and small pages:", _run(sys.executable, _MEMORY).replace("\n", "  "))
    shape = SHAPES[options.shape]
    print(f"tokens/s: after 3, after {options.prompt}, prompt of {options.prompt}")
    for dtype in options.types:
        for threads in options.threads:
            floats = dtype.startswith(("float", "bfloat"))
            file = f"{options.files}/{options.shape}_{dtype}.gguf" if options.files else ""
            programs: dict[str, tuple[object, ...]] = {
                f"loom, {activations:5} activations, {cache:7} cache": (
                    sys.executable,
                    _LOOM,
                    dtype,
                    activations,
                    *shape,
                    file,
                    options.prompt,
                    "" if cache == "float32" else cache,
                )
                for activations in (["float"] if floats else options.activations)
                for cache in options.caches
            }
            if options.llama:
                programs["llama.cpp"] = (options.llama, _LLAMA, file, threads, options.prompt)
            best = {name: [0.0, 0.0, 0.0] for name in programs}
            for _ in range(options.rounds):
                for name, program in programs.items():
                    python, code, *arguments = program
                    made = _run(str(python), str(code), *arguments, threads=threads).split()
                    best[name] = [max(pair) for pair in zip(best[name], map(float, made), strict=True)]
            for name, figures in best.items():
                told = " ".join(f"{value:8.1f}" for value in figures)
                print(f"{dtype:8} {threads} threads  {name:38} {told}", flush=True)


if __name__ == "__main__":
    main()
