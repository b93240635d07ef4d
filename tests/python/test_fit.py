"""`net.fit(x, y, ...)` and the loss that is chosen by the targets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.network import Network

RNG = np.random.default_rng(3)
X = RNG.normal(size=(40, 3))
LABELS = (X[:, 0] > 0).astype(int)
QUIET: dict[str, Any] = {"verbose": False, "device": "cpu"}


def classifier(units: int = 2) -> Network:
    return loom.Sequential([nn.Dense(4, activation="tanh"), nn.Dense(units)], input_shape=3)


def loss_of(net: Network) -> object:
    config = net._record.judged_by
    assert config is not None
    return config.loss


def test_the_same_as_train_with_a_config() -> None:
    ours, theirs = classifier(), classifier()
    weight = RNG.random(36)
    settings: dict[str, Any] = {"epochs": 3, "batch_size": 8, "metrics": ["accuracy"], "optimizer": "sgd"}
    found = ours.fit(
        X[:36], LABELS[:36], sample_weight=weight, validation_data=(X[36:], LABELS[36:]), **settings, **QUIET
    )
    config = loom.TrainingConfig(loss="cross_entropy", **settings, **QUIET)
    wanted = loom.train(theirs, (X[:36], LABELS[:36], weight), config, (X[36:], LABELS[36:]))
    assert found.loss_history == wanted.loss_history
    assert found.metrics == wanted.metrics
    assert ours.fingerprint() == theirs.fingerprint()


def test_settings_by_name_beside_data_and_a_config() -> None:
    net = classifier()
    assert len(net.fit((X, LABELS), epochs=2, **QUIET).loss_history) == 2
    config = loom.TrainingConfig(epochs=3, loss="nll", **QUIET)
    softmax = loom.Sequential([nn.Dense(2), nn.Softmax()], input_shape=3)
    assert len(softmax.fit((X, LABELS), config, epochs=1).loss_history) == 1
    assert loss_of(softmax) == "nll"
    history = loom.History()
    result = net.fit(x=X, y=LABELS, epochs=1, validation_split=0.25, callbacks=[history], **QUIET)
    assert "val_loss" in result.metrics
    assert len(history.history["loss"]) == 1


@pytest.mark.parametrize(
    ("arguments", "settings", "message"),
    [
        ((), {}, r"fit needs samples and targets: fit\(x, y, epochs=3\)"),
        ((X,), {"x": X}, "samples are given twice"),
        ((X, LABELS), {"y": LABELS}, "targets are given twice"),
        (((X, LABELS),), {"sample_weight": np.ones(40)}, r"sample_weight goes with fit\(x, y, ...\)"),
        ((X, LABELS), {"validation": (X, LABELS), "validation_data": (X, LABELS)}, "are the same"),
        ((X, LABELS), {"epoch": 3}, 'unknown fit argument "epoch"; did you mean "epochs"'),
        ((X, {0: 1}), {}, "y must be an array of targets"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(loom.ConfigError, match=message):
        classifier().fit(*arguments, **settings)


class Loader:
    """Iterated anew each time, like a data loader."""

    def __init__(self, y: np.ndarray[Any, Any]) -> None:
        self.y = y
        self.passes = 0

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        self.passes += 1
        for start in range(0, 40, 10):
            yield X[start : start + 10], self.y[start : start + 10]

    def __len__(self) -> int:
        return 4


# What is warned of stands in test_doctor.py.
@pytest.mark.filterwarnings("ignore:class-labels-with-mse:loom.DoctorWarning")
@pytest.mark.parametrize(
    ("units", "y", "loss"),
    [
        (2, LABELS, "cross_entropy"),
        (2, LABELS.astype(np.uint8), "cross_entropy"),
        (1, LABELS, "mse"),
        (2, np.eye(2)[LABELS], "mse"),
        (2, np.eye(2, dtype=int)[LABELS], "mse"),
        (1, X[:, 0], "mse"),
    ],
)
def test_the_targets_choose_the_loss(units: int, y: np.ndarray[Any, Any], loss: str) -> None:
    auto, named = classifier(units), classifier(units)
    config = loom.TrainingConfig(**QUIET)
    assert config.loss == "auto"
    assert auto.fit(X, y, **QUIET).loss_history == named.fit(X, y, loss=loss, **QUIET).loss_history
    assert loss_of(auto) == loss
    batches = [(X[:20], y[:20]), (X[20:], y[20:])]
    for data in (batches, Loader(y), iter(batches)):
        net = classifier(units)
        net.fit(data, **QUIET)
        assert loss_of(net) == loss
        wanted = named.evaluate((X, y), loss=loss)
        assert named.evaluate((X, y), config) == wanted
    assert named.evaluate(Loader(y), config)["loss"] == pytest.approx(wanted["loss"])
    loader = Loader(y)
    net.fit(loader, epochs=2, **QUIET)
    assert loader.passes == 2


def test_labels_of_every_step_and_of_every_pixel_are_classes() -> None:
    sequence = loom.Sequential([nn.Dense(5)], input_shape=(4, 3))
    sequence.fit(RNG.normal(size=(6, 4, 3)), RNG.integers(0, 5, (6, 4)), **QUIET)
    assert loss_of(sequence) == "cross_entropy"
    image = loom.Sequential([nn.Conv2D(3, kernel_size=1)], input_shape=(1, 4, 4))
    image.fit(RNG.normal(size=(6, 1, 4, 4)), RNG.integers(0, 3, (6, 4, 4)), **QUIET)
    assert loss_of(image) == "cross_entropy"


def test_progress_says_which_loss_was_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    classifier().fit(X, LABELS, device="cpu", verbose=True)
    assert capsys.readouterr().out.startswith("training on cpu, loss cross_entropy, chosen by the targets\n")
    classifier().fit(X, LABELS, device="cpu", loss="cross_entropy", verbose=True)
    assert capsys.readouterr().out.startswith("training on cpu\n")


def test_what_is_kept_holds_the_loss_that_was_chosen(tmp_path: Path) -> None:
    net = classifier()
    result = net.fit(X, LABELS, receipt=True, run=tmp_path / "run", **QUIET)
    assert result.receipt is not None
    assert result.receipt.learning["training"]["loss"] == "cross_entropy"
    assert loom.reproduce(result.receipt, (X, LABELS)).matches
    assert loom.reproduce(result.receipt, (X, LABELS), config=loom.TrainingConfig(**QUIET)).matches
    again = classifier()
    # The same run, with the loss named.
    again.fit(X, LABELS, loss="cross_entropy", receipt=True, run=tmp_path / "run", **QUIET)
    assert again.fingerprint() == net.fingerprint()
    assert not any(b'"auto"' in path.read_bytes() for path in (tmp_path / "run").rglob("*.json"))
    net.save(tmp_path / "net.loom")
    assert loss_of(loom.load(tmp_path / "net.loom")) == "cross_entropy"


def test_a_run_of_data_that_is_only_iterated_is_known_before_it(tmp_path: Path) -> None:
    net = classifier(1)
    net.fit(Loader(X[:, 0]), run=tmp_path / "run", **QUIET)
    assert loss_of(net) == "mse"
    with pytest.raises(loom.ShapeError, match='loss="cross_entropy"'):
        classifier().fit(Loader(LABELS), run=tmp_path / "other", **QUIET)


@pytest.mark.filterwarnings("ignore::loom.BottleneckWarning")
def test_other_ways_to_train_choose_likewise() -> None:
    config = loom.TrainingConfig(**QUIET)
    net = classifier()
    trainer = loom.Trainer(net, config)
    trainer.step(X, LABELS)
    assert trainer.config.loss == loss_of(net) == "cross_entropy"
    tweening = loom.TweenTrainer(classifier())
    tweening.fit((X, LABELS), config)
    assert tweening.state.training.loss == "cross_entropy"
    mesh = loom.Mesh(classifier(), window=2, rows=40)
    stepper = loom.Stepper(mesh, config)
    assert stepper.config.loss == "mse"
    stepper.step(X, LABELS)
    assert stepper.config.loss == "cross_entropy"
    late = loom.Stepper(loom.Mesh(classifier(), window=2, rows=40), config)
    late.step(X)
    with pytest.raises(loom.ConfigError, match='loss="cross_entropy" is right: name it'):
        late.step(X, LABELS)


def test_an_ensemble_chooses_likewise() -> None:
    ensemble = loom.analysis.Ensemble([classifier()], vote="mean")
    named = ensemble.evaluate((X, LABELS), loss="cross_entropy")
    assert ensemble.evaluate((X, LABELS), loom.TrainingConfig(**QUIET)) == named


def test_settings_of_classification_need_such_a_loss() -> None:
    smoothed = loom.TrainingConfig(label_smoothing=0.1, **QUIET)
    loom.train(classifier(), (X, LABELS), smoothed)
    with pytest.raises(loom.ConfigError, match=r'label_smoothing works with .* not with "mse"'):
        loom.train(classifier(1), (X, X[:, 0]), smoothed)
