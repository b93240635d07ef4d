"""Training reaches what a layer reads as its context, as a loop by hand does."""

from __future__ import annotations

import numpy as np
import pytest

import loom
from loom import nn

RNG = np.random.default_rng(0)
X = {"source": RNG.normal(size=(8, 7, 4)), "said": RNG.normal(size=(8, 5, 4))}
Y = RNG.integers(0, 4, (8, 5))
PAIRS: dict[str, tuple[nn.Layer, nn.Layer]] = {
    "gru": (nn.GRU(6), nn.GRU(6, initial_state="context", return_sequences=True)),
    "cross attention": (nn.Dense(4), nn.MultiHeadAttention(2, cross=True)),
    "within": (nn.Dense(4), nn.Residual([nn.MultiHeadAttention(2, cross=True)])),
    "behind another layer": (nn.Dense(4), nn.Sequential([nn.Dense(4), nn.MultiHeadAttention(2, cross=True)])),
}


def made(name: str, precision: str) -> loom.Network:
    encoder, decoder = PAIRS[name]
    shapes = {"source": (7, 4), "said": (5, 4)}
    net = loom.Network(inputs=shapes, grid=(1, 2), seed=1, precision=precision)  # type: ignore[arg-type]
    net[0, 0].add(encoder)
    net.enter("said", (0, 1)).link((0, 0), (0, 1), combine="context")[0, 1].add(decoder, nn.Dense(4))
    return net


@pytest.mark.parametrize(("device", "precision"), [("cpu", "float64"), ("gpu", "float32")])
@pytest.mark.parametrize("name", PAIRS)
def test_an_encoder_learns_through_the_first_layer_of_a_decoder(
    name: str, device: str, precision: str
) -> None:
    config = loom.TrainingConfig(
        loss="cross_entropy",
        optimizer="sgd",
        learning_rate=0.1,
        epochs=1,
        batch_size=8,
        shuffle=False,
        device=device,
        verbose=False,
    )
    stepped, trained, by_hand = (made(name, precision) for _ in range(3))
    loom.Trainer(stepped, config).step(X, Y)
    loom.train(trained, (X, Y), config)
    by_hand.to(device).set_optimizer("sgd")
    by_hand.backward(loom.losses.cross_entropy(by_hand.forward(X), Y)[1])
    by_hand.apply_gradients(0.1)
    for key, values in by_hand.state_dict().items():
        for net in (stepped, trained):
            np.testing.assert_allclose(net.state_dict()[key], values, rtol=1e-5, atol=1e-7, err_msg=key)


def test_an_encoder_has_a_gap_to_its_target() -> None:
    net = made("cross attention", "float64")
    config = loom.TrainingConfig(loss="cross_entropy", device="cpu")
    loom.Trainer(net, config, observe=True).step(X, Y)
    assert np.isfinite(net.measures.gaps).all()
