"""Examples of text: a model that learns, is packed and chats; lines that are found by what they say."""

from __future__ import annotations

import importlib.util
import io
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("tokenizers", reason="the extra text is not installed")

import loom
from loom.command_line import main
from text_models import TEXTS

ROOT = Path(__file__).parents[2]


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_model_that_learns_is_packed_and_chats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, output = tmp_path / "text.txt", tmp_path / "model.gguf"
    text.write_text("\n".join(TEXTS[:3] * 20), encoding="utf-8")
    module = example("byte_chat")
    monkeypatch.setattr(module, "BLOCKS", 1)
    monkeypatch.setattr(module, "WIDTH", 64)
    monkeypatch.setattr(
        sys, "argv", ["byte_chat", str(text), "--steps", "40", "--output", str(output), "--seed", "1"]
    )
    module.main()
    told = capsys.readouterr().out
    perplexity = float(told.split("in four bits: ")[1].split("\n")[0])
    # Of 256 bytes, of which none is learned yet, it would waver between all.
    assert 1 < perplexity < 120
    # Four bits and their scales, not the 32 of training.
    with loom.open_tensors(output) as file:
        weights = sum(int(np.prod(entry.shape)) for entry in file.values())
        assert {entry.dtype for entry in file.values() if len(entry.shape) == 2} == {"q4_0"}
    assert output.stat().st_size < weights
    monkeypatch.setattr(sys, "stdin", io.StringIO("Once upon a time\n/exit\n"))
    assert main(["chat", str(output), "--max-tokens", "20", "--temperature", "0"]) == 0
    answer = capsys.readouterr().out.splitlines()[1]
    model = loom.text.load(output)
    said = [{"role": "user", "content": "Once upon a time"}]
    assert answer == model.chat(said, max_tokens=20, temperature=0).finish().text.split("\n")[0]
    # A token for each byte, whatever is said.
    assert model.encode("é森") == list("é森".encode())


def test_lines_are_found_by_what_they_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    folder = tmp_path / "sentences"
    shutil.copytree(ROOT / "tests" / "golden" / "hub" / "sentences", folder)
    letters = {"[PAD]": 0, "[UNK]": 1, **{chr(97 + place): 2 + place for place in range(26)}, " ": 28}
    tokenizer = Tokenizer(models.WordLevel(letters, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"pad_token": "[PAD]"}), encoding="utf-8")
    lines = ["a cat", "a donkey", "mice and flour, and a text that is cut", "grain"]
    (tmp_path / "lines.txt").write_text("\n\n".join(lines), encoding="utf-8")
    words = ["retrieval", str(folder), str(tmp_path / "lines.txt"), "a cat", "--most", "4"]
    monkeypatch.setattr(sys, "argv", words)
    example("retrieval").main()
    told = [line.split("  ", 1) for line in capsys.readouterr().out.splitlines()]
    # By hand.
    net = loom.models.from_hub(folder)
    x = np.zeros((4, *net.input_shape), np.int64)
    for row, line in zip(x, lines, strict=True):
        ids = [letters.get(each, 1) for each in line][: len(row)]
        row[: len(ids)] = ids
    vectors = net.predict(x).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors @ vectors[0]
    order = np.argsort(-cosines)
    assert [line for _, line in told] == [lines[place] for place in order]
    assert told[0][1] == "a cat"
    np.testing.assert_allclose([float(cosine) for cosine, _ in told], cosines[order], atol=2e-3)
