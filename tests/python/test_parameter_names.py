"""Blocks of parameters, read from the names that well-known models give them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import loom
from loom import analysis, nn

# Names as they stand in the files, with the block and the kind that each belongs to.
NAMES: dict[str, list[tuple[str, str, str]]] = {
    "llama": [
        ("model.embed_tokens.weight", "", "embedding"),
        ("model.layers.0.self_attn.q_proj.weight", "model.layers.0", "attention"),
        ("model.layers.0.self_attn.o_proj.weight", "model.layers.0", "attention"),
        ("model.layers.0.self_attn.q_norm.weight", "model.layers.0", "attention"),
        ("model.layers.0.mlp.gate_proj.weight", "model.layers.0", "feed-forward"),
        ("model.layers.0.input_layernorm.weight", "model.layers.0", "norm"),
        ("model.layers.0.post_attention_layernorm.weight", "model.layers.0", "norm"),
        ("model.layers.31.mlp.down_proj.weight", "model.layers.31", "feed-forward"),
        ("model.layers.2.block_sparse_moe.experts.3.w1.weight", "model.layers.2", "feed-forward"),
        ("model.norm.weight", "", "norm"),
        ("lm_head.weight", "", "head"),
    ],
    "llama, as Meta names it": [
        ("layers.0.attention.wq.weight", "layers.0", "attention"),
        ("layers.0.feed_forward.w1.weight", "layers.0", "feed-forward"),
        ("layers.0.attention_norm.weight", "layers.0", "norm"),
        ("layers.0.ffn_norm.weight", "layers.0", "norm"),
        ("tok_embeddings.weight", "", "embedding"),
    ],
    "gpt-2": [
        ("transformer.wte.weight", "", "embedding"),
        ("transformer.wpe.weight", "", "embedding"),
        ("transformer.h.0.ln_1.weight", "transformer.h.0", "norm"),
        ("transformer.h.0.attn.c_attn.weight", "transformer.h.0", "attention"),
        ("transformer.h.0.attn.c_proj.bias", "transformer.h.0", "attention"),
        ("transformer.h.11.mlp.c_proj.weight", "transformer.h.11", "feed-forward"),
        ("transformer.ln_f.weight", "", "norm"),
        ("h.0.mlp.c_fc.weight", "h.0", "feed-forward"),
    ],
    "gpt-neox": [
        ("gpt_neox.layers.4.attention.query_key_value.weight", "gpt_neox.layers.4", "attention"),
        ("gpt_neox.layers.4.mlp.dense_h_to_4h.weight", "gpt_neox.layers.4", "feed-forward"),
        ("gpt_neox.embed_in.weight", "", "embedding"),
    ],
    "bert": [
        ("embeddings.word_embeddings.weight", "", "embedding"),
        ("encoder.layer.3.attention.self.query.weight", "encoder.layer.3", "attention"),
        ("encoder.layer.3.attention.output.dense.weight", "encoder.layer.3", "attention"),
        ("encoder.layer.3.intermediate.dense.weight", "encoder.layer.3", "feed-forward"),
        ("encoder.layer.3.output.dense.weight", "encoder.layer.3", "feed-forward"),
        ("pooler.dense.weight", "", "head"),
    ],
    "t5": [
        ("shared.weight", "", "embedding"),
        ("encoder.block.0.layer.0.SelfAttention.q.weight", "encoder.block.0", "attention"),
        ("encoder.block.0.layer.0.layer_norm.weight", "encoder.block.0", "norm"),
        ("encoder.block.0.layer.1.DenseReluDense.wi.weight", "encoder.block.0", "feed-forward"),
        ("decoder.block.0.layer.1.EncDecAttention.k.weight", "decoder.block.0", "cross-attention"),
    ],
    "gguf": [
        ("token_embd.weight", "", "embedding"),
        ("blk.0.attn_q.weight", "blk.0", "attention"),
        ("blk.0.attn_output.weight", "blk.0", "attention"),
        ("blk.0.attn_q_norm.weight", "blk.0", "attention"),
        ("blk.0.attn_norm.weight", "blk.0", "norm"),
        ("blk.0.ffn_norm.weight", "blk.0", "norm"),
        ("blk.0.ffn_up.weight", "blk.0", "feed-forward"),
        ("blk.0.ffn_gate_exps.weight", "blk.0", "feed-forward"),
        ("output_norm.weight", "", "norm"),
        ("output.weight", "", "head"),
    ],
    "opt and whisper": [
        ("model.decoder.layers.0.fc1.weight", "model.decoder.layers.0", "feed-forward"),
        ("model.decoder.layers.0.self_attn_layer_norm.weight", "model.decoder.layers.0", "norm"),
        ("model.decoder.layers.0.encoder_attn.k_proj.weight", "model.decoder.layers.0", "cross-attention"),
        ("model.encoder.conv1.weight", "", "convolution"),
    ],
    "torch.nn.Transformer": [
        ("decoder.layers.1.self_attn.in_proj_weight", "decoder.layers.1", "attention"),
        ("decoder.layers.1.multihead_attn.out_proj.weight", "decoder.layers.1", "cross-attention"),
        ("decoder.layers.1.linear2.weight", "decoder.layers.1", "feed-forward"),
        ("decoder.layers.1.norm3.weight", "decoder.layers.1", "norm"),
    ],
    "images": [
        ("vit.encoder.layer.0.attention.attention.key.weight", "vit.encoder.layer.0", "attention"),
        ("blocks.0.attn.qkv.weight", "blocks.0", "attention"),
        ("layer1.0.conv2.weight", "layer1.0", "convolution"),
        ("layer1.0.bn2.running_mean", "layer1.0", "norm"),
        ("layer4.2.downsample.0.weight", "layer4.2", "convolution"),
        ("conv1.weight", "", "convolution"),
        ("fc.weight", "", "other"),
    ],
    "a list of layers": [("0.weight", "0", "other"), ("10.bias", "10", "other")],
    "loom": [
        ("0.0.1.2.weight", "0.0.1.2", "other"),
        ("0.0.0.1.layers.1.query_weight", "0.0.0.1", "attention"),
        ("0.0.0.1.layers.1.output_bias", "0.0.0.1", "attention"),
    ],
}


def placed(names: Any) -> dict[str, tuple[str, str]]:
    table = analysis.blocks(names).columns()
    return {n: (b, k) for n, b, k in zip(table["name"], table["block"], table["kind"], strict=True)}


@pytest.mark.parametrize("model", NAMES)
def test_names_of_models(model: str) -> None:
    rows = NAMES[model]
    assert placed([name for name, _, _ in rows]) == {name: (block, kind) for name, block, kind in rows}


def test_blocks_come_in_natural_order_whatever_the_order_of_names() -> None:
    names = [f"blk.{n}.{part}.weight" for n in range(12) for part in ("attn_q", "attn_k", "ffn_up")]
    names += ["token_embd.weight", "output.weight"]
    found = analysis.blocks(names)
    assert [block.number for block in found] == [None, *range(12)]
    assert [block.name for block in found.numbered] == [f"blk.{n}" for n in range(12)]
    assert {block.family for block in found.numbered} == {"blk"}
    third = found.numbered[2]
    assert third.part("attention") == ("blk.2.attn_k.weight", "blk.2.attn_q.weight")
    assert third.part("norm") == ()
    assert third.names == (*third.part("attention"), "blk.2.ffn_up.weight")
    assert len(found) == 13
    random.Random(0).shuffle(names)
    assert analysis.blocks(names) == found
    assert analysis.Blocks.from_json(found.to_json()) == found
    assert found.to_frame()["kind"].tolist()[:2] == ["embedding", "head"]


def test_a_loom_transformer_has_its_layers_for_blocks() -> None:
    attended = nn.Residual([nn.LayerNorm(), nn.MultiHeadAttention(2)])
    net = loom.Sequential([nn.Embedding(10, 8), attended, nn.Dense(3)], input_shape=5)
    state = net.state_dict()
    found = analysis.blocks(state)
    assert [block.name for block in found] == ["0.0.0.0", "0.0.0.1", "0.0.0.2"]
    assert len(found.blocks[1].part("attention")) == 8
    assert sorted(name for block in found for name in block.names) == sorted(state)


@given(st.lists(st.text(alphabet="abh.0123456789_٣", min_size=1, max_size=12), unique=True))
def test_every_name_is_in_one_block(names: list[str]) -> None:
    found = analysis.blocks(names)
    listed = [name for block in found for name in block.names]
    assert sorted(listed) == sorted(names)
    assert analysis.blocks(reversed(names)) == found
    for block in found.numbered:
        assert all(name.startswith(f"{block.name}.") for name in block.names)


def test_numbers_may_be_long() -> None:
    long = "9" * 5000
    assert sorted([long, "10", "9", "010"], key=analysis.natural_key) == ["9", "010", "10", long]
    assert analysis.blocks([f"h.{long}.weight"]).blocks[0].number is None


def test_what_is_no_name_is_refused() -> None:
    assert analysis.blocks([]).columns() == {"name": [], "block": [], "number": [], "kind": []}
    with pytest.raises(loom.ConfigError, match="several names"):
        analysis.blocks("weight")
    with pytest.raises(loom.ConfigError, match="must be text"):
        analysis.blocks([3])  # type: ignore[list-item]
    with pytest.raises(loom.ConfigError, match="comes twice"):
        analysis.blocks(["a.weight", "a.weight"])
