"""Networks whose weights stay in a mapped file: as decoded ones, until and after they are changed."""

from __future__ import annotations

import copy
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import _native, nn
from loom.models.gguf import hub_config, hub_tensors
from loom.models.hub import from_tensors
from loom.tensors import write_gguf, write_safetensors
from loom.tensors.writing import _value
from networks import llama, quiet
from text_models import as_gguf, byte_level, decoder

WORDS = np.arange(24).reshape(2, 12) * 7 % 50


def saved(path: Path, dtype: str = "q4_0", **settings: Any) -> Path:
    """A small Llama, saved for llama.cpp."""
    loom.save_gguf(llama(**settings), path, dtype)
    return path


def decoded(path: Path) -> loom.Network:
    """The same model, all of it decoded."""
    with loom.open_tensors(path) as file:
        return from_tensors(hub_config(file), hub_tensors(file), "float32")


def lent(net: loom.Network) -> int:
    """How many layers are without masters."""
    return sum(cell[place].weights.dropped for cell in [net[0, 0, 0]] for place in range(len(cell)))


@pytest.mark.parametrize("dtype", ["q4_0", "q8_0", "float16", "bfloat16"])
@pytest.mark.parametrize("tied", [False, True])
def test_what_is_computed_is_what_decoded_weights_make(dtype: str, tied: bool, tmp_path: Path) -> None:
    path = saved(tmp_path / "net", dtype, tied=tied)
    net, floats = loom.load(path), decoded(path)
    assert lent(net) == 6
    assert lent(floats) == 0
    assert net[0, 0, 0, 0].dtype == dtype
    np.testing.assert_array_equal(net.predict(WORDS), floats.predict(WORDS), strict=True)
    session, other = net.session(capacity=12), floats.session(capacity=12)
    for word in WORDS[0]:
        np.testing.assert_array_equal(session([[word]]), other([[word]]))
    found, expected = net.state_dict(), floats.state_dict()
    assert list(found) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    assert lent(net) == 6


def kept(kind: str, rows: int, width: int) -> NDArray[np.uint8]:
    """Random blocks of a type, whose scales are small."""
    size, block = {
        "q3_k": (110, 256),
        "q6_k": (210, 256),
        "q5_0": (22, 32),
        "iq4_nl": (18, 32),
        "mxfp4": (17, 32),
        "q4_1": (20, 32),
        "q5_1": (24, 32),
        "q2_k": (84, 256),
        "q4_k": (144, 256),
        "q5_k": (176, 256),
    }[kind]
    blocks = np.random.default_rng(1).integers(0, 256, (rows * width // block, size), dtype=np.uint8)
    half = np.frombuffer(np.float16(0.003).tobytes(), np.uint8)
    if kind == "mxfp4":
        blocks[:, 0] = 120
    elif kind in ("q5_0", "iq4_nl"):
        blocks[:, :2] = half
    elif kind in MINIMA:
        # Beside the scale is what the least code stands for, or what that is made of.
        at = 80 if kind == "q2_k" else 0
        least = np.float16(-0.02 if kind in ("q4_1", "q5_1") else 0.003)
        blocks[:, at : at + 2] = half
        blocks[:, at + 2 : at + 4] = np.frombuffer(least.tobytes(), np.uint8)
    else:
        blocks[:, -2:] = half
    return blocks.reshape(-1)


# What the types whose groups have a minimum are lent as, and how many weights share one.
MINIMA = {
    "q4_1": ("uint4_min", 32),
    "q5_1": ("uint8_min", 32),
    "q2_k": ("uint2_min", 16),
    "q4_k": ("uint4_min", 32),
    "q5_k": ("uint8_min", 32),
}


def packed_llama(kind: str, path: Path, tied: bool = False) -> Path:
    """A small Llama whose matrices are random blocks of a type."""
    rotary = nn.Rotary(layout="half_split")
    attention = nn.MultiHeadAttention(4, causal=True, rotary=rotary, bias=False)
    layers = [
        nn.Embedding(50, 256),
        nn.Residual([nn.RMSNorm(epsilon=1e-5), attention]),
        nn.Residual([nn.RMSNorm(epsilon=1e-5), nn.SwiGLU(256)]),
        nn.RMSNorm(epsilon=1e-5),
        nn.Dense(50, bias=False),
    ]
    if tied:
        layers[-1] = nn.TiedHead(50)
    plain = path.with_suffix(".floats")
    loom.save_gguf(loom.Sequential(layers, input_shape=12), plain)
    return repacked(kind, plain, path)


def repacked(kind: str, plain: Path, path: Path, down: str | None = None) -> Path:
    """A file of floats with random blocks of a type for its matrices, and of `down` for those of ffn_down."""
    file = loom.open_tensors(plain)
    listed = []
    for name, one in file.items():
        packed = down if down is not None and "ffn_down" in name else kind
        listed.append((name, packed if len(one.shape) >= 2 else one.dtype, list(one.shape)))

    def content(place: int) -> NDArray[np.uint8]:
        name, dtype, shape = listed[place]
        return kept(dtype, math.prod(shape[:-1]), shape[-1]) if len(shape) >= 2 else file[name].raw()

    metadata = [(key, _value(key, value)) for key, value in file.metadata.items()]
    _native.write_gguf(path, metadata, listed, content)
    return path


@pytest.mark.parametrize("kind", ["q3_k", "q6_k", "q5_0", "iq4_nl", "mxfp4", *MINIMA])
def test_integers_with_scales_are_the_same_numbers(kind: str, tmp_path: Path) -> None:
    path = packed_llama(kind, tmp_path / "net")
    net, floats = loom.load(path), decoded(path)
    assert lent(net) == 4
    np.testing.assert_array_equal(net.predict(WORDS), floats.predict(WORDS), strict=True)
    np.testing.assert_array_equal(
        net[0, 0, 0, 0].weights.master["weight"], floats[0, 0, 0, 0].weights.master["weight"]
    )


@pytest.mark.parametrize("kind", MINIMA)
@pytest.mark.parametrize("tied", [False, True])
def test_types_with_a_minimum_stay_packed(kind: str, tied: bool, tmp_path: Path) -> None:
    path = packed_llama(kind, tmp_path / "net", tied)
    net, floats = loom.load(path), decoded(path)
    assert lent(net) == 4
    dtype, group = MINIMA[kind]
    width = 256
    bits = int(dtype.removeprefix("uint")[0])
    for place, rows in [(0, 50), (1, 4 * width), (2, 3 * width)]:
        layer = net[0, 0, 0, place]
        assert layer.dtype == dtype
        assert layer.weights.versions[dtype].granularity == f"block({group})"
        packed = sum(one.nbytes for one in layer.weights.stored.values() if one.dtype == dtype)
        assert packed == rows * width * bits // 8 + rows * width // group * 8
    expected = floats.predict(WORDS)
    np.testing.assert_array_equal(net.predict(WORDS), expected, strict=True)
    session, other = net.session(capacity=12), floats.session(capacity=12)
    for word in WORDS[0]:
        np.testing.assert_array_equal(session([[word]]), other([[word]]))
    found = net.state_dict()
    for name, array in floats.state_dict().items():
        np.testing.assert_array_equal(found[name], array, strict=True)
    assert lent(net) == 4
    for deploy in (False, True):
        net.save(tmp_path / "own", deploy=deploy)
        again = loom.load(tmp_path / "own")
        assert again[0, 0, 0, 1].dtype == dtype
        np.testing.assert_array_equal(again.predict(WORDS), expected)
        np.testing.assert_array_equal(again.unpack().predict(WORDS), expected)
    np.testing.assert_array_equal(copy.deepcopy(net).predict(WORDS), expected)
    y = np.roll(WORDS, -1, axis=1)
    config = quiet(epochs=2, batch_size=1, optimizer=loom.Adam())
    losses = [loom.train(one, (WORDS, y), config).loss_history for one in (net, floats)]
    assert losses[0] == losses[1]
    assert (lent(net), net[0, 0, 0, 0].dtype) == (0, "float32")
    np.testing.assert_array_equal(net.predict(WORDS), floats.predict(WORDS))


def test_activations_are_quantised_beside_types_with_a_minimum(tmp_path: Path) -> None:
    """As of Q4_K_M, which has some matrices in Q6_K: those read int8, the others floats."""
    metadata = as_gguf(byte_level(), "llama-bpe")
    loom.save_gguf(decoder(400, width=256, blocks=1), tmp_path / "floats", metadata=metadata)
    path = repacked("q4_k", tmp_path / "floats", tmp_path / "mixed", down="q6_k")
    plain, quick = loom.text.load(path), loom.text.load(path, activations="int8")
    assert quick.network.layers[1].dtype == "uint4_min"
    types = {name: one.dtype for name, one in quick.network.layers[2].weights.stored.items()}
    assert types["layers.1.down_weight"] == "int8"
    x = WORDS[:, :12]
    found, expected = (
        np.asarray(model.network.predict(np.pad(x, ((0, 0), (0, 52))))) for model in (quick, plain)
    )
    assert not np.array_equal(found, expected)
    assert np.abs(found - expected).max() < 0.1 * np.abs(expected).max()
    repacked("q4_k", tmp_path / "floats", tmp_path / "pure")
    with pytest.raises(loom.DTypeError, match="packed weights of integers"):
        loom.text.load(tmp_path / "pure", activations="int8")


@pytest.mark.parametrize("kind", MINIMA)
@pytest.mark.parametrize("tied", [False, True])
def test_devices_read_types_with_a_minimum(gpu: str, kind: str, tied: bool, tmp_path: Path) -> None:
    net = loom.load(packed_llama(kind, tmp_path / "net", tied))
    expected = net.predict(WORDS)
    session = net.session(capacity=12)
    steps = [session([[word]]) for word in WORDS[0]]
    net.to(gpu)
    np.testing.assert_allclose(net.predict(WORDS), expected, rtol=1e-3, atol=1e-4)
    session = net.session(capacity=12)
    for word, step in zip(WORDS[0], steps, strict=True):
        np.testing.assert_allclose(session([[word]]), step, rtol=1e-3, atol=1e-4)
    assert lent(net) == 4


def test_training_makes_masters_of_what_it_trains(tmp_path: Path) -> None:
    path = saved(tmp_path / "net", tied=True)
    net, floats = loom.load(path), decoded(path)
    y = np.roll(WORDS, -1, axis=1)
    config = quiet(epochs=2, batch_size=1, optimizer=loom.Adam(beta1=1e-2))
    losses = [loom.train(one, (WORDS, y), config).loss_history for one in (net, floats)]
    assert losses[0] == losses[1]
    assert lent(net) == 0
    assert net[0, 0, 0, 0].dtype == "float32"
    np.testing.assert_array_equal(net.predict(WORDS), floats.predict(WORDS))


def test_what_is_not_trained_stays_in_the_file(tmp_path: Path) -> None:
    path = saved(tmp_path / "net")
    nets = loom.load(path), decoded(path)
    y = np.roll(WORDS, -1, axis=1)
    for net in nets:
        for place in range(6):
            net[0, 0, 0, place].trainable = place == 5
        net[0, 0, 0, 6].trainable = False
        loom.train(net, (WORDS, y), quiet(epochs=1))
    assert lent(nets[0]) == 6
    for net in nets:
        net[0, 0, 0, 4].trainable = True
        loom.train(net, (WORDS, y), quiet(epochs=1))
    assert lent(nets[0]) == 5
    np.testing.assert_array_equal(nets[0].predict(WORDS), nets[1].predict(WORDS))


def test_changes_are_made_to_a_master_of_the_layer(tmp_path: Path) -> None:
    path = saved(tmp_path / "net")
    net, floats = loom.load(path), decoded(path)
    for one in (net, floats):
        one[0, 0, 0, 6].weights.master["weight"] = np.ones((50, 32), np.float32)
    assert lent(net) == 5
    np.testing.assert_array_equal(net.predict(WORDS), floats.predict(WORDS))
    for dtype in ("int8", "q4_0", "float32"):
        np.testing.assert_array_equal(net.morph(dtype).predict(WORDS), floats.morph(dtype).predict(WORDS))
    assert lent(net) == 0
    net = loom.load(path).unpack()
    assert (lent(net), net[0, 0, 0, 1].dtype) == (0, "float32")
    net = loom.load(path).drop_master()
    with pytest.raises(loom.StateError, match=r"unpack\(\)"):
        net.morph("int8")
    y = np.roll(WORDS, -1, axis=1)
    loom.train(net.unpack(), (WORDS, y), quiet(epochs=1))
    assert net[0, 0, 0, 0].dtype == "q4_0"


@pytest.mark.parametrize("dtype", ["q4_0", "float16"])
@pytest.mark.parametrize("tied", [False, True])
def test_files_and_copies_hold_what_was_lent(dtype: str, tied: bool, tmp_path: Path) -> None:
    path = saved(tmp_path / "net", dtype, tied=tied)
    net, floats = loom.load(path), decoded(path)
    expected = floats.predict(WORDS)
    for deploy in (False, True):
        net.save(tmp_path / "own", deploy=deploy)
        floats.save(tmp_path / "floats")
        assert (tmp_path / "own").stat().st_size < 0.6 * (tmp_path / "floats").stat().st_size
        again = loom.load(tmp_path / "own")
        np.testing.assert_array_equal(again.predict(WORDS), expected)
        if deploy:
            with pytest.raises(loom.StateError, match=r"unpack\(\)"):
                again.morph("float32")
        else:
            np.testing.assert_array_equal(again.morph("float32").predict(WORDS), expected)
            assert lent(again) == 0
    twin = copy.deepcopy(net)
    twin[0, 0, 0, 0].weights.master["weight"] = np.zeros((50, 32), np.float32)
    np.testing.assert_array_equal(net.predict(WORDS), expected)


def test_a_file_may_be_replaced_while_it_is_used(tmp_path: Path) -> None:
    path = saved(tmp_path / "net")
    expected = decoded(path).predict(WORDS)
    net = loom.load(path)
    saved(tmp_path / "other", blocks=1)
    (tmp_path / "other").replace(path)
    np.testing.assert_array_equal(net.predict(WORDS), expected)
    cut = tmp_path / "cut"
    cut.write_bytes(path.read_bytes()[:-64])
    with pytest.raises(loom.SerializationError, match="beyond the end of the file"):
        loom.load(cut)


@pytest.mark.parametrize("tied", [False, True])
def test_devices_read_what_is_lent(gpu: str, tied: bool, tmp_path: Path) -> None:
    path = saved(tmp_path / "net", tied=tied)
    net = loom.load(path)
    expected = net.predict(WORDS)
    np.testing.assert_allclose(net.to(gpu).predict(WORDS), expected, rtol=1e-4, atol=1e-5)
    assert lent(net) == 6
    np.testing.assert_array_equal(net.to("cpu").predict(WORDS), expected)


@pytest.mark.parametrize("kind", ["q8_0", "q4_1", "q5_1"])
def test_experts_and_joined_projections_are_rows_of_files(kind: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)

    def numbers(*shape: int) -> NDArray[np.float32]:
        return (random.normal(size=shape) * 0.1).astype(np.float32)

    tensors = {
        "token_embd.weight": numbers(50, 64),
        "output_norm.weight": numbers(64),
        "output.weight": numbers(50, 64),
    }
    square, experts = ("attn_q", "attn_k", "attn_v", "attn_output"), ("ffn_gate_exps", "ffn_up_exps")
    shapes = {"attn_norm": (64,), "ffn_norm": (64,), "ffn_gate_inp": (3, 64), "ffn_down_exps": (3, 64, 32)}
    shapes |= dict.fromkeys(square, (64, 64)) | dict.fromkeys(experts, (3, 32, 64))
    for name, shape in shapes.items():
        tensors[f"blk.0.{name}.weight"] = numbers(*shape)
    metadata = {"general.architecture": "llama"}
    for key, value in {
        "context_length": 12, "embedding_length": 64, "block_count": 1, "feed_forward_length": 32,
        "attention.head_count": 4, "expert_count": 3, "expert_used_count": 2,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }.items():  # fmt: skip
        metadata[f"llama.{key}"] = value
    write_gguf(tmp_path / "net", tensors, metadata, "q8_0")
    if kind != "q8_0":
        (tmp_path / "net").rename(tmp_path / "other")
        repacked(kind, tmp_path / "other", tmp_path / "net")
    net, floats = loom.load(tmp_path / "net"), decoded(tmp_path / "net")
    assert net[0, 0, 0, 2].weights.dropped
    assert net[0, 0, 0, 2].dtype == MINIMA.get(kind, (kind,))[0]
    np.testing.assert_array_equal(net.predict(WORDS), floats.predict(WORDS), strict=True)


def test_folders_are_packed_layer_by_layer(tmp_path: Path) -> None:
    with loom.open_tensors(saved(tmp_path / "net", "float32", tied=True)) as file:
        (tmp_path / "config.json").write_text(json.dumps(hub_config(file)))
        write_safetensors(tmp_path / "model.safetensors", hub_tensors(file))
    net, whole = (loom.models.from_hub(tmp_path, "int4", masters=masters) for masters in (False, True))
    assert (lent(net), lent(whole)) == (6, 0)
    np.testing.assert_array_equal(net.predict(WORDS), whole.predict(WORDS), strict=True)
    with pytest.raises(loom.ConfigError, match="packed type"):
        loom.models.from_hub(tmp_path, masters=False)


def test_a_norm_is_set_beside_lent_weights(tmp_path: Path) -> None:
    path = saved(tmp_path / "net")
    net, floats = loom.load(path), decoded(path)
    for one in (net, floats):
        one[0, 0, 0, 1].weights.master["layers.0.weight"] = np.full(32, 0.5, np.float32)
    assert lent(net) == 6
    np.testing.assert_array_equal(net.predict(WORDS), floats.predict(WORDS))


@pytest.mark.parametrize("shape", [(16, 64), (8, 32), (64, 32), (32, 64)])
def test_rows_of_another_shape_are_refused_where_they_lie(shape: tuple[int, int], tmp_path: Path) -> None:
    loom.save_gguf(llama(blocks=1), tmp_path / "net.gguf", "q4_0")
    with loom.open_tensors(tmp_path / "net.gguf") as file:
        tensors = dict(file)
        assert tensors["blk.0.attn_v.weight"].shape == (32, 32)
        tensors["blk.0.attn_v.weight"] = loom.tensors.TensorEntry(
            "blk.0.attn_v.weight",
            shape,
            "float32",
            4 * shape[0] * shape[1],
            lambda: np.ones(shape, np.float32),
        )
        types = {name: entry.dtype for name, entry in file.items() if entry.dtype in ("q4_0", "float16")}
        types["blk.0.attn_v.weight"] = "q4_0"
        loom.tensors.write_gguf(tmp_path / "other.gguf", tensors, file.metadata, types)
    with pytest.raises(loom.LoomError, match=r"layers.0.self_attn.v_proj.weight.*\(32, ") as raised:
        loom.load(tmp_path / "other.gguf")
    assert isinstance(raised.value, loom.ShapeError)


def test_extents_that_no_array_has_are_told(tmp_path: Path) -> None:
    header = {"x": {"dtype": "U8", "shape": [0, 2**63], "data_offsets": [0, 0]}}
    text = json.dumps(header).encode()
    with (
        loom.open_tensors(struct.pack("<Q", len(text)) + text) as file,
        pytest.raises(loom.SerializationError, match="which no array has"),
    ):
        file["x"].numpy()
