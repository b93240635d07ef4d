"""Data that ranks read by shard: nobody reads what others compute, and the bits are those of one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loom
from loom import nn

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(131, 5)).astype("float32")
Y = RANDOM.integers(0, 3, 131)


class Watched:
    """An array that notes which rows are read."""

    def __init__(self, values: Any) -> None:
        self.values, self.read = values, np.zeros(len(values), int)
        self.shape, self.dtype = values.shape, values.dtype

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: Any) -> Any:
        self.read[rows] += 1
        return self.values[rows]


def trained(data: Any, ranks: Any, **changed: Any) -> tuple[Any, ...]:
    net = loom.Sequential([nn.Dense(6, activation="tanh"), nn.Dropout(0.2), nn.Dense(3)], 5, seed=1)
    given_settings = {"epochs": 2, "loss": "cross_entropy", "shards": 4, "verbose": False}
    config = loom.TrainingConfig(**{**given_settings, "metrics": ["accuracy"], **changed})
    result = loom.train(net, data, config, distributed=ranks)
    return net.fingerprint(), net.to_bytes(optimizer=True), result.loss_history, result.metrics


def table(path: Path) -> Path:
    """Row groups of very different lengths."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {f"c{number}": X[:, number] for number in range(5)}
    whole = arrow.table({**columns, "kind": Y})
    with parquet.ParquetWriter(path / "data.parquet", whole.schema) as writer:
        for start, end in ((0, 50), (50, 53), (53, 80), (80, 81), (81, 120), (120, 131)):
            writer.write_table(whole.slice(start, end - start))
    return path / "data.parquet"


def told(epoch: int, shard: int, shards: int) -> Iterator[Any]:
    """The later shards have fewer rows, and the last of four none in the second epoch."""
    rows = np.arange(131)[shard::shards][: 30 - 9 * shard - 9 * epoch]
    for start in range(0, len(rows), 7):
        yield X[rows[start : start + 7]], Y[rows[start : start + 7]]


def sources(path: Path) -> dict[str, Any]:
    np.save(path / "x.npy", X)
    file = table(path)
    return {
        "arrays": lambda: loom.data.stream(X, Y, batch_size=16, window=32),
        "mapped": lambda: loom.data.stream(path / "x.npy", Y, batch_size=10, workers=2),
        "in order": lambda: loom.data.stream(X, Y, batch_size=9, shuffle=False),
        "columns": lambda: loom.data.column_files(file, "kind", batch_size=12),
        "function": lambda: loom.data.generate(told, batch_size=8),
    }


@pytest.mark.parametrize("name", ["arrays", "mapped", "in order", "columns", "function"])
def test_bits_are_a_matter_of_the_shards_alone(tmp_path: Path, name: str) -> None:
    make = sources(tmp_path)[name]
    alone = trained(loom.data.by_shard(make()), None)
    for count in (2, 3, 4):
        found = loom.distributed.threads(count, lambda ranks: trained(loom.data.by_shard(make()), ranks))
        assert [each[0] for each in found] == [alone[0]] * count
        assert found == [alone] * count


def test_each_rank_reads_its_own_rows_and_all_read_all() -> None:
    def run(ranks: Any) -> Any:
        x, y = Watched(X), Watched(Y)
        data = loom.data.by_shard(loom.data.stream(x, y, batch_size=16))
        # What tells data from other data is of its ends, and the first window is looked at before.
        list(data.of_shard(4 // ranks.size * ranks.rank, 4))
        x.read[:] = 0
        trained(data, ranks, epochs=1)
        return x.read

    for count in (1, 2, 4):
        read = np.array(loom.distributed.threads(count, run))
        ends = np.r_[0:4, 127:131]
        shared = (read > 0).sum(0)
        shared[ends] = 1
        if count == 4:
            assert (shared == 1).all()
        assert (read.sum(0) > 0).all()


@settings(deadline=None)
@given(st.integers(1, 200), st.integers(1, 9), st.integers(9, 40), st.integers(0, 3), st.booleans())
def test_every_row_comes_once_an_epoch_whatever_the_shards(
    rows: int, shards: int, batch_size: int, epoch: int, shuffle: bool
) -> None:
    numbers = np.arange(rows)
    data = loom.data.stream(numbers[:, None], numbers, batch_size=batch_size, shuffle=shuffle, seed=7)
    found, steps = [], 0
    for shard in range(shards):
        part = data.of_shard(shard, shards)
        part.set_epoch(epoch)
        batches = [batch.target for batch in part]
        most = batch_size * (shard + 1) // shards - batch_size * shard // shards
        assert all(len(batch) <= most for batch in batches)
        # From the middle on it is the same.
        part.load_state_dict({"epoch": epoch, "batch": len(batches) // 2})
        rest = [batch.target for batch in part]
        assert [each.tolist() for each in rest] == [each.tolist() for each in batches[len(batches) // 2 :]]
        found += [number for batch in batches for number in batch.tolist()]
        steps = max(steps, len(batches))
    assert sorted(found) == numbers.tolist()
    assert data.steps_by_shard(epoch, shards) == steps


def test_a_run_in_a_folder_goes_on_with_other_ranks(tmp_path: Path) -> None:
    def data() -> Any:
        return loom.data.by_shard(loom.data.stream(X, Y, batch_size=16, seed=3))

    class Ends(loom.Callback):
        def __init__(self) -> None:
            self.left = 13

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.left -= 1
            if self.left == 0:
                raise RuntimeError("enough")

    def run(ranks: Any, *callbacks: Any) -> str:
        net = loom.Sequential([nn.Dense(3)], 5, seed=1)
        config = loom.TrainingConfig(epochs=3, loss="cross_entropy", shards=4, verbose=False)
        folder = (
            loom.RunFolder(tmp_path / "run", every_steps=2, background=False) if callbacks != (1,) else None
        )
        hooks = [] if callbacks == (1,) else list(callbacks)
        loom.train(net, data(), config, callbacks=hooks, run=folder, distributed=ranks)
        return net.fingerprint()

    whole = run(None, 1)
    with pytest.raises((RuntimeError, loom.StateError)):
        loom.distributed.threads(3, lambda ranks: run(ranks, Ends()))
    assert loom.distributed.threads(2, run) == [whole] * 2


def test_an_error_in_the_rows_of_one_rank_is_told_to_all() -> None:
    def broken(epoch: int, shard: int, shards: int) -> Iterator[Any]:
        for number in range(3):
            yield X[:4], Y[:4] + (9 if shard == 3 and number == 2 else 0)

    messages = []

    def run(ranks: Any) -> None:
        try:
            trained(loom.data.by_shard(loom.data.generate(broken, batch_size=16)), ranks)
        except loom.LoomError as error:
            messages.append(str(error))

    loom.distributed.threads(2, run)
    assert len(messages) == 2
    assert all("out of range" in message for message in messages)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(loom.DataError, match="of_shard"):
        loom.data.by_shard([(X, Y)])  # type: ignore[arg-type]
    data = loom.data.by_shard(loom.data.stream(X, Y, batch_size=3))
    with pytest.raises(loom.ConfigError, match="too small for 4 shards"):
        trained(data, None)
    with pytest.raises(loom.ConfigError, match="three arguments"):
        trained(loom.data.by_shard(loom.data.generate(lambda: [(X, Y)])), None)
    with pytest.raises(loom.ConfigError, match="accumulate=1"):
        trained(loom.data.by_shard(loom.data.stream(X, Y)), None, accumulate=2)
    # Whole steps are those of the data itself.
    plain = trained(loom.data.stream(X, Y), None, shards=None)
    assert trained(loom.data.by_shard(loom.data.stream(X, Y)), None, shards=None)[0] == plain[0]
