"""Layers that resize, crop, shuffle and draw, against NumPy; their training; their errors.

Values and gradients against PyTorch's are proved in `tests/golden/resizing.json`.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import loom
from loom import nn

Array = npt.NDArray[Any]

UP: dict[int, Any] = {1: nn.UpSampling1D, 2: nn.UpSampling2D, 3: nn.UpSampling3D}
CROPS: dict[int, Any] = {1: nn.Crop1D, 2: nn.Crop2D, 3: nn.Crop3D}
MEANS: dict[int, Any] = {1: nn.AdaptiveAvgPool1D, 2: nn.AdaptiveAvgPool2D, 3: nn.AdaptiveAvgPool3D}
LARGEST: dict[int, Any] = {1: nn.AdaptiveMaxPool1D, 2: nn.AdaptiveMaxPool2D, 3: nn.AdaptiveMaxPool3D}
SPATIAL: dict[int, Any] = {1: nn.SpatialDropout1D, 2: nn.SpatialDropout2D, 3: nn.SpatialDropout3D}
STRAIGHT = {1: "linear", 2: "bilinear", 3: "trilinear"}


def alone(layer: nn.Layer, shape: tuple[int, ...], precision: str = "float64") -> loom.Network:
    return loom.Sequential([layer], input_shape=shape, precision=precision, seed=3)


def adaptive(x: Array, size: tuple[int, ...], reduce: Any) -> Array:
    """Windows by their definition, one by one."""
    y = np.empty((*x.shape[:2], *size))
    for place in itertools.product(*map(range, size)):
        window = tuple(
            slice(i * extent // made, -(-(i + 1) * extent // made))
            for i, extent, made in zip(place, x.shape[2:], size, strict=True)
        )
        axes = tuple(range(2, x.ndim))
        y[(slice(None), slice(None), *place)] = reduce(x[(slice(None), slice(None), *window)], axis=axes)
    return y


def straight(x: Array, scale: tuple[int, ...]) -> Array:
    """Between the centres of elements, axis by axis."""
    for axis, factor in enumerate(scale, 2):
        extent = x.shape[axis]
        centres = (np.arange(factor * extent) + 0.5) / factor - 0.5
        x = np.apply_along_axis(
            lambda line, at, n: np.interp(at, np.arange(n), line), axis, x, centres, extent
        )
    return x


@pytest.mark.parametrize("seed", range(12))
def test_random_layers_are_what_numpy_makes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axes = 1 + seed % 3
    shape = (2, *rng.integers(2, 7, axes).tolist())
    x = rng.normal(size=(3, *shape))
    scale = tuple(rng.integers(1, 4, axes).tolist())
    repeated = x
    for axis, factor in enumerate(scale, 2):
        repeated = np.repeat(repeated, factor, axis=axis)
    np.testing.assert_array_equal(alone(UP[axes](scale), shape).predict(x), repeated)
    found = alone(UP[axes](scale, mode=STRAIGHT[axes]), shape).predict(x)
    np.testing.assert_allclose(found, straight(x, scale), atol=1e-14)
    size = tuple(rng.integers(1, 8, axes).tolist())
    np.testing.assert_allclose(
        alone(MEANS[axes](size), shape).predict(x), adaptive(x, size, np.mean), atol=1e-14
    )
    np.testing.assert_array_equal(alone(LARGEST[axes](size), shape).predict(x), adaptive(x, size, np.max))
    before = tuple(int(rng.integers(0, extent)) for extent in shape[1:])
    after = tuple(int(rng.integers(0, e - b)) for e, b in zip(shape[1:], before, strict=True))
    inside = tuple(slice(b, e - a) for b, e, a in zip(before, shape[1:], after, strict=True))
    cropped = alone(CROPS[axes](before, after), shape).predict(x)
    np.testing.assert_array_equal(cropped, x[(slice(None), slice(None), *inside)])
    norm = alone(nn.InstanceNorm(epsilon=1e-3), shape).predict(x)
    places = tuple(range(2, x.ndim))
    mean, variance = x.mean(axis=places, keepdims=True), x.var(axis=places, keepdims=True)
    np.testing.assert_allclose(norm, (x - mean) / np.sqrt(variance + 1e-3), atol=1e-13)


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_pixels_are_shuffled_and_come_back(factor: int) -> None:
    rng = np.random.default_rng(factor)
    channels, height, width = 2, 3, 2
    shape = (channels * factor**2, height, width)
    x = rng.normal(size=(4, *shape))
    y = alone(nn.PixelShuffle(factor), shape).predict(x)
    for c, i, j in itertools.product(range(channels), range(factor), range(factor)):
        np.testing.assert_array_equal(y[:, c, i::factor, j::factor], x[:, (c * factor + i) * factor + j])
    there = (channels, factor * height, factor * width)
    np.testing.assert_array_equal(alone(nn.PixelUnshuffle(factor), there).predict(y), x)


def small_unet() -> loom.Network:
    """Every one of these layers in an image network, as its user would write it."""
    layers = [
        nn.GaussianNoise(0.05),
        nn.Conv2D(8, 3, padding="same"),
        nn.InstanceNorm(),
        nn.Activation("relu"),
        nn.SpatialDropout2D(0.1),
        nn.AdaptiveMaxPool2D(5),
        nn.Conv2D(12, 3, padding="same", activation="relu"),
        nn.PixelShuffle(2),
        nn.UpSampling2D(2, mode="bilinear"),
        nn.Crop2D(2),
        nn.PixelUnshuffle(2),
        nn.UpSampling2D(2),
        nn.Conv2D(4, 3, padding="same"),
        nn.AdaptiveAvgPool2D((3, 2)),
        nn.Flatten(),
        nn.Dense(2),
    ]
    return loom.Sequential(layers, input_shape=(1, 12, 11), seed=5)


def stripes() -> tuple[Array, Array]:
    """Images with stripes that lie or stand."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 96)
    rows, columns = np.indices((12, 11))
    x = np.where(y[:, None, None] == 0, rows % 4 < 2, columns % 4 < 2) + rng.normal(0, 0.3, (96, 12, 11))
    return x[:, None].astype(np.float32), y


def test_a_network_of_all_learns_and_comes_back_from_its_file(tmp_path: Path) -> None:
    x, y = stripes()
    net = small_unet()
    net.fit(x, y, epochs=12, batch_size=16, loss="cross_entropy", learning_rate=0.01, verbose=False)
    assert net.evaluate((x, y), metrics=["accuracy"])["accuracy"] > 0.95
    net.save(tmp_path / "net.loom")
    np.testing.assert_array_equal(loom.load(tmp_path / "net.loom").predict(x), net.predict(x))


def test_a_gpu_trains_the_same(gpu: str) -> None:
    x, y = stripes()
    trained = []
    for device in ("cpu", gpu):
        net = small_unet().to(device)
        net.fit(x, y, epochs=1, batch_size=16, loss="cross_entropy", verbose=False)
        trained.append(net.predict(x))
    np.testing.assert_allclose(trained[0], trained[1], atol=2e-4)


def test_spatial_dropout_drops_whole_channels() -> None:
    for axes, layer in SPATIAL.items():
        shape = (40, *(3, 2, 4)[:axes])
        x = np.ones((50, *shape))
        net = alone(layer(0.25), shape)
        y = np.asarray(net.forward(x)).reshape(50, 40, -1)
        assert np.all(y == y[:, :, :1])
        np.testing.assert_allclose(np.unique(y), [0.0, 4 / 3])
        assert abs(np.mean(y == 0) - 0.25) < 0.05
        gradient = np.asarray(net.backward(np.ones((50, *shape)))).reshape(y.shape)
        np.testing.assert_array_equal(gradient, y)
        np.testing.assert_array_equal(net.predict(x), x)


def test_gaussian_noise_is_normal_in_training_alone() -> None:
    net = alone(nn.GaussianNoise(0.5), (200,))
    x = np.random.default_rng(0).normal(size=(100, 200))
    noise = np.asarray(net.forward(x)) - x
    assert abs(noise.mean()) < 0.02
    assert abs(noise.std() - 0.5) < 0.02
    again = np.asarray(net.forward(x)) - x
    assert np.mean(noise == again) < 0.01
    dy = np.ones_like(x)
    np.testing.assert_array_equal(net.backward(dy), dy)
    np.testing.assert_array_equal(net.predict(x), x)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: nn.UpSampling2D(0), loom.ConfigError, "scale must be"),
        (lambda: nn.UpSampling2D((1, 2, 3)), loom.ConfigError, "scale must be"),
        (lambda: nn.UpSampling2D(2, mode="linear"), loom.ConfigError, '"bilinear"'),
        (lambda: nn.UpSampling1D(2, mode="bilinear"), loom.ConfigError, '"linear"'),
        (
            lambda: alone(nn.UpSampling2D(2), (3, 4)).output_shape,
            loom.ShapeError,
            "UpSampling2D expects .*height, width",
        ),
        (
            lambda: alone(nn.PixelShuffle(2), (6, 4, 4)).output_shape,
            loom.ShapeError,
            "a multiple of 4 channels",
        ),
        (
            lambda: alone(nn.PixelUnshuffle(2), (1, 4, 5)).output_shape,
            loom.ShapeError,
            "its factor 2 divides",
        ),
        (
            lambda: alone(nn.AdaptiveAvgPool2D(2), (3, 4)).output_shape,
            loom.ShapeError,
            "AdaptiveAvgPool2D expects",
        ),
        (
            lambda: alone(nn.AdaptiveMaxPool1D(2**31 - 1), (1, 4)).output_shape,
            loom.ShapeError,
            "at most 2147483647",
        ),
        (lambda: nn.AdaptiveMaxPool2D(0), loom.ConfigError, "size must be"),
        (lambda: nn.GaussianNoise(-1.0), loom.ConfigError, "standard_deviation must be .* at least 0"),
        (lambda: nn.SpatialDropout2D(1.0), loom.ConfigError, "rate must be .* below 1"),
        (
            lambda: alone(nn.SpatialDropout2D(0.5), (5,)).output_shape,
            loom.ShapeError,
            "SpatialDropout2D expects",
        ),
        (lambda: alone(nn.InstanceNorm(), (5, 1)).output_shape, loom.ShapeError, "two or more places"),
        (lambda: alone(nn.Crop2D(2), (1, 4, 9)).output_shape, loom.ShapeError, "which it takes away"),
    ],
)
def test_mistakes_are_told(make: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make()


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("Upsample", "UpSampling2D"),
        ("Cropping2D", "Crop2D"),
        ("AdaptiveAvgPool2d", "AdaptiveAvgPool2D"),
        ("AdaptiveMaxPooling2D", "AdaptiveMaxPool2D"),
        ("InstanceNorm2d", "InstanceNorm"),
        ("Dropout2d", "SpatialDropout2D"),
    ],
)
def test_names_of_elsewhere_lead_here(name: str, ours: str) -> None:
    with pytest.raises(AttributeError, match=f"loom's is loom.nn.{ours}"):
        getattr(nn, name)
