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


def test_lists_of_what_there_is_are_tables() -> None:
    types = cells(loom.dtypes())
    assert types[0] == ["name", "bits", "range", "granularity", "rule"]
    assert [row[0] for row in types[1:]] == [entry.name for entry in loom.dtypes()]
    assert ["dense", "nn.Dense(units)", next(e.summary for e in loom.layers() if e.kind == "dense")] in cells(
        loom.layers()
    )
    assert "int8: 8 bits, q = rint(w/S)" in str(loom.dtypes())
    assert "\ndropout: " in str(loom.layers())


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


def test_settings_cells_layers_in_place_and_reports() -> None:
    net = loom.Sequential([nn.Dense(3, activation="relu"), nn.Dense(2)], input_shape=2)
    assert cells(net[0, 0, 0])[1:] == [["0", "Dense(units=3, activation='relu')"], ["1", "Dense(units=2)"]]
    assert cells(net.layers[0]) == cells(net.layers[0].config)
    assert cells(loom.TrainingConfig(epochs=3))[1] == ["epochs", "3", "set"]
    assert ["weight_decay", "0.5", "set"] in cells(loom.AdamW(weight_decay=0.5))
    assert ["patience", "3", "set"] in cells(loom.EarlyStopping(patience=3))
    rows = np.tile(np.eye(3), (9, 1))
    report = loom.analysis.RegressionReport.of(rows, rows, ["a", "b", "c"])
    shown = cells(report)
    assert shown[0] == list(report.columns())
    assert len(shown) == 1 + min(len(next(iter(report.columns().values()))), 21)


def test_results_draw_themselves(tmp_path: Path) -> None:
    net = loom.Sequential([nn.Dense(1)], input_shape=2)
    history = loom.History()
    x = np.random.default_rng(0).normal(size=(8, 2))
    result = net.fit(x, x[:, :1], epochs=2, callbacks=[history], verbose=False)
    figure = result.plot(tmp_path / "course")
    assert [axes.get_title() for axes in figure.axes] == ["loss"]
    assert [axes.get_title() for axes in history.plot().axes] == ["loss"]
    # The same figure is the same file; notebooks get it as SVG, and it follows dark pages.
    text = (tmp_path / "course.svg").read_text()
    assert figure._repr_svg_() == text
    assert "prefers-color-scheme: dark" in text
    assert ">epoch</text>" in text


def test_filters() -> None:
    net = loom.Sequential([nn.Conv2D(5, kernel_size=3), nn.Conv2D(2, kernel_size=3)], input_shape=(3, 8, 8))
    figure = loom.plot.filters(net)
    assert [axes.images[0].get_array().shape for axes in figure.axes] == [(3, 3, 3)] * 5
    # Layers with other channels have a row for each filter.
    inner = loom.plot.filters(net.layers[1], most=1).axes
    np.testing.assert_array_equal(inner[4].images[0].get_array(), net.layers[1].weight[0, 4])
    dense = loom.Sequential([nn.Dense(4)], input_shape=6)
    units = loom.plot.filters(dense, shape=(2, 3)).axes
    np.testing.assert_array_equal(units[3].images[0].get_array(), dense.layers[0].weight[3].reshape(2, 3))
    with pytest.raises(loom.ShapeError, match=r"no layer with a weight of 4 axes.*shape=\(height, width\)"):
        loom.plot.filters(dense)
    with pytest.raises(loom.ShapeError, match=r"\(4, 6\) are not those of"):
        loom.plot.filters(dense, shape=(2, 2))


def test_pictures_are_svg_where_a_name_says_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    net = loom.Sequential([nn.Dense(1)], input_shape=2)
    result = net.fit(np.ones((4, 2)), np.ones((4, 1)), epochs=2, ignore_findings="all", verbose=False)
    loom.plot.training_curves(result, path=tmp_path / "course")
    loom.plot.training_curves(result, path=tmp_path / "course.png")
    assert {path.name for path in tmp_path.iterdir()} == {"course.svg", "course.png"}
    assert re.search(r"<svg\b", (tmp_path / "course.svg").read_text())
