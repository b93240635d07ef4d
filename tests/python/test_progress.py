"""Progress: a bar in a terminal, a table in a notebook, lines elsewhere, nothing where nobody watches."""

from __future__ import annotations

import io
import math
import re
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import loom
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


@pytest.mark.parametrize(
    ("out", "error", "kind"),
    [
        (True, True, progress.LiveProgress),
        (True, False, progress.LiveProgress),
        (False, True, progress.PlainProgress),
        (False, False, type(None)),
    ],
)
def test_auto_shows_progress_to_whoever_watches(
    out: bool, error: bool, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal() if out else io.StringIO())
    monkeypatch.setattr(sys, "stderr", Terminal() if error else io.StringIO())
    assert type(progress.reporter()) is kind


def test_a_job_is_quiet_and_a_program_without_a_console_trains(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    net = loom.Sequential([loom.nn.Dense(2)], input_shape=3)
    net.fit(np.zeros((4, 3)), np.zeros((4, 2)), ignore_findings="all")
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert net.fit(np.zeros((4, 3)), np.zeros((4, 2)), ignore_findings="all").stop_reason == "finished"


class Page:
    """A notebook's output."""

    def __init__(self) -> None:
        self.pictures: list[str] = []
        self.text = ""
        self.displays = 0

    def display(self, shown: Any, *, display_id: bool) -> Page:
        assert display_id
        self.displays += 1
        self.update(shown)
        return self

    def update(self, shown: Any) -> None:
        self.pictures.append(shown._repr_html_())
        self.text = repr(shown)


def test_a_notebook_has_a_table_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page()
    kernel = SimpleNamespace(kernel=object())
    fake = SimpleNamespace(get_ipython=lambda: kernel, display=SimpleNamespace(display=page.display))
    monkeypatch.setitem(sys.modules, "IPython", fake)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "IPython.display", fake.display)
    monkeypatch.setattr(progress.NotebookProgress, "_EVERY", 0.0)
    shown = progress.reporter()
    assert isinstance(shown, progress.NotebookProgress)
    train(shown)
    assert page.displays == 1
    assert '<progress value="2" max="4">' in page.pictures[1]
    assert "<progress" not in page.pictures[-1]
    assert page.pictures[-1].count("<tr>") == 3
    assert "<td>0.2500</td>" in page.pictures[-1]
    assert "val_loss" not in page.pictures[-1]
    assert len(page.text.splitlines()) == 3
    # IPython in a terminal is a terminal.
    kernel.kernel = None
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert isinstance(progress.reporter(), progress.LiveProgress)


def test_names_of_metrics_are_text_in_a_notebook() -> None:
    page = Page()
    shown = progress.NotebookProgress(page.display)
    shown.on_epoch_begin(0)
    shown.on_train_begin()
    shown.on_epoch_end(0, {"<b>": 1.0})
    assert "<b>" not in page.pictures[-1]
    assert "&lt;b&gt;" in page.pictures[-1]


def test_settings_of_progress_come_back() -> None:
    for verbose in (True, False, "auto"):
        config = loom.TrainingConfig(verbose=verbose)
        assert loom.TrainingConfig.from_config(config.to_config()) == config
    with pytest.raises(loom.ConfigError, match='did you mean "auto"'):
        loom.TrainingConfig(verbose="autp")  # type: ignore[arg-type]
    assert [loom.TrainingConfig(verbose=number).verbose for number in (0, 1, 2)] == [False, True, True]
    told = 'verbose must be True or False or "auto", got 3; verbose=True is what that means'
    with pytest.raises(loom.ConfigError, match=told):
        loom.TrainingConfig(verbose=3)  # type: ignore[arg-type]
    with pytest.raises(loom.ConfigError, match="verbose must be True or False, got None"):
        loom.TrainingConfig(verbose=None)  # type: ignore[arg-type]
