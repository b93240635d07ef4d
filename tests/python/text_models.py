"""Small tokenizers and language models that tests of text use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

import loom
from loom import nn
from loom.tensors import write_safetensors
from loom.text.pre_tokenizers import CUTS

TEXTS = [
    "Once upon a time there was a miller who had three sons, a mill, a donkey and a cat.",
    "The sons had to grind, the donkey had to haul grain and carry flour, and the cat had to catch mice.",
    "Es war einmal ein Müller, der hatte drei Söhne, seine Mühle, einen Esel und einen Kater.",
    "Жили-были три брата. 12345 67 8 9, it's they're WE'LL  two   spaces\n\n\tand tabs...",
    "森の中に猫がいました。 🐈🐈 e\u0301 \u00e9 ½ x²",
]
"""What tokenizers are trained on."""

CHAT = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
ROLES = ["<|user|>", "<|assistant|>", "<|system|>", "<|end|>"]


def byte_level(cut: str = "gpt-2", size: int = 400) -> Tokenizer:
    """A tokenizer that merges bytes; <s> is 0, </s> is 1, and those of chats follow."""
    how = CUTS[cut]
    tokenizer = Tokenizer(models.BPE(ignore_merges=how.whole))
    if how.composed:
        tokenizer.normalizer = normalizers.NFC()
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in how.patterns]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        TEXTS,
        trainers.BpeTrainer(
            vocab_size=size,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            special_tokens=["<s>", "</s>", *ROLES],
            show_progress=False,
        ),
    )
    return tokenizer


def sentence_pieces(size: int = 450, prefix: bool = True) -> Tokenizer:
    """A tokenizer as those that are made of SentencePiece's models: pieces, and bytes for what is none."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    before = [normalizers.Prepend("▁")] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*before, normalizers.Replace(" ", "▁")])
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    bytes_of = [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.train_from_iterator(
        [text[:200] for text in TEXTS[:3]],
        trainers.BpeTrainer(
            vocab_size=size, special_tokens=["<unk>", "<s>", "</s>", *ROLES, *bytes_of], show_progress=False
        ),
    )
    # Training has made all of them special; bytes are no such.
    held = json.loads(tokenizer.to_str())
    held["added_tokens"] = [entry for entry in held["added_tokens"] if not entry["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(held))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=["<s>", "$A"], pair=["<s>", "$A", "$B:1"], special_tokens=[("<s>", 1)]
    )
    return tokenizer


def decoder(words: int, *, steps: int = 64, seed: int = 3, width: int = 32, blocks: int = 2) -> loom.Network:
    """A network of Llama's family."""
    rows: list[nn.Layer] = [nn.Embedding(words, width)]
    for _ in range(blocks):
        heads = nn.MultiHeadAttention(4, causal=True, rotary=nn.Rotary(layout="half_split"), bias=False)
        rows.append(nn.Residual([nn.RMSNorm(epsilon=1e-5), heads]))
        rows.append(nn.Residual([nn.RMSNorm(epsilon=1e-5), nn.SwiGLU(2 * width)]))
    rows += [nn.RMSNorm(epsilon=1e-5), nn.Dense(words, bias=False)]
    return loom.Sequential(rows, input_shape=steps, seed=seed)


HUB_NAMES = {
    "layers.0.weight": "input_layernorm.weight",
    "layers.1.query_weight": "self_attn.q_proj.weight",
    "layers.1.key_weight": "self_attn.k_proj.weight",
    "layers.1.value_weight": "self_attn.v_proj.weight",
    "layers.1.output_weight": "self_attn.o_proj.weight",
    "layers.1.gate_weight": "mlp.gate_proj.weight",
    "layers.1.up_weight": "mlp.up_proj.weight",
    "layers.1.down_weight": "mlp.down_proj.weight",
}


def write_folder(folder: Path, net: loom.Network, tokenizer: Tokenizer, **files: Any) -> Path:
    """Writes a folder of the Hub's shape; `files` are settings, by the names of their files without .json."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    last = len(net.layers) - 1
    for name, array in net.state_dict().items():
        _, _, _, place, rest = name.split(".", 4)
        at = int(place)
        if 0 < at < last - 1:
            hub = HUB_NAMES[rest]
            hub = hub.replace("input_", "post_attention_") if at % 2 == 0 else hub
            tensors[f"model.layers.{(at - 1) // 2}.{hub}"] = array
        else:
            hub = {0: "model.embed_tokens", last - 1: "model.norm", last: "lm_head"}[at]
            tensors[f"{hub}.weight"] = array
    write_safetensors(folder / "model.safetensors", tensors)
    width = tensors["model.norm.weight"].shape[0]
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": tensors["lm_head.weight"].shape[0],
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": (last - 2) // 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": net.input_shape[0],
        "rms_norm_eps": 1e-5,
        "eos_token_id": 1,
        "bos_token_id": 0,
    }
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, held in {"config": config, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(held), encoding="utf-8")
    return folder


SETTINGS = {
    "tokenizer_config": {
        "bos_token": "<s>",
        "eos_token": {"content": "</s>", "special": True},
        "chat_template": CHAT,
    },
    "generation_config": {"eos_token_id": [1, 5]},
}
"""Files of settings for `write_folder`, as a model that chats has them."""


def as_gguf(tokenizer: Tokenizer, pre: str | None = None, **more: Any) -> dict[str, Any]:
    """What a GGUF file's metadata would say of a tokenizer: scores for pieces, merges for bytes."""
    held = json.loads(tokenizer.to_str())
    places = held["model"]["vocab"]
    tokens = sorted(places, key=places.__getitem__)
    special = {entry["content"] for entry in held["added_tokens"] if entry["special"]}
    of_users = {entry["content"] for entry in held["added_tokens"]} - special
    kinds = [
        3 if token in special else 4 if token in of_users else 6 if token.startswith("<0x") else 1
        for token in tokens
    ]
    told: dict[str, Any] = {"tokens": tokens, "bos_token_id": places["<s>"], "eos_token_id": places["</s>"]}
    merges = [tuple(merge) for merge in held["model"]["merges"]]
    if pre is None:
        kinds[places["<unk>"]] = 2
        ranks = {"".join(merge): rank for rank, merge in reversed(list(enumerate(merges)))}
        scores = [-float(ranks.get(token, len(ranks))) for token in tokens]
        told |= {"model": "llama", "scores": scores, "unknown_token_id": places["<unk>"]}
    else:
        told |= {"model": "gpt2", "pre": pre, "merges": [" ".join(merge) for merge in merges]}
    return {f"tokenizer.ggml.{name}": value for name, value in {**told, "token_type": kinds, **more}.items()}


def random_text(draws: np.random.Generator, length: int = 30) -> str:
    """Characters of all kinds: scripts, marks, digits, spaces, lines, symbols, those above 16 bits."""
    ranges = [
        (0x20, 0x7F),
        (0x20, 0x7F),
        (0xA1, 0x250),
        (0x300, 0x330),
        (0x400, 0x460),
        (0x4E00, 0x4E20),
        (0x3040, 0x30A0),
        (0x1F400, 0x1F440),
        (0x660, 0x66A),
        (0x9, 0xE),
    ]
    chosen = [ranges[place] for place in draws.integers(0, len(ranges), length)]
    text = "".join(chr(draws.integers(*span)) for span in chosen)
    return text if draws.random() < 0.5 else f"  {text} it's 1234  <s>{text[:5]}<|user|> WE'RE\n\n"


TOOL_CHAT = (
    "{% if tools %}<|system|>{% for tool in tools %}{{ tool | tojson }}{% endfor %}<|end|>{% endif %}"
    "{% for m in messages %}<|{{ 'user' if m.role == 'tool' else m.role }}|>{{ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>{% endfor %}"
    "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""A chat in which tools are called as Hermes and Qwen do."""

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tells the weather.",
            "parameters": {
                "type": "object",
                "properties": {
                    "place": {"enum": ["Köln", "Oulu"]},
                    "days": {"type": "integer", "maximum": 9},
                },
                "required": ["place", "days"],
                "additionalProperties": False,
            },
        },
    },
    {"type": "function", "function": {"name": "now"}},
]
