"""Mistakes that are made at first, each refused with the remedy; run as a script it shows what is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.network import Network

# What else training warns of, and goes on, is told elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore::loom.DoctorWarning")

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(12, 4)), np.arange(12) % 3
IMAGES = RNG.normal(size=(12, 1, 8, 8))
NAMES = np.array(["ant", "bee", "cat"])[Y]
HOLED = np.where(X > 1, np.nan, X)
PIXELS, VOLUMES = RNG.normal(size=(12, 1, 6, 5)), RNG.normal(size=(12, 1, 4, 2, 3))
LABELS = (PIXELS[:, 0] > 0).astype(int)


def net(*layers: nn.Layer, shape: Any = 4) -> Any:
    return loom.Sequential(layers or [nn.Dense(3)], input_shape=shape)


def masks(channels: int, *more: nn.Layer) -> Any:
    return net(nn.Conv2D(channels, kernel_size=1), *more, shape=(1, 6, 5))


def fit(network: Network, x: Any = X, y: Any = Y, **settings: Any) -> object:
    return network.fit(x, y, **{"verbose": False, "device": "cpu", **settings})


anything: Any = loom
layers: Any = nn

MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    # Data.
    "too few columns": (lambda: fit(net(), X[:, :3]), r"input has shape \(12, 3\), expected \(batch, 4,\)"),
    "fewer labels than samples": (lambda: fit(net(), X, Y[:5]), "12 samples but the target's shape is"),
    "no samples": (lambda: fit(net(), X[:0], Y[:0]), "input has no samples"),
    "labels from 1": (
        lambda: fit(net(), X, Y + 1),
        "class index 3 .* 0 to 2; .* from 1 to 3: y - 1 .* from 0",
    ),
    "labels from 5": (lambda: fit(net(), X, Y + 5), r"class index 5 .* y - 5 .* y\.astype\(str\)"),
    "labels beyond the outputs": (
        lambda: fit(net(), X, np.arange(12) % 5, loss="cross_entropy"),
        "class index 3 of row 3 .* 0 to 2; give the last layer 5 units",
    ),
    "labels of -1": (lambda: fit(net(), X, Y - 1), "class index -1 .* numbered from 0 to 2"),
    "labels as text": (lambda: fit(net(), X, NAMES, loss="mse"), 'text labels .* loss="cross_entropy"'),
    "more labels than outputs": (
        lambda: fit(net(), X, [*"abcd"] * (len(X) // 4), loss="cross_entropy"),
        r"4 labels \(a, b, c, d\), but the network tells 3 classes; give the last layer 4 units",
    ),
    "labels as floats": (lambda: fit(net(), X, Y * 1.0), r'loss="cross_entropy", as whole numbers: y.astype'),
    "labels as a column": (lambda: fit(net(), X, Y[:, None]), r"labels have one axis: y\[:, 0\]"),
    "labels of pixels in another order": (
        lambda: fit(masks(2), PIXELS, LABELS.transpose(0, 2, 1)),
        r"\(rows, 2, 6, 5\) have shape \(rows, 6, 5\), got \(12, 5, 6\); the same extents in another order",
    ),
    "labels of volumes": (
        lambda: fit(net(nn.Conv3D(3, 1), shape=(1, 4, 2, 3)), VOLUMES, (VOLUMES > 0).astype(int)[:, 0]),
        r"classes are the last axis .* nn\.Permute\(\(1, 2, 3, 0\)\)",
    ),
    "masks without their channel": (
        lambda: fit(masks(1), PIXELS, LABELS, loss="binary_cross_entropy"),
        r"lacks the axis of channels, of which there is one: y\[:, None\]",
    ),
    "steps without their last axis": (
        lambda: fit(masks(1, nn.Flatten(), nn.Reshape((30, 1))), PIXELS, LABELS.reshape(12, 30), loss="mse"),
        r"lacks the last axis, which is of one element: y\[\.\.\., None\]",
    ),
    "labels under mse": (lambda: fit(net(), loss="mse"), 'class labels go with loss="cross_entropy"'),
    "one-hot of another width": (
        lambda: fit(net(), X, np.eye(4)[Y], loss="cross_entropy"),
        "for such targets the last layer has 4 outputs",
    ),
    "one output for two classes": (
        lambda: fit(net(nn.Dense(1)), X, Y % 2, loss="cross_entropy"),
        r'nn\.Dense\(2\), or take loss="binary_cross_entropy"',
    ),
    "holes in the samples": (lambda: fit(net(), HOLED), "NaN or infinity, first in row .* clean the data"),
    "holes in the targets": (lambda: fit(net(nn.Dense(4)), X, HOLED), "target holds NaN .* clean the data"),
    "samples as text": (lambda: net().predict(NAMES), "expected real numbers, got dtype <U3"),
    "rows of different lengths": (lambda: fit(net(), [[1, 2], [3]], [0, 1]), "rows of different lengths"),
    "one sample without its batch": (lambda: net().predict(X[0]), r"add a batch axis, as in x\[None\]"),
    "validation data without targets": (lambda: fit(net(), validation_data=X), r"must be a tuple \(x, y\)"),
    "a generator for two epochs": (
        lambda: fit(net(), iter([(X, Y)]), None, epochs=2),
        "can be iterated only once; give arrays",
    ),
    "x and y to train": (lambda: anything.train(net(), X, Y), r"go in as one argument, \(x, y\)"),
    "x and y to evaluate": (lambda: anything.evaluate(net(), X, Y), r"go in as one argument, \(x, y\)"),
    "evaluating before training": (lambda: net().evaluate((X, Y)), 'such as loss="cross_entropy"'),
    # Shapes.
    "no Flatten before Dense": (
        lambda: fit(net(nn.Conv2D(4, kernel_size=3), nn.Dense(3), shape=(1, 8, 8)), IMAGES),
        r"3 axes for each sample: nn\.Flatten\(\) before the last nn\.Dense",
    ),
    "the batch in input_shape": (lambda: fit(net(shape=(12, 4))), "that of one sample, without the batch"),
    "None in input_shape": (lambda: fit(net(shape=(None, 4))), "None is for .* without the batch"),
    "no input_shape": (lambda: anything.Sequential([nn.Dense(3)]), "missing .* 'input_shape'"),
    "channels last": (
        lambda: net(nn.Conv2D(4, kernel_size=3), shape=(8, 8, 1)).build(),
        "does not fit a width of 1",
    ),
    "channels last in the data": (
        lambda: net(nn.Conv2D(4, kernel_size=3), shape=(1, 8, 8)).predict(np.moveaxis(IMAGES, 1, -1)),
        r"expected \(batch, 1, 8, 8\)",
    ),
    "images without channels": (
        lambda: net(nn.Conv2D(4, kernel_size=3), shape=(8, 8)).build(),
        "Conv2D expects .*channels, height, width",
    ),
    "a kernel larger than the image": (
        lambda: net(nn.Conv2D(4, kernel_size=16), shape=(1, 8, 8)).build(),
        "use a smaller kernel or dilation, or more padding",
    ),
    "a sequence without time": (lambda: net(nn.LSTM(4)).build(), r"expects a sequence, \(time, features\)"),
    "heads that do not divide": (
        lambda: net(nn.MultiHeadAttention(3), shape=(5, 4)).build(),
        "not to be divided by 3 heads; give head_dim",
    ),
    "words beyond the vocabulary": (
        lambda: net(nn.Embedding(10, 4), shape=5).predict(np.full((2, 5), 10)),
        "reads whole numbers from 0 to 9",
    ),
    "words as floats": (
        lambda: net(nn.Embedding(10, 4), shape=5).predict(np.ones((2, 5))),
        "astype\\(int\\)",
    ),
    # Layers and settings.
    "PyTorch's order of a convolution": (lambda: layers.Conv2D(1, 16, 3), r"Conv2D\(16, kernel_size=3\)"),
    "PyTorch's order of a Dense": (lambda: layers.Dense(784, 10), "size of the input is no argument"),
    "PyTorch's order of an LSTM": (lambda: layers.LSTM(10, 20), r"LSTM\(20\) has 20 units"),
    "PyTorch's size of a norm": (lambda: layers.RMSNorm(64), r"RMSNorm\(\) is enough"),
    "a learning rate to the optimizer": (lambda: anything.Adam(1e-3), r"TrainingConfig\(learning_rate=1e-3"),
    "a rate by name to the optimizer": (lambda: anything.AdamW(lr=1e-3), "net.fit.x, y, learning_rate="),
    "lr": (lambda: fit(net(), lr=0.1), 'in loom that is "learning_rate"'),
    "nb_epoch": (lambda: fit(net(), nb_epoch=3), 'in loom that is "epochs"'),
    "an unknown setting": (lambda: fit(net(), epoch=3), 'did you mean "epochs"'),
    "out_features": (lambda: layers.Dense(out_features=3), 'in loom that is "units"'),
    "input_dim": (lambda: layers.Dense(3, input_dim=4), "layers infer the size of their input"),
    "p": (lambda: layers.Dropout(p=0.5), 'in loom that is "rate"'),
    "dropout in percent": (lambda: nn.Dropout(50), "rate must be .* at least 0 and below 1"),
    "softmax as an activation": (
        lambda: layers.Dense(3, activation="softmax"),
        r"it is a layer, nn\.Softmax",
    ),
    "a misspelled activation": (lambda: layers.Dense(3, activation="rellu"), 'did you mean "relu"'),
    "PyTorch's name of a loss": (lambda: fit(net(), loss="CrossEntropyLoss"), 'that is "cross_entropy"'),
    "Keras' name of a loss": (
        lambda: fit(net(), loss="sparse_categorical_crossentropy"),
        'that is "cross_entropy"',
    ),
    "acc": (lambda: fit(net(), metrics=["acc"]), 'in loom that is "accuracy"'),
    "an optimizer's class": (lambda: fit(net(), optimizer=loom.Adam), r"give one of it: Adam\(\.\.\.\)"),
    "a callback's class": (lambda: fit(net(), callbacks=[loom.History]), r"give History\(\)"),
    "a callback without a list": (lambda: fit(net(), callbacks=loom.History()), r"put it into \[ \]"),
    "early stopping without validation": (
        lambda: fit(net(), callbacks=[loom.EarlyStopping()]),
        "give validation data or monitor the loss",
    ),
    "a split of 1.5": (lambda: fit(net(), validation_split=1.5), "at least 0 and below 1, got 1.5"),
    "a split that leaves nothing": (lambda: fit(net(), validation_split=0.01), "both need at least one"),
    "cuda": (lambda: fit(net(), device="cuda"), 'GPUs are called "gpu" here'),
    "float16": (lambda: net_of_precision("float16"), 'precision="mixed" trains with 16-bit products'),
    "a misspelled type": (lambda: net().morph("int7"), 'did you mean "int'),
    "layers without a list": (lambda: anything.Sequential(nn.Dense(3), nn.Dense(4)), "go in one list"),
    "a layer's class": (lambda: anything.Sequential([nn.Dense], 4), r"a layer such as nn\.Dense\(10\)"),
    "no layers": (lambda: loom.Network(4).predict(X), "add one to a cell first"),
    "a rate that explodes": (
        lambda: fit(net(nn.Dense(4)), X * 1e30, X * 1e30, optimizer="sgd"),
        "lower the learning rate, clip gradients",
    ),
    # What other libraries have.
    "compile": (lambda: anything.Sequential([nn.Dense(3)], 4).compile(), r"net\.fit\(x, y, loss="),
    "parameters": (lambda: anything.Sequential([nn.Dense(3)], 4).parameters(), r"net\.state_dict\(\)"),
    "net.add": (lambda: anything.Sequential([nn.Dense(3)], 4).add, r"net\[0, 0, 0\]\.add"),
    "loom.optim": (lambda: anything.optim, r"there is loom\.optimizers"),
    "loom.Dense": (lambda: anything.Dense, r"the layer is loom\.nn\.Dense"),
    "nn.Linear": (lambda: layers.Linear, r"loom's is loom\.nn\.Dense"),
    "nn.Conv2d": (lambda: layers.Conv2d, r"loom's is loom\.nn\.Conv2D"),
    "nn.MaxPooling2D": (lambda: layers.MaxPooling2D, r"loom's is loom\.nn\.MaxPool2D"),
    "nn.ReLU": (lambda: layers.ReLU, 'activation="relu" of a layer'),
    "nn.CrossEntropyLoss": (lambda: layers.CrossEntropyLoss, 'training: loss="cross_entropy"'),
    "losses.MSELoss": (lambda: anything.losses.MSELoss, r"loom's is loom\.losses\.mse"),
    "schedules.StepLR": (lambda: anything.schedules.StepLR, r"loom's is loom\.schedules\.Step"),
}


def net_of_precision(name: Any) -> Network:
    return loom.Network(4, precision=name)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_answered_with_its_remedy(name: str) -> None:
    mistake, remedy = MISTAKES[name]
    with pytest.raises((loom.LoomError, AttributeError, TypeError), match=remedy):
        mistake()


def test_there_are_enough_of_them() -> None:
    assert len(MISTAKES) >= 47


def test_what_a_property_lacks_itself_is_told() -> None:
    class Named(Network):
        @property
        def title(self) -> str:
            return str(anything.Sequential([nn.Dense(1)], 2).missing)

    named = Named(4)
    assert not hasattr(named, "nothing")
    with pytest.raises(AttributeError, match="'missing'"):
        _ = named.title


if __name__ == "__main__":
    for said, (play, _) in MISTAKES.items():
        try:
            play()
        except Exception as error:  # noqa: BLE001, PERF203 - it shows whatever is said
            print(f"{said}\n    {type(error).__name__}: {error}")  # noqa: T201
