"""Tokenizers and chats from files: GGUF's say what the originals do, folders what transformers reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tokenizers", reason="the extra text is not installed")

import loom
from loom.text import ChatTemplate
from loom.text.gguf_vocabulary import read_metadata
from loom.text.pre_tokenizers import CUTS
from text_models import (
    CHAT,
    SETTINGS,
    TEXTS,
    as_gguf,
    byte_level,
    decoder,
    random_text,
    sentence_pieces,
    write_folder,
)

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "chat_templates.json").read_text(encoding="utf-8")
)


def check_same(found: Any, original: Any) -> None:
    draws = np.random.default_rng(0)
    for text in [*TEXTS, "", " ", "\n", "<s>", *(random_text(draws) for _ in range(150))]:
        for special in (False, True):
            wanted = original.encode(text, add_special_tokens=special).ids
            assert found.encode(text, add_special_tokens=special).ids == wanted, repr(text)
            assert found.decode(wanted) == original.decode(wanted), repr(text)


@pytest.mark.parametrize("cut", sorted({how: name for name, how in CUTS.items()}.values()))
def test_merged_bytes_of_gguf_are_the_original_s(cut: str) -> None:
    original = byte_level(cut)
    metadata = as_gguf(original, cut, add_bos_token=False)
    check_same(read_metadata(metadata).tokenizer, original)


@pytest.mark.parametrize("prefix", [True, False])
def test_pieces_of_gguf_are_the_original_s(prefix: bool) -> None:
    original = sentence_pieces(prefix=prefix)
    more = {} if prefix else {"add_space_prefix": False}
    vocabulary = read_metadata(as_gguf(original, **more))
    check_same(vocabulary.tokenizer, original)
    assert vocabulary.tokenizer.encode("森").tokens[-3:] == ["<0xE6>", "<0xA3>", "<0xAE>"]
    assert vocabulary.special == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def test_how_the_cuts_differ() -> None:
    """On words that tell them apart; the words by the regular expressions of the tokenizers' makers."""
    text = "We'LL 12345 x\u0301y  \n\n/a/b"
    words = {}
    for cut in ("gpt-2", "llama-bpe", "qwen2", "smollm", "tekken", "gpt-4o", "deepseek-v3"):
        pre = byte_level(cut).pre_tokenizer
        words[cut] = [text[start:end] for _, (start, end) in pre.pre_tokenize_str(text)]
    assert words["gpt-2"] == [
        "We",
        "'",
        "LL",
        " 12345",
        " x",
        "\u0301",
        "y",
        "  \n",
        "\n",
        "/",
        "a",
        "/",
        "b",
    ]
    assert words["llama-bpe"] == ["We", "'LL", " ", "123", "45", " x", "\u0301y", "  \n\n", "/a", "/b"]
    assert words["qwen2"] == ["We", "'LL", " ", *"12345", " x", "\u0301y", "  \n\n", "/a", "/b"]
    assert words["smollm"][:9] == ["We", "'", "LL", " ", *"12345"]
    assert words["tekken"][:3] == ["We", "'LL", " "]
    assert words["tekken"][8] == " x\u0301y"
    assert words["gpt-4o"][:4] == ["We'LL", " ", "123", "45"]
    assert words["deepseek-v3"][:4] == ["We", "'LL", " ", "123"]


def test_what_gguf_says_of_begin_and_end() -> None:
    original = byte_level("llama-bpe")
    by_cut = read_metadata(as_gguf(original, "llama-bpe")).tokenizer.encode("a")
    assert by_cut.tokens == ["<s>", "a"]
    said = as_gguf(original, "llama-bpe", add_bos_token=False, add_eos_token=True, eot_token_id=5)
    vocabulary = read_metadata(said | {"tokenizer.chat_template": CHAT})
    assert vocabulary.tokenizer.encode("a").tokens == ["a", "</s>"]
    # <|end|> is the end of a turn in any case, here by its number and by its text.
    assert vocabulary.end == {1, 5}
    assert read_metadata(as_gguf(original, "llama-bpe")).end == {1, 5}
    assert vocabulary.template is not None
    assert vocabulary.template.render([{"role": "user", "content": "a"}]) == "<|user|>a<|end|><|assistant|>"


def test_a_text_that_stands_twice_counts_once() -> None:
    metadata = as_gguf(byte_level(), "gpt-2")
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "a"]
    metadata["tokenizer.ggml.token_type"] = [*metadata["tokenizer.ggml.token_type"], 1]
    tokenizer = read_metadata(metadata).tokenizer
    assert tokenizer.encode("a").ids == byte_level().encode("a").ids
    assert tokenizer.get_vocab_size() == 401


def test_tokens_of_phi_3_take_the_spaces_behind_them() -> None:
    metadata = as_gguf(sentence_pieces()) | {"general.architecture": "phi3"}
    phi, other = (read_metadata(held).tokenizer for held in (metadata, as_gguf(sentence_pieces())))
    wanted = ["<s>", "<|user|>", "<s>", "▁", "<0x0A>"]
    assert phi.encode("<|user|>\n <s>\n").ids == [phi.token_to_id(token) for token in wanted]
    assert other.encode("<|user|>\n").ids[-1] == other.token_to_id("<0x0A>")


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"model": "no_vocab"}, loom.ConfigError, "no vocabulary"),
    ({"model": "t5"}, loom.ConfigError, 'kind "t5".*read are: llama, gpt2'),
    ({"pre": "own"}, loom.ConfigError, 'cut as by "own".*known: default'),
    ({"pre": None}, loom.ConfigError, "does not say how its text is cut"),
    ({"tokens": []}, loom.SerializationError, "no tokens"),
    ({"tokens": 3}, loom.SerializationError, "tokens is no list"),
    ({"tokens": [1, 2]}, loom.SerializationError, "something else than str"),
    ({"token_type": [1]}, loom.SerializationError, "400 tokens, but 1 types"),
    ({"merges": ["ab"]}, loom.SerializationError, "'ab', which is no pair"),
    ({"merges": ["a \u4e00"]}, loom.SerializationError, "which are no tokens"),
]


@pytest.mark.parametrize(("change", "error", "reason"), WRONG, ids=[reason for *_, reason in WRONG])
def test_metadata_that_makes_no_sense(change: dict[str, Any], error: type[Exception], reason: str) -> None:
    metadata = as_gguf(byte_level(), "gpt-2") | {
        f"tokenizer.ggml.{key}": value for key, value in change.items()
    }
    with pytest.raises(error, match=reason):
        read_metadata(metadata)


def test_pieces_without_scores() -> None:
    metadata = as_gguf(sentence_pieces(), scores=[0.0])
    with pytest.raises(loom.SerializationError, match="450 tokens, but 1 scores"):
        read_metadata(metadata)


@pytest.mark.parametrize("name", GOLDEN["templates"])
def test_chats_are_written_as_by_transformers(name: str) -> None:
    template = ChatTemplate(GOLDEN["templates"][name], GOLDEN["special"])
    for chat, wanted in zip(GOLDEN["chats"], GOLDEN["written"][name], strict=True):
        asked = {key: chat[key] for key in ("answer", "tools", "documents") if key in chat}
        if "refused" in wanted:
            with pytest.raises(loom.ConfigError) as raised:
                template.render(chat["messages"], **asked, **chat.get("values", {}))
            assert wanted["refused"] in str(raised.value)
        else:
            assert template.render(chat["messages"], **asked, **chat.get("values", {})) == wanted["text"]


def test_golden_chats_are_of_ten_families_and_more() -> None:
    written = [text for chats in GOLDEN["written"].values() for text in chats]
    assert len(GOLDEN["written"]) > 10
    assert sum("text" in entry for entry in written) > 75


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{% set x = messages.append({}) %}",
        "{{ messages[0].update(role='system') }}",
        "{{ messages.nothing.more }}",
        "{{ 1 / 0 }}",
        "{{ range(10 ** 9) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 'a' * 10 ** 12 }}",
        "{{ 10 ** 12 * [1] }}",
        "{{ 3 ** (10 ** 10) }}",
        "{{ '%999999999999d' % 1 }}",
    ],
)
def test_templates_are_in_a_sandbox(source: str) -> None:
    with pytest.raises(loom.ConfigError, match="chat template refuses"):
        ChatTemplate(source).render([{"role": "user", "content": "a"}])


def test_templates_that_are_none_and_chats_that_are_none() -> None:
    with pytest.raises(loom.SerializationError, match="line 2"):
        ChatTemplate("a\n{% if %}")
    with pytest.raises(loom.SerializationError, match="nested too deep"):
        ChatTemplate("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}")
    with pytest.raises(loom.ConfigError, match="messages are a list"):
        ChatTemplate("a").render("Hello")  # type: ignore[arg-type]
    assert (
        ChatTemplate("{{ '-' * 3 + 'a' * messages|length }}{{ 2 * 3 }}{{ 2 ** 3 }}").render([{}]) == "---a68"
    )
    several = ChatTemplate({"default": "plain", "tool_use": "tools"})
    assert several.render([]) == "plain"
    assert several.render([], tools=[{}]) == "tools"
    with pytest.raises(loom.ConfigError, match='no chat template "default"'):
        ChatTemplate({"tool_use": "tools"}).render([])


def test_what_a_folder_says(tmp_path: Path) -> None:
    net, tokenizer = decoder(400), byte_level()
    folder = write_folder(tmp_path / "a", net, tokenizer, **SETTINGS)
    model = loom.text.load(folder)
    assert model.vocabulary.end == {1, 5}
    assert model.vocabulary.special == {"bos_token": "<s>", "eos_token": "</s>"}
    assert (model.capacity, model.generates) == (64, True)
    x = np.arange(64)[None]
    np.testing.assert_array_equal(model.network.predict(x), net.predict(x))
    assert loom.text.is_language_model(folder)
    assert model.chat_text([{"role": "user", "content": "a"}]) == "<|user|>a<|end|><|assistant|>"
    # A file of its own counts before the settings, and other files say other things.
    (folder / "chat_template.jinja").write_text("of its own")
    (folder / "generation_config.json").write_text('{"temperature": 0.5, "top_k": 20, "typical_p": 0.9}')
    packed = loom.text.load(folder, "int8", capacity=10)
    assert packed.chat_text([]) == "of its own"
    assert packed.vocabulary.end == {1}
    assert packed.vocabulary.sampling == {"temperature": 0.5, "top_k": 20, "typical": 0.9}
    # Without draws scores are still changed, as by transformers.
    (folder / "generation_config.json").write_text(
        '{"do_sample": false, "temperature": 0.5, "repetition_penalty": 1.1}'
    )
    assert loom.text.load(folder).vocabulary.sampling == {"temperature": 0.0, "repetition_penalty": 1.1}
    assert packed.capacity == 10
    assert packed.network.layers[0].dtype == "int8"


def test_activations_of_a_loaded_model_are_quantised_where_asked(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "a", decoder(400), byte_level())
    x = np.arange(64)[None]
    plain = loom.text.load(folder, "q8_0").network
    for dtype in ("q8_0", "int8"):
        network = loom.text.load(folder, dtype, activations="int8").network
        y = network.predict(x)
        # The plain pass and the cached one agree to the bit here, too.
        session = network.session(64)
        steps = [session(x[:, start : start + 1])[:, 0] for start in range(20)]
        np.testing.assert_array_equal(np.stack(steps, axis=1), y[:, :20])
        assert not np.array_equal(y, plain.predict(x))
        assert np.abs(y - plain.predict(x)).max() < 0.2 * np.abs(y).max()
    with pytest.raises(loom.DTypeError, match="packed weights of integers"):
        loom.text.load(folder, activations="int8")
    with pytest.raises(loom.DTypeError, match='"int8", or left in float'):
        loom.text.load(folder, "q8_0", activations="int4")


def test_templates_in_other_places(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "a", decoder(400), byte_level())
    assert loom.text.load(folder).vocabulary.template is None
    listed = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": listed}))
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "rag.jinja").write_text("c")
    found = loom.text.load(folder).vocabulary.template
    assert found is not None
    assert found.sources == {"default": "a", "tool_use": "b", "rag": "c"}
    (folder / "tokenizer_config.json").write_text('{"chat_template": [1]}')
    with pytest.raises(loom.SerializationError, match="no list of names"):
        loom.text.load(folder)
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "chat_template.json").write_text('{"chat_template": "d"}')
    again = loom.text.load(folder).vocabulary.template
    assert again is not None
    assert again.sources == {"default": "d", "rag": "c"}


def test_folders_that_are_damaged(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "a", decoder(400), byte_level())
    (folder / "generation_config.json").write_text("[1")
    with pytest.raises(loom.SerializationError, match=r"generation_config\.json is not JSON"):
        loom.text.load(folder)
    (folder / "generation_config.json").write_text("[1]")
    with pytest.raises(loom.SerializationError, match="holds no object"):
        loom.text.load(folder)
    for wrong in (
        '{"temperature": -1}',
        '{"top_k": 1e999}',
        '{"min_p": NaN}',
        '{"do_sample": false, "top_k": -1}',
    ):
        (folder / "generation_config.json").write_text(wrong)
        with pytest.raises(loom.SerializationError, match=r"generation_config\.json recommends what is none"):
            loom.text.load(folder)
    (folder / "generation_config.json").write_text('{"top_p": 0.0, "temperature": 2.0}')
    narrow = loom.text.load(folder)
    assert (
        narrow.complete("Once", max_tokens=5).text
        == narrow.complete("Once", max_tokens=5, temperature=0).text
    )
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(loom.SerializationError, match="is no tokenizer"):
        loom.text.load(folder)
    (folder / "tokenizer.json").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    )
    with pytest.raises(loom.SerializationError, match="Git LFS"):
        loom.text.load(folder)
    (folder / "tokenizer.json").rename(folder / "tokenizer.model")
    with pytest.raises(loom.FileError, match=r"only tokenizer\.model"):
        loom.text.load(folder)
    assert not loom.text.is_language_model(folder)
    decoder(400).save(tmp_path / "net.loom")
    with pytest.raises(loom.ConfigError, match=r"a file of loom's; loom\.text\.load reads"):
        loom.text.load(tmp_path / "net.loom")
    assert not loom.text.is_language_model(tmp_path / "net.loom")


@pytest.mark.parametrize("kind", ["pieces", "bytes"])
def test_a_gguf_file_and_its_folder_say_the_same(kind: str, tmp_path: Path) -> None:
    tokenizer = sentence_pieces() if kind == "pieces" else byte_level("llama-bpe")
    metadata = as_gguf(tokenizer, None if kind == "pieces" else "llama-bpe", add_bos_token=kind == "pieces")
    net = decoder(tokenizer.get_vocab_size())
    folder = write_folder(tmp_path / "a", net, tokenizer, **SETTINGS)
    loom.save_gguf(net, tmp_path / "a.gguf", metadata=metadata | {"tokenizer.chat_template": CHAT})
    assert loom.text.is_language_model(tmp_path / "a.gguf")
    of_folder, of_file = loom.text.load(folder), loom.text.load(tmp_path / "a.gguf")
    for text in TEXTS:
        assert of_file.encode(text) == of_folder.encode(text)
    wanted = of_folder.complete("Once upon", max_tokens=12, temperature=0, ignore_end=True)
    found = of_file.complete("Once upon", max_tokens=12, temperature=0, ignore_end=True)
    assert (found.tokens, found.text) == (wanted.tokens, wanted.text)
    texts, vectors = TEXTS[:2], of_folder.embed(TEXTS[:2])
    np.testing.assert_allclose(of_file.embed(texts), vectors, rtol=1e-5, atol=1e-6)
    for path in (folder, tmp_path / "a.gguf"):
        packed = loom.text.load(path, "int8", capacity=60)
        assert packed.network.layers[-1].dtype == "int8"
        assert packed.network.layers[-1].weights.dropped
        assert len(packed.complete("Once", max_tokens=5, ignore_end=True).tokens) == 5
        # Not far from those of all bits.
        assert np.corrcoef(packed.embed(texts).ravel(), vectors.ravel())[0, 1] > 0.99
        kept = loom.text.load(path, "int8", masters=True)
        assert not kept.network.layers[-1].weights.dropped
        assert loom.text.load(path, "float32").complete("Once", max_tokens=5, seed=1).finish
    loom.save_gguf(net, tmp_path / "b.gguf", "q8_0", metadata)
    mapped = loom.text.load(tmp_path / "b.gguf")
    assert mapped.network.layers[-1].dtype == "q8_0"
    assert np.corrcoef(mapped.embed(texts).ravel(), vectors.ravel())[0, 1] > 0.99
