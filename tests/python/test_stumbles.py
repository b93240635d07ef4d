"""What users get wrong at first is refused with a word about what is right; objects say what they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import loom
from loom import nn
from loom.network import Network

X, Y = np.eye(3), np.zeros((3, 2))


@pytest.fixture
def net() -> Network:
    return loom.Sequential([nn.Dense(2)], input_shape=3)


def test_samples_and_targets_as_two_arguments(net: Network) -> None:
    message = r"config must be a loom.TrainingConfig, got ndarray; samples and targets .* \(x, y\)"
    with pytest.raises(loom.ConfigError, match=message):
        net.evaluate(X, Y)  # type: ignore[call-overload]


def test_what_is_no_config_is_refused(net: Network) -> None:
    with pytest.raises(loom.ConfigError, match=r"config must be a loom\.TrainingConfig, got 3"):
        net.evaluate((X, Y), 3)  # type: ignore[arg-type]
    mesh = loom.Mesh(net, window=1)
    with pytest.raises(loom.ConfigError, match=r"config must be a loom\.TweenConfig, got \{\}"):
        loom.Stepper(mesh, tween={})  # type: ignore[arg-type]


def test_one_callback_without_a_list(net: Network) -> None:
    with pytest.raises(loom.ConfigError, match=r"callbacks must be a list of callbacks, got History.*\[ \]"):
        net.fit((X, Y), callbacks=loom.History())  # type: ignore[arg-type]


def test_resume_is_true_or_false(net: Network) -> None:
    with pytest.raises(loom.ConfigError, match=r"train: resume must be True or False, got 'last\.loom'"):
        net.fit((X, Y), resume="last.loom")  # type: ignore[arg-type]
    with pytest.raises(loom.ConfigError, match="Trainer: resume must be True or False"):
        loom.Trainer(net, resume=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("index", ["weight", 0.0, None])
def test_a_layer_in_a_cell_has_a_number(net: Network, index: object) -> None:
    with pytest.raises(loom.CellIndexError, match="addressed by a whole number, got"):
        net[0, 0, 0][index]  # type: ignore[call-overload]


def test_a_schedule_is_no_list() -> None:
    with pytest.raises(loom.ConfigError, match="unknown schedule"):
        loom.TrainingConfig(schedule=["cosine"])  # type: ignore[arg-type]


def test_flags_of_numpy_are_kept_as_python_s() -> None:
    stopping = loom.EarlyStopping(restore_best_weights=np.True_)  # type: ignore[arg-type]
    assert stopping.to_config()["restore_best_weights"] is True


def test_pictures_of_something_else() -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(loom.ConfigError, match="draws a TrainingResult or a History, got 'run'"):
        loom.plot.training_curves("run")  # type: ignore[arg-type]
    with pytest.raises(loom.ConfigError, match="draws a network, its measures or a TweenState, got 'run'"):
        loom.plot.tween("run")  # type: ignore[arg-type]
    with pytest.raises(loom.ConfigError, match="columns must be a positive whole number"):
        loom.plot.predictions(np.zeros((1, 2, 2)), [0], columns=0)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bits", "BitsReport"),
        ("clusters", "Clusters"),
        ("confusion_matrix", "ClassificationReport"),
        ("correlation", "Correlation"),
        ("deviation", "DeviationReport"),
        ("embedding", "Embedding"),
        ("learning_rates", "RateSearch"),
        ("matches", "Matches"),
        ("residuals", "RegressionReport"),
        ("saliency", "Saliency"),
        ("sensitivity", "SensitivityReport"),
        ("similarity", "Similarity"),
        ("top_errors", "ClassErrors"),
    ],
)
def test_pictures_say_what_they_draw(name: str, kind: str) -> None:
    pytest.importorskip("matplotlib")
    more = [X] if name == "clusters" else []
    with pytest.raises(loom.ConfigError, match=rf"{name} draws a {kind}.*, got array"):
        getattr(loom.plot, name)(X, *more)


def test_arguments_that_a_function_does_not_know_are_told_with_those_that_it_knows(net: Network) -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'inputs'; it takes x, batch_size"):
        net.predict(inputs=X)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"samples and targets go in as one argument, \(x, y\)"):
        net.evaluate(x=X, y=Y)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"behind one are loom\.Sequential\(net\.layers\[2:\]"):
        net.cut(start=net.layers[0])  # type: ignore[call-arg]


def test_what_is_served_and_how(net: Network) -> None:
    pytest.importorskip("fastapi")
    for settings in (3, {"rate": 3}):
        with pytest.raises(loom.ConfigError, match=r"settings must be a loom\.serving\.ServingSettings, got"):
            loom.serving.create_app(net, settings)  # type: ignore[arg-type]
    with pytest.raises(loom.ConfigError, match=r"expected a loom\.text\.LanguageModel.*create_app"):
        loom.serving.create_language_app(net)  # type: ignore[arg-type]


def test_sources_of_something_else(net: Network) -> None:
    with pytest.raises(loom.DataError, match=r"stream takes arrays, .* got Network"):
        loom.data.stream(net, Y)  # type: ignore[arg-type]
    with pytest.raises(loom.DataError, match=r"samples takes .* got dict"):
        loom.data.samples({"x": X})


def test_names_before_tensors(tmp_path: Path) -> None:
    for write in (loom.tensors.write_safetensors, loom.tensors.write_gguf):
        with pytest.raises(loom.ConfigError, match=r"arrays by name, .* got .*; the path comes first"):
            write({"x": X}, tmp_path / "x")  # type: ignore[arg-type]
        with pytest.raises(loom.ConfigError, match=r"arrays by name, .* got array"):
            write(tmp_path / "x", X)  # type: ignore[arg-type]


def test_a_text_is_read_by_a_language_model(net: Network) -> None:
    with pytest.raises(loom.ConfigError, match=r"expected a loom\.text\.LanguageModel, .*loom\.text\.load"):
        loom.perplexity(net, "abc")  # type: ignore[arg-type]


def test_numbers_are_no_samples_to_split() -> None:
    with pytest.raises(loom.DataError, match="split: a single number"):
        loom.data.split([1, 2])


@pytest.mark.parametrize(
    "call",
    [
        lambda: loom.export_model(3),  # type: ignore[arg-type]
        lambda: loom.save_gguf(3, "x.gguf"),  # type: ignore[arg-type]
        lambda: loom.to_torch(3),  # type: ignore[arg-type]
        lambda: loom.train(3, (X, Y)),  # type: ignore[arg-type]
        lambda: loom.evaluate(3, (X, Y)),  # type: ignore[arg-type]
        lambda: loom.Trainer(3),  # type: ignore[arg-type]
        lambda: loom.TweenState(3),  # type: ignore[arg-type]
        lambda: loom.Mesh(3),  # type: ignore[arg-type]
        lambda: loom.Session(3, 1),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_network_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(loom.ConfigError, match=r"expected a loom\.Network, got int"):
        call()


def test_one_layer_without_a_list() -> None:
    for layer in (nn.Dense(2), {"type": "flatten"}):
        with pytest.raises(loom.ConfigError, match=r"layers must be a list of layers, got .*\[ \]"):
            loom.Sequential(layer, input_shape=3)  # type: ignore[arg-type]


def test_a_cell_is_no_number(net: Network) -> None:
    for call in (
        lambda: net.link(0, 0),  # type: ignore[arg-type]
        lambda: loom.Mesh(net).output(3),  # type: ignore[arg-type]
        lambda: loom.Mesh(net, window=1).backward({0: Y}),
        lambda: loom.Stepper(loom.Mesh(net, window=1), output=0),  # type: ignore[arg-type]
    ):
        with pytest.raises(loom.CellIndexError, match=r"a cell is addressed as \[depth, row, column\]"):
            call()


def test_a_layer_by_number(net: Network) -> None:
    with pytest.raises(loom.ConfigError, match=r"net\.layers\[-1\] is the layer that is meant"):
        net.cut(until=-1)  # type: ignore[arg-type]


def test_randomness_is_no_global_setting() -> None:
    with pytest.raises(AttributeError, match=r"instead there is seed= of the network"):
        loom.seed  # noqa: B018


def test_states_and_choices_of_another_kind(net: Network) -> None:
    with pytest.raises(loom.ConfigError, match=r"a state is arrays by name, .* got list"):
        net.load_state_dict([X])  # type: ignore[arg-type]
    with pytest.raises(loom.ConfigError, match=r"where is a function that takes a layer .* got 0"):
        net.morph("int8", where=0)  # type: ignore[arg-type]


def test_names_that_are_not_there_have_defaults(net: Network) -> None:
    config = loom.TweenConfig(mode="difference")
    hidden = [nn.Dense(3, activation="tanh") for _ in range(2)]
    deep = loom.Sequential([*hidden, nn.Dense(2)], input_shape=3)
    state = loom.TweenState(deep, config)
    state.step(X, Y)
    assert state.feedback.get("9.9.9.9") is None
    (path, *_) = state.feedback
    assert state.feedback.get(path) is not None
    assert state.feedback[path].get("none", 1) == 1
    assert net[0, 0, 0, 0].parameters.get("none") is None


def test_objects_say_what_they_are(net: Network) -> None:
    assert repr(loom.Trainer(net)).startswith("Trainer(TrainingConfig(")
    assert repr(loom.Stepper(loom.Mesh(net, window=1))).startswith("Stepper(Mesh(rows=1")
    assert repr(loom.CSVLogger("run.csv")) == "CSVLogger('run.csv')"
    assert repr(loom.ModelCheckpoint("run.loom")) == "ModelCheckpoint('run.loom')"
    assert repr(loom.History()) == "History(0 epochs, no logs)"
    assert repr(loom.observers.Recorder()) == "Recorder(0 passes)"
