"""Networks as modules of PyTorch, and its modules as networks, where PyTorch is installed."""

from __future__ import annotations

import copy
import pickle
import random
import warnings
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from networks import mlp
from samples import SAMPLES, built

torch = pytest.importorskip("torch")


def same(net: loom.Network, seed: int = 0) -> None:
    drawn = np.random.default_rng(seed)
    shape = (3, *net.input_shape)
    reads_words = net.layers[0].kind == "embedding"
    x = drawn.integers(0, 1, shape) if reads_words else drawn.normal(size=shape)
    x = x if reads_words or net.precision == "float64" else x.astype(np.float32)
    expected = net.predict(x)
    with torch.no_grad():
        found = loom.to_torch(net)(torch.tensor(x)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_every_kind_of_layer_is_known() -> None:
    from loom.models.torch.layers import KINDS

    assert sorted(SAMPLES) == sorted(KINDS)


@pytest.mark.parametrize("kind", sorted(SAMPLES))
def test_every_layer_goes_to_torch(kind: str) -> None:
    for config in SAMPLES[kind]:
        net = built(config, "float32")
        same(net)


def test_names_are_looms_and_go_both_ways() -> None:
    net = mlp(seed=1)
    module = loom.to_torch(net)
    assert list(module.state_dict()) == list(net.state_dict())
    other = mlp(seed=2)
    other.load_state_dict({name: values.numpy() for name, values in module.state_dict().items()})
    assert all((values == net.state_dict()[name]).all() for name, values in other.state_dict().items())
    module.load_state_dict({name: torch.tensor(values) for name, values in net.state_dict().items()})


def test_links_statistics_and_packed_weights_come_along() -> None:
    net = loom.Network((4, 6, 6), (1, 3), seed=5)
    net[0, 0].add(nn.Conv2D(4, 3, padding=1), nn.BatchNorm())
    net[0, 1].add(nn.Conv2D(4, 3, padding=1, activation="gelu"))
    net[0, 2].add(nn.GlobalAvgPool2D(), nn.Dense(3))
    net.link((0, 0), (0, 2), "concat")
    net.forward(np.random.default_rng(0).normal(size=(8, 4, 6, 6)))
    same(net)
    same(net.morph("int8"))


def test_modules_train_copy_and_pickle() -> None:
    module = loom.to_torch(mlp(seed=3))
    x = torch.ones(2, 6)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(x), module(x))
    module.train()
    module(x).square().sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_links_that_point_back_are_refused() -> None:
    net = loom.Network(4, (1, 2))
    net[0, 0].add(nn.Dense(4))
    net[0, 1].add(nn.Dense(4))
    net.link((0, 1), (0, 0))
    with pytest.raises((loom.StateError, loom.ConfigError)):
        loom.to_torch(net)


def test_what_has_no_layer_is_listed_at_once() -> None:
    class Odd(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bilinear, self.shrink = torch.nn.Linear(4, 4), torch.nn.RReLU()

        def forward(self, x: Any) -> Any:
            x = torch.sort(self.shrink(self.bilinear(x)), dim=-1)[0]
            return torch.cumsum(x, 1)

    with pytest.raises(loom.ConfigError) as raised:
        loom.from_torch(Odd(), torch.ones(2, 3, 4))
    assert all(name in str(raised.value) for name in ("RReLU", "sort", "cumsum"))


def test_products_are_gated_layers_and_heads_are_tied() -> None:
    class Gated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 9, bias=False)
            self.head.weight = self.words.weight
            self.gate, self.up, self.down = (torch.nn.Linear(4, 4, bias=False) for _ in range(3))

        def forward(self, x: Any) -> Any:
            x = self.words(x)
            return self.head(x + self.down(torch.nn.functional.gelu(self.gate(x)) * self.up(x)))

    net = loom.from_torch(Gated(), torch.tensor([[1, 2, 8]]))
    assert [layer.kind for layer in net.layers] == ["embedding", "residual", "tied_head"]
    assert net.layers[1].layers[0].config == nn.SwiGLU(4, activation="gelu")
    assert net.layers[2].config == nn.TiedHead(9, (0, 0, 0, 0))


def test_arithmetic_between_branches_and_constants() -> None:
    class Mixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
            self.gain = torch.nn.Parameter(torch.rand(4) + 0.5)

        def forward(self, x: Any) -> Any:
            first, rest = x[:, :1], x.narrow(1, 1, 3)
            x = torch.cat((rest, first), dim=1)
            y = self.a(x) * self.b(x) - x / (1 + torch.exp(-x)) + 0.5
            return (2 - y * self.gain).clamp(-1, 3) * torch.sigmoid(y)

    x = torch.randn(5, 4)
    module = Mixed().eval()
    net = loom.from_torch(module, x)
    with torch.no_grad():
        expected = module(x).numpy()
    np.testing.assert_allclose(net.predict(x.numpy()), expected, atol=1e-5)
    same(net)
    assert "parallel" in {layer.kind for layer in net.layers}


def test_values_that_do_not_multiply_element_by_element_are_refused() -> None:
    class Apart(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * x.mean(dim=(2, 3))[:, :, None]

    with pytest.raises(loom.ConfigError, match="of values of shapes"):
        loom.from_torch(Apart(), torch.ones(2, 2, 2, 2))


def test_a_module_and_back_in_three_lines() -> None:
    theirs, x = (
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)),
        torch.ones(2, 4),
    )

    net = loom.from_torch(theirs, x)
    y = net.predict(x.numpy())
    ours = loom.to_torch(net)

    np.testing.assert_allclose(y, theirs(x).detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(ours(x).detach().numpy(), y, atol=1e-6)


def test_instance_norms_stay_instance_norms() -> None:
    for options in ({"affine": True}, {}):
        module = torch.nn.Sequential(torch.nn.InstanceNorm2d(3, **options)).eval()
        x = torch.randn(2, 3, 4, 5)
        net = loom.from_torch(module, x)
        assert [layer.kind for layer in net.layers] == ["instance_norm"]
        with torch.no_grad():
            np.testing.assert_allclose(net.predict(x.numpy()), module(x).numpy(), atol=1e-5)


def test_branches_that_are_not_nested_are_refused() -> None:
    class Crossed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (torch.nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: Any) -> Any:
            a = self.a(x)
            b = self.b(a + x)
            return torch.cat([a, b, self.c(b)], dim=1)

    with pytest.raises(loom.ConfigError, match="nested"):
        loom.from_torch(Crossed(), torch.ones(2, 4))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: torch.nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect"), "padding_mode"),
        (lambda: torch.nn.BatchNorm2d(1, track_running_stats=False), "track_running_stats"),
        (lambda: torch.nn.MaxPool2d(3, dilation=2), "dilation"),
        (lambda: torch.nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), "align_corners"),
        (lambda: torch.nn.Upsample(scale_factor=1.5), "upsampling of"),
    ],
)
def test_options_that_loom_has_not_are_named(make: Any, told: str) -> None:
    with pytest.raises(loom.ConfigError, match=told):
        loom.from_torch(make(), torch.ones(2, 1, 8, 8))


def test_layers_that_resize_come_and_go() -> None:
    module = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3),
        torch.nn.PixelShuffle(2),
        torch.nn.Upsample(scale_factor=(1, 2), mode="bilinear"),
        torch.nn.Dropout2d(0.25),
        torch.nn.AdaptiveAvgPool2d((5, 7)),
        torch.nn.InstanceNorm2d(2, affine=True),
        torch.nn.Upsample(size=(10, 14)),
        torch.nn.PixelUnshuffle(2),
        torch.nn.AdaptiveMaxPool2d((3, 4)),
    ).eval()
    x = torch.randn(3, 1, 8, 8)
    net = loom.from_torch(module, x)
    kinds = [layer.kind for layer in net.layers]
    assert {"pixel_shuffle", "up_sampling2d", "spatial_dropout2d", "adaptive_avg_pool2d"} <= set(kinds)
    expected = module(x).detach().numpy()
    np.testing.assert_allclose(net.predict(x.numpy()), expected, atol=1e-5)
    np.testing.assert_allclose(loom.to_torch(net)(x).detach().numpy(), expected, atol=1e-5)


def pools(draw: random.Random) -> tuple[int, dict[str, Any], Any]:
    """How many axes windows have, what they are, and an input with at least one."""
    axes = draw.choice([1, 2, 3])
    sizes = [draw.randint(1, 5) for _ in range(axes)]
    rims = [draw.randint(0, size // 2) for size in sizes]
    steps = [draw.randint(1, 6) for _ in range(axes)]
    extents = [draw.randint(size, 9) for size in sizes]
    settings = {"kernel_size": sizes, "stride": steps, "padding": rims, "ceil_mode": draw.random() < 0.7}
    # All below zero in half of them, so that zeros of the padding are not the largest.
    shift = draw.choice([0, 5])
    return axes, settings, torch.randn(2, 2, *extents, dtype=torch.float64) - shift


def test_windows_that_are_cut_short_are_those_of_pytorch() -> None:
    draw = random.Random(0)
    for number in range(150):
        axes, settings, x = pools(draw)
        kind = draw.choice(["Max", "Avg"])
        more: dict[str, Any] = {}
        if kind == "Avg":
            counts = not (settings["ceil_mode"] and any(settings["padding"])) and number % 2 == 0
            more["count_include_pad"] = counts
        x.requires_grad_()
        made = getattr(torch.nn, f"{kind}Pool{axes}d")(**settings, **more)(x)
        made.square().sum().backward()
        own = {name: value for name, value in settings.items() if name != "kernel_size"}
        layer = getattr(nn, f"{kind}Pool{axes}D")(settings["kernel_size"], **own, **more)
        net = loom.Sequential([layer], input_shape=tuple(x.shape[1:]), precision="float64")
        output = net.forward(x.detach().numpy())
        assert output.shape == made.shape, (layer, x.shape)
        np.testing.assert_allclose(output, made.detach().numpy(), err_msg=repr(layer))
        np.testing.assert_allclose(net.backward(2 * output), x.grad, atol=1e-12, err_msg=repr(layer))


class Averaged(torch.nn.Module):
    """An average pooling that is a function."""

    def __init__(self, axes: int, settings: dict[str, Any]) -> None:
        super().__init__()
        self.axes, self.settings = axes, settings

    def forward(self, x: Any) -> Any:
        return getattr(torch.nn.functional, f"avg_pool{self.axes}d")(x, **self.settings)


def test_padding_counts_beside_windows_that_are_cut_short() -> None:
    draw = random.Random(1)
    found = set()
    for number in range(150):
        axes, settings, x = pools(draw)
        module = Averaged(axes, settings) if number % 2 else getattr(torch.nn, f"AvgPool{axes}d")(**settings)
        net = loom.from_torch(module.eval(), x.float())
        found.add(tuple(layer.kind[:-2] for layer in net.layers))
        expected = module(x.float()).numpy()
        assert net.output_shape == expected.shape[1:], (settings, x.shape)
        np.testing.assert_allclose(net.predict(x.float().numpy()), expected, atol=1e-5, err_msg=f"{settings}")
    # Zeros that count are a layer of their own, and so is what leaves out windows that begin among them.
    assert found == {("avg_pool",), ("zero_padding", "avg_pool"), ("zero_padding", "avg_pool", "crop")}


def test_modules_keep_their_mode_and_bad_examples_are_refused() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5))
    loom.from_torch(module, np.ones((1, 4), np.float32))
    assert module.training
    assert module[1].training
    with pytest.raises(loom.DataError, match="does not take"):
        loom.from_torch(module, torch.ones(2, 5))
    with pytest.raises(loom.ConfigError, match=r"torch\.nn\.Module"):
        loom.from_torch(3, torch.ones(2, 5))


def test_what_embeddings_do_in_training_alone_is_told() -> None:
    table = torch.nn.Embedding(7, 3, padding_idx=0, scale_grad_by_freq=True)
    module = torch.nn.Sequential(table, torch.nn.Flatten(), torch.nn.Linear(12, 2))
    words = torch.arange(8).reshape(2, 4) % 7
    with pytest.warns(
        UserWarning, match=r"padding_idx=0 of 0: that row is trained.*scale_grad_by_freq=True of 0"
    ):
        net = loom.from_torch(module, words)
    assert (net.layers[0].parameters["weight"][0] == 0).all()
    table.weight.requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not loom.from_torch(module, words).layers[0].trainable
