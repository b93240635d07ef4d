"""Networks that decide together: votes, evaluation, fitted weights, files."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import loom
from loom import analysis, nn
from loom.analysis import Ensemble
from networks import blobs, mlp, quiet


def passing(outputs: Any, precision: str = "float64") -> loom.Network:
    """A network that gives chosen outputs for the rows of an identity matrix."""
    table = np.asarray(outputs, dtype=np.float64)
    net = loom.Sequential([nn.Dense(table.shape[1])], input_shape=len(table), precision=precision)
    net[0, 0, 0, 0].weight = table.T
    net[0, 0, 0, 0].bias = np.zeros(table.shape[1])
    return net


def tables(networks: int, rows: int = 5, classes: int = 3, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=(networks, rows, classes))


def trained(count: int = 3, epochs: int = 2) -> list[loom.Network]:
    nets = [mlp(seed) for seed in range(count)]
    for seed, net in enumerate(nets):
        net.fit(blobs(120, seed), quiet(epochs=epochs))
    return nets


def test_mean_and_weighted_votes() -> None:
    outputs = tables(3)
    nets = [passing(table) for table in outputs]
    x = np.eye(5)
    np.testing.assert_allclose(Ensemble(nets).predict(x), outputs.mean(axis=0), rtol=0, atol=1e-12)
    weighted = Ensemble(nets, vote="weighted", weights=[1, 0, 3])
    np.testing.assert_allclose(weighted.weights, [0.25, 0, 0.75], rtol=0, atol=1e-15)
    wanted = 0.25 * outputs[0] + 0.75 * outputs[2]
    np.testing.assert_allclose(weighted.predict(x), wanted, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(weighted.predict_classes(x), wanted.argmax(axis=1))
    np.testing.assert_array_equal(weighted.predict(x, batch_size=2), weighted.predict(x))
    assert Ensemble(nets, vote="weighted").weights.tolist() == [1 / 3] * 3


@given(st.integers(1, 6), st.integers(2, 5), st.integers(0, 1000))
def test_a_majority_is_counted(networks: int, classes: int, seed: int) -> None:
    outputs = tables(networks, rows=4, classes=classes, seed=seed)
    ensemble = Ensemble([passing(table) for table in outputs], vote="majority")
    shares, chosen = ensemble.predict(np.eye(4)), ensemble.predict_classes(np.eye(4))
    for row in range(4):
        votes = [sum(table[row].argmax() == c for table in outputs) for c in range(classes)]
        np.testing.assert_allclose(shares[row], np.array(votes) / networks, rtol=0, atol=1e-15)
        # Most votes, then the largest mean output, then the first class.
        wanted = max(range(classes), key=lambda c: (votes[c], outputs[:, row, c].mean(), -c))
        assert chosen[row] == wanted == shares[row].argmax()


def test_ties_of_a_majority() -> None:
    by_mean = Ensemble([passing([[3.0, 0.0, 0.0]]), passing([[0.0, 0.0, 5.0]])], vote="majority")
    assert by_mean.predict_classes(np.eye(1)).tolist() == [2]
    equal = Ensemble([passing([[0.0, 3.0, 0.0]]), passing([[0.0, 0.0, 3.0]])], vote="majority")
    assert equal.predict_classes(np.eye(1)).tolist() == [1]
    untied = Ensemble([passing([[3.0, 0.0]])] * 3, vote="majority")
    assert untied.predict(np.eye(1)).tolist() == [[1.0, 0.0]]


def test_single_outputs_are_of_two_classes() -> None:
    nets = [passing([[value]]) for value in (0.9, 0.4, 0.6, 0.2)]
    tied = Ensemble(nets, vote="majority")
    assert tied.predict(np.eye(1))[0, 0] == np.nextafter(0.5, 1.0)  # the mean is 0.525
    assert tied.predict_classes(np.eye(1)).tolist() == [1]
    assert Ensemble(nets[1:], vote="majority").predict_classes(np.eye(1)).tolist() == [0]
    assert Ensemble(nets).predict_classes(np.eye(1)).tolist() == [1]
    assert Ensemble(nets, threshold=0.6).predict_classes(np.eye(1)).tolist() == [0]
    logits = [passing([[value]]) for value in (0.9, -0.4, 0.6)]
    assert Ensemble(logits, vote="majority", threshold=0.0).predict_classes(np.eye(1)).tolist() == [1]
    assert tied.evaluate((np.eye(1), [1]), loss="mse", metrics=["accuracy"])["accuracy"] == 1.0


def test_images_vote_by_place() -> None:
    nets = [loom.Sequential([nn.Conv2D(3, kernel_size=1)], input_shape=(2, 4, 5), seed=s) for s in range(3)]
    x = np.random.default_rng(0).normal(size=(6, 2, 4, 5)).astype(np.float32)
    ensemble = Ensemble(nets, vote="majority")
    shares = ensemble.predict(x)
    assert shares.shape == (6, 3, 4, 5)
    assert shares.flags.c_contiguous
    votes = np.stack([net.predict(x).argmax(axis=1) for net in nets])
    counted = np.stack([(votes == c).mean(axis=0) for c in range(3)], axis=1)
    np.testing.assert_allclose(shares, counted, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(ensemble.predict_classes(x), shares.argmax(axis=1))
    y = votes[0]
    found = ensemble.evaluate((x, y), loss="cross_entropy", metrics=["accuracy"])
    assert found["accuracy"] == pytest.approx((ensemble.predict_classes(x) == y).mean(), abs=1e-12)


@pytest.mark.parametrize("vote", ["mean", "weighted"])
@pytest.mark.parametrize("ends", [[], [nn.Softmax()]], ids=["logits", "probabilities"])
def test_one_network_is_itself(vote: Any, ends: list[nn.Layer]) -> None:
    x, y = blobs(60)
    net = loom.Sequential([nn.Dense(8), nn.Dense(3), *ends], input_shape=6)
    net.fit((x, y), quiet(epochs=1, metrics=["accuracy"]))
    ensemble = Ensemble([net], vote=vote)
    np.testing.assert_array_equal(ensemble.predict(x), net.predict(x))
    wanted = net.evaluate((x, y))
    found = ensemble.evaluate((x, y))
    assert list(found) == list(wanted)
    assert found == pytest.approx(wanted, rel=1e-6)
    chosen: dict[str, Any] = {"loss": "mse", "metrics": ["mae", "r2", largest], "batch_size": 7}
    one_hot = np.eye(3)[y]
    assert ensemble.evaluate((x, one_hot), **chosen) == pytest.approx(
        net.evaluate((x, one_hot), **chosen), rel=1e-6
    )


def largest(outputs: Any, targets: Any) -> float:
    return float(outputs.max())


def test_evaluation_takes_batches_and_weights() -> None:
    x, y = blobs(60)
    ensemble = Ensemble(trained(2))
    weight = np.linspace(0.1, 1, 60)
    whole = ensemble.evaluate((x, y, weight), metrics=["accuracy"])
    parts = [(x[:20], y[:20], weight[:20]), (x[20:], y[20:], weight[20:])]
    assert ensemble.evaluate(iter(parts), metrics=["accuracy"]) == pytest.approx(whole, rel=1e-6)
    log = ensemble.predict(x).astype(np.float64)
    log -= np.log(np.exp(log).sum(axis=1, keepdims=True))
    losses = -log[np.arange(60), y]
    assert ensemble.evaluate((x, y))["loss"] == pytest.approx(losses.mean(), rel=1e-5)


def test_a_majority_is_evaluated() -> None:
    x, y = blobs(60)
    ensemble = Ensemble(trained(3), vote="majority")
    found = ensemble.evaluate((x, y), loss="cross_entropy", metrics=["accuracy"])
    assert found["accuracy"] == pytest.approx((ensemble.predict_classes(x) == y).mean(), abs=1e-12)
    assert np.isfinite(found["loss"])
    with pytest.raises(loom.ConfigError, match="takes logits, but a majority"):
        ensemble.evaluate((x, np.eye(3)[y]), loss="binary_cross_entropy")


def test_an_untrained_ensemble_asks_for_a_loss() -> None:
    with pytest.raises(loom.StateError, match="no loss to measure"):
        Ensemble([mlp()]).evaluate(blobs(10))


@pytest.mark.parametrize("monitor", ["loss", "accuracy"])
def test_fitted_weights_are_at_least_as_good_as_any_network(monitor: str) -> None:
    x, y = blobs(150, seed=7)
    nets = [*trained(3, epochs=1), mlp(9)]
    ensemble = Ensemble(nets, vote="weighted")
    assert ensemble.fit_weights((x, y), metrics=["accuracy"], monitor=monitor, rounds=12) is ensemble
    sign = -1 if monitor == "loss" else 1
    alone = [sign * net.evaluate((x, y), quiet(metrics=["accuracy"]))[monitor] for net in nets]
    assert sign * ensemble.evaluate((x, y), quiet(metrics=["accuracy"]))[monitor] >= max(alone) - 1e-7
    assert ensemble.weights.sum() == pytest.approx(1.0)
    again = Ensemble(nets, vote="weighted")
    batches = [(x[:70], y[:70]), (x[70:], y[70:])]
    again.fit_weights(batches, metrics=["accuracy"], monitor=monitor, rounds=12)
    np.testing.assert_allclose(again.weights, ensemble.weights)


def test_weights_find_the_mixture_that_made_the_targets() -> None:
    outputs = tables(3, rows=40, classes=2)
    nets = [passing(table) for table in outputs]
    target = 0.5 * outputs[0] + 0.3 * outputs[1] + 0.2 * outputs[2]
    ensemble = Ensemble(nets, vote="weighted").fit_weights((np.eye(40), target), loss="mse", rounds=10)
    np.testing.assert_allclose(ensemble.weights, [0.5, 0.3, 0.2], rtol=0, atol=1e-12)


def test_only_a_weighted_vote_has_weights_to_fit() -> None:
    with pytest.raises(loom.StateError, match='only vote="weighted"'):
        Ensemble([mlp()]).fit_weights(blobs(10), loss="cross_entropy")
    with pytest.raises(loom.ConfigError, match='no log "f1"'):
        Ensemble([mlp()], vote="weighted").fit_weights(blobs(10), loss="cross_entropy", monitor="f1")


@pytest.mark.parametrize("vote", ["majority", "mean", "weighted"])
def test_saved_and_loaded(tmp_path: Path, vote: Any) -> None:
    x, _ = blobs(30)
    nets = trained(3, epochs=1)
    nets[1].morph("int8")
    weights = [0.1, 0.2, 0.4] if vote == "weighted" else None
    ensemble = Ensemble(nets, vote=vote, weights=weights, names=["a", "b", "ü"], threshold=0.25)
    path = tmp_path / "three.ensemble"
    path.write_bytes(b"old")
    ensemble.save(path)
    assert list(tmp_path.iterdir()) == [path]
    again = Ensemble.load(path)
    assert (again.vote, again.names, again.threshold, len(again)) == (vote, ("a", "b", "ü"), 0.25, 3)
    np.testing.assert_array_equal(again.weights, ensemble.weights)
    np.testing.assert_array_equal(again.predict(x), ensemble.predict(x))
    assert again.networks[1].layers[0].dtype == "int8"
    other = tmp_path / "again"
    again.save(str(other))
    assert other.read_bytes() == path.read_bytes()


def test_a_failed_save_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "e"
    good = mlp()
    Ensemble([good]).save(path)
    before = path.read_bytes()
    with pytest.raises(loom.FileError, match="cannot be written"):
        Ensemble([good]).save(tmp_path / "missing" / "e")
    (tmp_path / "folder").mkdir()
    with pytest.raises(loom.FileError, match="cannot be written"):
        Ensemble([good]).save(tmp_path / "folder")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["e", "folder"]
    assert path.read_bytes() == before


def test_what_is_no_ensemble_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "e"
    with pytest.raises(loom.FileError, match="cannot be read"):
        Ensemble.load(path)
    net = mlp()
    net.save(path)
    with pytest.raises(loom.SerializationError, match="no ensemble"):
        Ensemble.load(path)
    Ensemble([net, mlp(1)], vote="weighted").save(path)
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(whole)
        if random.random() < 0.3:
            damaged = damaged[: random.integers(len(damaged))]
        else:
            # The names of entries and the lists of them are at the end.
            place = random.integers(len(damaged) - 400, len(damaged))
            damaged[place] ^= int(random.integers(1, 256))
        path.write_bytes(bytes(damaged))
        try:
            Ensemble.load(path)
        except loom.SerializationError:
            continue
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ensemble.json", json.dumps({"format": 99}))
    with pytest.raises(loom.SerializationError, match="format 99"):
        Ensemble.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ensemble.json", json.dumps({"format": 1, "names": []}))
    with pytest.raises(loom.SerializationError, match="no ensemble"):
        Ensemble.load(path)


def test_networks_that_do_not_fit_are_refused_by_name() -> None:
    three = loom.Sequential([nn.Dense(3)], input_shape=4)
    four = loom.Sequential([nn.Dense(4)], input_shape=4)
    with pytest.raises(loom.ShapeError, match=r'same output_shape: "big" has \(4,\), "small" \(3,\)'):
        Ensemble([three, four], names=["small", "big"])
    other = loom.Sequential([nn.Dense(3)], input_shape=5)
    with pytest.raises(loom.ShapeError, match=r'same input_shape: "network 1" has \(5,\)'):
        Ensemble([three, other])
    for wrong in ([], three, "ab", [three, 3]):
        with pytest.raises(loom.ConfigError, match="an ensemble is of"):
            Ensemble(wrong)  # type: ignore[arg-type]
    with pytest.raises(loom.ConfigError, match='did you mean "majority"'):
        Ensemble([three], vote="majorty")  # type: ignore[arg-type]
    with pytest.raises(loom.ConfigError, match='weights are for vote="weighted"'):
        Ensemble([three], weights=[1])
    with pytest.raises(loom.ConfigError, match="as many weights"):
        Ensemble([three], vote="weighted", weights=[1, 2])
    for weights in ([0.0, 0.0], [-1.0, 2.0], [np.nan, 1.0]):
        with pytest.raises(loom.ConfigError, match="weight"):
            Ensemble([three, three], vote="weighted", weights=weights)


def test_precisions_may_differ() -> None:
    nets = [mlp(0), mlp(0, precision="float64")]
    assert Ensemble(nets).predict(blobs(4)[0]).dtype == np.float64
    assert Ensemble(nets[:1]).predict(blobs(4)[0]).dtype == np.float32
    assert repr(Ensemble(nets)) == "Ensemble(2 networks, vote='mean')"
    assert list(Ensemble(nets)) == nets


def test_an_ensemble_is_matched_like_a_network() -> None:
    x, y = blobs(40)
    nets = trained(2)
    together = Ensemble(nets)
    right = analysis.correctness([*nets, together], (x, y))
    np.testing.assert_array_equal(right[2], together.predict_classes(x) == y)


def test_sequences_vote_step_by_step() -> None:
    layers = [nn.Embedding(7, 6), nn.RNN(5, return_sequences=True), nn.Dense(4)]
    nets = [loom.Sequential(layers, input_shape=8, seed=seed) for seed in range(3)]
    x = np.random.default_rng(0).integers(0, 7, (5, 8))
    y = x % 4
    for vote in ("mean", "majority"):
        ensemble = Ensemble(nets, vote=vote)  # type: ignore[arg-type]
        classes = ensemble.predict_classes(x)
        assert classes.shape == (5, 8)
        found = ensemble.evaluate((x, y), loss="cross_entropy", metrics=["accuracy"])
        assert found["accuracy"] == pytest.approx((classes == y).mean(), abs=1e-12)
        np.testing.assert_array_equal(analysis.correctness([ensemble], (x, y))[0], (classes == y).reshape(-1))


def test_networks_on_a_gpu_vote(gpu: str) -> None:
    x, _ = blobs(20)
    nets = trained(2)
    wanted = Ensemble(nets).predict(x)
    nets[0].to(gpu)
    np.testing.assert_allclose(Ensemble(nets).predict(x), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("vote", ["mean", "majority"])
@pytest.mark.parametrize("loss", ["binary_cross_entropy", "mse", "hinge"])
def test_a_single_output_is_read_as_it_was_learned(tmp_path: Path, loss: str, vote: Any) -> None:
    """Logits were compared with 0.5, whatever they were learned by."""
    random = np.random.default_rng(3)
    x = random.normal(size=(200, 2))
    y = (x[:, 0] + 0.8 * random.normal(size=200) > 0.4).astype(int)
    net = loom.Sequential([nn.Dense(1)], input_shape=2, seed=0)
    net.fit((x, y * 2 - 1 if loss == "hinge" else y), quiet(epochs=30, learning_rate=0.05, loss=loss))
    ensemble = Ensemble([net, net, net], vote=vote)
    assert ensemble.threshold == (0.5 if loss == "mse" else 0.0)
    np.testing.assert_array_equal(ensemble.predict_classes(x), net.predict_classes(x))
    assert Ensemble([net], threshold=0.25).threshold == 0.25
    ensemble.save(tmp_path / "three")
    again = Ensemble.load(tmp_path / "three")
    assert again.threshold == ensemble.threshold
    np.testing.assert_array_equal(again.predict_classes(x), ensemble.predict_classes(x))


def test_thresholds_of_outputs_by_name() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 3))
    net = loom.Network(inputs={"x": 3}, grid=(1, 2), seed=0)
    net[0, 0].add(nn.Dense(1))
    net.link((0, 0), (0, 1), combine="replace")[0, 1].add(nn.Dense(1))
    net.output("sold", (0, 0)).output("share", (0, 1))
    y = {"sold": np.where(x[:, 0] > 0, "yes", "no"), "share": (x[:, 1] > 0).astype(float)}
    net.fit(({"x": x}, y), quiet(epochs=3, loss={"sold": "binary_cross_entropy", "share": "mse"}))
    ensemble = Ensemble([net])
    assert ensemble.threshold == {"sold": 0.0, "share": 0.5}
    chosen: Any = ensemble.predict_classes({"x": x})  # type: ignore[arg-type]
    alone: Any = net.predict_classes({"x": x})
    np.testing.assert_array_equal(chosen["sold"], alone["sold"])
    assert Ensemble([net], threshold={"sold": 0.3}).threshold == {"sold": 0.3, "share": 0.5}
    with pytest.raises(loom.ConfigError, match='unknown threshold: output "price"'):
        Ensemble([net], threshold={"price": 0.3})


@pytest.mark.parametrize("data", [(), [3], [np.ones((4, 3))], (np.ones((4, 3)),)], ids=str)
def test_what_is_no_data_is_refused_where_outputs_have_names(data: Any) -> None:
    """TypeErrors came of it."""
    net = loom.Sequential([nn.Dense(2)], input_shape=3).output("kind", (0, 0))
    with pytest.raises(loom.DataError):
        Ensemble([net]).evaluate(data, loss={"kind": "cross_entropy"})
