"""Layers whose weight is made of other parameters: weight norm and spectral norm, against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn

Array = NDArray[np.float64]

INSIDE: list[tuple[nn.Layer, tuple[int, ...]]] = [
    (nn.Dense(5), (7,)),
    (nn.Dense(3, bias=False, activation="tanh"), (4, 6)),
    (nn.Conv1D(4, 3, padding=1), (2, 9)),
    (nn.Conv2D(6, (2, 3), groups=2, activation="relu"), (4, 6, 5)),
    (nn.Conv3D(2, 2), (3, 3, 4, 3)),
]


def made(kind: type[nn.Layer], inside: nn.Layer, shape: tuple[int, ...]) -> tuple[loom.Network, loom.Network]:
    """The layer in a wrapper with parameters at random, and a plain one."""
    random = np.random.default_rng(len(shape))
    net = loom.Sequential([kind(inside)], input_shape=shape, precision="float64")
    plain = loom.Sequential([inside], input_shape=shape, precision="float64")
    for name, parameter in net.layers[0].parameters.items():
        net.layers[0][name] = random.standard_normal(parameter.shape)
    if "bias" in plain.layers[0].parameters:
        plain.layers[0].bias = net.layers[0]["0.bias"]
    return net, plain


def by_length(weight: Array, gain: Array) -> Array:
    rows = weight.reshape(len(weight), -1)
    return (gain[:, None] * rows / np.linalg.norm(rows, axis=1, keepdims=True)).reshape(weight.shape)


def by_singular_value(weight: Array, left: Array) -> tuple[Array, Array]:
    """The weight, and the vector that the iteration has come to."""
    rows = weight.reshape(len(weight), -1)
    right = rows.T @ left
    product = rows @ (right / np.linalg.norm(right))
    return weight / np.linalg.norm(product), product / np.linalg.norm(product)


@pytest.mark.parametrize(("inside", "shape"), INSIDE)
def test_weights_are_those_of_numpy(inside: nn.Layer, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).standard_normal((3, *shape))
    net, plain = made(nn.WeightNorm, inside, shape)
    plain.layers[0].weight = by_length(net.layers[0]["0.weight"], net.layers[0]["gain"])
    np.testing.assert_allclose(net.predict(x), plain.predict(x), rtol=1e-12, atol=1e-12)
    net, plain = made(nn.SpectralNorm, inside, shape)
    left = net.layers[0].states["left_vector"]
    for _ in range(3):
        plain.layers[0].weight, left = by_singular_value(net.layers[0]["0.weight"], left)
        # Inference keeps nothing of its iteration; a step of training does.
        for _ in range(2):
            np.testing.assert_allclose(net.predict(x), plain.predict(x), rtol=1e-12, atol=1e-12)
        trainer = loom.Trainer(net, loom.TrainingConfig(loss="mse", optimizer="sgd", learning_rate=1e-300))
        trainer.step(x, np.zeros((3, *net.output_shape)))
        np.testing.assert_allclose(net.layers[0].states["left_vector"], left, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", [nn.WeightNorm, nn.SpectralNorm])
@pytest.mark.parametrize(("inside", "shape"), INSIDE[:4])
def test_gradients_are_central_differences(kind: Any, inside: nn.Layer, shape: tuple[int, ...]) -> None:
    net, _ = made(kind, inside, shape)
    random = np.random.default_rng(3)
    x, dy = random.standard_normal((2, *shape)), random.standard_normal((2, *net.output_shape))
    # A pass of training moves the iteration on.
    state = net.state_dict()
    net.forward(x)
    dx = net.backward(dy)
    gradients = {name: np.asarray(gradient) for name, gradient in net.layers[0].gradients.items()}
    assert set(gradients) == set(net.layers[0].parameters)
    for name, gradient in gradients.items():
        start = np.asarray(net.layers[0][name])
        for place in list(np.ndindex(start.shape))[::3]:
            ends = []
            for step in (1e-5, -1e-5):
                net.load_state_dict(state)
                moved = start.copy()
                moved[place] += step
                net.layers[0][name] = moved
                ends.append((net.predict(x) * dy).sum())
            assert gradient[place] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-6), name
    assert dx.shape == x.shape


def test_training_begins_where_it_would_without() -> None:
    x = np.random.default_rng(2).standard_normal((4, 6), np.float32)
    layers = [nn.Dense(9, activation="tanh"), nn.Dense(3)]
    plain = loom.Sequential(layers, input_shape=6, seed=5)
    net = loom.Sequential([nn.WeightNorm(layer) for layer in layers], input_shape=6, seed=5)
    np.testing.assert_allclose(net.layers[0]["0.weight"], plain.layers[0].weight)
    np.testing.assert_allclose(net.predict(x), plain.predict(x), rtol=2e-6, atol=2e-6)


def test_iterations_come_to_the_largest_singular_value() -> None:
    net = loom.Sequential([nn.SpectralNorm(nn.Dense(8, bias=False))], input_shape=12, precision="float64")
    weight = np.asarray(net.layers[0]["0.weight"])
    trainer = loom.Trainer(net, loom.TrainingConfig(loss="mse", optimizer="sgd", learning_rate=1e-300))
    for _ in range(200):
        trainer.step(np.ones((1, 12)), np.zeros((1, 8)))
    largest = np.linalg.svd(weight, compute_uv=False)[0]
    x = np.random.default_rng(1).standard_normal((2, 12))
    np.testing.assert_allclose(net.predict(x), x @ weight.T / largest, rtol=1e-6)


def lipschitz(kind: Any, device: str = "cpu", seed: int = 0) -> loom.Network:
    layers = [kind(nn.Conv2D(6, 3, padding=1, activation="leaky_relu")), nn.Flatten(), kind(nn.Dense(1))]
    return loom.Sequential(layers, input_shape=(1, 6, 6), seed=seed).to(device)


def losses(net: loom.Network) -> list[float]:
    random = np.random.default_rng(7)
    x = random.standard_normal((64, 1, 6, 6), np.float32)
    y = (x[:, :, :3].sum(axis=(1, 2, 3)) > x[:, :, 3:].sum(axis=(1, 2, 3))).astype(np.float32)[:, None]
    settings: dict[str, Any] = {"epochs": 20, "batch_size": 16, "learning_rate": 0.02, "verbose": 0}
    return net.fit(x, y, loss="binary_cross_entropy", **settings).loss_history


@pytest.mark.parametrize("kind", [nn.WeightNorm, nn.SpectralNorm])
def test_networks_learn_and_files_keep_them(kind: Any, tmp_path: Path) -> None:
    net = lipschitz(kind)
    found = losses(net)
    assert found[-1] < (0.5 if kind is nn.WeightNorm else 0.95) * found[0]
    assert found == losses(lipschitz(kind))
    x = np.random.default_rng(0).standard_normal((3, 1, 6, 6), np.float32)
    net.save(tmp_path / "net.loom")
    read = loom.load(tmp_path / "net.loom")
    np.testing.assert_array_equal(read.predict(x), net.predict(x))
    assert [layer.config for layer in read.layers] == [layer.config for layer in net.layers]
    assert loom.Network.from_json(net.to_json()).layers[0].config == net.layers[0].config
    if kind is nn.SpectralNorm:
        # No point is stretched more than by the singular values, which are about 1.
        other = x + 0.01 * np.random.default_rng(1).standard_normal(x.shape).astype(np.float32)
        moved = np.abs(net.predict(other) - net.predict(x))[:, 0]
        assert (moved < 9 * np.linalg.norm((other - x).reshape(3, -1), axis=1)).all()


@pytest.mark.parametrize("kind", [nn.WeightNorm, nn.SpectralNorm])
def test_both_devices_agree(kind: Any, gpu: str) -> None:
    np.testing.assert_allclose(losses(lipschitz(kind, gpu)), losses(lipschitz(kind)), rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("kind", [nn.WeightNorm, nn.SpectralNorm])
def test_onnx_has_the_weight_as_it_is_made(kind: Any, tmp_path: Path) -> None:
    reference = pytest.importorskip("onnx.reference")
    net = lipschitz(kind)
    losses(net)
    loom.save_onnx(net, tmp_path / "net.onnx")
    x = np.random.default_rng(2).standard_normal((2, 1, 6, 6), np.float32)
    evaluator = reference.ReferenceEvaluator(str(tmp_path / "net.onnx"))
    (found,) = evaluator.run(None, {evaluator.input_names[0]: x})
    np.testing.assert_allclose(found, net.predict(x), rtol=0, atol=1e-5)
    np.testing.assert_allclose(loom.load(tmp_path / "net.onnx").predict(x), net.predict(x), rtol=0, atol=1e-5)


def test_handles_and_blueprints_tell_of_the_layer_inside() -> None:
    net = loom.Sequential([nn.WeightNorm(nn.Dense(3)), nn.SpectralNorm(nn.Dense(2))], input_shape=4)
    assert [layer.layers[0].config for layer in net.layers] == [nn.Dense(3), nn.Dense(2)]
    assert net.layers[0].layers[0].weight.shape == (3, 4)
    assert net.blueprint().parameter_count == 3 * 4 + 3 + 3 + 2 * 3 + 2


@pytest.mark.parametrize("kind", [nn.WeightNorm, nn.SpectralNorm])
@pytest.mark.parametrize(
    ("layers", "told"),
    [
        (nn.LSTM(3), "LSTM"),
        ([nn.Dense(2), nn.Dense(3)], "one layer, got 2"),
        ([], "at least one layer"),
        (3, "layer"),
        (nn.ConvTranspose2D(2, 3), "ConvTranspose2D"),
    ],
)
def test_other_layers_are_refused_by_name(kind: Any, layers: Any, told: str) -> None:
    with pytest.raises(loom.ConfigError, match=told):
        kind(layers)
