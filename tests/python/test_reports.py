"""What all reports share: dictionaries, JSON, frames, equality."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import loom
from loom.reports import Report, TabularReport


@dataclass(frozen=True, eq=False)
class Part(Report):
    share: float
    indices: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Whole(TabularReport):
    name: str
    best: float | None
    table: NDArray[np.float64]
    parts: tuple[Part, ...]
    counts: dict[str, int]
    labels: tuple[str, ...] | None = None

    def columns(self) -> dict[str, Any]:
        return {"share": [part.share for part in self.parts]}


floats = st.floats(width=64)
parts = st.builds(
    Part, share=floats, indices=st.lists(st.integers(0, 9)).map(lambda found: np.array(found, np.int64))
)
wholes = st.builds(
    Whole,
    name=st.text(),
    best=st.none() | floats,
    table=st.lists(st.lists(floats, min_size=2, max_size=2), min_size=1).map(np.array),
    parts=st.lists(parts).map(tuple),
    counts=st.dictionaries(st.text(), st.integers()),
    labels=st.none() | st.lists(st.text()).map(tuple),
)


@given(wholes)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_json_and_back(report: Whole) -> None:
    text = report.to_json()
    json.loads(text, parse_constant=lambda found: pytest.fail(f"{found} is not JSON"))
    again = Whole.from_json(text)
    assert again == report
    np.testing.assert_array_equal(again.table, report.table)
    assert again.table.dtype == np.float64
    assert all(part.indices.dtype == np.int64 for part in again.parts)
    assert isinstance(again.parts, tuple)


def test_what_is_no_report_is_refused() -> None:
    with pytest.raises(loom.SerializationError, match="no Part: Expecting"):
        Part.from_json("{")
    with pytest.raises(loom.SerializationError, match="no Part: the JSON text is no object"):
        Part.from_json("[1]")
    with pytest.raises(
        loom.SerializationError, match=r"a Part has the fields \['share', 'indices'\], got \['share'\]"
    ):
        Part.from_dict({"share": 1.0})
    with pytest.raises(loom.SerializationError, match="no Part: could not convert"):
        Part.from_dict({"share": "much", "indices": []})


def test_frames_of_both_libraries() -> None:
    part = Part(0.5, np.array([1]))
    report = Whole("x", None, np.zeros((1, 2)), (part, part), {})
    assert report.to_frame()["share"].tolist() == [0.5, 0.5]
    assert report.to_frame("polars")["share"].to_list() == [0.5, 0.5]
    with pytest.raises(loom.ConfigError, match="pandas"):
        report.to_frame("arrow")  # type: ignore[arg-type]


def test_reports_differ_by_what_they_hold() -> None:
    assert Part(0.5, np.array([1])) == Part(0.5, np.array([1]))
    assert Part(0.5, np.array([1])) != Part(0.5, np.array([2]))
    assert Part(float("nan"), np.array([1])) == Part(float("nan"), np.array([1]))
    assert Part(0.5, np.array([1])) != "a part"


def test_names_of_types_are_looked_through() -> None:
    from typing_extensions import TypeAliasType

    from loom.reports.base import _typed

    element = TypeVar("element", bound=np.generic)
    # As NumPy's NDArray is from 2.5 on.
    named = TypeAliasType("named", np.ndarray[Any, np.dtype[element]], type_params=(element,))
    for kind in (np.float64, np.int64):
        found = _typed(named[kind], [["1", "2"]] if kind is np.float64 else [[1, 2]])
        np.testing.assert_array_equal(found, np.array([[1, 2]], kind))
        assert found.dtype == kind
