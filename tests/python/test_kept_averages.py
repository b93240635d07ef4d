"""What goes by a log of validation keeps the weights that it was measured with, be they an average."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.sklearn import LoomRegressor

RNG = np.random.default_rng(0)
X, X_HELD = RNG.normal(size=(120, 4)), RNG.normal(size=(40, 4))
Y, Y_HELD = (x[:, :1] * 0.5 + RNG.normal(size=(len(x), 1)) for x in (X, X_HELD))
AVERAGES: dict[str, Any] = {
    "ema": lambda **settings: loom.ExponentialMovingAverage(0.8, **settings),
    "swa": lambda **settings: loom.StochasticWeightAveraging(2, **settings),
}


def network() -> loom.Network:
    layers = [nn.Dense(32, activation="tanh"), nn.BatchNorm(), nn.Dense(1)]
    return loom.Sequential(layers, input_shape=4, seed=0)


def settings(epochs: int = 12, **more: Any) -> loom.TrainingConfig:
    return loom.TrainingConfig(epochs=epochs, learning_rate=0.05, loss="mse", verbose=False, **more)


def held_out_loss(net: loom.Network) -> float:
    return net.evaluate((X_HELD, Y_HELD), loss="mse")["loss"]


@pytest.mark.parametrize("place", ["config", "before", "after"])
@pytest.mark.parametrize("name", AVERAGES)
def test_the_best_is_what_validation_has_measured(name: str, place: str, tmp_path: Path) -> None:
    stopping = loom.EarlyStopping(patience=99, restore_best_weights=True)
    average = AVERAGES[name]()
    callbacks = {"config": [average], "before": [stopping, average], "after": [average, stopping]}[place]
    at_the_end: list[float] = []
    callbacks += [
        loom.ModelCheckpoint(tmp_path / "best.loom", save_best_only=True),
        loom.LambdaCallback(on_train_end=lambda logs: at_the_end.append(held_out_loss(net))),
    ]
    config = settings(early_stopping=stopping if place == "config" else None)
    net, run = network(), tmp_path / "run"
    result = loom.train(net, (X, Y), config, (X_HELD, Y_HELD), callbacks=callbacks, run=run)
    # The last epoch is not the best one: otherwise nothing was given back.
    measured = result.history["val_loss"]
    assert min(measured) < measured[-1]
    best = pytest.approx(min(measured), rel=1e-6)
    assert held_out_loss(net) == best
    assert at_the_end == [best]
    for path in (tmp_path / "best.loom", run / "best.loom", run / "final.loom"):
        assert held_out_loss(loom.load(path)) == best, path


@pytest.mark.parametrize("name", AVERAGES)
def test_training_goes_on_as_if_nobody_had_kept_anything(name: str, tmp_path: Path) -> None:
    plain, kept = network(), network()
    loom.train(plain, (X, Y), settings(), (X_HELD, Y_HELD))
    callbacks = [
        AVERAGES[name](keeps=False),
        loom.EarlyStopping(patience=99, restore_best_weights=False),
        loom.ModelCheckpoint(tmp_path / "best.loom", save_best_only=True),
    ]
    loom.train(kept, (X, Y), settings(), (X_HELD, Y_HELD), callbacks=callbacks, run=tmp_path / "run")
    assert kept.fingerprint() == plain.fingerprint()


@pytest.mark.parametrize("name", AVERAGES)
def test_a_run_goes_on_from_the_best_file_to_the_same_bits(name: str, tmp_path: Path) -> None:
    whole, (first, second) = network(), (AVERAGES[name](), AVERAGES[name]())
    result = loom.train(whole, (X, Y), settings(), (X_HELD, Y_HELD), callbacks=[first])
    file = tmp_path / "best.loom"
    checkpoint = loom.ModelCheckpoint(file, save_best_only=True)
    loom.train(network(), (X, Y), settings(), (X_HELD, Y_HELD), callbacks=[AVERAGES[name](), checkpoint])
    best = loom.load(file)
    assert held_out_loss(best) == pytest.approx(min(result.history["val_loss"]), rel=1e-6)
    loom.train(best, (X, Y), settings(), (X_HELD, Y_HELD), callbacks=[second], resume=True)
    assert best.fingerprint() == whole.fingerprint()


def test_logs_of_training_keep_the_weights_themselves(tmp_path: Path) -> None:
    plain, averaged = network(), network()
    loom.train(plain, (X, Y), settings())
    stopping = loom.EarlyStopping("loss", patience=99, mode="max", restore_best_weights=True)
    loom.train(averaged, (X, Y), settings(), callbacks=[loom.ExponentialMovingAverage(0.8), stopping])
    # The first epoch's loss is the greatest.
    once = network()
    loom.train(once, (X, Y), settings(1))
    assert averaged.fingerprint() == once.fingerprint() != plain.fingerprint()


@pytest.mark.parametrize("name", AVERAGES)
def test_validation_that_is_broken_off_loses_no_weights(name: str) -> None:
    calls: list[int] = []

    def broken(outputs: np.ndarray, targets: np.ndarray) -> float:
        calls.append(len(outputs))
        if calls.count(len(X_HELD)) == 4 and len(outputs) == len(X_HELD):
            raise KeyboardInterrupt
        return 0.0

    whole, parts = network(), network()
    loom.train(whole, (X, Y), settings(6), (X_HELD, Y_HELD), callbacks=[AVERAGES[name]()])
    average = AVERAGES[name]()
    config = settings(6, metrics=[broken])
    result = loom.train(parts, (X, Y), config, (X_HELD, Y_HELD), callbacks=[average])
    assert result.interrupted
    loom.train(parts, (X, Y), settings(6), (X_HELD, Y_HELD), callbacks=[average], resume=True)
    assert parts.fingerprint() == whole.fingerprint()


def test_two_averages_do_not_contradict_each_other(tmp_path: Path) -> None:
    for setting in ("validates", "keeps"):
        other = {"validates": False, "keeps": False, setting: True}
        both = [AVERAGES["ema"](), AVERAGES["swa"](**other)]
        with pytest.raises(loom.ConfigError, match=f"set {setting}=False in all but one"):
            loom.train(network(), (X, Y), settings(2), callbacks=both)
    means = []
    for first in ([], [AVERAGES["ema"]()]):
        mean = AVERAGES["swa"](validates=False, keeps=False)
        loom.train(network(), (X, Y), settings(), (X_HELD, Y_HELD), callbacks=[*first, mean])
        means.append(mean.weights)
    for name, values in means[0].items():
        np.testing.assert_array_equal(means[1][name], values)


def test_an_estimator_has_the_best_average() -> None:
    settings = {"early_stopping": True, "n_iter_no_change": None, "epochs": 30, "learning_rate": 0.05}
    average = loom.ExponentialMovingAverage(0.8)
    model = LoomRegressor((32,), random_state=0, tol=0.0, callbacks=[average], **settings)
    model.fit(X, Y[:, 0])
    held = model._held_out((X, Y[:, 0], None), None)[1]
    losses = model.validation_loss_curve_
    scaled = (held[1] - model.target_mean_) / model.target_scale_
    found = np.mean(((model.predict(held[0]) - model.target_mean_) / model.target_scale_ - scaled) ** 2)
    assert found == pytest.approx(min(losses), rel=1e-4)
    assert min(losses) < losses[-1]


@pytest.mark.parametrize(
    "make",
    [lambda: loom.StochasticWeightAveraging(1), lambda: loom.Lookahead(2), lambda: loom.MaxNorm(0.4)],
    ids=["swa", "lookahead", "max norm"],
)
def test_what_changes_weights_does_so_in_every_process(make: Any) -> None:
    def trained(ranks: Any) -> tuple[str, list[float], list[float]]:
        net = network()
        config = settings(5, shards=4)
        result = loom.train(net, (X, Y), config, (X_HELD, Y_HELD), callbacks=[make()], distributed=ranks)
        return net.fingerprint(), result.history["loss"], result.history["val_loss"]

    alone = trained(None)
    for found in loom.distributed.threads(3, trained):
        assert found == alone


@pytest.mark.parametrize(
    ("log", "more"),
    [
        ("val_f1_score", True),
        ("val_kind_f1_score", True),
        ("val_first_kind_balanced_accuracy_score", True),
        ("val_kind_matthews_corrcoef", True),
        ("val_kind_accuracy", True),
        ("kind_roc_auc_score", True),
        ("val_kind_log_loss", False),
        ("val_kind_brier_score_loss", False),
        ("val_kind_loss", False),
        ("val_loss", False),
    ],
)
def test_which_way_is_better_of_named_outputs_too(log: str, more: bool) -> None:
    stopping = loom.EarlyStopping(log, patience=9)
    stopping.set_model(network())
    stopping.on_train_begin()
    for epoch, value in enumerate([0.5, 0.9, 0.1]):
        stopping.on_epoch_end(epoch, {log: value})
    assert stopping.best == (0.9 if more else 0.1)


def test_the_best_epoch_of_a_named_output_s_score() -> None:
    net = loom.Network(input_shape=4, grid=(1, 3), seed=0)
    net[0, 0].add(nn.Dense(8, activation="tanh"))
    net[0, 1].add(nn.Dense(2))
    net.link((0, 0), (0, 2), combine="replace")[0, 2].add(nn.Dense(1))
    net.output("kind", (0, 1)).output("age", (0, 2))

    def told(x: Any) -> dict[str, Any]:
        return {"kind": (x[:, 0] + x[:, 1] > 0).astype(int), "age": x[:, 0]}

    config = loom.TrainingConfig(
        epochs=15,
        learning_rate=0.1,
        loss={"kind": "cross_entropy", "age": "mse"},
        metrics={"kind": ["sklearn.f1_score"]},
        early_stopping=loom.EarlyStopping("val_kind_f1_score", patience=99, restore_best_weights=True),
        verbose=False,
    )
    held = X_HELD, told(X_HELD)
    result = loom.train(net, (X, told(X)), config, held)
    scores = result.history["val_kind_f1_score"]
    assert min(scores) < max(scores)
    assert net.evaluate(held)["kind_f1_score"] == pytest.approx(max(scores), abs=1e-9)


class StopAfter(loom.Callback):
    """Ends training after so many epochs."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch + 1 == self.epochs:
            raise loom.StopTraining


def broken_off(net: loom.Network, at: int, callbacks: Any, resume: bool = False, **more: Any) -> None:
    """Trains until Ctrl-C comes after so many batches."""
    seen: list[int] = []

    def interrupt(batch: int, logs: Any) -> None:
        seen.append(batch)
        if len(seen) == at:
            raise KeyboardInterrupt

    watch = loom.LambdaCallback(on_train_batch_end=interrupt)
    result = loom.train(
        net, (X, Y), settings(6, **more), (X_HELD, Y_HELD), callbacks=[*callbacks, watch], resume=resume
    )
    assert result.interrupted


@pytest.mark.parametrize("filed", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda best: [best()],
        lambda best: [best(), best("loss", mode="max")],
        lambda best: [loom.ExponentialMovingAverage(0.8), best()],
        lambda best: [best(), loom.ExponentialMovingAverage(0.8, keeps=False)],
        lambda best: [best(), loom.StochasticWeightAveraging(1, validates=False)],
    ],
    ids=["alone", "two", "average", "average that is not kept", "average that is not measured"],
)
def test_a_run_that_had_the_best_weights_back_goes_on_from_where_it_was(
    make: Any, filed: bool, tmp_path: Path
) -> None:
    def best(monitor: str = "val_loss", mode: Any = "auto") -> loom.EarlyStopping:
        return loom.EarlyStopping(monitor, mode=mode, patience=99, restore_best_weights=True)

    whole, parts = network(), network()
    result = loom.train(whole, (X, Y), settings(6), (X_HELD, Y_HELD), callbacks=make(best))
    for at, resume in ((10, False), (7, True)):
        broken_off(parts, at, make(best), resume)
        if filed:
            parts.save(tmp_path / "broken.loom", optimizer=True)
            parts = loom.load(tmp_path / "broken.loom")
    rest = loom.train(parts, (X, Y), settings(6), (X_HELD, Y_HELD), callbacks=make(best), resume=True)
    assert rest.loss_history[-1] == result.loss_history[-1]
    assert parts.fingerprint() == whole.fingerprint()


@pytest.mark.parametrize("name", AVERAGES)
def test_frozen_weights_are_not_rounded_anew(name: str, tmp_path: Path) -> None:
    """Their rounding by chance was drawn as they were packed; what is lent and taken back draws nothing."""

    def packed() -> loom.Network:
        net = network()
        net.morph("int2", rounding="stochastic", where=lambda layer: layer.kind == "dense")
        net.layers[0].trainable = False
        return net

    whole, parts = packed(), packed()
    loom.train(whole, (X, Y), settings(4), callbacks=[AVERAGES[name]()])
    loom.train(parts, (X, Y), settings(4), callbacks=[AVERAGES[name](), StopAfter(2)])
    parts.save(tmp_path / "parts.loom", optimizer=True)
    parts = loom.load(tmp_path / "parts.loom")
    loom.train(parts, (X, Y), settings(4), callbacks=[AVERAGES[name]()], resume=True)
    assert parts.fingerprint() == whole.fingerprint()


@pytest.mark.parametrize(
    "make",
    [
        lambda: loom.EarlyStopping(patience=99, restore_best_weights=True),
        lambda: loom.ExponentialMovingAverage(0.8),
    ],
    ids=["best", "average"],
)
def test_weights_that_were_set_since_are_those_to_go_on_from(make: Any) -> None:
    net = network()
    broken_off(net, 10, [make()])
    state = {name: values + 1 for name, values in net.state_dict().items()}
    net.load_state_dict(state)
    began: list[dict[str, np.ndarray]] = []
    look = loom.LambdaCallback(on_epoch_begin=lambda epoch, logs: began.append(net.state_dict()))
    loom.train(net, (X, Y), settings(6), (X_HELD, Y_HELD), callbacks=[look, make()], resume=True)
    for name, values in state.items():
        np.testing.assert_array_equal(began[0][name], values)


@pytest.mark.parametrize("name", AVERAGES)
@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_average_is_not_left_behind_by_validation_that_is_broken_off(name: str, error: Any) -> None:
    """Whoever looks at the weights then sees those of training: early stopping by its loss, too."""
    plain = network()
    loom.train(plain, (X, Y), settings(4), (X_HELD, Y_HELD))
    calls: list[int] = []

    def broken(outputs: np.ndarray, targets: np.ndarray) -> float:
        calls.append(len(outputs))
        if calls.count(len(X_HELD)) == 4 and len(outputs) == len(X_HELD):
            raise error
        return 0.0

    net = network()
    stopping = loom.EarlyStopping("loss", patience=99, min_delta=0.0, restore_best_weights=True)
    config = settings(6, metrics=[broken], early_stopping=stopping)
    callbacks = [AVERAGES[name](keeps=False)]
    if error is KeyboardInterrupt:
        assert loom.train(net, (X, Y), config, (X_HELD, Y_HELD), callbacks=callbacks).interrupted
        assert stopping.best_epoch == 3
    else:
        config = settings(6, metrics=[broken])
        with pytest.raises(error):
            loom.train(net, (X, Y), config, (X_HELD, Y_HELD), callbacks=callbacks)
    assert net.fingerprint() == plain.fingerprint()
