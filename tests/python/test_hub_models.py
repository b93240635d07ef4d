"""Folders of the Hub become networks that compute what their makers do; what does not fit is refused.

The golden folders are of random weights; tests/golden/hub/make.py has made them, with transformers and timm.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom.models import from_hub
from loom.tensors import open_tensors, write_safetensors

GOLDEN = Path(__file__).parents[1] / "golden" / "hub"
FOLDERS = sorted(path.parent.name for path in GOLDEN.glob("*/expected.npz"))


def opened(name: str, folder: Path | None = None, part: str | None = None, **options: Any) -> loom.Network:
    x = expected(name, part)[0]
    if x.ndim == 2:
        options.setdefault("length", x.shape[1])
    else:
        options.setdefault("image_size", x.shape[-1])
    return from_hub(folder or GOLDEN / name, part=part, **options)


def expected(name: str, part: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    prefix = f"{part}." if part else ""
    with np.load(GOLDEN / name / "expected.npz") as arrays:
        return arrays[f"{prefix}input"], arrays[f"{prefix}output"]


def parts(name: str) -> list[str | None]:
    return ["vision", "text"] if name == "clip" else [None]


def is_decoder(name: str) -> bool:
    config = GOLDEN / name / "config.json"
    architectures = json.loads(config.read_text()).get("architectures", [""]) if config.exists() else [""]
    return architectures[0].endswith(("ForCausalLM", "LMHeadModel"))


@pytest.mark.parametrize(("name", "part"), [(name, part) for name in FOLDERS for part in parts(name)])
def test_outputs_are_those_of_the_reference(name: str, part: str | None) -> None:
    x, y = expected(name, part)
    found = opened(name, part=part).predict(x)
    if y.ndim == 3 and x.ndim == 2 and not is_decoder(name):
        # The reference's steps of padding look at others; nobody reads them.
        config = json.loads((GOLDEN / name / "config.json").read_text())
        keep = x != config.get("pad_token_id", -1)
        found, y = found[keep], y[keep]
    np.testing.assert_allclose(found, y, rtol=0, atol=1e-4 * max(1.0, np.abs(y).max()))


@pytest.mark.parametrize("name", [name for name in FOLDERS if is_decoder(name)])
def test_decoding_with_a_cache_says_the_same(name: str) -> None:
    x, y = expected(name)
    session = opened(name).session(capacity=x.shape[1], rows=len(x))
    pieces = [session(x[:, start:end]) for start, end in ((0, 4), (4, 5), (5, 6), (6, x.shape[1]))]
    found = np.concatenate(pieces, axis=1)
    np.testing.assert_array_equal(found.argmax(-1), y.argmax(-1))


def changed(tmp_path: Path, name: str, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Path:
    """Writes a golden folder anew, with other settings or tensors."""
    folder = tmp_path / name
    shutil.copytree(GOLDEN / name, folder)
    config = json.loads((folder / "config.json").read_text())
    tensors = {key: entry.numpy().copy() for key, entry in open_tensors(folder / "model.safetensors").items()}
    change(config, tensors)
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", tensors)
    return folder


REFUSED: list[tuple[str, Callable[[dict[str, Any], dict[str, Any]], Any], type[Exception], str]] = [
    ("llama", lambda c, t: c.update(model_type="lama"), loom.ConfigError, 'did you mean "llama"'),
    ("llama", lambda c, t: c.pop("model_type"), loom.SerializationError, "model_type"),
    ("llama", lambda c, t: c.update(hidden_act="prelu"), loom.ConfigError, "hidden_act.*supported: .*silu"),
    ("llama", lambda c, t: c.pop("hidden_size"), loom.ConfigError, 'no "hidden_size"'),
    ("llama", lambda c, t: c.update(hidden_size=-3), loom.ConfigError, "hidden_size"),
    ("llama", lambda c, t: c.update(num_hidden_layers=10**9), loom.ConfigError, "num_hidden_layers"),
    ("llama", lambda c, t: c.update(rope_scaling={"type": "own"}), loom.ConfigError, "rope_type"),
    ("llama", lambda c, t: c.update(rope_scaling={"type": [1]}), loom.ConfigError, "rope_type"),
    (
        "llama",
        lambda c, t: c.update(architectures=["LlamaForQuestionAnswering"]),
        loom.ConfigError,
        "QuestionAnswering",
    ),
    ("llama", lambda c, t: c.update(intermediate_size=25), loom.ShapeError, "gate_proj"),
    ("llama", lambda c, t: c.update(num_hidden_layers=3), loom.SerializationError, r"lacks layers\.2"),
    (
        "llama",
        lambda c, t: c.update(num_hidden_layers=1),
        loom.SerializationError,
        r"nothing uses: layers\.1",
    ),
    ("llama", lambda c, t: t.pop("model.norm.weight"), loom.SerializationError, r"lacks norm\.weight"),
    (
        "llama",
        lambda c, t: t.update({"x.lora": np.ones(2)}),
        loom.SerializationError,
        r"nothing uses: x\.lora",
    ),
    ("llama", lambda c, t: c.update(vocab_size=10**7), loom.ShapeError, "embed_tokens.*10000000"),
    ("llama", lambda c, t: c.update(head_dim=10**8), loom.ShapeError, "q_proj"),
    ("llama", lambda c, t: c.update(architectures=7), loom.ConfigError, "architectures"),
    (
        "llama",
        lambda c, t: c.update(quantization_config={"bits": 4}),
        loom.ConfigError,
        "quantization_config",
    ),
    ("phi3", lambda c, t: c.update(num_attention_heads=10**8), loom.LoomError, "heads|shape"),
    ("gpt2", lambda c, t: c.update(scale_attn_by_inverse_layer_idx=True), loom.ConfigError, "inverse_layer"),
    ("mistral", lambda c, t: c.update(layer_types=["odd", "odd"]), loom.ConfigError, "layer_types.*odd"),
    ("bert", lambda c, t: c.update(position_embedding_type="relative_key"), loom.ConfigError, "relative_key"),
    (
        "bert",
        lambda c, t: c.update(architectures=["BertForPreTraining"]),
        loom.ConfigError,
        "BertForPreTraining",
    ),
    ("resnet", lambda c, t: c.update(hidden_act="gelu"), loom.ConfigError, "hidden_act.*supported: 'relu'"),
    (
        "llama",
        lambda c, t: t.update({"model.layers.0.self_attn.q_proj.weight": np.zeros((32, 0), np.float32)}),
        loom.ShapeError,
        r"q_proj.weight has shape \(32, 0\)",
    ),
    # No memory is asked for before the tensors are looked at.
    (
        "bert",
        lambda c, t: c.update(max_position_embeddings=2**31 - 2),
        loom.ShapeError,
        "do not fit",
    ),
    ("gemma2", lambda c, t: c.update(query_pre_attn_scalar=0.0), loom.ConfigError, "query_pre_attn_scalar"),
    ("gemma2", lambda c, t: c.update(query_pre_attn_scalar=-4.0), loom.ConfigError, "query_pre_attn_scalar"),
    ("olmo", lambda c, t: c.update(clip_qkv=8.0), loom.ConfigError, "clip_qkv"),
    ("olmoe", lambda c, t: c.update(clip_qkv=8.0), loom.ConfigError, "clip_qkv"),
    ("cohere", lambda c, t: c.update(use_qk_norm=True), loom.ConfigError, "use_qk_norm"),
    ("cohere2", lambda c, t: c.pop("sliding_window"), loom.ConfigError, "sliding_window"),
    ("stablelm", lambda c, t: c.update(qk_layernorm=True), loom.ConfigError, "qk_layernorm"),
    ("phi", lambda c, t: c.update(qk_layernorm=True), loom.ConfigError, "qk_layernorm"),
    ("phi", lambda c, t: c.update(tie_word_embeddings=True), loom.ConfigError, "tie_word_embeddings"),
    ("nemotron", lambda c, t: c.update(rope_scaling={"type": "linear"}), loom.ConfigError, "rope_scaling"),
    ("granite", lambda c, t: c.update(logits_scaling=0.0), loom.ConfigError, "logits_scaling"),
    ("granite", lambda c, t: c.update(attention_multiplier=-1.0), loom.ConfigError, "attention_multiplier"),
    (
        "granitemoehybrid",
        lambda c, t: c.update(layer_types=["attention", "mamba"]),
        loom.ConfigError,
        "layer_types.*mamba.*supported: 'attention'",
    ),
    ("granitemoehybrid", lambda c, t: c.pop("layer_types"), loom.ConfigError, "mamba"),
    ("falcon", lambda c, t: c.update(alibi=True), loom.ConfigError, "alibi"),
    ("falcon", lambda c, t: c.update(parallel_attn=False), loom.ConfigError, "parallel_attn"),
    (
        "falcon",
        lambda c, t: c.update(new_decoder_architecture=False, num_ln_in_parallel_attn=2),
        loom.ConfigError,
        "num_ln_in_parallel_attn",
    ),
    (
        "bloom",
        lambda c, t: c.update(apply_residual_connection_post_layernorm=True),
        loom.ConfigError,
        "apply_residual_connection_post_layernorm",
    ),
    (
        "gpt_neo",
        lambda c, t: (c.pop("attention_layers", None), c.update(attention_types=[[["odd"], 2]])),
        loom.ConfigError,
        "attention_types.*odd",
    ),
    (
        "gpt_neo",
        lambda c, t: (c.pop("attention_layers", None), c.update(attention_types=[[["local"], 1]])),
        loom.ConfigError,
        "attention_types.*2 blocks",
    ),
    (
        "gpt_neo",
        lambda c, t: (c.pop("attention_layers", None), c.update(attention_types=["local", "local"])),
        loom.ConfigError,
        "attention_types.*how often",
    ),
    ("gptj", lambda c, t: c.update(rotary_dim=3), loom.ConfigError, "even"),
    ("exaone4", lambda c, t: c.update(layer_types=["odd", "odd"]), loom.ConfigError, "layer_types.*odd"),
    (
        "mpnet",
        lambda c, t: c.update(relative_attention_num_buckets=16),
        loom.ConfigError,
        "relative_attention_num_buckets",
    ),
    ("mpnet", lambda c, t: c.update(pad_token_id=0), loom.ConfigError, "pad_token_id"),
    ("modernbert", lambda c, t: c.update(rope_scaling={"type": "yarn"}), loom.ConfigError, "rope_scaling"),
    ("modernbert", lambda c, t: c.update(layer_types=["odd"] * 3), loom.ConfigError, "layer_types.*odd"),
    (
        "modernbert",
        lambda c, t: c.update(architectures=["ModernBertForMultipleChoice"]),
        loom.ConfigError,
        "MultipleChoice",
    ),
    ("electra", lambda c, t: c.update(embedding_size=7), loom.ShapeError, "word_embeddings"),
    (
        "bert",
        lambda c, t: c.update(tie_word_embeddings=False),
        loom.SerializationError,
        r"lacks cls\.predictions\.decoder",
    ),
    (
        "classifiers",
        lambda c, t: c.update(architectures=["Qwen3ForQuestionAnswering"]),
        loom.ConfigError,
        "QuestionAnswering.*classifies",
    ),
    ("classifiers", lambda c, t: c.update(id2label={"0": "a"}), loom.ShapeError, "score"),
    ("classifiers", lambda c, t: c.update(id2label=7), loom.ConfigError, "id2label"),
]


def test_experts_are_counted_by_either_name(tmp_path: Path) -> None:
    """transformers 5 writes those of Qwen 3 as "num_local_experts"."""
    folder = tmp_path / "model"
    shutil.copytree(GOLDEN / "qwen3_moe", folder)
    config = json.loads((folder / "config.json").read_text())
    config["num_local_experts"] = config.pop("num_experts")
    (folder / "config.json").write_text(json.dumps(config))
    x = expected("qwen3_moe")[0]
    np.testing.assert_array_equal(opened("qwen3_moe", folder).predict(x), opened("qwen3_moe").predict(x))


def test_words_may_be_guessed_with_a_table_of_their_own(tmp_path: Path) -> None:
    def untie(bias: float | None) -> Callable[[dict[str, Any], dict[str, Any]], None]:
        def change(config: dict[str, Any], tensors: dict[str, Any]) -> None:
            config["tie_word_embeddings"] = False
            at = "cls.predictions.decoder"
            tensors[f"{at}.weight"] = 2 * tensors["bert.embeddings.word_embeddings.weight"]
            if bias is not None:
                # transformers 5 writes both, and reads this one.
                tensors[f"{at}.bias"] = np.full_like(tensors["cls.predictions.bias"], bias)

        return change

    x = expected("bert")[0]
    scores = opened("bert").predict(x)
    own = open_tensors(GOLDEN / "bert" / "model.safetensors")["cls.predictions.bias"].numpy()
    for bias, at in ((None, own), (3.0, 3.0)):
        found = opened("bert", changed(tmp_path / str(bias), "bert", untie(bias))).predict(x)
        np.testing.assert_allclose(found[0], (2 * (scores - own) + at)[0], atol=1e-4)


def test_blocks_are_told_by_kinds_as_well(tmp_path: Path) -> None:
    """transformers 5 writes kinds of blocks and settings of places for each, and others of Granite."""
    kinds = ["full_attention", "sliding_attention", "sliding_attention"]

    def by_kinds(config: dict[str, Any], tensors: dict[str, Any]) -> None:
        del config["global_attn_every_n_layers"]
        places = [config.pop(f"{which}_rope_theta") for which in ("global", "local")]
        config["layer_types"] = kinds
        config["rope_parameters"] = {
            kind: {"rope_type": "default", "rope_theta": base}
            for kind, base in zip(kinds, places, strict=False)
        }

    def renamed(config: dict[str, Any], tensors: dict[str, Any]) -> None:
        config["layer_types"] = ["full_attention" for _ in config["layer_types"]]

    for name, change in (("modernbert", by_kinds), ("granitemoehybrid", renamed)):
        x = expected(name)[0]
        found = opened(name, changed(tmp_path, name, change)).predict(x)
        np.testing.assert_array_equal(found, opened(name).predict(x))


@pytest.mark.parametrize(("name", "change", "error", "message"), REFUSED)
def test_what_does_not_fit_is_refused_by_name(tmp_path: Path, name, change, error, message) -> None:
    with pytest.raises(error, match=message):
        opened(name, changed(tmp_path, name, change))


def test_texts_that_end_in_the_padding_token_are_read_as_long_as_they_are(tmp_path: Path) -> None:
    """Qwen3-Embedding's last token, whose step makes the vector, is its padding token, and not left out."""

    def rename(config: dict[str, Any], tensors: dict[str, Any]) -> None:
        config |= {"architectures": ["Qwen3ForCausalLM"], "pad_token_id": config["eos_token_id"]}

    folder = changed(tmp_path, "sentences_decoder", rename)
    x, y = expected("sentences_decoder")
    found = opened("sentences_decoder", folder).predict(x)
    np.testing.assert_allclose(found, y, atol=1e-5)
    x[:, -1] = json.loads((folder / "config.json").read_text())["eos_token_id"]
    ended = opened("sentences_decoder", folder).predict(x)
    np.testing.assert_array_equal(ended, opened("sentences_decoder").predict(x))
    assert np.abs(ended - found).max() > 1e-3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "sentence_transformers.models.WordWeights"}, "WordWeights.*Dense"),
        ({"path": "../2_Dense"}, "path.*folder inside"),
        ({"path": ".."}, "path.*folder inside"),
        ({"path": 7}, "path.*folder inside"),
    ],
)
def test_modules_are_dense_layers_of_folders_inside(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = changed(tmp_path, "sentences_gemma", lambda config, tensors: None)
    modules = json.loads((folder / "modules.json").read_text())
    modules[2] |= change
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(loom.ConfigError, match=message):
        opened("sentences_gemma", folder)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"activation_function": "torch.nn.modules.activation.Hardshrink"}, loom.ConfigError, "Hardshrink"),
        ({"out_features": 21}, loom.ShapeError, r"2_Dense\.linear"),
        ({"bias": True}, loom.SerializationError, r"lacks 2_Dense\.linear\.bias"),
    ],
)
def test_a_dense_module_is_what_its_settings_say(
    change: dict[str, Any], error: type[Exception], message: str, tmp_path: Path
) -> None:
    folder = changed(tmp_path, "sentences_gemma", lambda config, tensors: None)
    path = folder / "2_Dense" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(error, match=message):
        opened("sentences_gemma", folder)


@pytest.mark.parametrize("share", [1e308, -1.0])
def test_the_share_that_turns_is_a_share(share: float, tmp_path: Path) -> None:
    def change(config: dict[str, Any], _: dict[str, Any]) -> None:
        config["partial_rotary_factor"] = share

    with pytest.raises(loom.ConfigError, match="between 0 and 1"):
        from_hub(changed(tmp_path, "phi3", change))


def test_a_folder_needs_settings_and_tensors(tmp_path: Path) -> None:
    with pytest.raises(loom.FileError, match="not a folder"):
        from_hub(tmp_path / "nothing")
    with pytest.raises(loom.FileError, match="no tensors"):
        from_hub(tmp_path)
    shutil.copy(GOLDEN / "llama" / "model.safetensors", tmp_path)
    with pytest.raises(loom.FileError, match=r"no config\.json"):
        from_hub(tmp_path)
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(loom.SerializationError, match="not JSON"):
        from_hub(tmp_path)


def shards(folder: Path, index: dict[str, str]) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def test_shards_are_found_by_their_index(tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    shutil.copytree(GOLDEN / "llama", folder)
    tensors = {key: entry.numpy().copy() for key, entry in open_tensors(folder / "model.safetensors").items()}
    names = sorted(tensors)
    halves = {f"{half}.safetensors": names[half::2] for half in (0, 1)}
    for file, half in halves.items():
        write_safetensors(folder / file, {name: tensors[name] for name in half})
    shards(folder, {name: file for file, half in halves.items() for name in half})
    x, y = expected("llama")
    np.testing.assert_allclose(opened("llama", folder).predict(x), y, atol=1e-4)
    (folder / "1.safetensors").unlink()
    with pytest.raises(loom.FileError, match=r"no 1\.safetensors"):
        opened("llama", folder)


def test_an_index_leads_nowhere_else(tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    shutil.copytree(GOLDEN / "llama", folder)
    shards(folder, {"norm.weight": "../llama.safetensors"})
    with pytest.raises(loom.SerializationError, match="outside"):
        opened("llama", folder)


def test_labels_and_the_folder_stay_with_the_network() -> None:
    net = opened("vit")
    assert net.card.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert net.card.metadata["hub"] == {"folder": str(GOLDEN / "vit"), "model_type": "vit"}
    assert opened("llama").card.labels is None


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-4), ("bfloat16", 0.2), ("int8", 0.2)])
def test_weights_are_read_into_a_numeric_type(dtype: str, tolerance: float) -> None:
    x, y = expected("llama")
    net = opened("llama", dtype=dtype)
    np.testing.assert_allclose(net.predict(x), y, atol=tolerance * max(1.0, np.abs(y).max()))


@pytest.mark.parametrize("dtype", ["int77", 8])
def test_an_unknown_type_is_refused(dtype: Any) -> None:
    with pytest.raises(loom.DTypeError):
        opened("llama", dtype=dtype)


def test_lengths_and_sizes_beyond_the_model_are_refused() -> None:
    with pytest.raises(loom.ConfigError, match="length"):
        from_hub(GOLDEN / "gpt2", length=33)
    with pytest.raises(loom.ConfigError, match="image_size"):
        from_hub(GOLDEN / "vit", image_size=16)
    with pytest.raises(loom.ConfigError, match="length"):
        from_hub(GOLDEN / "vit", length=3)
    with pytest.raises(loom.ConfigError, match="part"):
        from_hub(GOLDEN / "vit", part="text")
    with pytest.raises(loom.ConfigError, match=r"part.*'text', 'vision'"):
        from_hub(GOLDEN / "clip")


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_half_precision_is_read_as_it_is(tmp_path: Path, name: str) -> None:
    """What is computed of tensors is computed in the network's precision, not in theirs."""

    def halve(config: dict[str, Any], tensors: dict[str, Any]) -> None:
        tensors |= {key: values.astype(np.float16) for key, values in tensors.items()}

    def round_(config: dict[str, Any], tensors: dict[str, Any]) -> None:
        tensors |= {key: values.astype(np.float16).astype(np.float32) for key, values in tensors.items()}

    halved, rounded = changed(tmp_path / "a", name, halve), changed(tmp_path / "b", name, round_)
    x, y = expected(name)
    found = opened(name, halved).predict(x)
    np.testing.assert_array_equal(found, opened(name, rounded).predict(x))
    np.testing.assert_allclose(found, y, atol=0.05 * max(1.0, np.abs(y).max()))


def test_tied_and_old_names_are_known(tmp_path: Path) -> None:
    """A tied head may stand in the file once more; norms were once called gamma and beta."""

    def tie(config: dict[str, Any], tensors: dict[str, Any]) -> None:
        config["tie_word_embeddings"] = True

    net = opened("llama", changed(tmp_path, "llama", tie))
    assert net.config.cells[0].layers[-1] == loom.nn.TiedHead(31, tied_to=(0, 0, 0, 0))

    def rename(config: dict[str, Any], tensors: dict[str, Any]) -> None:
        for name in [name for name in tensors if "LayerNorm" in name]:
            old = name.replace(".weight", ".gamma").replace(".bias", ".beta")
            tensors[old] = tensors.pop(name)

    x, y = expected("bert")
    found = opened("bert", changed(tmp_path, "bert", rename)).predict(x)
    np.testing.assert_allclose(found[0], y[0], atol=1e-4 * max(1.0, np.abs(y).max()))
