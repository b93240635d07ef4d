"""Writes tensors/llama.gguf by loom, and by llama.cpp what it makes of that file, tensors/llama_cpp.npz, and of files
of every other architecture, tensors/llama_cpp_architectures.npz.

    PYTHONPATH=python:tests/python python tests/golden/llama_cpp_scores.py [--check]

needs llama-cpp-python 0.3.36, and loom's native module. Greedy words after a prompt, decoded one by one, and the
scores at every step. With --check nothing is written: networks of every kind that loom saves, in every type, are run
by both, and the differences printed. Packed networks without masters are among them. llama.cpp leaves out the windows
of Phi-3, which are told by `phi3`.
"""

import copy
import sys
import tempfile
from pathlib import Path

import llama_cpp
import numpy as np

import loom
from loom import nn
from networks import decoders, llama

FOLDER = Path(__file__).parent / "tensors"
PROMPT, STEPS = [3, 14, 15, 9], 12
KINDS = {
    "llama": {},
    "tied": {"tied": True},
    "neighbours": {"rotary": nn.Rotary()},
    "biases": {"bias": True},
    "qwen3": {"qk_norm": True},
    "linear": {"rotary": nn.Rotary(scaling=2.0, base=5e4, layout="half_split")},
    "one head a key": {"key_value_heads": None, "head_dim": None, "blocks": 3},
}


def by_llama_cpp(path):
    """Words and the scores of each step."""
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = settings.n_batch = 64
    settings.n_threads = settings.n_threads_batch = 1
    # Keys and values in float32, as loom keeps them.
    settings.type_k = settings.type_v = settings.flash_attn_type = 0
    context = llama_cpp.llama_init_from_model(model, settings)
    count = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    words, new, scores = list(PROMPT), list(PROMPT), []
    while True:
        batch = llama_cpp.llama_batch_init(64, 0, 1)
        batch.n_tokens = len(new)
        for place, word in enumerate(new):
            batch.token[place], batch.pos[place] = word, len(scores) + place
            batch.n_seq_id[place], batch.seq_id[place][0], batch.logits[place] = 1, 0, 1
        assert llama_cpp.llama_decode(context, batch) == 0
        for place in range(len(new)):
            row = llama_cpp.llama_get_logits_ith(context, place)
            scores.append(np.ctypeslib.as_array(row, (count,)).copy())
        if len(words) == STEPS:
            return words, np.array(scores)
        new = [int(scores[-1].argmax())]
        words += new


def by_loom(net):
    """The same."""
    words = list(PROMPT)
    while len(words) < STEPS:
        padded = words + [0] * (STEPS - len(words))
        words.append(int(net.predict([padded])[0, len(words) - 1].argmax()))
    return words, net.predict([words])[0]


def rounded(net, dtype):
    """The network with the weights that it has in a file."""
    path = Path(tempfile.mkdtemp()) / "state.gguf"
    loom.tensors.write_gguf(path, net.state_dict(), {}, dtype)
    return copy.deepcopy(net).load_state_dict(loom.open_tensors(path))


def check():
    made = {kind: llama(**settings) for kind, settings in KINDS.items()}
    made |= {"mixtral" if kind == "llama" else kind: build() for kind, build in decoders().items()}
    for kind, net in made.items():
        for dtype in ("float32", "float16", "bfloat16", "q8_0", "q4_0"):
            path = Path(tempfile.mkdtemp()) / "net.gguf"
            loom.save_gguf(net, path, dtype)
            (words, scores), (ours, expected) = by_llama_cpp(path), by_loom(rounded(net, dtype))
            worst = np.abs(scores - expected).max() if words == ours else np.nan
            print(
                f"{kind:15} {dtype:9} same words: {words == ours!s:5} difference {worst:.1e} of {np.abs(expected).max():.1f}"
            )
    for packed in ("q8_0", "q4_0"):
        path = Path(tempfile.mkdtemp()) / "net.gguf"
        net = llama().morph(packed).drop_master()
        loom.save_gguf(net, path, packed)
        print(
            f"packed, no masters {packed}: same words: {by_llama_cpp(path)[0] == by_loom(loom.load(path))[0]}"
        )


def main():
    llama_cpp.llama_backend_init()
    if sys.argv[1:] == ["--check"]:
        check()
        return
    loom.save_gguf(llama(blocks=1), FOLDER / "llama.gguf")
    words, scores = by_llama_cpp(FOLDER / "llama.gguf")
    np.savez_compressed(FOLDER / "llama_cpp.npz", words=np.array(words), scores=scores)
    found = {}
    for kind, build in decoders().items():
        path = Path(tempfile.mkdtemp()) / "net.gguf"
        loom.save_gguf(build(), path)
        words, scores = by_llama_cpp(path)
        found |= {f"{kind}: words": np.array(words), f"{kind}: scores": scores.astype(np.float32)}
    np.savez_compressed(FOLDER / "llama_cpp_architectures.npz", **found)


if __name__ == "__main__":
    main()
