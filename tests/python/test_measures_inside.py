"""Measures of layers inside others: against a flat network, and against NumPy."""

import numpy as np
import pytest

import loom
from loom import nn

pytestmark = pytest.mark.filterwarnings("ignore::loom.BottleneckWarning")

FIGURES = ("gaps", "alignments", "gains", "link_budgets", "cell_gaps")


def layers() -> list[nn.Layer]:
    return [nn.Dense(6, activation="tanh"), nn.LayerNorm(), nn.Dense(5, activation="relu"), nn.Dense(4)]


def flat_and_wrapped(precision: str = "float64") -> tuple[loom.Network, loom.Network]:
    """One network twice: its layers in a cell, and inside others there."""
    first, second, third, fourth = layers()
    flat = loom.Sequential([first, second, third, fourth, nn.Dense(3)], 4, precision=precision, seed=3)
    inside = nn.Sequential([first, nn.Sequential([second, third]), fourth])
    wrapped = loom.Sequential([inside, nn.Dense(3)], 4, precision=precision, seed=5)
    found = list(flat.state_dict().values())
    wrapped.load_state_dict(dict(zip(wrapped.state_dict(), found, strict=True)))
    return flat, wrapped


def data(rows: int = 24) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(7)
    return random.normal(size=(rows, 4)), random.integers(0, 3, rows)


INNER = ["0.0.0.0.0", "0.0.0.0.1.0", "0.0.0.0.1.1", "0.0.0.0.2"]


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_backpropagation_shows_what_a_flat_network_shows(precision: str, accumulate: int) -> None:
    flat, wrapped = flat_and_wrapped(precision)
    config = loom.TrainingConfig(
        epochs=2, batch_size=8, loss="cross_entropy", verbose=False, accumulate=accumulate
    )
    observe = loom.Observe(history=1, depth=3)
    loom.train(flat, data(), config, observe=observe)
    loom.train(wrapped, data(), config, observe=observe)
    assert wrapped.measures.layers == (
        "0.0.0.0",
        "0.0.0.0.0",
        "0.0.0.0.1",
        "0.0.0.0.1.0",
        "0.0.0.0.1.1",
        "0.0.0.0.2",
        "0.0.0.1",
    )
    rows = [wrapped.measures.layers.index(path) for path in INNER]
    tolerance = 1e-12 if precision == "float64" else 2e-4
    for name in FIGURES:
        expected = getattr(flat.measures.history, name)[:, :4]
        found = getattr(wrapped.measures.history, name)[:, rows]
        np.testing.assert_allclose(found, expected, rtol=tolerance, err_msg=name)
        np.testing.assert_array_equal(getattr(wrapped.measures, name)[rows], found[-1])
    # The last one inside makes what the layer around it makes, and the loss moves both alike.
    found = wrapped.measures.history
    np.testing.assert_array_equal(found.gaps[:, 0], found.gaps[:, 5])


def test_depth_two_stops_there() -> None:
    _, wrapped = flat_and_wrapped()
    config = loom.TrainingConfig(epochs=1, batch_size=8, loss="cross_entropy", verbose=False)
    loom.train(wrapped, data(), config, observe=loom.Observe(depth=2))
    assert [path for path in wrapped.measures.layers if path.count(".") > 4] == []
    assert "0.0.0.0.1" in wrapped.measures.layers


def test_looking_inside_changes_nothing() -> None:
    results = []
    for depth in (1, 3):
        _, wrapped = flat_and_wrapped("float32")
        config = loom.TrainingConfig(epochs=3, batch_size=8, loss="cross_entropy", verbose=False)
        observe = loom.Observe(detect_explosions=True, gap_threshold=1e-6, explosion_limit=1.2, depth=depth)
        loom.train(wrapped, data(), config, observe=observe)
        measures = wrapped.measures
        outer = [path.count(".") == 3 for path in measures.layers]
        results.append(
            (wrapped.state_dict(), measures.mean_gap, measures.explosion_count, measures.gaps[outer])
        )
    for name, values in results[0][0].items():
        np.testing.assert_array_equal(values, results[1][0][name], err_msg=name)
    assert results[0][1:3] == results[1][1:3]
    np.testing.assert_array_equal(results[0][3], results[1][3])


def test_inside_a_skip_against_numpy() -> None:
    net = loom.Sequential(
        [nn.Residual([nn.Dense(5, activation="tanh"), nn.Dense(4)]), nn.Dense(2)], 4, precision="float64"
    )
    x = np.random.default_rng(1).normal(size=(6, 4))
    y = np.random.default_rng(2).normal(size=(6, 2))
    w = {name: np.asarray(values) for name, values in net.state_dict().items()}
    hidden = np.tanh(x @ w["0.0.0.0.layers.0.weight"].T + w["0.0.0.0.layers.0.bias"])
    branch = hidden @ w["0.0.0.0.layers.1.weight"].T + w["0.0.0.0.layers.1.bias"]
    output = (x + branch) @ w["0.0.0.1.weight"].T + w["0.0.0.1.bias"]
    # Targets lie against the gradient of each sample's own loss, the mean over its outputs.
    to_output = 2 * (output - y) / y.shape[1]
    to_branch = to_output @ w["0.0.0.1.weight"]
    to_hidden = to_branch @ w["0.0.0.0.layers.1.weight"]
    config = loom.TrainingConfig(epochs=1, batch_size=6, loss="mse", shuffle=False, verbose=False)
    loom.train(net, (x, y), config, observe=loom.Observe(depth=2, gradient_scale=0.3))
    found = dict(zip(net.measures.layers, net.measures.gaps, strict=True))
    for path, gradient in {"0.0.0.0.layers.0": to_hidden, "0.0.0.0.layers.1": to_branch}.items():
        np.testing.assert_allclose(found[path], np.sqrt(np.mean((0.3 * gradient) ** 2)), rtol=1e-12)
    gains = dict(zip(net.measures.layers, net.measures.gains, strict=True))
    norm = np.linalg.norm
    np.testing.assert_allclose(gains["0.0.0.0.layers.0"], norm(hidden) / norm(x), rtol=1e-12)
    np.testing.assert_allclose(gains["0.0.0.0.layers.1"], norm(branch) / norm(hidden), rtol=1e-12)


@pytest.mark.parametrize("mode", ["chain_rule", "layerwise", "difference", "difference_reconstruction"])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_every_way_of_learning_by_targets(mode: str, device: str, gpu: str) -> None:
    _, wrapped = flat_and_wrapped("float32")
    if device == "gpu":
        wrapped.to(gpu)
    config = loom.TweenConfig(mode=mode, depth=2, history=1)
    training = loom.TrainingConfig(epochs=2, batch_size=8, loss="cross_entropy", verbose=False)
    trainer = loom.TweenTrainer(wrapped, config)
    trainer.fit(data(), training)
    measures = wrapped.measures
    assert measures.layers[1:4] == ("0.0.0.0.0", "0.0.0.0.1", "0.0.0.0.2")
    assert np.isfinite(measures.history.gaps).all()
    assert (measures.history.gaps > 0).all()
    assert np.isfinite(measures.gains).all()
    report = {row.path: row for row in trainer.state.report()}
    assert report["0.0.0.0.1"].kind == "sequential"
    assert report["0.0.0.0.1"].targets == "gradient"


def test_both_devices_show_the_same(gpu: str) -> None:
    found = []
    for device in ("cpu", gpu):
        _, wrapped = flat_and_wrapped("float32")
        wrapped.to(device)
        config = loom.TrainingConfig(epochs=2, batch_size=8, loss="cross_entropy", verbose=False)
        loom.train(wrapped, data(), config, observe=loom.Observe(history=1, depth=3))
        found.append(wrapped.measures.history)
    for name in FIGURES:
        np.testing.assert_allclose(getattr(found[1], name), getattr(found[0], name), rtol=2e-4, err_msg=name)


def test_a_resumed_file_goes_on_measuring_inside(tmp_path) -> None:
    config = loom.TrainingConfig(epochs=2, batch_size=8, loss="cross_entropy", verbose=False)
    observe = loom.Observe(history=1, depth=3)
    _, whole = flat_and_wrapped()
    _, parted = flat_and_wrapped()
    loom.train(whole, data(), config, observe=observe)
    loom.train(whole, data(), config, observe=observe, resume=True)
    loom.train(parted, data(), config, observe=observe)
    parted.save(tmp_path / "net.loom", optimizer=True)
    parted = loom.load(tmp_path / "net.loom")
    assert parted.measures.layers == whole.measures.layers
    loom.train(parted, data(), config, observe=observe, resume=True)
    for name in FIGURES:
        np.testing.assert_array_equal(
            getattr(parted.measures.history, name), getattr(whole.measures.history, name)
        )


@pytest.mark.parametrize("tween", [None, "chain_rule", "layerwise"])
def test_in_clock_mode_ticks_show_layers_inside(tween: str | None) -> None:
    net = loom.Sequential([nn.Sequential(layers()), nn.Dense(3)], 4, precision="float64", seed=5)
    random = np.random.default_rng(0)
    stream = [(random.normal(size=(6, 4)), random.integers(0, 3, 6)) for _ in range(12)]
    config = loom.TrainingConfig(loss="cross_entropy", learning_rate=0.0)
    how = {"observe": loom.Observe(depth=2)}
    if tween is not None:
        how = {"tween": loom.TweenConfig(mode=tween, depth=2)}
    loom.train_stepping(loom.Mesh(net, rows=6, window=4), stream, config, update_every=2, **how)
    assert net.measures.layers == ("0.0.0.0", *(f"0.0.0.0.{number}" for number in range(4)), "0.0.0.1")
    assert (net.measures.gaps > 0).all()
    assert (net.measures.gains > 0).all()
    if tween != "layerwise":
        # The last inside makes what the layer around it makes, and the loss moves both alike.
        np.testing.assert_allclose(net.measures.gaps[4], net.measures.gaps[0], rtol=1e-12)
        np.testing.assert_allclose(net.measures.alignments[4], net.measures.alignments[0], rtol=1e-12)


def test_recurrent_cells_inside_have_their_gaps() -> None:
    net = loom.Sequential(
        [nn.Residual([nn.LSTM(3, return_sequences=True)]), nn.Flatten(), nn.Dense(2)], (5, 3)
    )
    x, y = np.random.default_rng(0).normal(size=(8, 5, 3)), np.arange(8) % 2
    config = loom.TrainingConfig(epochs=1, batch_size=8, loss="cross_entropy", verbose=False)
    loom.train(net, (x, y), config, observe=loom.Observe(depth=2))
    cells = dict(zip(net.measures.layers, net.measures.cell_gaps, strict=True))
    assert cells["0.0.0.0"] == cells["0.0.0.0.layers.0"] > 0


def test_depth_is_checked() -> None:
    with pytest.raises(loom.ConfigError, match="depth must be a positive whole number"):
        loom.Observe(depth=0)
