"""Inputs of open extents: every sample gives what a network of its own extents gives."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn
from open_lengths import SETTINGS, STEPPED, classifier, each_alone, network, sequences, words
from samples import SAMPLES

Array = NDArray[Any]

# What makes one vector of sequences, and what goes on step by step.
POOLED: dict[str, list[Any]] = {
    "lstm": [nn.LSTM(6), nn.Dense(2)],
    "gru both ways": [nn.GRU(5, bidirectional=True, layers=2), nn.Dense(2)],
    "rnn, mean": [nn.RNN(6, return_sequences=True), nn.SequencePool("mean"), nn.Dense(2)],
    "attention": [
        nn.SinusoidalPositions(),
        nn.Residual([nn.LayerNorm(), nn.MultiHeadAttention(2)]),
        nn.Residual([nn.RMSNorm(), nn.SwiGLU(8)]),
        nn.SequencePool("last"),
        nn.Dense(2),
    ],
    "within": [nn.Sequential([nn.Dense(4, activation="gelu"), nn.LSTM(5), nn.LayerNorm()]), nn.Dense(2)],
    "branches": [
        nn.Parallel([[nn.LSTM(3)], [nn.Dense(4), nn.SequencePool("mean")]], combine="concat"),
        nn.Dense(2),
    ],
}


@pytest.mark.parametrize("name", [*POOLED, *STEPPED])
def test_a_sequence_gives_the_bits_of_a_network_of_its_length(name: str) -> None:
    layers = {**POOLED, **STEPPED}[name]
    samples = sequences()
    net = network(layers, (None, 4))
    assert net.input_shape == (None, 4)
    assert net.output_shape == ((2,) if name in POOLED else (None, 3))
    expected = each_alone(layers, samples)
    for outputs in (
        net.predict(samples),
        net.predict(samples, batch_size=2),
        net.forward(samples, training=False),
    ):
        assert type(outputs) is (np.ndarray if name in POOLED else list)
        for output, alone in zip(outputs, expected, strict=True):
            np.testing.assert_array_equal(output, alone)


@pytest.mark.parametrize("name", [*POOLED, *STEPPED])
def test_a_sequence_gives_the_same_on_a_gpu(name: str, gpu: str) -> None:
    layers = {**POOLED, **STEPPED}[name]
    samples = sequences([3, 9, 4])
    net = network(layers, (None, 4)).to(gpu)
    for output, alone in zip(net.predict(samples), each_alone(layers, samples), strict=True):
        np.testing.assert_allclose(output, alone, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("name", [*POOLED, *STEPPED])
def test_gradients_are_the_sums_of_those_of_each_sequence(name: str) -> None:
    layers = {**POOLED, **STEPPED}[name]
    samples = sequences([3, 8, 5], "float64")
    net = network(layers, (None, 4), "float64")
    random = np.random.default_rng(5)
    outputs = net.forward(samples)
    above = [random.normal(size=output.shape) for output in outputs]
    to_input = net.backward(np.stack(above) if name in POOLED else above)
    found = {path: layer.gradients for path, layer in ((layer.path, layer) for layer in net.layers)}
    sums: dict[str, dict[str, Array]] = {}
    for x, gradient, own in zip(samples, above, to_input, strict=True):
        alone = network(layers, x.shape, "float64")
        alone.forward(x[None])
        np.testing.assert_allclose(own, alone.backward(gradient[None])[0], rtol=0, atol=1e-13)
        for layer in alone.layers:
            into = sums.setdefault(layer.path, {})
            for key, values in layer.gradients.items():
                into[key] = into.get(key, 0.0) + values
    for path, gradients in found.items():
        for key, values in gradients.items():
            np.testing.assert_allclose(values, sums[path][key], rtol=0, atol=1e-12, err_msg=f"{path} {key}")


def test_a_gradient_is_that_of_finite_differences() -> None:
    samples = sequences([2, 5], "float64", 2)
    net = network([nn.Dense(3), nn.LSTM(3, return_sequences=True), nn.Dense(1)], (None, 2), "float64")

    def total() -> float:
        return float(sum((output**2).sum() for output in net.predict(samples)))

    outputs = net.forward(samples)
    to_input = net.backward([2 * output for output in outputs])
    for number, (row, column) in [(0, (1, 0)), (1, (0, 1)), (1, (4, 0))]:
        here, step = samples[number][row, column], 1e-6
        values = []
        for sign in (1, -1):
            samples[number][row, column] = here + sign * step
            values.append(total())
        samples[number][row, column] = here
        assert to_input[number][row, column] == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-6)


def images(sizes: Sequence[tuple[int, int]]) -> list[Array]:
    random = np.random.default_rng(6)
    return [random.normal(size=(2, *size)).astype("float32") for size in sizes]


CONVOLUTIONS = [
    nn.Conv2D(4, kernel_size=3, stride=2, activation="relu"),
    nn.BatchNorm(),
    nn.Conv2D(6, kernel_size=3),
    nn.AdaptiveAvgPool2D(1),
    nn.Flatten(),
    nn.Dense(2),
]


def test_images_of_any_size_go_through_where_a_pooling_makes_one_size() -> None:
    sizes = [(9, 12), (7, 7), (9, 12), (20, 8)]
    samples = images(sizes)
    net = network(CONVOLUTIONS, (2, None, None))
    assert net.input_shape == (2, None, None)
    assert net.output_shape == (2,)
    outputs = net.predict(samples)
    assert outputs.shape == (4, 2)
    for output, alone in zip(outputs, each_alone(CONVOLUTIONS, samples), strict=True):
        np.testing.assert_array_equal(output, alone)
    labels = np.array([0, 1, 1, 0])
    result = net.fit(samples, labels, epochs=30, **{**SETTINGS, "batch_size": 2})
    assert result.loss_history[-1] < result.loss_history[0] / 2
    assert net.evaluate((samples, labels), loss="cross_entropy", metrics=["accuracy"])["accuracy"] == 1.0


def test_what_comes_out_may_have_the_size_of_what_comes_in() -> None:
    net = network([nn.Conv2D(3, kernel_size=3, padding=1)], (2, None, None))
    outputs: Any = net.predict(images([(5, 6), (4, 4)]))
    assert [output.shape for output in outputs] == [(3, 5, 6), (3, 4, 4)]
    assert net.predict(np.stack(images([(5, 6)] * 3))).shape == (3, 3, 5, 6)


def test_images_of_different_sizes_are_told_point_by_point() -> None:
    samples = images([(5, 6), (4, 4), (5, 6), (7, 3)])
    labels = [(x.sum(axis=0) > 0).astype(int) for x in samples]
    net = network(
        [nn.Conv2D(8, kernel_size=1, activation="relu"), nn.Conv2D(2, kernel_size=1)], (2, None, None)
    )
    result = net.fit(samples, labels, epochs=150, **{**SETTINGS, "loss": "auto", "batch_size": 2})
    assert result.metrics["accuracy"][-1] > 0.9
    outputs = net.predict(samples)
    hits = sum(int((o.argmax(0) == t).sum()) for o, t in zip(outputs, labels, strict=True))
    found = net.evaluate((samples, labels), loss="cross_entropy", metrics=["accuracy"])
    assert found["accuracy"] == pytest.approx(hits / sum(label.size for label in labels))


def test_signals_of_any_length_go_through_convolutions() -> None:
    layers = [nn.Conv1D(4, kernel_size=3), nn.AdaptiveMaxPool1D(1), nn.Flatten(), nn.Dense(2)]
    samples = [x.T.copy() for x in sequences([5, 9, 3])]
    net = network(layers, (4, None))
    for output, alone in zip(net.predict(samples), each_alone(layers, samples), strict=True):
        np.testing.assert_array_equal(output, alone)


WHOLE: dict[str, list[Any]] = {
    "convolution": [
        nn.Permute((1, 0)),
        nn.Conv1D(5, kernel_size=3, padding=1, activation="relu"),
        nn.BatchNorm(),
        nn.AdaptiveMaxPool1D(1),
        nn.Flatten(),
        nn.Dense(2),
    ],
    "class token": [nn.ClassToken(), nn.MultiHeadAttention(2), nn.SequencePool("first"), nn.Dense(2)],
    "masked": [nn.Masked([nn.LSTM(4)]), nn.Dense(2)],
}


@pytest.mark.parametrize("name", WHOLE)
def test_layers_that_know_no_padding_get_sequences_of_one_length_at_a_time(name: str) -> None:
    samples = sequences([3, 7, 3, 5, 7, 4, 3, 9])
    net = network(WHOLE[name], (None, 4))
    for output, alone in zip(net.predict(samples), each_alone(WHOLE[name], samples), strict=True):
        np.testing.assert_array_equal(output, alone)
    np.testing.assert_array_equal(net.forward(np.stack(samples[:1] * 2))[0], net.forward(samples[:1])[0])
    with pytest.raises(loom.DataError, match="different shapes"):
        net.forward(samples)
    labels = np.array([len(x) > 4 for x in samples], int)
    with pytest.warns(UserWarning, match=r"1\.6 on average instead of 8.*padding"):
        result = net.fit(samples, labels, epochs=60, **{**SETTINGS, "batch_size": 8})
    assert result.loss_history[-1] < result.loss_history[0] / 2


REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: network([nn.Flatten(), nn.Dense(2)], (None, 4)).build(), loom.ShapeError, "SequencePool"),
    (lambda: network([nn.LSTM(3)], (None, None)), loom.ConfigError, "time"),
    (lambda: network([nn.LSTM(3)], (None, 4)).predict([]), loom.DataError, "no samples"),
    (lambda: network([nn.LSTM(3)], (None, 4)).predict([np.ones((0, 4))]), loom.DataError, "empty"),
    (lambda: network([nn.LSTM(3)], (None, 4)).predict([np.ones((2, 4)), []]), loom.DataError, "1 is empty"),
    (
        lambda: classifier().predict(["a text", "one"]),
        loom.DTypeError,
        r"got dtype <U6 .*; texts go in as numbers",
    ),
    (lambda: classifier().predict([["a", "text"]]), loom.DTypeError, "texts go in as numbers of their words"),
    (lambda: classifier().predict([[1, 2], []]), loom.DataError, "sample 1 is empty"),
    (lambda: classifier().predict([1, 2]), loom.ShapeError, r"\(any\); for one sample .* as in \[x\]"),
    (
        lambda: network([nn.LSTM(3)], (2, 1)).predict([[1, 2], [3]]),
        loom.ShapeError,
        r"input_shape=\(None, \.\.\.\)",
    ),
    (lambda: network([nn.LSTM(3)], (None, 4)).predict([np.ones((2, 3))]), loom.ShapeError, "any, 4"),
    (lambda: network([nn.LSTM(3)], (None, 4)).predict(np.ones((2, 4))), loom.ShapeError, "batch axis"),
    (
        lambda: network([nn.PositionalEmbedding(8)], (None, 4)).predict([np.ones((9, 4))]),
        loom.ShapeError,
        "at most 8",
    ),
    (lambda: loom.data.Padded(np.ones((2, 3)), [1, 4]), loom.DataError, "1 to 3"),
    (lambda: loom.data.Padded(np.ones((2, 3)), [1.0, 2.0]), loom.DTypeError, "whole numbers"),
    (lambda: loom.data.Padded(np.ones((2, 3)), [1]), loom.DataError, "one length for each row"),
    (lambda: classifier().fit([[1, 2], [3]], [0], **SETTINGS), loom.DataError, "2 samples"),
    (lambda: classifier().fit([[1, 2], [99]], [0, 1], **SETTINGS), loom.InvalidValueError, "99"),
    (lambda: classifier().predict([[1.5]]), loom.DTypeError, "whole numbers"),
    (
        lambda: network(STEPPED["tagger"], (None, 4)).fit(sequences([3, 2]), [[0, 1, 1], [0]], **SETTINGS),
        loom.ShapeError,
        "sample 1 has 2 steps",
    ),
    (
        lambda: network(STEPPED["tagger"], (None, 4)).fit(sequences([3, 2]), [0, 1], **SETTINGS),
        loom.ShapeError,
        "SequencePool",
    ),
    (lambda: classifier().predict(5), loom.ShapeError, "array or a list of samples"),
    (lambda: classifier().fit([[1, 2], [3]], None, **SETTINGS), loom.DataError, "one for each sample"),
    (
        lambda: classifier().evaluate(([[1, 2], [3]], np.float32(1)), loss="mse"),
        loom.DataError,
        "each sample",
    ),
    (
        lambda: classifier().fit([[1], [3]], [np.ones(2), np.ones(3)], **{**SETTINGS, "loss": "mse"}),
        loom.ShapeError,
        r"one shape, got \(2,\) and \(3,\)",
    ),
    (
        lambda: loom.evaluate(classifier(), ([[1], [3]], [0, 1], {"a": 1}), loss="cross_entropy"),
        loom.DTypeError,
        "data: weight",
    ),
    (lambda: loom.Trainer(classifier()).step(5, [0]), loom.ShapeError, "array or a list of samples"),
    (lambda: loom.doctor(classifier(), words(4)), loom.ConfigError, "resized"),
    (lambda: loom.find_rate(classifier(), words(4)), loom.ConfigError, "resized"),
    (lambda: loom.save_onnx(classifier(), "/nowhere"), loom.ConfigError, "resized"),
    (lambda: loom.Mesh(classifier()), loom.InvalidValueError, "fixed extents"),
    (lambda: loom.TweenTrainer(classifier()).fit(words(4)), loom.ConfigError, "fixed extents"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_cannot_be_is_refused(number: int) -> None:
    call, error, message = REFUSED[number]
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("axes", [5, 6, 9])
def test_fixed_extents_may_be_many(axes: int) -> None:
    shape = (2, *[1] * (axes - 2), 3)
    net = network([nn.Sparsemax(), nn.Dense(2)], shape)
    assert net.predict(np.ones((4, *shape))).shape == (4, *shape[:-1], 2)
    with pytest.raises(loom.InvalidValueError, match="at most 4 axes"):
        network([nn.Sparsemax()], (None, *shape[1:]))


def test_an_empty_mistake_leaves_the_network_as_it_was() -> None:
    net = network([nn.PositionalEmbedding(8), nn.LSTM(3)], (None, 4))
    samples = sequences([3, 7])
    before = net.predict(samples)
    with pytest.raises(loom.ShapeError):
        net.predict(sequences([9]))
    np.testing.assert_array_equal(net.predict(samples), before)


def test_a_session_takes_steps_as_they_come() -> None:
    net = network([nn.LSTM(5, return_sequences=True), nn.Dense(3)], (None, 4))
    (x,) = sequences([6])
    session = net.session(capacity=8)
    parts = [session(x[None, :2]), session(x[None, 2:])]
    np.testing.assert_array_equal(np.concatenate(parts, axis=1)[0], net.predict([x])[0])


def test_a_network_is_resized_with_its_weights() -> None:
    net = network(CONVOLUTIONS, (2, None, None))
    net.fit(images([(8, 8)] * 4), [0, 1, 0, 1], epochs=2, **SETTINGS)
    net.morph("int8")
    samples = np.stack(images([(10, 11)] * 3))
    fixed = net.resized((2, 10, 11))
    np.testing.assert_array_equal(fixed.predict(samples), net.predict(samples))
    np.testing.assert_array_equal(fixed.resized((2, None, None)).predict(samples), net.predict(samples))
    with pytest.raises(loom.ShapeError):
        loom.Sequential([nn.Dense(3)], input_shape=4).resized(5)


RESIZED: dict[str, Callable[[Any, Any], object]] = {
    "drawn": lambda net, x: net.morph("int4", rounding="stochastic"),
    "weighed": lambda net, x: net.calibrate(x).morph("int4", calibration="mse"),
    "without masters": lambda net, x: net.morph("int8").drop_master(),
    "parts": lambda net, x: net.morph("int8", where=lambda layer: layer.kind == "dense", activations="int8"),
    "an adapter": lambda net, x: net.add_adapter("other", rank=2, targets="dense"),
    "frozen": lambda net, x: net.freeze("0.0.0.0.*").scale_rates({"0.0.0.1": 0.5}),
}


@pytest.mark.parametrize("way", RESIZED)
def test_a_resized_network_has_all_that_it_had(way: str) -> None:
    """It was made anew of masters, which packed weights do not follow from, and knew no label any more."""
    x = np.random.default_rng(0).normal(size=(12, 6, 4))
    labels = np.array(["ant", "bee", "cat"] * 4)
    net = loom.Sequential([nn.LSTM(8), nn.Dense(3)], input_shape=(None, 4), seed=0)
    net.fit(x, labels, epochs=2, **SETTINGS)
    RESIZED[way](net, x)
    fixed = net.resized((6, 4))
    np.testing.assert_array_equal(fixed.predict(x), net.predict(x))
    assert fixed.predict_classes(x).tolist() == net.predict_classes(x).tolist()
    assert fixed.evaluate((x, labels)) == net.evaluate((x, labels))
    assert fixed.card == net.card
    assert fixed.weight_bytes == net.weight_bytes
    for layer, other in zip(net.layers, fixed.layers, strict=True):
        assert (layer.trainable, layer.rate_factor) == (other.trainable, other.rate_factor)
        assert (layer.input_range is None) == (other.input_range is None)
    assert fixed.resized((None, 4)).fingerprint() == net.fingerprint()


def test_a_network_of_several_inputs_is_resized_with_its_links() -> None:
    net = loom.Network(inputs={"text": (None, 3), "place": 2}, grid=(1, 4), seed=0)
    net[0, 0].add(nn.LSTM(4))
    net.enter("place", (0, 1))[0, 1].add(nn.Dense(5))
    net.link((0, 0), (0, 2), combine="concat")[0, 2].add(nn.Dense(3))
    net.link((0, 0), (0, 3), combine="replace")[0, 3].add(nn.Dense(2))
    net.output("kind", (0, 2)).output("size", (0, 3))
    net.morph("int8").drop_master()
    random = np.random.default_rng(0)
    x = {"text": random.normal(size=(4, 5, 3)), "place": random.normal(size=(4, 2))}
    fixed = net.resized({"text": (5, 3)})
    for name, values in net.predict(x).items():
        np.testing.assert_array_equal(fixed.predict(x)[name], values)
    assert fixed.resized({"text": (None, 3)}).fingerprint() == net.fingerprint()


def test_deviations_are_of_the_samples_as_they_were_given() -> None:
    """Images of one size come together, and the report told their places there."""
    random = np.random.default_rng(0)
    sides = random.integers(4, 8, 20)
    x = [random.normal(size=(1, side, side)) for side in sides]
    net = network(
        [nn.Conv2D(2, kernel_size=3, padding=1), nn.GlobalAvgPool2D(), nn.Dense(1)], (1, None, None)
    )
    y = np.concatenate([net.predict([each]) for each in x])
    y[7] += 5.0
    for given in ((x, y), loom.TrainingBatch(x, y)):
        report = net.evaluate(given, loss="mse", batch_size=3, deviation=True)["deviation"]
        assert report.worst[0].sample == 7
        assert loom.analysis.deviation(net, given).worst[0].sample == 7


OPEN_BODIES: dict[str, list[nn.Layer]] = {
    "padded": [nn.GRU(6, return_sequences=True)],
    "in groups": [nn.Permute((1, 0)), nn.Conv1D(6, kernel_size=3, padding=1), nn.Permute((1, 0))],
}


@pytest.mark.parametrize("steps", [False, True])
@pytest.mark.parametrize("body", OPEN_BODIES)
def test_reports_are_made_of_samples_of_any_length(body: str, steps: bool) -> None:
    """Lists were no array to them; rows are in the order of the samples, whatever batches they come in."""
    pool = [] if steps else [nn.SequencePool("mean")]
    random = np.random.default_rng(0)
    lengths = random.integers(1, 9, 30)
    x = [random.normal(size=(length, 4)) for length in lengths]
    names = np.array(["ant", "bee", "cat"])
    per_step = [names[np.argmax(each[:, :3], axis=1)] for each in x]
    y: Any = per_step if steps else np.array([each[-1] for each in per_step])
    net = network([*OPEN_BODIES[body], *pool, nn.Dense(3)], (None, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net.fit(x, y, epochs=5, learning_rate=0.05, loss="cross_entropy", verbose=False)
        chosen = [net.predict_classes([each])[0] for each in x]
        wanted = np.concatenate(y) if steps else y
        right = (np.concatenate(chosen) if steps else np.array(chosen)) == wanted
        assert 0.3 < right.mean() < 1.0
        padded = loom.data.Padded(
            np.stack([np.pad(each, ((0, 8 - len(each)), (0, 0))) for each in x]), lengths
        )
        targets: Any = [np.pad(np.array(each), (0, 8 - len(each)), mode="edge") for each in y] if steps else y
        batches = [(x[:11], y[:11]), (x[11:], y[11:])]
        for data in ((x, y), loom.TrainingBatch(x, y), batches, (padded, targets)):
            report = loom.analysis.classification(net, data, batch_size=4)
            assert report.accuracy == pytest.approx(right.mean())
            assert report.names == ("ant", "bee", "cat")
            found = loom.analysis.correctness([net, net], data, batch_size=4)
            np.testing.assert_array_equal(found, [right, right])
            assert loom.analysis.deviation(net, data).compared == "classes"
    with pytest.raises(loom.DataError, match="30 samples but there are 29 targets"):
        loom.analysis.classification(net, (x, y[:29]))


def test_summaries_say_which_extents_are_open(capsys: pytest.CaptureFixture[str]) -> None:
    net = network(STEPPED["tagger"], (None, 4))
    net.predict(sequences([3]))
    net.summary()
    printed = capsys.readouterr().out
    assert "(any, 12)" in printed
    assert "(any, 3)" in printed
    assert "input_shape=(None, 4)" in repr(net)


def test_threads_predict_side_by_side() -> None:
    from concurrent.futures import ThreadPoolExecutor

    net = network(STEPPED["tagger"], (None, 4))
    samples = sequences(list(range(1, 25)))
    expected = net.predict(samples)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: net.predict([x])[0], samples * 4))
    for output, alone in zip(found, [*expected] * 4, strict=True):
        np.testing.assert_array_equal(output, alone)


def open_networks() -> Iterator[tuple[str, dict[str, Any], loom.Network]]:
    """Yields every sample of a layer around which sequences of different lengths go together."""
    for kind, configs in SAMPLES.items():
        for number, config in enumerate(configs):
            for width in ((), (4,), (6,), (8,), (3,)):
                if config.get("cross") or config.get("tied_to") or config.get("initial_state") == "context":
                    continue
                net = network([config], (None, *width), "float64")
                try:
                    together = net._engine.sizing.are_sequences  # type: ignore[union-attr]
                except loom.LoomError:
                    # Its parameters follow the length, or it takes others alone.
                    continue
                if together:
                    yield f"{kind} {number}", config, net
                    break


def test_every_layer_that_takes_lengths_leaves_padding_out() -> None:
    random = np.random.default_rng(11)
    tried: set[str] = set()
    for name, config, net in open_networks():
        limit = net._engine.native.index_limit()
        extents = [(length, *net.input_shape[1:]) for length in (3, 1, 2)]
        samples = [random.normal(size=e) if limit is None else random.integers(0, limit, e) for e in extents]
        try:
            expected = each_alone([config], samples, "float64")
        except loom.ShapeError:
            # Some length is too short for it, or too long.
            continue
        for output, alone in zip(net.predict(samples), expected, strict=True):
            np.testing.assert_array_equal(output, alone, err_msg=name)
        tried.add(config["type"])
    assert tried >= {"dense", "embedding", "gru", "layer_norm", "multi_head_attention", "sequence_pool"}
    assert len(tried) > 25
