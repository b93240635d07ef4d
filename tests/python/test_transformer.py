"""Attention, embeddings and gated layers from Python: training, sessions, weights, files."""

from __future__ import annotations

import importlib.util
import runpy
import struct
from pathlib import Path

import numpy as np
import pytest

import loom
from loom import nn

TIME, VOCABULARY = 12, 7


def model(seed: int = 0) -> loom.Network:
    attention = nn.MultiHeadAttention(4, key_value_heads=2, causal=True, rotary=nn.Rotary(), bias=False)
    return loom.Sequential(
        [
            nn.Embedding(VOCABULARY, 16),
            nn.PositionalEmbedding(40),
            nn.Residual([nn.RMSNorm(), attention]),
            nn.Residual([nn.RMSNorm(), nn.SwiGLU(24)]),
            nn.TiedHead(VOCABULARY, tied_to=(0, 0, 0, 0)),
        ],
        input_shape=TIME,
        seed=seed,
    )


def tokens(rows: int) -> np.ndarray:
    return (np.arange(rows * TIME).reshape(rows, TIME) ** 2 // 3) % VOCABULARY


def test_a_sequence_is_learned() -> None:
    net = model()
    x = tokens(4)
    trainer = loom.Trainer(net, loom.TrainingConfig(loss="cross_entropy", learning_rate=1e-2, device="cpu"))
    y = np.roll(x, -1, axis=1)
    first = trainer.step(x, y)
    for _ in range(60):
        last = trainer.step(x, y)
    assert last < 0.2 * first


def test_steps_with_a_cache_have_the_bits_of_the_whole() -> None:
    net = model()
    x = tokens(3)
    whole = net.predict(x)
    session = net.session(capacity=TIME, rows=3)
    pieces = [session(x[:, start:end]) for start, end in ((0, 1), (1, 6), (6, 7), (7, TIME))]
    np.testing.assert_array_equal(np.concatenate(pieces, axis=1), whole)
    assert session.position == TIME


def test_the_weights_of_pytorchs_attention_fit() -> None:
    """Its in_proj_weight is three weights one below the other."""
    random = np.random.default_rng(3)
    width, heads = 6, 2
    packed = random.standard_normal((3 * width, width), np.float32)
    out = random.standard_normal((width, width), np.float32)
    net = loom.Sequential([nn.MultiHeadAttention(heads, bias=False)], input_shape=(4, width))
    names = ["query_weight", "key_weight", "value_weight"]
    weights = dict(zip(names, np.split(packed, 3), strict=True))
    net.load_state_dict({f"0.0.0.0.{name}": part for name, part in {**weights, "output_weight": out}.items()})
    x = random.standard_normal((1, 4, width), np.float32)
    q, k, v = ((x[0] @ part.T).reshape(4, heads, -1).swapaxes(0, 1) for part in np.split(packed, 3))
    scores = q @ k.swapaxes(1, 2) / np.sqrt(width / heads)
    shares = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    expected = (shares @ v).swapaxes(0, 1).reshape(4, width) @ out.T
    np.testing.assert_allclose(net.predict(x)[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("token", [VOCABULARY, -1, 0.5])
def test_what_is_no_number_of_the_vocabulary_is_refused(token: float) -> None:
    x = tokens(1).astype(np.float32)
    x[0, 5] = token
    with pytest.raises(loom.LoomError):
        model().predict(x)


def test_files_keep_the_tie(tmp_path: Path) -> None:
    net = model()
    net.save(tmp_path / "model.loom")
    read = loom.load(tmp_path / "model.loom")
    np.testing.assert_array_equal(read.predict(tokens(2)), net.predict(tokens(2)))


def test_the_character_model_learns_and_its_cache_agrees(tmp_path: Path, monkeypatch, capsys) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog, and the dog sleeps on.\n" * 40)
    script = Path(__file__).parents[2] / "examples" / "char_gpt.py"
    spec = importlib.util.spec_from_file_location("char_gpt", script)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    # Smaller, since it may be a build for tests that runs it.
    for name, value in {"BLOCKS": 2, "WIDTH": 48, "CONTEXT": 32}.items():
        monkeypatch.setattr(example, name, value)
    monkeypatch.setattr("sys.argv", [str(script), str(text), "--steps", "60", "--generate", "20"])
    example.main()
    printed = capsys.readouterr().out
    assert "cached and uncached scores 0\n" in printed
    assert float(printed.split("validation loss ")[1].split()[0]) < 2.5


def test_the_llama_example_reads_its_format(tmp_path: Path, monkeypatch, capsys) -> None:
    """A file of random weights: what is read is what was written, and a text comes out."""
    width, hidden, blocks, heads, shared_heads, vocabulary, time = 8, 12, 2, 4, 2, 260, 32
    shared = width // heads * shared_heads
    shapes = [
        (vocabulary, width),
        (blocks, width),
        (blocks, width, width),
        (blocks, shared, width),
        (blocks, shared, width),
        (blocks, width, width),
        (blocks, width),
        (blocks, hidden, width),
        (blocks, width, hidden),
        (blocks, hidden, width),
        (width,),
        (2, time, width // heads // 2),
    ]
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    header = struct.pack("7i", width, hidden, blocks, heads, shared_heads, vocabulary, time)
    weights = tmp_path / "model.bin"
    weights.write_bytes(header + b"".join(array.tobytes() for array in arrays))
    pieces = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256)), b" "]
    tokenizer = tmp_path / "tokenizer.bin"
    tokenizer.write_bytes(
        struct.pack("i", 6) + b"".join(struct.pack("fi", 0.0, len(piece)) + piece for piece in pieces)
    )
    script = Path(__file__).parents[2] / "examples" / "llama.py"
    arguments = [str(script), str(weights), str(tokenizer), "--steps", "10", "--prompt", "a b"]
    monkeypatch.setattr("sys.argv", arguments)
    example = runpy.run_path(str(script), run_name="__main__")
    assert " a second" in capsys.readouterr().out
    state = example["read_model"](weights).state_dict()
    np.testing.assert_array_equal(state["0.0.0.0.weight"], arrays[0])
    np.testing.assert_array_equal(state["0.0.0.3.layers.1.key_weight"], arrays[3][1])
    np.testing.assert_array_equal(state["0.0.0.4.layers.1.down_weight"], arrays[8][1])
    np.testing.assert_array_equal(state["0.0.0.5.weight"], arrays[10])
