"""Gradients of inputs and what outputs owe to them, against plain NumPy; samples in the plane."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn
from loom.analysis import Embedding, Saliency, embed, saliency
from networks import blobs, cnn, quiet, stripes

Array = NDArray[Any]


def smooth(seed: int = 0) -> loom.Network:
    return loom.Sequential(
        [nn.Dense(6, activation="tanh"), nn.Dropout(0.5), nn.Dense(3)],
        input_shape=4,
        precision="float64",
        seed=seed,
    )


def by_hand(net: loom.Network, x: Array) -> tuple[Array, Array]:
    """The outputs, and (rows, outputs, inputs) their gradients."""
    first, _, last = net.layers
    hidden = np.tanh(x @ first.weight.T + first.bias)
    jacobian = np.einsum("oh,bh,hi->boi", last.weight, 1 - hidden**2, first.weight)
    return hidden @ last.weight.T + last.bias, jacobian


def samples(rows: int = 9, width: int = 4) -> Array:
    return np.random.default_rng(1).normal(size=(rows, width))


# Gradients of the input


@pytest.mark.parametrize("size", [1, 4, 256])
def test_gradients_of_outputs_are_the_jacobian_s_rows(size: int) -> None:
    net, x = smooth(), samples()
    _, jacobian = by_hand(net, x)
    for target in range(-3, 3):
        found = net.input_gradients(x, target=target, batch_size=size)
        np.testing.assert_allclose(found, jacobian[:, target], rtol=0, atol=1e-12)
    each = np.arange(9) % 3
    found = net.input_gradients(x, target=each.tolist(), batch_size=size)
    np.testing.assert_allclose(found, jacobian[np.arange(9), each], rtol=0, atol=1e-12)
    np.testing.assert_array_equal(net.input_gradients(x, target=(2,)), net.input_gradients(x, target=2))


@pytest.mark.parametrize("size", [2, 256])
def test_gradients_of_losses_are_each_sample_s_own(size: int) -> None:
    net, x = smooth(), samples()
    outputs, jacobian = by_hand(net, x)
    y = np.arange(9) % 3
    shares = np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)
    expected = np.einsum("bo,boi->bi", shares - np.eye(3)[y], jacobian)
    found = net.input_gradients(x, y, loss="cross_entropy", batch_size=size)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    wanted = np.random.default_rng(2).normal(size=(9, 3))
    expected = np.einsum("bo,boi->bi", 2 / 3 * (outputs - wanted), jacobian)
    found = net.input_gradients(x, wanted, loss="mse", batch_size=size)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    alone = np.concatenate([net.input_gradients(x[[row]], wanted[[row]], loss="mse") for row in range(9)])
    np.testing.assert_allclose(found, alone, rtol=0, atol=1e-15)


def test_the_loss_is_that_of_the_last_training() -> None:
    x, y = blobs(60)
    net = loom.Sequential([nn.Dense(3)], input_shape=6)
    with pytest.raises(loom.StateError, match="no loss"):
        net.input_gradients(x, y)
    net.fit((x, y), quiet(epochs=1))
    np.testing.assert_array_equal(
        net.input_gradients(x, y), net.input_gradients(x, y, loss="cross_entropy", batch_size=7)
    )


def test_outputs_of_several_axes_are_named_by_tuples() -> None:
    net = loom.Sequential([nn.Dense(2, activation="tanh")], input_shape=(3, 4), precision="float64")
    x = np.random.default_rng(0).normal(size=(5, 3, 4))
    found = net.input_gradients(x, target=(1, 0))
    layer = net.layers[0]
    slope = 1 - net.predict(x)[:, 1, 0] ** 2
    expected = np.zeros_like(x)
    expected[:, 1] = slope[:, None] * layer.weight[0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    each = [(row % 3, row % 2) for row in range(5)]
    for row, place in enumerate(each):
        one = net.input_gradients(x[[row]], target=place)[0]
        np.testing.assert_array_equal(net.input_gradients(x, target=each)[row], one)
    single = loom.Sequential([nn.Dense(1)], input_shape=4)
    np.testing.assert_array_equal(
        single.input_gradients(np.ones((2, 4))), np.repeat(single.layers[0].weight, 2, axis=0)
    )


def test_every_layer_s_gradient_is_a_central_difference() -> None:
    net = loom.Sequential(
        [
            nn.Conv2D(3, 3, activation="silu"),
            nn.BatchNorm(),
            nn.Residual([nn.Conv2D(3, 3, padding=1, activation="tanh")]),
            nn.AvgPool2D(2),
            nn.Flatten(),
            nn.Dropout(0.4),
            nn.Dense(4),
        ],
        input_shape=(1, 6, 6),
        precision="float64",
    )
    x = np.random.default_rng(0).normal(size=(2, 1, 6, 6))
    net.forward(x)
    found, step = net.input_gradients(x, target=3), 1e-5
    for place in [(0, 0, 0, 0), (0, 0, 2, 3), (1, 0, 5, 5), (1, 0, 3, 1)]:
        move = np.zeros_like(x)
        move[place] = step
        slope = (net.predict(x + move) - net.predict(x - move))[place[0], 3] / (2 * step)
        np.testing.assert_allclose(found[place], slope, rtol=0, atol=1e-9)


def test_gradients_leave_no_trace() -> None:
    net, x = smooth(), samples()
    net.forward(x)
    net.backward(np.ones((9, 3)))
    shown = net.layers[0].activation
    gradients = [net.layers[0].gradients[name] for name in ("weight", "bias")]
    net.input_gradients(x[:2], target=0)
    np.testing.assert_array_equal(net.layers[0].activation, shown)
    for name, before in zip(("weight", "bias"), gradients, strict=True):
        np.testing.assert_array_equal(net.layers[0].gradients[name], before)


def test_what_is_not_meant_is_refused() -> None:
    net, x = smooth(), samples()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, r"which of the outputs \(3,\) is meant"),
        ({"target": 3}, "out of range"),
        ({"target": -4}, "out of range"),
        ({"target": [0, 1]}, "one for each of 9 samples"),
        ({"target": 0.5}, "whole number"),
        ({"target": "cat"}, "whole number"),
        ({"target": True}, "whole number"),
        ({"target": (0, 1)}, "one index into outputs"),
        ({"target": 0, "y": np.zeros(9, int)}, "not both"),
        ({"y": np.zeros(4, int), "loss": "cross_entropy"}, "9 rows"),
        ({"y": np.full(9, 7), "loss": "cross_entropy"}, "7"),
        ({"y": np.zeros(9, int), "loss": "crossentroby"}, "did you mean"),
        ({"target": 0, "batch_size": 0}, "batch_size"),
    ]
    for given, message in wrong:
        with pytest.raises(loom.LoomError, match=message):
            net.input_gradients(x, **given)
    with pytest.raises(loom.ShapeError, match="expected \\(batch, 4"):
        net.input_gradients(samples(3, 5), target=0)
    with pytest.raises(loom.NonFiniteError):
        net.input_gradients(np.full((2, 4), np.nan), target=0)
    with pytest.raises(loom.DataError, match="no samples"):
        net.input_gradients(np.zeros((0, 4)), target=0)


# Saliency


def test_a_gradient_is_a_gradient() -> None:
    net, x = smooth(), samples()
    outputs, jacobian = by_hand(net, x)
    found = saliency(net, x)
    largest = outputs.argmax(axis=1)
    assert found.method == "gradient"
    assert np.isnan(found.baseline_outputs).all()
    np.testing.assert_array_equal(found.targets, largest[:, None])
    np.testing.assert_allclose(found.values, jacobian[np.arange(9), largest], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.outputs, outputs.max(axis=1), rtol=0, atol=1e-12)
    assert np.isnan(found.completeness_gaps()).all()


@pytest.mark.parametrize("baseline", [None, 0.5, [0.1, -0.2, 0.3, 0.0], "each"])
def test_integrated_gradients_are_complete(baseline: Any) -> None:
    net, x = smooth(), samples()
    given = np.random.default_rng(5).normal(size=x.shape) if baseline == "each" else baseline
    found = saliency(net, x, target=1, method="integrated_gradients", baseline=given, batch_size=4)
    assert found.completeness_gaps().max() < 1e-9
    begin = np.broadcast_to(0.0 if given is None else np.asarray(given), x.shape)
    # The mean gradient on the way, by the midpoints of many pieces.
    pieces = 4000
    total = sum(by_hand(net, begin + (k + 0.5) / pieces * (x - begin))[1][:, 1] for k in range(pieces))
    np.testing.assert_allclose(found.values, (x - begin) * total / pieces, rtol=0, atol=1e-7)
    np.testing.assert_allclose(found.baseline_outputs, by_hand(net, begin)[0][:, 1], rtol=0, atol=1e-12)


def test_integrated_gradients_of_a_linear_network_are_exact_at_one_step() -> None:
    net = loom.Sequential([nn.Dense(2)], input_shape=4, precision="float64")
    x = samples()
    found = saliency(net, x, target=0, method="integrated_gradients", steps=1)
    np.testing.assert_allclose(found.values, x * net.layers[0].weight[0], rtol=0, atol=1e-14)


def test_elements_that_do_not_matter_get_nothing() -> None:
    net = smooth()
    weight = net.layers[0].weight.copy()
    weight[:, 2] = 0.0
    net.layers[0].weight = weight
    for method in ("gradient", "integrated_gradients"):
        assert (saliency(net, samples(), method=method).values[:, 2] == 0).all()


def test_saliency_is_a_report() -> None:
    net, x = smooth(), samples(3)
    for method in ("gradient", "integrated_gradients"):
        found = saliency(net, x, method=method)
        again = Saliency.from_json(found.to_json())
        assert again == found
        assert again.values.shape == (3, 4)
        assert again.targets.dtype == np.int64
    frame = found.to_frame()
    assert list(frame.columns) == ["sample", "element", "value"]
    assert len(frame) == 12
    assert frame["value"][5] == found.values[1, 1]


def test_saliency_refuses_what_it_cannot_do() -> None:
    net, x = smooth(), samples()
    with pytest.raises(loom.ConfigError, match='did you mean "gradient"'):
        saliency(net, x, method="gradiant")
    with pytest.raises(loom.ShapeError, match="baseline"):
        saliency(net, x, method="integrated_gradients", baseline=[1.0, 2.0])
    with pytest.raises(loom.ConfigError, match="steps"):
        saliency(net, x, method="integrated_gradients", steps=0)
    with pytest.raises(loom.DataError, match="no samples"):
        saliency(net, x[:0])
    with pytest.raises(loom.ShapeError):
        saliency(net, samples(2, 7))
    words = loom.Sequential([nn.Embedding(9, 4), nn.Flatten(), nn.Dense(2)], input_shape=3)
    with pytest.raises(loom.ConfigError, match="whole numbers"):
        saliency(words, np.ones((2, 3), int))


# Samples in the plane


def test_principal_components_are_those_of_numpy() -> None:
    x = np.random.default_rng(0).normal(size=(50, 6)) * [6, 4, 2, 1, 1, 1] + 3
    found = embed(x, labels=range(50))
    centred = x - x.mean(axis=0)
    _, lengths, directions = np.linalg.svd(centred, full_matrices=False)
    np.testing.assert_allclose(np.abs(found.points), np.abs(centred @ directions[:2].T), rtol=0, atol=1e-9)
    np.testing.assert_allclose(found.explained, (lengths**2)[:2] / (lengths**2).sum(), rtol=0, atol=1e-12)
    assert found.labels is not None
    assert found.labels[49] == "49"
    assert found.features == 6
    again = Embedding.from_json(found.to_json())
    assert again == found
    assert list(found.to_frame().columns) == ["x", "y", "label"]
    np.testing.assert_array_equal(embed(x).points, found.points)


def test_neighbours_stay_together() -> None:
    random = np.random.default_rng(0)
    label = np.repeat([0, 1, 2], 20)
    x = random.normal(size=(60, 8)) + 12 * np.eye(8)[label]
    for method in ("pca", "tsne"):
        found = embed(x, method, labels=label, seed=3)
        centers = np.stack([found.points[label == group].mean(axis=0) for group in range(3)])
        nearest = np.linalg.norm(found.points[:, None] - centers, axis=2).argmin(axis=1)
        np.testing.assert_array_equal(nearest, label)
    np.testing.assert_array_equal(embed(x, "tsne", seed=3).points, found.points)
    assert np.isnan(found.explained).all()
    assert Embedding.from_json(found.to_json()) == found


def test_edges_of_the_plane() -> None:
    line = embed(np.arange(5.0)[:, None])
    np.testing.assert_allclose(np.abs(line.points[:, 0]), np.abs(np.arange(5) - 2.0), atol=1e-12)
    np.testing.assert_allclose(line.points[:, 1], 0.0, atol=1e-12)
    assert (embed(np.ones((4, 3))).points == 0).all()
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (np.ones((1, 3)), {}, "2 or more"),
        (np.ones((3, 3)), {"method": "tsne"}, "4 or more"),
        (np.ones((4, 3)), {"method": "umap"}, "unknown method"),
        (np.ones((4, 3)), {"labels": [1]}, "1 labels do not fit 4"),
        (np.ones((4, 3)), {"perplexity": 0}, "perplexity"),
        (np.full((4, 3), np.nan), {}, "nan"),
        (np.ones(4), {}, "samples, features"),
    ]
    for data, settings, message in wrong:
        with pytest.raises(loom.LoomError, match=message):
            embed(data, **settings)


# Pictures


def image_saliency(method: str) -> tuple[Saliency, Array]:
    x, _ = stripes(7)
    return saliency(cnn(), x, method=method, steps=8), x


def bars() -> Saliency:
    return saliency(smooth(), samples(3), method="integrated_gradients")


def points(method: str, classes: int) -> Embedding:
    random = np.random.default_rng(0)
    label = np.arange(60) % classes
    return embed(random.normal(size=(60, 5)) + label[:, None], method, labels=label)


def heads() -> Array:
    net = loom.Sequential([nn.MultiHeadAttention(3, causal=True)], input_shape=(5, 6))
    return net.activations(samples(5, 6)[None], attention=True).attention["0.0.0.0"][0]


PICTURES: dict[str, Callable[..., Any]] = {
    "saliency_images": lambda path: loom.plot.saliency(image_saliency("gradient")[0], path=path),
    "saliency_with_inputs": lambda path: loom.plot.saliency(
        *image_saliency("integrated_gradients"), columns=4, path=path
    ),
    "saliency_bars": lambda path: loom.plot.saliency(
        bars(), samples(3), names=["age", "height", "weight", "shoes"], path=path
    ),
    "saliency_bars_alone": lambda path: loom.plot.saliency(bars(), most=2, path=path),
    "embedding": lambda path: loom.plot.embedding(points("pca", 3), path=path),
    "embedding_many": lambda path: loom.plot.embedding(points("tsne", 14), path=path),
    "embedding_plain": lambda path: loom.plot.embedding(embed(samples(20)), title="activations", path=path),
    "attention": lambda path: loom.plot.attention(heads(), queries=list("loom?"), path=path),
    "attention_plain": lambda path: loom.plot.attention(heads()[:, :, :3], columns=2, path=path),
}


@pytest.mark.parametrize("name", PICTURES)
def test_every_picture_is_drawn(tmp_path: Path, name: str) -> None:
    for ending, start in ((".png", b"\x89PNG"), (".svg", b"<?xml")):
        path = tmp_path / f"{name}{ending}"
        assert PICTURES[name](path).axes
        assert path.read_bytes().startswith(start)


def test_pictures_show_the_figures() -> None:
    found = bars()
    axes = loom.plot.saliency(found).axes
    np.testing.assert_allclose([bar.get_height() for bar in axes[1].patches], found.values[1])
    assert axes[0].get_title() == f"output {found.targets[0, 0]}: {found.outputs[0]:.3g}"
    plane = points("pca", 3)
    shown = np.concatenate([drawn.get_offsets() for drawn in loom.plot.embedding(plane).axes[0].collections])
    np.testing.assert_allclose(np.sort(shown, axis=0), np.sort(plane.points, axis=0))
    weights = heads()
    pictures = loom.plot.attention(weights).axes
    np.testing.assert_allclose(pictures[2].images[0].get_array(), weights[2])


def test_what_cannot_be_drawn_is_refused() -> None:
    found = bars()
    with pytest.raises(loom.ShapeError, match="inputs of shape"):
        loom.plot.saliency(found, np.ones((3, 5)))
    with pytest.raises(loom.ShapeError, match="2 names do not fit 4"):
        loom.plot.saliency(found, names=["a", "b"])
    with pytest.raises(loom.ShapeError, match="one sample"):
        loom.plot.attention(heads()[0])
    with pytest.raises(loom.ConfigError, match="1 names do not fit 5 queries"):
        loom.plot.attention(heads(), queries=["a"])


# One program


def test_a_whole_program() -> None:
    x, y = stripes(240)
    net = loom.Sequential(
        [
            nn.Residual([nn.Conv2D(6, kernel_size=3, padding=1, activation="relu"), nn.Conv2D(1, 1)]),
            nn.Conv2D(6, kernel_size=3, activation="relu"),
            nn.GlobalAvgPool2D(),
            nn.Dense(4),
        ],
        input_shape=(1, 8, 8),
        seed=1,
    )
    net.fit((x, y), quiet(epochs=25, metrics=["accuracy"], learning_rate=0.02))
    assert net.evaluate((x, y), metrics=["accuracy"])["accuracy"] > 0.8
    inner = net[0, 0, 0, 0].layers[0]
    features = net.activations(x, [inner, "0.0.0.2"])
    assert features[inner.path].shape == (240, 6, 8, 8)
    plane = embed(features["0.0.0.2"], labels=y)
    assert plane.points.shape == (240, 2)
    again = loom.analysis.similarity(net, net, x, layers_a=[inner, net.layers[2]], layers_b=[inner.path])
    np.testing.assert_allclose(again.matrix[0, 0], 1.0, atol=1e-6)
    units = loom.analysis.unit_activations(net, inner, x[:10], axis=0)
    assert units.shape == (640, 6)
    assert len(loom.analysis.cluster_units(net, inner.path, x[:20], 2, axis=0).assignments) == 6
    # What integrated gradients find is what matters: without it the output falls more than without the rest.
    found = saliency(net, x[:40], method="integrated_gradients")
    flat = found.values.reshape(40, -1)
    strongest = flat > np.median(flat, axis=1, keepdims=True)
    without = [
        net.predict(np.where(kept.reshape(x[:40].shape), x[:40], 0)) for kept in (~strongest, strongest)
    ]
    at = found.targets[:, 0]
    fallen = [found.outputs - made[np.arange(40), at] for made in without]
    assert fallen[0].mean() > fallen[1].mean()
