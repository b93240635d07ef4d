"""Where users of Keras and PyTorch look first, and what they try there: each is told where it is."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn

X = np.random.default_rng(0).normal(size=(12, 4))
Y = np.arange(12) % 3
ROWS = np.zeros

anything: Any = loom
layers: Any = nn


def net(*given: nn.Layer, shape: Any = 4) -> Any:
    return loom.Sequential(given or [nn.Dense(3)], input_shape=shape)


def images() -> Any:
    return net(nn.Conv2D(2, kernel_size=3), shape=(3, 8, 9))


def classifier() -> Any:
    return net(nn.Conv2D(2, kernel_size=3), nn.Flatten(), nn.Dense(3), shape=(3, 8, 9))


def result() -> Any:
    return net().fit(X, Y, verbose=False)


GUESSES: dict[str, tuple[Callable[[], object], str]] = {
    # Shapes of samples.
    "no input_shape": (lambda: anything.Sequential([nn.Dense(3)]), r"input_shape=x\.shape\[1:\]"),
    "Sequential of nothing": (lambda: anything.Sequential(seed=1), r"input_shape=x\.shape\[1:\]"),
    "channels last": (lambda: images().predict(ROWS((5, 8, 9, 3))), r"np\.moveaxis\(x, -1, 1\)"),
    "channels last to fit": (
        lambda: classifier().fit(ROWS((5, 8, 9, 3)), Y[:5]),
        r"np\.moveaxis\(x, -1, 1\)",
    ),
    "an image, channels last": (
        lambda: images().predict(ROWS((8, 9, 3))),
        r"np\.moveaxis\(x, -1, 0\)\[None\]",
    ),
    "channels last in input_shape": (
        lambda: net(nn.Conv2D(2, kernel_size=5), shape=(28, 28, 3)).build(),
        "channels come first: if they are the last extent, 3, put it first in input_shape",
    ),
    "grey images without channels": (
        lambda: net(nn.Flatten(), shape=(1, 8, 8)).predict(ROWS((5, 8, 8))),
        r"x\.reshape\(-1, 1, 8, 8\) brings it there",
    ),
    "flat images": (
        lambda: net(nn.Flatten(), shape=(1, 8, 8)).predict(ROWS((5, 64))),
        r"x\.reshape\(-1, 1, 8, 8\), if its numbers lie in that order",
    ),
    "images for a Dense": (lambda: net(shape=64).predict(ROWS((5, 8, 8))), r"x\.reshape\(-1, 64\), if"),
    "one column without its axis": (lambda: net(shape=1).predict(ROWS(5)), r"x\.reshape\(-1, 1\) brings"),
    "every step's output for one target": (
        lambda: net(nn.GRU(8, return_sequences=True), nn.Dense(1), shape=(24, 1)).fit(
            ROWS((5, 24, 1)), ROWS(5)
        ),
        "return_sequences=False of the last recurrent layer",
    ),
    "layers of another network in a layer": (
        lambda: anything.Sequential([nn.Residual([net().layers[0]])], input_shape=4),
        r"net\[0, 0, 0\]\.add\(layer\).* layer\.config",
    ),
    "features before steps": (
        lambda: net(nn.LSTM(2), shape=(20, 6)).predict(ROWS((5, 6, 20))),
        r"np\.swapaxes\(x, 1, 2\)",
    ),
    # Numeric types.
    'morph("fp16")': (lambda: net().morph("fp16"), 'in loom that is "float16"'),
    'morph("half")': (lambda: net().morph("half"), 'in loom that is "float16"'),
    'morph("bf16")': (lambda: net().morph("bf16"), 'in loom that is "bfloat16"'),
    'morph("8bit")': (lambda: net().morph("8bit"), 'in loom that is "int8"'),
    # Modules and functions of others.
    "loom.layers.Dense": (lambda: anything.layers.Dense(3), r"loom\.nn\.Dense is what is meant"),
    "loom.layers.MaxPooling2D": (lambda: anything.layers.MaxPooling2D(2), r"loom\.nn\.MaxPool2D is what"),
    "loom.keras.layers": (lambda: anything.keras.layers, r"instead there is loom\.nn"),
    "loom.applications": (lambda: anything.applications.ResNet50, r"loom\.from_torch\(module, example\)"),
    "loom.from_keras": (lambda: anything.from_keras("a.keras"), r'loom\.load\("model\.keras"\)'),
    "loom.regularizers": (lambda: anything.regularizers.l2(0.1), r"regularizers= of training"),
    "loom.is_gpu_available": (lambda: anything.is_gpu_available, r"loom\.devices\(\) lists"),
    "GradientTape": (lambda: anything.GradientTape, r"net\.backward\(gradient\)"),
    "activations.relu": (lambda: anything.activations.relu(X), 'activation="relu" of a layer'),
    "initializers.HeNormal": (lambda: anything.initializers.HeNormal, 'weight_initializer="he_normal"'),
    "optimizers.schedules": (lambda: anything.optimizers.schedules.CosineDecay, r"there is loom\.schedules"),
    "metrics.CategoricalAccuracy": (
        lambda: anything.metrics.CategoricalAccuracy,
        r"loom\.metrics\.Accuracy",
    ),
    "plot.history": (lambda: anything.plot.history(None), r"loom\.plot\.training_curves"),
    "analysis.confusion_matrix": (
        lambda: anything.analysis.confusion_matrix(Y, Y),
        r"loom\.plot\.confusion_matrix",
    ),
    "text.pipeline": (lambda: anything.text.pipeline("chat"), r"loom\.text\.load\(folder\)\.generate"),
    "sklearn.MLPClassifier": (lambda: anything.sklearn.MLPClassifier, r"loom\.sklearn\.LoomClassifier"),
    "a misspelled name": (
        lambda: anything.sklearn.LoomClassifer,
        r"did you mean loom\.sklearn\.LoomClassifier\?",
    ),
    # Calls.
    "predict(verbose=0)": (
        lambda: net().predict(X, verbose=0),
        "verbose'; leave it out: only training tells",
    ),
    "evaluate(verbose=0)": (lambda: net().evaluate((X, Y), verbose=0), "verbose'; leave it out"),
    "summary(line_length=80)": (lambda: net().summary(line_length=80), "line_length'; leave it out"),
    "save()": (lambda: net().save(), r'net\.save\("model\.loom"\)'),
    "train(epochs=3)": (
        lambda: anything.train(net(), (X, Y), epochs=3),
        r"loom\.TrainingConfig\(epochs=\.\.\.\)",
    ),
    "Network(device=)": (lambda: anything.Network(4, device="gpu"), r'device\'; net\.to\("gpu"\)'),
    "Network(metrics=)": (lambda: anything.Network(4, metrics=["mae"]), r"TrainingConfig\(metrics=\.\.\.\)"),
    "Sequential(saved_activations=)": (
        lambda: anything.Sequential([nn.Dense(1)], input_shape=4, saved_activations="float16"),
        r"TrainingConfig\(saved_activations=\.\.\.\)",
    ),
    # What comes back.
    "result.epoch": (lambda: result().epoch, r"len\(result\.loss_history\)"),
    "result.val_loss": (lambda: result().val_loss, r'result\.history\["val_loss"\]'),
    "result.history.history": (lambda: result().history.history, r'result\.history\["loss"\]'),
    "layer.get_weights": (
        lambda: net().layers[0].get_weights,
        r"instead there is layer\.parameters, by name",
    ),
    "layer.kernel": (lambda: net().layers[0].kernel, r"instead there is layer\.weight"),
}


@pytest.mark.parametrize("name", GUESSES)
def test_a_first_guess_is_answered(name: str) -> None:
    guess, answer = GUESSES[name]
    with pytest.raises((loom.LoomError, AttributeError, TypeError), match=answer):
        guess()


def test_names_that_would_fill_pages_are_cut() -> None:
    with pytest.raises(loom.ConfigError, match=r"\.\.\. \(\d{3} names\)$") as told:
        loom.signature("MixtureOfExperts")
    assert len(str(told.value)) < 1200


def test_the_loss_of_an_output_in_a_history() -> None:
    network = loom.Network(4, grid=(1, 2), seed=0)
    network[0, 0].add(nn.Dense(3, activation="tanh"))
    network[0, 1].add(nn.Dense(1))
    y = {"a": X[:, :3], "b": X[:, :1]}
    network.output("a", (0, 0)).output("b", (0, 1))
    with pytest.raises(
        KeyError, match=r'if "a" is an output, its loss is measured in validation, as val_a_loss'
    ):
        network.fit(X, y, loss="mse", verbose=False).history["a_loss"]
    trained = network.fit(X, y, loss="mse", validation_data=(X, y), verbose=False)
    assert trained.history["val_a_loss"][0] > 0


def test_what_the_hints_say_works() -> None:
    x = np.random.default_rng(1).normal(size=(5, 8, 9, 3))
    assert images().predict(np.moveaxis(x, -1, 1)).shape == (5, 2, 6, 7)
    np.testing.assert_array_equal(
        images().predict(np.moveaxis(x[0], -1, 0)[None]), images().predict(np.moveaxis(x, -1, 1)[:1])
    )
    assert [entry.kind for entry in loom.layers()] == sorted(entry.kind for entry in loom.layers())


def test_what_a_function_gets_wrong_itself_is_not_told_as_a_call() -> None:
    class Broken:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray[Any, Any]:
            raise TypeError("got an unexpected keyword argument 'verbose'")

    with pytest.raises((TypeError, loom.LoomError)) as told:
        net().predict(Broken())
    assert "leave it out" not in str(told.value)


def test_a_history_is_a_dictionary_as_any() -> None:
    trained = result()
    history = trained.history
    assert history == {"loss": trained.loss_history}
    assert json.loads(json.dumps(history)) == history
    for again in (copy.deepcopy(history), pickle.loads(pickle.dumps(history))):
        assert type(again) is dict
        assert again == history
    assert pickle.loads(pickle.dumps(trained)) == trained == copy.deepcopy(trained)


def test_folders_say_which_network_is_meant(tmp_path: Path) -> None:
    def told(folder: Path) -> str:
        with pytest.raises(loom.FileError) as error:
            loom.load(folder)
        return str(error.value)

    assert "a folder without a network" in told(tmp_path)
    net().save(tmp_path / "a.loom")
    assert f"the network in it is {tmp_path / 'a.loom'}" in told(tmp_path)
    net().save(tmp_path / "b.loom")
    assert "a folder with 2 networks (a.loom, b.loom)" in told(tmp_path)
    run = tmp_path / "run"
    net().fit(X, Y, epochs=2, verbose=False, device="cpu", run=run)
    said = told(run)
    assert "the folder of a run" in said
    (named,) = [run / name for name in ("best.loom", "final.loom") if str(run / name) in said]
    assert loom.load(named).output_shape == (3,)


def test_nothing_of_the_desktop_is_told_where_there_is_none() -> None:
    program = "import os, loom; print(len(loom.devices())); print(os.environ.get('XDG_RUNTIME_DIR'))"
    surroundings = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=surroundings, capture_output=True, text=True, check=True
    )
    assert "XDG_RUNTIME_DIR" not in done.stderr
    assert done.stdout.splitlines()[-1] == "None"


def test_threads_that_look_for_devices_leave_the_surroundings_as_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from loom.device import _QUIET

    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with _QUIET:
        # Another thread that ends while this one looks.
        other = Thread(target=_QUIET.__enter__)
        other.start()
        other.join()
        _QUIET.__exit__()
        assert os.environ["XDG_RUNTIME_DIR"] == "/"
    assert "XDG_RUNTIME_DIR" not in os.environ
