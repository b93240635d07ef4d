"""`loom train`: what its file may say, what it refuses, and that it trains what Python would."""

from __future__ import annotations

import gzip
import json
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.command_line import main
from loom.command_line.configuration import plan, read_settings

KINDS = ["setosa", "versicolor", "virginica"]


def trees() -> tuple[np.ndarray, np.ndarray]:
    """Samples around three centres, and their classes, sorted by them."""
    draws = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 20)
    return (draws.normal(size=(60, 2), scale=0.2) + np.array([[0, 0], [2, 0], [0, 2]])[y]).round(3), y


def settings(**changes: Any) -> dict[str, Any]:
    return {
        "network": {
            "layers": [{"type": "dense", "units": 8, "activation": "relu"}, {"type": "dense", "units": 3}]
        },
        "data": {"file": "trees.csv", "target": "kind", "shuffle": 0},
        "training": {"epochs": 30, "learning_rate": 0.02, "loss": "cross_entropy", "verbose": False},
        "save": "trees.loom",
        **changes,
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    x, y = trees()
    rows = "".join(f"{a},{b},{KINDS[kind]}\n" for (a, b), kind in zip(x, y, strict=True))
    Path("trees.csv").write_text(f"length,width,kind\n{rows}")
    return tmp_path


def trained(told: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    Path("t.json").write_text(json.dumps(told))
    status = main(["train", "t.json"])
    out, error = capsys.readouterr()
    assert status == 0, error
    return out


def refused(told: dict[str, Any] | str, capsys: pytest.CaptureFixture[str], name: str = "t.json") -> str:
    Path(name).write_text(told if isinstance(told, str) else json.dumps(told))
    assert main(["train", name]) == 1
    error = capsys.readouterr().err
    assert error.startswith("loom: ")
    return error


def test_a_table_with_words_for_classes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "saved trees.loom" in trained(settings(), capsys)
    net = loom.load("trees.loom")
    assert list(net.card.labels or ()) == KINDS
    x, y = trees()
    assert (net.predict(x).argmax(-1) == y).mean() > 0.9
    # What Python makes of the same.
    order = np.random.default_rng(0).permutation(60)
    same = loom.Sequential([nn.Dense(8, activation="relu"), nn.Dense(3)], input_shape=2)
    loom.train(same, (x.astype(np.float32)[order], y[order]), loom.TrainingConfig(**settings()["training"]))
    assert same.fingerprint() == net.fingerprint()


TOML = """
save = "trees.loom"
[network]
layers = [{ type = "dense", units = 8, activation = "relu" }, { type = "dense", units = 3 }]
[data]
file = "trees.csv"
target = "kind"
shuffle = 0
[training]
epochs = 30
learning_rate = 0.02
loss = "cross_entropy"
verbose = false
"""
YAML = """
network:
  layers:
    - {type: dense, units: 8, activation: relu}
    - {type: dense, units: 3}
data: {file: trees.csv, target: kind, shuffle: 0}
training: {epochs: 30, learning_rate: 0.02, loss: cross_entropy, verbose: false}
save: trees.loom
"""


@pytest.mark.parametrize(("module", "name", "text"), [("tomllib", "t.toml", TOML), ("yaml", "t.yaml", YAML)])
def test_every_language_says_the_same(
    module: str, name: str, text: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip(module)
    trained(settings(), capsys)
    wanted = loom.load("trees.loom").fingerprint()
    Path("trees.loom").unlink()
    Path(name).write_text(text)
    assert main(["train", name]) == 0
    assert loom.load("trees.loom").fingerprint() == wanted


@pytest.mark.parametrize("written", ["1e-2", "1E-2", "1.e-2", ".1e-1", "+1e-2", "1.0e-2", "0.01"])
def test_numbers_with_exponents_are_numbers_in_yaml_too(written: str, folder: Path) -> None:
    pytest.importorskip("yaml")
    Path("t.yaml").write_text(YAML.replace("0.02", written))
    assert plan(read_settings("t.yaml"), Path()).config.learning_rate == 0.01


def test_settings_are_changed_by_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.json").write_text(json.dumps(settings()))
    words = [
        "train",
        "t.json",
        "--set",
        "training.epochs=2",
        "--set",
        "save=other.loom",
        "--set",
        "run.folder=r",
    ]
    assert main(words) == 0
    assert "2 epochs" in capsys.readouterr().out
    assert Path("other.loom").is_file()
    assert len(loom.read_run("r").epochs) == 2
    assert main(["train", "t.json", "--set", "training.epochs"]) == 1
    assert "expected name=value" in capsys.readouterr().err
    assert main(["train", "t.json", "--set", "training.epochs.more=1"]) == 1
    assert "epochs is no table" in capsys.readouterr().err


def test_a_dry_run_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.json").write_text(json.dumps(settings(run="r")))
    assert main(["train", "t.json", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "51 parameters" in out
    assert "data: x (60, 2), y (60,)" in out
    assert sorted(path.name for path in folder.iterdir()) == ["t.json", "trees.csv"]


def test_arrays_a_second_file_and_a_network_to_go_on_with(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = trees()
    np.savez("a.npz", x=x, y=y, x_validation=x[:5], y_validation=y[:5])
    np.savez("b.npz", x=x[::2], y=y[::2])
    np.save("x.npy", x)
    np.save("y.npy", y)
    one = {**settings()["training"], "epochs": 1}
    assert "val_loss" in trained(settings(data={"file": "a.npz"}, training=one), capsys)
    first = loom.load("trees.loom").fingerprint()
    trained(settings(data={"x": "x.npy", "y": "y.npy"}, training=one), capsys)
    assert loom.load("trees.loom").fingerprint() == first
    assert "val_loss" in trained(
        settings(data={"file": "b.npz", "validation": "a.npz"}, training=one), capsys
    )
    before = loom.load("trees.loom").fingerprint()
    told = settings(network={"file": "trees.loom"}, data={"file": "a.npz"}, training=one, save="more.loom")
    trained({**told, "card": {"labels": KINDS, "license": "MIT"}}, capsys)
    more = loom.load("more.loom")
    assert more.card.license == "MIT"
    assert more.fingerprint() != before == loom.load("trees.loom").fingerprint()


def test_idx_files_and_a_folder_of_mnist_s_form(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = np.random.default_rng(0).integers(256, size=(12, 4, 4), dtype=np.uint8)
    labels = np.arange(12, dtype=np.uint8) % 3
    for part in ("train", "t10k"):
        packed = struct.pack(">4B3I", 0, 0, 8, 3, *images.shape) + images.tobytes()
        Path(f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(packed))
        Path(f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, 12) + labels.tobytes())
    network = {"layers": [{"type": "flatten"}, {"type": "dense", "units": 3}]}
    one = {**settings()["training"], "epochs": 1}
    assert "val_loss" in trained(settings(network=network, data={"mnist": "."}, training=one), capsys)
    files = {"x": "train-images-idx3-ubyte.gz", "y": "train-labels-idx1-ubyte"}
    # Bytes go from 0 to 1, and get the shape that the network takes.
    convolution = [{"type": "conv2d", "filters": 2, "kernel_size": 3}, *network["layers"]]
    told = {"input_shape": [1, 4, 4], "layers": convolution}
    trained(settings(network=told, data=files, training={**one, "shuffle": False}), capsys)
    same = loom.Sequential([nn.Conv2D(2, 3), nn.Flatten(), nn.Dense(3)], input_shape=(1, 4, 4))
    train = loom.datasets.mnist(".").train
    loom.train(same, train, loom.TrainingConfig(**one, shuffle=False))
    assert loom.load("trees.loom").fingerprint() == same.fingerprint()
    assert main(["predict", "trees.loom", "--input", files["x"], "--output", "y.npy"]) == 0
    np.testing.assert_array_equal(np.load("y.npy"), same.predict(train.x))


def test_what_is_likely_a_mistake_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layers = [{"type": "dense", "units": 3, "activation": "sigmoid"}]
    Path("t.json").write_text(json.dumps(settings(network={"layers": layers})))
    assert main(["train", "t.json"]) == 0
    error = capsys.readouterr().err
    assert error.startswith("loom: sigmoid-before-loss")
    assert ".py" not in error


def test_targets_in_tables(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = {**settings()["training"], "epochs": 1}
    rows = "\n".join(f"{a};{b};{1 + kind}" for (a, b), kind in zip(*trees(), strict=True))
    Path("numbers.csv").write_text(rows)
    # Classes that are numbers, but not from 0 on, get their place; the last column is the target.
    trained(settings(data={"file": "numbers.csv"}, training=one), capsys)
    assert loom.load("trees.loom").card.labels == ("1", "2", "3")
    network = {"layers": [{"type": "dense", "units": 1}]}
    trained(settings(data={"file": "numbers.csv"}, network=network, training={**one, "loss": "mse"}), capsys)
    assert loom.load("trees.loom").card.labels is None
    told = settings(data={"file": "trees.csv", "target": "width", "features": ["length"]}, network=network)
    trained({**told, "training": {**one, "loss": "mse"}}, capsys)
    assert loom.load("trees.loom").input_shape == (1,)
    Path("held.csv").write_text("kind,width,length\nsetosa,0,0\n")
    told = settings(data={"file": "trees.csv", "target": "kind", "validation": "held.csv"}, training=one)
    assert "val_loss" in trained(told, capsys)
    Path("held.csv").write_text("kind,width,length\nsetosa,0,0\noak,0,0\n")
    assert 'line 3: the class "oak" is not among' in refused(told, capsys)


def measured(loss: str | None, target: str, held: str, units: int, capsys: pytest.CaptureFixture[str]) -> Any:
    """Plans a training on two tables of these targets, and returns both as they will be learned."""
    for name, cells in (("table.csv", target), ("held.csv", held)):
        rows = "".join(f"{place},{cell}\n" for place, cell in enumerate(cells.split(" ")))
        Path(name).write_text(f"x,y\n{rows}")
    training = {"epochs": 1, **({} if loss is None else {"loss": loss})}
    network = {"layers": [{"type": "dense", "units": units}]}
    told = {"network": network, "data": {"file": "table.csv", "validation": "held.csv"}, "training": training}
    Path("t.json").write_text(json.dumps(told))
    planned = plan(read_settings("t.json"), Path())
    assert main(["train", "t.json"]) == 0, capsys.readouterr().err
    assert planned.validation is not None
    return planned.data[1], planned.validation[1], planned.network.card.labels  # type: ignore[index] # arrays


@pytest.mark.parametrize(
    ("loss", "target", "held", "learned", "measures", "labels"),
    [
        # What is measured has not all of the classes.
        ("cross_entropy", "0 1 2 0 1 2", "1 2", [0, 1, 2, 0, 1, 2], [1, 2], None),
        ("cross_entropy", "0 1 2 0 1 2", "2.0", [0, 1, 2, 0, 1, 2], [2], None),
        ("cross_entropy", "1 2 3 1", "3 2.0", [0, 1, 2, 0], [2, 1], ("1", "2", "3")),
        ("cross_entropy", "oak ash elm ash", "oak", [2, 0, 1, 0], [2], ("ash", "elm", "oak")),
        ("cross_entropy", "1 x 2 1", "x 2", [0, 2, 1, 0], [2, 1], ("1", "2", "x")),
        # Without a loss whole numbers are classes, as they are in Python.
        (None, "0 1 2 0 1 2", "1 2", [0, 1, 2, 0, 1, 2], [1, 2], None),
        (None, "oak ash elm ash", "oak", [2, 0, 1, 0], [2], ("ash", "elm", "oak")),
        ("mse", "0 1 2", "1 2", [0.0, 1.0, 2.0], [1.0, 2.0], None),
        (None, "0.5 1 2", "1 2", [0.5, 1.0, 2.0], [1.0, 2.0], None),
    ],
)
def test_validation_is_read_by_what_the_training_data_mean(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    loss: str | None,
    target: str,
    held: str,
    learned: list[float],
    measures: list[float],
    labels: tuple[str, ...] | None,
) -> None:
    numbers = isinstance(learned[0], float)
    found = measured(loss, target, held, 1 if numbers else 3, capsys)
    assert [array.tolist() for array in found[:2]] == [learned, measures]
    assert found[0].dtype == (np.float32 if numbers else np.int64)
    assert found[2] == labels


@pytest.mark.parametrize("loss", ["mse", "cross_entropy", None])
@pytest.mark.parametrize("gap", ["", "nan"])
def test_a_row_without_a_target_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str], loss: str | None, gap: str
) -> None:
    """With a gap among numbers all of them were taken for the names of classes."""
    Path("gaps.csv").write_text(f"x,y\n1,0.5\n2,{gap}\n3,2.5\n")
    training = {"epochs": 1, **({} if loss is None else {"loss": loss})}
    error = refused(settings(data={"file": "gaps.csv"}, training=training), capsys)
    assert 'gaps.csv, line 3, column "y": there is no target' in error


def test_names_among_numbers_are_told_where_numbers_are_compared(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("mixed.csv").write_text("x,y\n1,0.5\n2,O.7\n3,2.5\n")
    network = {"layers": [{"type": "dense", "units": 1}]}
    told = settings(data={"file": "mixed.csv"}, network=network, training={"loss": "mse"})
    assert "line 3, column \"y\": 'O.7' is no number, and other targets are" in refused(told, capsys)


def test_where_a_network_is_saved_is_checked_before_it_learns(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for save, reason in (
        ("no/trees.loom", "there is no folder no"),
        ("trees.onnx", "loom.save_onnx"),
        (".", "is a folder"),
        ("trees.csv/trees.loom", "there is no folder trees.csv"),
    ):
        told = settings(save=save, run="runs/a")
        assert reason in refused(told, capsys), save
        assert not Path("runs").exists()
    # A run makes its own folder.
    assert "saved runs/a/trees.loom" in trained(settings(save="runs/a/trees.loom", run="runs/a"), capsys)


def _years() -> str:
    """A table whose columns are called by years; the last one is told by the first."""
    x, _ = trees()
    rows = np.column_stack([x, x[:, 0] + x[:, 1]]).round(3)
    return "2019,2020,2021\n" + "".join(",".join(map(str, row)) + "\n" for row in rows.tolist())


@pytest.mark.parametrize("told", [{"header": True}, {"target": "2021"}, {"features": ["2019", "2020"]}])
def test_a_line_of_names_may_be_numbers(
    told: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("years.csv").write_text(_years())
    layers = {"layers": [{"type": "dense", "units": 1}]}
    mine = settings(network=layers, data={"file": "years.csv", **told})
    mine["training"] = {"epochs": 1, "verbose": False, "loss": "mse"}
    Path("t.json").write_text(json.dumps(mine))
    planned = plan(read_settings("t.json"), folder)
    x, _ = trees()
    np.testing.assert_array_equal(np.asarray(planned.data[0]), x.astype(np.float32))  # type: ignore[index]
    assert "first line" not in capsys.readouterr().err
    trained(mine, capsys)
    net = loom.load("trees.loom")
    # They are found by their names, in another order and without being told; and told where nobody knows.
    wanted = net.predict(x)
    turned = "2020,2019\n" + "".join(f"{b},{a}\n" for a, b in x.tolist())
    Path("turned.csv").write_text(turned)
    assert main(["predict", "trees.loom", "--input", "turned.csv", "--output", "y.npy"]) == 0
    np.testing.assert_allclose(np.load("y.npy"), wanted, rtol=1e-6)
    net.card = loom.ModelCard()
    net.save("unknown.loom")
    Path("straight.csv").write_text("2019,2020\n" + "".join(f"{a},{b}\n" for a, b in x.tolist()))
    told_so = ["predict", "unknown.loom", "--input", "straight.csv", "--output", "y.npy"]
    assert main([*told_so, "--header"]) == 0
    np.testing.assert_allclose(np.load("y.npy"), wanted, rtol=1e-6)
    assert main([*told_so, "--no-header"]) == 0
    assert len(np.load("y.npy")) == len(x) + 1


def test_a_first_line_that_may_be_names_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("years.csv").write_text(_years())
    mine = settings(network={"layers": [{"type": "dense", "units": 1}]}, data={"file": "years.csv"})
    mine["training"] = {"epochs": 1, "verbose": False, "loss": "mse"}

    def told(**data: Any) -> tuple[int, str]:
        Path("t.json").write_text(json.dumps({**mine, "data": {"file": "years.csv", **data}}))
        status = main(["train", "--dry-run", "t.json"])
        return status, capsys.readouterr().err

    status, error = told()
    assert status == 0
    assert "the first line (2019, 2020, 2021, ...) is read as a row" in error
    assert "header = true" in error
    assert "first line" not in told(header=False)[1]
    status, error = told(target="2022")
    assert status == 1
    assert "header = true in the data's settings says so" in error
    Path("years.csv").write_text(_years().replace("2019", "first"))
    status, error = told()
    assert status == 1
    assert "'first' is no number, and others beside it are" in error
    assert told(header=True)[0] == 0


def test_what_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = settings()["data"]
    for changes, reason in (
        ({"netwrok": {}}, 'did you mean "network"?'),
        ({"network": {"layers": [{"type": "dence", "units": 3}]}}, 'did you mean "dense"?'),
        ({"network": {"seed": 3}}, "layers are missing"),
        ({"network": {"layers": [{}], "cells": [{}]}}, "give one"),
        ({"network": {"file": "trees.loom", "seed": 3}}, "goes with nothing else"),
        ({"network": {"file": "nowhere.loom"}}, "nowhere.loom"),
        ({"network": []}, "network is a table of settings"),
        ({"training": {"epochs": 0}}, "epochs"),
        ({"training": {"loss": "corss_entropy"}}, "cross_entropy"),
        ({"data": {}}, "one of file"),
        ({"data": {"file": 3}}, "data: file is a text"),
        ({"data": {**data, "mnist": "."}}, "one of file"),
        ({"data": {"x": "x.npy"}}, "x with y"),
        ({"data": {"file": "a.npz", "target": "kind"}}, "target names columns of a .csv"),
        ({"data": {**data, "target": "knd"}}, 'did you mean "kind"?'),
        ({"data": {**data, "target": "width"}}, "column \"kind\": 'setosa' is no number"),
        ({"data": {**data, "features": ["kind", "width"]}}, "is among the features"),
        ({"data": {**data, "file": "nowhere.csv"}}, "cannot be read"),
        ({"data": {**data, "shuffle": -1}}, "shuffle"),
        ({"run": {"folder": "r", "kep": 3}}, 'did you mean "keep"?'),
        ({"run": {"keep": 3}}, "folder says where"),
        ({"run": 3}, "run is a folder"),
        ({"save": 3}, "save is a file"),
        ({"card": {"licence": "MIT"}}, 'did you mean "license"?'),
    ):
        assert reason in refused(settings(**changes), capsys), changes
    assert "t.json" in refused("{", capsys)
    assert "settings by name" in refused("[]", capsys)
    assert "missing setting" in refused("{}", capsys)
    assert ".toml, .json, .yaml" in refused("{}", capsys, "t.txt")
    assert main(["train", "nowhere.json"]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_the_page_s_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tomllib")
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
    exec(compile(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], "command-line.md", "exec"), {})
    Path("flowers.toml").write_text(re.findall(r"```toml\n(.*?)```", page, re.DOTALL)[0])
    Path("measures.csv").write_text("1.0,4.0\n4.1,3.2\n")
    commands = re.findall(r"^\$ loom (.*)$", page, re.MULTILINE)
    assert len(commands) == 7
    for words in commands:
        assert main(words.split()) == 0, words
    assert capsys.readouterr().out.count("aster\ntulip\n") == 1
    assert np.load("outputs.npy").shape == (2, 3)
    # Every command has its row, and no row is of another.
    listed = re.findall(r"^\| `loom ([a-z]+)", page, re.MULTILINE)
    main(["--help"])
    shown = capsys.readouterr().out.split("Commands:\n")[1].split("\n\n")[0]
    assert sorted(listed) == sorted(line.split()[0] for line in shown.splitlines())


def test_doctor(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("t.json").write_text(json.dumps(settings()))
    status = main(["doctor", "t.json", "--json"])
    found = json.loads(capsys.readouterr().out)["findings"]
    assert status == any(finding["severity"] != "hint" for finding in found)
    layers = [{"type": "dense", "units": 3, "activation": "sigmoid"}]
    Path("t.json").write_text(json.dumps(settings(network={"layers": layers})))
    assert main(["doctor", "t.json"]) == 1
    assert "sigmoid-before-loss" in capsys.readouterr().out
    assert main(["doctor", "t.json", "--ignore", "all"]) == 0
    assert "nothing found" in capsys.readouterr().out
    assert main(["doctor", "t.json", "--ignore", "sigmoid"]) == 1
    assert capsys.readouterr().err.startswith("loom: ")
    assert sorted(path.name for path in folder.iterdir()) == ["t.json", "trees.csv"]
