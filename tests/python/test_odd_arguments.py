"""Arguments of odd kinds: an error of loom's names the argument, where Python's or NumPy's came through."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn

anything: Any = loom
layers: Any = nn
NO_AXES = np.array("x")
SEVERAL = np.array([1, 2])
FRAME = {"a": [1.0, 2.0, 3.0], "b": ["x", "y", "x"]}
X, Y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2


def net() -> Any:
    return loom.Sequential([nn.Dense(4), nn.BatchNorm(), nn.Dense(2)], input_shape=3, seed=1).build()


CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "Sequential(layers=)": (lambda: anything.Sequential(NO_AXES, input_shape=3), "layers must be a list"),
    "Parallel(places=)": (lambda: layers.Parallel([nn.Dense(2)], places=NO_AXES), "places must be"),
    "MaskedSoftmax(axis=)": (lambda: layers.MaskedSoftmax(axis=SEVERAL), "axis must be -1 or 0"),
    "ignore_findings": (lambda: anything.TrainingConfig(ignore_findings=NO_AXES), "ignore_findings must be"),
    "freeze(where=)": (lambda: net().freeze(NO_AXES), "freeze"),
    "add_adapter(targets=)": (lambda: net().add_adapter(targets=NO_AXES), "targets"),
    "set_state(name=)": (lambda: net().layers[1].set_state(-1, [1.0]), "name must be one of"),
    "summary(file=)": (lambda: net().summary(file=-1), "file must be something that texts are written to"),
    "to_json(indent=)": (lambda: net().to_json(indent=float("nan")), "indent must be a whole number"),
    "to_json(indent=) huge": (lambda: net().to_json(indent=10**30), "indent must be"),
    "columns(weight=)": (
        lambda: anything.data.columns(FRAME, target="b", weight=SEVERAL),
        r"weight must be the name of a column.*net\.fit\(\(table\.x, table\.y, weight\)\)",
    ),
    "split(shuffle=)": (lambda: anything.data.split((X, Y), 0.2, shuffle=SEVERAL), "shuffle must be"),
    "folds(shuffle=)": (lambda: list(anything.data.folds((X, Y), 4, shuffle=SEVERAL)), "shuffle must be"),
    "stream(window=)": (
        lambda: anything.data.stream(X, Y, window="x"),
        "window must be a positive whole number",
    ),
    "stream(classes=)": (lambda: anything.data.stream(X, Y, classes=-1), "classes must be a list of names"),
    "MLflowLogger(tags=)": (lambda: anything.MLflowLogger(tags="x"), "tags must be texts by name"),
    "WeightHistograms(sample=)": (lambda: anything.WeightHistograms(sample=-1), r"sample must be \(x, y\)"),
    "train(distributed=)": (
        lambda: anything.train(net(), (X, Y), anything.TrainingConfig(), distributed=SEVERAL),
        "distributed",
    ),
    "train_stepping(stream=)": (
        lambda: anything.train_stepping(
            loom.Mesh(loom.Sequential([nn.Dense(2)], input_shape=3), window=1), None
        ),
        r"stream must give \(x, y\) pairs, got None",
    ),
    "save_gguf(dtype=)": (lambda: anything.save_gguf(net(), "a.gguf", dtype=[]), "dtype must be one of"),
    "signature": (lambda: anything.signature([]), "unknown"),
    "perplexity(model=)": (lambda: anything.perplexity("folder", "text"), r"expected a loom\.text\.Langu"),
    "LBFGS(history=)": (
        lambda: anything.LBFGS(net(), anything.TrainingConfig(loss="mse"), history=1 << 63),
        "history",
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_the_message_names_the_argument(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run, message = CALLS[call]
    with pytest.raises(loom.LoomError, match=message):
        run()


def test_a_path_is_no_language_model() -> None:
    """A text has a method `encode`, too."""
    serving = pytest.importorskip("loom.serving")
    with pytest.raises(loom.ConfigError, match=r"expected a loom\.text\.LanguageModel"):
        serving.create_language_app("folder/of/a/model")


def test_an_optimizer_is_no_attribute_to_set() -> None:
    with pytest.raises(AttributeError, match=r"net\.set_optimizer\(loom\.Adam\(\)\)"):
        net().optimizer = loom.Adam()


def test_metadata_of_onnx_files_is_texts(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the extra onnx is not installed")
    for metadata in (-1, SEVERAL, {"a": None}, {1: "a"}):
        with pytest.raises(loom.ConfigError, match="metadata must be texts by name"):
            anything.save_onnx(net(), tmp_path / "a.onnx", metadata=metadata)
    with pytest.raises(loom.ConfigError, match="external_data must be"):
        anything.save_onnx(net(), tmp_path / "a.onnx", external_data=SEVERAL)


def test_what_is_right_still_goes() -> None:
    assert len(loom.Sequential(iter([nn.Dense(4), nn.Dense(2)]), input_shape=3).layers) == 2
    assert [layer.trainable for layer in net().freeze(iter(["0.0.0.0"])).layers] == [False, True, True]
    text = io.StringIO()
    net().summary(file=text)
    assert "batch_norm" in text.getvalue()
    assert net().to_json(indent=2).startswith('{\n  "')
    named = loom.data.stream(X, Y, classes=np.array(["no", "yes"]))
    assert named.classes == ("no", "yes")
