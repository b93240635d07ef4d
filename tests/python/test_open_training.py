"""Training on samples of any length: as each by hand, in groups, from lists, runs and batches."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn
from open_lengths import SETTINGS, classifier, network, sequences, words

Array = NDArray[Any]


def hand_trained(
    layers: Sequence[Any],
    shape: tuple[int, ...],
    batches: Sequence[Sequence[int]],
    x: Any,
    y: Any,
    stepped: bool,
) -> dict[str, Array]:
    """Trains by plain SGD, every sequence through a network of its own length."""
    nets = {len(each): network(layers, (len(each), *shape), "float64") for each in x}
    state = next(iter(nets.values())).state_dict()
    for batch in batches:
        count = sum(len(x[number]) for number in batch) if stepped else len(batch)
        sums: dict[str, Array] = {}
        for number in batch:
            net = nets[len(x[number])]
            net.load_state_dict(state)
            net.zero_gradients()
            output = net.forward(x[number][None])
            rows = output.reshape(-1, output.shape[-1])
            _, gradient = loom.losses.cross_entropy(rows, np.atleast_1d(y[number]))
            net.backward((gradient * (len(rows) / count)).reshape(output.shape))
            for layer in net.layers:
                for key, values in layer.gradients.items():
                    name = f"{layer.path}.{key}"
                    sums[name] = sums.get(name, 0.0) + values
        state = {name: values - 0.1 * sums[name] for name, values in state.items()}
    return state


@pytest.mark.parametrize("stepped", [False, True])
def test_training_is_that_of_each_sequence_by_hand(stepped: bool) -> None:
    random = np.random.default_rng(8)
    lengths = [4, 9, 2, 16, 3, 5, 7]
    x = sequences(lengths, "float64", 3)
    y: list[Any] = [random.integers(0, 2, length if stepped else None) for length in lengths]
    layers = [nn.LSTM(4, return_sequences=stepped), nn.Dense(2)]
    net = network(layers, (None, 3), "float64")
    optimizer = loom.optimizers.SGD()
    targets: Any = y if stepped else np.array(y)
    net.fit(
        x,
        targets,
        epochs=2,
        batch_size=3,
        learning_rate=0.1,
        optimizer=optimizer,
        loss="cross_entropy",
        shuffle=False,
        verbose=False,
    )
    batches = [[0, 1, 2], [3, 4, 5], [6]] * 2
    expected = hand_trained(layers, (3,), batches, x, y, stepped)
    for name, values in net.state_dict().items():
        np.testing.assert_allclose(values, expected[name], rtol=0, atol=1e-12, err_msg=name)


def test_a_classifier_of_texts_learns_and_is_kept(tmp_path: Path) -> None:
    texts, labels = words(400)
    net = classifier()
    result = net.fit(texts, labels, epochs=8, validation_split=0.2, **SETTINGS)
    assert result.metrics["val_accuracy"][-1] > 0.95
    held = words(100, seed=9)
    found = net.evaluate(held, metrics=["accuracy", "f1", lambda o, t: float((o.argmax(-1) == t).mean())])
    assert found["accuracy"] == pytest.approx(found["<lambda>"])
    assert found["accuracy"] > 0.95
    expected = net.predict(held[0])
    net.save(tmp_path / "net.loom")
    for again in (loom.load(tmp_path / "net.loom"), pickle.loads(pickle.dumps(net))):
        assert again.input_shape == (None,)
        np.testing.assert_array_equal(again.predict(held[0]), expected)
    np.testing.assert_array_equal(net.predict_classes(held[0]), expected.argmax(-1))


def test_labels_may_be_texts() -> None:
    texts, labels = words(100)
    net = classifier()
    net.fit(texts, np.array(["no", "yes"])[labels], epochs=1, **SETTINGS)
    assert set(net.predict_classes(texts[:5])) <= {"no", "yes"}


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    data = words(70)
    whole = classifier()
    whole.fit(*data, epochs=4, **SETTINGS)
    half = classifier()
    half.fit(*data, epochs=2, **SETTINGS)
    half.save(tmp_path / "half.loom", optimizer=True)
    again = loom.load(tmp_path / "half.loom")
    again.fit(*data, epochs=4, resume=True, **SETTINGS)
    assert again.fingerprint() == whole.fingerprint()

    class Stop(loom.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 2:
                raise KeyboardInterrupt

    folder = tmp_path / "run"
    stopped = classifier()
    stopped.fit(*data, epochs=4, run=folder, callbacks=[Stop()], **SETTINGS)
    other = classifier()
    other.fit(*data, epochs=4, run=folder, **SETTINGS)
    assert other.fingerprint() == whole.fingerprint()


def test_training_on_a_gpu_is_that_on_the_cpu(gpu: str) -> None:
    data = words(60)
    nets = []
    for device in ("cpu", gpu):
        net = classifier()
        net.fit(*data, epochs=2, device=device, **SETTINGS)
        nets.append(net)
    for name, values in nets[0].state_dict().items():
        np.testing.assert_allclose(nets[1].state_dict()[name], values, rtol=2e-3, atol=2e-4, err_msg=name)


def test_a_tagger_learns_from_lists_and_from_padded_arrays() -> None:
    random = np.random.default_rng(4)
    lengths = random.integers(1, 20, 120)
    x = [random.integers(0, 5, length) for length in lengths]
    y = [np.cumsum(each) % 2 for each in x]
    padded_x, padded_y = np.zeros((2, 120, 20), int)
    for row in range(120):
        padded_x[row, : lengths[row]], padded_y[row, : lengths[row]] = x[row], y[row]
    # What stands in the padding is never looked at.
    padding = np.arange(20) >= lengths[:, None]
    padded_x[padding], padded_y[padding] = 4, 1
    layers = [nn.Embedding(5, 6), nn.GRU(16, return_sequences=True), nn.Dense(2)]
    nets = [loom.Sequential(layers, input_shape=(None,), seed=1) for _ in range(2)]
    settings = {**SETTINGS, "loss": "auto", "metrics": ["accuracy", "mae"]}
    first = nets[0].fit(x, y, epochs=40, **settings)
    second = nets[1].fit(loom.data.Padded(padded_x, lengths), padded_y, epochs=40, **settings)
    assert nets[0].fingerprint() == nets[1].fingerprint()
    assert first.metrics == second.metrics
    assert first.metrics["accuracy"][-1] > 0.95
    outputs = nets[0].predict(x)
    hits = sum(int((output.argmax(-1) == each).sum()) for output, each in zip(outputs, y, strict=True))
    found = nets[0].evaluate((x, y), loss="cross_entropy", metrics=["accuracy"])
    assert found["accuracy"] == pytest.approx(hits / lengths.sum())
    rows = [
        np.log(np.exp(o) / np.exp(o).sum(-1, keepdims=True))[np.arange(len(t)), t]
        for o, t in zip(outputs, y, strict=True)
    ]
    assert found["loss"] == pytest.approx(-np.concatenate(rows).mean(), rel=1e-4)
    whole = nets[0].predict(loom.data.Padded(padded_x, lengths))
    assert whole.shape == (120, 20, 2)
    for row, output in enumerate(outputs):
        np.testing.assert_array_equal(whole[row, : lengths[row]], output)
        assert (whole[row, lengths[row] :] == 0).all()


def test_regression_by_step_weighs_samples() -> None:
    x = sequences([3, 6, 2, 9], "float64", 2)
    y = [each.sum(axis=1, keepdims=True) for each in x]
    net = network([nn.Dense(4, activation="tanh"), nn.Dense(1)], (None, 2), "float64")
    weight = np.array([1.0, 0.0, 2.0, 0.5])
    found = net.evaluate((x, y, weight), loss="mse")["loss"]
    errors = [((a - b) ** 2).sum() for a, b in zip(net.predict(x), y, strict=True)]
    lengths = np.array([len(each) for each in x])
    assert found == pytest.approx((weight * errors).sum() / (weight * lengths).sum(), rel=1e-12)


def test_batches_of_accumulated_steps_may_have_different_lengths() -> None:
    data = words(64)
    nets = [classifier() for _ in range(2)]
    plain = {**SETTINGS, "shuffle": False, "optimizer": loom.optimizers.SGD()}
    nets[0].fit(*data, epochs=1, **{**plain, "batch_size": 32})
    nets[1].fit(*data, epochs=1, accumulate=2, **plain)
    for name, values in nets[0].state_dict().items():
        np.testing.assert_allclose(nets[1].state_dict()[name], values, rtol=1e-4, atol=1e-6, err_msg=name)


def test_batches_that_are_iterated_are_taken() -> None:
    texts, labels = words(40)
    batches = [(texts[start : start + 8], labels[start : start + 8]) for start in range(0, 40, 8)]
    net, other = classifier(), classifier()
    net.fit(batches, epochs=2, **SETTINGS)
    other.fit(texts, labels, epochs=2, **{**SETTINGS, "batch_size": 8, "shuffle": False})
    assert net.fingerprint() == other.fingerprint()
    assert net.evaluate(batches, loss="cross_entropy")["loss"] == pytest.approx(
        net.evaluate((texts, labels), loss="cross_entropy")["loss"], rel=1e-6
    )


@pytest.mark.parametrize("padded", [False, True])
def test_steps_have_weights_of_their_own(padded: bool) -> None:
    """Of outputs with names they had; of a single one lists of arrays were no array."""
    random = np.random.default_rng(0)
    lengths = np.array([5, 2, 7, 1, 4])
    x = [random.normal(size=(length, 3)) for length in lengths]
    y = [random.normal(size=(length, 2)) for length in lengths]
    weight = [random.uniform(0.1, 2.0, length) for length in lengths]
    net = loom.Sequential([nn.GRU(4, return_sequences=True), nn.Dense(2)], input_shape=(None, 3), seed=1)
    missed = [((out - wanted) ** 2).mean(axis=1) for out, wanted in zip(net.predict(x), y, strict=True)]
    counted = np.concatenate(weight)
    expected = float((np.concatenate(missed) * counted).sum() / counted.sum())
    data: Any = (x, y, weight)
    if padded:
        filled = [np.zeros((5, 7, 3)), np.zeros((5, 7, 2)), np.full((5, 7), 9.0)]
        for row, parts in enumerate(zip(x, y, weight, strict=True)):
            for whole, part in zip(filled, parts, strict=True):
                whole[row, : len(part)] = part
        data = (loom.data.Padded(filled[0], lengths), *filled[1:])
    for size in (1, 2, 8):
        found = loom.evaluate(net, data, loss="mse", batch_size=size)["loss"]
        assert found == pytest.approx(expected, rel=1e-5)
    result = net.fit(
        data, loom.TrainingConfig(loss="mse", optimizer="sgd", learning_rate=0.0, batch_size=2, verbose=False)
    )
    assert result.loss_history[0] == pytest.approx(expected, rel=1e-5)
    with pytest.raises(loom.ShapeError, match="weight: sample 0 has 5 steps"):
        loom.evaluate(net, (x, y, [each[:1] for each in weight]), loss="mse")
    with pytest.raises(loom.DataError, match="one for each step of each, in a list of arrays"):
        loom.evaluate(net, (x, y, np.ones(4)), loss="mse")


@pytest.mark.filterwarnings("ignore:.*padding")
def test_labels_of_steps_are_learned_where_samples_go_in_groups() -> None:
    """They were where padding is left out, and no numbers where samples go through by their lengths."""
    random = np.random.default_rng(0)
    x = [random.normal(size=(length, 4)) for length in random.integers(1, 9, 30)]
    y = [np.where(each[:, 0] > 0, "up", "down") for each in x]
    layers = [nn.Permute((1, 0)), nn.Conv1D(6, kernel_size=3, padding=1), nn.Permute((1, 0)), nn.Dense(2)]
    net = network(layers, (None, 4))
    net.fit(x, y, epochs=10, learning_rate=0.05, verbose=False)
    right = [chosen == wanted for chosen, wanted in zip(net.predict_classes(x), y, strict=True)]
    assert np.concatenate(right).mean() > 0.9
    assert net.evaluate((x, y), metrics=["accuracy"])["accuracy"] == pytest.approx(
        np.concatenate(right).mean()
    )


def test_the_order_of_epochs_is_a_matter_of_the_seed() -> None:
    data = words(90)
    nets = [classifier() for _ in range(3)]
    for net, seed in zip(nets, (1, 1, 2), strict=True):
        net.fit(*data, epochs=2, seed=seed, **SETTINGS)
    assert nets[0].fingerprint() == nets[1].fingerprint() != nets[2].fingerprint()
