"""Language models of every architecture that is written as GGUF, read back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from networks import decoders

MODELS = decoders()
BY_LLAMA_CPP = np.load(Path(__file__).parents[1] / "golden" / "tensors" / "llama_cpp_architectures.npz")


@pytest.mark.parametrize("kind", MODELS)
def test_what_is_written_is_read_as_the_same(kind: str, tmp_path: Path) -> None:
    net = MODELS[kind]()
    words = np.random.default_rng(0).integers(0, 50, (3, 12))
    expected = net.predict(words)
    loom.save_gguf(net, tmp_path / "net")
    file = loom.open_tensors(tmp_path / "net")
    assert file.metadata["general.architecture"] == kind.partition(",")[0]
    again = loom.load(tmp_path / "net")
    found = again.predict(words)
    # Gemma's gains are written and read with one added and taken away, factors of attention as float32.
    apart = 1e-5 if kind.startswith("gemma") or "long" in kind else 0
    np.testing.assert_allclose(found, expected, rtol=0, atol=apart)
    session = again.session(capacity=12, rows=3)
    steps = [session(words[:, [step]])[:, 0] for step in range(12)]
    np.testing.assert_allclose(np.stack(steps, axis=1), expected, atol=2e-5)
    again.save(tmp_path / "net.loom")
    np.testing.assert_array_equal(loom.load(tmp_path / "net.loom").predict(words), found)


@pytest.mark.parametrize("kind", MODELS)
def test_llama_cpp_makes_the_same_of_what_is_written(kind: str, tmp_path: Path) -> None:
    """llama.cpp leaves the windows of Phi-3 out; it reads GELU from a table of 16 bits."""
    words, scores = BY_LLAMA_CPP[f"{kind}: words"], BY_LLAMA_CPP[f"{kind}: scores"]
    loom.save_gguf(MODELS[kind](), tmp_path / "net")
    found = loom.load(tmp_path / "net").predict(words[None])[0]
    if kind == "phi3":
        assert np.abs(found[5:] - scores[5:]).max() > 0.1
        found, scores = found[:5], scores[:5]
    np.testing.assert_allclose(found, scores, atol=1e-2 if kind.startswith("gemma") else 1e-5)
    if kind != "phi3":
        # Greedy words after the first four.
        np.testing.assert_array_equal(found[3:-1].argmax(axis=1), words[4:])


def test_packed_experts_are_the_file_s_blocks(tmp_path: Path) -> None:
    loom.save_gguf(MODELS["qwen2moe"](), tmp_path / "net", "q8_0")
    file = loom.open_tensors(tmp_path / "net")
    assert file["blk.0.ffn_gate_exps.weight"].dtype == "q8_0"
    assert file["blk.0.ffn_gate_exps.weight"].shape == (4, 64, 32)
    assert file["blk.1.ffn_gate_inp_shexp.weight"].shape == (32,)
    assert file.metadata["qwen2moe.expert_shared_feed_forward_length"] == 96
    words = np.arange(12)[None]
    packed = loom.load(tmp_path / "net")
    # Rounded weights may choose other experts, so that the network they were made of says little here.
    rounded = MODELS["qwen2moe"]()
    rounded.load_state_dict(packed.state_dict())
    np.testing.assert_allclose(packed.predict(words), rounded.predict(words), rtol=0, atol=1e-6)
    for name, weight in MODELS["qwen2moe"]().state_dict().items():
        np.testing.assert_allclose(packed.state_dict()[name], weight, rtol=0, atol=np.abs(weight).max() / 120)


def changed(kind: str, place: int, **settings: Any) -> loom.Network:
    """A network of which the layer inside a Residual, or a layer, has other settings."""
    config = MODELS[kind]().config
    layers: list[Any] = list(config.cells[0].layers)  # type: ignore[union-attr]
    layer = layers[place]
    if isinstance(layer, nn.Residual):
        inner = [each if isinstance(each, nn.RMSNorm) else replace(each, **settings) for each in layer.layers]
        layers[place] = nn.Residual(inner)
    else:
        layers[place] = replace(layer, **settings)
    return loom.Sequential(layers, input_shape=12)


@pytest.mark.parametrize(
    ("kind", "place", "settings", "told"),
    [
        ("gemma", 1, {"factor": 3.0}, "scaled by the root of its width"),
        ("gemma", 3, {"activation": "gelu"}, "gelu_tanh"),
        ("gemma", 2, {"window": 3}, "windows"),
        ("gemma2", 2, {"window": None}, "windows of other blocks"),
        ("gemma2", 2, {"scale": 0.1}, "a scale of scores"),
        ("gemma2", 2, {"soft_cap": None}, "soft caps"),
        ("gemma3", 2, {"rotary": nn.Rotary(base=5.0)}, "base 10000"),
        ("gemma3", 4, {"heads": 8}, "same settings"),
        ("smollm3", 1, {"rotary": None}, "every fourth"),
        ("llama", 2, {"normalize": False}, "experts"),
        ("qwen3moe", 4, {"top_k": 1}, "experts"),
        ("qwen2moe", 2, {"shared_gate": False}, "experts"),
        ("olmo2", 2, {"hidden": 64}, "same width"),
        ("phi3", 1, {"rotary": nn.Rotary(rule=nn.YarnRule(4), scaling=2.0)}, "YarnRule"),
        ("phi3, long", 1, {"rotary": nn.Rotary(dim=8)}, "same settings|half_split"),
        ("gemma2", 2, {"rotary": nn.Rotary(base=5.0, layout="half_split")}, "its rotary embedding too"),
        ("gemma2", 2, {"rotary": None}, "layer 2: attention must be causal and rotary"),
        ("gemma", 2, {"rotary": None}, "layer 2: attention must be causal and rotary"),
        ("gemma", 2, {"bias": True}, "biases of attention"),
        ("phi3", 1, {"bias": True, "output_bias": False}, "biases of attention"),
        ("llama", 1, {"bias": True, "output_bias": False}, "mixtral has no place for biases of attention"),
        ("gemma", 2, {"qk_norm": True}, "qk_norm=True"),
        ("olmo2", 1, {"qk_norm": True}, "qk_norm=True"),
        ("qwen2moe", 1, {"bias": False}, "without biases of queries, keys and values"),
    ],
)
def test_what_an_architecture_cannot_say_is_named(
    kind: str, place: int, settings: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with pytest.raises(loom.ConfigError, match=told):
        loom.save_gguf(changed(kind, place, **settings), tmp_path / "net")


@pytest.mark.parametrize("kind", ["olmo2", "phi3", "phi3, long"])
def test_heads_are_as_wide_as_the_network_where_llama_cpp_wants_them_so(kind: str, tmp_path: Path) -> None:
    layers: list[Any] = list(MODELS[kind]().config.cells[0].layers)  # type: ignore[union-attr]
    for place in (1, 3):
        inner = layers[place].layers
        wider = [
            replace(each, head_dim=16) if isinstance(each, nn.MultiHeadAttention) else each for each in inner
        ]
        layers[place] = nn.Residual(wider)
    net = loom.Sequential(layers, input_shape=12)
    with pytest.raises(loom.ConfigError, match="heads that are together 64 wide in a network of width 32"):
        loom.save_gguf(net, tmp_path / "net")
