"""Networks on a GPU: inference, the manual loop, reading and setting weights, several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import activations, nn
from networks import blobs, cnn, mlp, quiet, stripes, weights

LAYERS: dict[str, tuple[tuple[int, ...], list[nn.Layer]]] = {
    "dense": ((5,), [nn.Dense(4, activation="tanh"), nn.Dense(6), nn.Dense(3)]),
    "dense on the last axis": ((3, 5), [nn.Dense(4, activation="silu"), nn.Flatten(), nn.Dense(3)]),
    "convolution": (
        (2, 6, 5),
        [nn.Conv2D(4, 3, padding=1, activation="tanh"), nn.Conv2D(3, 2), nn.Flatten(), nn.Dense(3)],
    ),
    "strided, dilated, grouped": (
        (4, 9, 8),
        [
            nn.Conv2D(4, 3, padding="same", activation="tanh"),
            nn.Conv2D(8, (3, 2), stride=(2, 1), dilation=(1, 2), groups=2, activation="softplus"),
            nn.Flatten(),
            nn.Dense(3),
        ],
    ),
    "padded pooling": (
        (2, 7, 7),
        [
            nn.Conv2D(3, 3),
            nn.MaxPool2D(3, stride=2, padding=1),
            nn.AvgPool2D(2, padding=1, count_include_pad=False),
            nn.Flatten(),
            nn.Dense(3),
        ],
    ),
    "average pooling": ((2, 6, 6), [nn.Conv2D(3, 3), nn.AvgPool2D(2), nn.GlobalAvgPool2D(), nn.Dense(3)]),
    "reshape": ((12,), [nn.Dense(12), nn.Reshape((3, 2, 2)), nn.Conv2D(2, 2), nn.Flatten(), nn.Dense(3)]),
    "softmax": ((5,), [nn.Dense(6), nn.Softmax(temperature=0.7), nn.Dense(3)]),
    **{
        f"activation {name}": ((5,), [nn.Dense(6), nn.Activation(name), nn.Dense(3)])
        for name in activations.names()
    },
}


def pair(gpu: str, make: Callable[[], loom.Network]) -> tuple[loom.Network, loom.Network]:
    return make(), make().to(gpu)


def near(found: Any, expected: Any, tolerance: float = 1e-4) -> None:
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    scale = float(np.abs(expected).max()) + 1e-6
    assert np.abs(found - expected).max() <= tolerance * scale


# Forward and backward


@pytest.mark.parametrize(("shape", "layers"), LAYERS.values(), ids=LAYERS)
def test_every_layer_gives_the_cpu_s_values_and_gradients(
    gpu: str, shape: tuple[int, ...], layers: list[nn.Layer]
) -> None:
    here, there = pair(gpu, lambda: loom.Sequential(layers, input_shape=shape, seed=3))
    random = np.random.default_rng(0)
    x = random.normal(size=(5, *shape)).astype(np.float32)
    near(there.predict(x), here.predict(x))
    near(there.forward(x), here.forward(x))
    gradient = random.normal(size=(5, 3)).astype(np.float32)
    near(there.backward(gradient), here.backward(gradient), 1e-3)
    for ours, theirs in zip(there.layers, here.layers, strict=True):
        near(ours.input, theirs.input)
        near(ours.preactivation, theirs.preactivation)
        near(ours.activation, theirs.activation)
        for name, values in ours.gradients.items():
            near(values, theirs.gradients[name], 1e-3)


def test_predictions_are_the_same_bits_in_any_batch_and_again(gpu: str) -> None:
    for make, data in ((mlp, blobs), (cnn, stripes)):
        net, x = make().to(gpu), data()[0]
        whole = net.predict(x)
        np.testing.assert_array_equal(net.predict(x), whole)
        # Another number of rows may choose another product, with other sums.
        near(np.concatenate([net.predict(x[s : s + 37], 37) for s in range(0, len(x), 37)]), whole, 1e-5)
        near(net.predict(x[:1]), whole[:1], 1e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "rmsprop"])
def test_the_manual_loop_does_what_it_does_on_the_cpu(gpu: str, optimizer: str) -> None:
    nets = pair(gpu, lambda: mlp(seed=4))
    x, y = blobs(rows=60)
    losses: list[list[float]] = []
    for net in nets:
        net.set_optimizer(optimizer)
        losses.append([])
        for start in (0, 20, 40, 0):
            rows = slice(start, start + 20)
            # Two halves add up.
            for half in (slice(start, start + 10), slice(start + 10, start + 20)):
                loss, gradient = loom.losses.cross_entropy(net.forward(x[half]), y[half])
                net.backward(gradient / 2)
            losses[-1] += [loss, net.clip_gradients(0.5), *(layer.norm for layer in net.gradient_stats())]
            net.apply_gradients(0.01)
            assert net.predict(x[rows]).shape == (20, 3)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-3)
    for name, values in nets[0].state_dict().items():
        near(nets[1].state_dict()[name], values, 1e-3)
    assert nets[1].last_forward_time is not None


def test_the_manual_loop_refuses_what_it_refuses_on_the_cpu(gpu: str) -> None:
    net = mlp().to(gpu)
    x = blobs(rows=4)[0]
    with pytest.raises(loom.StateError, match="forward pass"):
        net.backward(np.ones((4, 3)))
    with pytest.raises(loom.StateError, match="gradients"):
        net.apply_gradients(0.1)
    output = net.forward(x)
    net.backward(np.ones_like(output))
    net.apply_gradients(0.1)
    with pytest.raises(loom.StateError, match="weights have moved"):
        net.backward(np.ones_like(output))
    net.forward(x)
    net.backward(np.ones_like(output))
    net.zero_gradients()
    assert not any(values.any() for layer in net.layers for values in layer.gradients.values())
    with pytest.raises(loom.ShapeError):
        net.predict(x[:, :5])
    with pytest.raises(loom.NonFiniteError):
        net.predict(x * np.nan)
    # A move drops the history, as any other change of what programs depend on.
    net.forward(x)
    net.to("cpu")
    with pytest.raises(loom.StateError, match="forward pass"):
        net.backward(np.ones_like(output))


def test_gradients_go_along_from_device_to_device(gpu: str) -> None:
    x, y = blobs(rows=20)
    here, there = mlp(), mlp().to(gpu)
    for net in (here, there):
        _, gradient = loom.losses.cross_entropy(net.forward(x), y)
        net.backward(gradient)
    there.to("cpu")
    for ours, theirs in zip(there.layers, here.layers, strict=True):
        for name, values in ours.gradients.items():
            near(values, theirs.gradients[name], 1e-3)
    here.to(gpu)
    for net in (here, there):
        net.apply_gradients(0.01)
    for name, values in here.state_dict().items():
        near(there.state_dict()[name], values, 1e-3)


def test_observers_see_forward_passes(gpu: str) -> None:
    records = []
    for net in pair(gpu, mlp):
        recorder = loom.observers.Recorder()
        net.observe(recorder)
        net.predict(blobs()[0])
        net.forward(blobs()[0])
        records.append(recorder.records)
    assert len(records[1]) == len(records[0])
    for ours, theirs in zip(records[1], records[0], strict=True):
        for layer, expected in zip(ours, theirs, strict=True):
            assert layer.norm == pytest.approx(expected.norm, rel=1e-3)


# Weights


def test_weights_that_are_set_are_used_and_those_learned_are_read(gpu: str) -> None:
    x, y = blobs()
    net = mlp().to(gpu)
    loom.train(net, (x, y), quiet())
    layer = net[0, 0, 1, 0]
    learned = layer.weight
    trainer = loom.Trainer(net, quiet(learning_rate=0.05))
    trainer.step(x, y)
    assert not np.array_equal(layer.weight, learned)
    # Setting one parameter keeps what the GPU has learned of the others.
    bias = layer.bias
    layer.weight = np.zeros_like(learned)
    np.testing.assert_array_equal(layer.bias, bias)
    near(net.predict(x), np.tile(bias, (len(x), 1)), 1e-6)
    state = net.state_dict()
    other = mlp(seed=9).to(gpu).load_state_dict(state)
    np.testing.assert_array_equal(other.predict(x), net.predict(x))


def test_reading_all_weights_brings_them_back_once(gpu: str) -> None:
    x, y = blobs()
    net = mlp(units=500).to(gpu)
    # Its kernels are compiled now: after a second of training the weights are copied back in any case.
    loom.Trainer(net, quiet()).step(x, y)
    trainer = loom.Trainer(net, quiet())
    trainer.step(x, y)
    loom.reset_frame_statistics(gpu)
    state = net.state_dict()
    first = loom.frame_statistics(gpu)
    held = sum(values.nbytes for values in state.values())
    # Masters and two moments, in one go.
    assert held <= first.bytes_down < 3.5 * held
    assert first.submits == 1
    net.state_dict(), [layer.gradients for layer in net.layers], net.gradient_stats
    assert loom.frame_statistics(gpu).bytes_down == first.bytes_down
    # After training everything is here already.
    loom.train(net, (x, y), quiet())
    loom.reset_frame_statistics(gpu)
    net.state_dict()
    assert loom.frame_statistics(gpu).bytes_down == 0


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float16", "bfloat16", "int8", "float8_e5m2", "int4", "uint2", "uint64", "binary", "q4_0"],
)
@pytest.mark.parametrize("make", [mlp, cnn])
def test_packed_weights_compute_as_on_the_cpu(gpu: str, tmp_path: Path, make: Any, dtype: str) -> None:
    here, there = pair(gpu, lambda: make(seed=3))
    for net in (here, there):
        net.morph(dtype)
    x = np.random.default_rng(0).normal(size=(9, *here.input_shape)).astype(np.float32)
    near(there.predict(x), here.predict(x))
    assert there.weight_bytes == here.weight_bytes
    there.save(tmp_path / "net.loom")
    loaded = loom.load(tmp_path / "net.loom")
    assert weights(loaded) == weights(there) == weights(here)
    near(loaded.to(gpu).predict(x), here.predict(x))
    near(there.morph("float32").predict(x), make(seed=3).predict(x))


def test_packed_versions_follow_what_is_learned_on_the_gpu(gpu: str) -> None:
    x, y = blobs()
    net = mlp().to(gpu)
    loom.train(net, (x, y), quiet(epochs=3, learning_rate=0.01))
    net.morph("int8")
    there = net.predict(x)
    near(net.to("cpu").predict(x), there, 1e-3)
    assert net.evaluate((x, y), loss="cross_entropy", metrics=["accuracy"])["accuracy"] > 0.8


@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_evaluation_agrees_with_the_cpu(gpu: str, loss: str) -> None:
    x, y = blobs()
    target = y if loss == "cross_entropy" else np.eye(3)[y]
    weight = np.linspace(0, 2, len(x))
    metrics = ["accuracy"] if loss == "cross_entropy" else ["mae", "r2"]
    found = [
        net.evaluate((x, target, weight), loss=loss, metrics=metrics, batch_size=64) for net in pair(gpu, mlp)
    ]
    assert list(found[1]) == list(found[0])
    np.testing.assert_allclose(list(found[1].values()), list(found[0].values()), rtol=1e-4, atol=1e-3)


def test_a_network_that_grows_stays_on_its_gpu(gpu: str) -> None:
    net = loom.Sequential([nn.Dense(4)], input_shape=6).to(gpu)
    x = blobs(rows=3)[0]
    assert net.predict(x).shape == (3, 4)
    net[0, 0, 0].add(nn.Dense(2))
    assert net.predict(x).shape == (3, 2)
    assert net.device == gpu
    here = loom.Sequential([nn.Dense(4), nn.Dense(2)], input_shape=6)
    here.load_state_dict(net.state_dict())
    near(net.predict(x), here.predict(x))


# Several threads


def test_eight_threads_predict_at_once(gpu: str) -> None:
    net = cnn().to(gpu)
    random = np.random.default_rng(0)
    inputs = [random.normal(size=(rows, 1, 8, 8)).astype(np.float32) for rows in (1, 3, 17, 40) * 6]
    expected = [net.predict(x) for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        for found, wanted in zip(pool.map(net.predict, inputs), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_reading_beside_predicting_refuses_nobody(gpu: str) -> None:
    x, y = blobs()
    net = mlp(units=300).to(gpu)
    trainer = loom.Trainer(net, quiet())
    strange: list[BaseException] = []

    def work(call: Callable[[], object], barrier: threading.Barrier) -> None:
        try:
            barrier.wait()
            for _ in range(5):
                call()
        except BaseException as error:  # noqa: BLE001 - any error fails the test
            strange.append(error)

    for _ in range(5):
        # Something is newer on the GPU, and readers bring it back while others compute.
        trainer.step(x, y)
        barrier = threading.Barrier(4)
        calls: list[Callable[[], object]] = [
            net.state_dict,
            net.state_dict,
            lambda: net.predict(x),
            net.to_json,
        ]
        threads = [threading.Thread(target=work, args=(call, barrier)) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not strange


def test_predicting_beside_training_never_crashes(gpu: str) -> None:
    net = mlp().to(gpu)
    net.build()
    stop = threading.Event()
    strange: list[BaseException] = []

    def predict() -> None:
        try:
            while not stop.is_set():
                with suppress(loom.StateError):
                    net.predict(blobs(rows=5)[0])
        except BaseException as error:  # noqa: BLE001 - any other error fails the test
            strange.append(error)

    threads = [threading.Thread(target=predict) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        with suppress(loom.StateError):
            loom.train(net, blobs(), quiet(epochs=2))
    stop.set()
    for thread in threads:
        thread.join()
    assert not strange
    loom.train(net, blobs(), quiet())
    assert np.isfinite(net.predict(blobs()[0])).all()


def test_two_networks_train_on_one_gpu_at_once(gpu: str) -> None:
    alone = mlp().to(gpu)
    expected = loom.train(alone, blobs(), quiet(epochs=3)).loss_history
    nets = [mlp().to(gpu) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda net: loom.train(net, blobs(), quiet(epochs=3)), nets))
    for net, result in zip(nets, results, strict=True):
        assert weights(net) == weights(alone)
        assert result.loss_history == expected
