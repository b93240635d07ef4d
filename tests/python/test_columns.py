"""Tables: what becomes of columns, and that files keep it."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loom
from loom import nn
from loom.data import ColumnEncoder, columns

FRAME: dict[str, Any] = {
    "age": [30.0, None, 50.0, 40.0],
    "rooms": [1, 2, 3, 4],
    "city": ["Rome", None, "Oslo", "Rome"],
    "owner": [True, False, True, True],
    "zip": [150, 2, 150, 2],
    "price": ["high", "low", "high", "low"],
}


def pandas_frame() -> Any:
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(FRAME)


def polars_frame() -> Any:
    return pytest.importorskip("polars").DataFrame(FRAME)


def arrow_frame() -> Any:
    return pytest.importorskip("pyarrow").table(FRAME)


MAKERS = [lambda: FRAME, pandas_frame, polars_frame, arrow_frame]
IDS = ["dict", "pandas", "polars", "arrow"]


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_every_kind_of_frame_gives_the_same_table(make: Any) -> None:
    table = columns(make(), "price", categories=["zip"])
    assert table.encoder is not None
    assert table.encoder.features == (
        "age",
        "age is missing",
        "rooms",
        "city = Oslo",
        "city = Rome",
        "city is missing",
        "owner",
        "zip = 2",
        "zip = 150",
    )
    deviation = np.std([30, 50, 40])
    rooms = (np.arange(1, 5) - 2.5) / np.std([1, 2, 3, 4])
    expected = [
        [(30 - 40) / deviation, 0, rooms[0], 0, 1, 0, 1, 0, 1],
        [0, 1, rooms[1], 0, 0, 1, 0, 1, 0],
        [(50 - 40) / deviation, 0, rooms[2], 1, 0, 0, 1, 0, 1],
        [0, 0, rooms[3], 0, 1, 0, 1, 1, 0],
    ]
    np.testing.assert_allclose(table.x, np.array(expected, np.float32), rtol=1e-6, atol=1e-7)
    assert table.x.dtype == np.float32
    assert table.y.tolist() == FRAME["price"]
    assert table.width == 9


@pytest.mark.parametrize("make", MAKERS, ids=IDS)
def test_codes_and_dictionaries(make: Any) -> None:
    table = columns(make(), "price", categories=["zip"], inputs="dict", drop=["owner"])
    assert sorted(table.x) == ["city", "numbers", "zip"]
    assert table.x["city"].tolist() == [3, 0, 2, 3]
    assert table.x["zip"].tolist() == [3, 2, 3, 2]
    assert table.x["numbers"].shape == (4, 3)
    assert table.encoder is not None
    assert table.encoder.sizes == {"city": 4, "zip": 4}
    new = {"age": [1.0], "rooms": [1], "city": ["Lima"], "zip": [7]}
    assert (table.encoder(new)["city"].tolist(), table.encoder(new)["zip"].tolist()) == ([1], [1])
    assert table.encoder.has_made(table.x)
    assert not table.encoder.has_made(new)
    words = columns({"a": ["x", "y"], "y": [0, 1]}, "y", inputs="dict")
    assert words.encoder is not None
    assert words.encoder.has_made(words.x)
    assert not words.encoder.has_made({"a": np.array(["x"])})
    mixed = columns(make(), "price", categories=["zip"], inputs="codes")
    assert mixed.x[:, 3].tolist() == [3, 0, 2, 3]
    only = columns({"a": ["x", "y"], "y": [0, 1]}, "y", inputs="codes").x
    assert only.dtype == np.int64
    assert only.tolist() == [[2], [3]]


@pytest.mark.parametrize("inputs", ["matrix", "codes", "dict"])
def test_an_encoder_goes_to_json_and_back(inputs: str) -> None:
    encoder = columns(FRAME, "price", categories=["zip"], inputs=inputs).encoder
    assert encoder is not None
    again = ColumnEncoder.from_config(json.loads(json.dumps(encoder.to_config())))
    assert again == encoder
    first, second = encoder(FRAME), again(FRAME)
    if inputs == "dict":
        assert all((first[name] == second[name]).all() for name in first)
    else:
        np.testing.assert_array_equal(first, second)


@given(
    values=st.lists(st.one_of(st.none(), st.floats(-1e3, 1e3)), min_size=2, max_size=30),
    kinds=st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", "ü", ""])), min_size=30, max_size=30),
)
@settings(max_examples=30, deadline=None)
def test_columns_equal_what_numpy_says(values: list[float | None], kinds: list[str | None]) -> None:
    present = np.array([value for value in values if value is not None])
    if not len(present) or not any(kinds[: len(values)]):
        return
    kinds = kinds[: len(values)]
    frame = {"v": values, "k": kinds, "y": list(range(len(values)))}
    table = columns(frame, "y")
    scale = present.std() if present.std() > 0 else 1.0
    column = np.array([present.mean() if value is None else value for value in values])
    np.testing.assert_allclose(table.x[:, 0], (column - present.mean()) / scale, rtol=1e-4, atol=1e-4)
    blocks = table.x[:, 1:]
    if None in values:
        np.testing.assert_array_equal(blocks[:, 0], [value is None for value in values])
        blocks = blocks[:, 1:]
    known = sorted({kind for kind in kinds if kind is not None})
    for place, kind in enumerate(known):
        np.testing.assert_array_equal(blocks[:, place], [each == kind for each in kinds])
    assert blocks.shape[1] == len(known) + (None in kinds)


@pytest.mark.parametrize(
    ("change", "settings", "error", "message"),
    [
        ({}, {"target": "cost"}, loom.DataError, r'column in columns\(target=\) "cost"'),
        ({}, {"target": "prise"}, loom.DataError, 'did you mean "price"'),
        (
            {"when": np.array(["2020-01-01"] * 4, "datetime64[D]")},
            {},
            loom.DTypeError,
            "dates .* drop=\\['when'\\]",
        ),
        ({"odd": [1, "a", 2.0, None]}, {}, loom.DTypeError, "several types: float, int, str"),
        ({"price": ["a", None, "b", "a"]}, {}, loom.DataError, "no value in 1 rows, first in row 1"),
        ({"void": [None] * 4}, {}, loom.DataError, "'void' has no values at all"),
        ({"big": [1.0, np.inf, 0, 0]}, {}, loom.DataError, "infinite in row 1"),
        ({"age": [1.5, 2, 3, 4]}, {"categories": ["age"]}, loom.DTypeError, "categories and holds 1.5"),
        ({}, {"inputs": "rows"}, loom.ConfigError, 'inputs "rows"'),
        ({}, {"drop": 3}, loom.ConfigError, "drop must be names of columns, got 3"),
        ({"rooms": [1]}, {}, loom.DataError, "different lengths"),
        ({"rooms": 1}, {}, loom.DataError, r"'rooms' is one value .* \{'rooms': \[1\]\}"),
        ({"numbers": [1] * 4}, {"inputs": "dict"}, loom.DataError, "rename that column"),
    ],
)
def test_what_no_network_can_read_is_refused(
    change: dict[str, Any], settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        columns({**FRAME, **change}, **{"target": "price", **settings})


@pytest.mark.parametrize("make", MAKERS[1:], ids=IDS[1:])
def test_dates_of_every_package_are_refused(make: Any) -> None:
    import datetime

    frame = make()
    days = [datetime.datetime(2020, 1, day + 1) for day in range(4)]
    if hasattr(frame, "append_column"):
        frame = frame.append_column("when", [days])
    elif hasattr(frame, "with_columns"):
        polars = pytest.importorskip("polars")
        frame = frame.with_columns(polars.Series("when", days))
    else:
        frame = frame.assign(when=days)
    with pytest.raises(loom.DTypeError, match=r"'when' holds dates or times .* no quantity"):
        columns(frame, "price")
    assert columns(frame, "price", drop=["when"]).width > 0


def test_a_frame_that_lacks_columns_is_refused() -> None:
    encoder = columns(FRAME, "price").encoder
    assert encoder is not None
    with pytest.raises(loom.DataError, match="has no column 'age', 'city'"):
        encoder({"rooms": [1], "owner": [True], "zip": [1]})
    with pytest.raises(loom.DTypeError, match="'rooms': expected numbers"):
        encoder({**FRAME, "rooms": ["many"] * 4})


def table_of(rows: int, seed: int) -> dict[str, Any]:
    """Made of a rule: a flat costs much in Oslo, or if it is large; some numbers and cities are missing."""
    draw = np.random.default_rng(seed)
    city = draw.choice(["Oslo", "Rome", "Lima"], rows).astype(object)
    size = draw.normal(80, 25, rows)
    price = np.where((city == "Oslo") | (size > 100), "high", "low")
    city[draw.random(rows) < 0.05] = None
    size[draw.random(rows) < 0.05] = np.nan
    return {"city": city, "size": size, "lift": draw.random(rows) < 0.5, "price": price}


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_a_network_from_a_frame_predicts_names_from_a_raw_frame_elsewhere(
    tmp_path: Path, device: str
) -> None:
    pandas = pytest.importorskip("pandas")
    if device == "gpu" and not any(each.name != "cpu" for each in loom.devices()):
        pytest.skip("no GPU")
    frame = pandas.DataFrame(table_of(600, seed=1))
    held = pandas.DataFrame(table_of(200, seed=2))
    table = columns(frame, target="price")
    net = loom.Sequential([nn.Dense(16, activation="tanh"), nn.Dense(2)], input_shape=table.width, seed=0)
    net.fit(table, epochs=20, learning_rate=0.02, validation_data=(table.encoder(held), held["price"]),
            device=device, verbose=False)  # fmt: skip
    assert net.card.labels == ("high", "low")
    score = net.evaluate(held, metrics=["accuracy"])["accuracy"]
    assert score > 0.85
    net.save(tmp_path / "flats.loom")
    held.to_json(tmp_path / "held.json", orient="records")
    script = """
        import sys, json, numpy as np, pandas as pd, loom
        net = loom.load(sys.argv[1])
        frame = pd.read_json(sys.argv[2], orient="records")
        names = net.predict_classes(frame.drop(columns=["price"]))
        outputs = net.predict(frame).astype(float).tolist()
        print(json.dumps([names.tolist(), outputs, list(net.encoder.features)]))
    """
    arguments = [
        sys.executable,
        "-c",
        textwrap.dedent(script),
        tmp_path / "flats.loom",
        tmp_path / "held.json",
    ]
    told = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    names, outputs, features = json.loads(told)
    assert np.mean(np.array(names) == held["price"]) == pytest.approx(score)
    np.testing.assert_array_equal(np.array(outputs, np.float32), net.to("cpu").predict(held))
    assert tuple(features) == table.encoder.features


@pytest.mark.parametrize("precision", ["float32", "float64", "mixed"])
def test_tables_in_every_precision_and_deployed(tmp_path: Path, precision: Any) -> None:
    frame = table_of(100, seed=3)
    table = columns(frame, "price")
    net = loom.Sequential([nn.Dense(2)], input_shape=table.width, seed=0, precision=precision)
    net.fit(table, epochs=2, verbose=False)
    net.morph("int8").save(tmp_path / "small.loom", deploy=True)
    again = loom.load(tmp_path / "small.loom")
    np.testing.assert_array_equal(again.predict(frame), net.predict(frame))
    assert again.encoder == net.encoder
    # Whoever names the network anew takes nothing away.
    again.card = loom.ModelCard(license="MIT")
    assert again.encoder == net.encoder
    again.encoder = None
    assert again.encoder is None


def test_frames_without_an_encoder_are_refused_with_advice() -> None:
    frame = pandas_frame()
    net = loom.Sequential([nn.Dense(2)], input_shape=3)
    with pytest.raises(loom.DataError, match=r"table = loom\.data\.columns\(frame, target=\.\.\.\)"):
        net.fit(frame, epochs=1)


def test_weights_and_several_targets() -> None:
    frame = {"a": [1.0, 2.0, 3.0], "y": [1, 2, 3], "z": [0.5, 1.0, 2.0], "count": [1, 2, 1]}
    table = columns(frame, ["y", "z"], weight="count", scale=False)
    assert table.x.tolist() == [[1.0], [2.0], [3.0]]
    assert table.y.tolist() == [[1, 0.5], [2, 1.0], [3, 2.0]]
    assert np.asarray(table.weight).tolist() == [1, 2, 1]
    net = loom.Sequential([nn.Dense(2)], input_shape=1, seed=0)
    assert len(net.fit(table, epochs=3, verbose=False).loss_history) == 3


@pytest.mark.parametrize("rows", [10, 1000])
@pytest.mark.parametrize("value", [0.1, 0.3, 1e9 + 0.1, -37.7])
def test_a_column_of_one_number_is_divided_by_one(value: float, rows: int) -> None:
    """The mean of a thousand times 0.1 is a rounding off, and what is divided by that is 1e15."""
    table = columns({"a": np.full(rows, value), "y": np.arange(rows) % 2}, "y")
    assert np.abs(table.x).max() < 1e-5
    assert table.encoder({"a": [value + 1.0]}).item() == pytest.approx(1.0, rel=1e-5)
    narrow = columns({"a": [1e9, 1e9 + 0.001], "y": [0, 1]}, "y")
    assert np.asarray(narrow.x).ravel().tolist() == pytest.approx([-1.0, 1.0], rel=1e-3)


@pytest.mark.parametrize("learned", ["category", "Int64", "int64", "str", "float64"])
@pytest.mark.parametrize("asked", ["category", "Int64", "int64", "str", "float64"])
def test_a_category_is_the_same_as_text_and_as_number(learned: str, asked: str) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"shop": [3, 7, 11, 7, 3, 11], "sold": np.arange(6.0)})
    categories = [] if learned in ("category", "str") else ["shop"]
    table = loom.data.columns(frame.astype({"shop": learned}), target="sold", categories=categories)
    new = pandas.DataFrame({"shop": [7, 3, 12]}).astype({"shop": asked})
    found = loom.data.ColumnEncoder.from_config(table.encoder.to_config())(new)
    places = [name.rpartition(" ")[2] for name in table.encoder.features]
    wanted = [[float(place == shop) for place in places] for shop in ("7", "3", "12")]
    assert found.tolist() == wanted
    assert found[:2].sum() == 2.0
    assert found[2].sum() == 0.0


def test_gaps_of_pandas_own_kind() -> None:
    pandas = pytest.importorskip("pandas")
    held = [pandas.NA, "Oslo", None, "Rome"]
    frames = [
        pandas.DataFrame({"city": pandas.array(held, dtype="string"), "sold": np.arange(4.0)}),
        pandas.DataFrame({"city": np.array(held, object), "sold": np.arange(4.0)}),
        {"city": held, "sold": np.arange(4.0)},
    ]
    for frame in frames:
        table = loom.data.columns(frame, target="sold")
        assert table.encoder.features == ("city = Oslo", "city = Rome", "city is missing")
        assert table.encoder(frame).tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 1], [0, 1, 0]]
    net = loom.Sequential([nn.Dense(2)], input_shape=1)
    with pytest.raises(loom.DataError, match="label of row 0 is missing"):
        net.fit(np.ones((4, 1)), frames[0]["city"], verbose=False)
    with pytest.raises(loom.DataError, match="deviation is infinite"):
        loom.data.columns({"a": [1e300, -1e300], "sold": [0.0, 1.0]}, target="sold")


def test_a_network_with_named_inputs_keeps_how_a_table_was_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    frame = {
        "size": rng.normal(80, 20, 60),
        "city": rng.choice(["Oslo", "Rome", "Lima"], 60),
        "price": rng.choice(["high", "low"], 60),
    }
    table = columns(frame, "price", inputs="dict")
    cities = table.encoder.sizes["city"]
    net = loom.Network(inputs={"numbers": 1, "city": loom.Categories(cities)}, grid=(1, 3), seed=0)
    net.enter("city", (0, 1))[0, 1].add(nn.Embedding(cities, 3), nn.Flatten())
    net.link((0, 0), (0, 2), combine="concat")[0, 2].add(nn.Dense(2))
    result = net.fit(table, epochs=2, loss="cross_entropy", validation_data=frame, verbose=False)
    assert net.encoder == table.encoder
    net.save(tmp_path / "net.loom")
    again = loom.load(tmp_path / "net.loom")
    for each in (net, again):
        np.testing.assert_array_equal(each.predict(frame), net.predict(table.x))
        assert set(each.predict_classes(frame)) <= {"high", "low"}
    assert net.evaluate(frame) == net.evaluate(table) == net.evaluate((table.x, table.y))
    assert result.history["val_loss"][-1] == net.evaluate(table)["loss"]


def test_texts_that_no_two_rows_share_are_warned_of() -> None:
    days = [f"2020-{1 + day // 28:02}-{1 + day % 28:02}" for day in range(60)]
    frame = {"day": days * 2, "size": list(range(120)), "dear": [0, 1] * 60}
    with pytest.warns(UserWarning, match=r"'day' has 60 different texts in 120 rows.*drop=\['day'\]") as told:
        columns(frame, "dear")
    assert told[0].filename == __file__
    # These are meant, or many rows share them.
    assert columns(frame, "dear", categories=["day"]).width == 61
    assert columns(frame, "dear", drop=["day"]).width == 1
    assert columns({name: values * 5 for name, values in frame.items()}, "dear").width == 61
    assert columns({"day": days[:50], "dear": [0, 1] * 25}, "dear").width == 50


def test_a_table_is_shown_by_its_columns() -> None:
    assert repr(columns(FRAME, "price", drop=["zip"])) == (
        "Table(4 rows, columns age, rooms, city, owner, target price)"
    )
