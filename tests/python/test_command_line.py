"""The command line: what each command says to right and wrong words, and how it exits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import loom
from loom import nn
from loom.command_line import bench, main

COMMANDS = (
    "info",
    "bench",
    "doctor",
    "train",
    "serve",
    "generate",
    "chat",
    "tune",
    "predict",
    "summary",
    "inspect",
    "convert",
    "watch",
    "reproduce",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a network, net.loom, and samples, x.npy; the current one."""
    monkeypatch.chdir(tmp_path)
    net = loom.Sequential([nn.Dense(8, activation="relu"), nn.Dense(3)], input_shape=4, seed=1)
    net.card = loom.ModelCard(labels=["ash", "birch", "cedar"], description="Of trees.", license="MIT")
    net.save("net.loom")
    np.save("x.npy", samples())
    return tmp_path


def samples() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)


def said(words: str, capsys: pytest.CaptureFixture[str], status: int = 0) -> str:
    """What a command writes: to standard output where it goes well, to standard error otherwise."""
    assert main(words.split()) == status
    out, error = capsys.readouterr()
    if status:
        assert error.startswith("loom: ")
        assert "Traceback" not in error
        return error
    return out


def misspelled(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as raised:
        main(words.split())
    assert raised.value.code == 2
    return capsys.readouterr().err


def test_help_lists_the_commands_and_each_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    text = said("--help", capsys)
    for command in COMMANDS:
        assert f"\n  {command} " in text
        assert f"Example: loom {command}" in said(f"{command} --help", capsys)
    assert "..." not in text.split("Commands:")[1], "a line is cut"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert said("--version", capsys) == f"loom, version {loom.__version__}\n"


def test_misspelled_words_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Usage: loom" in misspelled("", capsys)
    assert "did you mean 'summary'?" in misspelled("sumary net.loom", capsys)
    assert "No such option" in misspelled("info --jsn", capsys)
    assert "--input" in misspelled("predict net.loom", capsys)
    assert "neither .npy nor .csv" in misspelled("predict net.loom --input x.npy --output y.txt", capsys)


def test_help_loads_neither_layers_nor_terminals() -> None:
    program = (
        "import sys; from loom.command_line import main; main(['--help'])\n"
        "print({'rich', 'loom.nn', 'loom.network', 'loom.training', 'fastapi'} & set(sys.modules))"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout.splitlines()[-1] == "set()"


def test_as_a_module_and_what_shells_complete(folder: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "loom", "summary", "nowhere.loom"], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 1
    assert finished.stderr.startswith("loom: ")
    assert "nowhere.loom" in finished.stderr
    asked = {**os.environ, "_LOOM_COMPLETE": "bash_complete", "COMP_WORDS": "loom su", "COMP_CWORD": "1"}
    finished = subprocess.run(
        [sys.executable, "-m", "loom"], capture_output=True, text=True, check=False, env=asked
    )
    assert finished.stdout.split() == ["plain,summary"]


@pytest.mark.parametrize("command", ["convert", "serve", "generate", "chat"])
def test_numeric_types_are_completed(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_LOOM_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", f"loom {command} --dtype q")
    monkeypatch.setenv("COMP_CWORD", "3")
    with pytest.raises(SystemExit):
        main([])
    assert capsys.readouterr().out.split() == ["plain,q4_0", "plain,q8_0"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"_LOOM_COMPLETE={shell}_complete" in said(f"completion {shell}", capsys)


def test_info_keeps_keys_to_itself(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_API_KEY", "a secret")
    assert json.loads(said("info --json", capsys))["environment"]["LOOM_API_KEY"] == "(set)"
    assert "a secret" not in said("info", capsys)


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    text = said("info", capsys)
    assert f"loom {loom.__version__}" in text
    assert loom.devices()[0].driver in text
    found = json.loads(said("info --json", capsys))
    assert found["version"] == loom.__version__
    assert [device["name"] for device in found["devices"]] == [device.name for device in loom.devices()]
    assert found["extras"]["plot"]["matplotlib"]


def test_what_a_container_without_a_driver_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from loom import _native, device

    monkeypatch.setattr(_native, "adapters", lambda: ([], "no driver answered"))
    monkeypatch.setattr(device, "_NVIDIA", (tmp_path / "nothing",))
    assert "NVIDIA_DRIVER_CAPABILITIES" not in said("info", capsys)
    monkeypatch.setattr(device, "_NVIDIA", (tmp_path,))
    assert "no GPU: no driver answered; an NVIDIA GPU is here" in said("info", capsys)
    net = loom.Sequential([nn.Dense(2)], input_shape=2)
    with pytest.raises(loom.DeviceError, match="NVIDIA_DRIVER_CAPABILITIES=graphics"):
        net.to("gpu:99")
    with pytest.raises(loom.DeviceError, match="NVIDIA_DRIVER_CAPABILITIES=graphics"):
        loom.init_gpu("gpu:99")


def test_summary(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said("summary net.loom --flops", capsys)
    assert "67 parameters" in text
    assert "Of trees.\nclasses: ash, birch, cedar\nlicense: MIT\n" in text
    assert "x.npy" in said("summary x.npy", capsys, 1)


def test_inspect(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said("inspect net.loom", capsys) == f"{loom.inspect('net.loom')}\n"
    assert len(json.loads(said("inspect net.loom --json", capsys))["tensors"]) == 4
    assert "a single NumPy array" in said("inspect x.npy", capsys, 1)


def test_predict_in_every_form_gives_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = loom.load("net.loom").predict(samples())
    np.savez("x.npz", x=samples(), y=np.zeros(10))
    np.savetxt("x.csv", samples(), delimiter=",", fmt="%.9g")
    np.savetxt("named.csv", samples(), delimiter=";", fmt="%.9g", header="a;b;c;d", comments="")
    for source in ("x.npy", "x.npz", "x.csv", "named.csv"):
        assert said(f"predict net.loom --input {source} --output y.npy", capsys) == ""
        np.testing.assert_array_equal(np.load("y.npy"), wanted)
    lines = said("predict net.loom --input x.csv", capsys).splitlines()
    assert lines[0] == "ash,birch,cedar"
    read = np.array([line.split(",") for line in lines[1:]], np.float32)
    np.testing.assert_array_equal(read, wanted)
    said("predict net.loom --input x.npy --output classes.csv --classes", capsys)
    labels = np.array(["ash", "birch", "cedar"])[wanted.argmax(-1)]
    assert Path("classes.csv").read_text().split() == ["class", *labels]


def test_predict_reads_places_in_a_vocabulary_from_text(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = loom.Sequential([nn.Embedding(5, 2), nn.Flatten(), nn.Dense(2)], input_shape=3)
    net.save("words.loom")
    Path("x.csv").write_text("0,1,4\n2,2,2\n")
    said("predict words.loom --input x.csv --output y.npy", capsys)
    np.testing.assert_array_equal(np.load("y.npy"), net.predict(np.array([[0, 1, 4], [2, 2, 2]])))
    Path("x.csv").write_text("0,1,0.5\n")
    assert "whole numbers" in said("predict words.loom --input x.csv", capsys, 1)


def test_predict_from_the_table_that_was_learned_from(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("all.csv").write_text("a,b,c,d,tree\n1,2,3,4,ash\n")
    told = said("predict net.loom --input all.csv", capsys, 1)
    assert "5 columns (a, b, c, d, tree), the network reads 4; leave out the one that it is to tell" in told


def test_columns_that_were_learned_from_are_found_by_their_names(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = samples()[:, :3]
    rows = [[f"{value:.9g}" for value in row] for row in x]
    kinds = ["ash" if row[0] > row[1] else "birch" for row in x]
    lines = [",".join([*row, kind]) for row, kind in zip(rows, kinds, strict=True)]
    Path("trees.csv").write_text("\n".join(["height,girth,age,kind", *lines]))
    layers = [{"type": "dense", "units": 2}]
    told = {"network": {"layers": layers}, "data": {"file": "trees.csv"}, "save": "trees.loom"}
    training = {"loss": "cross_entropy", "verbose": False}
    Path("trees.json").write_text(json.dumps({**told, "training": training}))
    said("train trees.json", capsys)
    wanted = loom.load("trees.loom").predict(x)
    for order in (["kind", "age", "height", "girth"], ["age", "girth", "height"]):
        held = dict(zip(["height", "girth", "age"], np.transpose(rows).tolist(), strict=True)) | {
            "kind": kinds
        }
        cells = zip(*(held[name] for name in order), strict=True)
        other = [",".join(order), *(",".join(row) for row in cells)]
        Path("other.csv").write_text("\n".join(other))
        said("predict trees.loom --input other.csv --output y.npy", capsys)
        np.testing.assert_array_equal(np.load("y.npy"), wanted)
    Path("bare.csv").write_text("\n".join(",".join(row) for row in rows))
    said("predict trees.loom --input bare.csv --output y.npy", capsys)
    np.testing.assert_array_equal(np.load("y.npy"), wanted)
    Path("other.csv").write_text("height,width,age\n1,2,3\n")
    refused = said("predict trees.loom --input other.csv", capsys, 1)
    assert "has no column 'girth', which the network has learned from; it has height, width, age" in refused


def test_predict_on_a_gpu(gpu: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(f"predict net.loom --input x.npy --output y.npy --device {gpu}", capsys)
    np.testing.assert_allclose(np.load("y.npy"), loom.load("net.loom").predict(samples()), atol=1e-5)


def test_rows_of_as_many_numbers_are_samples_in_every_form(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = loom.Sequential([nn.Conv2D(2, 2), nn.Flatten(), nn.Dense(3)], input_shape=(1, 3, 3), seed=0)
    net.save("images.loom")
    rows = np.arange(18, dtype=np.float32).reshape(2, 9)
    np.save("rows.npy", rows)
    np.savez("rows.npz", rows)
    np.savetxt("rows.csv", rows, delimiter=",")
    wanted = said("predict images.loom --input rows.npy", capsys)
    assert len(wanted.splitlines()) == 3
    for source in ("rows.npz", "rows.csv"):
        assert said(f"predict images.loom --input {source}", capsys) == wanted


def test_a_file_has_the_name_that_was_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path.name for path in folder.iterdir()}
    said("predict net.loom --input x.npy --output Y.NPY", capsys)
    assert {path.name for path in folder.iterdir()} - before == {"Y.NPY"}
    np.testing.assert_array_equal(np.load("Y.NPY"), loom.load("net.loom").predict(samples()))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_a_table_comes_through_a_pipe(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savetxt("x.csv", samples(), delimiter=",")
    wanted = said("predict net.loom --input x.csv", capsys)
    os.mkfifo("pipe.csv")
    writer = threading.Thread(target=lambda: Path("pipe.csv").write_bytes(Path("x.csv").read_bytes()))
    writer.start()
    assert said("predict net.loom --input pipe.csv", capsys) == wanted
    writer.join()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no disk that is full by nature")
@pytest.mark.parametrize("words", ["predict net.loom --input x.npy", "summary net.loom", "--help"])
def test_a_full_disk_is_told(folder: Path, words: str) -> None:
    with Path("/dev/full").open("w") as full:
        program = [sys.executable, "-m", "loom", *words.split()]
        done = subprocess.run(program, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "loom: No space left on device\n")


@pytest.mark.parametrize(
    ("extents", "taken"), [((24,), True), ((1, 2, 3, 4), True), ((3, 4, 2), False), ((6, 4), False)]
)
def test_samples_are_given_another_shape_where_their_numbers_keep_their_places(
    extents: tuple[int, ...],
    taken: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    net = loom.Sequential([nn.Conv2D(2, 2), nn.Flatten(), nn.Dense(2)], input_shape=(2, 3, 4))
    net.save("net.loom")
    x = np.random.default_rng(0).normal(size=(5, 2, 3, 4)).astype(np.float32)
    np.save("x.npy", x.reshape(5, *extents))
    if taken:
        assert said("predict net.loom --input x.npy --output y.npy", capsys) == ""
        np.testing.assert_array_equal(np.load("y.npy"), net.predict(x))
        return
    assert main(["predict", "net.loom", "--input", "x.npy"]) == 1
    assert "expected (batch, 2, 3, 4)" in capsys.readouterr().err


def test_predict_refuses_with_the_reason(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("words.csv").write_text("a,b,c,d\n1,2,3,red\n")
    Path("ragged.csv").write_text("1,2,3,4\n1,2\n")
    Path("empty.csv").write_text("\n")
    Path("broken.npz").write_text("no archive")
    np.savez("two.npz", a=samples(), b=samples())
    np.save("wide.npy", np.zeros((2, 5)))
    Path("large.npy").write_bytes(Path("wide.npy").read_bytes().replace(b"(2, 5), ", b"(10**9,)"))
    Path("long.npy").write_bytes(Path("wide.npy").read_bytes().replace(b"(2, 5)", b"(2222222, 5)"))
    Path("torn.npy").write_bytes(Path("wide.npy").read_bytes().replace(b"'shape", b"(shape"))
    Path("single.npz").write_bytes(Path("wide.npy").read_bytes())
    np.save("objects.npy", np.array([None]), allow_pickle=True)
    for source, reason in {
        "nowhere.npy": "loom: nowhere.npy: cannot be read: No such file or directory\n",
        "words.csv": "line 2, column \"d\": 'red' is no number; what is no number has to be encoded",
        "ragged.csv": "line 2: 2 cells, and 4 in the first line",
        "empty.csv": "is empty",
        "broken.npz": "broken.npz",
        "two.npz": "holds a, b; samples are x",
        "wide.npy": "(2, 5)",
        "objects.npy": "objects.npy",
        "large.npy": "large.npy",
        "long.npy": "long.npy",
        "torn.npy": "torn.npy",
        "single.npz": "no .npz file",
        "net.loom": "is not an IDX file",
    }.items():
        assert reason in said(f"predict net.loom --input {source}", capsys, 1), source
    assert "cannot be written" in said("predict net.loom --input x.npy --output no/y.npy", capsys, 1)
    assert "cannot be written" in said("predict net.loom --input x.npy --output no/y.csv", capsys, 1)
    assert 'try "gpu"' in said("predict net.loom --input x.npy --device cuda", capsys, 1)


def test_convert_between_formats(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = loom.load("net.loom")
    pytest.importorskip("onnx")
    for name in ("out.onnx", "out.json", "out.loom"):
        assert f"-> {name} (" in said(f"convert net.loom {name}", capsys)
        np.testing.assert_allclose(loom.load(name).predict(samples()), net.predict(samples()), atol=1e-6)
    assert loom.load("out.loom").card == net.card
    said("convert net.loom out.safetensors", capsys)
    assert len(loom.open_tensors("out.safetensors")) == 4


def test_convert_packs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loom.Sequential([nn.Dense(64), nn.Dense(64)], input_shape=64).save("wide.loom")
    said("convert wide.loom int4.loom --dtype int4", capsys)
    said("convert wide.loom both.loom --dtype int4 --keep-masters", capsys)
    sizes = [Path(name).stat().st_size for name in ("int4.loom", "wide.loom", "both.loom")]
    assert 4 * sizes[0] < sizes[1] < sizes[2]
    wanted = loom.load("wide.loom").morph("int4").predict(np.eye(64))
    for name in ("int4.loom", "both.loom"):
        np.testing.assert_array_equal(loom.load(name).predict(np.eye(64)), wanted)


def test_convert_refuses_with_the_reason(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "known endings are .loom" in misspelled("convert net.loom net.pt", capsys)
    assert "leave --dtype out" in misspelled("convert net.loom net.json --dtype int4", capsys)
    assert "is the file that is to be converted" in said("convert net.loom ./net.loom", capsys, 1)
    assert "must be an Embedding" in said("convert net.loom net.gguf", capsys, 1)
    assert 'did you mean "int4"?' in said("convert net.loom small.loom --dtype in4", capsys, 1)
    assert "a single NumPy array" in said("convert x.npy net.loom", capsys, 1)
    assert "cannot be written" in said("convert net.loom no/net.json", capsys, 1)
    assert sorted(path.name for path in folder.iterdir()) == ["net.loom", "x.npy"]


def test_bench(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for layers, shape in bench._networks().values():
        assert loom.Sequential(layers, shape).build().output_shape == (10,)
    small = {f"small {width}": ([nn.Dense(10)], (width,)) for width in (2, 3, 4)}
    monkeypatch.setattr(bench, "_networks", lambda: small)
    measured = json.loads(said("bench --device cpu --seconds 0.001 --json", capsys))
    assert [row["device"] for row in measured] == ["cpu"] * 3
    assert all(row["train_rows_per_s"] > 0 and row["one_sample_us"] > 0 for row in measured)
    assert "trains, rows/s" in said("bench --device cpu --seconds 0.001", capsys)
    assert 'try "gpu"' in said("bench --device cuda", capsys, 1)
