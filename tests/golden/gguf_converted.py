"""Writes by llama.cpp's own converter what it makes of random small models of transformers, gguf/NAME.gguf, and what
transformers makes of words by them, gguf/scores.npz.

    PYTHONPATH=python python tests/golden/gguf_converted.py LLAMA_CPP

needs transformers 4.57.1 and torch, and the source of llama.cpp as llama-cpp-python 0.3.36 has it in vendor/llama.cpp,
whose converter is run as it is, but for the vocabulary, which it leaves out.
"""

# ruff: noqa: C408 - settings are named as the reference names them

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent / "gguf"
LLAMA = dict(
    vocab_size=13,
    hidden_size=8,
    intermediate_size=11,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    max_position_embeddings=32,
    bos_token_id=0,
    eos_token_id=1,
    pad_token_id=2,
    tie_word_embeddings=False,
)
WIDE = dict(LLAMA, hidden_size=16)
EXPERTS = dict(LLAMA, num_hidden_layers=1, intermediate_size=5, num_experts_per_tok=2)
GRANITE = dict(
    embedding_multiplier=3.0, logits_scaling=1.7, residual_multiplier=0.6, attention_multiplier=0.4
)
WINDOW = dict(sliding_window=4, layer_types=["sliding_attention", "full_attention"])
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=16)
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", dict(LLAMA, mlp_bias=True, attention_bias=True)),
    "granite": ("Granite", dict(LLAMA, attention_bias=True, mlp_bias=True, **GRANITE)),
    "granitemoe": ("GraniteMoe", dict(EXPERTS, num_local_experts=3, **GRANITE)),
    "olmo": ("Olmo", LLAMA),
    "olmo3": ("Olmo3", dict(LLAMA, rope_theta=300.0, rope_scaling=YARN, **WINDOW)),
    "olmoe": ("Olmoe", dict(EXPERTS, num_experts=3)),
    "command-r": ("Cohere", dict(LLAMA, tie_word_embeddings=True, logit_scale=0.7)),
    "cohere2": (
        "Cohere2",
        dict(LLAMA, tie_word_embeddings=True, logit_scale=0.7, sliding_window=4, num_hidden_layers=4),
    ),
    "glm4": ("Glm4", dict(LLAMA, head_dim=8)),
    "stablelm": ("StableLm", dict(WIDE, use_qkv_bias=True, partial_rotary_factor=0.25)),
    "stablelm_parallel": ("StableLm", dict(WIDE, use_parallel_residual=True, partial_rotary_factor=1.0)),
    "starcoder2": ("Starcoder2", LLAMA),
    "phi2": ("Phi", dict(LLAMA, num_key_value_heads=2, intermediate_size=32, partial_rotary_factor=0.5)),
    "arcee": ("Arcee", LLAMA),
    "ernie4_5": ("Ernie4_5", dict(LLAMA, head_dim=6, use_bias=True)),
    "seed_oss": ("SeedOss", dict(LLAMA, head_dim=6)),
    "nemotron": ("Nemotron", WIDE),
    "exaone4": ("Exaone4", dict(LLAMA, **WINDOW)),
    "exaone4_plain": (
        "Exaone4",
        dict(LLAMA, sliding_window=None, layer_types=["full_attention", "full_attention"]),
    ),
}


def main() -> None:
    source = Path(sys.argv[1])
    sys.path[:0] = [str(source), str(source / "gguf-py"), str(FOLDER.parent / "hub")]
    import gguf
    import torch
    import transformers
    from conversion import get_model_class
    from make import randomised

    FOLDER.mkdir(exist_ok=True)
    scores = {}
    for name, (kind, settings) in MODELS.items():
        config = getattr(transformers, f"{kind}Config")(**settings)
        config._attn_implementation = "eager"
        torch.manual_seed(0)
        model = randomised(getattr(transformers, f"{kind}ForCausalLM")(config), 7)
        words = np.random.default_rng(0).integers(3, 13, (2, 9))
        with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
            model.save_pretrained(folder)
            if kind == "Cohere2":
                # Released models say this, which the converter asks for.
                path = Path(folder) / "config.json"
                path.write_text(json.dumps({**json.loads(path.read_text()), "rotary_pct": 1.0}))
            converter = get_model_class(f"{kind}ForCausalLM")
            converter.set_vocab = lambda self: None
            kinds = gguf.LlamaFileType
            converter(
                Path(folder), kinds.ALL_F32, FOLDER / f"{name}.gguf", eager=True, model_name=name
            ).write()
            scores |= {
                f"{name}: words": words,
                f"{name}: scores": model(torch.as_tensor(words)).logits.numpy(),
            }
    np.savez_compressed(FOLDER / "scores.npz", **scores)


if __name__ == "__main__":
    main()
