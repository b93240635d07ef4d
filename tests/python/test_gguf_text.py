"""Language models to GGUF with what came with them: tokenizers, how they chat; folders tensor by tensor."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

import loom
from loom.command_line import main
from text_models import CHAT, SETTINGS, TEXTS, as_gguf, byte_level, decoder, sentence_pieces, write_folder


def made(kind: str) -> Tokenizer:
    return sentence_pieces() if kind == "pieces" else byte_level(kind)


@pytest.mark.parametrize("kind", ["pieces", "gpt-2", "llama-bpe", "qwen2", "smollm"])
def test_a_folder_becomes_a_file_that_reads_and_writes_as_it_did(kind: str, tmp_path: Path) -> None:
    tokenizer = made(kind)
    folder = write_folder(tmp_path / "a", decoder(tokenizer.get_vocab_size()), tokenizer, **SETTINGS)
    assert main(["convert", str(folder), str(tmp_path / "a.gguf")]) == 0
    before, after = loom.text.load(folder), loom.text.load(tmp_path / "a.gguf")
    for text in [*TEXTS, "", " a", "x" * 50, "<|user|>hello<|end|>"]:
        assert after.encode(text) == before.encode(text)
        assert after.decode(after.encode(text)) == before.decode(before.encode(text))
    assert after.vocabulary.end >= {tokenizer.token_to_id("</s>")}
    assert after.vocabulary.template is not None
    assert after.vocabulary.template.sources == {"default": CHAT}
    wanted = before.complete("Once upon", max_tokens=12, temperature=0, ignore_end=True)
    assert after.complete("Once upon", max_tokens=12, temperature=0, ignore_end=True).tokens == wanted.tokens
    # From one file of the kind to the next, and from memory.
    assert main(["convert", str(tmp_path / "a.gguf"), str(tmp_path / "b.gguf"), "--dtype", "q8_0"]) == 0
    loom.text.save_gguf(before, tmp_path / "c.gguf", "q8_0", {"general.name": "c"})
    for name in ("b.gguf", "c.gguf"):
        assert loom.text.load(tmp_path / name).encode(TEXTS[0]) == before.encode(TEXTS[0])


def test_what_gguf_cannot_say_of_a_tokenizer_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = byte_level()
    held = json.loads(tokenizer.to_str())
    held["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "[a-z]+|."
    odd = Tokenizer.from_str(json.dumps(held))
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    for each, told in ((odd, "cuts words by"), (words, "WordLevel")):
        folder = write_folder(tmp_path / "a", decoder(400), each, **SETTINGS)
        assert main(["convert", str(folder), str(tmp_path / "a.gguf")]) != 0
        error = capsys.readouterr().err
        assert told in error
        assert "--no-tokenizer" in error
        assert not (tmp_path / "a.gguf").exists()
    assert main(["convert", str(folder), str(tmp_path / "a.gguf"), "--no-tokenizer"]) == 0
    assert loom.open_tensors(tmp_path / "a.gguf").metadata["tokenizer.ggml.model"] == "no_vocab"


def test_metadata_is_what_others_write(tmp_path: Path) -> None:
    for kind, pre in (("pieces", None), ("llama-bpe", "llama-bpe")):
        tokenizer = made(kind)
        folder = write_folder(tmp_path / kind, decoder(tokenizer.get_vocab_size()), tokenizer, **SETTINGS)
        loom.text.save_gguf(loom.text.load(folder), tmp_path / "net.gguf")
        metadata = loom.open_tensors(tmp_path / "net.gguf").metadata
        for name, value in as_gguf(tokenizer, pre).items():
            assert metadata[name] == value, name


CONVERT = """
import resource, sys
from pathlib import Path
from loom.command_line import main

ending, folders, *options = sys.argv[1:]
main(["convert", f"{folders}/small", "small" + ending, *options, "--no-tokenizer"])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
main(["convert", f"{folders}/large", "large" + ending, *options, "--no-tokenizer"])
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(grown, Path("large" + ending).stat().st_size // 1024)
"""


WORDS = 4096


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model and a large one, to be read."""
    path = tmp_path_factory.mktemp("models")
    tokenizer = byte_level()
    for name, width, blocks in (("small", 32, 1), ("large", 512, 8)):
        write_folder(path / name, decoder(WORDS, width=width, blocks=blocks, steps=16), tokenizer)
    return path


@pytest.mark.parametrize(("ending", "dtype"), [(".gguf", "q4_0"), (".gguf", "float32"), (".loom", "int4")])
def test_conversion_holds_one_tensor_at_a_time(
    ending: str, dtype: str, folders: Path, tmp_path: Path
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CONVERT, ending, str(folders), "--dtype", dtype],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    grown, size = map(int, ran.stdout.split()[-2:])
    largest = 4 * WORDS * 512 // 1024
    # A .loom file is written of the packed network, which is in memory; GGUF is written as it is read.
    # A tensor is there as it is read, and as it is written.
    held = size if ending == ".loom" else 0
    assert grown < held + 3.5 * largest, (grown, size, largest)
