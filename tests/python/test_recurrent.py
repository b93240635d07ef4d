"""Recurrent layers: their parameters, padding, sessions, and that they learn."""

from __future__ import annotations

import numpy as np
import pytest

import loom
from loom import nn

RANDOM = np.random.default_rng(3)


def test_parameters_have_the_names_and_shapes_that_pytorch_gives_them() -> None:
    net = loom.Sequential([nn.LSTM(4, layers=2, bidirectional=True)], input_shape=(5, 3))
    shapes = {name.removeprefix("0.0.0.0."): array.shape for name, array in net.state_dict().items()}
    assert shapes["weight_ih_l0"] == shapes["weight_ih_l0_reverse"] == (16, 3)
    assert shapes["weight_hh_l0"] == shapes["weight_hh_l1_reverse"] == (16, 4)
    assert shapes["weight_ih_l1"] == (16, 8)
    assert shapes["bias_ih_l1"] == shapes["bias_hh_l0"] == (16,)
    assert len(shapes) == 16


@pytest.mark.parametrize("layer", [nn.RNN(4), nn.LSTM(4, layers=2), nn.GRU(4)], ids=lambda layer: layer.kind)
def test_padding_changes_nothing(layer: nn.Layer) -> None:
    long = loom.Sequential([nn.Masked([layer])], input_shape=(7, 3), seed=1)
    short = loom.Sequential([nn.Masked([layer])], input_shape=(4, 3), seed=1)
    x = RANDOM.standard_normal((2, 4, 3), np.float32)
    padded = np.concatenate([x, np.zeros((2, 3, 3), np.float32)], axis=1)
    assert np.array_equal(long.predict(padded), short.predict(x))


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_a_session_goes_on_where_it_left(kind: type[nn.RNN | nn.LSTM | nn.GRU]) -> None:
    layers = [kind(4, return_sequences=True, initial_state="learned"), nn.Dense(2)]
    net = loom.Sequential(layers, input_shape=(6, 3))
    x = RANDOM.standard_normal((2, 6, 3), np.float32)
    session = net.session(rows=2, capacity=6)
    pieces = [session(x[:, start:end]) for start, end in ((0, 1), (1, 5), (5, 6))]
    assert np.array_equal(np.concatenate(pieces, axis=1), net.predict(x))


def test_a_gru_may_reset_its_state_before_the_product() -> None:
    layer = nn.GRU(3, reset_after=False, return_sequences=True, initial_state="learned")
    net = loom.Sequential([layer], input_shape=(5, 2), precision="float64", seed=1)
    state = {name: RANDOM.normal(size=array.shape) for name, array in net.state_dict().items()}
    net.load_state_dict(state)
    own = {name.rpartition(".")[2]: array for name, array in state.items()}
    inputs, hidden = own["weight_ih_l0"], own["weight_hh_l0"]
    x = RANDOM.normal(size=(4, 5, 2))

    def plain(x: np.ndarray) -> np.ndarray:
        h, made = np.tile(own["state_l0"].reshape(1, 3), (4, 1)), []
        for step in range(5):
            z = x[:, step] @ inputs.T + own["bias_ih_l0"] + own["bias_hh_l0"]
            reset, kept = (1 / (1 + np.exp(-z[:, of] - h @ hidden[of].T)) for of in (slice(3), slice(3, 6)))
            candidate = np.tanh(z[:, 6:] + (reset * h) @ hidden[6:].T)
            h = (1 - kept) * candidate + kept * h
            made.append(h)
        return np.stack(made, axis=1)

    np.testing.assert_allclose(net.predict(x), plain(x), atol=1e-12)
    above, step = RANDOM.normal(size=(4, 5, 3)), RANDOM.normal(size=x.shape)
    net.forward(x)
    slope = (net.backward(above) * step).sum()
    expected = ((plain(x + 1e-6 * step) - plain(x - 1e-6 * step)) * above).sum() / 2e-6
    np.testing.assert_allclose(slope, expected, rtol=1e-6)
    session = net.session(rows=4, capacity=5)
    pieces = [session(x[:, :2]), session(x[:, 2:])]
    assert np.array_equal(np.concatenate(pieces, axis=1), net.predict(x))
    other = nn.GRU(3, return_sequences=True, initial_state="learned")
    after = loom.Sequential([other], input_shape=(5, 2), precision="float64").load_state_dict(state)
    assert np.abs(after.predict(x) - net.predict(x)).max() > 1e-3


def test_the_last_state_is_that_of_the_last_step() -> None:
    x = RANDOM.standard_normal((3, 5, 2), np.float32)
    every = loom.Sequential(
        [nn.GRU(4, bidirectional=True, return_sequences=True)], input_shape=(5, 2), seed=2
    )
    last = loom.Sequential([nn.GRU(4, bidirectional=True)], input_shape=(5, 2), seed=2)
    steps = every.predict(x)
    assert np.array_equal(last.predict(x), np.concatenate([steps[:, -1, :4], steps[:, 0, 4:]], axis=1))


def test_a_decoder_starts_from_what_an_encoder_has_read() -> None:
    net = loom.Network(input_shape=(4, 3), grid=(1, 1, 2))
    net[0, 0, 0].add(nn.GRU(5, return_sequences=True))
    net[0, 0, 1].add(nn.LSTM(2, initial_state="context"), nn.Dense(1))
    with pytest.raises(loom.LoomError, match="context"):
        net.predict(np.zeros((1, 4, 3)))


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_the_parity_of_a_sequence_is_learned(kind: type[nn.RNN | nn.LSTM | nn.GRU]) -> None:
    # Of its own, whatever other tests have drawn before.
    x = np.random.default_rng(1).integers(0, 2, (512, 6, 1)).astype(np.float32)
    y = (x.sum(axis=(1, 2)) % 2).astype(np.int64)
    net = loom.Sequential([kind(16), nn.Dense(2)], input_shape=(6, 1), seed=4)
    config = loom.TrainingConfig(
        epochs=60, batch_size=32, learning_rate=1e-2, loss="cross_entropy", gradient_clip=1.0, device="cpu"
    )
    loom.train(net, (x, y), config)
    assert net.evaluate((x, y), loss="cross_entropy", metrics=["accuracy"])["accuracy"] > 0.97
