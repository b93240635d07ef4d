"""Models that Keras saved compute here what they did there; `tests/golden/keras_models.py` wrote them."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import loom
from loom import nn
from loom.models.keras import hdf5
from loom.models.keras.layers import Unsupported, Value, layers_of

h5py = pytest.importorskip("h5py")
FOLDER = Path(__file__).parents[1] / "golden" / "keras"
FILES = sorted(path.name for path in FOLDER.iterdir() if path.suffix != ".npz")


@pytest.mark.parametrize("name", FILES)
def test_a_model_gives_what_keras_gave(name: str) -> None:
    net = loom.load(FOLDER / name)
    with np.load(FOLDER / "values.npz") as values:
        x, y = values[f"{name.partition('.')[0]}.x"], values[f"{name.partition('.')[0]}.y"]
    np.testing.assert_allclose(net.predict(x), y, rtol=1e-5, atol=1e-5)


def changed(path: Path, change: dict[str, object]) -> bytes:
    """A model's archive with settings of its first layer of each class changed."""
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(held["config.json"])
    for layer in config["config"]["layers"]:
        for key, value in change.items():
            kind, _, setting = key.partition(".")
            if layer["class_name"] == kind and setting:
                layer["config"][setting] = value
            elif layer["class_name"] == kind:
                layer["class_name"] = value
    held["config.json"] = json.dumps(config).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in held.items():
            archive.writestr(name, data)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("file", "change", "told"),
    [
        ("transformer.keras", {"Embedding.mask_zero": True}, "Add of what a recurrent layer or attention"),
        ("lstm.keras", {"Embedding.mask_zero": True, "LSTM.go_backwards": True}, "go_backwards"),
        ("perceptron.keras", {"Dropout": "Lambda"}, r"Lambda is of no layer that loom has \(dropout\)"),
        ("image.keras", {"Conv2D.activation": "log_softmax"}, "the activation log_softmax"),
        (
            "image.keras",
            {"Conv2D.data_format": "channels_first", "Conv2D.activation": "softmax"},
            "softmax of a Conv2D with channels_first",
        ),
        ("gru.keras", {"GRU.reset_after": False}, "two biases"),
        ("transformer.keras", {"MultiHeadAttention.value_dim": 3}, "value_dim"),
        ("arithmetic.keras", {"Multiply": "Power"}, "keras.ops Power"),
        ("arithmetic.keras", {"Dense.lora_rank": 2, "Dense.quantization_mode": "int8"}, "model.quantize"),
        ("gru.keras", {"Bidirectional.merge_mode": None}, "merge_mode None"),
    ],
)
def test_what_loom_has_not_is_listed_by_name(tmp_path: Path, file: str, change: dict, told: str) -> None:
    path = tmp_path / "model.keras"
    path.write_bytes(changed(FOLDER / file, change))
    with pytest.raises(loom.ConfigError, match=told):
        loom.load(path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"go_backwards": False}, "first layer goes backwards"),
        ({"units": 3}, "different settings"),
        ({"activation": "relu"}, "different settings"),
        ({"use_bias": False}, "different settings"),
    ],
)
def test_a_layer_of_its_own_that_goes_backwards_is_like_the_first_one(
    change: dict[str, object], told: str
) -> None:
    """Keras takes any; here both directions share their settings."""
    first = {"units": 2, "activation": "tanh", "return_sequences": True, "use_bias": True}
    ahead = {"class_name": "SimpleRNN", "config": {**first, "go_backwards": False}}
    back = {"class_name": "SimpleRNN", "config": {**first, "go_backwards": True}}
    arrays = [np.ones((3, 2)), np.ones((2, 2)), np.ones(2)] * 2
    config: dict[str, object] = {"merge_mode": "concat", "layer": ahead, "backward_layer": back}
    (made,), _ = layers_of("Bidirectional", config, arrays, Value(2, first=False), {})
    assert made["bidirectional"]
    changed_back = {"class_name": "SimpleRNN", "config": {**first, "go_backwards": True, **change}}
    with pytest.raises(Unsupported, match=told):
        layers_of(
            "Bidirectional", {**config, "backward_layer": changed_back}, arrays, Value(2, first=False), {}
        )


def test_a_hard_sigmoid_of_keras_2_is_steeper(tmp_path: Path) -> None:
    """Keras 2 had clip(0.2 x + 0.5, 0, 1), Keras 3 has clip(x / 6 + 0.5, 0, 1), both under one name."""
    for version, slope in (("3.15.1", 1 / 6), ("2.4.0", 0.2)):
        path = tmp_path / f"{version}.h5"
        path.write_bytes((FOLDER / "arithmetic.h5").read_bytes())
        layer = {"name": "a", "trainable": True, "dtype": "float32", "activation": "hard_sigmoid"}
        start = {"class_name": "InputLayer", "config": {"batch_shape": [None, 3], "name": "start"}}
        row = [start, {"class_name": "Activation", "config": layer}]
        with h5py.File(path, "r+") as file:
            file.attrs["keras_version"] = version
            file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": {"layers": row}})
        x = np.array([[-4.0, 0.7, 2.8]], np.float32)
        np.testing.assert_allclose(
            loom.load(path).predict(x), np.clip(slope * x + 0.5, 0, 1), rtol=1e-6, atol=1e-6
        )


def test_layers_of_ones_own_are_not_keras_s_of_that_name(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    path.write_bytes(changed(FOLDER / "perceptron.keras", {}))
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(held["config.json"])
    config["config"]["layers"][1]["module"] = "somebody.layers"
    held["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in held.items():
            archive.writestr(name, data)
    with pytest.raises(loom.ConfigError, match=r"Dense of somebody\.layers, a layer of one's own"):
        loom.load(path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    path = tmp_path / "model"
    for name in ("perceptron.keras", "lstm.h5"):
        data = (FOLDER / name).read_bytes()
        for _ in range(12):
            damaged = bytearray(data)
            damaged[int(random.integers(len(data)))] ^= 1 << int(random.integers(8))
            cut = len(data) if random.random() < 0.5 else int(random.integers(len(data)))
            path.write_bytes(bytes(damaged[:cut]))
            with suppress(loom.SerializationError, loom.ConfigError, loom.ShapeError, loom.NonFiniteError):
                loom.load(path)


def test_what_hdf5_reads_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = (FOLDER / "image.h5").read_bytes()
    # Its heap is then taken for free places of no length, each followed by itself.
    (tmp_path / "model.h5").write_bytes(data[:2280] + b"6y\xadoox\xce\x82P" + data[2280:])
    monkeypatch.setattr(hdf5, "_SECONDS", 0)
    with pytest.raises(loom.SerializationError, match="came to no end"):
        loom.load(tmp_path / "model.h5")


@pytest.mark.parametrize("how", ["not there", "compressed"])
def test_a_damaged_file_takes_no_more_memory_than_it_can_mean(tmp_path: Path, how: str) -> None:
    path = tmp_path / "model.h5"
    path.write_bytes((FOLDER / "lstm.h5").read_bytes())
    with h5py.File(path, "r+") as file:
        group = file["model_weights"]["dense"]
        name = group.attrs["weight_names"][0]
        del group[name]
        if how == "not there":
            group.create_dataset(name, (1 << 30,), "f4", chunks=(1024,))
        else:
            group.create_dataset(name, data=np.zeros(1 << 23, "f4"), compression="gzip")
    tracemalloc.start()
    try:
        with pytest.raises(loom.SerializationError, match="would come to"):
            loom.load(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 24


def test_weights_alone_say_so(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "weights.h5", "w") as file:
        file["a"] = np.zeros(3)
    with pytest.raises(loom.SerializationError, match="weights and no model"):
        loom.load(tmp_path / "weights.h5")


@pytest.mark.parametrize(
    ("kind", "config", "made"),
    [
        (
            "Cropping2D",
            {"cropping": [[1, 0], [0, 2]]},
            {"type": "crop2d", "before": [1, 0], "after": [0, 2]},
        ),
        ("Cropping1D", {"cropping": [1, 2]}, {"type": "crop1d", "before": [1], "after": [2]}),
        (
            "UpSampling2D",
            {"size": [2, 3], "interpolation": "bilinear"},
            {"type": "up_sampling2d", "scale": [2, 3], "mode": "bilinear"},
        ),
        ("UpSampling1D", {"size": 2}, {"type": "up_sampling1d", "scale": [2], "mode": "nearest"}),
        ("SpatialDropout2D", {"rate": 0.25}, {"type": "spatial_dropout2d", "rate": 0.25}),
        ("GaussianNoise", {"stddev": 0.5}, {"type": "gaussian_noise", "standard_deviation": 0.5}),
    ],
)
def test_layers_that_resize_and_draw_are_read(
    kind: str, config: dict[str, object], made: dict[str, object]
) -> None:
    axes = 1 if "1D" in kind else 2
    row, _ = layers_of(kind, config, (), Value(axes + 1, first=True), {})
    assert row == [made]
    given = nn.layer_from_config(row[0]).to_config()
    assert {name: given[name] for name in made} == made


@pytest.mark.parametrize(
    ("size", "strides", "dilation", "added"),
    [
        ((1, 1), (2, 2), (1, 1), [1, 1]),
        ((2, 3), (3, 2), (1, 1), [1, 0]),
        ((2, 2), (1, 1), (3, 1), None),
        ((2, 2), (4, 1), (2, 1), [1, 0]),
    ],
)
def test_transposed_convolutions_with_windows_smaller_than_steps_end_where_keras_ends_them(
    size: tuple[int, int], strides: tuple[int, int], dilation: tuple[int, int], added: list[int] | None
) -> None:
    """Keras's output is as long as the input times the stride, and longer where windows reach beyond."""
    config = {"strides": strides, "padding": "valid", "dilation_rate": dilation, "activation": "linear"}
    kernel = np.ones((*size, 1, 1), np.float32)
    row, _ = layers_of("Conv2DTranspose", config, (kernel,), Value(3, first=True), {})
    assert row[0].get("output_padding") == added
    settings = {**{name: row[0][name] for name in ("stride", "padding", "dilation")}, "bias": False}
    layer = nn.ConvTranspose2D(1, size, **settings, output_padding=added or 0)
    made = loom.Sequential([layer], input_shape=(1, 4, 5)).output_shape[1:]
    reach = [(k - 1) * d + 1 for k, d in zip(size, dilation, strict=True)]
    assert made == tuple(n * s + max(w - s, 0) for n, s, w in zip((4, 5), strides, reach, strict=True))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("kind", ["Softmax", "Activation"])
@pytest.mark.parametrize("extents", [(5,), (4, 5), (3, 4, 5), (2, 3, 4, 5)])
def test_a_softmax_goes_over_what_keras_has_last(extents: tuple[int, ...], kind: str, first: bool) -> None:
    """Behind a convolution the channels are the first axis here, whatever loom's own softmax goes over."""
    config = {"axis": -1, "activation": "softmax"}
    first = first and len(extents) > 1
    row, value = layers_of(kind, config, (), Value(len(extents), first=first), {})
    assert value.first == first
    x = np.random.default_rng(0).normal(size=(2, *extents)).astype(np.float32)
    powers = np.exp(x)
    wanted = powers / powers.sum(axis=-1, keepdims=True)
    if first:
        x, wanted = np.moveaxis(x, -1, 1), np.moveaxis(wanted, -1, 1)
    net = loom.Sequential([nn.layer_from_config(layer) for layer in row], input_shape=x.shape[1:])
    np.testing.assert_allclose(net.predict(x), wanted, rtol=1e-5)


def test_upsampling_that_loom_has_not_is_told() -> None:
    config = {"size": [2, 2], "interpolation": "lanczos3"}
    with pytest.raises(Unsupported, match="interpolation lanczos3"):
        layers_of("UpSampling2D", config, (), Value(3, first=True), {})
