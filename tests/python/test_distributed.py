"""Trainings that several processes share: the same bits whatever their number."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn

RANKS = (1, 2, 3, 4, 8)
RANDOM = np.random.default_rng(0)
TABLE = RANDOM.normal(size=(70, 6)).astype("float32")
KINDS = RANDOM.integers(0, 3, 70)
IMAGES = RANDOM.normal(size=(26, 1, 6, 6)).astype("float32")
TEXTS = [RANDOM.integers(0, 20, RANDOM.integers(1, 12)) for _ in range(40)]


def perceptron(**settings: Any) -> loom.Network:
    layers = [nn.Dense(12, activation="tanh"), nn.Dropout(0.2), nn.Dense(3)]
    return loom.Sequential(layers, input_shape=6, seed=1, **settings)


def norms() -> loom.Network:
    layers = [
        nn.Conv2D(4, kernel_size=3, activation="relu"),
        nn.BatchNorm(),
        nn.AdaptiveAvgPool2D(1),
        nn.Flatten(),
        nn.Dense(3),
    ]
    return loom.Sequential(layers, input_shape=(1, 6, 6), seed=1)


def reader() -> loom.Network:
    layers = [nn.Embedding(20, 6), nn.LSTM(8, return_sequences=True), nn.MultiHeadAttention(2)]
    return loom.Sequential([*layers, nn.SequencePool("mean"), nn.Dense(3)], input_shape=(None,), seed=1)


CASES: dict[str, tuple[Callable[[], loom.Network], Any]] = {
    "perceptron": (perceptron, (TABLE, KINDS)),
    "double": (lambda: perceptron(precision="float64"), (TABLE, KINDS)),
    "mixed": (lambda: perceptron(precision="mixed"), (TABLE, KINDS)),
    "weights": (perceptron, (TABLE, KINDS, np.linspace(0, 2, 70))),
    "batch norm": (norms, (IMAGES, KINDS[:26])),
    "lengths": (reader, (TEXTS, KINDS[:40])),
    "batches": (perceptron, [(TABLE[:33], KINDS[:33]), (TABLE[33:], KINDS[33:])]),
}
SETTINGS: dict[str, Any] = {
    "epochs": 2,
    "batch_size": 16,
    "loss": "cross_entropy",
    "gradient_clip": 1.0,
    "metrics": ["accuracy", "f1"],
    "verbose": False,
}


def trained(name: str, ranks: Any, **settings: Any) -> tuple[Any, ...]:
    make, data = CASES[name]
    net = make()
    config = loom.TrainingConfig(**{**SETTINGS, **settings})
    result = loom.train(net, data, config, distributed=ranks)
    return net.fingerprint(), net.to_bytes(optimizer=True), result.loss_history, result.metrics


@pytest.mark.parametrize("name", CASES)
def test_weights_moments_history_and_files_are_the_same_for_any_number(name: str) -> None:
    alone = trained(name, None, shards=8)
    for count in RANKS:
        for found in loom.distributed.threads(count, lambda ranks: trained(name, ranks, shards=8)):
            assert found[0] == alone[0], count
            assert found[1:] == alone[1:], count


@pytest.mark.parametrize("name", ["perceptron", "mixed", "batch norm"])
def test_gpus_of_one_kind_come_to_the_same_bits_whatever_their_number(gpu: str, name: str) -> None:
    alone = trained(name, None, shards=4, device=gpu)
    for count in (2, 4):
        for found in loom.distributed.threads(
            count, lambda ranks: trained(name, ranks, shards=4, device=gpu)
        ):
            assert found[0] == alone[0], count
            assert found[1:] == alone[1:], count
    processor = trained(name, None, shards=4, device="cpu")
    np.testing.assert_allclose(alone[2], processor[2], rtol=2e-3)


def test_gpus_without_rows_or_with_several_parts_of_the_tree_come_to_the_same_bits(gpu: str) -> None:
    # The last step has one row, and three ranks have shards that no part of the tree is made of.
    settings = {"batch_size": 23, "shards": 7, "device": gpu}
    alone = trained("perceptron", None, **settings)
    for count in (2, 3):
        found = loom.distributed.threads(count, lambda ranks: trained("perceptron", ranks, **settings))
        assert found == [alone] * count


def test_where_the_time_of_steps_goes_is_told_where_asked(gpu: str) -> None:
    def parts(ranks: Any, device: str) -> dict[str, list[float]]:
        config = loom.TrainingConfig(**SETTINGS, track_perf=True, shards=2, device=device)
        return loom.train(perceptron(), (TABLE, KINDS), config, distributed=ranks).step_parts

    for device in ("cpu", gpu):
        for found in loom.distributed.threads(2, lambda ranks, device=device: parts(ranks, device)):
            assert {len(seconds) for seconds in found.values()} == {2 * 5}
            assert min(min(found[name]) for name in ("forward", "backward", "meeting", "updating")) > 0
            # Weights of four bytes each, with what pads them.
            assert len(set(found["bytes"])) == 1
            assert 4 * 123 <= found["bytes"][0] <= 4 * 512
    config = loom.TrainingConfig(**SETTINGS, track_perf=True)
    assert loom.train(perceptron(), (TABLE, KINDS), config).step_parts == {}


OPTIMIZERS = {
    "adamw": loom.AdamW(),
    "lamb": loom.optimizers.LAMB(),
    "muon": loom.optimizers.Muon(),
    "adafactor": loom.optimizers.Adafactor(),
    "sgd": loom.optimizers.SGD(momentum=0.9),
}


@pytest.mark.parametrize("name", ["perceptron", "mixed", "batch norm"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_moments_that_ranks_hold_in_parts_change_no_bit(name: str, optimizer: str) -> None:
    settings = {"shards": 6, "optimizer": OPTIMIZERS[optimizer]}
    alone = trained(name, None, **settings)
    for count in (1, 2, 5):
        split = loom.distributed.threads(
            count, lambda ranks: trained(name, ranks, split_moments=True, **settings)
        )
        # Files are whole.
        assert split == [alone] * count


@pytest.mark.parametrize("parts", [{"split_moments": True}, {"split_moments": True, "split_gradients": True}])
def test_rates_change_while_ranks_hold_moments_in_parts(parts: dict[str, Any]) -> None:
    def run(ranks: Any, **more: Any) -> tuple[str, bytes, list[float]]:
        net = perceptron()
        config = loom.TrainingConfig(**{**SETTINGS, "epochs": 5, "shards": 4, "learning_rate": 0.1, **more})
        hook = loom.ReduceLROnPlateau(monitor="loss", patience=0, factor=0.5, min_delta=9.0)
        result = loom.train(net, (TABLE, KINDS), config, callbacks=[hook], distributed=ranks)
        assert hook.scale == 0.0625
        return net.fingerprint(), net.to_bytes(optimizer=True), result.loss_history

    alone = run(None)
    for count in (2, 3):
        assert loom.distributed.threads(count, lambda ranks: run(ranks, **parts)) == [alone] * count


def test_while_ranks_hold_moments_in_parts_nobody_saves_them_by_oneself() -> None:
    class Saves(loom.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.network.to_bytes()
            self.network.to_bytes(optimizer=True)

    def run(ranks: Any) -> None:
        config = loom.TrainingConfig(**{**SETTINGS, "split_moments": True})
        loom.train(perceptron(), (TABLE, KINDS), config, callbacks=[Saves()], distributed=ranks)

    with pytest.raises(loom.StateError, match="holds a part of the optimizer's moments"):
        loom.distributed.threads(2, run)


@pytest.mark.parametrize("action", ["raise", "skip"])
def test_a_step_that_cannot_land_is_taken_back_by_all_that_hold_a_part(action: Any) -> None:
    def run(ranks: Any, **more: Any) -> tuple[str, str]:
        net, message = perceptron(), ""
        given = {
            "optimizer": loom.optimizers.SGD(),
            "learning_rate": 1e38,
            "gradient_clip": None,
            "ignore_findings": "all",
        }
        config = loom.TrainingConfig(**{**SETTINGS, "shards": 4, "on_nonfinite": action, **given, **more})
        try:
            loom.train(net, (TABLE, KINDS), config, distributed=ranks)
        except loom.NonFiniteError as error:
            message = str(error)
        return net.fingerprint(), message

    alone = run(None)
    assert loom.distributed.threads(3, lambda ranks: run(ranks, split_moments=True)) == [alone] * 3


def test_several_processes_take_eight_shards_unless_told() -> None:
    alone = trained("perceptron", None, shards=8)[0]
    assert {
        found[0] for found in loom.distributed.threads(2, lambda ranks: trained("perceptron", ranks))
    } == {alone}


def test_one_shard_is_the_plain_training() -> None:
    plain = trained("double", None)
    found = trained("double", None, shards=1)
    assert found[0] == plain[0]
    assert found[2:] == plain[2:]


def test_gradients_of_shards_are_those_of_the_step() -> None:
    """Plain SGD in float64: cutting a step into shards changes nothing but rounding."""
    nets = []
    for shards in (None, 1, 5):
        net = loom.Sequential(
            [nn.Dense(8, activation="tanh"), nn.Dense(3)], input_shape=6, precision="float64"
        )
        optimizer = loom.optimizers.SGD()
        settings = {**SETTINGS, "optimizer": optimizer, "learning_rate": 0.1, "shards": shards}
        net.fit(TABLE, KINDS, sample_weight=np.linspace(0.5, 2, 70), **settings)
        nets.append(net.state_dict())
    for other in nets[1:]:
        for name, values in nets[0].items():
            np.testing.assert_allclose(other[name], values, rtol=0, atol=1e-13, err_msg=name)


def test_a_run_goes_on_with_another_number_of_ranks(tmp_path: Path) -> None:
    whole = trained("perceptron", None, shards=4, epochs=4)
    first = perceptron()
    config = loom.TrainingConfig(**{**SETTINGS, "shards": 4})
    loom.train(first, (TABLE, KINDS), config)
    first.save(tmp_path / "half.loom", optimizer=True)

    def rest(ranks: Any) -> str:
        net = loom.load(tmp_path / "half.loom")
        more = loom.TrainingConfig(**{**SETTINGS, "shards": 4, "epochs": 4})
        loom.train(net, (TABLE, KINDS), more, resume=True, distributed=ranks)
        return net.fingerprint()

    assert set(loom.distributed.threads(3, rest)) == {whole[0]}


def test_callbacks_of_ones_own_run_in_rank_0_and_all_stop_with_it() -> None:
    seen: list[tuple[int, int]] = []

    class Stop(loom.Callback):
        def __init__(self, rank: int) -> None:
            self.rank = rank

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append((self.rank, epoch))
            self.stop_training = epoch == 1

    def run(ranks: Any) -> int:
        config = loom.TrainingConfig(**{**SETTINGS, "epochs": 9})
        return len(
            loom.train(
                perceptron(), (TABLE, KINDS), config, callbacks=[Stop(ranks.rank)], distributed=ranks
            ).loss_history
        )

    assert loom.distributed.threads(3, run) == [2, 2, 2]
    assert seen == [(0, 0), (0, 1)]


@pytest.mark.parametrize("grain", [True, "steps"])
def test_every_rank_has_the_receipt(grain: Any) -> None:
    """Rank 0 alone had it, so that an unchanged script which saves it failed in the others."""

    def run(ranks: Any) -> loom.Receipt | None:
        config = loom.TrainingConfig(**SETTINGS, shards=4, device="cpu")
        return loom.train(perceptron(), (TABLE, KINDS), config, receipt=grain, distributed=ranks).receipt

    alone = run(None)
    assert alone is not None
    assert loom.distributed.threads(3, run) == [alone] * 3
    assert loom.reproduce(alone, (TABLE, KINDS)).matches


def test_what_each_process_does_by_itself_takes_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the first waited for the folder in vain."""
    monkeypatch.setattr("loom.training.sharing.current", Ranks)
    config = loom.TrainingConfig(loss="cross_entropy", verbose=False)
    trainer = loom.TweenTrainer(perceptron(), loom.TweenConfig(mode="chain_rule"))
    with pytest.raises(loom.ConfigError, match=r"learning by targets .* 9 processes.* leave run= out"):
        trainer.fit((TABLE, KINDS), config, run=tmp_path / "run")
    with pytest.raises(loom.ConfigError, match=r"train_stepping .* 9 processes.* leave run= out"):
        loom.train_stepping(loom.Mesh(perceptron()), [], run=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_processes_that_have_parted_say_why() -> None:
    """The first one said that a handle was closed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()[:2]
    messages: list[str] = []

    def run(rank: int) -> None:
        ranks = loom.distributed.Sockets(rank, 2, address, b"key")
        assert ranks.to_all(b"here") == [b"here"] * 2
        if rank == 0:
            ranks.fail("ConfigError: other settings")
        for _ in range(2):
            with pytest.raises(loom.StateError) as found:
                ranks.to_all(b"again")
            messages.append(str(found.value))

    workers = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(messages) == 4
    assert all("rank 0 could not go on: ConfigError: other settings" in message for message in messages)
    assert sum("together no more" in message for message in messages) == 3


@pytest.mark.parametrize("hook", ["on_train_begin", "on_train_batch_end", "on_test_begin", "on_epoch_end"])
def test_a_callback_that_interrupts_ends_all_after_the_same_step(hook: str) -> None:
    """The others waited for a step that never came."""

    def interrupt(*told: Any) -> None:
        raise KeyboardInterrupt

    def run(ranks: Any) -> tuple[str, str]:
        net = perceptron()
        config = loom.TrainingConfig(**SETTINGS, shards=4, validation_split=0.2)
        callbacks = [loom.LambdaCallback(**{hook: interrupt})]
        result = loom.train(net, (TABLE, KINDS), config, callbacks=callbacks, distributed=ranks)
        return net.fingerprint(), result.stop_reason

    found = loom.distributed.threads(3, run)
    assert found == [found[0]] * 3
    assert found[0][1] == "interrupted"


class Ranks:
    """A communicator of somebody's own, which is one process and says that it is one of two."""

    rank, size = 0, 9

    def to_each(self, parts: Sequence[bytes]) -> list[bytes]:
        raise AssertionError

    to_all = fail = to_each  # type: ignore[assignment]


def test_what_cannot_be_is_refused() -> None:
    config = loom.TrainingConfig(**SETTINGS)
    data = (TABLE, KINDS)
    with pytest.raises(loom.ConfigError, match="distributed"):
        loom.train(perceptron(), data, config, distributed="all")  # type: ignore[arg-type]
    with pytest.raises(loom.ConfigError, match="shards=9"):
        loom.train(perceptron(), data, config, distributed=Ranks())  # type: ignore[arg-type]
    with pytest.raises(loom.ConfigError, match="shards"):
        loom.TrainingConfig(shards=0)
    shards = loom.TrainingConfig(**{**SETTINGS, "shards": 2})
    with pytest.raises(loom.ConfigError, match="observe"):
        loom.train(perceptron(), data, shards, observe=True)


def test_ranks_that_were_started_with_other_data_are_told_apart() -> None:
    def run(ranks: Any) -> None:
        x = TABLE + ranks.rank
        loom.train(perceptron(), (x, KINDS), loom.TrainingConfig(**SETTINGS), distributed=ranks)

    with pytest.raises(loom.ConfigError, match=r"rank . and rank . differ: data\.input\.values"):
        loom.distributed.threads(2, run)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("mistake", ["labels", "callback"])
def test_an_error_in_one_rank_ends_all(mistake: str, device: str, request: pytest.FixtureRequest) -> None:
    device = request.getfixturevalue("gpu") if device == "gpu" else device

    class Fails(loom.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            raise RuntimeError("no space left")

    messages: list[str] = []

    def run(ranks: Any) -> None:
        kinds = np.where(mistake == "labels", KINDS + 1, KINDS)
        callbacks = [Fails()] if mistake == "callback" else []
        try:
            loom.train(
                perceptron(),
                (TABLE, kinds),
                loom.TrainingConfig(**SETTINGS, device=device),
                callbacks=callbacks,
                distributed=ranks,
            )
        except (RuntimeError, loom.LoomError) as error:
            messages.append(str(error))

    loom.distributed.threads(3, run)
    assert len(messages) == 3
    wanted = "out of range" if mistake == "labels" else "no space left"
    assert all(wanted in message for message in messages), messages


SCRIPT = """
import os, sys
import numpy as np, loom
from loom import nn
random = np.random.default_rng(0)
x, y = random.normal(size=(70, 6)), random.integers(0, 3, 70)
net = loom.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(3)], input_shape=6, seed=1)
if sys.argv[1:] == ["die"] and os.environ["LOOM_RANK"] == "1":
    loom.Network.fingerprint = lambda self: os._exit(9)
net.fit(x, y, epochs=2, batch_size=20, loss="cross_entropy", shards=4, verbose=False)
print(net.fingerprint())
"""


def launched(tmp_path: Path, count: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    line = [sys.executable, "-m", "loom", "launch", "-n", str(count), str(script), *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def test_launch_runs_an_unchanged_script_in_several_processes(tmp_path: Path) -> None:
    alone = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=True
    ).stdout.split()
    ended = launched(tmp_path, 3)
    assert ended.returncode == 0, ended.stderr
    # Processes may write into one line.
    assert "".join(ended.stdout.split()) == alone[0] * 3


@pytest.mark.skipif(sys.platform != "linux", reason="the MPI of the tests is Linux's")
def test_mpiexec_does_the_same(tmp_path: Path) -> None:
    mpiexec = Path(sys.executable).parent / "mpiexec"
    (tmp_path / "train.py").write_text(SCRIPT)
    found = []
    for line in ([sys.executable], [str(mpiexec), "-n", "3", sys.executable]):
        ended = subprocess.run(
            [*line, str(tmp_path / "train.py")], capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == 0, ended.stderr
        found.append("".join(ended.stdout.split()))
    assert found[1] == found[0] * 3


def test_a_process_that_dies_ends_the_others(tmp_path: Path) -> None:
    ended = launched(tmp_path, 3, "die")
    assert ended.returncode == 9
    assert "rank 1 has ended" in ended.stderr
