"""What layers inside Masked make of padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn

Array = NDArray[Any]
TIME, WIDTH = 6, 4

LAYERS: dict[str, nn.Layer] = {
    "attention": nn.MultiHeadAttention(2),
    "causal attention": nn.MultiHeadAttention(2, causal=True, qk_norm=True),
    "grouped attention": nn.MultiHeadAttention(4, key_value_heads=2, window=3),
    "lstm": nn.LSTM(WIDTH, return_sequences=True),
    "softmax": nn.MaskedSoftmax(),
}


def network(layer: nn.Layer, precision: str = "float32") -> loom.Network:
    net = loom.Sequential([nn.Masked([layer])], input_shape=(TIME, WIDTH), precision=precision, seed=5)
    random = np.random.default_rng(1)
    only = net.layers[0]
    for name, values in only.parameters.items():
        # Biases that are not zero show where they go.
        only.parameters[name] = random.normal(0, 0.6, values.shape)
    return net


def padded(rows: int = 3) -> tuple[Array, NDArray[np.bool_]]:
    """Sequences whose ends are padding, and one with a gap; and which steps are real."""
    x = np.random.default_rng(2).normal(size=(rows, TIME, WIDTH))
    real = np.arange(TIME) < np.array([4, 6, 1])[:rows, None]
    real[1:2, 2] = False
    x[~real] = 0.0
    return x, real


def check_zeros(layer: nn.Layer, device: str) -> None:
    x, real = padded()
    net = network(layer).to(device)
    for output in (net.predict(x), net.forward(x)):
        assert (output[~real] == 0).all()
        assert (output[real] != 0).all()


@pytest.mark.parametrize("name", LAYERS)
def test_padding_gives_zeros(name: str) -> None:
    check_zeros(LAYERS[name], "cpu")


@pytest.mark.parametrize("name", LAYERS)
def test_padding_gives_zeros_on_a_gpu(name: str, gpu: str) -> None:
    check_zeros(LAYERS[name], gpu)


def check_cross(device: str) -> None:
    """What asks is padded; what is looked at is another sequence, and whole."""
    net = loom.Network(input_shape=(TIME, WIDTH), grid=(1, 1, 2), seed=3)
    net[0, 0, 0].add(nn.Permute((0, 1)))
    net[0, 0, 1].add(nn.Masked([nn.MultiHeadAttention(2, cross=True)]))
    net.link((0, 0, 0), (0, 0, 1), combine="context")
    x, real = padded()
    output = net.to(device).predict(x)
    assert (output[~real] == 0).all()
    assert (output[real] != 0).all()


def test_padding_gives_zeros_where_another_sequence_is_looked_at() -> None:
    check_cross("cpu")


def test_padding_gives_zeros_where_another_sequence_is_looked_at_on_a_gpu(gpu: str) -> None:
    check_cross(gpu)


@pytest.mark.parametrize("name", ["attention", "causal attention"])
def test_real_steps_are_those_of_the_shorter_sequence(name: str) -> None:
    x, real = padded(1)
    length = int(real[0].sum())
    long = network(LAYERS[name], "float64")
    short = loom.Sequential([LAYERS[name]], input_shape=(length, WIDTH), precision="float64")
    for parameter, values in long.layers[0].parameters.items():
        short.layers[0].parameters[parameter.removeprefix("0.")] = values
    np.testing.assert_allclose(
        long.predict(x)[:, :length], short.predict(x[:, :length]), rtol=1e-12, atol=1e-14
    )


def gradients(net: loom.Network, x: Array, weight: Array) -> tuple[Array, dict[str, Array]]:
    """Of sum(weight * output)."""
    net.zero_gradients()
    net.forward(x)
    into = net.backward(weight)
    return np.asarray(into), {n: np.array(g) for n, g in net.layers[0].gradients.items()}


@pytest.mark.parametrize("name", ["attention", "causal attention", "grouped attention"])
def test_gradients_with_padding_are_those_of_differences(name: str) -> None:
    net = network(LAYERS[name], "float64")
    x, _ = padded()
    weight = np.random.default_rng(3).normal(size=x.shape)
    _, found = gradients(net, x, weight)
    for parameter, gradient in found.items():
        values = np.array(net.layers[0].parameters[parameter])
        for index in list(np.ndindex(values.shape))[:6]:
            sums = []
            for by in (1e-5, -1e-5):
                moved = values.copy()
                moved[index] += by
                net.layers[0].parameters[parameter] = moved
                sums.append(float((net.predict(x) * weight).sum()))
            net.layers[0].parameters[parameter] = values
            expected = (sums[0] - sums[1]) / 2e-5
            assert gradient[index] == pytest.approx(expected, rel=1e-6, abs=1e-7), (parameter, index)


@pytest.mark.parametrize("name", ["attention", "causal attention", "grouped attention"])
def test_gradients_with_padding_agree_on_both_devices(name: str, gpu: str) -> None:
    x, real = padded()
    weight = np.random.default_rng(3).normal(size=x.shape)
    expected_input, expected = gradients(network(LAYERS[name], "float64"), x, weight)
    found_input, found = gradients(network(LAYERS[name]).to(gpu), x, weight)
    np.testing.assert_allclose(found_input, expected_input, rtol=1e-4, atol=1e-5)
    for parameter, gradient in expected.items():
        np.testing.assert_allclose(found[parameter], gradient, rtol=1e-4, atol=1e-5, err_msg=parameter)
    # What padding makes moves nothing.
    elsewhere = np.where(real[..., None], weight, 1e6)
    for parameter, gradient in gradients(network(LAYERS[name]).to(gpu), x, elsewhere)[1].items():
        np.testing.assert_array_equal(gradient, found[parameter], err_msg=parameter)


@pytest.mark.parametrize(
    "reads", [nn.GRU(3), nn.MultiHeadAttention(1), nn.SequencePool("mean"), nn.MaskedSoftmax()]
)
def test_another_number_of_steps_than_the_mask_tells_of_is_refused(reads: nn.Layer) -> None:
    def network(convolution: nn.Layer) -> loom.Network:
        inside = [nn.Permute((1, 0)), convolution, nn.Permute((1, 0)), reads]
        return loom.Sequential([nn.Masked(inside)], input_shape=(7, 4))

    x = np.ones((2, 7, 4))
    assert np.isfinite(network(nn.Conv1D(4, 3, padding="same")).predict(x)).all()
    for other in (nn.Conv1D(4, 3, stride=2), nn.ZeroPadding1D(1)):
        with pytest.raises(loom.ShapeError, match="sequence of 7 steps, as the mask around it has"):
            network(other).predict(x)


def test_padding_is_known_behind_convolutions() -> None:
    x, real = padded()
    around = [nn.Permute((1, 0)), nn.Conv1D(WIDTH, 1), nn.Permute((1, 0)), nn.LSTM(3, return_sequences=True)]
    net = loom.Sequential([nn.Masked(around)], input_shape=x.shape[1:], seed=1)
    found = net.predict(x)
    assert (found[~real] == 0.0).all()
    assert (found[real] != 0.0).all()


@pytest.mark.parametrize("width", [3, 5])
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_nothing_is_padding_of_what_stands_where_steps_were(
    width: int, device: str, request: pytest.FixtureRequest
) -> None:
    layers = [nn.Permute((1, 0)), nn.LSTM(4, return_sequences=True)]
    x = np.random.default_rng(1).normal(size=(2, 5, width)).astype(np.float32)
    x[:, 3:] = 0.0
    masked = loom.Sequential([nn.Masked(layers)], input_shape=(5, width), seed=1)
    plain = loom.Sequential(layers, input_shape=(5, width), seed=2)
    for name, values in masked.layers[0].parameters.items():
        plain.layers[1].parameters[name.removeprefix("1.")] = values
    expected = plain.predict(x)
    found = masked.to("cpu" if device == "cpu" else request.getfixturevalue("gpu")).predict(x)
    np.testing.assert_allclose(found, expected, atol=1e-6)
