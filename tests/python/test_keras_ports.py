"""Models of Keras with several inputs and outputs, and what they say of training (`tests/golden`)."""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom.models.keras.calls import Tensor, calls_of, ends_of

h5py = pytest.importorskip("h5py")
FOLDER = Path(__file__).parents[1] / "golden" / "keras_ports"
FILES = sorted(path.name for path in FOLDER.iterdir() if path.suffix != ".npz")
Arrays = dict[str, NDArray[Any]]


def told(name: str, what: str) -> Arrays:
    """What a model reads (x), or makes (y), by name."""
    with np.load(FOLDER / "values.npz") as values:
        begin = f"{name.partition('.')[0]}.{what}."
        return {key.removeprefix(begin): values[key] for key in values.files if key.startswith(begin)}


def loaded(path: Path) -> tuple[loom.Network, str]:
    """A network, and what reading its file has warned of."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        net = loom.load(path)
    return net, "\n".join(str(warning.message) for warning in seen)


def changed(path: Path, to: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A model with another configuration."""
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(held["config.json"])
    change(config)
    held["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(to, "w") as archive:
        for name, data in held.items():
            archive.writestr(name, data)
    return to


def setting(layer: str, **settings: object) -> Callable[[dict[str, Any]], None]:
    """What changes settings of a layer."""

    def change(config: dict[str, Any]) -> None:
        held = {each["config"]["name"]: each for each in config["config"]["layers"]}
        held[layer]["config"].update(settings)

    return change


@pytest.mark.parametrize("name", FILES)
def test_a_model_makes_of_its_inputs_what_keras_made(name: str) -> None:
    net, _ = loaded(FOLDER / name)
    x, y = told(name, "x"), told(name, "y")
    found = net.predict(x if len(x) > 1 else next(iter(x.values())))
    if len(y) > 1:
        assert sorted(found) == sorted(y)
    else:
        found = dict(zip(y, [found], strict=True))
    for output, expected in y.items():
        np.testing.assert_allclose(found[output], expected, rtol=1e-5, atol=1e-5)


def test_inputs_and_outputs_have_keras_s_names_and_train() -> None:
    net, warned = loaded(FOLDER / "towers.keras")
    assert sorted(entry.name for entry in net.config.inputs) == ["film", "table", "user"]
    assert [entry.name for entry in net.config.outputs] == ["kind", "stars"]
    assert not warned
    x, rng = told("towers", "x"), np.random.default_rng(0)
    y = {"stars": rng.normal(size=3), "kind": np.array([0, 2, 1])}
    loss = {"stars": "mse", "kind": "cross_entropy"}
    before = net.evaluate((x, y), loss=loss)["loss"]
    net.fit(x, y, epochs=20, learning_rate=1e-2, loss=loss, verbose=False)
    assert net.evaluate((x, y), loss=loss)["loss"] < 0.8 * before


def test_what_reads_a_network_reads_it_with_ports(tmp_path: Path) -> None:
    net, _ = loaded(FOLDER / "twins.keras")
    net.save(tmp_path / "twins.loom")
    again, x = loom.load(tmp_path / "twins.loom"), told("twins", "x")
    for name, array in net.predict(x).items():
        np.testing.assert_array_equal(again.predict(x)[name], array)


def test_branches_that_are_not_nested_are_cells() -> None:
    net, warned = loaded(FOLDER / "crossed.keras")
    assert len(net.config.links) > 1
    assert not net.config.outputs
    assert not warned


def test_models_that_are_called_twice_are_copies_and_said_to_be() -> None:
    _, warned = loaded(FOLDER / "twins.keras")
    assert "called several times" in warned
    assert "conv2d: 0.0.0." in warned


def test_layers_are_trained_as_keras_trains_them() -> None:
    """A step of SGD moves what it moves there, with the penalties that the warning tells."""
    net, warned = loaded(FOLDER / "taught.keras")
    frozen = [layer.path for layer in net.layers if not layer.trainable and layer.parameters]
    assert [net[tuple(map(int, path.split(".")))].kind for path in frozen] == ["dense", "residual"]
    penalties = {"0.0.0.0.weight": {"l1": 0.02, "l2": 0.05}, "0.0.0.5.bias": {"l2": 0.01}}
    given = json.loads(warned.partition("regularizers=")[2].splitlines()[0].replace("'", '"'))
    assert given == penalties
    assert "kernel_constraint MaxNorm; loom.MaxNorm is a callback of training (dense_1)" in warned
    (x,) = told("taught", "x").values()
    with np.load(FOLDER / "values.npz") as values:
        expected = values["taught.after"]
    settings = {"optimizer": "sgd", "learning_rate": 0.1, "loss": "mse", "epochs": 1, "batch_size": 3}
    net.fit(x, np.ones((3, 2)), regularizers=given, shuffle=False, verbose=False, **settings)
    np.testing.assert_allclose(net.predict(x), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "settings", "line"),
    [
        (
            "dense",
            {"activity_regularizer": {"class_name": "L2", "config": {"l2": 0.1}}},
            "what it makes (dense)",
        ),
        (
            "dense",
            {"kernel_regularizer": {"class_name": "OrthogonalRegularizer", "config": {"factor": 0.1}}},
            "kernel_regularizer OrthogonalRegularizer: training takes l1 and l2",
        ),
        (
            "dense",
            {"bias_constraint": {"class_name": "NonNeg", "config": {}}},
            "bias_constraint NonNeg (dense)",
        ),
        (
            "dense",
            {"dtype": {"class_name": "DTypePolicy", "config": {"name": "float16"}}},
            "weights in float16",
        ),
    ],
)
def test_what_is_left_behind_is_told(
    tmp_path: Path, layer: str, settings: Mapping[str, Any], line: str
) -> None:
    path = changed(FOLDER / "taught.keras", tmp_path / "model.keras", setting(layer, **settings))
    assert line in loaded(path)[1]


@pytest.mark.parametrize(
    ("policy", "precision"),
    [("float32", "float32"), ("mixed_float16", "mixed"), ("mixed_bfloat16", "mixed"), ("float64", "float64")],
)
def test_policies_of_types_are_the_network_s_precision(tmp_path: Path, policy: str, precision: str) -> None:
    def change(config: dict[str, Any]) -> None:
        for each in config["config"]["layers"]:
            each["config"]["dtype"] = {"class_name": "DTypePolicy", "config": {"name": policy}}

    path = changed(FOLDER / "taught.keras", tmp_path / "model.keras", change)
    assert loaded(path)[0].precision == precision


def test_weights_of_bfloat16_are_read(tmp_path: Path) -> None:
    path = tmp_path / "model.h5"
    path.write_bytes((FOLDER.parent / "keras" / "arithmetic.h5").read_bytes())
    expected = loom.load(path).state_dict()
    names: list[str] = []
    with h5py.File(path, "r+") as file:
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        for name in names:
            array = file[name][...]
            del file[name]
            file[name] = (array.view("<u4") >> 16).astype("<u2").view("V2")
    for name, array in loom.load(path).state_dict().items():
        assert np.array_equal(array.view(np.uint32), expected[name].view(np.uint32) & 0xFFFF0000)


def test_recurrent_dropout_state_and_frozen_statistics_are_told(tmp_path: Path) -> None:
    file = FOLDER.parent / "keras" / "lstm.keras"
    change = setting("lstm_1", dropout=0.2, recurrent_dropout=0.1, stateful=True)
    warned = loaded(changed(file, tmp_path / "model.keras", change))[1]
    assert "dropout 0.2 of a recurrent layer" in warned
    assert "recurrent_dropout 0.1" in warned
    assert "stateful" in warned
    file, change = (
        FOLDER.parent / "keras" / "perceptron.keras",
        setting("batch_normalization", trainable=False),
    )
    net, warned = loaded(changed(file, tmp_path / "model.keras", change))
    assert "in inference while its weights are frozen" in warned
    assert [layer.kind for layer in net.layers if not layer.trainable] == ["batch_norm"]


def test_recurrent_layers_move_one_bias_as_keras_does() -> None:
    net, _ = loaded(FOLDER.parent / "keras" / "rnn.keras")
    x, y = np.random.default_rng(0).normal(size=(4, 6, 4)), np.ones((4, 2))
    before = net.state_dict()
    net.fit(x, y, epochs=1, optimizer="sgd", learning_rate=0.1, loss="mse", verbose=False)
    moved = {name for name, array in net.state_dict().items() if not np.array_equal(array, before[name])}
    assert {"0.0.0.0.bias_ih_l0", "0.0.0.1.bias_ih_l0"} < moved
    assert not any("bias_hh" in name for name in moved)
    gru, _ = loaded(FOLDER.parent / "keras" / "gru.keras")  # which has two there, too
    assert [layer.frozen for layer in gru.layers if layer.kind == "gru"] == [(), ()]


def test_a_model_that_is_not_trained_has_no_layer_that_is(tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["config"]["trainable"] = False

    net, _ = loaded(changed(FOLDER / "crossed.keras", tmp_path / "model.keras", change))
    assert not any(layer.trainable for layer in net.layers if layer.parameters)


def test_an_input_that_nothing_reads_is_refused_by_name(tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["config"]["output_layers"] = [["flatten", 0, 0]]

    path = changed(FOLDER / "towers.keras", tmp_path / "model.keras", change)
    with pytest.raises(loom.ConfigError, match="no output is computed from the input film, table"):
        loom.load(path)


def test_sequences_of_any_length_are_read(tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["config"]["layers"][0]["config"]["batch_shape"] = [None, None, 4]

    file = FOLDER.parent / "keras" / "gru.keras"
    net, _ = loaded(changed(file, tmp_path / "model.keras", change))
    x = np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float32)
    assert net.input_shape == (None, 4)
    np.testing.assert_allclose(net.predict(x), loom.load(file).predict(x), rtol=1e-5, atol=1e-6)
    assert net.predict([x[0], x[1, :3]]).shape == (2, 4)


def test_images_of_any_size_are_refused(tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["config"]["layers"][0]["config"]["batch_shape"] = [None, None, None, 2]

    path = changed(FOLDER.parent / "keras" / "image.keras", tmp_path / "model.keras", change)
    with pytest.raises(loom.ConfigError, match="build it with an Input of a fixed shape"):
        loom.load(path)


def test_a_dot_of_pictures_says_what_to_do(tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        held = {each["config"]["name"]: each for each in config["config"]["layers"]}
        held["subtract"].update(class_name="Dot", config={"name": "subtract", "axes": 1, "trainable": True})
        node = held["subtract"]["inbound_nodes"][0]["args"][0]
        for tensor, name in zip(node, ("left", "right"), strict=True):
            tensor["config"]["keras_history"] = [name, 0, 0]

    path = changed(FOLDER / "twins.keras", tmp_path / "model.keras", change)
    with pytest.raises(
        loom.ConfigError, match=r"Dot of values of 3 and 3 axes: here of 1 or 2.*\(subtract\)"
    ):
        loom.load(path)


def node(*tensors: tuple[str, int, int]) -> dict[str, Any]:
    """A call of Keras 3."""
    held = [{"class_name": "__keras_tensor__", "config": {"keras_history": list(each)}} for each in tensors]
    return {"args": [held], "kwargs": {}}


def test_attention_reads_what_its_arguments_say_however_they_are_given() -> None:
    """Also of Keras 2, which tells keys and masks among the settings of a call."""
    start = [{"class_name": "InputLayer", "config": {"name": name}, "inbound_nodes": []} for name in "abm"]
    tensors = {name: node((name, 0, 0))["args"][0][0] for name in "abm"}
    new = {"args": [], "kwargs": {"value": tensors["b"], "query": tensors["a"], "query_mask": tensors["m"]}}
    old = [["a", 0, 0, {"value": ["b", 0, 0], "query_mask": ["m", 0, 0], "training": False}]]
    for call in (new, old):
        layer = {"class_name": "MultiHeadAttention", "config": {"name": "c"}, "inbound_nodes": [call]}
        config = {"layers": [*start, layer], "output_layers": [["c", 0, 0]]}
        *_, made = calls_of({"class_name": "Functional", "config": config})
        assert list(made.reads.values()) == [Tensor("a"), Tensor("b")]
        assert list(made.masks) == [Tensor("m")]


def test_attention_to_others_is_not_causal(tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        held = {each["config"]["name"]: each for each in config["config"]["layers"]}
        held["multi_head_attention"]["inbound_nodes"][0]["kwargs"]["use_causal_mask"] = True

    path = changed(FOLDER / "attending.keras", tmp_path / "model.keras", change)
    with pytest.raises(
        loom.ConfigError, match=r"use_causal_mask .* to another value \(multi_head_attention\)"
    ):
        loom.load(path)


def test_masks_that_calls_name_are_those_of_their_values_or_refused(tmp_path: Path) -> None:
    """Keras 3 writes down how a mask is computed, and hands it to each call by name."""

    def with_number(number: int) -> Callable[[dict[str, Any]], None]:
        def change(config: dict[str, Any]) -> None:
            layers = config["config"]["layers"]
            (equal,) = (each for each in layers if each["class_name"] == "NotEqual")
            equal["inbound_nodes"][0]["args"][1] = number
            (lstm,) = (each for each in layers if each["class_name"] == "LSTM")
            mask = lstm["inbound_nodes"][0]["kwargs"]["mask"]
            assert mask["config"]["keras_history"][0] == equal["config"]["name"]

        return change

    loaded(changed(FOLDER / "masked.keras", tmp_path / "same.keras", with_number(0)))
    path = changed(FOLDER / "masked.keras", tmp_path / "other.keras", with_number(3))
    with pytest.raises(loom.ConfigError, match="a mask of its own that LSTM is called with"):
        loom.load(path)


def test_calls_of_models_count_from_one_where_keras_does() -> None:
    """Keras 2 counts a call of models inside others before all, Keras 3 where it tells outputs."""
    start = {"class_name": "InputLayer", "config": {"name": "a"}, "inbound_nodes": []}
    for nodes, last in (
        ([node(("a", 0, 0)), node(("a", 0, 0))], node(("inner", 0, 0), ("inner", 1, 0))),
        ([[["a", 0, 0, {}]], [["a", 0, 0, {}]]], [["inner", 1, 0, {}], ["inner", 2, 0, {}]]),
    ):
        inner = {
            "class_name": "Functional",
            "config": {"name": "inner", "layers": []},
            "inbound_nodes": nodes,
        }
        add = {"class_name": "Add", "config": {"name": "add"}, "inbound_nodes": [last]}
        ends = [["add", 0, 0], ["inner", 1, 0], ["inner", 2, 0]]
        config = {"layers": [start, inner, add], "input_layers": [["a", 0, 0]], "output_layers": ends}
        model = {"class_name": "Functional", "config": config}
        *_, sums = calls_of(model)
        assert list(sums.reads.values()) == [Tensor("inner", 0), Tensor("inner", 1)]
        assert ends_of(model) == {
            "add": Tensor("add"),
            "inner": Tensor("inner", 0),
            "inner_1": Tensor("inner", 1),
        }
