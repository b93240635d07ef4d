"""Sessions that keep keys and values in fewer bits: the same outputs however the steps come."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loom
from loom import nn
from loom.errors import ConfigError, NonFiniteError, SerializationError, ShapeError, StateError
from loom.network.slots import Slots
from test_sessions import VOCABULARY, biased, decoder, greedy, recurrent

TYPES: list[Any] = ["float16", "q8_0"]
MODELS: list[Callable[..., loom.Network]] = [
    decoder,
    lambda **settings: decoder(shared=4, window=5, qk_norm=True, **settings),
    lambda **settings: decoder(heads=2, shared=1, head_dim=40, **settings),
    lambda **settings: decoder(heads=3, shared=3, head_dim=6, soft_cap=3.0, **settings),
]


def rounded(x: np.ndarray, kind: str) -> np.ndarray:
    """Returns vectors, the last axis, as they are kept."""
    if kind == "float16":
        return x.astype(np.float16).astype(np.float64)
    filled = np.zeros((*x.shape[:-1], -(-x.shape[-1] // 32) * 32), np.float32)
    filled[..., : x.shape[-1]] = x
    blocks = filled.reshape(*x.shape[:-1], -1, 32)
    d = np.abs(blocks).max(axis=-1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)
    scaled = (blocks * inverse).astype(np.float64)
    # Half away from zero.
    codes = np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)
    values = codes * d.astype(np.float16).astype(np.float64)
    return values.reshape(filled.shape)[..., : x.shape[-1]]


@pytest.mark.parametrize("kind", TYPES)
def test_attention_looks_at_rounded_keys_and_values(kind: Any) -> None:
    heads, shared, extent, steps, width = 4, 2, 40, 150, 24
    layer = nn.MultiHeadAttention(heads, key_value_heads=shared, head_dim=extent, causal=True)
    net = loom.Sequential([layer], input_shape=(8, width), precision="float64", seed=3)
    x = np.random.default_rng(0).normal(size=(2, steps, width))
    state = {name.split(".")[-1]: array for name, array in net.state_dict().items()}
    q, k, v = (
        x @ state[f"{part}_weight"].T + state[f"{part}_bias"]
        if state[f"{part}_weight"].shape[1] == width
        else x @ state[f"{part}_weight"] + state[f"{part}_bias"]
        for part in ("query", "key", "value")
    )
    q = q.reshape(2, steps, heads, extent)
    k, v = (rounded(part.reshape(2, steps, shared, extent), kind) for part in (k, v))
    k, v = (np.repeat(part, heads // shared, axis=2) for part in (k, v))
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(extent)
    scores = np.where(np.tril(np.ones((steps, steps), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    gathered = np.einsum("bhqk,bkhd->bqhd", weights, v).reshape(2, steps, -1)
    out = state["output_weight"]
    expected = gathered @ (out.T if out.shape[1] == heads * extent else out) + state["output_bias"]
    found = net.session(steps, rows=2, cache_dtype=kind)(x)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 if kind == "float16" else 2e-2)
    if kind == "q8_0":
        # A code may lie on the other side of a half, by how the quotient was rounded: few do.
        assert np.mean(np.abs(found - expected) > 1e-9) < 0.2


@settings(max_examples=12, deadline=None)
@given(
    made=st.sampled_from(MODELS),
    kind=st.sampled_from(TYPES),
    precision=st.sampled_from(["float32", "float64"]),
    cuts=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    back=st.integers(0, 30),
)
def test_however_steps_come_they_make_the_same_bits(
    made: Callable[..., loom.Network], kind: Any, precision: str, cuts: list[int], back: int
) -> None:
    net = made(precision=precision)
    tokens = np.random.default_rng(sum(cuts)).integers(0, VOCABULARY, (2, sum(cuts)))
    steps = tokens.shape[1]
    full = net.session(steps, rows=2)(tokens)
    whole = net.session(steps, rows=2, cache_dtype=kind)(tokens)
    error = np.abs(whole - full).max() / np.abs(full).max()
    assert 0 < error < (2e-3 if kind == "float16" else 5e-2)
    session = net.session(steps + 3, rows=2, cache_dtype=kind)
    parts, place = [], 0
    for cut in cuts:
        parts.append(session(tokens[:, place : place + cut]))
        place += cut
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)
    # Back, and on again; and in another session.
    back = min(back, steps)
    session.rewind(steps - back)
    other = net.session(steps, rows=2, cache_dtype=kind)
    other.restore(session.kept())
    assert other.position == steps - back
    if back:
        np.testing.assert_array_equal(session(tokens[:, steps - back :]), whole[:, steps - back :])
        np.testing.assert_array_equal(other(tokens[:, steps - back :]), whole[:, steps - back :])
    # Each sequence at a place of its own.
    slots = Slots(net, 3, steps, cache_dtype=kind)
    first = slots(tokens[:1, : cuts[0]], [2])
    np.testing.assert_array_equal(first, whole[:1, : cuts[0]])
    np.testing.assert_array_equal(slots(tokens[1:], [0]), whole[1:])
    slots.copy(2, 1, cuts[0])
    if steps > cuts[0]:
        np.testing.assert_array_equal(slots(tokens[:1, cuts[0] :], [1]), whole[:1, cuts[0] :])


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("made", [decoder, biased])
def test_sequences_go_on_by_themselves(made: Callable[[], loom.Network], kind: Any) -> None:
    net = made()
    tokens = np.random.default_rng(3).integers(0, VOCABULARY, (2, 9))
    session = net.session(200, rows=2, cache_dtype=kind)
    scores, expected = session(tokens), []
    for _ in range(12):
        expected.append(scores[:, -1].argmax(axis=-1))
        scores = session(expected[-1][:, None])
    found = net.session(200, rows=2, cache_dtype=kind).follow(tokens, 12)
    np.testing.assert_array_equal(found, np.stack(expected, axis=1))
    assert found.shape == greedy(net, tokens, 12, 2).shape


def test_what_is_kept_takes_so_many_bytes() -> None:
    net = decoder(heads=2, shared=1, head_dim=64)
    sizes = {}
    for kind in (None, *TYPES):
        session = net.session(10, cache_dtype=kind)
        session(np.zeros((1, 10), int))
        keys = session.kept()[0]
        sizes[kind] = keys.nbytes / 10
        assert (session.cache_dtype, keys.dtype) == (kind, np.float32 if kind is None else np.uint8)
    assert sizes == {None: 256, "float16": 128, "q8_0": 68}


def test_what_cannot_be_kept_so_is_refused(gpu: str) -> None:
    net = decoder()
    with pytest.raises(ConfigError, match=r"cache_dtype.*float16.*q8_0"):
        net.session(4, cache_dtype="int3")  # type: ignore[arg-type]
    with pytest.raises(StateError, match="no layer of this network keeps keys and values"):
        recurrent().session(4, cache_dtype="float16")
    with pytest.raises(StateError, match="on processors alone"):
        decoder().to(gpu).session(4, cache_dtype="q8_0")
    session = net.session(4, cache_dtype="float16")
    session(np.zeros((1, 2), int))
    kept = session.kept()
    with pytest.raises(ShapeError, match="as bytes"):
        session.restore(net.session(4).kept())
    with pytest.raises(ShapeError):
        net.session(4, cache_dtype="q8_0").restore(kept)
    kept[0] = kept[0].copy()
    kept[0].view(np.float16)[0, 1, 3] = np.nan
    with pytest.raises(NonFiniteError, match="what a session has kept"):
        session.restore(kept)
    # Larger than the type holds: the session stays where it was.
    state = net.state_dict()
    name = next(name for name in state if name.endswith("value_weight"))
    net.load_state_dict({**state, name: 1e6 * state[name]})
    session = net.session(4, cache_dtype="float16")
    with pytest.raises(NonFiniteError, match="beyond what float16 holds"):
        session(np.ones((1, 2), int))
    assert session.position == 0
    assert np.isfinite(net.session(4)(np.ones((1, 2), int))).all()


@pytest.mark.parametrize("kind", TYPES)
def test_language_models_answer_from_packed_caches(kind: Any, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="the extra text is not installed")
    from loom.text import LanguageModel
    from text_models import byte_level
    from text_models import decoder as speaker

    net = speaker(400)
    model, plain = (LanguageModel(net, byte_level(), capacity=120, cache_dtype=each) for each in (kind, None))
    prompts = ["Once upon a time", "Es war einmal ein", "1"]
    answers = [model.complete(prompt, max_tokens=20, temperature=0, ignore_end=True) for prompt in prompts]
    for prompt, answer in zip(prompts, answers, strict=True):
        tokens = model.encode(prompt)
        made = net.session(120, cache_dtype=kind).follow([tokens], 20)[0]
        assert [choice.token for choice in answer.tokens] == made.tolist()
    together = model.complete_all(prompts, together=2, max_tokens=20, temperature=0, ignore_end=True)
    assert [each.tokens for each in together] == [each.tokens for each in answers]
    looked_up = model.complete(prompts[0], max_tokens=20, temperature=0, ignore_end=True, draft="lookup")
    assert looked_up.tokens == answers[0].tokens
    copied = copy.deepcopy(model).complete(prompts[0], max_tokens=20, temperature=0, ignore_end=True)
    assert copied.tokens == answers[0].tokens
    text = " ".join(prompts)
    found, expected = (loom.perplexity(each, text) for each in (model, plain))
    assert found != expected
    assert found == pytest.approx(expected, rel=0.05)
    # In another process, as it were.
    path = tmp_path / "begun.safetensors"
    model.save_cache(path, prompts[0])
    other = LanguageModel(net, byte_level(), capacity=90, cache_dtype=kind)
    assert other.load_cache(path) == len(model.encode(prompts[0]))
    on = [
        each.complete(prompts[0] + " there", max_tokens=9, seed=1, ignore_end=True) for each in (model, other)
    ]
    assert on[0].tokens == on[1].tokens
    with pytest.raises(SerializationError, match=f"as {kind}, this model keeps them as the network computes"):
        plain.load_cache(path)


@pytest.mark.parametrize("kind", ["float16", "q8_0"])
def test_a_language_model_that_cannot_keep_them_so_is_told_before_it_answers(
    kind: Any, gpu: str, tmp_path: Path
) -> None:
    pytest.importorskip("tokenizers", reason="the extra text is not installed")
    from loom.text import LanguageModel
    from text_models import SETTINGS, byte_level, write_folder
    from text_models import decoder as speaker

    folder = write_folder(tmp_path / "model", speaker(400), byte_level(), **SETTINGS)
    for device in ("gpu", gpu):
        with pytest.raises(StateError, match=f'kept as {kind} on processors alone: device="cpu"'):
            loom.text.load(folder, device=device, cache_dtype=kind)
    with pytest.raises(StateError, match="on processors alone"):
        LanguageModel(speaker(400).to(gpu), byte_level(), cache_dtype=kind)
    layers = [nn.Embedding(400, 8), nn.GRU(8, return_sequences=True), nn.Dense(400)]
    with pytest.raises(StateError, match="no layer of this network keeps keys and values"):
        LanguageModel(loom.Sequential(layers, input_shape=16), byte_level(), cache_dtype=kind)
    assert loom.text.load(folder, device=gpu).complete("Once", max_tokens=2, seed=1).tokens
