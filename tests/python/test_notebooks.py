"""What notebooks show of layers, devices, numeric types and results."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn


class Cells(HTMLParser):
    """The cells of a table, row by row; every element is closed in its turn."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.open: list[str] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] in {"td", "th"}:
            self.rows[-1][-1] += data


def cells(value: Any) -> list[list[str]]:
    return Cells(value._repr_html_()).rows


def test_a_layer_shows_what_was_set_first() -> None:
    rows = cells(nn.Dense(8, activation="relu"))
    assert rows[1:3] == [["units", "8", "set"], ["activation", "'relu'", "set"]]
    assert ["bias", "True", ""] in rows[3:]


@pytest.mark.parametrize(
    "layer",
    [
        nn.Flatten(),
        nn.BatchNorm(),
        nn.Conv2D(8, kernel_size=(3, 5), padding="same"),
        nn.MultiHeadAttention(4, causal=True),
        nn.Residual([nn.Dense(3), nn.Dropout(0.5)]),
    ],
    ids=lambda layer: layer.kind,
)
def test_layers_have_a_row_for_every_setting(layer: nn.Layer) -> None:
    rows = {row[0]: row[1] for row in cells(layer)[1:]}
    settings = {name: value for name, value in layer.to_config().items() if name != "type"}
    assert rows.keys() == settings.keys()
    for name, text in rows.items():
        assert text == repr(getattr(layer, name))


def test_devices_and_numeric_types() -> None:
    devices = loom.devices()
    rows = cells(devices)
    assert rows[0] == ["name", "hardware", "backend", "driver", "software"]
    assert [row[0] for row in rows[1:]] == [device.name for device in devices]
    assert ["name", "'cpu'", "set"] in cells(devices[0])
    int8 = next(entry for entry in loom.dtypes() if entry.name == "int8")
    assert ["bits", str(int8.bits)] in cells(int8)
    missing = loom.device.DeviceList([], "<none> answered")
    assert "no GPU: &lt;none&gt; answered" in missing._repr_html_()


@pytest.mark.parametrize("epochs", [3, 25])
def test_a_result_shows_its_epochs(epochs: int) -> None:
    net = loom.Sequential([nn.Dense(1)], input_shape=2)
    x = np.random.default_rng(0).normal(size=(16, 2))
    result = net.fit(x, x[:, :1], epochs=epochs, metrics=["mae"], verbose=False)
    rows = cells(result)
    assert result.history == {"loss": result.loss_history, "mae": result.metrics["mae"]}
    assert rows[0] == ["epoch", "loss", "mae"]
    assert len(rows) == 1 + min(epochs, 21)
    assert rows[-1] == [str(epochs), f"{result.final_loss:.4g}", f"{result.metrics['mae'][-1]:.4g}"]


def test_pictures_are_svg_where_a_name_says_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    net = loom.Sequential([nn.Dense(1)], input_shape=2)
    result = net.fit(np.ones((4, 2)), np.ones((4, 1)), epochs=2, ignore_findings="all", verbose=False)
    loom.plot.training_curves(result, path=tmp_path / "course")
    loom.plot.training_curves(result, path=tmp_path / "course.png")
    assert {path.name for path in tmp_path.iterdir()} == {"course.svg", "course.png"}
    assert re.search(r"<svg\b", (tmp_path / "course.svg").read_text())
