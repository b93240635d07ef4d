"""Progress: a bar in a terminal, lines elsewhere, nothing when not verbose."""

from __future__ import annotations

import io
import math
import re

import pytest

from loom import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def train(shown: progress.ProgressReporter) -> None:
    shown.set_params({"epochs": 12, "steps": 4, "device": "cpu"})
    shown.on_train_begin()
    for epoch in range(2):
        shown.on_epoch_begin(epoch)
        shown.on_progress(2, 4, 0.75)
        shown.on_epoch_end(epoch, {"loss": 0.5, "accuracy": 0.25, "val_loss": math.nan})
    shown.on_train_end()


def test_nothing_is_shown_when_not_verbose() -> None:
    assert progress.reporter(verbose=False) is None


def test_a_line_per_epoch_outside_a_terminal() -> None:
    stream = io.StringIO()
    shown = progress.reporter(verbose=True, stream=stream)
    assert isinstance(shown, progress.PlainProgress)
    train(shown)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0] == "training on cpu"
    assert re.fullmatch(r"epoch  1/12  loss 0\.5000  accuracy 0\.2500  \d+\.\d\d s", lines[1])


def test_standard_output_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    shown = progress.reporter(verbose=True)
    assert isinstance(shown, progress.PlainProgress)
    train(shown)
    assert "epoch  2/12" in capsys.readouterr().out


def test_a_live_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    shown = progress.reporter(verbose=True, stream=stream)
    assert isinstance(shown, progress.LiveProgress)
    train(shown)
    text = stream.getvalue()
    assert "epoch  1/12  loss 0.5000  accuracy 0.2500" in text
    assert "val_loss" not in text


@pytest.mark.parametrize(
    ("logs", "line"),
    [
        ({"loss": 0.0}, "loss 0.0000"),
        ({"loss": 1e-5, "mae": 2e6}, "loss 1.000e-05  mae 2.000e+06"),
        ({"loss": math.nan, "val_loss": math.nan}, "loss nan"),
        (None, ""),
    ],
)
def test_numbers_stay_short(logs: dict[str, float] | None, line: str) -> None:
    assert progress.format_logs(logs) == line
