"""What a newcomer does with a model from elsewhere, in three lines each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loom
from networks import llama

GOLDEN = Path(__file__).parents[1] / "golden"


def test_a_folder_of_the_hub() -> None:
    net = loom.load(GOLDEN / "hub" / "llama")
    session = net.session(capacity=8)
    scores = session([[1, 2, 3]])[0, -1]
    assert scores.shape == (net.output_shape[-1],)
    assert np.isfinite(scores).all()


def test_a_gguf_file_and_back(tmp_path: Path) -> None:
    loom.save_gguf(llama(), tmp_path / "theirs.gguf", "q8_0")

    net = loom.load(tmp_path / "theirs.gguf")
    scores = net.predict([range(12)])
    loom.save_gguf(net, tmp_path / "ours.gguf", "q8_0")

    # Blocks that were read are written as they were.
    theirs, ours = (loom.open_tensors(tmp_path / name) for name in ("theirs.gguf", "ours.gguf"))
    assert list(theirs) == list(ours)
    for name, entry in theirs.items():
        np.testing.assert_array_equal(ours[name].raw(), entry.raw(), err_msg=name)
    np.testing.assert_array_equal(loom.load(tmp_path / "ours.gguf").predict([range(12)]), scores)


def test_an_onnx_model_and_back(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    with np.load(GOLDEN / "onnx" / "torch_excited.npz") as held:
        x, expected = held["x"], held["y"]

    net = loom.load(GOLDEN / "onnx" / "torch_excited.onnx")
    y = net.predict(x)
    loom.save_onnx(net, tmp_path / "ours.onnx")

    np.testing.assert_allclose(y, expected, atol=1e-5)
    np.testing.assert_allclose(loom.load(tmp_path / "ours.onnx").predict(x), expected, atol=1e-5)
