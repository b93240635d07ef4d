"""Language models: what they write token by token, in whole characters, and from where they go on."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("tokenizers", reason="the extra text is not installed")

from tokenizers import Tokenizer, decoders, models

import loom
from loom import nn
from loom.text import ChatTemplate, LanguageModel, Vocabulary, generation
from loom.text.sampling import LEAST_MASS
from loom.text.streaming import Stopper, TextStream
from loom.text.token_bytes import TokenBytes
from text_models import CHAT, TEXTS, byte_level, decoder, sentence_pieces

PROMPT = "Once upon a time"


def model(**settings: Any) -> LanguageModel:
    vocabulary = Vocabulary(byte_level(), frozenset({1, 5}), template=ChatTemplate(CHAT))
    return LanguageModel(decoder(400), vocabulary, **settings)


@pytest.fixture(scope="module")
def usual() -> LanguageModel:
    return model(capacity=200)


def chain(net: loom.Network, tokens: list[int], count: int) -> list[int]:
    """The likeliest token, again and again, by predictions of the whole text."""
    text = list(tokens)
    for _ in range(count):
        x = np.zeros((1, *net.input_shape), np.int64)
        x[0, : len(text)] = text
        text.append(int(net.predict(x)[0, len(text) - 1].argmax()))
    return text[len(tokens) :]


@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2", "gpt2", "mixtral"])
def test_greedy_text_is_the_chain_of_likeliest_tokens(name: str) -> None:
    folder = Path(__file__).parents[1] / "golden" / "hub" / name
    net = loom.models.from_hub(folder, length=24)
    tokens = [3, 14, 15, 9, 2]
    found = LanguageModel(net, byte_level()).complete(tokens, max_tokens=12, temperature=0, logprobs=0)
    assert [choice.token for choice in found.tokens] == chain(net, tokens, 12)
    x = np.zeros((1, 24), np.int64)
    x[0, :5] = tokens
    scores = net.predict(x)[0, 4].astype(np.float64)
    best = scores.max() - np.log(np.exp(scores - scores.max()).sum()) - scores.max()
    assert found.tokens[0].logprob == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.2},
        {"top_k": 30, "min_p": 0.02, "frequency_penalty": 0.5, "logit_bias": {17: 3.0}},
        {"typical": 0.95, "logit_bias": dict.fromkeys(range(0, 400, 2), float("-inf"))},
        {"top_p": LEAST_MASS},
    ],
    ids=str,
)
def test_gpus_draw_what_the_host_would_draw_of_their_scores(
    settings: dict[str, Any], gpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several tokens at a time, however slow the machine is.
    monkeypatch.setattr(generation, "_SOON", 1e9)
    on_gpu = model(capacity=200)
    on_gpu.network.to(gpu)

    def tokens(**more: Any) -> list[int]:
        asked = {"max_tokens": 60, "seed": 8, "ignore_end": True, **settings, **more}
        return [choice.token for choice in on_gpu.complete(PROMPT, **asked).tokens]

    before = loom.frame_statistics(gpu).bytes_down
    drawn = tokens()
    between = loom.frame_statistics(gpu).bytes_down
    # Who wants logarithms of probabilities wants scores.
    assert tokens(logprobs=0) == drawn
    assert between - before < (loom.frame_statistics(gpu).bytes_down - between) / 2


def test_pieces_are_the_whole_and_a_seed_repeats_it(usual: LanguageModel) -> None:
    stream = usual.generate(PROMPT, max_tokens=60, temperature=1.3, top_p=0.95, ignore_end=True)
    pieces = list(stream)
    assert len(pieces) > 20
    assert all(pieces)
    whole = usual.complete(
        PROMPT, max_tokens=60, temperature=1.3, top_p=0.95, ignore_end=True, seed=stream.seed
    )
    assert "".join(pieces) == stream.text == whole.text
    assert whole.tokens == tuple(stream.tokens)
    assert (stream.finish_reason, whole.finish, len(whole.tokens)) == ("length", "length", 60)
    assert (whole.prompt_tokens, stream.prompt_tokens) == (len(usual.encode(PROMPT)),) * 2
    # The same as what the tokens say together, as random bytes leave characters broken in both.
    tokens = usual.encode(PROMPT) + [choice.token for choice in whole.tokens]
    assert usual.decode(tokens) == PROMPT + whole.text
    other = usual.complete(PROMPT, max_tokens=60, seed=stream.seed, stream=1, ignore_end=True)
    assert other.tokens != whole.tokens


@settings(deadline=None)
@given(st.lists(st.integers(0, 399), max_size=40), st.integers(0, 3))
def test_streams_of_bytes_say_what_the_tokens_say(tokens: list[int], before: int) -> None:
    tokenizer = byte_level_once()
    # What goes before ends in a whole character.
    start = tokenizer.encode("é森 a"[:before]).ids
    stream = TextStream(TokenBytes(tokenizer), start)
    pieces = [*map(stream.add, tokens), stream.finish()]
    assert "".join(pieces) == tokenizer.decode(start + tokens).removeprefix(tokenizer.decode(start))
    assert all(not piece.endswith("\ufffd") for piece in pieces[:-1])


BYTES = st.one_of(
    st.binary(min_size=1, max_size=3),
    st.sampled_from(["é", "世", "🐈", "a", "\n"]).map(str.encode),
    st.sampled_from([b"\xe4\xb8", b"\xf0\x9f\x90", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf"]),
)


def _with_marks(held: bytes) -> str:
    """What SentencePiece makes of bytes: characters, and a mark for each byte that is no part of one."""
    text = ""
    while held:
        sizes = (size for size in range(1, 5) if held[:size].decode(errors="ignore").encode() == held[:size])
        size = next((size for size in sizes if len(held) >= size), 0)
        text += held[:size].decode() if size else "\ufffd"
        held = held[size or 1 :]
    return text


@settings(deadline=None)
@given(st.lists(st.one_of(BYTES, st.sampled_from(["two", "森", " "])), max_size=6), st.data())
@example([b"\xc3\xa9", b"\xff"], None)
def test_streams_of_broken_bytes_are_what_all_their_tokens_say(
    parts: list[bytes | str], data: st.DataObject | None
) -> None:
    tokenizer = sentence_pieces_once()
    tokens = tokenizer.encode("森").ids
    wanted = tokenizer.decode(tokens)
    run = b""
    for part in parts:
        if isinstance(part, bytes):
            tokens += [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in part]
            run += part
            if data is not None and data.draw(st.booleans()):
                # What is not written does not part what stands beside it.
                tokens.append(tokenizer.token_to_id("<s>"))
            continue
        wanted, run = wanted + _with_marks(run), b""
        mine = TokenBytes(tokenizer).behind(part)
        assert mine is not None
        if any(tokenizer.id_to_token(token).startswith("<0x") for token in mine):
            run = part.encode()
        else:
            wanted += part
        tokens += mine
    wanted += _with_marks(run)
    assert piece_model().decode(tokens) == wanted
    stream = TextStream(TokenBytes(tokenizer))
    pieces = [*map(stream.add, tokens), stream.finish()]
    assert "".join(pieces) == wanted
    if "\ufffd" not in wanted:
        assert wanted == tokenizer.decode(tokens)


@settings(deadline=None)
@given(st.lists(st.sampled_from([*TEXTS[2:], " ", "a", "  two", "🐈", "\n"]), max_size=4), st.data())
def test_streams_of_pieces_say_what_the_tokens_say(texts: list[str], data: st.DataObject) -> None:
    tokenizer = sentence_pieces_once()
    tokens = tokenizer.encode(" ".join(texts)).ids
    cut = data.draw(st.integers(0, len(tokens)))
    while "\ufffd" in tokenizer.decode(tokens[:cut]):
        cut -= 1
    stream = TextStream(TokenBytes(tokenizer), tokens[:cut])
    pieces = [*map(stream.add, tokens[cut:]), stream.finish()]
    assert tokenizer.decode(tokens[:cut]) + "".join(pieces) == tokenizer.decode(tokens)
    assert not any("\ufffd" in piece for piece in pieces)


@cache
def piece_model() -> LanguageModel:
    return LanguageModel(decoder(450), sentence_pieces_once())


byte_level_once = cache(byte_level)
sentence_pieces_once = cache(sentence_pieces)


@cache
def bytes_alone() -> Tokenizer:
    """A tokenizer whose tokens are single bytes."""
    words = {f"<0x{byte:02X}>": byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(words, [], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


@pytest.mark.parametrize("made", [bytes_alone, byte_level_once, sentence_pieces_once])
@pytest.mark.parametrize("before", ["", "a", "üüüüa", "xx森森森a", "鱻🐈🐈🐈", "a\ufffd", "\ufffd" * 9])
@pytest.mark.parametrize("after", ["läuft", "🐈x", "鱻", " a"])
def test_streams_go_on_from_any_place_of_a_text(
    made: Callable[[], Tokenizer], before: str, after: str
) -> None:
    tokenizer = made()
    start = tokenizer.encode(before).ids
    tokens = tokenizer.encode("a" + after, add_special_tokens=False).ids[1:]
    begun, whole = tokenizer.decode(start), tokenizer.decode(start + tokens)
    held = TokenBytes(tokenizer)
    for cut in range(len(tokens)):
        # A character within which the text before ends is told with what ends it.
        known = whole[: len(begun) + len(b"".join(map(held.of, tokens[:cut])).decode(errors="ignore"))]
        stream = TextStream(held, [*start, *tokens[:cut]])
        pieces = [*map(stream.add, tokens[cut:]), stream.finish()]
        assert known + "".join(pieces) == whole


@settings(deadline=None)
@given(
    st.text("ab\n", max_size=30),
    st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(1, 4), max_size=30),
)
@example("a\na", ["\n", "a\na"], [1, 1])
def test_stops_end_a_text_before_the_one_that_is_whole_first(
    text: str, stops: list[str], sizes: list[int]
) -> None:
    ends = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    expected = text[: min(ends)[1]] if ends else text
    stopper, told, left = Stopper(stops), "", text
    for size in sizes:
        told += stopper.add(left[:size])
        left = left[size:]
        # Nothing is told that a stop may yet take back.
        assert expected.startswith(told)
    told += stopper.add(left) + stopper.finish()
    assert told == expected
    assert (stopper.found is not None) == bool(ends)


def test_stop_texts_across_tokens(usual: LanguageModel) -> None:
    whole = usual.complete(PROMPT, max_tokens=40, temperature=0, ignore_end=True).text
    middle = whole[len(whole) // 2 : len(whole) // 2 + 3]
    found = usual.complete(PROMPT, max_tokens=40, temperature=0, ignore_end=True, stop=["~~~~", middle])
    assert found.text == whole[: whole.index(middle)]
    assert (found.finish, found.stop) == ("stop", middle)
    assert len(found.tokens) < 40
    # What was held back comes at the end.
    held = usual.complete(PROMPT, max_tokens=40, temperature=0, ignore_end=True, stop=whole[-2:] + "~")
    assert (held.text, held.finish, held.stop) == (whole, "length", None)


def test_tokens_that_end_an_answer(usual: LanguageModel) -> None:
    for token in (1, 5):
        found = usual.complete(PROMPT, logit_bias={token: 100.0}, max_tokens=9)
        assert (found.text, found.finish, found.stop) == ("", "stop", None)
        assert [choice.token for choice in found.tokens] == [token]
    on = usual.complete(PROMPT, logit_bias={5: 100.0}, max_tokens=9, ignore_end=True)
    assert (len(on.tokens), on.finish, on.text) == (9, "length", "")


def test_logprobs_are_told_where_asked_for(usual: LanguageModel) -> None:
    told = usual.complete(PROMPT, max_tokens=5, seed=1, logprobs=3, temperature=0.7, ignore_end=True).tokens
    plain = usual.complete(PROMPT, max_tokens=5, seed=1, temperature=0.7, ignore_end=True).tokens
    assert [choice.token for choice in told] == [choice.token for choice in plain]
    assert all(choice.logprob is None for choice in plain)
    for choice in told:
        assert len(choice.top) == 3
        assert choice.logprob is not None
        assert choice.logprob <= choice.top[0][1] < 0


def test_what_the_files_recommend_holds_where_nothing_is_said() -> None:
    vocabulary = Vocabulary(byte_level(), sampling={"temperature": 0.0})
    greedy = LanguageModel(decoder(400), vocabulary)
    tokens = greedy.encode(PROMPT)
    found = greedy.complete(PROMPT, max_tokens=6)
    assert [choice.token for choice in found.tokens] == chain(greedy.network, tokens, 6)
    assert greedy.complete(PROMPT, max_tokens=6, temperature=None).tokens == found.tokens
    warm = greedy.complete(PROMPT, max_tokens=6, temperature=1.0, seed=1)
    assert warm.tokens != found.tokens


def test_a_chat_goes_on_from_what_was_read() -> None:
    talks = model(capacity=200)
    messages = [{"role": "user", "content": "Hello"}]
    first = talks.chat(messages, max_tokens=8, temperature=0, logit_bias={1: -100, 5: -100}).finish()
    assert first.reused_tokens == 0
    # The very tokens of the answer, where its text becomes them again.
    said = talks.encode(talks.chat_text(messages), special=False) + [choice.token for choice in first.tokens]
    more = [*said, *talks.encode("<|end|><|user|>And?<|end|><|assistant|>")]
    on = talks.complete(more, max_tokens=8, temperature=0)
    # The last token that was chosen had not been read.
    assert on.reused_tokens == len(said) - 1
    assert on.tokens == model(capacity=200).complete(more, max_tokens=8, temperature=0).tokens
    # What does not go on from it is read from its beginning.
    assert talks.complete(PROMPT, max_tokens=1).reused_tokens == 0
    assert talks.complete(more[:-1], max_tokens=1).reused_tokens == 0


def test_a_network_that_has_changed_is_read_anew() -> None:
    talks = model(capacity=100)
    first = talks.complete(PROMPT, max_tokens=4, temperature=0, ignore_end=True)
    more = [*talks.encode(PROMPT), *[choice.token for choice in first.tokens], 40]
    state = {name: array * 0.5 for name, array in talks.network.state_dict().items()}
    talks.network.load_state_dict(state)
    found = talks.complete(more, max_tokens=4, temperature=0, ignore_end=True)
    assert found.reused_tokens == 0
    assert [choice.token for choice in found.tokens] == chain(talks.network, more, 4)


def test_an_answer_that_is_ended_early(usual: LanguageModel) -> None:
    with usual.generate(PROMPT, seed=1, ignore_end=True) as stream:
        next(stream)
        count = len(stream.tokens)
    assert list(stream) == []
    assert (len(stream.tokens), stream.finish_reason) == (count, None)
    # Its session is free, and knows what it has read.
    again = usual.complete([*usual.encode(PROMPT), *[choice.token for choice in stream.tokens]], max_tokens=1)
    assert again.reused_tokens == len(usual.encode(PROMPT)) + count - 1


def test_several_answers_side_by_side_are_those_alone() -> None:
    talks = model(capacity=100)
    prompts = ["Es war einmal", "a", PROMPT * 3]
    alone = [talks.complete(prompt, max_tokens=20, seed=4, ignore_end=True).tokens for prompt in prompts]
    streams = [talks.generate(prompt, max_tokens=20, seed=4, ignore_end=True) for prompt in prompts]
    open_ones = list(streams)
    while open_ones:
        open_ones = [stream for stream in open_ones if stream.step() is not None]
    assert [tuple(stream.tokens) for stream in streams] == alone
    found: list[Any] = [None] * len(prompts)

    def work(place: int) -> None:
        found[place] = talks.complete(prompts[place], max_tokens=20, seed=4, ignore_end=True).tokens

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == alone
    together = talks.complete_all(prompts, max_tokens=20, seed=4, ignore_end=True)
    assert [each.tokens for each in together] == alone


def test_on_a_gpu_the_likeliest_tokens_are_those_of_the_cpu(gpu: str) -> None:
    wanted = model().complete(PROMPT, max_tokens=12, temperature=0, ignore_end=True)
    talks = model()
    talks.complete(PROMPT, max_tokens=1)
    # A session of the CPU is no use there.
    talks.network.to(gpu)
    found = talks.complete(PROMPT, max_tokens=12, temperature=0, ignore_end=True)
    assert [choice.token for choice in found.tokens] == [choice.token for choice in wanted.tokens]


def test_what_does_not_fit_is_refused(usual: LanguageModel) -> None:
    prompt = [7] * 150
    assert len(usual.complete(prompt, ignore_end=True).tokens) == 51
    with pytest.raises(loom.text.ContextLengthError, match=r"150 tokens and max_tokens=52 is more.* 200"):
        usual.generate(prompt, max_tokens=52)
    with pytest.raises(loom.ConfigError, match="larger capacity"):
        usual.generate([7] * 201)
    for wrong, reason in (
        ([], "no tokens"),
        ("", "no tokens"),
        ([400], "token 400; the network knows 400"),
        ([-1], "token -1"),
        ([1 << 70], "which no network knows"),
        ([7, 1.5], "whole numbers, got 1.5"),
        (["Once", "upon"], "got 'Once' among them; complete_all takes several texts"),
        (None, "whole numbers, got None"),
        (b"Once", "got bytes; .decode"),
        ("a\ud83d", "'.ud83d' at 1, half of a pair of surrogates"),
    ):
        held: Any = wrong
        with pytest.raises(loom.ConfigError, match=reason):
            usual.generate(held)
        if wrong != [] and wrong != "" and wrong not in ([400], [-1]):
            with pytest.raises(loom.ConfigError, match=reason):
                usual.embed([held])
            with pytest.raises(loom.ConfigError, match=reason):
                loom.text.perplexity(usual, held)
    for options, reason in (
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": [""]}, "stop"),
        ({"stop": [3]}, "stop"),
        ({"stop": 3}, "stop must be texts that are not empty, got 3"),
        ({"stream": -1}, "stream"),
        ({"stream": 1 << 32}, "stream"),
        ({"stream": True}, "stream must be a whole number"),
        ({"ignore_end": "no"}, "ignore_end must be True or False"),
        ({"logprobs": -1}, "logprobs"),
        ({"temprature": 1}, "no option 'temprature'"),
        ({"top_p": 2}, "top_p"),
    ):
        with pytest.raises(loom.ConfigError, match=reason):
            usual.generate(PROMPT, **options)  # type: ignore[arg-type]


def test_calls_with_other_things_than_texts_and_tokens(usual: LanguageModel, tmp_path: Path) -> None:
    calls: list[tuple[Any, str]] = [
        # One text, whose characters would be texts.
        (lambda: usual.complete_all("Once"), r"complete_all takes a list of texts, got 'Once'; put one text"),
        (lambda: usual.embed("Once"), "embed takes a list of texts"),
        (lambda: usual.encode(["Once"]), "encode takes a text, got"),  # type: ignore[arg-type]
        (lambda: usual.decode([-1]), "no token -1"),
        (lambda: usual.token_bytes(-1), "no token -1"),
        (lambda: usual.token_bytes(1 << 32), "no token 4294967296"),
        (lambda: usual.token_bytes("a"), "a whole number"),  # type: ignore[arg-type]
        (lambda: usual.decode("Once"), "decode takes tokens"),  # type: ignore[arg-type]
        # The last of them would be taken for one counted from behind.
        (lambda: loom.text.perplexity(usual, [5, 3, -1]), "the text has token -1; the network knows 400"),
        (lambda: loom.text.perplexity(usual, [5, 3, 400]), "the text has token 400"),
    ]
    for call, reason in calls:
        with pytest.raises(loom.ConfigError, match=reason):
            call()
    with pytest.raises(loom.FileError, match=r"no such file here; .*loom\.text\.load\(\"model\"\) reads it"):
        loom.text.load("owner/model")
    with pytest.raises(loom.FileError, match=r"no such file here$"):
        loom.text.load(tmp_path / "model.gguf")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda held: pickle.loads(pickle.dumps(held))])
def test_copies_write_what_the_model_writes(copied: Any) -> None:
    first = model(capacity=100, kept=3)
    first.network.add_adapter(rank=2)
    wanted = first.complete(PROMPT, max_tokens=10, seed=1)
    other = copied(first)
    assert other.complete(PROMPT, max_tokens=10, seed=1) == wanted
    assert (other.capacity, other.vocabulary.end) == (100, first.vocabulary.end)
    messages = [{"role": "user", "content": "Hello"}]
    assert other.chat_text(messages) == first.chat_text(messages)
    other.network.remove_adapters()
    assert "default" in first.network.adapters


def test_scores_that_are_no_numbers() -> None:
    broken = model()
    factors = {"0.0.0.5.weight": 1e5, "0.0.0.6.weight": 1e37}
    state = broken.network.state_dict().items()
    broken.network.load_state_dict(
        {name: array * np.float32(factors.get(name, 1.0)) for name, array in state}
    )
    with pytest.raises(loom.NonFiniteError):
        broken.complete(PROMPT * 2, max_tokens=40)


def test_models_that_do_not_chat_or_write() -> None:
    with pytest.raises(loom.ConfigError, match="no chat template"):
        LanguageModel(decoder(400), byte_level()).chat([{"role": "user", "content": "a"}])
    with pytest.raises(loom.ShapeError, match="reads token ids"):
        LanguageModel(loom.Sequential([nn.Dense(3)], input_shape=(4, 5)), byte_level())
    pooled = loom.Sequential([nn.Embedding(400, 8), nn.Flatten(), nn.Dense(3)], input_shape=4)
    with pytest.raises(loom.ConfigError, match="no scores of a next token"):
        LanguageModel(pooled, byte_level()).generate("a")
    assert not LanguageModel(pooled, byte_level()).generates
    assert LanguageModel(decoder(400), byte_level()).generates


def test_perplexity(usual: LanguageModel) -> None:
    text = " ".join(TEXTS[:2])
    tokens = usual.encode(text)
    count = min(len(tokens), 64)
    x = np.zeros((1, 64), np.int64)
    x[0, :count] = tokens[:count]
    scores = usual.network.predict(x)[0].astype(np.float64)
    told = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    wanted = np.exp(-np.mean([told[place - 1, tokens[place]] for place in range(1, count)]))
    assert loom.text.perplexity(usual, tokens[:count]) == pytest.approx(wanted, rel=1e-5)
    # In windows: each token given those of its window before it.
    window, stride = 10, 4
    logarithms, reached, start = [], 1, 0
    while reached < 30:
        part = tokens[start : min(start + window, 30)]
        x[0, : len(part)] = part
        scores = usual.network.predict(x)[0].astype(np.float64)
        told = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
        logarithms += [told[at - start - 1, tokens[at]] for at in range(reached, start + len(part))]
        reached, start = start + len(part), start + stride
    assert len(logarithms) == 29
    found = loom.text.perplexity(usual, tokens[:30], window=window, stride=stride)
    assert found == pytest.approx(math.exp(-np.mean(logarithms)), rel=1e-5)
    assert loom.text.perplexity(usual, text) == loom.text.perplexity(usual, tokens)
    for wrong, reason in (
        ({"text": "a"}, "1 tokens has none"),
        ({"window": 1}, "window"),
        ({"window": 201}, "window"),
        ({"window": 4, "stride": 4}, "stride"),
    ):
        with pytest.raises(loom.ConfigError, match=reason):
            loom.text.perplexity(usual, **{"text": text, **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("end", [nn.Softmax(), nn.Sequential([nn.Softmax()])])
def test_networks_that_make_probabilities_write_as_those_that_make_scores(end: nn.Layer) -> None:
    scores = decoder(400)
    layers = [layer.config for layer in scores.layers]
    shares = loom.Sequential([*layers, end], input_shape=64)
    shares.load_state_dict(scores.state_dict())
    talks, other = (LanguageModel(net, byte_level_once(), capacity=60) for net in (scores, shares))
    guesses = LanguageModel(copy.deepcopy(shares), byte_level_once(), capacity=60)
    ways: list[dict[str, Any]] = [{"temperature": 0.3, "seed": 1}, {"top_p": 0.5, "typical": 0.9, "seed": 2}]
    for way in [*ways, {"temperature": 0.0}]:
        options: Any = {"max_tokens": 20, "frequency_penalty": 0.5, **way}
        expected = talks.complete(PROMPT, logprobs=2, **options)
        found = other.complete(PROMPT, logprobs=2, **options)
        assert found.text == expected.text
        for one, two in zip(found.tokens, expected.tokens, strict=True):
            assert one.logprob == pytest.approx(two.logprob, abs=1e-4)
        stream = other.generate(PROMPT, draft=guesses, **options)
        assert stream.finish().text == expected.text
        assert stream.right_tokens == stream.guessed_tokens
        assert other.complete_all([PROMPT], **options)[0].text == found.text
    text = TEXTS[0]
    assert loom.text.perplexity(other, text) == pytest.approx(loom.text.perplexity(talks, text), rel=1e-5)
    pair = {"prompt": PROMPT, "chosen": " a", "rejected": " b"}
    with pytest.raises(loom.ConfigError, match="align: the network ends in a softmax"):
        loom.text.align(other, [pair])


def test_vectors_of_a_decoder_are_those_before_its_head() -> None:
    talks = model()
    texts = ["Once", PROMPT * 2]
    found = {pooling: talks.embed(texts, pooling) for pooling in ("mean", "first", "last")}
    body = talks.network.cut("0.0.0.5")
    for row, text in enumerate(texts):
        tokens = talks.encode(text)
        x = np.zeros((1, 64), np.int64)
        x[0, : len(tokens)] = tokens
        steps = body.predict(x)[0, : len(tokens)]
        np.testing.assert_allclose(found["mean"][row], steps.mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found["first"][row], steps[0])
        np.testing.assert_array_equal(found["last"][row], steps[-1])
    np.testing.assert_array_equal(talks.embed(texts), found["mean"])
    talks.network.load_state_dict({name: array * 2 for name, array in talks.network.state_dict().items()})
    assert np.abs(talks.embed(texts) - found["mean"]).max() > 0.01
    with pytest.raises(loom.ConfigError, match="pooling"):
        talks.embed(texts, "max")
    with pytest.raises(loom.ConfigError, match="larger capacity"):
        talks.embed(["森" * 100])
    for wrong, reason in (([""], "no tokens"), ([], "no texts")):
        with pytest.raises(loom.ConfigError, match=reason):
            talks.embed(wrong)


def test_vectors_are_made_where_the_network_is(gpu: str) -> None:
    talks = LanguageModel(decoder(400), byte_level(), capacity=40)
    wanted = talks.embed(["Once upon", "a"])
    for device in (gpu, "cpu"):
        talks.network.to(device)
        np.testing.assert_allclose(talks.embed(["Once upon", "a"]), wanted, atol=1e-5)
        features = talks._embedder._features
        assert features is not None
        assert str(features.device) == device


def test_vectors_of_encoders() -> None:
    golden = Path(__file__).parents[1] / "golden" / "hub"
    tokenizer = byte_level()

    def encoder(name: str, pad: int | None = 0) -> LanguageModel:
        net = loom.models.from_hub(golden / name, length=16)
        made = LanguageModel(net, Vocabulary(tokenizer, pad=pad))
        # Its vocabulary has 31 words.
        made.encode = lambda text, *, special=True: [3 + ord(each) % 28 for each in text]  # type: ignore[method-assign]
        return made

    pooled = encoder("sentences")
    vectors = pooled.embed(["abc", "a longer text"])
    x = np.zeros((1, 16), np.int64)
    x[0, :3] = [3 + ord(each) % 28 for each in "abc"]
    np.testing.assert_array_equal(vectors[0], pooled.network.predict(x)[0])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-5)
    with pytest.raises(loom.ConfigError, match="pools by itself"):
        pooled.embed(["abc"], "mean")
    with pytest.raises(loom.ConfigError, match="17 tokens; the network reads 16"):
        pooled.embed(["a" * 17])
    # Without a padding token texts are read as long as they are.
    np.testing.assert_allclose(encoder("sentences", None).embed(["abc"]), vectors[:1], rtol=1e-5, atol=1e-6)
    assert encoder("sentences", None).embed(["a" * 16]).shape == vectors[:1].shape
    steps = encoder("bert")
    assert not steps.generates
    made = steps.network.predict(x)[0, :3]
    np.testing.assert_allclose(steps.embed(["abc"])[0], made.mean(0), rtol=1e-6)
    np.testing.assert_array_equal(steps.embed(["abc"], "first")[0], made[0])
    with pytest.raises(loom.StateError):
        steps.complete([3, 4])


def looking(steps: int | None, *, at_places: bool = False, pooled: bool = False) -> loom.Network:
    """An encoder that knows no padding."""
    rows: list[nn.Layer] = [nn.Embedding(400, 16)]
    rows += [nn.PositionalEmbedding(12)] if at_places else []
    rows += [nn.Residual([nn.MultiHeadAttention(2)]), nn.Dense(8)]
    rows += [nn.LSTM(4)] if pooled else []
    return loom.Sequential(rows, input_shape=(steps,), seed=1)


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("pad", [None, 0])
@pytest.mark.parametrize("steps", [None, 12])
def test_padding_never_counts(steps: int | None, pad: int | None, pooled: bool) -> None:
    net = looking(steps, pooled=pooled)
    talks = LanguageModel(net, Vocabulary(byte_level(), pad=pad))
    texts = ["Once upon", "a", "森 b"]
    found = talks.embed(texts)
    for text, vector in zip(texts, found, strict=True):
        alone = looking(len(talks.encode(text)), pooled=pooled)
        alone.load_state_dict(net.state_dict())
        y = alone.predict(np.array([talks.encode(text)]))[0]
        np.testing.assert_allclose(vector, y if pooled else y.mean(0), rtol=1e-5, atol=1e-6)
    assert net.input_shape == (steps,)


@pytest.mark.parametrize(("pad", "told"), [(None, "no padding token"), (0, r"nn\.Masked\(value=0\)")])
def test_a_network_that_cannot_do_without_padding_says_so(pad: int | None, told: str) -> None:
    rows: list[nn.Layer] = [nn.Embedding(400, 4), nn.Flatten(), nn.Dense(8)]
    net = loom.Sequential(rows, input_shape=(12,), seed=1)
    talks = LanguageModel(net, Vocabulary(byte_level(), pad=pad))
    with pytest.raises(loom.ConfigError, match=told):
        talks.embed(["a"])
    assert net.input_shape == (12,)
    assert talks.embed([[7] * 12]).shape == (1, 8)


def test_a_network_that_reads_any_number_of_steps_writes() -> None:
    attention = nn.MultiHeadAttention(2, causal=True, rotary=nn.Rotary())
    rows: list[nn.Layer] = [nn.Embedding(400, 16), nn.Residual([attention]), nn.Dense(400)]
    net = loom.Sequential(rows, input_shape=(None,), seed=1)
    talks = LanguageModel(net, byte_level())
    fixed = loom.Sequential(rows, input_shape=(20,), seed=1)
    fixed.load_state_dict(net.state_dict())
    other = LanguageModel(fixed, byte_level(), capacity=60)
    assert talks.capacity == 4096
    assert talks.complete(PROMPT, max_tokens=9, seed=1) == other.complete(PROMPT, max_tokens=9, seed=1)
    np.testing.assert_array_equal(talks.embed([PROMPT]), other.embed([PROMPT]))
    assert loom.text.perplexity(talks, PROMPT) == loom.text.perplexity(other, PROMPT)
    config = loom.TrainingConfig(epochs=1, batch_size=2, loss="cross_entropy", shuffle=False, verbose=False)
    for each in (talks, other):
        loom.text.fine_tune(each, [PROMPT, "Once"], config, adapter=None)
    for one, two in zip(net.state_dict().values(), fixed.state_dict().values(), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-7)
    assert net.input_shape == (None,)
    with pytest.raises(loom.ConfigError, match="pack=True needs a network that reads a number of steps"):
        loom.text.fine_tune(talks, [PROMPT, "Once"], config, adapter=None, pack=True)


def test_a_model_that_learns_bytes_and_then_writes() -> None:
    """From nothing to text: a few seconds of training, then whole words of what was read."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = {f"<0x{byte:02X}>": byte for byte in range(256)}
    tokenizer = Tokenizer(models.BPE(alphabet, [], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    text = "Süßes läuft. "
    stream = np.frombuffer((text * 100).encode(), np.uint8).astype(np.int64)
    steps = 32
    windows = np.lib.stride_tricks.sliding_window_view(stream, steps + 1)[::3]
    net = decoder(256, steps=steps, blocks=1)
    before = LanguageModel(net, tokenizer, capacity=200)
    first = loom.text.perplexity(before, text * 2)
    config = loom.TrainingConfig(
        epochs=4,
        batch_size=16,
        loss="cross_entropy",
        optimizer="adam",
        learning_rate=0.01,
        verbose=False,
        seed=1,
    )
    loom.train(net, (windows[:, :-1], windows[:, 1:]), config)
    learned = loom.text.perplexity(before, text * 2)
    assert learned < 1.5 < first / 20
    assert before.encode("ä") == [0xC3, 0xA4]
    pieces = list(before.generate("Süßes ", max_tokens=30, temperature=0))
    assert "".join(pieces).startswith("läuft. Süßes läuft. Süße")
    # Half a character is never told.
    assert any(piece == "ß" for piece in pieces)
