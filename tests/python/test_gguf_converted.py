"""GGUF files that llama.cpp's converter has written of models of transformers compute what those compute.

tests/golden/gguf_converted.py has made them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loom
from loom.models.gguf.architectures import ARCHITECTURES, Metadata

FOLDER = Path(__file__).parents[1] / "golden" / "gguf"
SCORES = np.load(FOLDER / "scores.npz")
NAMES = sorted(path.stem for path in FOLDER.glob("*.gguf"))


def test_there_is_a_file_for_all_scores() -> None:
    assert {name.partition(":")[0] for name in SCORES} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_scores_are_those_of_the_model_that_was_converted(name: str) -> None:
    words, expected = SCORES[f"{name}: words"], SCORES[f"{name}: scores"]
    net = loom.load(FOLDER / f"{name}.gguf")
    session = net.session(capacity=words.shape[1], rows=len(words))
    found = np.concatenate(
        [session(words[:, :5]), *(session(words[:, [step]]) for step in range(5, 9))], axis=1
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * max(1.0, np.abs(expected).max()))


def test_a_tensor_that_is_not_known_is_named(tmp_path: Path) -> None:
    data = (FOLDER / "command-r.gguf").read_bytes()
    path = tmp_path / "net.gguf"
    path.write_bytes(data.replace(b"blk.0.attn_k.weight", b"blk.0.attn_z.weight"))
    with pytest.raises(loom.ConfigError, match="attn_z"):
        loom.load(path)


def test_biases_whose_rows_have_another_order_are_refused() -> None:
    metadata = Metadata({"general.architecture": "olmo"}, {"blk.0.attn_q.bias"})
    with pytest.raises(loom.ConfigError, match="biases"):
        ARCHITECTURES["olmo"].config(metadata)
