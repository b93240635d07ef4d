"""k-means against scikit-learn's from the same starts, silhouettes, and clusters in networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_samples, silhouette_score

import loom
from loom import analysis, nn
from networks import mlp, stripes


def clouds(seed: int, samples: int, features: int, centers: int) -> Any:
    random = np.random.default_rng(seed)
    middle = random.normal(size=(centers, features)) * 4 + 100
    return middle[random.integers(centers, size=samples)] + random.normal(size=(samples, features))


@given(
    seed=st.integers(0, 10_000),
    samples=st.integers(8, 120),
    features=st.integers(1, 6),
    k=st.integers(1, 8),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
)
def test_clusters_are_scikit_learn_s_from_the_same_start(
    seed: int, samples: int, features: int, k: int, scale: float
) -> None:
    x = clouds(seed, samples, features, 4) * scale
    start = x[np.random.default_rng(seed).choice(samples, k, replace=False)]
    found = analysis.kmeans(x, k, centroids=start)
    wanted = KMeans(k, init=start, n_init=1, tol=0, algorithm="lloyd").fit(x)
    np.testing.assert_array_equal(found.assignments, wanted.labels_)
    np.testing.assert_allclose(found.centroids, wanted.cluster_centers_, rtol=1e-9)
    assert found.inertia == pytest.approx(wanted.inertia_, rel=1e-9, abs=1e-9 * scale**2)
    assert found.converged
    assert found.inertias.sum() == pytest.approx(found.inertia, rel=1e-12)
    assert found.sizes.tolist() == np.bincount(wanted.labels_, minlength=k).tolist()
    if 2 <= len(set(found.assignments.tolist())) < samples:
        # Centred, for scikit-learn loses digits far from the origin.
        near = x - x.mean(axis=0)
        assert found.silhouette == pytest.approx(silhouette_score(near, wanted.labels_), abs=1e-9)
        each = silhouette_samples(near, wanted.labels_)
        np.testing.assert_allclose(analysis.silhouettes(x, found.assignments), each, rtol=0, atol=1e-9)
        for cluster in range(k):
            mean = each[found.assignments == cluster].mean()
            assert found.silhouettes[cluster] == pytest.approx(mean, abs=1e-9)
    assert analysis.Clusters.from_json(found.to_json()) == found


def test_an_empty_cluster_takes_the_farthest_sample_as_scikit_learn_s_does() -> None:
    x = np.array([[0.0], [1.0], [2.0], [50.0]])
    start = np.array([[1.0], [1e6]])
    found = analysis.kmeans(x, 2, centroids=start)
    wanted = KMeans(2, init=start, n_init=1, tol=0).fit(x)
    np.testing.assert_array_equal(found.assignments, wanted.labels_)
    assert found.sizes.tolist() == [3, 1]


def test_the_same_seed_gives_the_same_clusters() -> None:
    x = clouds(0, 300, 3, 5)
    first, second = (analysis.kmeans(x, 5, seed=3) for _ in range(2))
    assert first == second
    np.testing.assert_array_equal(first.assign(x), first.assignments)
    assert first.assign(first.centroids).tolist() == [0, 1, 2, 3, 4]
    # The true clusters are found, as scikit-learn finds them.
    assert first.inertia == pytest.approx(
        KMeans(5, n_init=10, random_state=0, tol=0).fit(x).inertia_, rel=1e-9
    )
    assert analysis.kmeans(x, 5, starts=1, seed=4).inertia >= first.inertia - 1e-9
    assert analysis.kmeans(x, 5, iterations=1, starts=1).iterations == 1


def test_starts_by_their_squared_distance() -> None:
    # A far point is drawn nearly always: 10^8 against 1.
    x = np.array([[0.0], [0.5], [1.0], [1e4]])
    for seed in range(20):
        found = analysis.kmeans(x, 2, seed=seed, starts=1)
        assert sorted(found.sizes.tolist()) == [1, 3]


def test_edges() -> None:
    x = np.arange(4.0)[:, None]
    alone = analysis.kmeans(x, 1)
    assert alone.centroids.tolist() == [[1.5]]
    assert np.isnan(alone.silhouette)
    single = analysis.kmeans(x[:1], 1)
    assert (single.inertia, single.sizes.tolist()) == (0.0, [1])
    each = analysis.kmeans(x, 4)
    assert (each.inertia, each.silhouette) == (0.0, 0.0)
    assert np.isnan(analysis.kmeans(x, 2, silhouette=False).silhouettes).all()
    same = np.ones((3, 2))
    assert analysis.kmeans(same, 1).centroids.tolist() == [[1.0, 1.0]]
    with pytest.raises(
        loom.DataError, match="2 clusters need as many different samples, but there are only 1"
    ):
        analysis.kmeans(same, 2)
    # From given centroids a cluster may stay empty.
    empty = analysis.kmeans(same, 2, centroids=[[1.0, 1.0], [5.0, 5.0]])
    assert empty.sizes.tolist() == [3, 0]
    assert empty.centroids.tolist() == [[1.0, 1.0], [5.0, 5.0]]
    assert np.isnan(empty.silhouettes[1])


@pytest.mark.parametrize("scale", [1e-160, 1e150])
def test_sizes_of_samples_do_not_matter(scale: float) -> None:
    x = clouds(1, 60, 2, 3)
    found, wanted = analysis.kmeans(x * scale, 3), analysis.kmeans(x, 3)
    np.testing.assert_array_equal(found.assignments, wanted.assignments)
    np.testing.assert_allclose(found.centroids, wanted.centroids * scale, rtol=1e-9)
    assert found.silhouette == pytest.approx(wanted.silhouette, abs=1e-9)


def test_silhouettes_of_samples_that_nearly_meet() -> None:
    x = np.array([[1e3], [1e3 + 1e-9], [1e3 + 1e-7], [1e3 + 2e-7], [2e3]])
    given = np.array([0, 0, 1, 1, 2])
    distances = np.abs(x - x.T)
    wanted = []
    for i in range(5):
        own = distances[i, (given == given[i]) & (np.arange(5) != i)].mean() if i < 4 else 0.0
        other = min(distances[i, given == c].mean() for c in range(3) if c != given[i])
        wanted.append((other - own) / max(own, other) if i < 4 else 0.0)
    np.testing.assert_allclose(analysis.silhouettes(x, given), wanted, rtol=0, atol=1e-9)
    assert analysis.silhouettes(np.ones((4, 1)), [0, 0, 1, 1]).tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"k": 0}, loom.ConfigError, "k must be a positive"),
        ({"k": 5}, loom.ConfigError, "4 samples have at most"),
        ({"k": 2, "starts": 0}, loom.ConfigError, "starts"),
        ({"k": 2, "seed": -1}, loom.ConfigError, "seed"),
        ({"k": 2, "iterations": 0}, loom.ConfigError, "iterations"),
        ({"k": 2, "silhouette": 1}, loom.ConfigError, "silhouette"),
        ({"k": 2, "centroids": [[0.0]]}, loom.ShapeError, "k is 2, but there are 1"),
        ({"k": 1, "centroids": [[0.0, 1.0]]}, loom.ShapeError, "1 features but centroids 2"),
    ],
)
def test_bad_settings_are_refused(settings: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        analysis.kmeans(np.arange(4.0)[:, None], **settings)


def test_bad_data_are_refused() -> None:
    with pytest.raises(loom.NonFiniteError, match="feature 0 of sample 1"):
        analysis.kmeans([[0.0], [np.inf]], 1)
    with pytest.raises(loom.DataError, match="is empty"):
        analysis.kmeans(np.zeros((0, 2)), 1)
    found = analysis.kmeans(np.arange(4.0)[:, None], 2)
    with pytest.raises(loom.ShapeError, match="2 features but centroids 1"):
        found.assign([[0.0, 1.0]])
    with pytest.raises(loom.ShapeError, match="as many assignments"):
        analysis.silhouettes([[0.0], [1.0]], [0])
    with pytest.raises(loom.DataError, match="numbered from 0"):
        analysis.silhouettes([[0.0], [1.0]], [0, -1])
    with pytest.raises(loom.ShapeError, match="not what the clusters are of"):
        loom.plot.clusters(found, np.zeros((3, 1)))


# In networks


def test_activations_are_those_of_inference() -> None:
    x, _ = stripes(20)
    net = loom.Sequential(
        [nn.Conv2D(4, kernel_size=3), nn.Dropout(0.5), nn.Flatten(), nn.Dense(7)], input_shape=(1, 8, 8)
    )
    net.forward(x, training=False)
    convolved = net[0, 0, 0, 0].activation
    for layer in (net[0, 0, 0, 0], "0.0.0.0", (0, 0, 0, 0), (0, 0, -1, 0)):
        found = analysis.unit_activations(net, layer, x, batch_size=6)
        np.testing.assert_array_equal(found, convolved.reshape(20, -1))
    channels = analysis.unit_activations(net, "0.0.0.0", x, axis=0)
    np.testing.assert_array_equal(channels, convolved.transpose(0, 2, 3, 1).reshape(-1, 4))
    columns = analysis.unit_activations(net, "0.0.0.0", x, axis=-1)
    np.testing.assert_array_equal(columns, convolved.reshape(-1, 6))
    np.testing.assert_array_equal(analysis.unit_activations(net, "0.0.0.3", x), net.predict(x))
    for axis in (3, -4, 0.5):
        with pytest.raises(loom.ConfigError, match="one of the 3"):
            analysis.unit_activations(net, "0.0.0.0", x, axis=axis)  # type: ignore[arg-type]
    with pytest.raises(loom.ConfigError, match="another network"):
        analysis.unit_activations(net, mlp()[0, 0, 0, 0], x)
    with pytest.raises(loom.CellIndexError, match="no layer 9"):
        analysis.unit_activations(net, "0.0.0.9", x)
    with pytest.raises(loom.CellIndexError, match="no layer 9"):
        analysis.unit_activations(net, (0, 0, 0, 9), x)
    with pytest.raises(loom.ConfigError, match="expected a layer"):
        analysis.unit_activations(net, (0, 0, 0), x)
    with pytest.raises(loom.ConfigError, match=r"net\.layers\[3\] is the layer"):
        analysis.unit_activations(net, 3, x)  # type: ignore[arg-type]
    with pytest.raises(loom.DataError, match="no samples"):
        analysis.unit_activations(net, "0.0.0.0", x[:0])


def test_units_that_do_the_same_are_one_cluster() -> None:
    random = np.random.default_rng(0)
    net = loom.Sequential([nn.Dense(9)], input_shape=3, precision="float64")
    # Three units of each input, of different strengths; the last one never varies.
    weight = np.zeros((9, 3))
    weight[np.arange(9), np.arange(9) % 3] = random.uniform(0.1, 10, 9)
    weight[8] = 0.0
    net[0, 0, 0, 0].weight = weight
    net[0, 0, 0, 0].bias = random.normal(size=9)
    found = analysis.cluster_units(net, "0.0.0.0", random.normal(size=(200, 3)), 4)
    groups = {tuple(np.flatnonzero(found.assignments == cluster).tolist()) for cluster in range(4)}
    assert groups == {(0, 3, 6), (1, 4, 7), (2, 5), (8,)}
    assert found.inertia == pytest.approx(0.0, abs=1e-20)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_layer_s_centroids_come_from_what_it_reads(precision: str) -> None:
    x = clouds(2, 200, 5, 3)
    net = loom.Sequential([nn.Dense(4), nn.KMeans(3, temperature=0.1)], input_shape=5, precision=precision)
    before = net[0, 0, 0, 0].weight
    found = analysis.initialize_kmeans(net, net[0, 0, 0, 1], x, batch_size=64)
    read = net.forward(x, training=False) is not None and net[0, 0, 0, 1].input
    wanted = analysis.kmeans(read, 3)
    np.testing.assert_allclose(found.centroids, wanted.centroids, rtol=1e-12)
    np.testing.assert_array_equal(
        net[0, 0, 0, 1].centroids, found.centroids.astype(net[0, 0, 0, 1].centroids.dtype)
    )
    np.testing.assert_array_equal(net.predict(x).argmax(axis=1), found.assignments)
    np.testing.assert_array_equal(net[0, 0, 0, 0].weight, before)
    with pytest.raises(loom.ConfigError, match=r"sets an nn\.KMeans layer; layer 0\.0\.0\.0 is dense"):
        analysis.initialize_kmeans(net, "0.0.0.0", x)
    with pytest.raises(loom.DataError, match="as many different samples"):
        analysis.initialize_kmeans(net, "0.0.0.1", np.ones((10, 5)))


def test_every_step_of_a_sequence_is_a_point() -> None:
    x = np.random.default_rng(0).normal(size=(6, 4, 2))
    net = loom.Sequential([nn.KMeans(3)], input_shape=(4, 2), precision="float64")
    found = analysis.initialize_kmeans(net, (0, 0, 0, 0), x)
    assert found == analysis.kmeans(x.reshape(24, 2), 3, silhouette=False)


def test_layers_on_a_gpu(gpu: str) -> None:
    x = clouds(4, 60, 5, 3)
    net = loom.Sequential([nn.Dense(4, activation="tanh"), nn.KMeans(3)], input_shape=5)
    wanted = analysis.unit_activations(net, "0.0.0.0", x)
    found = analysis.initialize_kmeans(net, "0.0.0.1", x)
    net.to(gpu)
    np.testing.assert_allclose(analysis.unit_activations(net, "0.0.0.0", x), wanted, rtol=1e-4, atol=1e-5)
    again = analysis.initialize_kmeans(net, "0.0.0.1", x)
    np.testing.assert_allclose(again.centroids, found.centroids, rtol=1e-3, atol=1e-4)


def test_tables_and_pictures(tmp_path: Path) -> None:
    x = clouds(3, 90, 4, 3)
    found = analysis.kmeans(x, 3)
    assert list(found.to_frame().columns) == ["cluster", "size", "inertia", "silhouette"]
    assert found.to_frame("polars")["size"].to_list() == found.sizes.tolist()
    for ending in ("svg", "png"):
        figure = loom.plot.clusters(found, x, tmp_path / f"clusters.{ending}")
        assert (tmp_path / f"clusters.{ending}").stat().st_size > 1000
    *groups, _ = figure.axes[0].collections
    assert [len(np.asarray(group.get_offsets())) for group in groups] == found.sizes.tolist()
    points = np.concatenate([group.get_offsets() for group in groups])
    # As far from each other as the samples are along their first two principal components.
    values = np.linalg.eigvalsh(np.cov(x.T, ddof=0))
    np.testing.assert_allclose(points.var(axis=0), values[::-1][:2], rtol=1e-9)
    line = analysis.kmeans(x[:, :1], 12, starts=1)
    flat = loom.plot.clusters(line, x[:, :1])
    assert flat.axes[0].get_title().startswith("12 clusters, mean silhouette")
    assert not np.asarray(flat.axes[0].collections[0].get_offsets())[:, 1].any()
    loom.plot.clusters(analysis.kmeans(np.ones((2, 2)), 1), np.ones((2, 2)))
