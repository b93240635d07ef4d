"""Inputs with names whose extents are open."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.data import Padded
from loom.errors import ConfigError, DataError, InvalidValueError, ShapeError
from networks import Killed
from one_step import assert_one_step_follows
from open_ports import ROWS, TOLD, config, described, samples, sentences, tagger


def of(x: dict[str, Any], number: int) -> dict[str, Any]:
    return {name: part[number][None] for name, part in x.items()}


def test_each_sample_gives_the_bits_of_a_network_of_its_own_extents() -> None:
    net, (x, _) = described(precision="float32"), samples()
    assert net.input_shape == (None,)
    assert net.output_shape == (3,)
    together: Any = net.predict(x, batch_size=7)
    forward: Any = net.forward(x, training=False)
    for number in range(12):
        lengths = {"text": len(x["text"][number]), "sound": (len(x["sound"][number]), 3)}
        alone: Any = net.resized(lengths).predict(of(x, number))
        for name in ("kind", "score"):
            np.testing.assert_array_equal(together[name][number], alone[name][0])
            np.testing.assert_array_equal(forward[name][number], alone[name][0])


def test_padded_arrays_and_lists_are_the_same() -> None:
    net, (x, y) = described(), samples()
    padded: dict[str, Any] = dict(x)
    for name in ("text", "sound"):
        longest = max(map(len, x[name])) + 2
        values = [np.concatenate([each, each[:1].repeat(longest - len(each), axis=0)]) for each in x[name]]
        padded[name] = Padded(np.array(values), [len(each) for each in x[name]])
    ours: Any = net.predict(x)
    theirs: Any = net.predict(padded)
    np.testing.assert_array_equal(ours["kind"], theirs["kind"])
    other = described()
    loom.train(net, (x, y), config(validation_split=0.2))
    loom.train(other, (padded, y), config(validation_split=0.2))
    assert net.fingerprint() == other.fingerprint()


def test_the_loss_is_that_of_numpy_and_steps_follow_its_slope() -> None:
    net, (x, y) = described(), samples(12)
    output: Any = net.predict(x)
    logs = output["kind"] - np.log(np.exp(output["kind"]).sum(axis=1, keepdims=True))
    difference = np.abs(output["score"][:, 0] - y["score"])
    score = np.where(difference <= 1, difference**2 / 2, difference - 0.5)
    settings = config(epochs=1, batch_size=12, shuffle=False, optimizer="sgd", learning_rate=0.1)
    wanted = -logs[np.arange(12), y["kind"]].mean() + score.mean()
    assert abs(net.evaluate((x, y), settings)["loss"] - wanted) < 1e-12
    assert_one_step_follows(net, (x, y), settings)


def test_gradients_go_back_to_each_input() -> None:
    net, (x, _) = described(), samples(5)
    net.forward(x)
    found: Any = net.backward({"kind": np.ones((5, 2)), "score": np.zeros((5, 1))})
    assert set(found) == {"sound", "table"}
    assert [each.shape for each in found["sound"]] == [each.shape for each in x["sound"]]
    step, place = 1e-6, (len(x["sound"][2]) - 1, 1)
    ends = []
    for change in (step, -step):
        moved = [each.copy() for each in x["sound"]]
        moved[2][place] += change
        ends.append(float(net.predict({**x, "sound": moved})["kind"].sum()))  # type: ignore[call-overload]
    assert abs(found["sound"][2][place] - (ends[0] - ends[1]) / (2 * step)) < 1e-8


def test_files_runs_and_batches_learn_the_same(tmp_path: Path) -> None:
    x, y = samples()
    whole = config(epochs=3, metrics={"kind": ["accuracy"]}, validation_split=0.2, accumulate=2)
    net = described(precision="float32")
    result = loom.train(net, (x, y), whole)
    assert len(result.metrics["val_kind_accuracy"]) == 3
    with pytest.raises(RuntimeError, match="killed"):
        loom.train(described(precision="float32"), (x, y), whole, callbacks=[Killed(4)], run=tmp_path / "run")
    parts = described(precision="float32")
    loom.train(parts, (x, y), whole, run=tmp_path / "run")
    assert parts.fingerprint() == net.fingerprint()
    net.save(tmp_path / "net.loom")
    again = loom.load(tmp_path / "net.loom")
    assert again.to_json() == net.to_json()
    shapes = [entry["shape"] for entry in json.loads(net.to_json())["inputs"]]
    assert shapes == [[None], [None, 3], [3]]
    np.testing.assert_array_equal(again.predict(x)["kind"], net.predict(x)["kind"])  # type: ignore[call-overload]
    cut = [slice(start, start + 8) for start in range(0, ROWS, 8)]
    listed: Any = [
        ({name: part[rows] for name, part in x.items()}, {name: part[rows] for name, part in y.items()})
        for rows in cut
    ]
    one, two = described(), described()
    loom.train(one, (x, y), config(shuffle=False))
    loom.train(two, listed, config())
    assert one.fingerprint() == two.fingerprint()


def test_a_gpu_learns_the_same(gpu: str) -> None:
    x, y = samples()
    here, there = described(precision="float32"), described(precision="float32")
    loom.train(here, (x, y), config())
    loom.train(there, (x, y), config(device=gpu))
    ours, theirs = here.predict(x), there.predict(x)
    for name in ("kind", "score"):
        np.testing.assert_allclose(theirs[name], ours[name], rtol=0, atol=3e-4)  # type: ignore[index]


def test_what_a_user_would_write() -> None:
    """Whether an answer holds the word that is asked for."""
    rng = np.random.default_rng(2)
    rows = 1500
    asked = rng.integers(0, 8, rows)
    answers = [rng.integers(0, 8, rng.integers(1, 10)) for _ in range(rows)]
    found = np.array([int(word in answer) for word, answer in zip(asked, answers, strict=True)])
    net = loom.Network(
        inputs={"answer": loom.Categories(8, length=None), "word": loom.Categories(8)}, grid=(1, 3), seed=3
    )
    net[0, 0].add(nn.Embedding(8, 16), nn.Dense(16, activation="tanh"), nn.SequencePool("mean"))
    net.enter("word", (0, 1))[0, 1].add(nn.Embedding(8, 16), nn.Flatten())
    net.link((0, 0), (0, 2), combine="multiply")[0, 2].add(nn.Dense(32, activation="relu"), nn.Dense(2))
    data = {"answer": answers, "word": asked}, found
    net.fit(*data, epochs=30, batch_size=64, learning_rate=0.01, loss="cross_entropy", verbose=False)
    assert net.evaluate(data, metrics=["accuracy"], loss="cross_entropy")["accuracy"] > 0.97
    assert net.predict_classes({"answer": [[3, 5], [1]], "word": [5, 2]}).tolist() == [1, 0]  # type: ignore[arg-type]


def image_and_words(seed: int = 1) -> loom.Network:
    net = loom.Network(
        inputs={"image": (2, None, None), "text": (None, 3)}, grid=(1, 3), precision="float64", seed=seed
    )
    net[0, 0].add(nn.Conv2D(3, kernel_size=3), nn.AdaptiveAvgPool2D(1), nn.Flatten())
    net.enter("text", (0, 1))[0, 1].add(nn.GRU(4))
    net.link((0, 0), (0, 2), combine="concat")[0, 2].add(nn.Dense(2))
    return net


def test_images_of_any_size_stand_beside_texts_of_any_length() -> None:
    rng = np.random.default_rng(5)
    sizes = [(5, 6), (7, 4), (5, 6), (5, 6), (7, 4), (9, 9)]
    x = {
        "image": [rng.normal(size=(2, *size)) for size in sizes],
        "text": [rng.normal(size=(length, 3)) for length in (4, 1, 9, 2, 6, 3)],
    }
    net = image_and_words()
    together = net.predict(x)
    for number in range(6):
        np.testing.assert_allclose(together[number], net.predict(of(x, number))[0], rtol=0, atol=1e-14)
    settings: Any = {"loss": "mse", "epochs": 200, "learning_rate": 0.02, "batch_size": 4, "verbose": False}
    result = net.fit(x, np.eye(2)[[0, 1, 1, 0, 1, 0]], device="cpu", **settings)
    assert result.loss_history[-1] < result.loss_history[0] / 4
    with pytest.raises(DataError, match="different shapes"):
        net.forward(x)


@pytest.mark.parametrize("seed", range(6))
def test_drawn_networks_give_each_sample_what_one_of_its_extents_gives(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 5))
    inputs: dict[str, Any] = {
        f"i{number}": (None if number == 0 or rng.random() < 0.5 else 4, int(rng.integers(2, 4)))
        for number in range(count)
    }
    net = loom.Network(inputs=inputs, grid=(1, count + 1), precision="float64", seed=seed)
    for number in range(count):
        layers: list[Any] = [
            [nn.GRU(3)],
            [nn.LSTM(3, return_sequences=True), nn.SequencePool("last")],
            [nn.Dense(3), nn.MultiHeadAttention(1), nn.SequencePool("mean")],
            [nn.RNN(3, bidirectional=True, return_sequences=True), nn.SequencePool("mean")],
        ]
        if number:
            net.enter(f"i{number}", (0, number))
            net.link((0, number - 1), (0, count), combine="concat")
        net[0, number].add(*layers[int(rng.integers(4))])
    # The last branch flows on by itself.
    net[0, count].add(nn.Dense(2))
    x = {
        name: [rng.normal(size=(int(rng.integers(1, 9)) if time is None else time, width)) for _ in range(9)]
        for name, (time, width) in inputs.items()
    }
    given = {name: part if inputs[name][0] is None else np.stack(part) for name, part in x.items()}
    together = net.predict(given, batch_size=4)
    for number in range(9):
        own = net.resized({name: part[number].shape for name, part in x.items()})
        np.testing.assert_array_equal(together[number], own.predict(of(x, number))[0])


def test_two_inputs_that_meet_step_by_step_have_one_length() -> None:
    net = loom.Network(
        inputs={"sound": (None, 3), "letter": loom.Categories(5, length=None)}, grid=(1, 3), seed=1
    )
    net.enter("letter", (0, 1))[0, 1].add(nn.Embedding(5, 4))
    net.link((0, 0), (0, 2), combine="concat")[0, 2].add(
        nn.GRU(6, bidirectional=True, return_sequences=True), nn.Dense(2)
    )
    rng = np.random.default_rng(1)
    x: Any = {
        "sound": [rng.normal(size=(length, 3)) for length in (3, 5, 1)],
        "letter": [rng.integers(0, 5, length) for length in (3, 5, 1)],
    }
    found: Any = net.predict(x)
    assert [each.shape for each in found] == [(3, 2), (5, 2), (1, 2)]
    for number in range(3):
        np.testing.assert_array_equal(found[number], net.predict(of(x, number))[0])
    targets = [rng.integers(0, 2, len(each)) for each in x["letter"]]
    net.fit(x, targets, loss="cross_entropy", epochs=1, verbose=False, device="cpu")
    x["letter"][1] = x["letter"][1][:2]
    with pytest.raises(DataError, match='sample 1 has 5 steps of input "sound" and 2 of input "letter"'):
        net.predict(x)


def test_sessions_take_the_next_steps_of_each_input() -> None:
    net = loom.Network(
        inputs={"sound": (None, 3), "letter": loom.Categories(5, length=None)}, grid=(1, 3), seed=1
    )
    net.enter("letter", (0, 1))[0, 1].add(nn.Embedding(5, 3))
    net.link((0, 0), (0, 2))[0, 2].add(nn.GRU(6, return_sequences=True), nn.Dense(2))
    rng = np.random.default_rng(4)
    x: Any = {"sound": rng.normal(size=(2, 5, 3)), "letter": rng.integers(0, 5, (2, 5))}
    whole = net.predict(x)
    session = net.session(capacity=8, rows=2)
    first = session({name: part[:, :2] for name, part in x.items()})
    rest = session({name: part[:, 2:] for name, part in x.items()})
    np.testing.assert_array_equal(np.concatenate([first, rest], axis=1), whole)


def bare() -> loom.Network:
    net = loom.Network(inputs={"words": (None, 3), "table": 2}, grid=(1, 2))
    net[0, 0].add(nn.GRU(2))
    net.enter("table", (0, 1)).link((0, 0), (0, 1), combine="concat")[0, 1].add(nn.Dense(1))
    return net


X: dict[str, Any] = {"words": [np.ones((2, 3)), np.ones((4, 3))], "table": np.ones((2, 2))}

REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: bare().predict({**X, "words": [np.ones((2, 2))] * 2}), ShapeError, 'input "words": sample 0'),
    (lambda: bare().predict({**X, "table": np.ones((3, 2))}), DataError, '2 samples but input "table" has 3'),
    (lambda: bare().predict({"words": X["words"]}), DataError, '"table" is missing'),
    (lambda: bare().predict(X["words"]), DataError, "dictionary"),
    (lambda: loom.Network(inputs={"a": (None, None)}), ConfigError, "input 'a': .*time"),
    (lambda: loom.Network(inputs={"a": (2, None, None), "b": (2, None, None), "c": (None,)}), Exception, "4"),
    (lambda: loom.doctor(bare(), (X, [1.0, 2.0])), ConfigError, r"inputs=.*resized"),
    (lambda: loom.Mesh(bare()), InvalidValueError, "fixed extents"),
    (
        lambda: tagger().fit(*sentences(5), loss=TOLD, sample_weight={"odd": np.ones(4)}, verbose=False),
        DataError,
        "one for each sample",
    ),
    (
        lambda: tagger().fit(
            sentences(5)[0], {**sentences(5)[1], "odd": [[0]] * 5}, loss=TOLD, verbose=False
        ),
        ShapeError,
        'output "odd": sample 0 has',
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_what_does_not_fit_is_refused_by_name(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


def micro_batches() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Batches of different lengths, and of different numbers of samples."""
    rng, found = np.random.default_rng(5), []
    for rows, text, sound in ((3, 11, 2), (5, 1, 7), (2, 4, 1), (4, 2, 9)):
        x = {
            "text": rng.integers(0, 20, (rows, text)),
            "sound": [rng.normal(size=(rng.integers(1, sound + 1), 3)) for _ in range(rows)],
            "table": rng.normal(size=(rows, 3)),
        }
        found.append((x, {"kind": rng.integers(0, 2, rows), "score": rng.normal(size=rows)}))
    return found


def by_hand(net: loom.Network, batches: Any, rate: float) -> float:
    """One step by the mean over all samples, its gradients added up batch by batch; returns the loss."""
    rows, loss = sum(len(y["score"]) for _, y in batches), 0.0
    net.set_optimizer("sgd")
    for x, y in batches:
        output: Any = net.forward(x)
        share = len(y["score"]) / rows
        kind, of_kind = loom.losses.cross_entropy(output["kind"], y["kind"])
        score, of_score = loom.losses.huber(output["score"], y["score"][:, None])
        loss += share * (kind + score)
        net.backward({"kind": share * of_kind, "score": share * of_score})
    net.apply_gradients(rate)
    return loss


def test_accumulated_batches_of_different_lengths_are_the_mean_of_all_samples() -> None:
    settings = config(epochs=1, accumulate=2, optimizer="sgd", learning_rate=0.3)
    net, other, batches = described(), described(), micro_batches()
    result = loom.train(net, batches, settings)
    losses = [by_hand(other, batches[start : start + 2], 0.3) for start in (0, 2)]
    # The loss of an epoch is the mean over its samples.
    assert abs(result.loss_history[0] - (8 * losses[0] + 6 * losses[1]) / 14) < 1e-12
    for name, expected in other.state_dict().items():
        np.testing.assert_allclose(net.state_dict()[name], expected, rtol=0, atol=1e-13, err_msg=name)
    # All at once, and from data that writes one batch where the one before was.
    whole, reused = described(), described()
    loom.train(whole, batches, replace(settings, accumulate=4))
    by_hand(again := described(), batches, 0.3)
    for name, expected in again.state_dict().items():
        np.testing.assert_allclose(whole.state_dict()[name], expected, rtol=0, atol=1e-13, err_msg=name)

    def overwriting() -> Iterator[Any]:
        for x, y in batches:
            mine = ({**x, "table": x["table"].copy()}, {**y, "score": y["score"].copy()})
            yield mine
            mine[0]["table"][:], mine[1]["score"][:] = np.nan, np.nan

    loom.train(reused, overwriting(), settings)
    assert reused.fingerprint() == net.fingerprint()


def test_accumulated_batches_of_different_lengths_learn_the_same_on_a_gpu(gpu: str) -> None:
    settings = config(epochs=1, accumulate=3, optimizer="sgd", learning_rate=0.3)
    net, other = described(precision="float32"), described()
    loom.train(net, micro_batches(), replace(settings, device=gpu))
    batches = micro_batches()
    by_hand(other, batches[:3], 0.3)
    by_hand(other, batches[3:], 0.3)
    for name, expected in other.state_dict().items():
        np.testing.assert_allclose(net.state_dict()[name], expected, rtol=0, atol=3e-6, err_msg=name)


def test_metrics_of_samples_of_any_length_are_the_same_in_shards() -> None:
    x, y = sentences(22)

    def trained(made: Callable[[], loom.Network], data: Any, settings: Any, ranks: Any = None) -> Any:
        return loom.train(made(), data, settings, distributed=ranks).history

    def spread(output: Any, target: Any) -> float:
        return float(np.abs(output - target).max())

    steps = config(loss=TOLD, metrics={"odd": ["accuracy"], "sum": [spread]}, batch_size=10)
    whole = config(metrics={"kind": ["accuracy"], "score": ["mae"]}, batch_size=12)
    for made, data, settings in ((tagger, (x, y), steps), (described, samples(), whole)):
        expected = trained(made, data, settings)
        shared = replace(settings, shards=3)

        def run(ranks: Any, made: Any = made, data: Any = data, shared: Any = shared) -> Any:
            return trained(made, data, shared, ranks)

        for found in (trained(made, data, shared), *loom.distributed.threads(2, run)):
            for name, values in expected.items():
                np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-12, err_msg=name)
