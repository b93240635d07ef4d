"""Further turns that users of Keras, PyTorch and scikit-learn take, each answered with the way."""

from __future__ import annotations

import dataclasses
import pickle
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 4)).astype(np.float32), np.arange(40) % 3
MASKS = np.zeros((40, 1, 8, 8), int)

anything: Any = loom
layers: Any = nn


def net(*given: nn.Layer, shape: Any = 4) -> Any:
    return loom.Sequential(given or [nn.Dense(8, activation="relu"), nn.Dense(3)], input_shape=shape)


def fit(network: Any = None, x: Any = X, y: Any = Y, **settings: Any) -> Any:
    return (network or net()).fit(x, y, **{"verbose": False, "device": "cpu", **settings})


def assigned(target: object, name: str, value: object) -> None:
    setattr(target, name, value)


def hooked(name: str) -> object:
    hook = {name: lambda self, *told: None}
    return fit(callbacks=[type("Own", (loom.Callback,), hook)()])


class Sparse:
    """What scipy's sparse matrices have."""

    nnz = 3
    shape = (40, 4)

    def toarray(self) -> object:
        return X


def accuracy_score(target: object, predicted: object) -> float:
    return 0.0


accuracy_score.__module__ = "sklearn.metrics._classification"

TURNS: dict[str, tuple[Callable[[], object], str]] = {
    # Networks and layers.
    "Sequential(input_dim=)": (lambda: anything.Sequential([nn.Dense(3)], input_dim=4), r"x\.shape\[1:\]"),
    "a name for a layer": (lambda: net("relu"), r'nn\.Activation\("relu"\) is the layer'),  # type: ignore[arg-type]
    "a function for a layer": (lambda: net(np.tanh), r'nn\.Activation\("tanh"\)'),  # type: ignore[arg-type]
    "one callback": (lambda: fit(callback=loom.History()), 'did you mean "callbacks"'),
    "weights of samples": (lambda: fit(sample_weights=Y), 'did you mean "sample_weight"'),
    "one word for two": (lambda: fit(validationdata=(X, Y)), 'did you mean "validation_data"'),
    "a number for a layer": (lambda: net(8, 3), r"nn\.Dense\(8\) has 8 units"),  # type: ignore[arg-type]
    "a list in the list": (lambda: net([nn.Dense(3)]), r"one list: \[\*block"),  # type: ignore[arg-type]
    "None among layers": (lambda: net(nn.Dense(3), None), "got None; leave it out"),  # type: ignore[arg-type]
    "a layer that is called": (lambda: layers.Dense(8)(X), "a layer is not called: loom.Sequential"),
    "nn.Sequential as a network": (lambda: layers.Sequential([nn.Dense(3)]).fit(X, Y), "a network: nn.Seq"),
    "the name of a network": (lambda: net().name, r'ModelCard\(metadata=\{"name": \.\.\.\}\)'),
    "a network with a name": (
        lambda: anything.Sequential([nn.Dense(3)], input_shape=4, name="a"),
        r'ModelCard\(metadata=\{"name": \.\.\.\}\)',
    ),
    "weights of a description": (lambda: layers.Dense(3).get_weights(), "once it stands in a network"),
    "a setting set later": (lambda: assigned(nn.Dense(3), "units", 4), r"Dense\(units=4\) makes another"),
    "inputs by name as a shape": (
        lambda: anything.Network(input_shape={"table": 5, "city": 3}, grid=(1, 2)),
        r"loom\.Network\(inputs=\{\.\.\.\}\)",
    ),
    "a file's bytes as its path": (
        lambda: loom.load(net().build().to_bytes()),  # type: ignore[arg-type]
        r"write_bytes\(data\)",
    ),
    "units as text": (lambda: layers.Dense("8"), "without quotes: 8"),
    "units as a float": (lambda: layers.Dense(8.0), "as a whole number: 8"),
    "units in brackets": (lambda: layers.Dense((8,)), "one number: the size of the input is inferred"),
    'activation="relu6"': (lambda: layers.Dense(8, activation="relu6"), r"clip\(x, 0, 6\)"),
    'activation="exponential"': (
        lambda: layers.Dense(8, activation="exponential"),
        r'nn\.Expr\("exp\(x\)"\)',
    ),
    'activation="none"': (lambda: layers.Dense(8, activation="none"), '"linear" is the one'),
    'padding="SAME"': (lambda: layers.Conv2D(8, kernel_size=3, padding="SAME"), '"same" is written small'),
    'padding="causal"': (
        lambda: layers.Conv1D(8, kernel_size=3, padding="causal"),
        "nn.ZeroPadding1D before",
    ),
    "padding_mode": (lambda: layers.Conv2D(8, kernel_size=3, padding_mode="reflect"), "numpy.pad"),
    "start_dim": (lambda: layers.Flatten(start_dim=1), "leave it out: the batch stays"),
    "return_state": (lambda: layers.LSTM(8, return_state=True), r"net\.session\(\)"),
    "recurrent_dropout": (lambda: layers.LSTM(8, recurrent_dropout=0.2), "between stacked layers"),
    "input_length": (lambda: layers.Embedding(100, 8, input_length=10), "the network's input_shape"),
    "keepdims": (lambda: layers.GlobalAvgPool2D(keepdims=True), r"nn\.Reshape\(\(-1, 1, 1\)\)"),
    "axes from 1": (lambda: layers.Permute((2, 1)), r"Permute\(\(1, 0\)\)"),
    "two LSTMs": (lambda: net(nn.LSTM(8), nn.LSTM(8), shape=(24, 2)).build(), "return_sequences=True"),
    "a series without features": (lambda: net(nn.GRU(8), shape=24).build(), r"numbers is \(time, 1\)"),
    "Conv1D, steps first": (
        lambda: net(nn.Conv1D(4, kernel_size=3), shape=(24, 1)).build(),
        r"of 24 steps the input_shape is \(1, 24\), and np.swapaxes",
    ),
    "nn.LazyLinear": (lambda: layers.LazyLinear(3), "every layer infers the size"),
    "nn.Unflatten": (lambda: layers.Unflatten(1, (8, 8)), r"nn\.Reshape"),
    "nn.Average": (lambda: layers.Average, 'combine="average"'),
    "nn.Subtract": (lambda: layers.Subtract, r"nn\.Scale\(-1\)"),
    "nn.Masking": (lambda: layers.Masking, r"loom\.data\.Padded"),
    "nn.Resizing": (lambda: layers.Resizing(32, 32), r"size=\(64, 64\)"),
    "nn.RandomCrop": (lambda: layers.RandomCrop(4), r"Augment\(crop=4\)"),
    "nn.PositionalEncoding": (lambda: layers.PositionalEncoding, r"nn\.SinusoidalPositions"),
    "nn.RNNCell": (lambda: layers.RNNCell(3), "stateful=True"),
    "nn.EinsumDense": (lambda: layers.EinsumDense("ab,bc->ac"), "works on the last axis"),
    "nn.UnitNormalization": (lambda: layers.UnitNormalization, r"nn\.L2Norm"),
    # Optimizers and schedules.
    "Adam(clipnorm=)": (lambda: anything.Adam(clipnorm=1.0), "gradient_clip=1.0"),
    "Adam(betas=)": (lambda: anything.Adam(betas=(0.9, 0.99)), "beta1=0.9, beta2=0.999"),
    "optimizer.step": (lambda: anything.Adam().step(), r"net\.apply_gradients\(rate\)"),
    "optimizer.zero_grad": (lambda: anything.Adam().zero_grad(), r"net\.zero_gradients\(\)"),
    "optimizer.param_groups": (lambda: anything.Adam().param_groups, "rate_scale= of training"),
    "optimizer.lr = ": (lambda: assigned(loom.Adam(), "lr", 0.1), "schedules change it: TrainingConfig"),
    "optimizers.get": (lambda: anything.optimizers.get("adam"), 'optimizer="adam"'),
    'optimizer="lbfgs"': (lambda: fit(optimizer="lbfgs"), "loom.LBFGS takes all data at once"),
    "a function as rate": (lambda: fit(learning_rate=lambda epoch: 0.1), r"schedule=loom\.schedules"),
    "a function as schedule": (lambda: fit(schedule=lambda step: 1.0), "which files can hold"),
    'learning_rate="auto"': (lambda: fit(learning_rate="auto"), r"loom\.find_rate\(net, \(x, y\)\)"),
    "OneCycle(max_lr=)": (lambda: anything.schedules.OneCycle(max_lr=0.1), "the highest one here"),
    "MultiStepLR": (lambda: anything.schedules.MultiStepLR([30]), r"Epochs\(loom\.schedules\.Step"),
    "schedules.ReduceLROnPlateau": (lambda: anything.schedules.ReduceLROnPlateau, "the callback loom"),
    # Training.
    "epochs=3.0": (lambda: fit(epochs=3.0), "as a whole number: 3"),
    "batch_size=None": (lambda: fit(batch_size=None), "leave it out for the usual size"),
    "epochs by place": (lambda: net().fit(X, Y, 3), r"fit\(x, y, epochs=3, batch_size=32\)"),
    "a config after x and y": (lambda: net().fit(X, Y, loom.TrainingConfig()), r"fit\(\(x, y\), config\)"),
    "config= with x and y": (lambda: net().fit(X, Y, config=loom.TrainingConfig()), "its settings by name"),
    "samples alone": (lambda: net().fit(X), r"samples and targets go in together, \(x, y\)"),
    "validation_data=[x, y]": (lambda: fit(validation_data=[X, Y]), r"is a tuple, \(x, y\)"),
    "loss=None": (lambda: fit(loss=None), 'leave it out, or say "auto"'),
    'loss=["mse"]': (lambda: fit(loss=["mse"]), 'without brackets: "mse"'),
    "device=None": (lambda: fit(device=None), "a GPU where there is one"),
    "device=0": (lambda: fit(device=0), 'try "gpu:0"'),
    "use_amp": (lambda: fit(use_amp=True), 'precision="mixed"'),
    "max_steps": (lambda: fit(max_steps=3), "raising loom.StopTraining"),
    "l2=": (lambda: fit(l2=0.01), r'regularizers=\{"\*\.weight": \{"l2"'),
    "warmup_steps": (lambda: fit(warmup_steps=3), r"loom\.schedules\.Warmup\(steps"),
    "eval_set": (lambda: fit(eval_set=[(X, Y)]), r"validation_data=\(x, y\)"),
    "early_stopping=5": (lambda: fit(early_stopping=5), r"loom\.EarlyStopping\(patience=5\)"),
    "a class of metrics": (lambda: fit(metrics=[loom.metrics.Accuracy]), r"give Accuracy\(\)"),
    "scikit-learn's function": (lambda: fit(metrics=[accuracy_score]), '"sklearn.accuracy_score"'),
    'metrics=["mape"]': (lambda: fit(metrics=["mape"]), r"loom\.metrics\.Expr"),
    # Callbacks.
    "a callback's name": (lambda: fit(callbacks=["early_stopping"]), r"objects: loom\.EarlyStopping"),
    "a function as callback": (lambda: fit(callbacks=[print]), r"loom\.LambdaCallback\(on_epoch_end"),
    "Lightning's on_fit_start": (lambda: hooked("on_fit_start"), "the hook is on_train_begin"),
    "Lightning's on_train_epoch_end": (lambda: hooked("on_train_epoch_end"), "the hook is on_epoch_end"),
    "a misspelled hook": (lambda: hooked("on_epoch_ends"), "the hook is on_epoch_end"),
    "LambdaCallback(on_train_start=)": (
        lambda: anything.LambdaCallback(on_train_start=print),
        'in loom that is "on_train_begin"',
    ),
    "patience by place": (lambda: anything.EarlyStopping(5), "patience=5 says how long"),
    "val_acc without the metric": (
        lambda: fit(callbacks=[loom.EarlyStopping(monitor="val_acc")], validation_split=0.2),
        r'metrics=\["accuracy"\] of training makes "val_accuracy"',
    ),
    "val_acc with the metric": (
        lambda: fit(
            callbacks=[loom.EarlyStopping(monitor="val_acc")], validation_split=0.2, metrics=["accuracy"]
        ),
        'in loom that is "val_accuracy"',
    ),
    "EarlyStopping(verbose=1)": (lambda: anything.EarlyStopping(verbose=1), "leave it out: only training"),
    # Data.
    "a sparse matrix": (lambda: fit(x=Sparse()), r"x\.toarray\(\) is one"),
    "numbers as objects": (lambda: net().predict(X.astype(object)), r"x\.astype\(float\)"),
    "dates": (lambda: net().predict(np.zeros((5, 4), "datetime64[D]")), "how long ago"),
    "complex numbers": (lambda: net().predict(X.astype(complex)), r"numpy\.abs\(x\)"),
    "a path for data": (lambda: net().fit("train.csv"), r"pandas\.read_csv\(path\)"),
    "a path to predict": (lambda: net().predict("cat.png"), "opens no files"),
    "two inputs in a tuple": (lambda: fit(x=(X, X)), "several inputs go by name"),
    "masks with a channel": (
        lambda: fit(net(nn.Conv2D(3, kernel_size=1), shape=(1, 8, 8)), MASKS.astype(float), MASKS),
        r"y\[:, 0\], with loss=\"cross_entropy\"",
    ),
    "split(test_size=)": (lambda: anything.data.split((X, Y), test_size=0.2), "fraction=0.2"),
    "image_folder(target_size=)": (
        lambda: anything.data.image_folder(".", target_size=(32, 32)),
        r"size=\(64, 64\)",
    ),
    "Augment(horizontal_flip=)": (lambda: anything.data.Augment(horizontal_flip=0.5), 'that is "flip"'),
    "StandardScaler": (lambda: anything.data.StandardScaler, r"loom\.data\.columns"),
    "from_tensor_slices": (lambda: anything.data.from_tensor_slices((X, Y)), r"net\.fit\(x, y\)"),
    "mnist()": (anything.datasets.mnist, "loom downloads nothing"),
    # What networks and results are asked for.
    "net[0]": (lambda: net()[0], r"net\.layers\[0\]"),
    'net["dense"]': (lambda: net()["dense"], "layers have no names"),
    "net.device = ": (lambda: assigned(net(), "device", "gpu"), r'moved by net\.to\("gpu"\)'),
    "net.to(float16)": (lambda: net().to("float16"), r'net\.morph\("float16"\)'),
    "net.num_parameters": (lambda: net().num_parameters, r"blueprint\(\)\.parameter_count"),
    "net.classes_": (lambda: net().classes_, r"net\.card\.labels"),
    "net.backward()": (lambda: net().backward(), r"loom\.losses\.cross_entropy\(net\.forward\(x\), y\)"),
    "apply_gradients(lr=)": (lambda: net().apply_gradients(lr=0.1), r"apply_gradients\(1e-3\)"),
    "layer.activation = ": (
        lambda: assigned(net().layers[0], "activation", "tanh"),
        r"net\[0, 0, 0\]\[0\] =",
    ),
    "summary(print_fn=)": (lambda: net().summary(print_fn=print), "file= takes"),
    "Trainer(learning_rate=)": (lambda: anything.Trainer(net(), learning_rate=0.1), r"loom\.TrainingConfig"),
    "trainer.fit": (lambda: anything.Trainer(net()).fit, r"trainer\.step\(x, y\)"),
    "trainer.step(batch)": (lambda: anything.Trainer(net()).step((X, Y)), "a batch is two arguments"),
    "doctor(net)": (lambda: anything.doctor(net()), r"loom\.doctor\(net, \(x, y\), config\)"),
    "result.predict": (lambda: fit().predict, r"net\.predict\(x\)"),
    'history["acc"]': (lambda: fit(metrics=["accuracy"]).history["acc"], 'in loom that is "accuracy"'),
    'history["val_loss"]': (lambda: fit().history["val_loss"], "validation_split= of training"),
    "confusion_matrix(y, p)": (
        lambda: anything.plot.confusion_matrix(Y, Y),
        r"loom\.analysis\.classification\(net",
    ),
    # Files and names.
    "a folder that is not there": (lambda: net().save("no/where/a.loom"), "there is no folder no/where"),
    "a model of the Hub": (lambda: loom.load("openai/gpt9"), "hf download openai/gpt9"),
    "a language model of the Hub": (lambda: loom.text.load("openai/gpt9"), "hf download openai/gpt9"),
    "a language model that is not there": (lambda: loom.text.load("no.gguf"), "no such file here"),
    "an address": (lambda: loom.load("https://example.com/a.loom"), "loom downloads nothing"),
    "load(map_location=)": (lambda: anything.load("a.loom", map_location="cpu"), r"net\.to\(\"gpu\"\) moves"),
    "load(custom_objects=)": (lambda: anything.load("a.loom", custom_objects={}), "once its module is"),
    "loom.zeros": (lambda: anything.zeros(3), r"numpy\.zeros"),
    "loom.mixed_precision": (lambda: anything.mixed_precision, 'precision="mixed"'),
    "loom.set_num_threads": (lambda: anything.set_num_threads(2), "LOOM_NUM_THREADS"),
    "loom.find_lr": (lambda: anything.find_lr, r"loom\.find_rate"),
    "loom.EMA": (lambda: anything.EMA, r"loom\.ExponentialMovingAverage"),
    "loom.to_onnx": (lambda: anything.to_onnx, r"loom\.save_onnx\(net, path\)"),
    "callbacks.ProgressBar": (lambda: anything.callbacks.ProgressBar, "verbose=True of training"),
    "plot.loss": (lambda: anything.plot.loss(None), r"result\.plot\(\)"),
    "analysis.shap": (lambda: anything.analysis.shap, r"loom\.analysis\.saliency"),
}


@pytest.mark.filterwarnings("ignore::loom.DoctorWarning")
@pytest.mark.parametrize("name", TURNS)
def test_a_wrong_turn_is_answered(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    turn, answer = TURNS[name]
    with pytest.raises((loom.LoomError, AttributeError, TypeError, KeyError), match=answer):
        turn()
    assert not any(tmp_path.iterdir())


def test_there_are_enough_of_them() -> None:
    assert len(TURNS) >= 100


SERIES = RNG.normal(size=(40, 24, 6)).astype(np.float32)
WORDS = RNG.integers(0, 50, (40, 24))

# What is not refused, since it may be meant, and warned of.
WARNED: dict[str, tuple[Callable[[], object], str]] = {
    "a Conv1D behind an Embedding": (
        lambda: fit(
            net(
                nn.Embedding(50, 8),
                nn.Dropout(0.1),
                nn.Conv1D(4, kernel_size=3),
                nn.Flatten(),
                nn.Dense(3),
                shape=24,
            ),
            WORDS,
        ),
        r"steps-for-channels .*: Conv1D reads \(channels, length\), but Embedding.*nn\.Permute\(\(1, 0\)\)",
    ),
    "a pool behind an Embedding": (
        lambda: fit(net(nn.Embedding(50, 8), nn.GlobalAvgPool1D(), nn.Dense(3), shape=24), WORDS),
        "steps-for-channels .*: GlobalAvgPool1D reads",
    ),
    "an LSTM behind a Conv1D": (
        lambda: fit(net(nn.Conv1D(4, kernel_size=3), nn.LSTM(8), nn.Dense(3), shape=(24, 6)), SERIES),
        r"steps-for-channels .*: LSTM reads \(steps, features\), but Conv1D before it",
    ),
    "a Conv1D of steps": (
        lambda: fit(net(nn.Conv1D(4, kernel_size=3), nn.Flatten(), nn.Dense(3), shape=(24, 6)), SERIES),
        r"channels-last .*: .*input_shape=\(6, 24\), and np\.swapaxes",
    ),
    "Keras' momentum": (
        lambda: fit(net(nn.Dense(8), nn.BatchNorm(momentum=0.99), nn.Dense(3))),
        r"batchnorm-momentum .*: .*nn\.BatchNorm\(momentum=0\.01\)",
    ),
    "accuracy of measurements": (
        lambda: fit(net(nn.Dense(1)), X, X[:, 0], metrics=["accuracy"]),
        r'accuracy-of-measurements: .*metrics=\["mae", "r2"\]',
    ),
}


@pytest.mark.parametrize("name", WARNED)
def test_what_may_be_meant_is_warned_of(name: str) -> None:
    turn, answer = WARNED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", loom.DoctorWarning)
        warnings.filterwarnings("error", re.split("[ :]", answer)[0], loom.DoctorWarning)
        with pytest.raises(loom.DoctorWarning, match=answer):
            turn()


def test_what_is_in_order_is_not_warned_of() -> None:
    turned = np.swapaxes(SERIES, 1, 2)
    pooled = [nn.MaxPool1D(2), nn.Permute((1, 0)), nn.LSTM(4), nn.Dense(3)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", loom.DoctorWarning)
        fit(net(nn.Conv1D(4, kernel_size=3), *pooled, shape=(6, 24)), turned)
        words = [nn.Embedding(50, 8), nn.Permute((1, 0)), nn.GlobalAvgPool1D(), nn.Dense(3)]
        fit(net(*words, shape=24), WORDS)
        fit(net(nn.Dense(8), nn.BatchNorm(momentum=0.01), nn.Dense(3)))
        fit(net(nn.Dense(1)), X, X[:, 0], metrics=["mae", "r2"])


def test_names_of_one_s_own_stay_one_s_own() -> None:
    class Own(loom.Callback):
        told = 0

        def on_click(self) -> None:
            """No hook, and none is near."""

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.told += 1

    own = Own()
    fit(epochs=2, callbacks=[own])
    assert own.told == 2


def test_descriptions_are_copied_compared_and_pickled_as_before() -> None:
    layer = nn.Dense(3, activation="relu")
    assert pickle.loads(pickle.dumps(layer)) == layer == dataclasses.replace(layer)
    assert dataclasses.replace(layer, units=4).units == 4
    assert pickle.loads(pickle.dumps(loom.Adam(beta1=0.8))) == loom.Adam(beta1=0.8)
    with pytest.raises(dataclasses.FrozenInstanceError):
        layer.units = 4  # type: ignore[misc]
    assert not hasattr(layer, "nothing")
    assert not hasattr(loom.Adam(), "nothing")
