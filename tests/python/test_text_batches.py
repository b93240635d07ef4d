"""Answers side by side: each gets what it gets alone, whoever joins and leaves; texts that are kept."""

from __future__ import annotations

import threading
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("tokenizers", reason="the extra text is not installed")

import loom
from loom import nn
from loom.network.slots import Slots
from loom.text import LanguageModel, Vocabulary
from text_models import byte_level, decoder

TOKENIZER = byte_level()
PROMPT = "Once upon a time there was a miller"


def model(**settings: Any) -> LanguageModel:
    return LanguageModel(
        decoder(400), Vocabulary(TOKENIZER, frozenset({1, 5})), **{"capacity": 120, **settings}
    )


@cache
def alone() -> LanguageModel:
    """What answers one prompt after the other, each from its beginning."""
    return model(kept=0)


def networks() -> dict[str, loom.Network]:
    golden = Path(__file__).parents[1] / "golden" / "hub"
    made = {
        name: loom.models.from_hub(golden / name, length=24)
        for name in ("llama", "gemma2", "gpt2", "mixtral")
    }
    made["int4"] = decoder(400)
    made["int4"].morph("int4")
    made["q8_0"] = decoder(400)
    made["q8_0"].morph("q8_0", activations="int8")
    made["float64"] = loom.Sequential(
        [nn.Embedding(30, 8), nn.Residual([nn.MultiHeadAttention(2, causal=True, window=5)]), nn.Dense(30)],
        input_shape=24,
        precision="float64",
        seed=1,
    )
    return made


FAMILIES = ["llama", "gemma2", "gpt2", "mixtral", "int4", "q8_0"]


@pytest.mark.parametrize(
    ("name", "where"), [*((name, where) for name in FAMILIES for where in ("cpu", "gpu")), ("float64", "cpu")]
)
def test_sequences_at_places_of_their_own_are_those_alone(
    name: str, where: str, request: pytest.FixtureRequest
) -> None:
    net = networks()[name]
    same = np.testing.assert_array_equal
    if where == "gpu":
        net.to(request.getfixturevalue("gpu"))
        # Products of one row and of several are made by kernels of their own there; int8 sums jump by a step.
        rtol = 0.05 if name == "q8_0" else 1e-4
        same = partial(np.testing.assert_allclose, rtol=rtol, atol=rtol)
    words = net.output_shape[-1]
    draws = np.random.default_rng(5)
    slots = Slots(net, 5, capacity=24)
    held = [net.session(24) for _ in range(5)]
    for _ in range(60 if where == "cpu" else 25):
        room = 24 - max(slots.positions)
        action = draws.random()
        if action < 0.1 or not room:
            which = int(draws.integers(5))
            place = int(draws.integers(slots.positions[which] + 1))
            slots.rewind(which, place)
            held[which].rewind(place)
        elif action < 0.2:
            source, target = draws.permutation(5)[:2]
            count = int(draws.integers(slots.positions[source] + 1))
            slots.copy(int(source), int(target), count)
            kept = held[source].kept()
            held[target].restore([array[:, :count] for array in kept])
        else:
            rows = draws.permutation(5)[: draws.integers(1, 6)]
            steps = int(draws.integers(1, min(room, 9) + 1))
            tokens = draws.integers(0, words, (len(rows), steps))
            last = bool(draws.random() < 0.5)
            found = slots(tokens, rows, last=last)
            for row, which in enumerate(rows):
                same(found[row], held[which](tokens[row][None], last=last)[0])
        assert slots.positions == [session.position for session in held]


def test_what_sequences_at_places_of_their_own_refuse(gpu: str) -> None:
    net = decoder(400)
    slots = Slots(net, 2, capacity=4)
    for rows, tokens, reason in (
        ([0, 0], [[1], [1]], "sequence 0 is there twice"),
        ([2], [[1]], "no sequence 2"),
        ([0], [[1], [1]], "a row for each"),
        ([0], [[1, 2, 3, 4, 5]], "capacity of 4"),
        ([0], [[400]], "400"),
    ):
        with pytest.raises(loom.LoomError, match=reason):
            slots(tokens, rows)
    for wrong in ((2, 0), (0, 1)):
        with pytest.raises(loom.InvalidValueError):
            slots.rewind(*wrong)
    with pytest.raises(loom.InvalidValueError):
        slots.copy(0, 1, 3)
    slots([[1, 2]], [1])
    net.load_state_dict({name: array * 2 for name, array in net.state_dict().items()})
    with pytest.raises(loom.StateError, match="has changed"):
        slots([[1]], [1])
    slots.reset()
    assert slots.positions == [0, 0]
    recurrent = loom.Sequential([nn.Embedding(9, 4), nn.GRU(4, return_sequences=True)], input_shape=8)
    with pytest.raises(loom.StateError, match="session for each"):
        Slots(recurrent, 2, capacity=4)
    slots([[1]], [1])
    net.to(gpu)
    for call in (lambda: slots([[1]], [1]), lambda: slots.follow([1], [1], [1]), slots.reset):
        with pytest.raises(loom.StateError, match="begin"):
            call()
    with pytest.raises(loom.StateError, match="on a GPU"):
        Slots(net, 2, capacity=4, cache_dtype="float16")


REQUESTS = st.fixed_dictionaries(
    {
        "prompt": st.tuples(
            st.sampled_from([[], list(range(20, 40))]), st.lists(st.integers(6, 399), max_size=70)
        ),
        "joins": st.integers(0, 20),
        "leaves": st.none() | st.integers(1, 12),
        "max_tokens": st.integers(1, 25),
        "temperature": st.sampled_from([0.0, 1.0]),
        "seed": st.integers(0, 99),
        "draft": st.sampled_from([None, "lookup"]),
        "regex": st.sampled_from([None, None, "[a-z ]{3,9}"]),
    }
)


@settings(deadline=None, max_examples=20)
@given(st.lists(REQUESTS, min_size=1, max_size=7), st.integers(1, 4))
def test_whoever_joins_and_leaves_gets_what_he_gets_alone(requests: list[dict[str, Any]], most: int) -> None:
    talks = model()
    batch = talks.batch(most)
    waiting = []
    for request in requests:
        # What several begin with is read once.
        (shared, own), joins, leaves = (request.pop(name) for name in ("prompt", "joins", "leaves"))
        prompt = [*shared, *own, 7]
        waiting.append((joins, leaves, prompt, request, talks.generate(prompt, **request)))
    told: dict[int, str] = {}
    removed: set[int] = set()
    for step in range(2000):
        for joins, _, _, _, generation in waiting:
            if joins == step:
                batch.add(generation)
        for each in batch.step():
            assert each.error is None
            told[id(each.generation)] = told.get(id(each.generation), "") + each.text
        for _, leaves, _, _, generation in waiting:
            if len(generation.tokens) == leaves and id(generation) not in removed:
                removed.add(id(generation))
                batch.remove(generation)
        assert batch.running <= most
        if step > 20 and batch.idle:
            break
    assert batch.idle
    for _, leaves, prompt, request, generation in waiting:
        wanted = alone().complete(prompt, **request)
        count = len(generation.tokens)
        assert tuple(generation.tokens) == wanted.tokens[:count]
        assert wanted.text.startswith(generation.text)
        if leaves is None or generation.finish_reason is not None:
            assert (generation.text, count) == (wanted.text, len(wanted.tokens))
            assert generation.finish_reason == wanted.finish
        assert told.get(id(generation), "") == generation.text


def test_what_several_prompts_begin_with_is_read_once() -> None:
    talks = model()
    start = list(range(20, 60))
    batch = talks.batch(3)
    streams = [talks.generate([*start, number], max_tokens=9, seed=number) for number in (7, 8, 9)]
    batch.add(streams[0])
    for _ in range(3):
        batch.step()
    # It joins while the first one goes on.
    batch.add(streams[1])
    list(batch)
    batch.add(streams[2])
    list(batch)
    assert [stream.reused_tokens for stream in streams] == [0, 40, 40]
    for stream in streams:
        assert (
            tuple(stream.tokens)
            == alone()
            .complete([*start, stream.prompt_tokens and stream.context[40]], max_tokens=9, seed=stream.seed)
            .tokens
        )


@pytest.mark.parametrize("kind", ["gpu", "recurrent"])
def test_answers_of_gpus_and_of_recurrent_layers_are_those_alone(kind: str, gpu: str) -> None:
    layers = [nn.Embedding(400, 8), nn.GRU(8, return_sequences=True), nn.Dense(400)]
    net = loom.Sequential(layers, input_shape=16, seed=2) if kind == "recurrent" else decoder(400)
    talks = LanguageModel(net, TOKENIZER, capacity=90)
    prompts = [[7], [9, 8], [7]]
    wanted = [talks.complete(prompt, max_tokens=4, temperature=0) for prompt in prompts]
    if kind == "gpu":
        net.to(gpu)
    found = talks.complete_all(prompts, together=2, max_tokens=4, temperature=0)
    assert [each.text for each in found] == [each.text for each in wanted]
    # Tokens that the network draws itself are those that each answer has alone, however many come at a time.
    drawing: dict[str, Any] = {"temperature": 1.2, "top_p": 0.9, "frequency_penalty": 0.5, "seed": 6}
    alone = [talks.complete(prompt, max_tokens=40, ignore_end=True, **drawing) for prompt in prompts]
    for together in (2, 3):
        found = talks.complete_all(prompts, together=together, max_tokens=40, ignore_end=True, **drawing)
        assert [each.tokens for each in found] == [each.tokens for each in alone]


def test_a_batch_whose_network_changes_or_fails() -> None:
    talks = model()
    batch = talks.batch(2)
    writes, waits = (
        talks.generate(PROMPT, max_tokens=30, seed=1),
        talks.generate([7] * 100, max_tokens=5, temperature=0),
    )
    batch.add(writes)
    for _ in range(3):
        batch.step()
    batch.add(waits)
    batch.step()
    assert writes.tokens
    assert not waits.tokens
    talks.network.load_state_dict({name: array * 0.9 for name, array in talks.network.state_dict().items()})
    told = list(batch)
    (failed,) = [each for each in told if each.error is not None]
    assert failed.generation is writes
    assert isinstance(failed.error, loom.StateError)
    # Who has written nothing is read by the network as it is now.
    assert waits.finish_reason == "length"
    assert (
        waits.completion().tokens
        == model_of(talks.network).complete([7] * 100, max_tokens=5, temperature=0).tokens
    )
    factors = {"0.0.0.5.weight": 1e5, "0.0.0.6.weight": 1e37}
    state = talks.network.state_dict().items()
    talks.network.load_state_dict({name: array * np.float32(factors.get(name, 1.0)) for name, array in state})
    with pytest.raises(loom.NonFiniteError):
        talks.complete_all([PROMPT, "a"], max_tokens=30)
    with pytest.raises(loom.ConfigError, match="together"):
        talks.complete_all(["a"], together=0)


def model_of(net: loom.Network) -> LanguageModel:
    return LanguageModel(net, TOKENIZER, capacity=120)


def test_a_text_that_was_read_is_kept_in_a_file(tmp_path: Path, gpu: str) -> None:
    """A whole program: what all prompts begin with is read once, stored, and taken up by another process."""
    path = tmp_path / "system.safetensors"
    talks = model()
    count = talks.save_cache(path, PROMPT)
    assert count == len(talks.encode(PROMPT))
    again = model(capacity=200)
    assert again.load_cache(path) == count
    wanted = alone().complete(PROMPT + " who", max_tokens=20, seed=3)
    found = again.complete(PROMPT + " who", max_tokens=20, seed=3)
    assert found.reused_tokens == count
    assert found.tokens == wanted.tokens
    # On a GPU, too.
    again.network.to(gpu)
    again.forget()
    again.load_cache(path)
    assert again.complete(PROMPT, max_tokens=3, temperature=0).reused_tokens == count - 1
    with pytest.raises(loom.text.ContextLengthError, match="capacity is 9"):
        model(capacity=9).load_cache(path)
    other = model()
    other.network.load_state_dict({name: array * 2 for name, array in other.network.state_dict().items()})
    with pytest.raises(loom.SerializationError, match="other weights"):
        other.load_cache(path)
    loom.save_gguf(decoder(400), tmp_path / "net.gguf")
    with pytest.raises(loom.SerializationError, match="no cache"):
        talks.load_cache(tmp_path / "net.gguf")
    with pytest.raises(loom.FileError):
        talks.load_cache(tmp_path / "nowhere")


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("draft", [None, "lookup"])
def test_answers_go_on_past_the_capacity(temperature: float, draft: Any) -> None:
    short = model(capacity=24)
    prompt, options = [9, 8, 7, 6, 30], {"temperature": temperature, "seed": 5, "ignore_end": True}
    found = short.complete(prompt, max_tokens=70, sinks=3, draft=draft, **options)
    assert len(found.tokens) == 70
    # By hand: a whole prediction of what is in sight, of which the middle goes where it is full.
    from loom.text.sampling import Sampler, Sampling

    sampler = Sampler(Sampling(temperature=temperature, seed=5), prompt, 400)
    text = list(prompt)
    for choice in found.tokens:
        if len(text) > 24:
            text = text[:3] + text[-10:]
        x = np.zeros((1, 64), np.int64)
        x[0, : len(text)] = text
        token = sampler.choose(short.network.predict(x)[0, len(text) - 1]).token
        assert choice.token == token
        text.append(token)
    # Side by side as alone.
    (together,) = short.complete_all([prompt], max_tokens=70, sinks=3, **options)
    assert together.tokens == found.tokens
    with pytest.raises(loom.text.ContextLengthError):
        short.generate(prompt, max_tokens=70)
    # And where nothing says how long it may be, until it is ended.
    endless = short.generate(prompt, sinks=3, draft=draft, **options)
    while len(endless.tokens) < 70:
        next(endless)
    assert tuple(endless.tokens[:70]) == found.tokens
    endless.close()
    for whole in (lambda: short.complete(prompt, sinks=3, **options), endless.finish):
        with pytest.raises(loom.ConfigError, match="nothing would end"):
            whole()
    with pytest.raises(loom.ConfigError, match="nothing would end"):
        short.complete_all([prompt], sinks=3, **options)
    with pytest.raises(loom.ConfigError, match="sinks"):
        short.generate(prompt, sinks=23)


def test_threads_may_add_while_one_steps() -> None:
    talks = model()
    batch = talks.batch(3)
    streams = [talks.generate([7, number], max_tokens=12, seed=number) for number in range(8, 16)]
    threads = [threading.Thread(target=batch.add, args=(stream,)) for stream in streams]
    for thread in threads:
        thread.start()
    while any(stream.finish_reason is None for stream in streams):
        batch.step()
    for thread in threads:
        thread.join()
    for number, stream in enumerate(streams, 8):
        assert tuple(stream.tokens) == alone().complete([7, number], max_tokens=12, seed=number).tokens


def test_a_gpu_without_room_for_all_answers_takes_turns(gpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Slots:
        raise loom.DeviceError("no room")

    talks = model()
    talks.network.to(gpu)
    prompts, options = [[7, 8, 9], [9, 8]], {"max_tokens": 6, "temperature": 0.0}
    wanted = talks.complete_all(prompts, **options)
    monkeypatch.setattr("loom.text.slots.Slots", full)
    with pytest.warns(RuntimeWarning, match="no room; so answers take turns"):
        found = talks.complete_all(prompts, **options)
    assert [each.tokens for each in found] == [each.tokens for each in wanted]


def test_more_keys_than_a_kernel_sees_are_refused(gpu: str) -> None:
    net = decoder(400).to(gpu)
    with pytest.raises(loom.DeviceError, match="see at once"):
        Slots(net, 1 << 14, capacity=1 << 14)
