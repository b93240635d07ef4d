"""`loom generate` and `loom chat`, against the model in Python."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tokenizers", reason="the extra text is not installed")

from loom.command_line import main
from loom.text import LanguageModel
from served_text import folder_of_model, model


@pytest.fixture(scope="module")
def alone() -> LanguageModel:
    return model()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of_model(tmp_path_factory.mktemp("text") / "tiny")


def said(words: list[str], capsys: pytest.CaptureFixture[str], status: int = 0) -> str:
    assert main(words) == status
    found = capsys.readouterr()
    return found.err if status else found.out


def test_generate_writes_what_the_model_does(
    folder: Path, alone: LanguageModel, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["generate", str(folder), "Once upon", "--max-tokens", "9", "--seed", "4", "--temperature", "0.5"]
    words += ["--top-k", "50", "--top-p", "0.9", "--min-p", "0.01", "--repetition-penalty", "1.1"]
    words += ["--typical", "0.9", "--frequency-penalty", "0.3", "--presence-penalty", "-0.2"]
    options: Any = {"max_tokens": 9, "seed": 4, "temperature": 0.5, "top_k": 50, "top_p": 0.9, "min_p": 0.01}
    options |= {"typical": 0.9, "frequency_penalty": 0.3, "presence_penalty": -0.2}
    wanted = alone.complete("Once upon", **options, repetition_penalty=1.1).text
    assert said(words, capsys) == wanted + "\n"
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("Once upon"))
    assert said([*words[:2], "-", *words[3:]], capsys) == wanted + "\n"
    assert "capacity of 9" in said([*words, "--capacity", "9"], capsys, 1)
    assert "int9" in said([*words, "--dtype", "int9"], capsys, 1)


def test_chat_talks_until_it_is_told_to_end(
    folder: Path, alone: LanguageModel, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io

    options: Any = {"max_tokens": 6, "temperature": 0}
    words = ["chat", str(folder), "--max-tokens", "6", "--temperature", "0", "--capacity", "200"]
    first = alone.chat([{"role": "user", "content": "Hello"}], **options).finish().text
    talk = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": first}]
    second = alone.chat([*talk, {"role": "user", "content": "And?"}], **options).finish().text
    monkeypatch.setattr(
        sys, "stdin", io.StringIO(f"Hello\n\nAnd?\n/new\nHello\n{'x ' * 300}\n/exit\nnever\n")
    )
    assert main(words) == 0
    out, error = capsys.readouterr()
    assert out.split("\n", 1)[1] == f"{first}\n{second}\n{first}\n"
    assert "more than the model's capacity" in error
    # The end of what is typed ends it, too, and a system's words go before.
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello"))
    system = [{"role": "system", "content": "Be brief."}]
    wanted = alone.chat([*system, talk[0]], **options).finish().text
    assert said([*words, "--system", "Be brief."], capsys).split("\n", 1)[1] == f"{wanted}\n"


def test_ctrl_c_ends_an_answer_and_not_the_chat(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from loom.command_line import chat

    lines = iter(["Hello", "Hello", None])
    monkeypatch.setattr(chat, "_line", lambda: next(lines))
    writes: list[int] = []

    def told(pieces: Any) -> None:
        next(pieces)
        writes.append(1)
        if len(writes) == 1:
            raise KeyboardInterrupt
        for _ in pieces:
            pass

    monkeypatch.setattr(chat, "told", told)
    assert main(["chat", str(folder), "--max-tokens", "3", "--temperature", "0", "--capacity", "200"]) == 0
    assert len(writes) == 2
    capsys.readouterr()
    (folder / "tokenizer_config.json").rename(folder / "kept.json")
    try:
        assert "no chat template" in said(["chat", str(folder)], capsys, 1)
    finally:
        (folder / "kept.json").rename(folder / "tokenizer_config.json")
