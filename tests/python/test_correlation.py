"""Correlations and linear CKA, against SciPy and formulas by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

import loom
from loom import analysis, nn
from networks import cnn, mlp, stripes

# Few different values, so that there are ties and constant features.
few = st.integers(-3, 3).map(float)
tables = st.tuples(st.integers(2, 12), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=few | st.floats(-1e3, 1e3, width=32))
)
METHODS: tuple[Literal["pearson", "spearman"], ...] = ("pearson", "spearman")


def expected(x: Any, method: str) -> Any:
    """SciPy's coefficients, pair by pair; NaN where a feature never varies."""
    measure = stats.pearsonr if method == "pearson" else stats.spearmanr
    found = np.full((x.shape[1], x.shape[1]), np.nan)
    varies = x.min(axis=0) < x.max(axis=0)
    for i in np.flatnonzero(varies):
        for j in np.flatnonzero(varies):
            found[i, j] = measure(x[:, i], x[:, j]).statistic
    return found


def near_constant(x: Any) -> bool:
    """Whether SciPy warns of a feature whose spread is lost in its size."""
    spread = x - x.mean(axis=0)
    norms = np.linalg.norm(spread, axis=0)
    return bool((norms < 1e-9 * np.abs(x.mean(axis=0)))[x.min(axis=0) < x.max(axis=0)].any())


@pytest.mark.parametrize("method", METHODS)
@given(x=tables)
def test_coefficients_are_scipy_s(method: Literal["pearson", "spearman"], x: Any) -> None:
    if near_constant(x):
        return
    found = analysis.correlation(x, method)
    np.testing.assert_allclose(found.matrix, expected(x, method), rtol=0, atol=1e-9)
    np.testing.assert_array_equal(found.matrix, found.matrix.T)
    np.testing.assert_allclose(found.means, x.mean(axis=0), rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(found.deviations, x.std(axis=0), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(found.minima, x.min(axis=0))
    np.testing.assert_array_equal(found.maxima, x.max(axis=0))
    assert analysis.Correlation.from_json(found.to_json()) == found


@pytest.mark.parametrize("method", METHODS)
def test_many_samples_and_features(method: Literal["pearson", "spearman"]) -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=(2000, 1)) + random.normal(size=(2000, 12)) * np.logspace(-3, 3, 12) + 5
    x[:, 3] = np.round(x[:, 3])
    found = analysis.correlation(x, method)
    wanted = np.corrcoef(x.T) if method == "pearson" else stats.spearmanr(x).statistic
    np.testing.assert_allclose(found.matrix, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_sizes_of_features_do_not_matter(scale: float) -> None:
    x = np.random.default_rng(2).normal(size=(50, 3))
    wanted = analysis.correlation(x)
    found = analysis.correlation(x * [scale, 1.0, 1.0])
    np.testing.assert_allclose(found.matrix, wanted.matrix, rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.deviations, wanted.deviations * [scale, 1, 1], rtol=1e-9)


def test_a_constant_feature_has_no_correlation() -> None:
    x = np.random.default_rng(3).normal(size=(30, 3))
    x[:, 1] = 0.1
    found = analysis.correlation(x)
    assert np.isnan(found.matrix[1]).all()
    assert np.isnan(found.matrix[:, 1]).all()
    assert found.matrix[0, 0] == found.matrix[2, 2] == 1.0
    assert (found.means[1], found.deviations[1]) == (0.1, 0.0)
    assert [pair[:2] for pair in found.above(0.0)] == [("0", "2")]
    assert len(found.strongest("1")) == 0
    assert "NaN" in found.to_json()


def test_pairs() -> None:
    random = np.random.default_rng(4)
    a, b = random.normal(size=(2, 200))
    x = np.stack([a, -a + 0.1 * b, b, a + 0.5 * b], axis=1)
    found = analysis.correlation(x, labels=["a", "minus", "b", "both"])
    pairs = found.above(0.5)
    assert [pair[:2] for pair in pairs] == [("a", "minus"), ("a", "both"), ("minus", "both")]
    assert next(iter(pairs))[2] == found.matrix[0, 1] < 0
    strongest = found.strongest("both", 2)
    assert [second for _, second, _ in strongest] == ["a", "minus"]
    assert found.strongest(3, 2) == strongest
    assert len(found.strongest("a", 99)) == 3
    assert strongest.to_frame()["correlation"].tolist() == strongest.correlations.tolist()
    assert analysis.CorrelatedPairs.from_json(pairs.to_json()) == pairs
    table = found.to_frame()
    assert table["feature"].tolist() == ["a", "minus", "b", "both"]
    assert table["correlation with b"].tolist() == found.matrix[:, 2].tolist()
    assert found.to_frame("polars").shape == (4, 9)
    for threshold in (-0.1, 1.1, float("nan")):
        with pytest.raises(loom.ConfigError, match="threshold"):
            found.above(threshold)
    with pytest.raises(loom.ConfigError, match='did you mean "minus"'):
        found.strongest("mins")
    with pytest.raises(loom.ConfigError, match="at most 3"):
        found.strongest(4)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        ([1.0, 2.0], loom.ShapeError, r"x\[:, None\]"),
        ([[1.0, 2.0]], loom.DataError, "has 1 sample, but needs 2"),
        (np.zeros((0, 3)), loom.DataError, "is empty"),
        (np.zeros((3, 0)), loom.DataError, "is empty"),
        ([[1.0, 2.0], [3.0, np.nan]], loom.NonFiniteError, "feature 1 of sample 1 is nan"),
        ([["a", "b"]], loom.DTypeError, "real numbers"),
    ],
)
def test_bad_samples_are_refused(x: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        analysis.correlation(x)
    with pytest.raises(error, match=message.replace("2", ".")):
        analysis.cka(x, x)


def test_bad_settings_are_refused() -> None:
    x = np.eye(3)
    with pytest.raises(loom.ConfigError, match="did you mean"):
        analysis.correlation(x, "spearmann")  # type: ignore[arg-type]
    with pytest.raises(loom.ConfigError, match="2 names do not fit 3 features"):
        analysis.correlation(x, labels=["a", "b"])
    with pytest.raises(loom.ConfigError, match="must be a sequence"):
        analysis.correlation(x, labels="abc")


# Linear CKA


def by_hand(a: Any, b: Any) -> float:
    """Kornblith et al., equation 3 by way of centred Gram matrices (HSIC), sample by sample."""
    n = len(a)
    center = np.eye(n) - 1 / n
    k, m = (center @ array.reshape(n, -1) @ array.reshape(n, -1).T @ center for array in (a, b))
    return float((k * m).sum() / np.sqrt((k * k).sum() * (m * m).sum()))


@pytest.mark.parametrize(
    "shapes", [((40, 5), (40, 9)), ((6, 30), (6, 8)), ((7, 50), (7, 60)), ((30, 2, 3, 4), (30, 1))]
)
def test_cka_is_the_formula_s(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    random = np.random.default_rng(5)
    a, b = (random.normal(size=shape) * 3 + 10 for shape in shapes)
    b.reshape(len(b), -1)[:, 0] += a.reshape(len(a), -1)[:, 0]
    assert analysis.cka(a, b) == pytest.approx(by_hand(a, b), abs=1e-9)
    assert analysis.cka(b, a) == pytest.approx(analysis.cka(a, b), abs=1e-12)


def test_cka_by_numbers() -> None:
    # a'b = [2, 0]: 4 / (2 * sqrt(2^2 + 8^2)).
    a = np.array([[1.0], [-1.0], [0.0], [0.0]])
    b = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    assert analysis.cka(a, b) == pytest.approx(4 / (2 * 68**0.5), abs=1e-15)


@given(seed=st.integers(0, 500), scale=st.sampled_from([1e-200, 1e-3, 1.0, 1e200]))
def test_cka_does_not_see_turns_moves_and_scales(seed: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    a, b = random.normal(size=(20, 4)), random.normal(size=(20, 3))
    turn = np.linalg.qr(random.normal(size=(4, 4)))[0]
    assert analysis.cka(a @ turn * scale + scale, b) == pytest.approx(analysis.cka(a, b), abs=1e-9)
    assert analysis.cka(a @ turn * -scale, a) == pytest.approx(1.0, abs=1e-9)


def test_cka_of_what_never_varies_is_not_defined() -> None:
    a = np.random.default_rng(6).normal(size=(10, 3))
    assert np.isnan(analysis.cka(a, np.full((10, 2), 0.1)))
    with pytest.raises(loom.DataError, match="9 and 10 samples"):
        analysis.cka(a, a[:9])


def activations(net: loom.Network, x: Any) -> list[Any]:
    net.forward(x, training=False)
    return [layer.activation for layer in net.layers]


def test_layers_of_two_networks_are_compared() -> None:
    x, _ = stripes(60)
    first, second = cnn(0), cnn(1)
    found = analysis.similarity(first, second, x, batch_size=17)
    mine, other = activations(first, x), activations(second, x)
    wanted = [[by_hand(a.astype(float), b.astype(float)) for b in other] for a in mine]
    np.testing.assert_allclose(found.matrix, wanted, rtol=0, atol=1e-9)
    assert found.samples == 60
    assert found.first[0] == "0.0.0.0 conv2d"
    assert analysis.Similarity.from_json(found.to_json()) == found
    frame = found.to_frame()
    assert frame["cka"].tolist() == found.matrix.reshape(-1).tolist()
    assert (frame["first"][6], frame["second"][6]) == (found.first[1], found.second[1])
    part = analysis.similarity(
        first, second, x, layers_a=["0.0.0.3"], layers_b=[second[0, 0, 0, 4], (0, 0, 0, 0)]
    )
    np.testing.assert_allclose(part.matrix, found.matrix[3:4][:, [4, 0]], rtol=0, atol=1e-9)


def test_a_network_is_like_itself() -> None:
    net = mlp(precision="float64")
    found = analysis.similarity(net, net, np.random.default_rng(0).normal(size=(40, 6)))
    np.testing.assert_allclose(np.diag(found.matrix), 1.0, rtol=0, atol=1e-12)
    # Dropout hands on what it reads, and of equally similar layers the first counts.
    assert list(found.most_alike().values()) == [found.first[0], found.first[0], found.first[2]]


def test_a_dead_layer_is_like_none() -> None:
    net = loom.Sequential([nn.Dense(3), nn.Dense(2, activation="relu")], input_shape=4, precision="float64")
    net[0, 0, 0, 1].bias = [-1e6, -1e6]
    found = analysis.similarity(net, net, np.random.default_rng(0).normal(size=(9, 4)))
    assert np.isnan(found.matrix[1]).all()
    assert found.most_alike() == {"0.0.0.0 dense": "0.0.0.0 dense", "0.0.0.1 dense": None}


def test_pictures(tmp_path: Path) -> None:
    random = np.random.default_rng(7)
    x = random.normal(size=(50, 5))
    x[:, 2] = 1.0
    correlated = analysis.correlation(x, "spearman", labels=list("abcde"))
    similar = analysis.similarity(cnn(0), mlp_of_images(), stripes(50)[0])
    for ending in ("svg", "png"):
        figure = loom.plot.correlation(correlated, tmp_path / f"correlation.{ending}")
        assert figure.axes[0].get_title() == "Spearman correlation of 50 samples"
        figure = loom.plot.similarity(similar, tmp_path / f"similarity.{ending}")
        assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == list(similar.first)
        for name in ("correlation", "similarity"):
            assert (tmp_path / f"{name}.{ending}").stat().st_size > 1000
    many = loom.plot.correlation(analysis.correlation(random.normal(size=(20, 60))))
    assert not many.axes[0].texts


def mlp_of_images() -> loom.Network:
    return loom.Sequential(
        [nn.Flatten(), nn.Dense(12, activation="relu"), nn.Dense(4)], input_shape=(1, 8, 8)
    )
