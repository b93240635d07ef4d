"""Gradients of layers that are frozen for a while in a loop by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import loom
from loom import nn

RNG = np.random.default_rng(0)
X = RNG.normal(size=(8, 3))
Y = X[:, :1] ** 2


def made(device: str) -> loom.Network:
    net = loom.Sequential([nn.Dense(4, activation="tanh"), nn.Dense(1)], input_shape=3, seed=0)
    net.to(device).set_optimizer("sgd")
    return net


def back(net: loom.Network) -> None:
    net.backward(loom.losses.mse(net.forward(X), Y)[1])


WHERE: list[Callable[[loom.Network], object]] = [lambda net: None, lambda net: net.layers[0]]


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("where", WHERE, ids=["all", "a layer"])
def test_gradients_that_were_applied_do_not_come_back_by_a_pass_through_what_is_frozen(
    where: Callable[[loom.Network], object], device: str
) -> None:
    net, twin = made(device), made(device)
    for each in (net, twin):
        back(each)
        each.apply_gradients(0.1)
    net.freeze(where(net))  # type: ignore[arg-type]
    back(net)
    for layer in net.layers:
        if not layer.trainable:
            assert not any(gradient.any() for gradient in layer.gradients.values())
    if where(net) is None:
        # Nothing learns by this pass, as with PyTorch's requires_grad_(False) around it.
        net.unfreeze()
        for each in (net, twin):
            back(each)
            each.apply_gradients(0.1)
        for name, values in twin.state_dict().items():
            np.testing.assert_array_equal(net.state_dict()[name], values)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_layers_that_learn_between_are_looked_at_again(device: str) -> None:
    net = made(device)
    for _ in range(3):
        back(net)
        net.apply_gradients(0.1)
        net.freeze(net.layers[0])
        for _ in range(2):
            back(net)
            assert not any(gradient.any() for gradient in net.layers[0].gradients.values())
            net.zero_gradients()
        net.unfreeze()
