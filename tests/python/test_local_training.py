"""Training by local steps: against a transcription in NumPy, and the same bits for any number of ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loom
from loom import nn

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(70, 5))
Y = X @ RANDOM.normal(size=(5, 2)) + 0.1 * RANDOM.normal(size=(70, 2))
KINDS = RANDOM.integers(0, 3, 70)


def line() -> loom.Network:
    return loom.Sequential([nn.Dense(2, bias=False)], input_shape=5, seed=1, precision="float64")


def config(**changed: Any) -> loom.TrainingConfig:
    given = {"epochs": 3, "batch_size": 20, "loss": "mse", "learning_rate": 0.05, "seed": 4}
    return loom.TrainingConfig(**{**given, "optimizer": loom.optimizers.SGD(), **changed})


def by_hand(weight: Any, workers: int, steps: int, rate: float, momentum: float) -> Any:
    """Workers' plain SGD over their shares of each batch; Nesterov's rule over what they have moved by."""
    batches: list[list[Any]] = [[] for _ in range(workers)]
    for epoch in range(3):
        order = np.random.default_rng((4, epoch)).permutation(70)
        for start in range(0, 70, 20):
            rows = order[start : start + 20]
            for worker in range(workers):
                batches[worker].append(
                    rows[len(rows) * worker // workers : len(rows) * (worker + 1) // workers]
                )
    velocity = np.zeros_like(weight)
    for begin in range(0, len(batches[0]), steps):
        found = []
        for worker in range(workers):
            own = weight.copy()
            for rows in batches[worker][begin : begin + steps]:
                error = X[rows] @ own - Y[rows]
                own -= 0.05 * 2 * X[rows].T @ error / error.size
            found.append(own)
        gradient = weight - np.mean(found, 0)
        velocity = momentum * velocity + gradient
        weight = weight - rate * (gradient + momentum * velocity)
    return weight


@pytest.mark.parametrize(
    ("workers", "steps", "rate", "momentum"), [(4, 5, 0.7, 0.9), (3, 2, 1.0, 0.0), (1, 4, 0.5, 0.5)]
)
def test_it_is_the_rule(workers: int, steps: int, rate: float, momentum: float) -> None:
    net = line()
    (name,) = net.state_dict()
    before = np.array(net.state_dict()[name])
    expected = by_hand(before.T, workers, steps, rate, momentum)
    result = loom.train_locally(
        net,
        (X, Y),
        config(),
        workers=workers,
        local_steps=steps,
        outer_rate=rate,
        outer_momentum=momentum,
    )
    np.testing.assert_allclose(net.state_dict()[name].T, expected, rtol=1e-10)
    assert result.rounds == len(result.loss_history) == -(-12 // steps)
    assert result.rows == 3 * 70


def classifier() -> loom.Network:
    layers = [nn.Dense(8, activation="tanh"), nn.BatchNorm(), nn.Dropout(0.1), nn.Dense(3)]
    return loom.Sequential(layers, input_shape=5, seed=1)


def trained(ranks: Any, data: Any = None, **changed: Any) -> tuple[str, list[float]]:
    net = classifier()
    given = (X.astype("float32"), KINDS) if data is None else data()
    settings = config(loss="cross_entropy", optimizer="adamw", ignore_findings="all", **changed)
    result = loom.train_locally(net, given, settings, workers=5, local_steps=3, distributed=ranks)
    return net.fingerprint(), result.loss_history


def by_shard() -> Any:
    return loom.data.by_shard(loom.data.stream(X.astype("float32"), KINDS, batch_size=15))


@pytest.mark.parametrize("data", [None, by_shard])
def test_bits_are_a_matter_of_the_workers_alone(data: Any) -> None:
    alone = trained(None, data)
    for count in (2, 3, 5):
        assert loom.distributed.threads(count, lambda ranks: trained(ranks, data)) == [alone] * count


def test_one_worker_that_meets_itself_is_the_plain_training() -> None:
    net, other = classifier(), classifier()
    settings = config(loss="cross_entropy", optimizer="adamw", batch_size=70, shuffle=False)
    x = X.astype("float32")
    loom.train_locally(
        net, (x, KINDS), settings, workers=1, local_steps=1, outer_rate=1.0, outer_momentum=0.0
    )
    trainer = loom.Trainer(other, settings)
    for _ in range(3):
        trainer.step(x, KINDS)
    for name, values in other.state_dict().items():
        np.testing.assert_allclose(net.state_dict()[name], values, rtol=1e-6, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("labels", [["cat", "dog", "eel"], [3, 7, 40]])
@pytest.mark.parametrize("ranks", [1, 3])
def test_labels_are_learned_as_indices_are(labels: Any, ranks: int) -> None:
    def run(rank: Any, target: Any, weight: Any) -> tuple[str, list[float]]:
        net = classifier()
        settings = config(loss="cross_entropy", class_weight=weight, ignore_findings="all")
        data = (X.astype("float32"), target)
        result = loom.train_locally(net, data, settings, workers=3, local_steps=2, distributed=rank)
        assert net.card.labels in {None, tuple(map(str, labels))}
        return net.fingerprint(), result.loss_history

    plain = run(None, KINDS, {1: 4.0})
    target = np.array(labels)[KINDS]
    found = loom.distributed.threads(ranks, lambda rank: run(rank, target, {labels[1]: 4.0}))
    assert found == [plain] * ranks


def test_tables_are_learned_from() -> None:
    frame = {"a": X[:, 0], "b": X[:, 1], "kind": np.array(["cat", "dog", "eel"])[KINDS]}
    net = loom.Sequential([nn.Dense(3)], input_shape=2, seed=1)
    settings = config(loss="auto", ignore_findings="all")
    result = loom.train_locally(net, loom.data.columns(frame, target="kind"), settings, workers=2)
    assert result.rows == 3 * 70
    assert set(net.predict_classes({"a": X[:, 0], "b": X[:, 1]})) <= {"cat", "dog", "eel"}


def test_inputs_and_outputs_with_names() -> None:
    """Of data by shard the loss was a mean by the number of inputs."""

    def run(ranks: Any, *, shards: bool) -> tuple[str, list[float], int]:
        net = loom.Network(inputs={"left": 2, "right": 3}, grid=(1, 3), seed=0)
        net.link((0, 0), (0, 2), combine="concat")[0, 0].add(nn.Dense(4))
        net.enter("right", (0, 1))[0, 1].add(nn.Dense(4))
        net[0, 2].add(nn.Dense(3))
        net.output("kind", (0, 2))
        x = {"left": X[:, :2], "right": X[:, 2:]}
        y = {"kind": np.array(["cat", "dog", "eel"])[KINDS]}
        data: Any = (x, y)
        if shards:
            net.card = loom.ModelCard(labels={"kind": ["cat", "dog", "eel"]})
            data = loom.data.by_shard(loom.data.stream(x, y, batch_size=20, shuffle=False))
        # Nothing is learned, so that losses are those of the rows.
        settings = config(loss={"kind": "cross_entropy"}, learning_rate=0.0, ignore_findings="all")
        result = loom.train_locally(net, data, settings, workers=4, local_steps=4, distributed=ranks)
        expected = net.evaluate((x, y), loss={"kind": "cross_entropy"})["loss"]
        np.testing.assert_allclose(result.loss_history, expected, rtol=1e-5)
        return net.fingerprint(), result.loss_history, result.rows

    for shards in (False, True):
        alone = run(None, shards=shards)
        assert alone[2] == 3 * 70
        assert loom.distributed.threads(2, lambda ranks, by=shards: run(ranks, shards=by)) == [alone] * 2


@pytest.mark.parametrize("data", [None, by_shard])
def test_schedules_span_the_steps_of_a_worker(data: Any) -> None:
    """Workers stood still after the first step."""
    assert trained(None, data, schedule="linear") == trained(
        None, data, schedule=loom.schedules.Linear(steps=3 * (4 if data is None else 5))
    )


def test_steps_that_are_left_out_count_for_nothing() -> None:
    x = X.copy()
    x[7, 0] = 1e200
    net = loom.Sequential([nn.Dense(2)], input_shape=5, seed=1, precision="float64")
    result = loom.train_locally(net, (x, Y), config(on_nonfinite="skip"), workers=4, local_steps=12)
    assert np.isfinite(result.loss_history).all()
    assert 0 < result.rows < 3 * 70


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(loom.DataError, match="by_shard"):
        loom.train_locally(line(), [(X, Y)], config())
    with pytest.raises(loom.ConfigError, match="too small for 30 workers"):
        loom.train_locally(line(), (X, Y), config(), workers=30)
    with pytest.raises(loom.ConfigError, match="metrics"):
        loom.train_locally(line(), (X, Y), config(metrics=["mae"]))
    for setting in ({"accumulate": 2}, {"exchange": "int8"}, {"shards": 4}, {"split_moments": True}):
        with pytest.raises(loom.ConfigError, match=f"not take {next(iter(setting))}"):
            loom.train_locally(line(), (X, Y), config(**setting))
    endless = loom.data.by_shard(loom.data.generate(lambda epoch, shard, shards: [(X, Y)]))
    with pytest.raises(loom.ConfigError, match="Cosine spans the whole run"):
        loom.train_locally(line(), endless, config(schedule="cosine"))
    with pytest.raises(loom.ConfigError, match="workers=3"):
        loom.distributed.threads(
            3, lambda ranks: loom.train_locally(line(), (X, Y), config(), workers=2, distributed=ranks)
        )
    with pytest.raises(loom.ConfigError, match="differ"):
        loom.distributed.threads(
            2,
            lambda ranks: loom.train_locally(line(), (X + ranks.rank, Y), config(), distributed=ranks),
        )


def test_a_network_without_weights_has_nothing_to_learn() -> None:
    net = loom.Sequential([nn.Activation("tanh")], input_shape=3)
    with pytest.raises(loom.ConfigError, match="none to learn"):
        loom.train_locally(net, (np.ones((4, 3)), np.ones((4, 3))), loom.TrainingConfig(loss="mse"))
