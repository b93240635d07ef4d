"""What cannot be right is refused: the right exception, a message that helps, nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from named_outputs import samples, three_heads
from networks import blobs, cnn, mlp, quiet, weights

X, Y = blobs(rows=40)


def nan_in(array: Any, row: int) -> Any:
    changed = np.array(array, np.float64)
    changed[row] = np.nan
    return changed


def train(net: loom.Network, *data: Any, **settings: Any) -> object:
    return loom.train(net, data, quiet(**settings))


def validate(net: loom.Network, *data: Any) -> object:
    return loom.train(net, (X, Y), quiet(), validation=data)


PREDICT: list[tuple[Callable[[loom.Network], object], type[Exception], str]] = [
    (lambda net: net.predict(np.ones((2, 5))), loom.ShapeError, r"\(2, 5\), expected \(batch, 6"),
    (lambda net: net.predict(np.ones(6)), loom.ShapeError, r"for one sample add a batch axis"),
    (lambda net: net.predict(3.0), loom.ShapeError, "expected"),
    (lambda net: net.predict(np.ones((0, 6))), loom.InvalidValueError, "no rows"),
    (lambda net: net.predict(nan_in(X, 3)), loom.NonFiniteError, "first in row 3"),
    (lambda net: net.predict(np.full((1, 6), 1e300)), loom.NonFiniteError, "beyond float32"),
    (lambda net: net.predict([["a"] * 6]), loom.DTypeError, "expected real numbers"),
    (lambda net: net.predict(np.ones((2, 6), complex)), loom.DTypeError, "complex128"),
    (lambda net: net.predict([[1.0], [1.0, 2.0]]), loom.ShapeError, "different lengths"),
    (lambda net: net.predict(np.array([object()] * 6)), loom.DTypeError, "object"),
    (lambda net: net.predict(X, batch_size=0), loom.ConfigError, "batch_size must be a positive whole"),
    (lambda net: net.predict(X, batch_size=-3), loom.ConfigError, "batch_size"),
    (lambda net: net.predict(X, batch_size=2.5), loom.ConfigError, "batch_size"),
    (lambda net: net.forward(np.ones((2, 5))), loom.ShapeError, "expected"),
    (lambda net: net.forward(X, training="yes"), loom.ConfigError, "True or False"),
]

ADDRESS: list[tuple[Callable[[loom.Network], object], type[Exception], str]] = [
    (lambda net: net[0, 0, 5], loom.CellIndexError, "column 5 is outside the grid"),
    (lambda net: net[1, 0, 0], loom.CellIndexError, "depth 1"),
    (lambda net: net[0, -3], loom.CellIndexError, "column -3 is outside"),
    (
        lambda net: net[0, 0, 0, 7],
        loom.CellIndexError,
        r"cell \(0, 0, 0\) has 2 layers, so there is no layer 7",
    ),
    (lambda net: net[0, 0][2], loom.CellIndexError, "no layer 2"),
    (lambda net: net[0], loom.CellIndexError, r"\[depth, row, column\]"),
    (lambda net: net["a"], loom.CellIndexError, r"\[depth, row, column\]"),
    (lambda net: net[0, 0, 0.5], loom.CellIndexError, r"\[depth, row, column\]"),
]

DATA: list[tuple[Callable[[loom.Network], object], type[Exception], str]] = [
    (lambda net: train(net, X[:, :5], Y), loom.ShapeError, r"input has shape \(40, 5\)"),
    (lambda net: train(net, X, Y[:-1]), loom.DataError, "40 samples but the target's shape is"),
    (lambda net: train(net, X, Y + 1), loom.InvalidValueError, "3"),
    (lambda net: train(net, X, Y - 1), loom.InvalidValueError, "-1"),
    (lambda net: train(net, X, Y.astype(float)), loom.DTypeError, "class indices must be integers"),
    (lambda net: train(net, X, np.eye(4)[Y]), loom.ShapeError, r"\(rows, 3\)"),
    (lambda net: train(net, X, ["a"] * 40), loom.DataError, r"1 labels \(a\).* tells 3 classes"),
    (lambda net: train(net, X, [2**70] * 40), loom.DataError, "does not fit 64 bits"),
    (lambda net: train(net, X[:0], Y[:0]), loom.DataError, "no samples"),
    (
        lambda net: train(net, nan_in(X, 7), Y),
        loom.NonFiniteError,
        "input holds NaN or infinity, first in row 7",
    ),
    (lambda net: train(net, X, nan_in(np.eye(3)[Y], 2)), loom.NonFiniteError, "target"),
    (lambda net: train(net, X, nan_in(np.eye(3)[Y], 2), loss="mse"), loom.NonFiniteError, "target"),
    (lambda net: train(net, X, Y, loss="mse"), loom.ShapeError, r"\(rows, 3\)"),
    (lambda net: train(net, X, Y, np.ones(39)), loom.DataError, r"weight must be \(40,\)"),
    (lambda net: train(net, X, Y, -np.ones(40)), loom.InvalidValueError, "at least 0"),
    (lambda net: train(net, X, Y, nan_in(np.ones(40), 5)), loom.InvalidValueError, "row 5"),
    (
        lambda net: train(net, X, Y, class_weight={3: 1.0}),
        loom.ConfigError,
        "class 3, but there are 3 classes",
    ),
    (lambda net: train(net, X, Y, class_weight=[1.0]), loom.ConfigError, "1 weights"),
    (lambda net: train(net, X, Y, validation_split=0.001), loom.DataError, "both need at least one"),
    (lambda net: loom.train(net, [], quiet()), loom.DataError, "no batches"),
    (lambda net: loom.train(net, "digits", quiet()), loom.DataError, "data must be a tuple"),  # type: ignore[arg-type]
    (lambda net: loom.train(net, X, quiet()), loom.DataError, "data must be a tuple"),  # type: ignore[arg-type]
    (lambda net: loom.train(net, [(X, Y)], quiet(validation_split=0.5)), loom.DataError, "give validation="),
    (lambda net: loom.train(net, (X, Y), {"epochs": 1}), loom.ConfigError, "must be a loom.TrainingConfig"),  # type: ignore[arg-type]
    (lambda net: loom.train(net, (X, Y), quiet(), callbacks=[print]), loom.ConfigError, "must derive"),  # type: ignore[list-item]
    (lambda net: validate(net, X[:, :4], Y), loom.ShapeError, "input has shape"),
    (lambda net: validate(net, X, Y + 1), loom.InvalidValueError, "3"),
    (lambda net: validate(net, nan_in(X, 1), Y), loom.NonFiniteError, "row 1"),
    (lambda net: net.evaluate((X, Y + 5), quiet()), loom.InvalidValueError, "7|classes"),
    (lambda net: net.evaluate((X, Y), loss="crossentropi"), loom.ConfigError, 'did you mean "cross'),
    (
        lambda net: net.evaluate((X, Y), quiet(), metrics=["acuracy"]),
        loom.ConfigError,
        'did you mean "accuracy"',
    ),
    # What is callable, but not with outputs and targets.
    (lambda net: net.evaluate((X, Y), quiet(), metrics=[len]), loom.ConfigError, "len. cannot be called"),
    (lambda net: net.evaluate((X, Y), quiet(), metrics=[int]), loom.ConfigError, "int. cannot be called"),
    (lambda net: net.evaluate((X, Y), quiet(), metrics=[zip]), loom.ConfigError, "zip. must return a number"),
]

ASSIGN: list[tuple[Callable[[loom.Network], object], type[Exception], str]] = [
    (lambda net: setattr(net[0, 0, 0, 0], "weight", np.ones((6, 24))), loom.ShapeError, r"\(24, 6\)"),
    (lambda net: setattr(net[0, 0, 0, 0], "bias", nan_in(np.ones(24), 2)), loom.NonFiniteError, "layer 0"),
    (lambda net: setattr(net[0, 0, 0, 0], "bias", ["x"] * 24), loom.DTypeError, r"0\.0\.0\.0\.bias"),
    (lambda net: setattr(net[0, 0, 0, 0], "trainable", 1), loom.ConfigError, "True or False"),
]


@pytest.mark.parametrize(("call", "error", "message"), PREDICT + ADDRESS + DATA + ASSIGN)
def test_it_is_refused_and_nothing_has_changed(
    call: Callable[[loom.Network], object], error: type[Exception], message: str
) -> None:
    net = mlp()
    before, config, expected = weights(net), net.config, net.predict(X)
    with pytest.raises(error, match=message) as raised:
        call(net)
    assert isinstance(raised.value, loom.LoomError)
    assert weights(net) == before
    assert net.config == config
    np.testing.assert_array_equal(net.predict(X), expected)
    assert loom.train(net, (X, Y), quiet()).stop_reason == "finished"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a positive whole number, got 0"),
        ({"epochs": -1}, "epochs"),
        ({"optimizer": "adamv"}, "did you mean"),
        ({"loss": "mes"}, 'did you mean "mse"'),
        ({"schedule": "cosin"}, 'did you mean "cosine"'),
        ({"metrics": ["accurcy"]}, 'did you mean "accuracy"'),
        ({"seed": 2**64}, "seed"),
        ({"accumulate": 0}, "accumulate"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(loom.ConfigError, match=message):
        loom.TrainingConfig(**settings)


def test_batches_that_do_not_fit_end_training_between_steps() -> None:
    net = mlp()
    for bad, error in (((X[:, :5], Y), loom.ShapeError), ((X, Y + 9), loom.InvalidValueError)):
        seen: list[bytes] = []
        watcher = loom.LambdaCallback(on_batch_end=lambda *_, seen=seen: seen.append(weights(net)))
        with pytest.raises(error):
            loom.train(net, [(X, Y), bad], quiet(), callbacks=[watcher])
        assert weights(net) == seen[-1]
    with pytest.raises(loom.DataError, match="one kind only"):
        loom.train(net, [(X, Y), (X, np.eye(3)[Y])], quiet())


def test_gradients_that_are_not_finite_never_land() -> None:
    net = loom.Sequential([nn.Dense(2), nn.Dense(2)], input_shape=2)
    for layer in net.layers:
        layer.weight = np.full((2, 2), 1e18)
    before = weights(net)
    x = np.full((2, 2), 1e18, np.float32)
    config = quiet(loss="mse", gradient_clip=1.0, ignore_findings="unscaled-inputs")
    with pytest.raises(loom.NonFiniteError):
        loom.train(net, (x, np.zeros((2, 2))), config)
    assert weights(net) == before


def test_images_of_the_wrong_layout_are_refused() -> None:
    with pytest.raises(loom.ShapeError, match=r"\(5, 8, 8, 1\), expected \(batch, 1, 8, 8"):
        cnn().predict(np.zeros((5, 8, 8, 1)))


def ensemble() -> loom.analysis.Ensemble:
    return loom.analysis.Ensemble([mlp(), mlp()])


PATHS: dict[str, Callable[[Any], object]] = {
    "save": lambda path: mlp().save(path),
    "save_safetensors": lambda path: mlp().save_safetensors(path),
    "save_adapter": lambda path: mlp().add_adapter("a").save_adapter(path, "a"),
    "load": loom.load,
    "inspect": loom.inspect,
    "open_tensors": loom.open_tensors,
    "Mesh.save": lambda path: loom.Mesh(mlp()).save(path),
    "Mesh.load": loom.Mesh.load,
    "Ensemble.save": lambda path: ensemble().save(path),
    "Ensemble.load": loom.analysis.Ensemble.load,
    "Receipt.load": loom.Receipt.load,
    "TweenState.save": lambda path: loom.TweenState(mlp()).save(path),
    "load_adapter": lambda path: mlp().load_adapter(path),
    "from_hub": loom.models.from_hub,
    "text.load": loom.text.load,
    "write_safetensors": lambda path: loom.tensors.write_safetensors(path, {"x": np.ones(2)}),
    "image_folder": loom.data.image_folder,
    "run": lambda path: loom.train(mlp(), (X, Y), quiet(), run=path),
    "CSVLogger": loom.CSVLogger,
    "TensorBoard": loom.TensorBoard,
    "RunRecorder": loom.RunRecorder,
    "read_run": loom.read_run,
    "mnist": loom.datasets.mnist,
    "column_files": lambda path: loom.data.column_files(path, "y"),
    "read_idx": loom.datasets.read_idx,
}


@pytest.mark.parametrize("name", PATHS)
def test_what_no_file_can_be_called_is_refused(name: str) -> None:
    for path in (3, 1.5, b"x", ["x"], (), {}, object(), "x\0y", "\ud800", "x" * 300):
        with pytest.raises(loom.LoomError) as raised:
            PATHS[name](path)
        refused = (loom.ConfigError, loom.InvalidValueError, loom.SerializationError)
        # Of files by columns there may be several, or none, and they may not be there.
        assert isinstance(raised.value, (*refused, loom.DataError, loom.FileError)), raised.value


def test_devices_without_an_end_are_not_read() -> None:
    reading = [loom.load, loom.open_tensors, loom.inspect, loom.Receipt.load, loom.analysis.Ensemble.load]
    for read in [*reading, loom.Mesh.load, loom.models.from_hub, loom.text.load]:
        with pytest.raises((loom.FileError, loom.SerializationError, loom.ConfigError)):
            read("/dev/zero")


def test_lines_that_cannot_be_written_are_told() -> None:
    with pytest.raises(loom.FileError, match="CSVLogger cannot write: No space left"):
        loom.train(mlp(), (X, Y), quiet(epochs=1), callbacks=[loom.CSVLogger("/dev/full")])


def test_names_of_weights_that_are_none_are_refused() -> None:
    net = mlp()
    before = weights(net)
    for key in (3, None, 1.5, b"weight"):
        with pytest.raises(loom.ConfigError, match="is no name"):
            net.load_state_dict({**net.state_dict(), key: np.ones(2)})  # type: ignore[dict-item]
    assert weights(net) == before


RAGGED = [np.ones((3, 4)), np.ones((3, 5))]
DEEP: list[tuple[Callable[[loom.Network], object], type[Exception], str]] = [
    (lambda net: loom.train(net, [(X, Y), (X, 5)], quiet()), loom.DataError, "target"),
    (lambda net: net.input_gradients(X, target=RAGGED), loom.ConfigError, "whole number for each axis"),
    (lambda net: net.evaluate((X, Y), loss=[np.ones((2, 4))]), loom.ConfigError, "loss"),
    (lambda net: net.evaluate((X, Y), loss="mse", metrics=RAGGED), loom.ConfigError, "metric"),
]


@pytest.mark.parametrize("number", range(len(DEEP)))
def test_arrays_where_none_belong_are_refused_in_words(number: int) -> None:
    call, error, message = DEEP[number]
    with pytest.raises(error, match=message):
        call(mlp())


def test_targets_of_all_samples_are_by_name_where_outputs_are() -> None:
    x, y = samples()
    config = loom.TrainingConfig(loss={"kind": "cross_entropy", "age": "mse", "place": "mse"})
    for wrong in (5, {"kind": y["kind"]}):
        with pytest.raises(loom.DataError, match="target"):
            loom.LBFGS(three_heads(), config).fit(x, wrong)
