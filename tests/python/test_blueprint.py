"""Blueprints: shapes, parameters, bytes and multiply-adds of every layer, and those inside others."""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loom
from grid_reference import draw
from loom import _native, nn
from loom.reports.blueprint import Blueprint


def composites() -> loom.Network:
    net = loom.Network(input_shape=(6, 4), grid=(1, 1, 4))
    net[0, 0, 0].add(nn.Residual([nn.Dense(8, activation=nn.LeakyReLU(0.2)), nn.Dense(5)]))
    branches = [nn.LSTM(5, return_sequences=True), [nn.Masked(nn.Dense(3)), nn.Dense(5)]]
    net[0, 0, 1].add(nn.Parallel(branches, combine="filter"))
    net[0, 0, 2].add(nn.MultiHeadAttention(5, cross=True))
    net[0, 0, 3].add(nn.Flatten(), nn.Dense(2))
    return net.link((0, 0, 0), (0, 0, 2), combine="context")


def check_totals(net: loom.Network) -> None:
    plan = net.blueprint()
    shapes = {
        f"{layer.path}.{entry.name}": entry.shape for layer, _ in plan.walk() for entry in layer.parameters
    }
    parameters = {
        f"{layer.path}.{name}": layer.decoded(name).shape for layer in net.layers for name in layer.parameters
    }
    assert shapes == parameters
    assert plan.parameter_count == sum(int(np.prod(shape)) for shape in parameters.values())
    assert plan.bytes == net.weight_bytes
    text = io.StringIO()
    net.summary(file=text)
    assert text.getvalue().splitlines()[-1] == (
        f"{plan.parameter_count:,} parameters, {plan.trainable_count:,} trainable, "
        f"{plan.bytes:,} bytes of weights"
    )
    for layer, entry in zip(net.layers, plan.layers, strict=True):
        assert (layer.at, layer.path, layer.kind) == (entry.place, entry.path, entry.kind)
        assert (layer.input_shape, layer.output_shape) == (entry.input_shape, entry.output_shape)
        beside = sum(one.bytes for each, _ in entry.walk() for one in each.parameters if "lora" in one.name)
        # What a layer shares counts where it belongs.
        own = 0 if getattr(layer.config, "tied_to", None) else layer.weights.nbytes()
        assert entry.bytes == own + beside
    assert Blueprint.from_json(plan.to_json()) == plan


def test_a_table_that_layers_share_counts_once() -> None:
    layers = [nn.Embedding(9, 4), nn.Dense(4), nn.TiedHead(9, tied_to=(0, 0, 0, 0))]
    net = loom.Sequential(layers, input_shape=3)
    check_totals(net)
    check_totals(net.morph("int8"))
    check_totals(net.freeze("embedding"))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["float32", "float64"]))
def test_totals_are_the_network_s(seed: int, precision: str) -> None:
    rng = np.random.default_rng(seed)
    net = draw(rng).build(precision)
    check_totals(net)
    plan = net.blueprint()
    width = 4 if precision == "float32" else 8
    assert plan.bytes == plan.master_bytes == width * plan.parameter_count
    net.morph(str(rng.choice(["int8", "q4_0", "bfloat16", "nf4"])))
    check_totals(net)
    morphed = net.blueprint()
    assert (morphed.id, morphed.master_bytes) == (plan.id, plan.master_bytes)
    assert morphed.bytes <= plan.bytes or plan.parameter_count < 1000
    assert loom.Network.from_json(net.to_json()).blueprint().id == plan.id


def test_adapters_stand_beside_the_weights_that_they_add_to() -> None:
    rows = [
        nn.Embedding(9, 8),
        nn.Residual([nn.MultiHeadAttention(2, causal=True)]),
        nn.Residual([nn.RMSNorm(), nn.SwiGLU(8)]),
        nn.GRU(4, return_sequences=True),
        nn.Dense(3),
    ]
    net = loom.Sequential(rows, input_shape=5)
    plain = net.blueprint()
    net.add_adapter("first", rank=2)
    check_totals(net)
    plan = net.blueprint()
    assert plan.trainable_count == plan.parameter_count - plain.parameter_count
    assert plan.id == plain.id
    # Each weight of an adapter takes part in one product for each of five steps.
    assert plan.multiply_adds == plain.multiply_adds + 5 * plan.trainable_count
    head = {entry.name: (entry.shape, entry.bytes, entry.trainable) for entry in plan.layers[-1].parameters}
    assert head == {
        "weight": ((3, 4), 48, False),
        "bias": ((3,), 12, False),
        "weight.first.lora_a": ((2, 4), 32, True),
        "weight.first.lora_b": ((3, 2), 24, True),
    }
    net.add_adapter("second", rank=1, targets="dense")
    net.use_adapters()
    assert net.blueprint().multiply_adds == plain.multiply_adds
    net.use_adapters("second")
    assert net.blueprint().multiply_adds == plain.multiply_adds + 5 * (4 + 3)
    # Packed weights have no master, and adapters beside them are trained all the same.
    for pack in (lambda: None, lambda: net.morph("int8"), net.drop_master):
        pack()
        check_totals(net)
        assert net.blueprint().trainable_count == 4 + 3


SAMPLES: dict[str, list[dict[str, Any]]] = json.loads(_native.layer_samples())
# By their number of axes.
SHAPES: list[list[tuple[int, ...]]] = [
    [(extent,) for extent in range(1, 17)],
    [(2, 4), (4, 6), (3, 4), (4, 8), (6, 4)],
    [(2, 6, 6), (4, 5, 5)],
    [(4, 4, 4, 4)],
]
# Every shape that a layer takes with LOOM_SOAK=1; otherwise the first two of each number of axes.
MOST = 100 if os.environ.get("LOOM_SOAK") == "1" else 2


@pytest.mark.parametrize("kind", SAMPLES)
def test_every_kind_of_layer_has_a_blueprint(kind: str) -> None:
    tried = 0
    for sample, shapes in itertools.product(SAMPLES[kind], SHAPES):
        for net in itertools.islice(filter(None, (around(sample, shape) for shape in shapes)), MOST):
            check_totals(net)
            tried += 1
    assert tried


def around(sample: dict[str, Any], shape: tuple[int, ...]) -> loom.Network | None:
    """A network of this layer; None where the shape does not fit."""
    try:
        return loom.Sequential([sample], input_shape=shape).build()
    except loom.LoomError:
        return None


def test_layers_inside_others() -> None:
    net = composites()
    check_totals(net)
    plan = net.blueprint()
    found = {layer.path: layer for layer, _ in plan.walk()}
    residual, parallel = found["0.0.0.0"], found["0.0.1.0"]
    assert (residual.combine, residual.branches, parallel.combine, parallel.branches) == (
        "add",
        2,
        "filter",
        2,
    )
    assert found["0.0.0.0.layers.0"].activation == "leaky_relu(slope=0.2)"
    assert found["0.0.0.0.projection.0"].output_shape == (6, 5)
    assert found["0.0.1.0.branches.1.0.0"].input_shape == (6, 5)
    assert found["0.0.1.0.gate.1"].parameters[0].shape == (2, 30)
    (link,) = plan.links
    assert (link.source, link.target, link.combine, link.shape) == ((0, 0, 0), (0, 0, 2), "context", (6, 5))
    assert residual.links == found["0.0.2.0"].links == (link,)
    assert parallel.links == ()
    net.layers[0].freeze("layers.0.bias")
    net.layers[1].trainable = False
    check_totals(net)
    net.morph("int8").drop_master()
    check_totals(net)
    dropped = net.blueprint()
    assert dropped.trainable_count == 0
    assert 0 < dropped.master_bytes < plan.master_bytes


def adds(layer: Any, shape: tuple[int, ...]) -> int:
    return loom.Sequential([layer], input_shape=shape).blueprint().multiply_adds


def test_multiply_adds_by_hand() -> None:
    assert adds(nn.Dense(8), (5,)) == 40
    assert adds(nn.Dense(8), (3, 5)) == 120
    # 6 filters on 7 x 9 places, each of 3 x 3 x 4 numbers; half of the channels in two groups.
    assert adds(nn.Conv2D(6, kernel_size=3, padding=1), (4, 7, 9)) == 6 * 7 * 9 * 3 * 3 * 4
    assert adds(nn.Conv2D(6, kernel_size=3, groups=2, stride=2), (4, 7, 9)) == 6 * 3 * 4 * 3 * 3 * 2
    assert adds(nn.Conv1D(5, kernel_size=4), (3, 10)) == 5 * 7 * 4 * 3
    assert adds(nn.ConvTranspose2D(6, kernel_size=3, stride=2), (4, 5, 5)) == 4 * 5 * 5 * 6 * 9
    # Four gates of 7 units from 3 features and 7 states, at each of 5 steps; a second layer reads 7.
    assert adds(nn.LSTM(7), (5, 3)) == 5 * 4 * 7 * (3 + 7)
    assert adds(nn.GRU(7, layers=2), (5, 3)) == 5 * 3 * 7 * (3 + 7 + 7 + 7)
    assert adds(nn.RNN(7, bidirectional=True), (5, 3)) == 2 * 5 * 7 * (3 + 7)
    # Four products of 8 x 8 at 5 steps; scores and weighted sums of 5 x 5 steps in 8 numbers.
    assert adds(nn.MultiHeadAttention(2), (5, 8)) == 4 * 5 * 64 + 2 * 5 * 5 * 8
    assert adds(nn.MultiHeadAttention(4, key_value_heads=2), (5, 8)) == 5 * (2 * 64 + 2 * 32) + 400
    assert adds(nn.SwiGLU(12), (5, 8)) == 5 * 3 * 12 * 8
    assert adds(nn.KMeans(3), (4,)) == 12
    for layer in (nn.MaxPool2D(2), nn.AvgPool2D(2), nn.BatchNorm(), nn.Activation("relu"), nn.Softmax()):
        assert adds(layer, (4, 6, 6)) == 0
    assert adds(nn.Embedding(10, 4), (3,)) == 0
    # Images, halved and doubled in channels: two convolutions, and one of 1 x 1 on the skip.
    block = nn.Residual([nn.Conv2D(8, 3, stride=2, padding=1), nn.Conv2D(8, 3, padding=1)])
    assert adds(block, (4, 6, 6)) == 8 * 9 * (9 * 4 + 9 * 8 + 4)
    # Cross-attention: 6 steps of 5 numbers look at as many; filter adds a gate of 2 scores of 30.
    assert composites().blueprint().layers[2].multiply_adds == 4 * 6 * 25 + 2 * 6 * 6 * 5


# As `tests/golden/multiply_adds.py` printed it, with PyTorch's FlopCounterMode.
COUNTED: dict[str, tuple[Any, tuple[int, ...], int]] = {
    "dense": (nn.Dense(8), (3, 5), 120),
    "conv2d": (nn.Conv2D(6, 3, stride=2, groups=2), (4, 7, 9), 1296),
    "conv1d": (nn.Conv1D(5, 4, dilation=2), (3, 12), 360),
    "conv_transpose2d": (nn.ConvTranspose2D(6, 3, stride=2, padding=1), (4, 5, 5), 5400),
    "multi_head_attention": (nn.MultiHeadAttention(2), (5, 8), 1680),
}


@pytest.mark.parametrize("name", COUNTED)
def test_multiply_adds_are_what_pytorch_counts(name: str) -> None:
    layer, shape, counted = COUNTED[name]
    assert adds(layer, shape) == counted


def test_the_id_is_of_the_architecture() -> None:
    net = composites()
    described = json.loads(net.to_json())
    counted = {name: described[name] for name in ("input_shape", "grid", "cells", "links")}
    text = json.dumps(counted, sort_keys=True, separators=(",", ":"))
    known = net.blueprint().id
    assert known == hashlib.sha256(text.encode()).hexdigest()
    other = loom.Network.from_config({**described, "seed": 5, "precision": "float64"})
    assert other.blueprint().id == known
    other.link((0, 0, 0), (0, 0, 1))
    assert other.config != net.config


def test_the_summary_goes_deep_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    net = composites()
    net.summary(flops=True)
    wide = capsys.readouterr().out
    assert "multiply-adds" in wide
    assert "layers.0 dense" not in wide
    net.summary(depth=2)
    deep = capsys.readouterr().out.splitlines()
    assert "multiply-adds" not in deep[0]
    assert any(line.split()[3:5] == ["layers.0", "dense"] for line in deep)
    assert not any("branches.1.0.0" in line for line in deep)
    net.summary(depth=3)
    assert "branches.1.0.0 dense" in capsys.readouterr().out
    net.summary(depth=1)
    shallow = capsys.readouterr().out
    net.summary()
    assert shallow == capsys.readouterr().out
    with pytest.raises(loom.ConfigError, match="summary: depth must be a positive whole number"):
        net.summary(depth=0)


def test_notebooks_show_a_table() -> None:
    made = composites()._repr_html_()
    assert made.count("<tr>") == 14
    assert "branches.0.0 lstm" in made
    wrong = loom.Network(input_shape=(2, 2), grid=(1, 2))
    wrong[0, 0].add(nn.Reshape((3,)))
    assert wrong._repr_html_().startswith("<pre>Network(")


def test_frames() -> None:
    frame = composites().blueprint().to_frame()
    assert list(frame["depth"][:3]) == [1, 2, 2]
    assert frame[frame["depth"] == 1]["parameter_count"].sum() == 627


@dataclass(frozen=True)
class Hidden(nn.Composed, name="hidden_of_blueprints"):
    def layers(self) -> list[nn.Layer]:
        return [nn.Dense(3, activation="tanh"), nn.Dense(2)]


def test_layers_that_users_composed() -> None:
    net = loom.Sequential([Hidden()], input_shape=4)
    check_totals(net)
    assert [layer.kind for layer, _ in net.blueprint().walk()] == ["sequential", "dense", "dense"]


def test_types_are_those_of_what_takes_the_layers_type() -> None:
    """Of layers whose parameters stay in full precision, and of those that hold such beside weights."""
    kept = [nn.PositionalEmbedding(6), nn.LayerNorm(), nn.RMSNorm(), nn.KMeans(3), nn.BatchNorm(), nn.PReLU()]
    inside = nn.Residual([nn.LayerNorm(), nn.Dense(4)])
    net = loom.Sequential([nn.Embedding(10, 8), *kept, nn.Dense(4), inside], input_shape=6)
    net.morph("int8")
    expected = ["int8", *["float32"] * len(kept), "int8", "int8"]
    assert [layer.dtype for layer in net.layers] == expected
    assert [layer.weights.dtype for layer in net.layers] == expected
    assert [layer.dtype for layer in net.blueprint().layers] == expected
    for depth, flops in ((None, False), (2, False), (None, True)):
        text = io.StringIO()
        net.summary(text, depth=depth, flops=flops)
        rows = [line.split() for line in text.getvalue().splitlines() if line.startswith("(")]
        types = [cell for row in rows for cell in row if cell in ("int8", "float32")]
        assert types == [*expected, *(["float32", "int8"] if depth else [])]
        assert "int8," not in text.getvalue()
    # What is asked for by name counts.
    net.morph("int4", parameters="centroids", where=lambda layer: layer.kind == "kmeans")
    net.morph("int4", parameters="bias", where=lambda layer: layer.kind == "dense")
    found = {layer.kind: layer.dtype for layer in net.blueprint().layers}
    assert (found["kmeans"], found["dense"], found["layer_norm"]) == ("int4", "int8, int4", "float32")


def test_blueprints_of_before_are_read() -> None:
    blueprint = loom.Sequential([nn.Dense(2, bias=False)], input_shape=3).blueprint()
    values = blueprint.to_dict()
    for parameter in values["layers"][0]["parameters"]:
        del parameter["typed"]
    assert type(blueprint).from_dict(values) == blueprint
