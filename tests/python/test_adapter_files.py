"""Adapters in peft's files: read, written, and computing what peft computes."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.errors import ConfigError, FileError, SerializationError, ShapeError
from loom.tensors import open_tensors, write_safetensors

GOLDEN = Path(__file__).parents[1] / "golden"
ADAPTER = GOLDEN / "peft"
EXPECTED = np.load(ADAPTER / "expected.npz")
DECOMPOSED = GOLDEN / "peft_dora"
BOTH = pytest.mark.parametrize("folder", [ADAPTER, DECOMPOSED], ids=lambda folder: folder.name)


def llama(length: int = 10) -> loom.Network:
    return loom.models.from_hub(GOLDEN / "hub" / "llama", length=length)


@BOTH
def test_peft_adapters_compute_what_peft_computes(folder: Path) -> None:
    expected = np.load(folder / "expected.npz")
    net, tokens = llama(), expected["tokens"]
    np.testing.assert_allclose(net.predict(tokens), expected["plain"], atol=1e-5)
    net.load_adapter(folder)
    np.testing.assert_allclose(net.predict(tokens), expected["logits"], atol=2e-5)
    assert net.adapters["default"].rank_stabilized == (folder == ADAPTER)
    assert net.adapters["default"].decomposed == (folder == DECOMPOSED)
    assert net.adapters["default"].rank == 3
    net.use_adapters()
    np.testing.assert_allclose(net.predict(tokens), expected["plain"], atol=1e-5)
    net.use_adapters("default").merge_adapters()
    np.testing.assert_allclose(net.predict(tokens), expected["logits"], atol=2e-5)


@BOTH
def test_training_makes_of_them_what_peft_makes_of_them(folder: Path) -> None:
    expected = np.load(folder / "expected.npz")
    net = llama(9).freeze().load_adapter(folder, trainable=True)
    tokens = expected["tokens"]
    config = loom.TrainingConfig(
        epochs=3, batch_size=3, loss="cross_entropy", optimizer="sgd", learning_rate=0.5, verbose=False
    )
    result = loom.train(net, (tokens[:, :-1], tokens[:, 1:]), config)
    np.testing.assert_allclose(result.history["loss"], expected["losses"], rtol=1e-4)
    own = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "gate_proj": "gate", "down_proj": "down"}
    keys = [key for key in expected.files if "lora" in key]
    assert len(keys) == (30 if folder == DECOMPOSED else 20)
    for key in keys:
        block, kind, product, part = key.split(".")[4:8]
        layer = net.layers[2 * int(block) + (1 if kind == "self_attn" else 2)]
        part = part.removesuffix("_vector").lower()
        found = layer[f"layers.1.{own[product]}_weight.default.{part}"]
        np.testing.assert_allclose(found, expected[key], atol=2e-5, err_msg=key)


@BOTH
def test_what_is_written_is_what_was_read(folder: Path, tmp_path: Path) -> None:
    llama().load_adapter(folder).save_adapter(tmp_path, base="llama")
    with (
        loom.open_tensors(tmp_path / "adapter_model.safetensors") as ours,
        loom.open_tensors(folder / "adapter_model.safetensors") as theirs,
    ):
        assert sorted(ours) == sorted(theirs)
        for name, entry in theirs.items():
            assert (ours[name].numpy() == entry.numpy()).all()
    ours, theirs = (json.loads((place / "adapter_config.json").read_text()) for place in (tmp_path, folder))
    # Which peft no longer writes.
    assert ours.keys() - theirs.keys() <= {"layers_pattern", "layers_to_transform"}
    theirs["target_modules"] = sorted(theirs["target_modules"])
    assert {key: theirs[key] for key in ours if key in theirs} == {
        key: value for key, value in ours.items() if key in theirs
    }


def decoder() -> loom.Network:
    attention = nn.MultiHeadAttention(2, key_value_heads=1, causal=True, rotary=nn.Rotary(), bias=False)
    layers = [
        nn.Embedding(20, 8),
        nn.Residual([nn.RMSNorm(), attention]),
        nn.Residual([nn.RMSNorm(), nn.SwiGLU(12)]),
        nn.Dense(20),
    ]
    return loom.Sequential(layers, input_shape=6, seed=0)


def trained(net: loom.Network) -> loom.Network:
    draws = np.random.default_rng(0)
    for layer in net.layers:
        for name in layer.parameters:
            if "lora_b" in name:
                layer[name] = draws.normal(size=layer[name].shape)
    return net


@pytest.mark.parametrize(("modules", "targets"), [("llama", "*_weight"), ("llama", None), ("loom", None)])
def test_adapters_go_through_files_for_any_network(modules: Any, targets: Any, tmp_path: Path) -> None:
    net = trained(decoder().add_adapter(rank=2, targets=targets))
    net.save_adapter(tmp_path / "deep" / "folder", modules=modules)
    other = decoder().load_adapter(tmp_path / "deep" / "folder", "other")
    x = np.arange(6)[None]
    assert (other.predict(x) == net.predict(x)).all()
    assert other.adapters["other"].weights == net.adapters["default"].weights
    assert not other.adapters["other"].trainable


def test_adapters_beside_packed_weights_go_through_files(tmp_path: Path) -> None:
    net = trained(decoder().morph("int8").drop_master().add_adapter(rank=2, targets=["query", "up"]))
    net.save_adapter(tmp_path)
    other = decoder().morph("int8").drop_master().load_adapter(tmp_path)
    x = np.arange(6)[None]
    assert (other.predict(x) == net.predict(x)).all()


@pytest.mark.parametrize("file", [False, True])
def test_adapters_go_into_packed_weights_without_masters(file: bool, tmp_path: Path) -> None:
    if file:
        # Weights that stay in their file have no masters either.
        loom.save_gguf(llama(), tmp_path / "net.gguf", dtype="float16")
        nets = [loom.load(tmp_path / "net.gguf") for _ in range(2)]
    else:
        nets = [llama().morph("int8").drop_master() for _ in range(2)]
    merged, beside = nets
    merged.load_adapter(ADAPTER, merge=True)
    beside.load_adapter(ADAPTER, "merged0").load_adapter(ADAPTER, merge=True)
    assert merged.adapters == {}
    # What stands beside already stays, whatever it is called.
    assert list(beside.adapters) == ["merged0"]
    beside.remove_adapters()
    words = EXPECTED["tokens"]
    words = np.pad(words, ((0, 0), (0, merged.input_shape[0] - words.shape[1])))
    np.testing.assert_array_equal(merged.predict(words), beside.predict(words))
    width = EXPECTED["tokens"].shape[1]
    error = np.abs(merged.predict(words)[:, :width] - EXPECTED["logits"]).max()
    assert error < 0.1 * np.abs(EXPECTED["logits"] - EXPECTED["plain"]).max()


def test_adapters_of_double_precision_keep_all_digits(tmp_path: Path) -> None:
    def dense() -> loom.Network:
        layers = [nn.Dense(3, activation="tanh"), nn.Dense(2)]
        return loom.Sequential(layers, input_shape=4, precision="float64", seed=1)

    net = trained(dense().add_adapter(rank=2))
    net.save_adapter(tmp_path, modules="loom")
    x = np.random.default_rng(1).normal(size=(2, 4))
    assert (dense().load_adapter(tmp_path).predict(x) == net.predict(x)).all()
    merged = dense().load_adapter(tmp_path, merge=True)
    np.testing.assert_allclose(merged.predict(x), net.predict(x), rtol=1e-13)


@pytest.mark.parametrize("stabilized", [False, True])
def test_scales_that_are_made_in_two_ways_stay_what_they_are(tmp_path: Path, stabilized: bool) -> None:
    net = decoder().add_adapter(rank=4, alpha=2.0, targets=["query"], rank_stabilized=stabilized)
    net.add_adapter(rank=3, alpha=2.0, targets=["down", "up"], rank_stabilized=not stabilized)
    trained(net).save_adapter(tmp_path / "adapter", modules="loom")
    words = np.arange(6)[None]
    found = decoder().load_adapter(tmp_path / "adapter")
    np.testing.assert_allclose(found.predict(words), net.predict(words), atol=1e-6)
    assert np.abs(decoder().predict(words) - net.predict(words)).max() > 0.01


def test_some_layers_are_told_by_their_whole_names(tmp_path: Path) -> None:
    net = llama().add_adapter(rank=2, targets="0.0.0.3.*query*")
    net.save_adapter(tmp_path)
    told = json.loads((tmp_path / "adapter_config.json").read_text())["target_modules"]
    assert told == ["model.layers.1.self_attn.q_proj"]


def test_rows_of_neighbouring_pairs_are_written_as_those_of_halves(tmp_path: Path) -> None:
    """A network that turns neighbours is one that turns halves, with rows in another order."""
    halves = llama()
    config = halves.config.to_config()
    text = json.dumps(config).replace('"half_split"', '"interleaved"')
    neighbours = loom.Network.from_config(json.loads(text))
    state = halves.state_dict()
    size = 4
    order = np.array([0, 2, 1, 3])
    for name, values in state.items():
        if "query_weight" in name or "key_weight" in name:
            state[name] = values.reshape(-1, size, values.shape[-1])[:, order].reshape(values.shape)
    neighbours.load_state_dict(state)
    x = EXPECTED["tokens"]
    np.testing.assert_allclose(neighbours.predict(x), EXPECTED["plain"], atol=1e-5)
    neighbours.load_adapter(ADAPTER)
    np.testing.assert_allclose(neighbours.predict(x), EXPECTED["logits"], atol=2e-5)
    neighbours.save_adapter(tmp_path)
    again = llama().load_adapter(tmp_path)
    np.testing.assert_allclose(again.predict(x), EXPECTED["logits"], atol=2e-5)


def changed(folder: Path, **settings: Any) -> Path:
    shutil.copytree(ADAPTER, folder, dirs_exist_ok=True)
    path = folder / "adapter_config.json"
    config = {**json.loads(path.read_text()), **settings}
    path.write_text(json.dumps(config))
    return folder


def test_the_head_s_own_weight_may_lie_beside_its_adapter(tmp_path: Path) -> None:
    # peft writes it so, in the precision of the model that it has trained.
    folder, net = changed(tmp_path, target_modules=["lm_head"]), llama()
    weight, draws = np.asarray(net.layers[-1]["weight"]), np.random.default_rng(2)
    down, up = draws.normal(size=(3, 16)), draws.normal(size=(len(weight), 3))
    name = "base_model.model.lm_head"
    parts = {f"{name}.lora_A.weight": down, f"{name}.lora_B.weight": up}
    parts[f"{name}.base_layer.weight"] = weight.astype(np.float16)
    write_safetensors(folder / "adapter_model.safetensors", parts)
    x = EXPECTED["tokens"]
    inner = llama()
    inner.layers[-1]["weight"] = weight + 5 / math.sqrt(3) * (up @ down).astype(np.float32)
    wanted = inner.predict(x)
    np.testing.assert_allclose(net.load_adapter(folder).predict(x), wanted, atol=1e-4)
    np.testing.assert_allclose(llama().load_adapter(folder, merge=True).predict(x), wanted, atol=1e-4)
    # Beside packed weights it is that of the model which they were packed from.
    llama().morph("int4").drop_master().load_adapter(folder)
    for other, error, told in (
        ({f"{name}.base_layer.weight": 2 * weight}, ConfigError, "another weight of lm_head"),
        ({f"{name}.base_layer.weight": weight[1:]}, ShapeError, "lm_head has a weight of"),
        ({"base_model.model.model.embed_tokens.base_layer.weight": weight}, ConfigError, "no LoRA adapter"),
    ):
        write_safetensors(folder / "adapter_model.safetensors", {**parts, **other})
        net = llama()
        with pytest.raises(error, match=told):
            net.load_adapter(folder)
        assert net.adapters == {}


def test_patterns_of_alphas_count(tmp_path: Path) -> None:
    folder = changed(tmp_path, alpha_pattern={"layers.1.mlp.gate_proj": 7, "layers.1.mlp.down_proj": 7})
    net = llama().load_adapter(folder)
    alphas = [json.loads(net._engine.native.adapters(layer.at))[0]["alpha"] for layer in net.layers[1:5]]
    assert alphas == [5, 5, 5, 7]
    net.save_adapter(tmp_path / "again")
    told = json.loads((tmp_path / "again" / "adapter_config.json").read_text())
    assert sorted(told["alpha_pattern"].values()) == [7, 7]


def test_adapters_with_lengths_go_into_the_weights(tmp_path: Path) -> None:
    """DoRA by its paper: m (W + s B A) / |W + s B A|, the norm over each output's weights."""
    folder = changed(tmp_path, use_dora=True)
    draws, net, by_hand = np.random.default_rng(2), llama(), llama()
    with loom.open_tensors(ADAPTER / "adapter_model.safetensors") as file:
        tensors = {name: entry.numpy() for name, entry in file.items()}
    state, own = by_hand.state_dict(), {"gate_proj": "gate", "down_proj": "down"}
    own |= {"q_proj": "query", "k_proj": "key", "v_proj": "value"}
    for name in [name for name in tensors if name.endswith("lora_A.weight")]:
        up = tensors[name.replace("lora_A", "lora_B")]
        length = draws.uniform(0.2, 2.0, len(up)).astype(np.float32)
        tensors[name.replace("lora_A.weight", "lora_magnitude_vector")] = length
        _, _, block, kind, product = name.removeprefix("base_model.model.").split(".")[:5]
        key = f"0.0.0.{2 * int(block) + (1 if kind == 'self_attn' else 2)}.layers.1.{own[product]}_weight"
        weight = state[key] + np.float32(5 / np.sqrt(3)) * (up @ tensors[name])
        state[key] = weight * (length / np.linalg.norm(weight, axis=1))[:, None]
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    by_hand.load_state_dict(state)
    net.load_adapter(folder, merge=True)
    np.testing.assert_allclose(
        net.predict(EXPECTED["tokens"]), by_hand.predict(EXPECTED["tokens"]), atol=2e-5
    )
    assert net.adapters == {}
    # Others go there, too; with a part missing nothing has changed.
    plain = llama().load_adapter(ADAPTER, merge=True)
    np.testing.assert_allclose(plain.predict(EXPECTED["tokens"]), EXPECTED["logits"], atol=2e-5)
    tensors = {name: array for name, array in tensors.items() if "1.mlp.down_proj.lora_mag" not in name}
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    other = llama()
    with pytest.raises(SerializationError, match="lora_magnitude_vector"):
        other.load_adapter(folder, merge=True)
    np.testing.assert_array_equal(other.predict(EXPECTED["tokens"]), llama().predict(EXPECTED["tokens"]))


@pytest.mark.parametrize("stabilized", [True, False])
def test_ranks_and_alphas_by_module(tmp_path: Path, stabilized: bool) -> None:
    """Of any module its own: what is added to its weight is scale B A, by peft's documentation."""
    alphas = {"q_proj": 2.0, "layers.1.self_attn.k_proj": -3.0, "layers.1.mlp.gate_proj": 7, "v_proj": 0.0}
    folder = changed(tmp_path, alpha_pattern=alphas, lora_alpha=4, use_rslora=stabilized)
    draws, net, by_hand = np.random.default_rng(1), llama(), llama()
    with loom.open_tensors(ADAPTER / "adapter_model.safetensors") as file:
        tensors = {name: entry.numpy() for name, entry in file.items()}
    state = by_hand.state_dict()
    own = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "gate_proj": "gate", "down_proj": "down"}
    for name in [name for name in tensors if name.endswith("lora_A.weight")]:
        # Other ranks, too: 3 in the file.
        rank = int(draws.integers(1, 6))
        other = name.replace("lora_A", "lora_B")
        down = draws.normal(0, 0.3, (rank, tensors[name].shape[1])).astype(np.float32)
        up = draws.normal(0, 0.3, (tensors[other].shape[0], rank)).astype(np.float32)
        tensors[name], tensors[other] = down, up
        module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        alpha = next((value for key, value in alphas.items() if module.endswith(key)), 4.0)
        _, _, block, kind, product = module.split(".")
        place = 2 * int(block) + (1 if kind == "self_attn" else 2)
        scale = alpha / (np.sqrt(rank) if stabilized else rank)
        key = f"0.0.0.{place}.layers.1.{own[product]}_weight"
        state[key] = state[key] + np.float32(scale) * (up @ down)
    write_safetensors(folder / "adapter_model.safetensors", tensors)
    by_hand.load_state_dict(state)
    x = EXPECTED["tokens"]
    wanted = by_hand.predict(x)
    assert np.abs(wanted - EXPECTED["plain"]).max() > 0.05
    net.load_adapter(folder)
    np.testing.assert_allclose(net.predict(x), wanted, atol=3e-5)
    net.save_adapter(tmp_path / "again")
    np.testing.assert_allclose(llama().load_adapter(tmp_path / "again").predict(x), wanted, atol=3e-5)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"peft_type": "IA3"}, "type LORA, not IA3"),
        ({"bias": "all"}, "bias='all'|bias=\"all\""),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
        # The model's own weights are others with these, and the file does not have them.
        ({"init_lora_weights": "pissa"}, "init_lora_weights='pissa'.*weights"),
        ({"init_lora_weights": "olora"}, "init_lora_weights='olora'.*weights"),
        ({"kasa_config": {"beta": 1e-4}}, "kasa_config"),
        ({"arrow_config": {"top_k": 3}}, "arrow_config"),
        ({"use_qalora": True}, "use_qalora"),
    ],
    ids=str,
)
def test_other_adapters_are_refused_by_name(settings: dict[str, Any], told: str, tmp_path: Path) -> None:
    net = llama()
    with pytest.raises(ConfigError, match=told):
        net.load_adapter(changed(tmp_path, **settings))
    assert net.adapters == {}


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    net = llama()
    with pytest.raises(FileError, match=r"adapter_config\.json"):
        net.load_adapter(tmp_path / "nothing")
    folder = changed(tmp_path / "a")
    (folder / "adapter_config.json").write_text("{")
    with pytest.raises(SerializationError, match="not JSON"):
        net.load_adapter(folder)
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(SerializationError, match="peft_type"):
        net.load_adapter(folder)
    folder = changed(tmp_path / "b", lora_alpha="much")
    with pytest.raises(SerializationError, match="numbers"):
        net.load_adapter(folder)
    folder = changed(tmp_path / "c")
    key = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"
    a, b = np.ones((2, 16), np.float32), np.ones((16, 2), np.float32)
    for tensors, error, told in [
        ({key.format(0, "A"): a}, SerializationError, "but one of"),
        ({key.format(9, "A"): a, key.format(9, "B"): b}, ConfigError, r"layers\.9\.self_attn"),
        ({key.format(0, "A"): b, key.format(0, "B"): a}, ShapeError, "takes lora_A of"),
        ({"base_model.model.lm_head.weight": a}, ConfigError, "no factor of a LoRA adapter"),
        ({}, SerializationError, "no adapter in it"),
    ]:
        write_safetensors(folder / "adapter_model.safetensors", tensors)
        with pytest.raises(error, match=told):
            net.load_adapter(folder)
        assert net.adapters == {}


def test_what_has_no_name_there_is_not_written(tmp_path: Path) -> None:
    net = loom.Sequential([nn.Dense(4), nn.Dense(3)], input_shape=4).add_adapter()
    with pytest.raises(ConfigError, match='modules="loom"'):
        net.save_adapter(tmp_path / "never")
    assert not (tmp_path / "never").exists()
    with pytest.raises(ConfigError, match="unknown adapter"):
        net.save_adapter(tmp_path, "other")
    with pytest.raises(ConfigError, match="modules"):
        net.save_adapter(tmp_path, modules="keras")  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_head_before_a_cap_of_scores_is_the_head(tmp_path: Path) -> None:
    attention = nn.MultiHeadAttention(2, causal=True, bias=False)
    row = [
        nn.Embedding(9, 8),
        nn.Residual([nn.RMSNorm(), attention]),
        nn.Dense(9, bias=False),
        nn.SoftCap(30.0),
    ]
    net = loom.Sequential(row, input_shape=4, seed=0)
    net.add_adapter("default", rank=2)
    net.save_adapter(tmp_path / "adapter")
    names = set(loom.open_tensors(tmp_path / "adapter" / "adapter_model.safetensors"))
    assert "base_model.model.lm_head.lora_A.weight" in names
    other = loom.Sequential(row, input_shape=4, seed=0)
    other.load_adapter(tmp_path / "adapter")
    words = np.arange(4)[None]
    np.testing.assert_array_equal(other.predict(words), net.predict(words))


@pytest.mark.parametrize("file", ["hub/cohere", "gguf/command-r.gguf", "hub/helium", "hub/glm4"])
def test_rows_are_in_the_order_of_the_model_that_was_read(file: str, tmp_path: Path) -> None:
    """Some have neighbours of a head turn together, as here; Llama's halves are what others have."""
    net = trained(loom.load(GOLDEN / file).add_adapter(rank=2, targets=["query"]))
    net.save_adapter(tmp_path)
    (layer, own), *_ = (
        (layer, name) for layer in net.layers for name in layer.parameters if name.endswith("default.lora_b")
    )
    with open_tensors(tmp_path / "adapter_model.safetensors") as found:
        theirs = found["base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight"].numpy()
    np.testing.assert_array_equal(theirs, layer[own])
    again = loom.load(GOLDEN / file).load_adapter(tmp_path)
    words = np.arange(3, 9)[None]
    np.testing.assert_array_equal(again.session(6)(words), net.session(6)(words))


@pytest.mark.parametrize(
    ("name", "target"),
    [("phi3", "query"), ("glm4", "gate"), ("phi", "output"), ("gpt2", "query"), ("opt", "key")],
)
def test_what_a_model_of_the_hub_calls_otherwise_has_loom_s_names_alone(
    name: str, target: str, tmp_path: Path
) -> None:
    net = loom.load(GOLDEN / "hub" / name).add_adapter(rank=2, targets=[target])
    with pytest.raises(loom.ConfigError, match='has no name among those of "llama"'):
        net.save_adapter(tmp_path)
    net.save_adapter(tmp_path, modules="loom")


def test_peft_computes_what_loom_computes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    net, tokens = llama(), EXPECTED["tokens"]
    trained(net.add_adapter(rank=4, targets=["query", "output", "up"], rank_stabilized=True))
    net.save_adapter(tmp_path, base="llama")
    model = transformers.AutoModelForCausalLM.from_pretrained(GOLDEN / "hub" / "llama")
    adapted = peft.PeftModel.from_pretrained(model, tmp_path)
    with torch.no_grad():
        logits = adapted(torch.tensor(tokens)).logits.numpy()
    np.testing.assert_allclose(logits, net.predict(tokens), atol=1e-4)
