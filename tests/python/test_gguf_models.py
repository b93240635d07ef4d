"""Models in GGUF: llama.cpp's names and metadata become the Hub's, and networks become GGUF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.models.gguf import hub_config, hub_tensors, llama3_factors, to_halves, to_pairs
from loom.tensors import write_gguf
from networks import llama

GOLDEN = Path(__file__).parents[1] / "golden" / "tensors"
WORDS = np.random.default_rng(0).integers(0, 50, (3, 12))

HUB_NAMES = {
    "0.layers.0.weight": "input_layernorm.weight",
    "0.layers.1.query_weight": "self_attn.q_proj.weight",
    "0.layers.1.key_weight": "self_attn.k_proj.weight",
    "0.layers.1.value_weight": "self_attn.v_proj.weight",
    "0.layers.1.output_weight": "self_attn.o_proj.weight",
    "0.layers.1.query_bias": "self_attn.q_proj.bias",
    "0.layers.1.key_bias": "self_attn.k_proj.bias",
    "0.layers.1.value_bias": "self_attn.v_proj.bias",
    "0.layers.1.output_bias": "self_attn.o_proj.bias",
    "0.layers.1.query_gain": "self_attn.q_norm.weight",
    "0.layers.1.key_gain": "self_attn.k_norm.weight",
    "1.layers.0.weight": "post_attention_layernorm.weight",
    "1.layers.1.gate_weight": "mlp.gate_proj.weight",
    "1.layers.1.up_weight": "mlp.up_proj.weight",
    "1.layers.1.down_weight": "mlp.down_proj.weight",
}


def as_on_the_hub(net: loom.Network, blocks: int = 2) -> dict[str, Any]:
    """The state of a network whose halves of heads turn together, by the Hub's names."""
    named = {}
    for name, array in net.state_dict().items():
        _, _, _, place, rest = name.split(".", 4)
        at = int(place) - 1
        if at < 0:
            hub = "model.embed_tokens.weight"
        elif at < 2 * blocks:
            hub = f"model.layers.{at // 2}.{HUB_NAMES[f'{at % 2}.{rest}']}"
        else:
            hub = "model.norm.weight" if at == 2 * blocks else "lm_head.weight"
        named[hub] = array
    return named


@pytest.mark.parametrize(
    ("settings", "model_type"),
    [
        ({}, "llama"),
        ({"tied": True}, "llama"),
        ({"bias": True}, "llama"),
        ({"qk_norm": True}, "qwen3"),
        ({"blocks": 12, "key_value_heads": None, "head_dim": None}, "llama"),
    ],
)
def test_what_is_saved_is_what_the_hub_would_have(
    settings: dict[str, Any], model_type: str, tmp_path: Path
) -> None:
    net, blocks = llama(**settings), settings.get("blocks", 2)
    loom.save_gguf(net, tmp_path / "net")
    with loom.open_tensors(tmp_path / "net") as file:
        assert hub_config(file) == {
            "model_type": model_type,
            "architectures": [{"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM"}[model_type]],
            "max_position_embeddings": 12,
            "hidden_size": 32,
            "num_hidden_layers": blocks,
            "intermediate_size": 96,
            "num_attention_heads": 4,
            "num_key_value_heads": settings.get("key_value_heads", 2) or 4,
            "rms_norm_eps": 1e-6 if settings.get("qk_norm") else 1e-5,
            "rope_theta": 10_000.0,
            "vocab_size": 50,
            "head_dim": settings.get("head_dim", 16) or 8,
            "tie_word_embeddings": settings.get("tied", False),
            "attention_bias": settings.get("bias", False),
        }
        tensors, expected = hub_tensors(file), as_on_the_hub(net, blocks)
        assert set(tensors) == set(expected)
        for name, array in expected.items():
            np.testing.assert_array_equal(tensors[name].numpy(), array, strict=True)


@pytest.mark.parametrize("qk_norm", [False, True])
def test_how_heads_pair_elements_makes_no_difference(qk_norm: bool, tmp_path: Path) -> None:
    halves = llama(qk_norm=qk_norm)
    pairs = llama(qk_norm=qk_norm, rotary=nn.Rotary())
    state = halves.state_dict()
    for name, array in state.items():
        if name.endswith(("query_weight", "key_weight")):
            state[name] = to_pairs(array, array.shape[0] // 16)
        elif name.endswith(("query_gain", "key_gain")):
            state[name] = to_pairs(array, 1)
    pairs.load_state_dict(state)
    words = np.arange(12)[None] % 50
    np.testing.assert_allclose(pairs.predict(words), halves.predict(words), rtol=1e-4, atol=1e-5)
    loom.save_gguf(halves, tmp_path / "halves")
    loom.save_gguf(pairs, tmp_path / "pairs")
    assert (tmp_path / "halves").read_bytes() == (tmp_path / "pairs").read_bytes()


def test_blocks_in_checkpoints_are_written_as_they_are_without(tmp_path: Path) -> None:
    attention = nn.MultiHeadAttention(2, causal=True, rotary=nn.Rotary(), bias=False)
    block = [nn.Residual([nn.RMSNorm(), attention]), nn.Residual([nn.RMSNorm(), nn.SwiGLU(48)])]
    ends = [nn.RMSNorm(), nn.TiedHead(50, tied_to=(0, 0, 0, 0))]
    made = [nn.Embedding(50, 32), nn.Checkpoint(block), *block, nn.Checkpoint(nn.Checkpoint(block)), *ends]
    net = loom.Sequential(made, input_shape=12, seed=4)
    plain = loom.Sequential([nn.Embedding(50, 32), *3 * block, *ends], input_shape=12)
    plain.load_state_dict(dict(zip(plain.state_dict(), net.state_dict().values(), strict=True)))
    paths = [tmp_path / name for name in ("a.gguf", "b.gguf")]
    for each, path in zip((net, plain), paths, strict=True):
        loom.save_gguf(each, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    x = np.random.default_rng(0).integers(0, 50, (2, 12))
    np.testing.assert_allclose(loom.load(paths[0]).predict(x), net.predict(x), rtol=0, atol=1e-5)


def test_a_head_with_a_table_of_its_own_is_written(tmp_path: Path) -> None:
    rows = llama().config.cells[0].layers[:-1]  # type: ignore[union-attr]
    net = loom.Sequential([*rows, nn.TiedHead(50)], input_shape=12, seed=3)
    loom.save_gguf(net, tmp_path / "net")
    words = np.arange(12)[None]
    np.testing.assert_allclose(loom.load(tmp_path / "net").predict(words), net.predict(words), atol=1e-6)


@pytest.mark.parametrize("dtype", ["q8_0", "q4_0"])
def test_activations_are_quantised_where_weights_stay_in_the_file(dtype: Any, tmp_path: Path) -> None:
    loom.save_gguf(llama(tied=True), tmp_path / "net", dtype)
    plain, quantised = loom.load(tmp_path / "net"), loom.load(tmp_path / "net")
    quantised.morph(dtype, activations="int8")
    # The table lies along its rows still, as the file has it.
    tables = [net.layers[0].weights.packed("weight").codes for net in (plain, quantised)]
    np.testing.assert_array_equal(tables[1], tables[0])
    words = np.arange(12)[None] * 3 % 50
    exact, made = plain.predict(words), quantised.predict(words)
    assert not np.array_equal(made, exact)
    assert np.abs(made - exact).max() < 0.1 * np.abs(exact).max()
    # The head reads floats where nothing else than the other layers was chosen.
    others = loom.load(tmp_path / "net")
    others.morph(dtype, where=lambda layer: layer.kind != "embedding", activations="int8")
    assert not np.array_equal(others.predict(words), made)
    session = quantised.session(12)
    steps = [session(words[:, :5])[:, -1], *(session(words[:, at : at + 1])[:, 0] for at in range(5, 12))]
    np.testing.assert_array_equal(np.stack(steps, axis=1), made[:, 4:])


def test_orders_of_rows_are_each_other_s_inverse() -> None:
    rows = np.arange(24.0).reshape(12, 2)
    assert to_pairs(rows, 2)[:6, 0].tolist() == [0, 6, 2, 8, 4, 10]
    np.testing.assert_array_equal(to_halves(to_pairs(rows, 3), 3), rows)


def test_saved_packed_it_is_smaller_and_says_so(tmp_path: Path) -> None:
    net = llama()
    for dtype, number in (("float16", 1), ("q4_0", 2), ("q8_0", 7), ("bfloat16", 32)):
        loom.save_gguf(
            net, tmp_path / dtype, dtype, {"tokenizer.ggml.model": "gpt2", "general.name": "small"}
        )
        file = loom.open_tensors(tmp_path / dtype)
        assert file.metadata["general.file_type"] == number
        assert file.metadata["tokenizer.ggml.model"] == "gpt2"
        assert file.metadata["general.name"] == "small"
        kinds = {entry.dtype for entry in file.values() if len(entry.shape) == 2}
        assert kinds == {dtype}
        assert {entry.dtype for entry in file.values() if len(entry.shape) == 1} == {"float32"}


def decoded(net: loom.Network) -> dict[str, Any]:
    """What the forward pass reads, by layer and name."""
    native = net._engine.native
    return {
        f"{place}.{name}": native.parameter((0, 0, 0, place), name, True)
        for place in range(len(net.layers))
        for name in native.parameter_names((0, 0, 0, place))
    }


@pytest.mark.parametrize(
    ("packed", "written"),
    [("q4_0", "q4_0"), ("q8_0", "q8_0"), ("int4", "float32"), ("ternary", "float32"), ("float16", "float16")],
)
def test_without_masters_what_the_codes_stand_for_is_written(
    packed: str, written: Any, tmp_path: Path
) -> None:
    net = llama(tied=True).morph(packed).drop_master()
    before = net.blueprint().bytes
    loom.save_gguf(net, tmp_path / "net.gguf", written)
    assert net.blueprint().bytes == before
    assert net.layers[0].weights.dropped
    again = loom.load(tmp_path / "net.gguf")
    held = decoded(net)
    # Blocks of a table lie along its columns in loom, and along its rows in a file: it is rounded once more.
    table = held.pop("0.weight"), decoded(again)["0.weight"]
    apart = {"q4_0": 1 / 8, "q8_0": 1 / 128}.get(written, 0) * np.abs(table[0]).max()
    np.testing.assert_allclose(*table, rtol=0, atol=apart)
    for path, value in held.items():
        np.testing.assert_array_equal(decoded(again)[path], value, path)
    if written.startswith("float"):
        np.testing.assert_array_equal(again.predict(WORDS), net.predict(WORDS))
    # What is computed from a file, which has no masters either, is the file once more.
    loom.save_gguf(again, tmp_path / "again.gguf", written)
    assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "net.gguf").read_bytes()


def test_networks_of_another_kind_are_named(tmp_path: Path) -> None:
    good = llama().config.cells[0].layers  # type: ignore[union-attr]
    norm = nn.RMSNorm(epsilon=1e-5)
    rotary = nn.Rotary()

    def with_layer(place: int, layer: nn.Layer) -> list[Any]:
        return [*good[:place], layer, *good[place + 1 :]]

    def attention(**settings: Any) -> nn.Layer:
        chosen = {"causal": True, "rotary": rotary, "bias": False, **settings}
        return nn.Residual([norm, nn.MultiHeadAttention(4, **chosen)])

    for layers, says in [
        (with_layer(1, nn.Residual([nn.LayerNorm(), nn.SwiGLU(96)])), "layer 1 must be Residual"),
        (with_layer(1, attention(causal=False)), "causal"),
        (with_layer(1, attention(rotary=None)), "rotary"),
        (with_layer(1, attention(window=4)), "window"),
        (with_layer(1, attention()), "same settings"),
        (with_layer(2, nn.Residual([norm, nn.SwiGLU(96, bias=True)])), "bias"),
        (with_layer(2, nn.Residual([norm, nn.SwiGLU(64)])), "same width"),
        (with_layer(2, nn.Residual([nn.RMSNorm(epsilon=0.1), nn.SwiGLU(96)])), "epsilon"),
        (with_layer(5, nn.LayerNorm()), "an RMSNorm"),
        (with_layer(6, nn.Dense(50)), "without bias"),
        ([good[0], *good[2:]], "pairs"),
        (good[:1], "Embedding"),
    ]:
        with pytest.raises(loom.ConfigError, match=says):
            loom.save_gguf(loom.Sequential(layers, input_shape=12), tmp_path / "net")
    with pytest.raises(loom.ConfigError, match="dtype"):
        loom.save_gguf(llama(), tmp_path / "net", "q6_k")


def described(**metadata: Any) -> dict[str, Any]:
    own = {
        "block_count": 1,
        "embedding_length": 32,
        "feed_forward_length": 64,
        "attention.head_count": 2,
        "context_length": 100,
        **metadata,
    }
    name = own.pop("architecture", "llama")
    return {"general.architecture": name, **{f"{name}.{key.replace('__', '.')}": own[key] for key in own}}


def config_of(path: Path, tensors: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    given = {"token_embd.weight": np.zeros((7, 32), np.float32), **(tensors or {})}
    write_gguf(path, given, described(**metadata))
    with loom.open_tensors(path) as file:
        hub_tensors(file)
        return hub_config(file)


def test_how_places_are_scaled(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert "rope_scaling" not in config_of(path)
    linear = config_of(path, rope__scaling__type="linear", rope__scaling__factor=4.0)
    assert linear["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}
    yarn = config_of(
        path,
        rope__scaling__type="yarn",
        rope__scaling__factor=2.0,
        rope__scaling__original_context_length=50,
        rope__scaling__yarn_beta_fast=16.0,
    )
    assert yarn["rope_scaling"] == {
        "rope_type": "yarn",
        "factor": 2.0,
        "beta_fast": 16.0,
        "original_max_position_embeddings": 50,
    }
    factors = llama3_factors(5e5, 16, 8.0, 1.0, 4.0, 8192).astype(np.float32)
    llama3 = config_of(path, {"rope_freqs.weight": factors}, rope__freq_base=5e5)
    assert llama3["rope_scaling"] == {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    others = config_of(path, {"rope_freqs.weight": factors + 1}, rope__freq_base=5e5)["rope_scaling"]
    assert others["rope_type"] == "longrope"
    assert others["attention_factor"] == 1
    np.testing.assert_array_equal(others["short_factor"], factors + 1)
    with pytest.raises(loom.ConfigError, match="spiral"):
        config_of(path, rope__scaling__type="spiral", rope__scaling__factor=2.0)


def test_gemma_s_norms_and_windows(tmp_path: Path) -> None:
    gains = np.arange(1.0, 33.0, dtype=np.float32)
    path = tmp_path / "file"
    tensors = {"output_norm.weight": gains, "blk.0.ffn_norm.weight": gains}
    config = config_of(
        path, tensors, architecture="gemma2", attention__key_length=8, final_logit_softcapping=30.0
    )
    assert config["layer_types"] == ["sliding_attention"]
    assert (config["query_pre_attn_scalar"], config["final_logit_softcapping"]) == (8, 30.0)
    hub = hub_tensors(loom.open_tensors(path))
    np.testing.assert_array_equal(hub["model.layers.0.pre_feedforward_layernorm.weight"].numpy(), gains - 1)
    np.testing.assert_array_equal(hub["model.norm.weight"].numpy(), gains - 1)


@pytest.mark.parametrize("dtype", ["float32", "q8_0"])
def test_experts_are_read_one_by_one(dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    stacked = np.random.default_rng(0).normal(size=(3, 64, 32)).astype(np.float32)
    for architecture, at, names in (
        ("llama", "block_sparse_moe", ("gate", "w1")),
        ("qwen3moe", "mlp", ("gate", "gate_proj")),
        ("qwen2moe", "mlp", ("gate", "gate_proj")),
    ):
        tensors = {
            "token_embd.weight": np.zeros((7, 32), np.float32),
            "blk.0.ffn_gate_inp.weight": np.zeros((3, 32), np.float32),
            "blk.0.ffn_gate_exps.weight": stacked,
        }
        if architecture == "qwen2moe":
            tensors["blk.0.ffn_gate_inp_shexp.weight"] = np.ones(32, np.float32)
        metadata = described(
            architecture=architecture,
            expert_count=3,
            expert_used_count=2,
            expert_feed_forward_length=64,
            expert_shared_feed_forward_length=64,
        )
        write_gguf(path, tensors, metadata, dtype)
        file = loom.open_tensors(path)
        config, hub = hub_config(file), hub_tensors(file)
        assert config["num_experts_per_tok"] == 2
        assert config.get("num_local_experts", config.get("num_experts")) == 3
        assert f"model.layers.0.{at}.{names[0]}.weight" in hub
        whole = file["blk.0.ffn_gate_exps.weight"].numpy()
        for place in range(3):
            entry = hub[f"model.layers.0.{at}.experts.{place}.{names[1]}.weight"]
            assert (entry.shape, entry.dtype) == ((64, 32), dtype)
            np.testing.assert_array_equal(entry.numpy(), whole[place])
        if architecture == "qwen2moe":
            assert hub["model.layers.0.mlp.shared_expert_gate.weight"].numpy().shape == (1, 32)


def test_files_without_a_model_and_of_others_are_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_gguf(path, {"a": np.zeros(3)}, {})
    with pytest.raises(loom.SerializationError, match="architecture"):
        hub_config(loom.open_tensors(path))
    with pytest.raises(loom.ConfigError, match=r"mamba.*Known: llama"):
        config_of(path, architecture="mamba")
    with pytest.raises(loom.ConfigError, match=r"blk\.0\.odd\.weight"):
        config_of(path, {"blk.0.odd.weight": np.zeros(3)})
    with pytest.raises(loom.SerializationError, match="block_count"):
        config_of(path, block_count=0.5)
    for wrong in ({"attention__key_length": 0}, {"attention__head_count": 64}):
        with pytest.raises(loom.SerializationError, match="extent of 0"):
            config_of(path, rope__dimension_count=16, **wrong)
    write_gguf(path, {"blk.0.attn_q.weight": np.zeros((7, 32))}, described())
    with pytest.raises(loom.SerializationError, match="heads"):
        hub_tensors(loom.open_tensors(path))["model.layers.0.self_attn.q_proj.weight"].numpy()
    with pytest.raises(loom.SerializationError, match="token_embd"):
        hub_config(loom.open_tensors(path))


def test_llama_cpp_makes_the_same_of_what_is_saved(tmp_path: Path) -> None:
    golden = np.load(GOLDEN / "llama_cpp.npz")
    net = llama(blocks=1)
    loom.save_gguf(net, tmp_path / "net")
    # What llama.cpp has run is what is written.
    assert (tmp_path / "net").read_bytes() == (GOLDEN / "llama.gguf").read_bytes()
    scores = net.predict([golden["words"]])[0]
    np.testing.assert_allclose(scores, golden["scores"], atol=1e-4)
    assert scores[3:-1].argmax(axis=1).tolist() == golden["words"][4:].tolist()


def test_what_is_left_out_in_training_is_nothing_to_who_runs_it(tmp_path: Path) -> None:
    net = llama(dropout=0.3)
    loom.save_gguf(net, tmp_path / "net")
    np.testing.assert_allclose(
        loom.load(tmp_path / "net").session(12, rows=3)(WORDS), net.predict(WORDS), atol=1e-5
    )
    with pytest.raises(loom.ConfigError, match="no place for position_bias"):
        loom.save_gguf(llama(position_bias=nn.ALiBi()), tmp_path / "other")
