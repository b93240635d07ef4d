"""What is too large, too deep or of the wrong kind ends in an error that says so: no abort, no hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import _native, nn
from networks import blobs, mlp, quiet

HERE = Path(__file__).parent

HEAD = """
import resource
import sys
sys.path.insert(0, {here!r})
import numpy as np
import loom
from loom import nn
from huge_extents import limit_memory

def refused(kind, call, *words):
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
        assert not isinstance(error, loom.InternalError), error
        return
    raise AssertionError("it was not refused")
loom.Sequential([nn.Dense(1)], input_shape=1).predict(np.zeros((1, 1)))
limit_memory()
"""


def alone(code: str, timeout: float = 60) -> str:
    """Runs code in a process with little memory, which must end well and in time."""
    done = subprocess.run(
        [sys.executable, "-c", HEAD.format(here=str(HERE)) + code],
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env=os.environ | {"LOOM_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr[-2000:]}"
    return done.stdout


def test_networks_larger_than_any_memory_can_be_looked_at_and_are_refused_with_sizes() -> None:
    told = alone("""
net = loom.Sequential([nn.Dense(10**6)], input_shape=10**6)
net.summary()
plan = net.blueprint()
assert plan.parameter_count == 10**12 + 10**6 and plan.bytes == 4 * (10**12 + 10**6)
refused(loom.OutOfMemoryError, net.build, "3725.3 GiB", "layer 0 (dense)")
refused(MemoryError, lambda: loom.Mesh(loom.Sequential([nn.Dense(4)], input_shape=4), rows=10**12), "GiB")
attention = loom.Sequential([nn.MultiHeadAttention(1, causal=True)], input_shape=(3, 4))
refused(loom.OutOfMemoryError, lambda: attention.session(10**9), "GiB")
positions = loom.Sequential([nn.PositionalEmbedding(10**9)], input_shape=(3, 4))
refused(loom.OutOfMemoryError, positions.build, "14.9 GiB")
padded = loom.Sequential([nn.Conv2D(2, 3, padding=10**5)], input_shape=(1, 8, 8))
refused(loom.OutOfMemoryError, lambda: padded.predict(np.zeros((1, 1, 8, 8))), "GiB")
zeros = {"weight_initializer": "zeros"}
wide = loom.Sequential([nn.Dense(4400, **zeros)], input_shape=4400)
data = (np.zeros((2, 4400), np.float32),) * 2
config = loom.TrainingConfig(loss="mse", optimizer="adam", epochs=1, verbose=False, device="cpu")
kept = loom.Sequential([nn.BatchNorm(gain=False, bias=False)], input_shape=10**9)
kept.summary()
assert kept.blueprint().parameter_count == 0
refused(loom.OutOfMemoryError, kept.build, "3.7 GiB", "layer 0 (batch_norm)")
refused(loom.OutOfMemoryError, lambda: loom.train(wide, data, config), "optimizer's moments", "77457664")
assert wide.predict(data[0]).shape == (2, 4400)
""")
    assert "1,000,001,000,000 parameters, 1,000,001,000,000 trainable, 4,000,004,000,000 bytes" in told


def test_a_summary_of_a_packed_network_is_that_of_the_built_one(capsys: pytest.CaptureFixture[str]) -> None:
    layers = [nn.Residual([nn.Dense(6), nn.Dense(4)]), nn.BatchNorm(), nn.GRU(5)]
    made = loom.Sequential(layers, input_shape=(3, 4)).build().morph("int4")
    made[0, 0, 0, 2].trainable = False
    made.summary()
    expected = capsys.readouterr().out
    described = loom.Network.from_config(made.config)
    plan = described.blueprint()
    described.summary()
    assert capsys.readouterr().out == expected
    assert plan == made.blueprint() == described.build().blueprint()


def test_cells_without_layers_are_no_recursion() -> None:
    alone("""
net = loom.Network(input_shape=2, grid=(1, 1, 50_000))
net[0, 0, 0].add(nn.Dense(2))
net[0, 0, -1].add(nn.Dense(2))
mesh = loom.Mesh(net)
mesh.input(np.ones((1, 2), np.float32)) if hasattr(mesh, "input") else None
net = loom.Network(input_shape=2, grid=(1, 1, 3000))
net[0, 0, 0].add(nn.Dense(2))
net[0, 0, -1].add(nn.Dense(2))
for column in range(1, 2999):
    net.link((0, 0, 0), (0, 0, column))
refused(loom.StateError, lambda: loom.Mesh(net), "put a layer into one of them")
""")


def nested(depth: int, wrap: Callable[[Any], Any], inner: Any) -> Any:
    for _ in range(depth):
        inner = wrap(inner)
    return inner


WRAPS: list[Callable[[Any], Any]] = [
    lambda layer: {"type": "residual", "layers": [layer]},
    lambda layer: {"type": "sequential", "layers": [layer]},
    lambda layer: {"type": "masked", "layers": [layer]},
    lambda layer: {"type": "parallel", "branches": [[layer]], "combine": "add"},
]


@pytest.mark.parametrize("wrap", WRAPS)
def test_layers_forty_deep_cost_no_more_than_their_number(wrap: Callable[[Any], Any], tmp_path: Path) -> None:
    layer = nested(37, wrap, {"type": "dense", "units": 3})
    begun = time.monotonic()
    net = loom.Sequential([layer], input_shape=(2, 3))
    assert net.predict(np.ones((2, 2, 3))).shape == (2, 2, 3)
    net.save(tmp_path / "deep.loom")
    assert loom.load(tmp_path / "deep.loom").config == net.config
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("depth", [61, 100, 5000])
def test_what_is_nested_too_deep_is_refused(wrap: Callable[[Any], Any], depth: int) -> None:
    config = nested(depth, wrap, {"type": "dense", "units": 3})
    with pytest.raises(loom.ConfigError, match="levels"):
        nn.layer_from_config(config)
    cell = {"at": [0, 0, 0], "layers": [config]}
    with pytest.raises(loom.ConfigError, match="levels"):
        loom.Network.from_config({"input_shape": [2, 3], "cells": [cell]})


@pytest.mark.parametrize("depth", [61, 2000])
def test_code_that_nests_too_deep_is_refused(depth: int) -> None:
    with pytest.raises(loom.ConfigError, match="60 levels"):
        nested(depth, nn.Residual, nn.Dense(3))


def cyclic() -> dict[str, Any]:
    config: dict[str, Any] = {"type": "residual"}
    config["layers"] = [config]
    return config


NET: dict[str, Any] = {"input_shape": [3], "grid": [1, 1, 1]}
REFUSED: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: nn.layer_from_config(cyclic()), loom.ConfigError, "holds itself"),
    (lambda: loom.Network.from_config(NET | {"cells": 7}), loom.ConfigError, "cells must be a list, got 7"),
    (lambda: loom.Network.from_config(NET | {"links": "no"}), loom.ConfigError, "links must be a list"),
    (lambda: loom.Network.from_config(NET | {"settings": {}}), loom.ConfigError, "settings must be a list"),
    (
        lambda: loom.Network.from_config(NET | {"cells": [{"at": [0, 0, 0], "layers": None}]}),
        loom.ConfigError,
        "layers must be a list",
    ),
    (lambda: nn.layer_from_config({"type": [1]}), loom.ConfigError, r'unknown layer type "\[1\]"'),
    (lambda: nn.layer_from_config({"type": {}}), loom.ConfigError, "unknown layer type"),
    (
        lambda: nn.layer_from_config({"type": "sequential", "layers": [nn.Dense(1)], "name": [1]}),
        loom.ConfigError,
        "name must be text",
    ),
    (lambda: loom.Network.from_json("[" * 100_000), loom.SerializationError, "must be JSON"),
    (lambda: loom.Network.from_json('{"a":' * 100_000), loom.SerializationError, "must be JSON"),
    (lambda: nn.Dense(10**5000), loom.ConfigError, "units must be below"),
    (lambda: nn.Dense(-(10**5000)), loom.ConfigError, "cannot be printed"),
    (lambda: nn.Dropout(10**5000), loom.ConfigError, "must be a finite number"),
    (lambda: nn.Dense(3, activation="x" * 10**6), loom.ConfigError, "unknown activation"),
    (lambda: loom.Network(3, grid=(1000, 1000, 1000)), loom.ConfigError, "at most 1,048,576 cells"),
    (lambda: loom.Network(3, grid=(10**9, 10**9)), loom.ConfigError, "at most 1,048,576 cells"),
    (lambda: nn.Conv1D(2, 3, stride=2**64 - 1), loom.ConfigError, "at most 2147483647"),
    (lambda: nn.ConvTranspose1D(2, 3, stride=2**61), loom.ConfigError, "at most 2147483647"),
    (lambda: loom.TweenConfig(feedback_steps=2**32), loom.ConfigError, "feedback_steps must be at most 4096"),
    (lambda: loom.TweenConfig(local_steps=2**32), loom.ConfigError, "local_steps must be at most 4096"),
    (lambda: loom.callbacks.EarlyStopping(monitor=3), loom.ConfigError, "name of a log"),  # type: ignore[arg-type]
    (lambda: loom.callbacks.ModelCheckpoint("x", monitor=[]), loom.ConfigError, "name of a log"),  # type: ignore[arg-type]
    (lambda: quiet(early_stopping={"monitor": 3}), loom.ConfigError, "name of a log"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_odd_values_are_refused_by_what_they_are(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        call()
    assert len(str(raised.value)) < 5000


def test_arrays_that_are_not_aligned_are_copied() -> None:
    net = loom.Sequential([nn.Dense(3)], input_shape=5).build()
    aligned = np.arange(20, dtype=np.float32).reshape(4, 5)
    raw = np.zeros(81, np.uint8)
    odd = raw[1:].view(np.float32).reshape(4, 5)
    odd[:] = aligned
    assert not odd.flags.aligned
    np.testing.assert_array_equal(net.predict(odd), net.predict(aligned))
    np.testing.assert_array_equal(net.forward(odd), net.forward(aligned))
    labels = np.zeros(33, np.uint8)[1:].view(np.int64)
    assert not labels.flags.aligned
    loom.train(loom.Sequential([nn.Dense(3)], input_shape=5), (odd, labels), quiet())


def test_many_rows_at_once_keep_little_memory_and_change_no_bit() -> None:
    alone("""
net = loom.Sequential([nn.Dense(2000), nn.LayerNorm(), nn.Dense(1)], input_shape=4)
x = np.random.default_rng(0).normal(size=(30_000, 4)).astype(np.float32)
# All rows at once would need 480 MB, twice what there is.
many = net.predict(x, batch_size=30_000)
assert np.array_equal(many, net.predict(x))
""")


def interrupted(work: Callable[[], object], after: float) -> float:
    """Sends Ctrl-C meanwhile; returns how long it took to be heard."""
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(after, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        work()
    timer.join()
    return time.monotonic()


def test_a_build_hears_ctrl_c_and_changes_nothing() -> None:
    net = loom.Sequential([nn.LSTM(3000)], input_shape=(2, 4))
    begun = time.monotonic()
    assert interrupted(net.build, 0.5) - begun < 8
    # Nothing is there, and what is asked next begins anew.
    net.summary()
    small = loom.Sequential([nn.LSTM(8)], input_shape=(2, 4)).build()
    assert small.predict(np.ones((1, 2, 4))).shape == (1, 8)


@pytest.mark.skipif(not hasattr(_native.Network, "_panic"), reason="only builds for development can panic")
def test_a_panic_is_one_error_with_a_report_and_leaves_the_network_usable(
    capfd: pytest.CaptureFixture[str],
) -> None:
    net = mlp().build()
    x = np.ones((2, 6), np.float32)
    before = net.predict(x)
    with pytest.raises(loom.InternalError, match=r"loom [\d.]+ on .*: on purpose, in task \d+ at ") as raised:
        net._engine.native._panic(1000)  # type: ignore[attr-defined]
    assert "The network can still be used." in str(raised.value)
    assert "panicked" not in capfd.readouterr().err
    np.testing.assert_array_equal(net.predict(x), before)
    assert loom.train(net, (x, np.zeros(2, int)), quiet()).stop_reason == "finished"


@pytest.mark.parametrize("seed", range(2))
def test_random_calls_end_in_documented_errors(seed: int) -> None:
    # LOOM_SOAK=1 tries many more.
    count = 50_000 if os.environ.get("LOOM_SOAK") else 60
    done = subprocess.run(
        [sys.executable, str(HERE / "random_calls.py"), str(seed), "0", str(count)],
        capture_output=True,
        text=True,
        env=os.environ | {"LOOM_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])},
        check=False,
        timeout=120 + 2 * count,
    )
    last = done.stderr.rsplit("\r", 1)[-1]
    assert done.returncode == 0, f"{done.returncode} at {seed}/{last}:\n{done.stdout}"


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: mlp()[10**5000], "a layer as"),
        (lambda: mlp()[0, 0].add(10**5000), "expected a layer"),  # type: ignore[arg-type]
        (lambda: mlp().activations(np.ones((1, 6)), layers=["0.0.0." + "9" * 5000]), "a layer is named"),
        (lambda: loom.EarlyStopping(10**5000), "monitor must be the name of a log"),  # type: ignore[arg-type]
        (lambda: loom.TrainingConfig(early_stopping=10**5000), "must be an EarlyStopping"),  # type: ignore[arg-type]
        (lambda: loom.TrainingConfig(loss=nn.Dense(3)), "loss"),  # type: ignore[arg-type]
        (lambda: loom.TrainingConfig(metrics=[nn.Dense(3)]), "metric"),  # type: ignore[list-item]
        (lambda: loom.train(mlp(), blobs(), quiet(), callbacks=np.array(3.0)), "callbacks must be a list"),  # type: ignore[arg-type]
    ],
)
def test_odd_settings_are_refused_in_words(call: Callable[[], object], match: str) -> None:
    with pytest.raises(loom.LoomError, match=match):
        call()


def test_extents_and_sizes_of_any_kind_are_told_as_such() -> None:
    net = mlp().build()
    x = np.zeros((2, 6), np.float32)
    assert net.predict(x, batch_size=1 << 63).shape == net.predict(x).shape
    with pytest.raises(loom.ConfigError, match=r"batch_size must be below 2\*\*64"):
        net.predict(x, batch_size=1 << 64)
    with pytest.raises(loom.ConfigError, match="Reshape: shape must be a positive whole number"):
        nn.Reshape((np.arange(3), -1))  # type: ignore[arg-type]
