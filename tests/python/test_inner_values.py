"""What layers inside others read and make, to whoever looks and to observers, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import loom
from loom import nn
from nested_networks import dense, every, nested, samples, sequences
from networks import quiet

Array = NDArray[Any]


# Values in the manual loop


def test_values_inside_are_what_numpy_makes() -> None:
    net, x = nested(), samples((5,))
    output = net.forward(x)
    first, skip, row = net.layers
    a, parallel, b = skip.layers
    assert a.input is not first.activation
    np.testing.assert_array_equal(a.input, first.activation)
    np.testing.assert_allclose(a.preactivation, a.input @ a.weight.T + a.bias, rtol=0, atol=1e-12)
    np.testing.assert_allclose(a.activation, dense(a, a.input), rtol=0, atol=1e-9)
    z = a.activation
    short, _, long = parallel.branches
    made = [dense(short[0], z), z, dense(long[1], dense(long[0], z))]
    scores = dense(parallel.gate[1], z)
    np.testing.assert_allclose(parallel.gate[1].activation, scores, rtol=0, atol=1e-9)
    shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    mixed = sum(shares[:, [branch]] * made[branch] for branch in range(3))
    np.testing.assert_allclose(parallel.activation, mixed, rtol=0, atol=1e-9)
    np.testing.assert_allclose(skip.activation, dense(b, mixed) + first.activation, rtol=0, atol=1e-9)
    inside = row.layers[0]
    np.testing.assert_array_equal(inside.input, skip.activation)
    expected = dense(inside.layers[0], inside.input) + inside.input @ inside.projection[0].weight.T
    np.testing.assert_allclose(inside.activation, expected, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(row.layers[1].preactivation, inside.activation)
    np.testing.assert_array_equal(row.layers[1].activation, output)


def test_input_gradients_inside_are_central_differences() -> None:
    net, x = nested(), samples((5,), 3)
    weights = samples((3,), 3, seed=1)
    net.forward(x, input_gradients=True)
    with pytest.raises(loom.StateError, match="call backward first"):
        _ = net.layers[0].input_gradient
    to_input = net.backward(weights)
    np.testing.assert_array_equal(net.layers[0].input_gradient, to_input)
    # Of a layer without a skip around it: what comes after moves as its input does.
    inner = net.layers[1].layers[2]
    expected = np.zeros_like(inner.input)
    step = 1e-5

    def tail(read: Array, skipped: Array) -> float:
        made = dense(inner, read) + skipped
        inside = net.layers[2].layers[0]
        made = dense(inside.layers[0], made) + made @ inside.projection[0].weight.T
        return float((np.tanh(made) * weights).sum())

    skipped = net.layers[0].activation
    for place in np.ndindex(*expected.shape):
        move = np.zeros_like(expected)
        move[place] = step
        expected[place] = (tail(inner.input + move, skipped) - tail(inner.input - move, skipped)) / (2 * step)
    np.testing.assert_allclose(inner.input_gradient, expected, rtol=0, atol=1e-8)
    # A skip's own way back is not in it, that of all branches is in the sum.
    skip = net.layers[1]
    np.testing.assert_allclose(
        skip.input_gradient, skip.layers[0].input_gradient + net.layers[2].input_gradient, rtol=0, atol=1e-12
    )
    for layer in every(net):
        assert layer.input_gradient.shape == (3, *layer.input_shape)
    net.forward(x)
    net.backward(weights)
    with pytest.raises(loom.StateError, match="input_gradients=True"):
        _ = inner.input_gradient


def test_what_reads_whole_numbers_hands_no_gradient_back() -> None:
    net = loom.Sequential([nn.Sequential([nn.Embedding(9, 4)]), nn.Flatten(), nn.Dense(2)], input_shape=3)
    net.forward(np.ones((2, 3), int), input_gradients=True)
    net.backward(np.ones((2, 2)))
    assert net.layers[1].input_gradient.shape == (2, 3, 4)
    for layer in (net.layers[0], net.layers[0].layers[0]):
        with pytest.raises(loom.StateError, match="reads whole numbers"):
            _ = layer.input_gradient


@pytest.mark.filterwarnings("ignore::loom.DoctorWarning")
def test_nobody_is_shown_another_batch_s_rows() -> None:

    net, x = nested(), samples((5,))
    data = (samples((5,), 4), samples((3,), 4))
    calls: list[Callable[[], Any]] = [
        lambda: net.predict(x[:3]),
        lambda: net.predict(x, batch_size=2),
        lambda: net.evaluate(data, loss="mse"),
        lambda: net.fit(data, quiet(epochs=1, loss="mse")),
        lambda: net.calibrate(x[:3]),
    ]
    for call in calls:
        net.forward(x)
        assert {len(layer.activation) for layer in every(net)} == {7}
        call()
        for layer in every(net):
            for show in ("input", "preactivation", "activation", "input_gradient"):
                with pytest.raises(loom.StateError, match="forward"):
                    getattr(layer, show)
    for rows in (2, 7, 3):
        output = net.forward(x[:rows], training=False)
        for layer in every(net):
            assert len(layer.activation) == rows
        np.testing.assert_array_equal(net.layers[2].layers[1].activation, output)


# Values without a trace


def test_activations_are_what_a_pass_of_inference_shows() -> None:
    for net, x in ((nested(), samples((5,))), (sequences(causal=True), samples((6, 4)))):
        x[1, -1] = 0.0
        net.forward(x, training=False)
        shown = {layer.path: layer.activation for layer in every(net)}
        predicted = net.predict(x)
        for size in (1, 3, 7, 100):
            found = net.activations(x, every(net), batch_size=size)
            assert list(found) == list(shown)
            for path, values in found.items():
                np.testing.assert_array_equal(values, shown[path], err_msg=path)
        assert list(net.activations(x)) == [layer.path for layer in net.layers]
        np.testing.assert_array_equal(net.activations(x)[net.layers[-1].path], predicted)


def test_layers_are_named_in_every_way() -> None:
    net, x = nested(), samples((5,))
    inner = net.layers[1].layers[0]
    found = net.activations(x, [inner, "0.0.0.1.layers.1.gate.1", (0, 0, 0, -1), "0.0.0.0"])
    assert list(found) == ["0.0.0.1.layers.0", "0.0.0.1.layers.1.gate.1", "0.0.0.2", "0.0.0.0"]
    assert net.activations(x, [inner, inner])[inner.path].shape == (7, 6)
    for wrong, error in (
        (["0.0.0.1.layers.7"], 'unknown layer "0.0.0.1.layers.7"; did you mean "0.0.0.1.layers.'),
        (["0.0.0.9"], "no layer 9"),
        ([(0, 0, 0, 9)], "no layer 9"),
        ([(0, 0)], "0, 0"),
        ([nested().layers[0]], "another network"),
        ("0.0.0.1", "list of layers"),
        ([], "no layers"),
    ):
        with pytest.raises(loom.LoomError, match=error):
            net.activations(x, wrong)
    with pytest.raises(loom.ShapeError, match="expected \\(batch, 5"):
        net.activations(samples((4,)))
    with pytest.raises(loom.DataError, match="no samples"):
        net.activations(np.zeros((0, 5)))
    with pytest.raises(loom.ConfigError, match="batch_size"):
        net.activations(x, batch_size=0)


def test_looking_leaves_no_trace() -> None:
    layers = [
        nn.LSTM(4, stateful=True, return_sequences=True),
        nn.Residual([nn.BatchNorm(), nn.Dropout(0.5), nn.Dense(4)]),
        nn.GumbelSoftmax(),
        nn.Flatten(),
        nn.Dense(2),
    ]
    x = samples((3, 2), 5)

    def run(look: bool) -> tuple[list[Array], dict[str, Array]]:
        net = loom.Sequential(layers, input_shape=(3, 2), seed=1)
        made = []
        for step in range(3):
            made.append(net.forward(x))
            inner = net.layers[1].layers[2]
            before = inner.activation
            if look:
                net.activations(x[: step + 1], every(net), batch_size=2)
                net.input_gradients(x[: step + 1], target=1)
                loom.analysis.saliency(net, x[:2], method="integrated_gradients", steps=3)
            np.testing.assert_array_equal(inner.activation, before)
            made.append(net.backward(np.ones((5, 2))))
            if look:
                net.activations(x, [inner])
            made += [layer.gradients[name] for layer in net.layers for name in layer.parameters]
            net.apply_gradients(0.1)
        return made, net.state_dict()

    (plain, state), (looked, looked_state) = run(False), run(True)
    for one, other in zip(plain, looked, strict=True):
        np.testing.assert_array_equal(one, other)
    assert state.keys() == looked_state.keys()
    for name, values in state.items():
        np.testing.assert_array_equal(values, looked_state[name])


def test_activations_of_several_cells_links_and_packed_weights() -> None:
    net = loom.Network(input_shape=6, grid=(1, 3), seed=2)
    net[0, 0].add(nn.Dense(6, activation="relu"))
    net[0, 1].add(nn.Residual([nn.Dense(6), nn.Dense(6)]))
    net[0, 2].add(nn.Sequential([nn.Dense(2)]))
    net.link((0, 0), (0, 2), combine="concat")
    x = samples((6,)).astype(np.float32)
    for dtype in ("float32", "int8", "int4"):
        net.morph(dtype)
        net.forward(x, training=False)
        for layer in every(net):
            np.testing.assert_array_equal(net.activations(x, [layer])[layer.path], layer.activation)
    found = net.activations(x, ["0.0.1.0.layers.1", "0.0.2.0.0"])
    inner = net[0, 1][0].layers[1]
    read = net.activations(x, ["0.0.1.0.layers.0"])["0.0.1.0.layers.0"]
    expected = read @ inner.decoded("weight").T + inner.bias
    np.testing.assert_allclose(found["0.0.1.0.layers.1"], expected, rtol=0, atol=1e-5)


def test_shared_weights_are_looked_at_where_they_are_used() -> None:

    net = loom.Network(input_shape=5, grid=(1, 2))
    net[0, 0].add(nn.Embedding(11, 4))
    net[0, 1].add(nn.Residual([nn.Dense(4)]), nn.TiedHead(11, tied_to=(0, 0, 0, 0)))
    x = np.random.default_rng(0).integers(0, 11, (3, 5))
    found = net.activations(x, ["0.0.1.0.layers.0", "0.0.1.1"])
    np.testing.assert_array_equal(found["0.0.1.1"], net.predict(x))
    with pytest.raises(loom.ConfigError, match="whole numbers"):
        net.input_gradients(x, target=(0, 0))


# Attention weights


def attention_weights(layer: Any, x: Array, heads: int, causal: bool) -> Array:
    time, width = x.shape[1:]
    q = (x @ layer.query_weight.T + layer.query_bias).reshape(len(x), time, heads, -1)
    k = (x @ layer.key_weight.T + layer.key_bias).reshape(len(x), time, heads, -1)
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(width // heads)
    real = np.ones((len(x), time), bool) if causal else (x != 0).any(axis=-1)
    seen = np.ones((len(x), 1, time, time), bool)
    if causal:
        seen &= np.tril(np.ones((time, time), bool))
    seen &= real[:, None, None, :] & real[:, None, :, None]
    scores = np.where(seen, scores, -np.inf)
    shares = np.exp(scores - np.where(seen.any(-1, keepdims=True), scores.max(-1, keepdims=True), 0.0))
    total = shares.sum(axis=-1, keepdims=True)
    return shares / np.where(total > 0, total, 1.0)


@pytest.mark.parametrize("causal", [True, False])
def test_attention_weights_are_what_numpy_makes(causal: bool) -> None:
    layer = nn.MultiHeadAttention(2, causal=causal)
    layers = [nn.Dense(4), layer] if causal else [nn.Masked([layer])]
    net = loom.Sequential(layers, input_shape=(6, 4), precision="float64", seed=5)
    x = samples((6, 4), 5)
    if not causal:
        x[1, 4:], x[3] = 0.0, 0.0
    for size in (2, 64):
        found = net.activations(x, attention=True, batch_size=size)
        handle = net.layers[1] if causal else net.layers[0].layers[0]
        (path, weights), *rest = found.attention.items()
        assert (path, rest) == (handle.path, [])
        read = found["0.0.0.0"] if causal else x
        expected = attention_weights(handle, read, 2, causal)
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-12)
    # They are those that the layer's output is made of.
    v = (read @ handle.value_weight.T + handle.value_bias).reshape(5, 6, 2, 2)
    mixed = np.einsum("bhqk,bkhd->bqhd", weights, v).reshape(5, 6, 4)
    made = mixed @ handle.output_weight.T + handle.output_bias
    if not causal:
        made *= (x != 0).any(axis=-1)[:, :, None]
    np.testing.assert_allclose(found[net.layers[-1].path], made, rtol=0, atol=1e-9)


def test_attention_of_every_form_has_weights_that_sum_to_one() -> None:

    forms: list[dict[str, Any]] = [
        {"key_value_heads": 1, "rotary": nn.Rotary(), "causal": True},
        {"window": 2},
        {"qk_norm": True},
        {"mask": np.eye(6, dtype=int).tolist()},
    ]
    for form in forms:
        net, x = sequences(**form), samples((6, 4), 3)
        (path, weights), *_ = net.activations(x, attention=True, layers=["0.0.0.0"]).attention.items()
        assert path == "0.0.0.0.0.layers.1"
        assert weights.shape == (3, 2, 6, 6)
        np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=0, atol=1e-12)
        assert (weights >= 0).all()
        if "mask" in form:
            np.testing.assert_allclose(weights, np.broadcast_to(np.eye(6), weights.shape))
    assert not net.activations(x).attention
    assert not net.activations(x, ["0.0.0.1"], attention=True).attention


# Observers


def test_observers_look_inside_where_they_are_told_to() -> None:
    net, x = nested(), samples((5,))
    shallow, deep, deepest = (loom.observers.Recorder() for _ in range(3))
    net.observe(shallow).observe(deep, depth=2).observe(deepest, depth=9)
    net.predict(x)
    net.forward(x)
    for passes, expected in ((shallow, 3), (deep, 8), (deepest, 15)):
        assert [len(record) for record in passes.records] == [expected, expected]
    assert [layer.path for layer in deepest.records[0]] == [layer.path for layer in every(net)]
    values = net.activations(x, every(net))
    for record in deepest.records:
        for layer in record:
            made = values[layer.path]
            assert layer.shape == made.shape
            assert layer.kind
            np.testing.assert_allclose(
                [layer.mean, layer.std, layer.min, layer.max, layer.norm],
                [made.mean(), made.std(), made.min(), made.max(), np.linalg.norm(made)],
                rtol=0,
                atol=1e-12,
            )
    assert deepest.series("0.0.0.1.layers.0", "mean") == [record[2].mean for record in deepest.records]
    net.unobserve(deep)
    with pytest.raises(loom.StateError):
        net.unobserve(deep)
    with pytest.raises(loom.ConfigError, match="depth"):
        net.observe(deep, depth=0)


@pytest.mark.filterwarnings("ignore::loom.DoctorWarning")
def test_training_that_is_observed_inside_makes_the_same_bits() -> None:
    data = (samples((5,), 40).astype(np.float32), samples((3,), 40).astype(np.float32))
    made = []
    for depth in (0, 1, 3):
        net, recorder = nested(precision="float32"), loom.observers.Recorder()
        if depth:
            net.observe(recorder, depth=depth)
        net.fit(data, quiet(epochs=2, loss="mse", batch_size=8, shuffle=False))
        made.append(net.state_dict())
        assert len(recorder) == (10 if depth else 0)
        if depth == 3:
            assert [layer.path for layer in recorder.records[0]] == [layer.path for layer in every(net)]
    for other in made[1:]:
        for name, values in made[0].items():
            np.testing.assert_array_equal(values, other[name])


# Any network


@st.composite
def layers_of_width(draw: st.DrawFn, width: int = 4, depth: int = 3) -> nn.Layer:
    kinds = ["dense", "activation", "dropout", "norm"] + (
        ["residual", "sequential", "parallel"] if depth else []
    )
    inner = layers_of_width(width, depth - 1)
    match draw(st.sampled_from(kinds)):
        case "dense":
            return nn.Dense(width, activation=draw(st.sampled_from(["linear", "tanh", "relu", "silu"])))
        case "activation":
            return nn.Activation(draw(st.sampled_from(["tanh", "sigmoid"])))
        case "dropout":
            return nn.Dropout(0.3)
        case "norm":
            return nn.LayerNorm()
        case "residual":
            return nn.Residual(draw(st.lists(inner, min_size=1, max_size=3)))
        case "sequential":
            return nn.Sequential(draw(st.lists(inner, min_size=1, max_size=3)))
        case _:
            branches = draw(st.lists(st.lists(inner, max_size=2), min_size=1, max_size=3))
            return nn.Parallel(branches, combine=draw(st.sampled_from(["add", "average", "filter"])))


@settings(max_examples=40, deadline=None)
@given(st.lists(layers_of_width(), min_size=1, max_size=3), st.integers(1, 5), st.integers(1, 6))
def test_any_network_shows_the_same_in_every_way(layers: list[nn.Layer], rows: int, size: int) -> None:

    net = loom.Sequential(layers, input_shape=4, precision="float64", seed=7)
    x = samples((4,), rows)
    output = net.forward(x, training=False, input_gradients=True)
    to_input = net.backward(np.ones_like(output))
    found = net.activations(x, every(net), batch_size=size)
    for layer in every(net):
        np.testing.assert_array_equal(found[layer.path], layer.activation)
        assert layer.input.shape[1:] == layer.input_shape
        assert layer.activation.shape[1:] == layer.output_shape
        assert layer.input_gradient.shape == layer.input.shape
        if layer.kind == "dense":
            np.testing.assert_allclose(
                layer.preactivation, layer.input @ layer.weight.T + layer.bias, rtol=0, atol=1e-9
            )
    np.testing.assert_array_equal(net.layers[0].input_gradient, to_input)
    total = sum(net.input_gradients(x, target=unit, batch_size=size) for unit in range(4))
    np.testing.assert_allclose(total, to_input, rtol=0, atol=1e-9)


# On a GPU


def test_a_gpu_shows_what_the_cpu_does(gpu: str) -> None:
    for make, shape in ((nested, (5,)), (sequences, (6, 4))):
        cpu, other = make(precision="float32"), make(precision="float32").to(gpu)
        x = samples(shape).astype(np.float32)
        x[1, -1] = 0.0
        for net in (cpu, other):
            output = net.forward(x, training=False, input_gradients=True)
            net.backward(output)
        expected = cpu.activations(x, every(cpu), attention=True)
        found = other.activations(x, every(other), attention=True, batch_size=3)
        for layer, twin in zip(every(cpu), every(other), strict=True):
            np.testing.assert_allclose(found[layer.path], expected[layer.path], rtol=0, atol=2e-5)
            np.testing.assert_allclose(twin.activation, layer.activation, rtol=0, atol=2e-5)
            np.testing.assert_allclose(twin.input_gradient, layer.input_gradient, rtol=0, atol=2e-5)
        for path, weights in expected.attention.items():
            np.testing.assert_allclose(found.attention[path], weights, rtol=0, atol=2e-5)
        for target in (0, 2):
            np.testing.assert_allclose(
                other.input_gradients(x, target=target),
                cpu.input_gradients(x, target=target),
                rtol=0,
                atol=2e-5,
            )
        recorder = loom.observers.Recorder()
        other.observe(recorder, depth=9)
        other.predict(x)
        other.forward(x, training=False)
        for record in recorder.records:
            assert [layer.path for layer in record] == [layer.path for layer in every(other)]
            for layer in record:
                np.testing.assert_allclose(layer.mean, expected[layer.path].mean(), rtol=0, atol=2e-5)
