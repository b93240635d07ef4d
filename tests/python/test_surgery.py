"""Layers put in, taken out and exchanged."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loom
from loom import nn
from loom.handles import LayerHandle
from networks import blobs, mlp, quiet, weights
from trained_networks import deep, dense, samples, trained


def test_what_is_popped_keeps_everything_and_goes_back_as_it_was() -> None:
    net = trained()
    x, before, state = samples(), net.predict(samples()), net.state_dict()
    norm = net[0, 0, 0].pop(1)
    assert norm.kind == "batch_norm"
    np.testing.assert_array_equal(norm.states["running_mean"], state["0.0.0.1.running_mean"])
    assert [layer.kind for layer in net.layers] == ["dense", "dense", "dropout", "dense"]
    np.testing.assert_array_equal(net.layers[1].weight, state["0.0.0.2.weight"])
    assert not np.allclose(net.predict(x), before)
    net[0, 0, 0].insert(1, norm)
    np.testing.assert_array_equal(net.predict(x), before)
    assert {name: values.tobytes() for name, values in net.state_dict().items()} == {
        name: values.tobytes() for name, values in state.items()
    }


def test_a_layer_that_is_taken_out_leaves_the_others_as_numpy_has_them() -> None:
    net = deep()
    x = samples()
    del net[0, 0, 0][1]
    expected = dense(np.tanh(dense(np.tanh(dense(x, net.layers[0])), net.layers[1])), net.layers[3])
    np.testing.assert_allclose(net.predict(x), expected, rtol=0, atol=1e-9)
    net[0, 0, 0].insert(0, nn.Activation("sigmoid"))
    net[0, 0, 0][-1] = nn.Dense(2)
    hidden = dense(1 / (1 + np.exp(-x)), net.layers[1])
    expected = dense(np.tanh(dense(np.tanh(hidden), net.layers[2])), net.layers[4])
    assert net.output_shape == (2,)
    np.testing.assert_allclose(net.predict(x), expected, rtol=0, atol=1e-9)


KINDS: list[Callable[[], nn.Layer]] = [
    lambda: nn.Dense(6, activation="tanh"),
    nn.BatchNorm,
    nn.LayerNorm,
    lambda: nn.Activation("gelu"),
    lambda: nn.Dropout(0.3),
    lambda: nn.Residual([nn.Dense(6)]),
    lambda: nn.Parallel([nn.Dense(6), []], combine="filter"),
    nn.PReLU,
]


@pytest.mark.filterwarnings("ignore::loom.DoctorWarning")
@given(st.lists(st.sampled_from(range(len(KINDS))), min_size=2, max_size=6), st.data())
@settings(max_examples=30, deadline=None)
def test_popped_and_inserted_layers_change_nothing(kinds: list[int], data: st.DataObject) -> None:
    net = loom.Sequential([KINDS[kind]() for kind in kinds], input_shape=6, precision="float64", seed=5)
    x, before = samples(), net.predict(samples())
    for _ in range(3):
        place = data.draw(st.integers(0, len(kinds) - 1))
        layer = net[0, 0, 0].pop(place)
        if data.draw(st.booleans()) and len(kinds) > 1:
            net.predict(x)
        net[0, 0, 0].insert(place, layer)
        np.testing.assert_array_equal(net.predict(x), before)
    # A network put together of copies is the same one, and a network of its own.
    other = loom.Network(input_shape=6, precision="float64")
    for layer in net.layers:
        other[0, 0, 0].insert(len(other[0, 0, 0]), layer)
    np.testing.assert_array_equal(other.predict(x), before)
    other.fit((x, x), quiet(loss="mse", epochs=1, device="cpu"))
    np.testing.assert_array_equal(net.predict(x), before)


def test_a_popped_layer_that_is_between_other_shapes_goes_back_while_nothing_was_built() -> None:
    net = loom.Sequential([nn.Dense(8), nn.Dense(4), nn.Dense(2)], input_shape=6)
    x, before = samples(dtype="float32"), net.predict(samples(dtype="float32"))
    layer = net[0, 0, 0].pop(1)
    net[0, 0, 0].insert(1, layer)
    np.testing.assert_array_equal(net.predict(x), before)
    # Once it was built without it, the last layer has weights for other inputs.
    net.layers[2].weight = kept = net.layers[2].weight * 2
    net[0, 0, 0].pop(1)
    assert net.layers[1].weight.shape == (2, 8)
    net[0, 0, 0].insert(1, layer)
    assert net.layers[2].weight.shape == kept.shape
    assert not np.array_equal(net.layers[2].weight, kept)


def test_copies_bring_types_flags_factors_ranges_and_what_is_carried() -> None:
    source = loom.Sequential(
        [nn.GRU(8, stateful=True), nn.Dense(8), nn.Dense(2)], input_shape=(5, 4), precision="float32"
    )
    x = samples(20).reshape(6, 5, 4).astype("float32")
    source.forward(x)
    source.calibrate(x).morph("int4", calibration="mse", rounding="stochastic")
    source.layers[1].trainable = False
    source.layers[0].freeze("bias_ih_l0")
    source.layers[2].rate_factor = 0.25
    net = loom.Network(input_shape=(5, 4))
    for layer in source.layers:
        net[0, 0, 0].insert(layer.index, layer)
    np.testing.assert_array_equal(net.predict(x), source.predict(x))
    for ours, theirs in zip(net.layers, source.layers, strict=True):
        assert ours.dtype == theirs.dtype == "int4"
        assert (ours.trainable, ours.frozen, ours.rate_factor) == (
            theirs.trainable,
            theirs.frozen,
            theirs.rate_factor,
        )
        assert ours.input_range is not None
        for name in ours.weights.stored:
            if ours.weights.stored[name].version is not None:
                assert (
                    ours.weights.packed(name).codes.tobytes() == theirs.weights.packed(name).codes.tobytes()
                )
        assert {name: values.tobytes() for name, values in ours.states.items()} == {
            name: values.tobytes() for name, values in theirs.states.items()
        }
    assert len(net.layers[0].states) == 1
    # Other layers' states go on where a layer is put before them; a copy of other rows is refused.
    net[0, 0, 0].insert(0, nn.Activation("tanh"))
    np.testing.assert_array_equal(net.layers[1].states["state_l0"], source.layers[0].states["state_l0"])
    source.reset_states()
    source.forward(x[:2])
    described = net.to_json()
    with pytest.raises(loom.errors.StateError, match="2 rows, the network carries 6"):
        net[0, 0, 0].insert(0, source.layers[0])
    assert net.to_json() == described


def test_layers_without_their_masters_are_copied_packed() -> None:
    source = mlp().morph("int8").drop_master()
    x = samples(dtype="float32")
    net = loom.Network(input_shape=6)
    net[0, 0, 0].insert(0, source.layers[0])
    net[0, 0, 0].insert(1, source.layers[2])
    np.testing.assert_array_equal(net.predict(x), source.predict(x))
    assert net.layers[0].weights.dropped
    with pytest.raises(loom.errors.StateError, match="master"):
        net.fit(blobs(20), quiet(epochs=1, device="cpu"))


def test_ties_follow_and_are_not_broken() -> None:
    net = loom.Network(input_shape=5, grid=(1, 2))
    net[0, 0].add(nn.Embedding(11, 4), nn.Dense(4))
    net[0, 1].add(nn.TiedHead(11, tied_to=(0, 0, 0, 0)))
    x = np.arange(10).reshape(2, 5)
    before = net.predict(x)
    net[0, 0].insert(0, nn.Reshape((5,)))
    assert net[0, 1][0].config.tied_to == (0, 0, 0, 1)
    np.testing.assert_array_equal(net.predict(x), before)
    described = net.to_json()
    with pytest.raises(
        loom.errors.InvalidValueError, match=r"cell \(0, 0, 1\), layer 0 \(tied_head\).*take it out"
    ):
        net[0, 0].pop(1)
    assert net.to_json() == described
    np.testing.assert_array_equal(net.predict(x), before)
    head = net[0, 1].pop()
    assert head.config.tied_to == (0, 0, 0, 1)
    net[0, 1].insert(0, head)
    np.testing.assert_array_equal(net.predict(x), before)
    # In its stead another one whose table does not fit: said when it is built, and nothing is lost.
    embedding = net[0, 0][1]
    table = embedding.weight
    net[0, 0][2] = nn.Dense(3)
    with pytest.raises(loom.errors.ShapeError):
        net.build()
    net[0, 0][2] = nn.Dense(4)
    np.testing.assert_array_equal(net[0, 0][1].weight, table)
    assert net.predict(x).shape == before.shape


def test_layers_that_read_a_context_are_popped_and_put_back() -> None:
    net = loom.Network(input_shape=(4, 6), grid=(1, 2))
    net[0, 0].add(nn.Dense(6))
    net[0, 1].add(nn.LayerNorm(), nn.MultiHeadAttention(2, cross=True), nn.Dense(2))
    net.link((0, 0), (0, 1), combine="context")
    x = samples(8).reshape(2, 4, 6)
    before = net.predict(x)
    layer = net[0, 1].pop(1)
    assert layer.kind == "multi_head_attention"
    with pytest.raises(loom.LoomError, match=r"context|second input"):
        net.build()
    net[0, 1].insert(1, layer)
    np.testing.assert_array_equal(net.predict(x), before)


@dataclass(frozen=True)
class Narrow(nn.Composed, name="narrow_for_surgery"):
    width: int

    def layers(self) -> list[nn.Layer]:
        return [nn.Dense(self.width, activation="relu"), nn.Dense(4)]


def test_layers_that_users_composed_stay_what_they_are() -> None:
    net = loom.Sequential([Narrow(2), nn.Dense(3)], input_shape=4)
    x = samples(width=4, dtype="float32")
    before = net.predict(x)
    layer = net[0, 0, 0].pop(0)
    assert layer.config == Narrow(2)
    net[0, 0, 0].insert(0, layer)
    assert net.layers[0].config == net.cut(until=net.layers[0]).layers[0].config == Narrow(2)
    np.testing.assert_array_equal(net.predict(x), before)


def test_layers_that_never_fitted_can_be_taken_out() -> None:
    net = loom.Sequential([nn.Dense(4), nn.Conv2D(3, 3), nn.Dense(2)], input_shape=6)
    with pytest.raises(loom.errors.ShapeError):
        net.build()
    taken = net[0, 0, 0].pop(1)
    assert taken.config == nn.Conv2D(3, 3)
    assert net.output_shape == (2,)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda net: net[0, 0, 0].pop(7), loom.errors.CellIndexError, "no layer 7"),
        (lambda net: net[0, 0, 0].insert(9, nn.Dense(2)), loom.errors.CellIndexError, "no layer 9"),
        (lambda net: net[0, 0, 0].insert("a", nn.Dense(2)), loom.errors.CellIndexError, "whole number"),
        (lambda net: net[0, 0, 0].insert(0, 3), loom.errors.ConfigError, "expected a layer"),
        (
            lambda net: net[0, 0, 0].insert(1, net.layers[0]),
            loom.errors.ShapeError,
            r'layer 1 \(dense\): the copy\'s "weight".*\(8, 6\).*needs \(8, 8\)',
        ),
        (
            lambda net: net[0, 0, 0].insert(0, mlp().layers[0]),
            loom.errors.InvalidValueError,
            "float32 network, this one is float64",
        ),
        (lambda net: net.cut(until="0.0.0.9"), loom.errors.CellIndexError, "no layer 9"),
        (lambda net: net.cut(until="dense"), loom.errors.ConfigError, "named"),
        (lambda net: net.cut(until=mlp().layers[0]), loom.errors.ConfigError, "another network"),
        (lambda net: net.cut(until=(0, 0, 0)), loom.errors.ConfigError, "got the cell"),
        (lambda net: net.freeze("conv*"), loom.errors.ConfigError, 'unknown layer.*"conv\\*"'),
        (lambda net: net.freeze(["dense", 3]), loom.errors.ConfigError, "got 3"),
        (lambda net: net.unfreeze(4), loom.errors.ConfigError, "got 4"),
        (lambda net: net.freeze(mlp().layers[0]), loom.errors.ConfigError, "another network"),
        (
            lambda net: net.freeze(["dense", LayerHandle(net, (0, 0, 0), 7)]),
            loom.errors.CellIndexError,
            "no layer 7",
        ),
        (lambda net: net.scale_rates({"dense": 0.5, "0.0.0.1": -1}), loom.errors.ConfigError, "rate_scale"),
        (
            lambda net: net.scale_rates({"dense": 0.5, "*.bias": 1}),
            loom.errors.ConfigError,
            "names parameters",
        ),
        (lambda net: net.scale_rates(0.5), loom.errors.ConfigError, "factors by pattern"),
        (
            lambda net: net[0, 0, 0].add(nn.Dense(4), deep().layers[0]),
            loom.errors.ShapeError,
            "weight",
        ),
        (
            lambda net: net[0, 0, 0].add(nn.Dense(6), net.layers[0], 3),
            loom.errors.ConfigError,
            "got 3",
        ),
    ],
)
def test_refused_changes_leave_everything_as_it_was(
    change: Callable[[loom.Network], object], error: type[Exception], text: str
) -> None:
    net = trained()
    before = net.to_json(), weights(net), net.predict(samples()).tobytes()
    with pytest.raises(error, match=text):
        change(net)
    assert (net.to_json(), weights(net), net.predict(samples()).tobytes()) == before


def test_nothing_is_rearranged_while_the_network_trains() -> None:
    net = deep()
    seen: list[str] = []

    def attempt(*_: object) -> None:
        for change in (
            net[0, 0, 0].pop,
            lambda: net[0, 0, 0].insert(0, nn.Dense(6)),
            lambda: net[0, 0, 0].__setitem__(0, nn.Dense(8)),
        ):
            with pytest.raises(loom.errors.StateError, match="trains the network") as caught:
                change()
            seen.append(str(caught.value))
        # What only copies from it may go on.
        assert net.cut(until=net.layers[0]).output_shape == (8,)

    net.fit(blobs(20), quiet(epochs=1, device="cpu"), callbacks=[loom.LambdaCallback(on_epoch_end=attempt)])
    assert len(seen) == 3
    assert len(net.layers) == 5
    outcome: list[Exception] = []

    def elsewhere() -> None:
        try:
            net[0, 0, 0].pop()
        except loom.LoomError as error:
            outcome.append(error)

    def begin(*_: object) -> None:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    net.fit(blobs(20), quiet(epochs=1, device="cpu"), callbacks=[loom.LambdaCallback(on_epoch_end=begin)])
    assert [type(error) for error in outcome] == [loom.errors.StateError]


def test_the_optimizer_starts_anew_and_training_goes_on() -> None:
    net = trained()
    twin = loom.Sequential([layer.config for layer in net.layers], input_shape=6, precision="float64")
    twin.load_state_dict(net.state_dict())
    net[0, 0, 0].insert(0, nn.Activation("tanh"))
    twin[0, 0, 0].insert(0, nn.Activation("tanh"))
    x, _ = blobs(20)
    for one in (net, twin):
        one[0, 0, 0].pop(4)
        one.set_optimizer("adam")
        one.forward(x, training=False)
        one.backward(np.ones((20, 3)))
        one.apply_gradients(0.1)
    np.testing.assert_array_equal(net.layers[1].weight, twin.layers[1].weight)
    # Without a choice of its own, too: the first step after surgery is a first step.
    net, fresh = mlp(), mlp()
    for _ in range(3):
        net.forward(x, training=False)
        net.backward(np.ones((20, 3)))
        net.apply_gradients(0.1)
    fresh.load_state_dict(net.state_dict())
    net[0, 1].insert(1, nn.Activation("linear"))
    for one in (net, fresh):
        one.forward(x, training=False)
        one.backward(np.ones((20, 3)))
        one.apply_gradients(0.1)
    np.testing.assert_array_equal(net.layers[0].weight, fresh.layers[0].weight)


def test_measures_are_of_the_layers_that_are_there(tmp_path: Path) -> None:
    net = deep()
    watch = loom.Observe(link_budget_scale=100.0)
    net.fit(blobs(40), quiet(epochs=1, device="cpu"), observe=watch)
    net[0, 0, 0].pop(3)
    net.save(tmp_path / "net.loom", optimizer=True)
    loaded = loom.load(tmp_path / "net.loom")
    np.testing.assert_array_equal(loaded.predict(samples()), net.predict(samples()))
    net.fit(blobs(40), quiet(epochs=2, device="cpu"), observe=watch, resume=True)


def test_resumed_training_of_a_rearranged_network_is_bit_for_bit(tmp_path: Path) -> None:
    net = trained()
    net[0, 0, 0][4] = nn.Dense(3, activation="linear")
    net[0, 0, 0].insert(4, nn.LayerNorm())
    net.freeze("0.0.0.0").scale_rates({"0.0.0.2": 0.5})
    config = quiet(epochs=4, batch_size=16, device="cpu")
    straight = copy.deepcopy(net)
    straight.fit(blobs(60), config)
    net.fit(blobs(60), quiet(epochs=2, batch_size=16, device="cpu"))
    net.save(tmp_path / "net.loom", optimizer=True)
    loaded = loom.load(tmp_path / "net.loom")
    loaded.fit(blobs(60), config, resume=True)
    assert weights(loaded) == weights(straight)
    np.testing.assert_array_equal(loaded.layers[0].weight, net.layers[0].weight)


def test_sessions_and_meshes_notice() -> None:
    net = loom.Sequential([nn.LSTM(4), nn.Dense(2)], input_shape=(5, 3), seed=1)
    x = samples(5, 3, "float32")[None]
    session = net.session(capacity=10)
    session(x)
    net[0, 0, 0].insert(1, nn.Activation("tanh"))
    net.build()
    with pytest.raises(loom.errors.StateError, match="has changed"):
        session(x)
    mesh = loom.Mesh(net)
    net[0, 0, 0].pop(1)
    with pytest.raises(loom.errors.StateError, match="make a new mesh"):
        mesh.tick()


def test_a_tween_state_goes_on_with_the_layers_there_are() -> None:
    net = mlp(precision="float64")
    x, labels = blobs(12)
    y = np.eye(3)[labels]
    state = loom.TweenState(net, loom.TweenConfig())
    state.forward(x)
    net[0, 1].insert(0, nn.Dense(24, activation="tanh"))
    with pytest.raises(loom.errors.StateError, match="call forward again"):
        state.backward(y)
    state.step(x, y)
    state.forward(x)
    state.backward(y)
    net[0, 1].pop(0)
    net[0, 0].pop(1)
    with pytest.raises(loom.errors.StateError, match="layers have changed"):
        state.measure()
    assert np.isfinite(state.step(x, y))


def test_copies_pickles_and_files_have_the_network_as_it_is(tmp_path: Path) -> None:
    net = trained()
    head = net[0, 0, 0].pop()
    net[0, 0, 0].insert(2, nn.RMSNorm())
    x, expected = samples(), net.predict(samples())
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        np.testing.assert_array_equal(other.predict(x), expected)
    net.save(tmp_path / "net.loom")
    np.testing.assert_array_equal(loom.load(tmp_path / "net.loom").predict(x), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(head)).weight, head.weight)


def test_surgery_on_a_gpu_is_as_on_the_cpu(gpu: str) -> None:
    def operate(device: str) -> tuple[loom.Network, loom.Network]:
        net = deep(precision="float32")
        net.fit(blobs(60), quiet(epochs=2, batch_size=16, device=device))
        layer = net[0, 0, 0].pop(2)
        net[0, 0, 0].insert(0, nn.LayerNorm())
        net[0, 0, 0].insert(3, layer)
        features = net.cut(until=net.layers[3])
        net.fit(blobs(60), quiet(epochs=1, batch_size=16, device=device))
        return net, features

    x = samples(dtype="float32")
    there, cut = operate(gpu)
    here, features = operate("cpu")
    assert there.device == gpu
    assert cut.device == "cpu"
    np.testing.assert_allclose(there.predict(x), here.predict(x), rtol=0, atol=1e-4)
    np.testing.assert_allclose(cut.predict(x), features.predict(x), rtol=0, atol=1e-4)


def test_the_last_layers_of_a_network_are_a_network_of_their_own() -> None:
    net = loom.Sequential([nn.Dense(3, activation="tanh"), nn.Dense(2), nn.Dense(4)], input_shape=5)
    x = np.eye(5)
    decoder = loom.Sequential([*net.layers[2:], nn.Activation("relu")], input_shape=2)
    decoded = decoder.predict(net.cut(until=net.layers[1]).predict(x))
    np.testing.assert_array_equal(decoded, np.maximum(net.predict(x), 0))
    for layers, told in (
        (lambda: [nn.Residual([net.layers[0]])], r"layer\.config"),
        (lambda: [net], r"\[\*net\.layers, "),
    ):
        with pytest.raises(loom.ConfigError, match=told):
            loom.Sequential(layers(), input_shape=5)  # type: ignore[arg-type, list-item]
