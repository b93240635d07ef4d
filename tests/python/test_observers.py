"""Observers: the table and the record."""

from __future__ import annotations

import io

import pytest

import loom
from loom.observers import Console, LayerActivation, Recorder


def forward(number: int, nonfinite: int = 0) -> list[LayerActivation]:
    return [
        LayerActivation(
            forward=number,
            cell=(0, 0, x),
            layer=layer,
            kind="dense",
            shape=(4, 10),
            mean=number + 0.5,
            std=1.0,
            min=-2.0,
            max=3.0,
            norm=9.0,
            zeros=0.25,
            nonfinite=nonfinite,
        )
        for x in range(2)
        for layer in range(2)
    ]


def test_the_console_writes_a_row_per_layer() -> None:
    stream = io.StringIO()
    console = Console(every=2, stream=stream)
    for number in range(3):
        console(forward(number, nonfinite=number))
    text = stream.getvalue()
    assert text.count("forward ") == 2
    assert "forward 1" not in text
    assert "0.0.1.1    dense" in text
    assert text.count("2 not finite") == 4
    assert "25.0%" in text


def test_the_console_writes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    Console()(forward(0))
    assert "forward 0" in capsys.readouterr().out


def test_the_recorder_keeps_series() -> None:
    recorder = Recorder()
    for number in range(3):
        recorder(forward(number))
    assert len(recorder) == 3
    assert recorder.series("0.0.1.0", "mean") == [0.5, 1.5, 2.5]
    with pytest.raises(loom.ConfigError, match='unknown statistic "men"; did you mean "mean"'):
        recorder.series("0.0.1.0", "men")
    with pytest.raises(loom.ConfigError, match=r'unknown layer "0\.0\.2\.0"'):
        recorder.series("0.0.2.0", "mean")
    recorder.clear()
    assert len(recorder) == 0


def test_the_recorder_can_forget_the_oldest() -> None:
    recorder = Recorder(limit=2)
    for number in range(5):
        recorder(forward(number))
    assert recorder.series("0.0.0.0", "mean") == [3.5, 4.5]
    with pytest.raises(loom.ConfigError, match="limit must be a positive whole number"):
        Recorder(limit=0)
