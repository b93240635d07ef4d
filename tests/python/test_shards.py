"""What goes with shards: functions as metrics, stateful layers, gradients in parts and in few bits."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(64, 3, 4)).astype("float32")
Y = RANDOM.integers(0, 3, 64)
CONFIG: dict[str, Any] = {
    "epochs": 2,
    "batch_size": 16,
    "loss": "cross_entropy",
    "gradient_clip": 0.5,
    "verbose": False,
    "ignore_findings": "all",
}


def flat(**settings: Any) -> loom.Network:
    layers = [nn.Flatten(), nn.Dense(40, activation="tanh"), nn.Dense(24, activation="relu"), nn.Dense(3)]
    return loom.Sequential(layers, input_shape=(3, 4), seed=1, **settings)


def trained(ranks: Any, make: Any = flat, **settings: Any) -> tuple[Any, ...]:
    net = make()
    result = loom.train(net, (X, Y), loom.TrainingConfig(**{**CONFIG, **settings}), distributed=ranks)
    return net.fingerprint(), net.to_bytes(optimizer=True), result.loss_history, result.metrics


def same_for_any(counts: tuple[int, ...], **settings: Any) -> tuple[Any, ...]:
    alone = trained(None, **settings)
    for count in counts:
        found = loom.distributed.threads(count, lambda ranks: trained(ranks, **settings))
        assert [each[0] for each in found] == [alone[0]] * count
        assert found == [alone] * count
    return alone


def share_right(outputs: Any, targets: Any) -> float:
    assert len(outputs) == len(targets)
    return float((outputs.argmax(1) == targets).mean())


def test_functions_measure_all_rows_in_every_rank() -> None:
    metrics = ["accuracy", share_right]
    found = same_for_any((2, 3), shards=4, metrics=metrics)[3]
    assert found["share_right"] == pytest.approx(found["accuracy"])
    whole = trained(None, metrics=metrics)[3]
    assert found["share_right"] == pytest.approx(whole["share_right"], abs=0.1)


@pytest.mark.parametrize("loss", ["mse", "binary_cross_entropy", "cross_entropy"])
def test_functions_measure_what_counts_where_a_whole_shard_does_not(loss: str) -> None:
    counted: list[int] = []

    def count(outputs: Any, targets: Any) -> float:
        counted.append(len(targets))
        return float(len(outputs))

    target = Y if loss == "cross_entropy" else np.eye(3)[Y]
    weight = np.ones(64)
    weight[8:16] = 0
    settings = {**CONFIG, "loss": loss, "metrics": [count], "shards": 2, "shuffle": False}
    for accumulate in (1, 2):
        config = loom.TrainingConfig(**settings, accumulate=accumulate)
        result = loom.train(flat(), (X, target, weight), config)
        assert result.metrics["count"] == [56, 56]
    assert set(counted) == {56}


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_stateful_layers_carry_each_row_on_whoever_computes_it(kind: str) -> None:
    def make() -> loom.Network:
        recurrent = getattr(nn, kind)(5, stateful=True)
        return loom.Sequential([recurrent, nn.Dense(3)], input_shape=(3, 4), seed=1, precision="float64")

    settings = {"make": make, "shuffle": False, "gradient_clip": None, "optimizer": loom.optimizers.SGD()}
    alone = same_for_any((2, 4, 5), shards=5, **settings)
    # Of each row the state is its own, so that shards change nothing but rounding.
    np.testing.assert_allclose(alone[2], trained(None, **settings)[2], rtol=1e-12)


def test_a_manual_loop_behind_shards_begins_without_gradients() -> None:
    def moved(copied: bool) -> loom.Network:
        net = flat()
        loom.train(net, (X, Y), loom.TrainingConfig(**CONFIG, shards=4))
        net = copy.deepcopy(net) if copied else net
        net.backward(loom.losses.cross_entropy(net.forward(X), Y)[1])
        net.apply_gradients(1e-2)
        return net

    # A copy has none.
    assert moved(copied=False).fingerprint() == moved(copied=True).fingerprint()


def test_stateful_layers_on_gpus(gpu: str) -> None:
    def make() -> loom.Network:
        return loom.Sequential([nn.GRU(5, stateful=True), nn.Dense(3)], input_shape=(3, 4), seed=1)

    found = same_for_any((2,), make=make, shards=2, shuffle=False, device=gpu)
    processor = trained(None, make=make, shards=2, shuffle=False)
    np.testing.assert_allclose(found[2], processor[2], rtol=2e-3)


def test_a_network_that_was_put_on_a_gpu_learns_there(gpu: str) -> None:
    net = flat().to(gpu)
    loom.train(net, (X, Y), loom.TrainingConfig(**CONFIG, shards=2))
    assert str(net.device) == gpu
    assert net.fingerprint() == trained(None, shards=2, device=gpu)[0]
    by_itself = flat()
    loom.train(by_itself, (X, Y), loom.TrainingConfig(**CONFIG, shards=2))
    assert str(by_itself.device) == "cpu"


def test_what_shards_wait_in_on_a_gpu_goes_with_the_training(gpu: str) -> None:
    def held(shards: int) -> tuple[int, int]:
        net = loom.Sequential([nn.Flatten(), nn.Dense(400), nn.Dense(400), nn.Dense(3)], (3, 4), seed=1)
        during: list[int] = []
        config = loom.TrainingConfig(**CONFIG, shards=shards, device=gpu)
        note = loom.LambdaCallback(on_batch_end=lambda *_: during.append(loom.frame_statistics(gpu).memory))
        before = loom.frame_statistics(gpu).memory
        loom.train(net, (X, Y), config, callbacks=[note])
        return max(during) - before, loom.frame_statistics(gpu).memory - before

    # Of two shards one gradient waits, of eight up to three do, each as large as the weights.
    gradient = 4 * 400 * 400
    (during_two, after_two), (during_eight, after_eight) = held(2), held(8)
    assert during_eight > during_two + 1.8 * gradient
    assert after_two < during_two - 0.8 * gradient
    assert after_eight < during_eight - 2.8 * gradient


def test_shards_of_a_row_and_batch_norm_say_what_to_do() -> None:
    make = lambda: loom.Sequential([nn.Dense(5), nn.BatchNorm(), nn.Dense(3)], 12, seed=1)  # noqa: E731
    rows = X.reshape(64, 12)
    config = loom.TrainingConfig(**{**CONFIG, "batch_size": 6}, shards=4)
    with pytest.raises(loom.InvalidValueError, match="shard 0 of 4 has a single row") as raised:
        loom.train(make(), (rows, Y), config)
    assert "synchronized=True" in str(raised.value)
    whole = loom.Sequential([nn.Dense(5), nn.BatchNorm(synchronized=True), nn.Dense(3)], 12, seed=1)
    assert np.isfinite(loom.train(whole, (rows, Y), config).final_loss)


@pytest.mark.parametrize("precision", ["float32", "mixed", "float64"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon", "lamb"])
def test_gradients_that_ranks_hold_in_parts_change_no_bit(precision: str, optimizer: str) -> None:
    make = lambda: flat(precision=precision)  # noqa: E731
    settings = {"make": make, "shards": 6, "optimizer": optimizer}
    alone = trained(None, **settings)
    for count in (1, 2, 5, 6):
        split = loom.distributed.threads(
            count, lambda ranks: trained(ranks, **settings, split_gradients=True)
        )
        assert split == [alone] * count, count


def test_elements_of_gradients_in_parts_are_clipped_as_well() -> None:
    settings = {"shards": 2, "clip_value": 0.01, "gradient_clip": None}
    alone = trained(None, **settings)
    assert (
        loom.distributed.threads(2, lambda ranks: trained(ranks, **settings, split_gradients=True))
        == [alone] * 2
    )


@pytest.mark.parametrize("exchange", ["float16", "int8"])
@pytest.mark.parametrize("precision", ["float32", "mixed"])
def test_gradients_in_few_bits_are_the_same_for_any_number_and_near(exchange: Any, precision: str) -> None:
    make = lambda: flat(precision=precision)  # noqa: E731
    settings = {"make": make, "shards": 4, "epochs": 6, "learning_rate": 0.01}
    alone = same_for_any((2, 3, 4), exchange=exchange, **settings)
    plain = trained(None, **settings)
    assert alone[0] != plain[0]
    np.testing.assert_allclose(alone[2], plain[2], rtol=0.05)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(loom.ConfigError, match="exchange"):
        loom.TrainingConfig(exchange="int4")  # type: ignore[arg-type]
    with pytest.raises(loom.ConfigError, match="travel as they are"):
        loom.TrainingConfig(exchange="int8", split_gradients=True)


MEASURED = """
import os, re
import numpy as np, loom
from loom import nn

width, deep = 768, 12
layers = [nn.Dense(width, activation="tanh", bias=False) for _ in range(deep)]
net = loom.Sequential([*layers, nn.Dense(2)], input_shape=width, seed=1)
net.predict(np.zeros((1, width), "float32"))
random = np.random.default_rng(0)
data = random.normal(size=(8, width)).astype("float32"), random.integers(0, 2, 8)
config = loom.TrainingConfig(
    epochs=2, loss="cross_entropy", shards=4, split_moments="always", split_gradients=True,
    ignore_findings="all", verbose=False, device="cpu",
)
peak = lambda name: int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
before = peak("VmRSS")
loom.train(net, data, config)
grown = (peak("VmHWM") - before) / (4 * deep * width * width)
os.write(1, f"{net.fingerprint()[:16]} {grown:.2f}\\n".encode())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at memory in /proc")
def test_a_rank_of_four_has_no_memory_for_what_others_hold(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(MEASURED)
    environment = {**os.environ, "LOOM_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

    def run(count: int) -> dict[str, float]:
        line = [sys.executable, "-m", "loom", "launch", "-n", str(count), str(script)]
        ended = subprocess.run(
            line, capture_output=True, text=True, timeout=240, check=False, env=environment
        )
        assert ended.returncode == 0, ended.stderr
        found = [line.split() for line in ended.stdout.splitlines()]
        assert len({bits for bits, _ in found}) == 1
        return {bits: max(float(grown) for _, grown in found) for bits, _ in found}

    alone, four = run(1), run(4)
    assert alone.keys() == four.keys()
    # In multiples of the weights. Adam's moments are two and gradients one, of which a rank has a quarter.
    assert max(four.values()) + 1.25 < min(alone.values())
