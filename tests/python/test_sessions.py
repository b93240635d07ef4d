"""Sessions: they give what a whole pass gives, go back, give the last output, and go on by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loom
from loom import nn
from loom.errors import ConfigError, InvalidValueError, NonFiniteError, StateError

VOCABULARY = 61


def decoder(
    *,
    heads: int = 4,
    shared: int = 2,
    seed: int = 1,
    length: int = 16,
    precision: str = "float32",
    **attention: Any,
) -> loom.Network:
    """Returns a language model of Llama's kind."""
    look = nn.MultiHeadAttention(
        heads, key_value_heads=shared, causal=True, rotary=nn.Rotary(), bias=False, **attention
    )
    block = [nn.Residual([nn.RMSNorm(), look]), nn.Residual([nn.RMSNorm(), nn.SwiGLU(48)])]
    layers = [nn.Embedding(VOCABULARY, 32), *block, *block, nn.RMSNorm(), nn.Dense(VOCABULARY)]
    return loom.Sequential(layers, input_shape=(length,), seed=seed, precision=precision)


def biased(seed: int = 1) -> loom.Network:
    """Returns a language model of GPT-2's kind: places, layer norms, biases, and a gated unit's cousin."""
    block = [
        nn.Residual([nn.LayerNorm(), nn.MultiHeadAttention(2, causal=True)]),
        nn.Residual([nn.LayerNorm(), nn.Dense(48, activation="gelu"), nn.Dense(32)]),
    ]
    layers = [nn.Embedding(VOCABULARY, 32), nn.PositionalEmbedding(1100), *block, nn.LayerNorm()]
    return loom.Sequential([*layers, nn.Dense(VOCABULARY)], input_shape=(16,), seed=seed)


def recurrent(seed: int = 1) -> loom.Network:
    return loom.Sequential(
        [nn.Embedding(VOCABULARY, 16), nn.GRU(24, return_sequences=True), nn.Dense(VOCABULARY)],
        input_shape=(16,),
        seed=seed,
    )


def greedy(net: loom.Network, tokens: np.ndarray, count: int, rows: int) -> np.ndarray:
    """Returns what follows step by step, by the largest score each time."""
    session = net.session(200, rows=rows)
    scores, made = session(tokens), []
    for _ in range(count):
        made.append(scores[:, -1].argmax(axis=-1))
        scores = session(made[-1][:, None])
    return np.stack(made, axis=1)


MODELS: list[Callable[[], loom.Network]] = [
    decoder,
    lambda: decoder(shared=4, window=5, qk_norm=True),
    lambda: decoder(heads=8, shared=1, soft_cap=3.0),
    biased,
    recurrent,
]
NAMES = ["llama", "window", "one_key", "gpt2", "gru"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "q8_0", "int4"])
@pytest.mark.parametrize("made", MODELS, ids=NAMES)
def test_what_follows_is_what_single_steps_make(made: Callable[[], loom.Network], dtype: str) -> None:
    net = made()
    if dtype != "float32":
        net.morph(dtype)
    tokens = np.random.default_rng(3).integers(0, VOCABULARY, (3, 23))
    for rows in (1, 3):
        expected = greedy(net, tokens[:rows], 20, rows)
        session = net.session(60, rows=rows)
        assert np.array_equal(session.follow(tokens[:rows], 20), expected)
        assert session.position == 23 + 19
        # The last one is brought with the next call.
        goes_on = session.follow(expected[:, -1:], 3)
        assert np.array_equal(goes_on, greedy(net, tokens[:rows], 23, rows)[:, 20:])


@pytest.mark.parametrize("made", MODELS, ids=NAMES)
@pytest.mark.parametrize("dtype", ["float32", "q4_0"])
def test_gpus_decode_as_the_processor_does(made: Callable[[], loom.Network], dtype: str, gpu: str) -> None:
    net = made()
    if dtype != "float32":
        net.morph(dtype)
    tokens = np.random.default_rng(4).integers(0, VOCABULARY, (2, 40))
    expected = net.session(1100, rows=2)(tokens)
    net.to(gpu)
    for capacity in (40, 1100) if made is decoder else (40,):
        session = net.session(capacity, rows=2)
        parts, place = [], 0
        for count in (16, 1, 1, 4, 16, 1, 1):
            parts.append(session(tokens[:, place : place + count]))
            place += count
        wanted = expected[:, :place]
        assert np.abs(np.concatenate(parts, axis=1) - wanted).max() < 2e-5 * max(1, np.abs(wanted).max())
    session = net.session(100, rows=2)
    assert np.array_equal(session.follow(tokens, 30), greedy(net, tokens, 30, 2))


def dispatches(net: loom.Network, gpu: str, rows: int) -> int:
    """Returns how many kernels a step of a session starts."""
    tokens = np.random.default_rng(6).integers(0, VOCABULARY, (rows, 5))
    session = net.session(700, rows=rows)
    session(tokens)
    session(tokens[:, :1])
    before = loom.frame_statistics(gpu).dispatches
    session(tokens[:, :1])
    return loom.frame_statistics(gpu).dispatches - before


def test_gpus_start_as_few_kernels_for_many_sequences_and_in_mixed_precision(gpu: str) -> None:
    plain = decoder().to(gpu)
    one = dispatches(plain, gpu, 1)
    # Of each block: projections, rotations and caches, attention, output, gate with the other one, and back.
    assert one <= 2 * 6 + 6
    # Software makes no more than two rows together.
    assert dispatches(plain, gpu, 2 if loom.init_gpu(gpu).software else 32) == one
    assert dispatches(decoder(precision="mixed").to(gpu), gpu, 1) == one


@pytest.mark.parametrize("precision", ["float32", "mixed"])
@pytest.mark.parametrize("rows", [1, 2, 19])
def test_gpus_choose_what_the_whole_pass_would(rows: int, precision: str, gpu: str) -> None:
    net = decoder(heads=4, shared=2, length=36, precision=precision).to(gpu)
    tokens = np.random.default_rng(7).integers(0, VOCABULARY, (rows, 21))
    follow = net.session(700, rows=rows).follow(tokens, 16)
    assert np.array_equal(follow, greedy(net, tokens, 16, rows))
    whole = net.predict(np.concatenate([tokens, follow[:, :-1]], axis=1))[:, 20:]
    if precision == "float32":
        assert np.array_equal(whole.argmax(axis=-1), follow)
    # Operands of long products are rounded, and those of a step are not: its choice may be the second.
    chosen = np.take_along_axis(whole, follow[..., None], axis=-1)[..., 0]
    assert (whole.max(axis=-1) - chosen).max() < (2e-2 if precision == "mixed" else 1e-6)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_stops_end_what_follows(device: str, gpu: str) -> None:
    net = decoder().to(gpu if device == "gpu" else "cpu")
    tokens = np.random.default_rng(5).integers(0, VOCABULARY, (1, 9))
    whole = greedy(net, tokens, 30, 1)[0].tolist()
    for stop in {*whole[:12]}:
        end = whole.index(stop)
        session = net.session(64)
        found = session.follow(tokens, 30, stops=[stop, VOCABULARY + 5])
        assert found[0].tolist() == whole[: end + 1]
        assert session.position == 9 + end
        # As though nothing had been made beyond.
        assert session.follow(found[:, -1:], 4)[0].tolist() == whole[end + 1 : end + 5] or end + 5 > 30


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_a_session_that_goes_back_is_one_that_never_went_on(data: st.DataObject) -> None:
    net = decoder() if data.draw(st.booleans()) else biased()
    tokens = np.random.default_rng(6).integers(0, VOCABULARY, (2, 60))
    expected = net.session(60, rows=2)(tokens)
    session, place = net.session(60, rows=2), 0
    for _ in range(data.draw(st.integers(1, 8))):
        count = data.draw(st.integers(1, 60 - place)) if place < 60 else 0
        if count:
            found = session(tokens[:, place : place + count], last=(last := data.draw(st.booleans())))
            wanted = expected[:, place : place + count]
            assert np.array_equal(found, wanted[:, -1:] if last else wanted)
            place += count
        place = data.draw(st.integers(0, place))
        session.rewind(place)
        assert session.position == place


def test_the_last_output_alone_is_the_last_of_all() -> None:
    rng = np.random.default_rng(7)
    steps = rng.normal(size=(2, 150, 3))
    for layers in (
        [nn.Dense(4), nn.GRU(5, return_sequences=True), nn.Dense(2), nn.Softmax()],
        [nn.GRU(5), nn.Dense(2)],
        [nn.MultiHeadAttention(1, causal=True)],
        [nn.Dense(2)],
    ):
        net = loom.Sequential(layers, input_shape=(8, 3), seed=2)
        whole = net.session(150, rows=2)(steps)
        found = net.session(150, rows=2)(steps, last=True)
        assert np.array_equal(found, whole[:, -1:] if whole.ndim == 3 else whole)


def test_what_cannot_be_is_refused() -> None:
    session = recurrent().session(10)
    session([[1, 2, 3]])
    with pytest.raises(StateError, match="recurrent layer keeps the state of the newest step"):
        session.rewind(2)
    session.rewind(3)
    session = decoder().session(10)
    session([[1, 2, 3]])
    with pytest.raises(InvalidValueError, match="has seen 3 steps cannot go back to 4"):
        session.rewind(4)
    with pytest.raises(ConfigError, match="position"):
        session.rewind(-1)
    with pytest.raises(StateError, match="more than the session's capacity of 10"):
        session.follow([[1]], 8)
    assert session.position == 3
    with pytest.raises(ConfigError, match="count"):
        session.follow([[1]], 0)
    for layers, shape in (
        ([nn.Embedding(5, 4), nn.Dense(6)], (4,)),
        ([nn.Dense(6)], (4, 6)),
        ([nn.Embedding(5, 4), nn.GRU(5)], (4,)),
    ):
        with pytest.raises(StateError, match="reads whole numbers, one a step"):
            loom.Sequential(layers, input_shape=shape).session(9).follow(np.zeros((1, *shape), int), 2)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_scores_that_are_not_finite_are_told(device: str, gpu: str) -> None:
    net = loom.Sequential([nn.Embedding(5, 4), nn.Dense(5, bias=False)], input_shape=(4,))
    net.build()
    weight = net.layers[1].weight
    net.layers[1].weight = np.full_like(weight, 3e38)
    net.layers[0].weight = np.full_like(net.layers[0].weight, 3e38)
    net.to(gpu if device == "gpu" else "cpu")
    with pytest.raises(NonFiniteError, match="goes on by itself"):
        net.session(9).follow([[1, 2]], 3)
