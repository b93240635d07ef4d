"""Pictures: what is drawn, where it is written, and what is refused."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

import loom


def result() -> loom.TrainingResult:
    return loom.TrainingResult(
        loss_history=[3.0, 2.0, 1.0],
        epoch_times=[0.1] * 3,
        total_time=0.3,
        throughput=100.0,
        metrics={"accuracy": [0.1, 0.5, 0.9], "val_loss": [math.nan, 2.5, math.nan]},
    )


def test_curves_have_a_panel_per_metric(tmp_path: Path) -> None:
    figure = loom.plot.training_curves(result(), tmp_path / "curves.png")
    assert [axes.get_title() for axes in figure.axes] == ["loss", "accuracy"]
    training, validation = figure.axes[0].lines
    np.testing.assert_array_equal(training.get_ydata(), [3.0, 2.0, 1.0])
    np.testing.assert_array_equal(validation.get_xdata(), [2])
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_curves_of_a_history() -> None:
    history = loom.History()
    history.on_epoch_end(0, {"loss": 1.0})
    assert len(loom.plot.training_curves(history).axes) == 1
    with pytest.raises(loom.DataError, match="nothing to draw"):
        loom.plot.training_curves(loom.History())


@pytest.mark.parametrize("shape", [(3, 8, 8), (3, 1, 8, 8), (3, 3, 8, 8)])
def test_predictions_are_titles(tmp_path: Path, shape: tuple[int, ...]) -> None:
    figure = loom.plot.predictions(
        np.zeros(shape), [1, 2, 3], [1, 2, 4], columns=2, path=tmp_path / "predictions.png"
    )
    assert [axes.get_title() for axes in figure.axes] == ["1", "2", "3 (is 4)"]
    assert (tmp_path / "predictions.png").stat().st_size > 0


def test_outputs_will_do_for_classes() -> None:
    figure = loom.plot.predictions(np.zeros((1, 2, 2)), np.array([[0.1, 0.7, 0.2]]))
    assert figure.axes[0].get_title() == "1"


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    with pytest.raises(loom.ShapeError, match="images must be"):
        loom.plot.predictions(np.zeros((2, 2)), [1, 2])
    with pytest.raises(loom.ShapeError, match="2 images, 1 predictions"):
        loom.plot.predictions(np.zeros((2, 4, 4)), [1])
    with pytest.raises(loom.FileError, match="cannot be written"):
        loom.plot.training_curves(result(), tmp_path / "missing" / "curves.png")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(loom.MissingExtraError, match=r"loom\.plot needs matplotlib.*'loom-nn\[plot\]'"):
        loom.plot.training_curves(result())


def test_the_result_sums_itself_up() -> None:
    run = result()
    assert (run.final_loss, run.best_loss) == (1.0, 1.0)
    # Where all steps of an epoch are left out, there is no loss.
    assert loom.TrainingResult([math.nan, 0.5, 0.7, math.nan], [], 0.0, 0.0).best_loss == 0.5
    assert repr(run).startswith("TrainingResult(3 epochs, loss 1, accuracy 0.9")
    empty = loom.TrainingResult([], [], 0.0, 0.0, stop_reason="interrupted")
    assert math.isnan(empty.final_loss)
    assert math.isnan(empty.best_loss)
