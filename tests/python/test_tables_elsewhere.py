"""Networks that have learned from a table read it on the command line and over HTTP, as in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import loom
from loom import nn
from loom.command_line import main


def frame(rows: int, seed: int) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    size, garden = random.normal(80, 25, rows), random.choice([True, False], rows)
    size[::7] = np.nan
    city = random.choice(np.array(["Oslo", "Rome", None], dtype=object), rows)
    return pd.DataFrame(
        {"size": size, "city": city, "garden": garden, "rooms": random.integers(1, 4, rows), "other": "x"}
    )


@pytest.fixture(scope="module")
def net() -> Any:
    learned = frame(60, 0)
    learned["dear"] = np.where(learned["rooms"] > 1, "yes", "no")
    table = loom.data.columns(learned.drop(columns="other"), target="dear", categories=["rooms"])
    made = loom.Sequential([nn.Dense(4, activation="tanh"), nn.Dense(2)], input_shape=table.width, seed=3)
    made.fit(table, epochs=2, device="cpu", verbose=False)
    return made


@pytest.fixture
def file(net: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    net.save("flats.loom")
    return "flats.loom"


def test_a_csv_file_is_read_as_the_table(net: Any, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = frame(9, 1)
    asked.loc[3, "city"] = "Lima"
    asked.to_csv("new.csv", index=False)
    assert main(["predict", file, "--input", "new.csv", "--output", "y.npy"]) == 0
    np.testing.assert_allclose(np.load("y.npy"), net.predict(asked), rtol=1e-6, atol=1e-6)
    assert main(["predict", file, "--input", "new.csv", "--classes"]) == 0
    assert capsys.readouterr().out.split()[1:] == list(net.predict_classes(asked))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("size,city,garden\n1,Oslo,True\n", "has no column 'rooms'"),
        ("size,city,garden,rooms\nlarge,Oslo,True,2\n", "line 2, column \"size\": 'large' is no number"),
    ],
)
def test_what_does_not_fit_is_told(
    file: str, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("new.csv").write_text(text)
    assert main(["predict", file, "--input", "new.csv"]) == 1
    assert said in " ".join(capsys.readouterr().err.split())


def test_samples_by_name_over_http(net: Any) -> None:
    from fastapi.testclient import TestClient

    asked = frame(5, 2)
    rows = asked.astype(object).where(asked.notna(), None).to_dict("records")
    with TestClient(loom.serving.create_app(net)) as client:
        answer = client.post("/predict", json={"inputs": rows})
        assert answer.status_code == 200, answer.text
        np.testing.assert_allclose(answer.json()["outputs"], net.predict(asked), rtol=1e-6, atol=1e-6)
        assert answer.json()["labels"] == list(net.predict_classes(asked))
        # A sample without a value is one that misses it; a name that no sample has is a mistake.
        less = client.post("/predict", json={"inputs": [{**rows[1], "size": None}, rows[2]]})
        assert less.status_code == 200
        lacks = client.post("/predict", json={"inputs": [{"sise": 3}]})
        assert lacks.status_code == 422
        assert "no column 'size', 'city', 'garden', 'rooms'" in lacks.json()["error"]["message"]
        mixed = client.post("/predict", json={"inputs": [rows[0], [1.0]]})
        assert mixed.status_code == 400
        assert client.get("/model").json()["columns"] == ["size", "city", "garden", "rooms"]
    plain = loom.Sequential([nn.Dense(2)], input_shape=2)
    with TestClient(loom.serving.create_app(plain)) as client:
        refused = client.post("/predict", json={"inputs": [{"size": 3}]})
        assert refused.status_code == 400
        assert "learned from a table" in refused.json()["error"]["message"]
