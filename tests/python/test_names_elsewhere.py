"""Samples by name outside of training: served, from files on the command line, in a search of the rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.command_line import main

RNG = np.random.default_rng(0)
ROWS = 60
X: dict[str, Any] = {"table": RNG.normal(size=(ROWS, 3)), "city": RNG.integers(0, 5, ROWS)}
Y = {"kind": (X["table"][:, 0] > 0).astype(int), "age": X["table"][:, 1] + X["city"]}
LOSS = {"kind": "cross_entropy", "age": "mse"}


def network() -> loom.Network:
    net = loom.Network(inputs={"table": 3, "city": loom.Categories(5)}, grid=(1, 4), seed=0)
    net[0, 0].add(nn.Dense(8, activation="tanh"))
    net.enter("city", (0, 1))[0, 1].add(nn.Embedding(5, 2), nn.Flatten())
    net.link((0, 0), (0, 2), combine="concat")[0, 2].add(nn.Dense(2))
    net.link((0, 0), (0, 3), combine="concat")[0, 3].add(nn.Dense(1))
    return net.output("kind", (0, 2)).output("age", (0, 3))


def test_a_rate_is_found_for_several_inputs_and_outputs() -> None:
    net = network()
    before = {name: np.array(values) for name, values in net.build().state_dict().items()}
    config = loom.TrainingConfig(batch_size=20, loss=LOSS, loss_weights={"age": 0.1}, verbose=False)
    found = loom.find_rate(net, (X, Y), config, steps=60)
    assert 1e-5 < found.suggestion < 2.0
    for name, values in net.state_dict().items():
        assert np.array_equal(values, before[name])
    net.fit(X, Y, epochs=20, loss=LOSS, learning_rate=found.suggestion, verbose=False)
    assert net.evaluate((X, Y))["loss"] < found.losses[0]


FRAME = {
    "size": [70.0, 120.5, None, 40.0] * 10,
    "city": ["Oslo", "Rome", "Oslo", None] * 10,
    "kind": ["a", "b", "a", "a"] * 10,
}


def of_table() -> loom.Network:
    table = loom.data.columns(FRAME, target="kind")
    net = loom.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(2)], input_shape=table.width, seed=0)
    net.fit(table, epochs=3, verbose=False)
    return net


def test_served_by_name() -> None:
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    pytest.importorskip("httpx", reason="tests of serving need httpx")
    from test_serving import NPY, refusal, served

    net = network()
    wanted: Any = net.predict(X)
    by_list = {name: np.asarray(values)[:7].tolist() for name, values in X.items()}
    by_sample = [{name: values[row] for name, values in by_list.items()} for row in range(7)]
    with served(net, wait=0.0, batch_rows=4) as client:
        for inputs in (by_list, by_sample):
            told = client.post("/predict", json={"inputs": inputs}).json()
            assert set(told) == {"outputs"}
            for name in ("kind", "age"):
                assert np.array_equal(np.array(told["outputs"][name], np.float32), wanted[name][:7])
        described = client.get("/model").json()
        assert described["inputs"] == {"table": [3], "city": [1]}
        assert described["outputs"] == {"kind": [2], "age": [1]}
        for inputs, status, message in (
            ({"table": [[1, 2, 3]]}, 422, '"city" is missing'),
            ({"table": [[1, 2, 3]], "city": [0.5]}, 422, "whole numbers"),
            ({"table": [[1, 2, 3]], "city": [0, 1]}, 400, "of one length"),
            ({"table": [[1, 2, 3], [1, 2]], "city": [0, 1]}, 400, "different lengths"),
            ([[1, 2, 3]], 400, "named inputs (table, city)"),
        ):
            assert message in refusal(client.post("/predict", json={"inputs": inputs}), status)
        answer = client.post("/predict", json={"inputs": by_list}, headers={"Accept": NPY})
        assert "names" in refusal(answer, 406)


def test_tables_are_served_as_they_come() -> None:
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    pytest.importorskip("httpx", reason="tests of serving need httpx")
    from test_serving import refusal, served

    net = of_table()
    wanted = net.predict({name: FRAME[name][:4] for name in ("size", "city")})
    samples = [
        {"city": city, "size": size} for size, city in zip(FRAME["size"][:4], FRAME["city"][:4], strict=True)
    ]
    samples[2].pop("size")
    with served(net, wait=0.0) as client:
        told = client.post("/predict", json={"inputs": samples}).json()
        assert np.array_equal(np.array(told["outputs"], np.float32), wanted)
        assert told["labels"] == [["a", "b"][place] for place in wanted.argmax(-1)]
        # What is encoded already is taken, too.
        told = client.post("/predict", json={"inputs": net.encoder(FRAME).tolist()}).json()  # type: ignore[misc]
        assert np.array_equal(np.array(told["outputs"], np.float32)[:4], wanted)
        assert client.get("/model").json()["columns"] == ["size", "city"]
        assert "no column 'city'" in refusal(client.post("/predict", json={"inputs": {"size": [1.0]}}), 422)


def test_predicted_from_files_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    net = of_table()
    net.save("table.loom")
    lines = ["kind,city,size"] + [
        f"?,{city or ''},{'' if size is None else size}"
        for size, city in zip(FRAME["size"][:8], FRAME["city"][:8], strict=True)
    ]
    Path("new.csv").write_text("\n".join(lines))
    assert main(["predict", "table.loom", "--input", "new.csv", "--output", "y.npy"]) == 0
    assert np.array_equal(np.load("y.npy"), net.predict({name: FRAME[name][:8] for name in ("size", "city")}))
    assert main(["predict", "table.loom", "--input", "new.csv", "--classes"]) == 0
    assert capsys.readouterr().out.split()[0] == "class"

    several = network()
    several.build().save("several.loom")
    wanted: Any = several.predict(X)
    np.savez("x.npz", **X)
    assert main(["predict", "several.loom", "--input", "x.npz", "--output", "y.npz"]) == 0
    with np.load("y.npz") as found:
        assert set(found.files) == {"kind", "age"}
        for name in found.files:
            assert np.array_equal(found[name], wanted[name])
    assert main(["predict", "several.loom", "--input", "x.npz"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == "kind_0,kind_1,age"
    assert np.array_equal(np.array([row.split(",") for row in rows[1:]], np.float32)[:, 2:], wanted["age"])
    np.savez("less.npz", table=X["table"])
    assert main(["predict", "several.loom", "--input", "less.npz"]) == 1
    assert "has no 'city'" in capsys.readouterr().err
