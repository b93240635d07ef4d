"""Numeric types by what they cost: sensitivities against NumPy, choices against all there are."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import loom
from loom import analysis, nn
from loom.reports.bit_search import best_choices
from networks import quiet, stripes

TYPES = ("float32", "bfloat16", "int8", "uint4", "ternary", "binary")


def perceptron(precision: str = "float32", seed: int = 0) -> loom.Network:
    layers = [nn.Dense(12, activation="tanh"), nn.LayerNorm(), nn.Dense(6, activation="tanh"), nn.Dense(4)]
    return loom.Sequential([nn.Flatten(), *layers], input_shape=(1, 8, 8), precision=precision, seed=seed)


def trained(seed: int = 0) -> loom.Network:
    net = perceptron(seed=seed)
    net.fit(stripes(), quiet(epochs=6, learning_rate=1e-2, device="cpu"))
    return net


# The search, where drops add up


def tables() -> st.SearchStrategy[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    def table(shape: tuple[int, int]) -> st.SearchStrategy[tuple[NDArray[np.int64], NDArray[np.float64]]]:
        count = shape[0] * shape[1]
        sizes = st.lists(st.integers(0, 30), min_size=count, max_size=count)
        drops = st.lists(
            st.one_of(st.integers(-3, 9).map(float), st.just(np.inf)), min_size=count, max_size=count
        )
        return st.tuples(
            sizes.map(lambda values: np.array(values, np.int64).reshape(shape)),
            # Some column every layer can have.
            drops.map(lambda values: np.array(values).reshape(shape)).map(with_a_finite_column),
        )

    return st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(table)


def with_a_finite_column(drops: NDArray[np.float64]) -> NDArray[np.float64]:
    drops[:, 0] = np.where(np.isinf(drops[:, 0]), 5.0, drops[:, 0])
    return drops


@settings(max_examples=80, deadline=None, derandomize=True)
@given(tables())
def test_no_choice_at_any_budget_is_better(case: tuple[NDArray[np.int64], NDArray[np.float64]]) -> None:
    sizes, drops = case
    layers = np.arange(len(sizes))
    every = [np.array(columns) for columns in itertools.product(range(sizes.shape[1]), repeat=len(sizes))]
    totals = [(int(sizes[layers, it].sum()), float(drops[layers, it].sum())) for it in every]
    front = best_choices(sizes, drops)
    assert (np.diff(front.bytes) > 0).all()
    assert (np.diff(front.drops) < 0).all()
    for place, columns in enumerate(front.choices):
        assert front.bytes[place] == sizes[layers, columns].sum()
        assert front.drops[place] == drops[layers, columns].sum()
    for budget in range(int(sizes.sum()) + 1):
        fit = [lost for size, lost in totals if size <= budget]
        found = front.within(budget, 1)
        assert len(found) == (min(fit, default=np.inf) < np.inf)
        if len(found):
            assert drops[layers, found[0]].sum() == min(fit)
    for allowed in range(-12, 30):
        small = [size for size, lost in totals if lost <= allowed]
        cheapest = front.cheapest(allowed)
        assert (cheapest is None) == (not small)
        if cheapest is not None:
            assert sizes[layers, cheapest].sum() == min(small)


def test_long_fronts_are_thinned() -> None:
    random = np.random.default_rng(0)
    sizes = random.integers(1, 10_000, (6, 8))
    drops = np.sort(random.random((6, 8)))[:, ::-1] * 1.0
    exact, thinned = best_choices(np.sort(sizes), drops), best_choices(np.sort(sizes), drops, 60)
    assert len(thinned.bytes) <= 60 < len(exact.bytes)
    assert thinned.bytes[0] == exact.bytes[0]
    assert thinned.drops[-1] == exact.drops[-1]
    for budget in exact.bytes[::50]:
        best, near = (drops[range(6), it.within(budget, 1)[0]].sum() for it in (exact, thinned))
        assert best <= near <= best + 0.2


# Sensitivities


def reference_loss(net: loom.Network, x: NDArray[Any], y: NDArray[Any]) -> float:
    """The mean cross-entropy in double precision, from weights as they are read."""
    _, first, norm, second, last = net.layers
    hidden = x.reshape(len(x), -1).astype(np.float64)
    for layer in (first, second, last):
        hidden = hidden @ layer.decoded("weight").astype(np.float64).T + layer.decoded("bias")
        if layer is not last:
            hidden = np.tanh(hidden)
        if layer is first:
            centred = hidden - hidden.mean(axis=1, keepdims=True)
            hidden = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
            hidden = hidden * norm.weight + norm.bias
    highest = hidden.max(axis=1, keepdims=True)
    logs = hidden - highest - np.log(np.exp(hidden - highest).sum(axis=1, keepdims=True))
    return float(-logs[np.arange(len(y)), y].mean())


def test_every_layer_in_every_type_is_what_numpy_finds() -> None:
    x, y = stripes(rows=90)
    net = perceptron("float64", seed=3)
    net.morph("int8", where=lambda layer: layer.at[3] == 3, granularity="block(4)", calibration="mse")
    report = analysis.sensitivity(net, (x, y), loss="cross_entropy", batch_size=40)
    assert report.layers == ("0.0.0.1", "0.0.0.3", "0.0.0.4")
    assert report.kinds == ("dense",) * 3
    assert report.held == ("float64", "int8", "float64")
    bits = {entry.name: entry.bits for entry in loom.dtypes()}
    assert set(report.dtypes) == {"float64", *(name for name, width in bits.items() if width < 64)}
    assert report.base == pytest.approx(reference_loss(net, x, y), abs=1e-9)
    for number, path in enumerate(report.layers):
        for column, dtype in enumerate(report.dtypes):
            morphed = copy.deepcopy(net).morph(dtype, where=lambda layer, path=path: layer.path == path)
            expected = reference_loss(morphed, x, y)
            assert report.values[number, column] == pytest.approx(expected, abs=1e-9), (path, dtype)
            (layer,) = (layer for layer in morphed.layers if layer.path == path)
            assert report.sizes[number, column] == layer.weights.nbytes()
            own = report.sizes[:, report.dtypes.index("float64")].sum()
            assert report.other_bytes == perceptron("float64").build().weight_bytes - own
    np.testing.assert_array_equal(report.drops, report.values - report.base)


def state(net: loom.Network) -> tuple[bytes, str, int]:
    return pickle.dumps(net), net.to_json(), net.weight_bytes


def test_the_other_layers_stay_packed_as_they_are() -> None:
    """By the rules they were packed by, and single parameters, too."""
    net, data = trained(), stripes()
    net.morph("int4", calibration="percentile(90.0)", where=lambda layer: layer.at[3] == 1)
    net.morph("int4", parameters="bias", where=lambda layer: layer.at[3] == 3)
    report = analysis.sensitivity(net, data, dtypes=["binary"])
    for number, place in enumerate((1, 3, 4)):
        morphed = copy.deepcopy(net).morph("binary", where=lambda layer, place=place: layer.at[3] == place)
        assert report.values[number, 0] == pytest.approx(morphed.evaluate(data)["loss"], abs=1e-6)
    full = copy.deepcopy(net).morph("float32")
    chosen = net.fit_bits(data, max_drop=0.0, dtypes=["float32"])
    assert chosen.base.measured == chosen.chosen.measured
    assert {stored.dtype for layer in net.layers for stored in layer.weights.stored.values()} == {"float32"}
    assert net.weight_bytes == full.weight_bytes


def test_looking_changes_nothing() -> None:
    net = trained()
    net.morph("int4", where=lambda layer: layer.at[3] == 1, calibration="percentile(99.0)")
    net.layers[3].freeze("bias")
    before = state(net)
    output = net.forward(stripes()[0], training=False)
    analysis.sensitivity(net, stripes())
    net.fit_bits(stripes(), max_drop=0.1, apply=False)
    assert state(net) == before
    assert (net.layers[-1].activation == output).all()


def test_types_that_weights_do_not_fit_are_left_out() -> None:
    net = trained()
    net.layers[1].weight = net.layers[1].weight * 1e6
    report = analysis.sensitivity(net, stripes(), dtypes=["float32", "float16", "int8"])
    np.testing.assert_array_equal(np.isnan(report.values), [[False, True, False]] + [[False] * 3] * 2)
    assert np.isinf(report.drops[0, 1])
    found = net.fit_bits(stripes(), max_drop=10.0, dtypes=["float16", "int8"])
    assert found.chosen.dtypes[0] in ("float32", "int8")
    assert "float16" not in [single.name for single in found.singles]


def test_metrics_are_measured_too() -> None:
    net, data = trained(), stripes()
    by_name = analysis.sensitivity(net, data, dtypes=TYPES, metric="accuracy")
    assert (by_name.measure, by_name.rising) == ("accuracy", True)
    np.testing.assert_array_equal(by_name.drops, by_name.base - by_name.values)

    def wrong(outputs: NDArray[Any], targets: NDArray[Any]) -> float:
        return float((outputs.argmax(axis=1) != targets).mean())

    by_hand = analysis.sensitivity(net, data, dtypes=TYPES, metric=wrong)
    assert (by_hand.measure, by_hand.rising) == ("wrong", False)
    np.testing.assert_allclose(by_hand.drops, by_name.drops, atol=1e-9)


# A type for each layer


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("share", [0.6, 0.3, 0.2, 0.12])
def test_the_choice_is_the_best_of_all(seed: int, share: float) -> None:
    """Every choice of types is measured; held-out samples are those that are not chosen by."""
    net, (x, y) = trained(seed), stripes()
    budget = int(share * net.weight_bytes)
    chosen_by = (np.arange(len(x)) % 5 != 4, np.arange(len(x)) % 5 == 4)
    every = {}
    for types in itertools.product(TYPES, repeat=3):
        tried = copy.deepcopy(net)
        for place, dtype in zip((1, 3, 4), types, strict=True):
            tried.morph(dtype, where=lambda layer, place=place: layer.at[3] == place)
        if tried.weight_bytes <= budget:
            every[types] = (
                [tried.evaluate((x[rows], y[rows]))["loss"] for rows in chosen_by],
                tried.weight_bytes,
            )
    report = net.fit_bits((x, y), max_bytes=budget, dtypes=TYPES, refinements=3)
    found, size = every[report.chosen.dtypes]
    assert (report.chosen.measured, report.chosen.held_out) == tuple(found)
    assert report.chosen.bytes == size == net.weight_bytes <= budget
    # Fewer bits help by chance alone; what differs by less than that is as good.
    base = report.base.measured
    assert abs(found[0] - base) <= min(abs(losses[0] - base) for losses, _ in every.values()) + 5e-4
    for single in report.singles:
        if single.bytes <= budget:
            assert abs(found[0] - base) <= abs(single.measured - base)
            assert every[single.dtypes] == ([single.measured, single.held_out], single.bytes)
    assert report.max_drop is None
    assert [layer.dtype for layer in net.layers if layer.kind == "dense"] == list(report.plan.values())


@pytest.mark.parametrize(("metric", "allowed"), [(None, 0.01), (None, 0.2), ("accuracy", 0.02)])
def test_a_drop_is_not_exceeded(metric: str | None, allowed: float) -> None:
    net, (x, y) = trained(), stripes()
    held_out = stripes(seed=5)
    name = metric or "loss"
    metrics = [metric] if metric else []
    before = [net.evaluate(data, metrics=metrics)[name] for data in ((x, y), held_out)]
    report = net.fit_bits((x, y), max_drop=allowed, validation=held_out, metric=metric)
    after = [net.evaluate(data, metrics=metrics)[name] for data in ((x, y), held_out)]
    sign = -1 if metric else 1
    assert all(sign * (late - early) <= allowed + 1e-9 for early, late in zip(before, after, strict=True))
    assert report.drop == pytest.approx(sign * (after[1] - before[1]), abs=1e-9)
    assert net.weight_bytes == report.chosen.bytes < report.base.bytes / 3
    # No type for all of them does it in fewer bytes.
    for single in report.singles:
        drops = [
            sign * (single.measured - report.base.measured),
            sign * (single.held_out - report.base.held_out),
        ]
        assert single.bytes >= report.chosen.bytes or max(drops) > allowed


def test_no_drop_at_all_is_full_precision() -> None:
    net = trained()
    net.fit_bits(stripes(), max_drop=0.0, dtypes=["binary"])
    assert {layer.dtype for layer in net.layers if layer.dtype} == {"float32"}


def test_what_is_not_asked_about_stays() -> None:
    """Layers that are left out, norms, tied heads, frozen layers, composites."""
    inside = nn.Residual([nn.RMSNorm(), nn.SwiGLU(12)])
    head = nn.TiedHead(9, tied_to=(0, 0, 0, 0))
    net = loom.Sequential([nn.Embedding(9, 8), inside, nn.RMSNorm(), nn.Dense(8), head], input_shape=5)
    net.layers[1].trainable = False
    net.morph("int8", where=lambda layer: layer.kind == "dense")
    x = np.random.default_rng(0).integers(0, 9, (40, 5))
    report = net.fit_bits(
        (x, x), max_bytes=900, loss="cross_entropy", where=lambda layer: layer.kind != "dense"
    )
    assert report.sensitivity.layers == ("0.0.0.0", "0.0.0.1")
    assert report.sensitivity.other_bytes == sum(net.layers[place].weights.nbytes() for place in (2, 3))
    assert net.weight_bytes == report.chosen.bytes <= 900
    assert (net.layers[2].dtype, net.layers[3].dtype) == ("float32", "int8")
    assert net.layers[4].dtype == net.layers[0].dtype == report.plan["0.0.0.0"]
    assert not net.layers[1].trainable


def test_batches_are_enough_with_validation_data() -> None:
    net, (x, y) = trained(), stripes()
    batches = [(x[start : start + 50], y[start : start + 50]) for start in range(0, len(x), 50)]
    report = net.fit_bits(batches, max_bytes=1000, validation=batches[:2], dtypes=TYPES, apply=False)
    whole = net.fit_bits((x, y), max_bytes=1000, validation=(x[:100], y[:100]), dtypes=TYPES, apply=False)
    assert report.chosen.dtypes == whole.chosen.dtypes
    assert report.chosen.measured == pytest.approx(whole.chosen.measured, abs=1e-6)
    with pytest.raises(loom.DataError, match="give validation="):
        net.fit_bits(batches, max_bytes=1000)
    with pytest.raises(loom.DataError, match="only once"):
        analysis.sensitivity(net, iter(batches))


def test_a_plan_is_applied_later_and_kept(tmp_path: Path) -> None:
    net, other = trained(), trained()
    report = net.fit_bits(stripes(), max_bytes=900, calibration="mse", apply=False)
    report.apply(other)
    again = trained()
    assert again.fit_bits(stripes(), max_bytes=900, calibration="mse") == report
    x, _ = stripes()
    assert (again.predict(x) == other.predict(x)).all()
    again.save(tmp_path / "small.loom")
    assert (loom.load(tmp_path / "small.loom").predict(x) == other.predict(x)).all()
    # Block formats find scales by rules of their own.
    assert set(report.calibrations) <= {"mse", "absmax"}
    assert "mse" in report.calibrations


def test_what_is_known_is_not_measured_again() -> None:
    net, data = trained(), stripes()
    known = analysis.sensitivity(net, data, dtypes=TYPES)
    report = net.fit_bits(data, max_bytes=900, sensitivity=known, apply=False)
    assert report.sensitivity == known
    assert report.chosen.dtypes == net.fit_bits(data, max_bytes=900, dtypes=TYPES, apply=False).chosen.dtypes
    # Full precision need not be among the types: what it comes to is known.
    packed = [name for name in TYPES if name != "float32"]
    fewer = analysis.sensitivity(net, data, dtypes=packed)
    whole = analysis.sensitivity(net, data, dtypes=["float32", *packed])
    assert net.fit_bits(data, max_bytes=900, sensitivity=fewer, apply=False).sensitivity == whole
    net.fit_bits(data, max_bytes=900, dtypes=TYPES)
    with pytest.raises(loom.ConfigError, match=r"measure layers 0\.0\.0\.1"):
        net.fit_bits(data, max_bytes=900, sensitivity=analysis.sensitivity(net, data, dtypes=TYPES))


def test_training_goes_on_in_the_chosen_types() -> None:
    net = trained()
    config = quiet(epochs=6, learning_rate=3e-3, device="cpu")
    report = net.fit_bits(stripes(), max_bytes=600, training=config)
    assert report.trained is not None
    assert report.trained < report.chosen.held_out
    assert [layer.dtype for layer in net.layers if layer.kind == "dense"] == list(report.chosen.dtypes)
    x, y = stripes()
    held = np.arange(len(x)) % 5 == 4
    assert net.evaluate((x[held], y[held]))["loss"] == pytest.approx(report.trained, abs=1e-6)


def test_types_are_chosen_on_a_gpu(gpu: str) -> None:
    on_cpu, on_gpu = trained(), trained().to(gpu)
    settings: dict[str, Any] = {"dtypes": ["int8", "binary"], "refinements": 0}
    reports = [net.fit_bits(stripes(50), max_bytes=1200, **settings) for net in (on_cpu, on_gpu)]
    assert on_gpu.device.startswith("gpu")
    assert reports[0].chosen.dtypes == reports[1].chosen.dtypes
    assert reports[0].chosen.held_out == pytest.approx(reports[1].chosen.held_out, abs=1e-4)


# Reports


@pytest.fixture(scope="module")
def reported() -> Any:
    return trained().fit_bits(stripes(), max_bytes=900)


def test_reports_go_to_json_frames_and_tables(reported: Any) -> None:
    for report in (reported, reported.sensitivity):
        assert type(report).from_json(report.to_json()) == report
    pandas = pytest.importorskip("pandas")
    frame = reported.sensitivity.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame) == ["layer", "kind", "dtype", "bytes", "loss", "drop"]
    assert len(frame) == reported.sensitivity.values.size
    assert list(reported.to_frame()["dtype"]) == list(reported.chosen.dtypes)
    written = io.StringIO()
    reported.print(written)
    reported.sensitivity.print(written)
    assert all(path in written.getvalue() for path in reported.plan)
    assert f"{reported.chosen.bytes:,} bytes of {reported.base.bytes:,}" in written.getvalue()
    best = reported.best_single()
    assert best is not None
    assert best.held_out == min(it.held_out for it in reported.singles if it.bytes <= reported.chosen.bytes)


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_reports_are_drawn(reported: Any, tmp_path: Path, ending: str) -> None:
    loom.plot.bits(reported, tmp_path / f"bits.{ending}")
    loom.plot.sensitivity(reported.sensitivity, tmp_path / f"sensitivity.{ending}")
    assert all((tmp_path / f"{name}.{ending}").stat().st_size > 2000 for name in ("bits", "sensitivity"))
    (axes, *_) = loom.plot.sensitivity(reported.sensitivity).axes
    np.testing.assert_allclose(axes.images[0].get_array(), reported.sensitivity.drops)


# What is refused


def test_bad_calls_say_what_would_be_right() -> None:
    net, data = trained(), stripes()
    for limits in ({}, {"max_bytes": 10, "max_drop": 0.1}):
        with pytest.raises(loom.ConfigError, match="either max_bytes= or max_drop="):
            net.fit_bits(data, **limits)  # type: ignore[arg-type]
    with pytest.raises(loom.ConfigError, match="in the smallest types the weights take"):
        net.fit_bits(data, max_bytes=10)
    with pytest.raises(loom.ConfigError, match="max_drop must be"):
        net.fit_bits(data, max_drop=-0.1)
    with pytest.raises(loom.ConfigError, match="leave apply=False out"):
        net.fit_bits(data, max_drop=0.1, apply=False, training=quiet())
    with pytest.raises(loom.DTypeError, match="int5"):
        analysis.sensitivity(net, data, dtypes=["int5"])
    with pytest.raises(loom.ConfigError, match="no layer to choose"):
        analysis.sensitivity(net, data, where=lambda layer: layer.kind == "layer_norm")
    with pytest.raises(loom.DataError, match="too few"):
        net.fit_bits((data[0][:3], data[1][:3]), max_drop=0.1)
    with pytest.raises(loom.StateError, match="give loss="):
        analysis.sensitivity(perceptron(), data)
    with pytest.raises(loom.InvalidValueError):
        analysis.sensitivity(net, data, calibration="best")
    dropped = trained().morph("int8").drop_master()
    for call in (lambda: analysis.sensitivity(dropped, data), lambda: dropped.fit_bits(data, max_drop=0.1)):
        with pytest.raises(loom.StateError, match=r"layer 0.0.0.1 \(dense\): its master was dropped"):
            call()
