"""What users of Keras, PyTorch and scikit-learn write at first, each answered with what is written here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import loom
from loom import nn

pytestmark = pytest.mark.filterwarnings("ignore::loom.DoctorWarning")

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 4)), np.arange(12) % 3
FRAME = pd.DataFrame({"size": X[:, 0], "city": ["Oslo", "Rome"] * 6, "street": ["a", "b"] * 6})

anything: Any = loom
layers: Any = nn


def net() -> Any:
    return loom.Sequential([nn.Dense(4, activation="relu"), nn.Dense(3)], input_shape=4)


def fit(x: Any = X, y: Any = Y, **settings: Any) -> Any:
    return net().fit(x, y, **{"verbose": False, "device": "cpu", **settings})


def batches() -> Any:
    yield X, Y


def put(name: str, value: object) -> None:
    setattr(net(), name, value)


def probabilities_of_numbers() -> None:
    numbers = loom.Sequential([nn.Dense(1)], input_shape=4)
    numbers.fit(X, X[:, :1], verbose=False)
    numbers.predict_probabilities(X)


def normed() -> Any:
    return loom.Sequential([nn.Dense(4), nn.BatchNorm(), nn.Dense(3)], input_shape=4)


def own_loss(outputs: Any, targets: Any) -> Any:
    return ((outputs - targets) ** 2).mean(), 2 * (outputs - targets) / outputs.size


def by_targets(loss: Any) -> None:
    loom.TweenTrainer(net()).fit((X, X[:, :3]), loom.TrainingConfig(loss=loss, verbose=False))


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    # What would have been refused at the end of an epoch.
    "a last batch of one": (
        lambda: normed().fit(X[:9], Y[:9], batch_size=4, verbose=False),
        r"layer 0.0.0.1\): 9 samples in batches of 4 leave a last one .* another batch size: 5 fits",
    ),
    # What said nothing of what to do.
    "targets with an own loss": (lambda: by_targets(own_loss), r'"own_loss" is not .* loom.train'),
    "targets with a loss of no targets": (
        lambda: by_targets("cosine"),
        r'such as "mse", .* and "cosine" is not one of those',
    ),
    "measures with an own loss": (
        lambda: loom.train(net(), (X, X[:, :3]), loom.TrainingConfig(loss=own_loss), observe=True),
        r"observe= wants a loss .* or train without it",
    ),
    # What would have been done in silence, and meant nothing.
    "net.trainable = False": (lambda: put("trainable", False), r"net\.freeze\("),
    "net.training = False": (
        lambda: put("training", False),
        "no mode: predict and evaluate leave dropout off",
    ),
    "net.loss = ": (lambda: put("loss", "mse"), r"loss= of net\.fit"),
    "net.layers[-1] = ": (
        lambda: net().layers.__setitem__(-1, nn.Dense(5)),
        r"net\[0, 0, 0\]\[-1\] = nn\.Dense\(5\)",
    ),
    "net.layers.append": (lambda: net().layers.append(nn.Dense(5)), r"net\[0, 0, 0\]\.add"),
    "net.layers.pop": (lambda: net().layers.pop(0), r"\.pop\(\); net\.layers lists"),
    "saved as .h5": (lambda: net().save("net.h5"), r'as in "model\.loom", and .net\.h5. is named as another'),
    "saved as .onnx": (lambda: net().save("net.onnx"), r"loom\.save_onnx\(net, path\) writes ONNX"),
    "saved as .pt": (lambda: net().save(Path("net.pt")), r"torch\.save\(loom\.to_torch\(net\), path\)"),
    "checkpoints as .keras": (
        lambda: loom.ModelCheckpoint("{epoch}.keras"),
        "ModelCheckpoint writes loom's own",
    ),
    # Networks.
    "net(x)": (lambda: net()(X), r"a network is not called: net\.predict\(x\)"),
    "predict_proba": (lambda: net().predict_proba(X), r"net\.predict_probabilities\(x\)"),
    "net.pop": (lambda: net().pop(0), r"net\[0, 0, 0\]\.pop\(\)"),
    "net.export": (lambda: net().export("a.onnx"), r"loom\.save_onnx\(net, path\)"),
    "net.to_onnx": (lambda: net().to_onnx("a.onnx"), r"loom\.save_onnx\(net, path\)"),
    "net.plot": (lambda: net().plot("a.svg"), r"loom\.plot\.network\(net\)"),
    "a path for a network": (lambda: anything.serving.create_app("a.loom"), r"loom\.load\(path\) makes one"),
    "layers of Sequential by place": (
        lambda: layers.Sequential(nn.Dense(3), nn.Dense(3)),
        r"one list, \[a, b\]",
    ),
    # Data.
    "texts in a table": (
        lambda: fit(FRAME),
        r"columns city, street; make numbers of them with loom\.data\.columns",
    ),
    "a table to predict": (lambda: net().predict(FRAME), r"loom\.data\.columns"),
    "a function of batches": (lambda: net().fit(batches, epochs=2), r"loom\.data\.generate\(function\)"),
    "to_categorical": (lambda: anything.utils.to_categorical(Y), "labels go in as they are"),
    "DataLoader": (lambda: anything.data.DataLoader((X, Y)), r"net\.fit\(x, y, batch_size=32\)"),
    "TensorDataset": (lambda: anything.data.TensorDataset(X, Y), r"the arrays themselves: net\.fit\(x, y\)"),
    "train_test_split": (lambda: anything.data.train_test_split(X, Y), r"loom\.data\.split\(\(x, y\), 0\.2"),
    "pad_sequences": (lambda: anything.data.pad_sequences([X]), r"loom\.data\.Padded"),
    "load_digits": (lambda: anything.datasets.load_digits(n_class=3), r"loom\.datasets\.digits\(\)"),
    "cifar10": (lambda: anything.datasets.cifar10(1), "loom downloads nothing"),
    "names to draw in another form": (
        lambda: loom.plot.predictions(np.zeros((2, 3, 3)), [0.5, 1.5]),
        "class indices must be integers",
    ),
    # Layers.
    "nn.Input": (lambda: layers.Input((4,)), r"input_shape=\.\.\."),
    "nn.Concatenate": (lambda: layers.Concatenate(axis=1), 'nn.Parallel.* combine="concat"'),
    "nn.Add": (lambda: layers.Add([]), r"nn\.Residual\(\[\.\.\.\]\) for a skip"),
    "nn.Lambda": (lambda: layers.Lambda(abs), r"nn\.Expr"),
    "nn.TimeDistributed": (lambda: layers.TimeDistributed(nn.Dense(3)), "nn.Dense works on the last axis"),
    "nn.Bidirectional": (lambda: layers.Bidirectional(nn.LSTM(3)), "bidirectional=True of nn.LSTM"),
    "nn.Rescaling": (lambda: layers.Rescaling(1 / 255), r"nn\.Scale\(1 / 255\)"),
    "nn.TransformerEncoderLayer": (
        lambda: layers.TransformerEncoderLayer(8, 2),
        r"nn\.MultiHeadAttention\(4\)",
    ),
    "nn.Module": (lambda: layers.Module, r"loom\.Sequential\(\[\.\.\.\], input_shape=\.\.\.\)"),
    "nn.Identity": (lambda: layers.Identity(3), "leave it out"),
    "nn.functional": (lambda: layers.functional.softmax(X), r"net\.predict_probabilities\(x\)"),
    "nn.init": (lambda: layers.init.xavier_normal_(X), r"loom\.initializers"),
    "a function as activation": (lambda: layers.Dense(3, activation=np.tanh), 'goes by its name, "tanh"'),
    "name=": (lambda: layers.Dense(3, name="head"), r"layers have no names"),
    "kernel_regularizer": (lambda: layers.Dense(3, kernel_regularizer="l2"), r"AdamW\(weight_decay=0\.01\)"),
    "mask_zero": (lambda: layers.Embedding(9, 4, mask_zero=True), r"loom\.data\.Padded"),
    "embed_dim": (lambda: layers.MultiHeadAttention(embed_dim=8), "layers infer the size of their input"),
    "trainable=False": (lambda: layers.Dense(3, trainable=False), r"net\[0, 0, 0, 0\]\.trainable = False"),
    "dtype of a layer": (lambda: layers.Dense(3, dtype="float16"), r"precision= of loom\.Network"),
    # Training.
    "weight_decay to fit": (lambda: fit(weight_decay=0.1), r"optimizer=loom\.AdamW\(weight_decay"),
    "momentum to fit": (lambda: fit(momentum=0.9), r"loom\.SGD\(momentum=0\.9\)"),
    "a schedule as rate": (
        lambda: fit(learning_rate=loom.schedules.Cosine()),
        "a number, which a schedule multiplies",
    ),
    "balanced classes": (
        lambda: fit(class_weight="balanced"),
        r"len\(y\) / \(classes \* np\.bincount\(y\)\)",
    ),
    "rmse": (lambda: fit(metrics=["rmse"]), r'metrics=\["mse"\] is its square'),
    "min_lr": (lambda: anything.ReduceLROnPlateau(min_lr=1e-6), "min_scale= is the least"),
    "log_dir": (lambda: anything.TensorBoard(log_dir="runs"), r"the folder comes first"),
    "path of a checkpoint": (lambda: anything.ModelCheckpoint(path="a.loom"), 'in loom that is "filepath"'),
    "save_weights_only": (
        lambda: anything.ModelCheckpoint("a.loom", save_weights_only=True),
        "optimizer=False leaves the training state out",
    ),
    "a misspelled setting of a callback": (
        lambda: anything.CSVLogger("a.csv", apend=True),
        'did you mean "append"',
    ),
    "LearningRateScheduler": (
        lambda: anything.callbacks.LearningRateScheduler(abs),
        r"schedule=loom\.schedules",
    ),
    "BackupAndRestore": (lambda: anything.callbacks.BackupAndRestore("a"), 'run="runs/a"'),
    # Elsewhere.
    "loom.random": (lambda: anything.random.set_seed(1), "seed= of the network"),
    "loom.softmax": (lambda: anything.softmax(X), r"net\.predict_probabilities\(x\)"),
    "loom.serve": (lambda: anything.serve("a.loom"), "the command `loom serve FILE`"),
    "loom.models.load_model": (lambda: anything.models.load_model("a.loom"), r"loom\.load\(path\)"),
    "probabilities of numbers": (
        probabilities_of_numbers,
        'trained by the loss "mse", whose outputs are no scores of classes',
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mistake, answer = MISTAKES[name]
    with pytest.raises((loom.LoomError, AttributeError, TypeError), match=answer):
        mistake()
    assert not any(tmp_path.iterdir())


def test_there_are_enough_of_them() -> None:
    assert len(MISTAKES) >= 60


def test_other_attributes_are_the_user_s() -> None:
    class Named(loom.Network):
        title = "none"

    named: Any = Named(4)
    named.title = named.remark = "mine"
    assert (named.title, named.remark) == ("mine", "mine")
    assert [layer.kind for layer in net().layers + net().layers[:1]] == ["dense", "dense", "dense"]


def test_callbacks_of_others_take_what_they_like() -> None:
    class Own(loom.Callback):
        def __init__(self, *names: str, **settings: object) -> None:
            self.held = (names, settings)

    assert Own("a", min_lr=1).held == (("a",), {"min_lr": 1})


@pytest.mark.parametrize(("loss", "outputs"), [("cross_entropy", 3), ("binary_cross_entropy", 3), ("nll", 3)])
def test_probabilities(loss: str, outputs: int, tmp_path: Path) -> None:
    made: Any = [nn.Dense(outputs), *([nn.Softmax()] if loss == "nll" else [])]
    tells = loom.Sequential(made, input_shape=4)
    tells.fit(X, np.eye(3)[Y] if loss != "cross_entropy" else Y, loss=loss, verbose=False)
    scores = tells.predict(X).astype(np.float64)
    wanted = {
        "cross_entropy": np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True),
        "binary_cross_entropy": 1 / (1 + np.exp(-scores)),
        "nll": scores,
    }[loss]
    np.testing.assert_allclose(tells.predict_probabilities(X), wanted, rtol=2e-6)
    tells.save(tmp_path / "tells.loom")
    again = loom.load(tmp_path / "tells.loom").predict_probabilities(X)
    np.testing.assert_array_equal(again, tells.predict_probabilities(X))


def test_probabilities_of_one_output_and_of_images() -> None:
    single = loom.Sequential([nn.Dense(1)], input_shape=4)
    single[0, 0, 0, 0].weight = np.full((1, 4), 1000.0)
    found = single.predict_probabilities(X)
    np.testing.assert_array_equal(found, single.predict(X) > 0)
    pixels = loom.Sequential([nn.Conv2D(2, kernel_size=1)], input_shape=(1, 4, 4))
    told = pixels.predict_probabilities(RNG.normal(size=(3, 1, 4, 4)))
    assert told.shape == (3, 2, 4, 4)
    np.testing.assert_allclose(told.sum(axis=1), 1, rtol=1e-6)
