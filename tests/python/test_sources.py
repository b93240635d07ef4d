"""Data that is larger than memory, or of other packages."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loom
from loom import nn
from loom.data import column_files, generate, samples, stream
from test_columns import table_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(70, 3)).astype(np.float32)
Y = (X @ [1.0, -2.0, 0.5]).astype(np.float32)


def net(**settings: Any) -> loom.Network:
    return loom.Sequential([nn.Dense(1)], input_shape=3, seed=0, **settings)


def rows(data: Any, epoch: int = 0) -> list[int]:
    """The rows that an epoch gives, by their targets."""
    data.set_epoch(epoch)
    order = np.argsort(Y)
    found = []
    for batch in data:
        target = np.asarray(batch.target)
        places = order[np.searchsorted(Y[order], target)]
        np.testing.assert_array_equal(np.asarray(batch.input), X[places])
        found += places.tolist()
    return found


@given(
    batch=st.integers(1, 20),
    window=st.one_of(st.none(), st.integers(1, 100)),
    shuffle=st.booleans(),
    workers=st.sampled_from([0, 2]),
    start=st.integers(0, 100),
)
@settings(max_examples=60, deadline=None)
def test_an_epoch_has_every_row_once_and_goes_on_anywhere(
    batch: int, window: int | None, shuffle: bool, workers: int, start: int
) -> None:
    def make(workers: int = workers) -> Any:
        return stream(X, Y, batch_size=batch, window=window, shuffle=shuffle, workers=workers, seed=3)

    data = make()
    whole = rows(data, epoch=2)
    assert sorted(whole) == list(range(70))
    if not shuffle:
        assert whole == list(range(70))
    assert len(data) == -(-70 // batch)
    assert rows(make(0), epoch=2) == whole
    at = start % len(data)
    again = make()
    again.load_state_dict({"epoch": 2, "batch": at})
    assert rows(again, epoch=2) == whole[at * batch :]
    assert again.state_dict() == {"epoch": 2, "batch": len(data)}


def test_orders_differ_by_epoch_and_seed() -> None:
    data = stream(X, Y, window=20, batch_size=5)
    assert rows(data, 0) != rows(data, 1)
    assert rows(data, 0) == rows(stream(X, Y, window=20, batch_size=5), 0)
    assert rows(data, 0) != rows(stream(X, Y, window=20, batch_size=5, seed=1), 0)
    # Pieces of the whole are shuffled, too, and not only rows within a window.
    assert max(rows(data, 0)[:20]) - min(rows(data, 0)[:20]) > 30


def test_files_and_mapped_arrays_and_views_of_them(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for x in (tmp_path / "x.npy", str(tmp_path / "x.npy"), mapped, X.tolist()):
        assert sorted(rows(stream(x, tmp_path / "y.npy", batch_size=8))) == list(range(70))
    copied = np.load(tmp_path / "x.npy", mmap_mode="c")
    copied[3] = 7
    assert 7 in np.concatenate(
        [np.asarray(batch.input) for batch in stream(copied, Y, window=10, batch_size=10)]
    )
    series, ahead = loom.data.windows(mapped, 4, target=0)
    net_ = loom.Sequential([nn.Flatten(), nn.Dense(1)], input_shape=(4, 3), seed=0)
    streamed = net_.fit(stream(series, ahead, batch_size=11, shuffle=False), epochs=2, verbose=False)
    plain = loom.Sequential([nn.Flatten(), nn.Dense(1)], input_shape=(4, 3), seed=0)
    listed = [(series[at : at + 11], ahead[at : at + 11]) for at in range(0, 66, 11)]
    assert streamed.loss_history == plain.fit(listed, epochs=2, verbose=False).loss_history


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda path: stream(path / "none.npy", Y), "none.npy"),
        (lambda path: stream(X, Y[:5]), "same number of rows, and at least one; got x: 70, y: 5"),
        (lambda path: stream(X, Y, window=0), "window must be"),
        (lambda path: stream(path / "text.npy", Y), "text.npy is no .npy file"),
        (lambda path: generate([1, 2]), "takes a function"),
        (lambda path: list(generate(lambda: [3])), "expected batches .* got int"),
        (lambda path: list(generate(list)), "there are no rows"),
        (lambda path: samples(3), r"takes what has len\(\)"),
        (lambda path: samples([]), "is empty"),
        (lambda path: list(samples([1, 2])), r"sample \d is no \(x, y\)"),
        (lambda path: samples([{"a": 1, "b": 2}]), "which column is told"),
        (lambda path: samples([{"a": 1, "b": 2, "label": 3}]), "which column is read"),
        (
            lambda path: list(samples([([1], 1), ([1, 2], 1)], shuffle=False)),
            r"shape \(1,\), and that of sample 1",
        ),
    ],
)
def test_what_gives_no_batches_is_refused(tmp_path: Path, call: Any, message: str) -> None:
    (tmp_path / "text.npy").write_text("not an array")
    with pytest.raises(loom.LoomError, match=message):
        call(tmp_path)


def test_a_function_s_rows_become_batches() -> None:
    calls: list[int] = []

    def pieces(epoch: int) -> Iterator[Any]:
        calls.append(epoch)
        for at in range(0, 70, 9):
            yield X[at : at + 9], Y[at : at + 9]

    data = generate(pieces, batch_size=8, rows=70, shuffle=True, window=32)
    assert sorted(rows(data, 4)) == list(range(70))
    assert rows(data, 4) != rows(data, 5)
    assert calls[0] == 4
    result = net().fit(data, epochs=3, schedule="cosine", verbose=False)
    assert len(result.loss_history) == 3
    with pytest.raises(loom.ConfigError, match="no len"):
        net().fit(generate(pieces, batch_size=8), epochs=2, schedule="cosine", verbose=False)


class Breaks(loom.Callback):
    def __init__(self, steps: int) -> None:
        self.left = steps

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


class Pairs:
    """A data set as PyTorch has them."""

    def __len__(self) -> int:
        return 70

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        if not 0 <= row < 70:
            raise IndexError(row)
        return X[row], Y[row]


def sources(folder: Path) -> dict[str, Any]:
    np.save(folder / "x.npy", X)
    return {
        "stream": lambda: stream(folder / "x.npy", Y, batch_size=8, window=24, seed=2),
        "generate": lambda: generate(
            lambda: [(X[:33], Y[:33]), (X[33:], Y[33:])], batch_size=8, shuffle=True, window=24
        ),
        "samples": lambda: samples(Pairs(), batch_size=8, seed=2),
        "as it is": Pairs,
    }


@pytest.mark.parametrize("kind", ["stream", "generate", "samples", "as it is"])
def test_runs_go_on_within_an_epoch(tmp_path: Path, kind: str) -> None:
    make = sources(tmp_path)[kind]
    options: Any = {"epochs": 3, "learning_rate": 0.05, "batch_size": 8, "verbose": False}
    plain = net()
    plain.fit(make(), **options)
    keep = loom.RunFolder(tmp_path / "run", every_steps=1, background=False)
    for steps in (4, 9, None):
        kept = net()
        result = kept.fit(make(), **options, run=keep, callbacks=[] if steps is None else [Breaks(steps)])
        assert result.interrupted == (steps is not None)
    assert kept.state_dict().keys() == plain.state_dict().keys()
    for name, value in plain.state_dict().items():
        np.testing.assert_array_equal(kept.state_dict()[name], value)


def test_data_sets_as_they_are(tmp_path: Path) -> None:
    network = net()
    network.fit(Pairs(), epochs=30, learning_rate=0.1, batch_size=8, verbose=False)
    assert network.evaluate(Pairs())["loss"] < 0.01
    assert network.evaluate(Pairs())["loss"] == pytest.approx(network.evaluate((X, Y))["loss"], rel=1e-5)
    assert loom.analysis.regression(network, Pairs()).residuals.shape == (70, 1)

    class Features:
        """As Hugging Face's: samples are dictionaries, and it can be iterated."""

        column_names = ("pixels", "label")

        class _Label:
            names = ("dark", "bright")

        features: ClassVar[Any] = {"pixels": None, "label": _Label}

        def __len__(self) -> int:
            return 40

        def __iter__(self) -> Iterator[Any]:
            return (self[row] for row in range(40))

        def __getitem__(self, row: int) -> dict[str, Any]:
            return {"pixels": [float(row >= 20), 1.0], "label": int(row >= 20)}

    named = loom.Sequential([nn.Dense(2)], input_shape=2, seed=0)
    named.fit(Features(), epochs=60, learning_rate=0.1, verbose=False)
    assert named.predict_classes([[0.0, 1.0], [1.0, 1.0]]).tolist() == ["dark", "bright"]


def test_torch_s_data_sets_and_loaders() -> None:
    torch = pytest.importorskip("torch")
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    indexed, loaded, plain = net(), net(), net()
    indexed.fit(dataset, epochs=2, shuffle=False, batch_size=16, verbose=False)
    loaded.fit(torch.utils.data.DataLoader(dataset, batch_size=16), epochs=2, verbose=False)
    plain.fit(X, Y, epochs=2, shuffle=False, batch_size=16, verbose=False)
    for other in (indexed, loaded):
        np.testing.assert_array_equal(other.layers[0].weight, plain.layers[0].weight)


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_s_data_sets() -> None:
    datasets, arrow = pytest.importorskip("datasets"), pytest.importorskip("pyarrow")
    features = datasets.Features(
        {
            "x": datasets.Sequence(datasets.Value("float32")),
            "label": datasets.ClassLabel(names=["low", "high"]),
        }
    )
    columns = arrow.table({"x": X.tolist(), "label": (Y > 0).astype(int).tolist()}).cast(
        features.arrow_schema
    )
    # Not from_dict, which pickles modules of pyarrow's for a fingerprint.
    about = datasets.DatasetInfo(features=features)
    found = datasets.Dataset(datasets.table.InMemoryTable(columns), info=about, fingerprint="0")
    network = loom.Sequential([nn.Dense(2)], input_shape=3, seed=0)
    network.fit(found, epochs=30, learning_rate=0.1, verbose=False)
    assert np.mean(network.predict_classes(X) == np.where(Y > 0, "high", "low")) > 0.9


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("workers", [0, 2])
def test_tables_in_files(tmp_path: Path, kind: str, workers: int) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    whole = {name: list(values) for name, values in table_of(9000, seed=1).items()}
    parts = [{name: values[at : at + 4500] for name, values in whole.items()} for at in (0, 4500)]
    for number, part in enumerate(parts):
        table = arrow.table({**part, "size": arrow.array(part["size"], from_pandas=True)})
        file = tmp_path / f"{number}.{kind}"
        if kind == "parquet":
            parquet.write_table(table, file, row_group_size=1500 if number else 4500)
        else:
            with arrow.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table, max_chunksize=2000)
    data = column_files(tmp_path, "price", batch_size=64, window=1024, workers=workers)
    expected = loom.data.columns(whole, "price")
    assert expected.encoder is not None
    assert data.encoder.features == expected.encoder.features
    read = np.concatenate([np.asarray(batch.input) for batch in data])
    assert read.shape == expected.x.shape
    order, wanted = np.lexsort(read.T), np.lexsort(expected.x.T)
    np.testing.assert_allclose(read[order], expected.x[wanted], rtol=1e-4, atol=1e-5)
    again = column_files(tmp_path, "price", batch_size=64, window=1024, encoder=data.encoder)
    again.load_state_dict({"epoch": 0, "batch": 37})
    rest = np.concatenate([np.asarray(batch.input) for batch in again])
    np.testing.assert_array_equal(rest, read[37 * 64 :])
    network = loom.Sequential([nn.Dense(16, activation="tanh"), nn.Dense(2)], input_shape=data.width, seed=0)
    network.fit(data, epochs=3, learning_rate=0.02, verbose=False)
    assert network.card.labels == ("high", "low")
    held = table_of(300, seed=2)
    assert network.evaluate(held, metrics=["accuracy"])["accuracy"] > 0.85
    (tmp_path / f"9.{kind}").write_bytes(b"nothing")
    with pytest.raises(loom.SerializationError, match="no Parquet or Arrow file"):
        column_files(tmp_path, "price")


def test_tables_in_files_as_dictionaries(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    whole = {name: list(values) for name, values in table_of(2000, seed=1).items()}
    table = arrow.table({**whole, "size": arrow.array(whole["size"], from_pandas=True)})
    parquet.write_table(table, tmp_path / "0.parquet", row_group_size=500)
    data = column_files(tmp_path, "price", inputs="dict", batch_size=64, shuffle=False)
    expected = loom.data.columns(whole, "price", inputs="dict")
    assert expected.encoder is not None
    names = data.encoder.names
    assert names[0] == "numbers"
    assert set(names) == set(expected.x)
    batches = list(data)
    for name in names:
        found = np.concatenate([np.asarray(batch.input[name]) for batch in batches])  # type: ignore[call-overload]
        np.testing.assert_allclose(found, expected.x[name], rtol=1e-5, atol=1e-6)

    net = loom.Network(
        inputs={
            "numbers": len(data.encoder.features),
            **{name: loom.Categories(size) for name, size in data.encoder.sizes.items()},
        },
        grid=(1, len(names) + 1),
        seed=0,
    )
    for place, (name, size) in enumerate(data.encoder.sizes.items(), 1):
        net.enter(name, (0, place))[0, place].add(nn.Embedding(size, 3), nn.Flatten())
    for place in range(len(names) - 1):
        net.link((0, place), (0, len(names)), combine="concat")
    net[0, len(names)].add(nn.Dense(16, activation="tanh"), nn.Dense(2))
    shuffled = column_files(tmp_path, "price", inputs="dict", batch_size=64, encoder=data.encoder)
    targets = {"low": 0, "high": 1}
    coded = [(batch.input, [targets[label] for label in batch.target]) for batch in shuffled]  # type: ignore[union-attr]
    net.fit(coded, epochs=8, loss="cross_entropy", learning_rate=0.02, verbose=False)
    assert net.evaluate(coded, metrics=["accuracy"])["accuracy"] > 0.85


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
@pytest.mark.parametrize("workers", [0, 2])
def test_data_of_three_times_the_memory_is_learned_from(tmp_path: Path, workers: int) -> None:
    limit = 144 << 20
    width = 4096
    count = 3 * limit // (4 * width)
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (count, width))
    x[::97, :8] = 1
    del x
    np.save(tmp_path / "y.npy", (np.arange(count) % 97 == 0).astype(np.int64))
    assert (tmp_path / "x.npy").stat().st_size >= 3 * limit
    script = """
        import sys, json, loom
        from loom import nn
        settings = {"batch_size": 128, "window": 1024, "workers": int(sys.argv[3])}
        data = loom.data.stream(sys.argv[1], sys.argv[2], **settings)
        net = loom.Sequential([nn.Dense(2)], input_shape=4096)
        config = loom.TrainingConfig(epochs=1, device="cpu", verbose=False, ignore_findings="all")
        result = net.fit(data, config)
        lines = open("/proc/self/status").read().splitlines()
        peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
        print(json.dumps([peak * 1024, result.loss_history[-1], len(data)]))
    """
    arguments = [
        sys.executable,
        "-c",
        textwrap.dedent(script),
        tmp_path / "x.npy",
        tmp_path / "y.npy",
        str(workers),
    ]
    told = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    peak, loss, batches = json.loads(told)
    assert batches == -(-count // 128)
    assert np.isfinite(loss)
    assert peak < limit, f"{peak >> 20} MiB"


def by_name() -> tuple[dict[str, Any], dict[str, Any]]:
    rng = np.random.default_rng(3)
    x = {"table": rng.normal(size=(40, 3)), "shop": rng.integers(0, 5, 40)}
    return x, {"kind": rng.integers(0, 3, 40), "age": rng.normal(size=40)}


def of_rows(part: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {name: each[rows] for name, each in part.items()}


class ByName:
    """A data set whose samples are pairs of dictionaries."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, row: int) -> Any:
        x, y = by_name()
        return of_rows(x, row), of_rows(y, row)


@pytest.mark.parametrize("shuffle", [False, True])
def test_sources_of_dictionaries_learn_what_arrays_by_name_do(tmp_path: Path, shuffle: bool) -> None:
    x, y = by_name()
    weight = np.linspace(0.5, 2, 40)

    def network() -> loom.Network:
        net = loom.Network(
            inputs={"table": 3, "shop": loom.Categories(5)}, grid=(1, 4), precision="float64", seed=1
        )
        net.enter("shop", (0, 1))[0, 1].add(nn.Embedding(5, 3), nn.Flatten())
        net.link((0, 0), (0, 2), combine="add")[0, 2].add(nn.Dense(3))
        net.link((0, 0), (0, 3), combine="replace")[0, 3].add(nn.Dense(1))
        return net.output("kind", (0, 2)).output("age", (0, 3))

    def learned(data: Any) -> str:
        net = network()
        loss = {"kind": "cross_entropy", "age": "mse"}
        settings: Any = {"metrics": {"kind": ["accuracy"]}, "shuffle": False, "verbose": False}
        loom.train(net, data, loom.TrainingConfig(epochs=2, batch_size=8, loss=loss, **settings))
        return net.fingerprint()

    def pairs() -> Iterator[Any]:
        for start in range(0, 40, 5):
            rows = slice(start, start + 5)
            yield of_rows(x, rows), of_rows(y, rows), weight[rows]

    np.save(tmp_path / "table.npy", x["table"])
    given: Any = {"batch_size": 8, "shuffle": shuffle, "seed": 4}
    streams = [
        loom.data.stream({**x, "table": tmp_path / "table.npy"}, y, weight, **given),
        loom.data.stream(x, y, weight, workers=2, **given),
        loom.data.generate(pairs, rows=40, **given),
    ]
    found = list(map(learned, streams))
    assert found[0] == found[1]
    assert loom.data.stream(x, y, **given).identity() != loom.data.stream(x["table"], y["age"]).identity()
    sampled = [loom.data.samples(ByName(), workers=workers, **given) for workers in (0, 2)]
    assert learned(sampled[0]) == learned(sampled[1])
    if not shuffle:
        assert found[0] == found[2] == learned((x, y, weight))
        assert learned(sampled[0]) == learned(ByName()) == learned((x, y))
    first = next(iter(streams[2]))
    assert set(first.target) == {"kind", "age"}


def test_sources_of_dictionaries_say_what_is_wrong() -> None:
    x, y = by_name()
    with pytest.raises(loom.DataError, match=r'x "shop": 39'):
        loom.data.stream({**x, "shop": x["shop"][1:]}, y)

    def changing() -> Iterator[Any]:
        yield x, y
        yield x["table"], y

    with pytest.raises(loom.DataError, match="batch 1 has other parts or names"):
        list(loom.data.generate(changing))
    with pytest.raises(loom.ConfigError, match="augment= is of images alone"):
        list(loom.data.stream(x, y, augment=loom.data.Augment(flip=0.5)))

    class Changing(ByName):
        def __getitem__(self, row: int) -> Any:
            of_x, of_y = super().__getitem__(row)
            return of_x, of_y if row else {"kind": 0}

    with pytest.raises(loom.DataError, match="target of sample 1 has other names"):
        list(loom.data.samples(Changing(), shuffle=False))


def test_sources_say_what_they_hold(tmp_path: Path) -> None:
    assert repr(stream(X, Y, batch_size=16, shuffle=False)) == (
        "ArrayStream(70 rows, arrays (70, 3) and (70,), batches of 16, in order)"
    )
    data = samples([(X[0], 0), (X[1], 1)], classes=["no", "yes"])
    assert repr(data) == "Samples(2 rows, 2 classes (no, yes), batches of 32, shuffled)"
    told = generate(lambda: iter([(X, Y)]))
    assert repr(told) == "Generated(rows that nobody has counted, batches of 32, in order)"
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({f"c{n}": [0.5, 1.5] for n in range(7)})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "t.parquet")
    found = column_files(tmp_path / "t.parquet", target="c6", batch_size=2)
    assert repr(found) == "ColumnStream(2 rows, columns c0, c1, c2, c3, c4, ..., batches of 2, shuffled)"
