"""Runs that are written while they train: lines, readers, and the page that follows them."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom.__main__ import main
from loom.runs import Run
from loom.runs.watching import RunServer
from networks import blobs, mlp, quiet

# These networks learn nothing of use.
pytestmark = pytest.mark.filterwarnings("ignore:little gets through")


def record(path: Path, epochs: int = 3, **settings: Any) -> loom.Network:
    net, data = mlp(), blobs(64)
    recorder = loom.RunRecorder(path, batches=settings.pop("batches", None))
    config = quiet(epochs=epochs, schedule="linear", metrics=["accuracy"], device="cpu", **settings)
    result = loom.train(net, data, config, validation=blobs(20, 1), callbacks=[recorder], observe=True)
    run = loom.read_run(path)
    assert [row["loss"] for row in run.epochs] == result.loss_history
    return net


def test_what_a_run_writes(tmp_path: Path) -> None:
    net = record(tmp_path / "deep" / "run")
    run = loom.read_run(tmp_path / "deep" / "run")
    assert run.finished
    assert run.skipped == 0
    assert run.blueprint == net.blueprint()
    assert run.started["network"] == json.loads(net.to_json())
    assert run.started["training"]["schedule"] == {"type": "linear", "end_factor": 0.0, "steps": None}
    assert (run.started["device"], run.started["epochs"], run.started["batch_size"]) == ("cpu", 3, 32)
    names = {"epoch", "time", "seconds", "samples_per_second", "learning_rate"}
    names |= {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert set(run.epochs[0]) == names
    # Two steps an epoch, from 1 to 0 in six: the last step of each.
    rates = [row["learning_rate"] for row in run.epochs]
    np.testing.assert_allclose(rates, [1e-3 * (1 - step / 6) for step in (1, 3, 5)])
    assert [row["path"] for row in run.layers] == ["0.0.0.0", "0.0.0.1", "0.0.1.0"] * 3
    assert run.layers[-1]["gap"] == net.measures.gaps[-1]
    assert all(row["peak_memory"] > 1e6 and row["device"] == "cpu" for row in run.devices)
    assert run.batches == ()
    frame = run.to_frame()
    assert list(frame["epoch"]) == [0, 1, 2]
    assert Run.from_json(run.to_json()) == run


def test_batches_on_request(tmp_path: Path) -> None:
    record(tmp_path, epochs=2, batches=2, batch_size=8)
    run = loom.read_run(tmp_path)
    assert [(row["epoch"], row["batch"]) for row in run.batches] == [
        (epoch, batch) for epoch in (0, 1) for batch in (1, 3, 5, 7)
    ]
    assert all(row["loss"] > 0 for row in run.batches)
    with pytest.raises(loom.ConfigError, match="RunRecorder: batches must be a positive whole number, got 0"):
        loom.RunRecorder(tmp_path, batches=0)


def test_recording_changes_nothing(tmp_path: Path) -> None:
    watched, plain = mlp(), mlp()
    loom.train(watched, blobs(64), quiet(epochs=2), callbacks=[loom.RunRecorder(tmp_path, batches=1)])
    loom.train(plain, blobs(64), quiet(epochs=2))
    for name, values in plain.state_dict().items():
        np.testing.assert_array_equal(watched.state_dict()[name], values)


def test_half_lines_are_left_out(tmp_path: Path) -> None:
    record(tmp_path)
    file = tmp_path / "events.jsonl"
    whole = file.read_bytes()
    for cut in range(0, len(whole), 97):
        file.write_bytes(whole[:cut])
        run = loom.read_run(tmp_path)
        kept = [json.loads(line) for line in whole[: whole.rfind(b"\n", 0, cut) + 1].splitlines()]
        assert len(run.epochs) == sum(event["event"] == "epoch" for event in kept)
        assert run.skipped == int(cut > 0 and whole[cut - 1 : cut] != b"\n")
        assert not run.finished
    # Another process goes on behind half a line.
    file.write_bytes(whole[:-20])
    net = mlp()
    loom.train(net, blobs(64), quiet(epochs=1), callbacks=[loom.RunRecorder(tmp_path)])
    loom.train(net, blobs(64), quiet(epochs=3), callbacks=[loom.RunRecorder(tmp_path)], resume=True)
    assert [row["epoch"] for row in loom.read_run(tmp_path).epochs] == [0, 1, 2]
    with file.open("ab") as opened:
        opened.write(b'{"event": "epo')
    loom.train(net, blobs(64), quiet(epochs=4), callbacks=[loom.RunRecorder(tmp_path)], resume=True)
    again = loom.read_run(tmp_path)
    assert [row["epoch"] for row in again.epochs] == [0, 1, 2, 3]
    assert (again.skipped, again.finished) == (1, True)


def test_a_killed_process_leaves_a_run(tmp_path: Path) -> None:
    program = f"""
import os, loom, numpy as np
from loom import nn
net = loom.Sequential([nn.Dense(2)], input_shape=3)
stop = loom.LambdaCallback(on_epoch_begin=lambda epoch, logs: os._exit(9) if epoch == 5 else None)
loom.train(net, (np.eye(3), np.zeros((3, 2))), loom.TrainingConfig(epochs=9, verbose=False),
           callbacks=[loom.RunRecorder({str(tmp_path)!r}), stop])
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 9
    run = loom.read_run(tmp_path)
    assert (len(run.epochs), run.finished, run.skipped) == (5, False, 0)


def test_numbers_that_are_not_finite_come_back(tmp_path: Path) -> None:
    record(tmp_path, epochs=2, validation_frequency=2)
    text = (tmp_path / "events.jsonl").read_text()
    for line in text.splitlines():
        json.loads(line, parse_constant=lambda found: pytest.fail(f"{found} is not JSON"))
    assert np.isnan(loom.read_run(tmp_path).epochs[0]["val_loss"])


def test_metrics_of_one_s_own_are_named(tmp_path: Path) -> None:
    def half(outputs: Any, targets: Any) -> float:
        return 0.5

    config = quiet(metrics=["accuracy", half])
    loom.train(mlp(), blobs(64), config, callbacks=[loom.RunRecorder(tmp_path)])
    run = loom.read_run(tmp_path)
    assert run.started["training"]["metrics"] == ["accuracy", "half"]
    assert run.epochs[0]["half"] == 0.5


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(loom.FileError, match="there is no run to read"):
        loom.read_run(tmp_path)
    (tmp_path / "events.jsonl").write_text("not a run\n")
    with pytest.raises(loom.SerializationError, match="holds no events of a run"):
        loom.read_run(tmp_path)
    with pytest.raises(loom.FileError, match="there is no run's directory"):
        RunServer(tmp_path / "nowhere")
    with pytest.raises(loom.FileError, match="RunRecorder cannot write"):
        loom.train(mlp(), blobs(9), quiet(), callbacks=[loom.RunRecorder(tmp_path / "events.jsonl" / "run")])


def asked(server: RunServer, path: str, host: str | None = None) -> tuple[int, str]:
    request = urllib.request.Request(server.url + path, headers={} if host is None else {"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""


def test_the_page_asks_for_new_lines(tmp_path: Path) -> None:
    with RunServer(tmp_path) as server:
        status, page = asked(server, "")
        assert status == 200
        # Nothing comes from elsewhere; the only name of a site is that of SVG.
        assert set(re.findall(r"https?://[^\"'\s]+", page)) == {"http://www.w3.org/2000/svg"}
        assert json.loads(asked(server, "events?from=0")[1]) == {"lines": [], "next": 0, "again": False}
        file = tmp_path / "events.jsonl"
        file.write_bytes(b'{"event": "start"}\n{"event": "ep')
        first = json.loads(asked(server, "events?from=0")[1])
        assert first == {"lines": ['{"event": "start"}'], "next": 19, "again": False}
        with file.open("ab") as opened:
            opened.write(b'och"}\n')
        second = json.loads(asked(server, "events?from=19")[1])
        assert second["lines"] == ['{"event": "epoch"}']
        assert json.loads(asked(server, f"events?from={second['next']}")[1])["lines"] == []
        file.write_bytes(b'{"event": "end"}\n')
        assert json.loads(asked(server, "events?from=38")[1]) == {
            "lines": ['{"event": "end"}'],
            "next": 17,
            "again": True,
        }
        assert asked(server, "../../etc/passwd")[0] == 404
        assert asked(server, "", host="example.org:80")[0] == 403


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(tmp_path / "nowhere")]) == 1
    assert "there is no run's directory" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([])
    assert "watch" in capsys.readouterr().err
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "loom", "watch", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[0]
            with urllib.request.urlopen(url, timeout=30) as answer:
                assert b"loom watch" in answer.read()
        finally:
            process.kill()


def browser() -> str:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None:
        if os.environ.get("LOOM_REQUIRE_BROWSER") == "1":
            pytest.fail("LOOM_REQUIRE_BROWSER=1, but there is no chromium")
        pytest.skip("no browser: install chromium (Debian: apt install chromium)")
    return found


def test_the_page_in_a_browser_while_a_run_writes(tmp_path: Path) -> None:
    program = browser()
    run = tmp_path / "digits & co"
    run.mkdir()
    net, data = mlp(), blobs(64)
    loaded, done = threading.Event(), threading.Event()

    def wait(epoch: int, logs: Any) -> None:
        # The page is loaded before the run's third epoch begins.
        if epoch == 2:
            assert loaded.wait(60)

    def train() -> None:
        waiting = loom.LambdaCallback(on_epoch_begin=wait)
        config = quiet(epochs=12, metrics=["accuracy"], device="cpu")
        callbacks = [loom.RunRecorder(run, batches=1), waiting]
        loom.train(net, data, config, validation=blobs(20, 1), callbacks=callbacks, observe=True)
        done.set()

    with RunServer(run) as server:
        base: Any = server._server.RequestHandlerClass
        seen: list[int] = []

        class Counting(base):  # type: ignore[misc]
            def do_GET(self) -> None:  # noqa: N802 - the base's name
                super().do_GET()
                if self.path.startswith("/events"):
                    seen.append(len(loom.read_run(run).epochs) if (run / "events.jsonl").exists() else 0)
                    if seen.count(2) >= 1:
                        loaded.set()

        server._server.RequestHandlerClass = Counting
        training = threading.Thread(target=train)
        training.start()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        finished = subprocess.run(
            [program, *options, profile, "--virtual-time-budget=20000", "--dump-dom", server.url],
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        )
        loaded.set()
        training.join()
    assert done.is_set()
    page = html.unescape(finished.stdout)
    # It has asked while two epochs were written, and shown what came after.
    assert 2 in seen
    assert max(seen) == 12
    assert "<h1>digits & co</h1>" in page
    assert 'data-epochs="12"' in page
    assert "12 of 12 epochs" in page
    charts = re.findall(r'<figure data-chart="([^"]+)"', page)
    assert charts == ["learning rate", "loss", "accuracy", "loss by batch"]
    for name in ("loss", "val_loss", "accuracy", "val_accuracy", "learning_rate"):
        assert f'data-curve="{name}" data-points="12"' in page
    assert re.findall(r'<tr data-layer="([^"]+)"', page) == ["0.0.0.0", "0.0.0.1", "0.0.1.0"]
    assert "link budget" in page
