"""What a module of PyTorch trains, shares and drops at random is so in the network, or is told."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn

torch = pytest.importorskip("torch")
F = torch.nn.functional


class Called(torch.nn.Module):
    """A function of a value and some modules."""

    def __init__(self, function: Callable[..., Any], *parts: Any) -> None:
        super().__init__()
        self.function, self.parts = function, torch.nn.ModuleList(parts)

    def forward(self, x: Any) -> Any:
        return self.function(x, *self.parts)


def stepped(module: Any, net: loom.Network, x: Any, *, dtype: Any = np.float64) -> None:
    """Both take a step of gradient descent, and compute the same afterwards."""
    drawn = np.random.default_rng(3).normal(size=module(x).shape).astype(dtype)
    module.train()
    module.zero_grad()
    optimizer = torch.optim.SGD([one for one in module.parameters() if one.requires_grad], lr=0.1)
    (module(x) * torch.tensor(drawn)).sum().backward()
    optimizer.step()
    net.set_optimizer(loom.SGD())
    net.forward(x.numpy())
    net.backward(drawn)
    net.apply_gradients(0.1)
    module.eval()
    with torch.no_grad():
        np.testing.assert_allclose(net.predict(x.numpy()), module(x).numpy(), rtol=1e-9, atol=1e-9)


class Scaled(torch.nn.Module):
    """Constants, a table that is no parameter, a learned number, and parameters that are frozen."""

    def __init__(self) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.register_buffer("mean", torch.randn(4, generator=draw).double())
        self.register_buffer("table", torch.randn(3, 4, generator=draw).double())
        self.gate = torch.nn.Parameter(torch.tensor(0.5).double())
        self.still = torch.nn.Linear(4, 4).double()
        self.part = torch.nn.Linear(4, 4).double()
        self.last = torch.nn.Linear(4, 2).double()
        self.still.requires_grad_(False)
        self.part.bias.requires_grad_(False)

    def forward(self, x: Any) -> Any:
        x = (x - self.mean) / 2 + self.table
        x = x + self.gate * self.part(torch.tanh(self.still(x)).flip(1))
        return self.last(x)


def test_what_a_module_does_not_train_is_frozen() -> None:
    module, x = Scaled(), torch.randn(5, 3, 4).double()
    net = loom.from_torch(module, x)
    trained = {
        name
        for handle in net.layers
        for name in handle.parameters
        if handle.trainable and name not in handle.frozen
    }
    assert sum(net.layers[0].parameters[name].size for name in net.layers[0].parameters) == 4
    assert not net.layers[0].trainable, "a buffer that is taken away"
    assert not any("layers.0" in name for name in trained), "the frozen product"
    for _ in range(2):
        stepped(module, net, x)


def test_a_learned_number_is_a_parameter() -> None:
    class Gated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = torch.nn.Parameter(torch.full((1,), 0.5).double())

        def forward(self, x: Any) -> Any:
            return torch.tanh(self.gain * x)

    module, x = Gated(), torch.randn(3, 4).double()
    net = loom.from_torch(module, x)
    assert [values.shape for _, values in net.layers[0].parameters.items()] == [(1,)]
    stepped(module, net, x)


def test_shared_modules_are_told() -> None:
    shared = torch.nn.Linear(4, 4)
    module = Called(lambda x, part: part(torch.relu(part(x))), shared)
    with pytest.warns(UserWarning, match=r"share.*0\.0\.0\.0\.weight and 0\.0\.0\.2\.weight"):
        loom.from_torch(module, torch.ones(2, 4))
    shared.requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loom.from_torch(module, torch.ones(2, 4))


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x: F.dropout(x, 0.3, False), "dropout"),
        (lambda x: F.dropout1d(x, 0.3, False), "spatial_dropout1d"),
    ],
)
def test_functions_that_drop_at_random_keep_their_rate(function: Any, kind: str) -> None:
    layers = json.loads(loom.from_torch(Called(function), torch.ones(2, 3, 4)).to_json())["cells"][0][
        "layers"
    ]
    assert [(layer["type"], layer["rate"]) for layer in layers] == [(kind, 0.3)]


@pytest.mark.parametrize(
    "function",
    [
        torch.nn.GELU("tanh"),
        torch.nn.GELU(),
        torch.nn.LeakyReLU(0.3),
        torch.tanh,
        F.silu,
        torch.nn.Softplus(2.0),
    ],
)
def test_encoder_layers_have_the_function_that_they_were_given(function: Any) -> None:
    options = {"batch_first": True, "dropout": 0.0, "activation": function}
    module = torch.nn.TransformerEncoderLayer(4, 2, 6, **options).double().eval()
    x = torch.randn(20, 3, 4).double() * 3
    # With gradients: PyTorch's faster path without them has the exact GELU, whichever was asked for.
    expected = module(x).detach().numpy()
    np.testing.assert_allclose(loom.from_torch(module, x).predict(x.numpy()), expected, atol=1e-9)


def test_functions_of_encoder_layers_that_are_one_s_own_are_refused() -> None:
    module = torch.nn.TransformerEncoderLayer(4, 2, 6, batch_first=True, activation=lambda x: x * x)
    with pytest.raises(loom.ConfigError, match="activation <lambda> of a TransformerEncoderLayer"):
        loom.from_torch(module, torch.ones(2, 3, 4))


def test_an_rms_norm_without_an_epsilon_has_that_of_its_type() -> None:
    x = torch.randn(3, 4).double() * 1e-6
    for module in (torch.nn.RMSNorm(4).double(), Called(lambda x: F.rms_norm(x, (4,)))):
        net = loom.from_torch(module, x)
        np.testing.assert_allclose(net.predict(x.numpy()), module(x).detach().numpy(), rtol=1e-9)


@pytest.mark.parametrize(
    "module",
    [
        *(torch.nn.Softmax(axis) for axis in (1, 2, 3)),
        *(torch.nn.GLU(axis) for axis in (1, -1)),
        *(torch.nn.Softplus(0.5), torch.nn.CELU(0.7), torch.nn.Softshrink(0.3), torch.nn.Hardshrink(0.3)),
        torch.nn.Tanhshrink(),
        *map(
            Called,
            (
                lambda x: F.softplus(x, 2.0),
                lambda x: F.threshold(x, 0.1, 0.3),
                lambda x: F.leaky_relu_(x * 1, 0.3),
                lambda x: F.celu(x, 0.4),
                lambda x: x.mT,
                lambda x: x.swapaxes(1, 2),
                lambda x: F.interpolate(x, scale_factor=2),
                lambda x: torch.maximum(x, torch.tensor(0.2)),
                F.logsigmoid,
            ),
        ),
    ],
)
def test_functions_are_read_with_their_settings(module: Any) -> None:
    x = torch.randn(3, 4, 5, 6).double()
    with torch.no_grad():
        expected = module(x).numpy()
    np.testing.assert_allclose(loom.from_torch(module, x).predict(x.numpy()), expected, rtol=1e-9, atol=1e-9)


def test_states_of_different_layers_are_not_those_of_both_directions() -> None:
    def state(x: Any, one: Any, other: Any) -> Any:
        return torch.cat([one(x)[1][-2], other(x)[1][-1]], dim=1)

    parts = [torch.nn.GRU(3, 2, batch_first=True, bidirectional=True) for _ in range(2)]
    with pytest.raises(loom.ConfigError, match="state of one direction alone"):
        loom.from_torch(Called(state, *parts), torch.ones(2, 4, 3))


def test_named_inputs_and_outputs_go_to_torch() -> None:
    net = loom.Network(inputs={"table": 5, "city": loom.Categories(7)}, grid=(1, 4), seed=0)
    net[0, 0].add(nn.Dense(4, activation="tanh"))
    net.enter("city", (0, 1))[0, 1].add(nn.Embedding(7, 3), nn.Flatten())
    net.link((0, 0), (0, 2), combine="concat")[0, 2].add(nn.Dense(1))
    net.link((0, 0), (0, 3), combine="replace")[0, 3].add(nn.Dense(2))
    net.output("age", (0, 2)).output("kind", (0, 3))
    x = {"table": np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32), "city": np.arange(3)}
    module, expected = loom.to_torch(net), net.predict(x)
    found = module({name: torch.tensor(values) for name, values in x.items()})
    assert list(found) == ["age", "kind"]
    for name, values in expected.items():
        np.testing.assert_allclose(found[name].detach().numpy(), values, rtol=1e-5, atol=1e-6)
    with pytest.raises(loom.DataError, match="by name, table, city; got the inputs table"):
        module({"table": torch.ones(3, 5)})
    with pytest.raises(loom.DataError, match="by name, table, city; got Tensor"):
        module(torch.ones(3, 5))


def test_what_is_frozen_asks_for_no_gradient() -> None:
    net = loom.Sequential([nn.Dense(3), nn.Residual([nn.Dense(3)]), nn.Dense(2)], input_shape=4)
    net.layers[0].trainable = False
    net.layers[1].freeze("layers.0.bias")
    trained = {name for name, values in loom.to_torch(net).named_parameters() if values.requires_grad}
    assert trained == {"0.0.0.1.layers.0.weight", "0.0.0.2.weight", "0.0.0.2.bias"}
