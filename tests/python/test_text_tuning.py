"""Language models trained further: which tokens count, what is learned, and of which of two answers more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

pytest.importorskip("tokenizers", reason="the extra text is not installed")

import loom
from loom import nn
from loom.command_line import main, serve, tune
from loom.errors import ConfigError, InvalidValueError, ShapeError
from loom.network import adapter_names
from loom.text import ChatTemplate, Examples, LanguageModel, Vocabulary, align, examples, fine_tune
from text_models import CHAT, SETTINGS, byte_level, decoder, sentence_pieces, write_folder

SPECIAL = {"eos_token": "</s>"}
TALK = [
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "Once"},
    {"role": "user", "content": "The cat?"},
    {"role": "assistant", "content": "The mill"},
]


def model(template: str | None = CHAT, **settings: Any) -> LanguageModel:
    chat = None if template is None else ChatTemplate(template)
    vocabulary = Vocabulary(byte_level(), frozenset({1, 5}), template=chat, special=SPECIAL)
    return LanguageModel(decoder(400), vocabulary, **{"capacity": 200, **settings})


@pytest.fixture(scope="module")
def usual() -> LanguageModel:
    return model()


def learned(owner: LanguageModel, data: Examples, row: int = 0) -> str:
    """What is to be foretold of a row."""
    return owner.decode(data.y[row][data.weight[row] > 0], special=True)


def config(**settings: Any) -> loom.TrainingConfig:
    given = {"epochs": 6, "batch_size": 8, "loss": "cross_entropy", "learning_rate": 0.02, "verbose": False}
    return loom.TrainingConfig(**{**given, **settings})


# Rows


def test_of_chats_what_the_assistant_says_counts(usual: LanguageModel) -> None:
    data = examples(usual, [{"messages": TALK}, {"messages": TALK[:2]}])
    assert learned(usual, data) == "Once<|end|>The mill<|end|>"
    assert learned(usual, data, 1) == "Once<|end|>"
    text = usual.chat_text(TALK).removesuffix("<|assistant|>")
    assert usual.decode([*data.x[0], data.y[0, -1]], special=True) == text
    assert (data.x.dtype, data.y.dtype, data.weight.dtype) == (np.int32, np.int32, np.float32)


def test_of_completions_what_is_behind_the_prompt_counts(usual: LanguageModel) -> None:
    rows: list[Any] = [
        {"prompt": "Once upon", "completion": " a time"},
        {"prompt": TALK[:1], "completion": TALK[1:2]},
        {"prompt": TALK[:1], "completion": "Once"},
    ]
    data = examples(usual, rows)
    assert [learned(usual, data, row) for row in range(3)] == [" a time</s>", "Once<|end|>", "Once<|end|>"]
    whole = examples(usual, rows, completions=False)
    assert learned(usual, whole).endswith(" upon a time</s>")


@pytest.mark.parametrize("made", [byte_level, sentence_pieces, lambda: sentence_pieces(prefix=False)])
def test_completions_go_on_from_prompts_without_a_space_of_the_tokenizer(made: Any) -> None:
    tokenizer = made()
    talks = LanguageModel(decoder(tokenizer.get_vocab_size()), Vocabulary(tokenizer, frozenset({1})))
    for prompt, completion in (("2 + 3 =", " 5"), ("The so", "ns had"), ("a\n", "  森 é"), ("a", "</s>")):
        data = examples(talks, [{"prompt": prompt, "completion": completion}])
        tokens = [*data.x[0], data.y[0, -1]]
        text = talks.decode(tokens[:-1], special=True).removeprefix("<s>").removeprefix(" ")
        assert text == prompt + completion
        learned = data.y[0][data.weight[0] > 0]
        assert b"".join(map(talks.token_bytes, learned[:-1])) == completion.encode()


def test_all_of_a_text_counts_but_its_first_token(usual: LanguageModel) -> None:
    data = examples(usual, ["The sons", {"text": "The cat"}, [7, 8, 9]], length=30)
    assert data.x.shape == (3, 30)
    for row, text in enumerate(("The sons", "The cat")):
        tokens = [*usual.encode(text), 1]
        assert data.y[row][data.weight[row] > 0].tolist() == tokens[1:]
        assert data.x[row, : len(tokens) - 1].tolist() == tokens[:-1]
    assert data.y[2][data.weight[2] > 0].tolist() == [8, 9]


def test_joined_texts_are_cut_into_rows_without_padding(usual: LanguageModel) -> None:
    texts = ["The sons had to grind.", "Once upon a time"] * 5
    data = examples(usual, texts, length=16, join=True)
    tokens = [token for text in texts for token in [*usual.encode(text), 1]]
    assert data.x.shape == (-(-(len(tokens) - 1) // 16), 16)
    assert data.y[data.weight > 0].tolist() == tokens[1:]
    assert (data.weight[:-1] == 1).all()


def test_turns_that_a_template_writes_otherwise_later_are_refused() -> None:
    last = (
        "{% for m in messages %}{% if loop.last or m.role == 'user' %}{{ m.content }}|{% endif %}{% endfor %}"
    )
    with pytest.raises(ConfigError, match="writes what comes before message 1 otherwise"):
        examples(model(last), [{"messages": TALK}])
    # Of the last one it is known.
    assert learned(model(last), examples(model(last), [{"messages": TALK[:2]}])).startswith("Once")


@pytest.mark.parametrize(
    ("rows", "options", "told"),
    [
        ("a text", {}, "list of rows"),
        ([], {}, "no rows"),
        ([{"question": "?"}], {}, "row 0 must have"),
        ([3], {}, "row 0 is no text"),
        ([{"prompt": 3, "completion": "x"}], {}, "row 0: a prompt"),
        ([{"messages": []}], {}, "messages are a list"),
        ([{"messages": TALK[:1]}], {}, "no message of the assistant"),
        (["The sons", "The sons had to grind."], {"length": 4}, "row 1 has .* more than the length of 4"),
        (
            [{"prompt": "The sons had to", "completion": "grind"}],
            {"length": 2, "cut": True},
            "nothing to learn",
        ),
        ([[7]], {}, "nothing to learn"),
        (["The sons"], {"join": True}, "needs a length"),
        (["The sons"], {"length": 0}, "length"),
    ],
    ids=str,
)
def test_wrong_rows_are_refused(usual: LanguageModel, rows: Any, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        examples(usual, rows, **options)


def test_chats_need_a_template() -> None:
    with pytest.raises(ConfigError, match="no chat template"):
        examples(model(None), [{"messages": TALK}])


# Training


def test_completions_alone_are_learned_by_the_mean_over_them(usual: LanguageModel) -> None:
    """The loss of a row is that of what counts: as NumPy has it."""
    data = examples(usual, [{"prompt": "Once upon", "completion": " a time"}, "The cat"], length=64)
    scores = usual.network.predict(data.x).astype(np.float64)
    logs = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    told = -np.take_along_axis(logs, data.y[:, :, None].astype(np.int64), axis=-1)[:, :, 0]
    wanted = (told * data.weight).sum() / data.weight.sum()
    found = usual.network.evaluate(tuple(data), loss="cross_entropy")["loss"]
    assert found == pytest.approx(wanted, rel=1e-5)


def test_a_model_learns_to_answer_and_its_weights_stay() -> None:
    owner = model()
    before = owner.network.state_dict()
    asked = [{"role": "user", "content": "The cat?"}]
    rows = [{"messages": [*asked, {"role": "assistant", "content": "The mill"}]}] * 24
    owner.chat(asked, max_tokens=3, temperature=0).finish()
    result = fine_tune(owner, rows, config(epochs=12), rank=4)
    assert result.history["loss"][-1] < 0.1
    assert owner.network.input_shape == (64,)
    # What was read before by the former weights is not gone on from.
    assert owner.chat(asked, max_tokens=6, temperature=0).finish().text == "The mill"
    after = owner.network.state_dict()
    assert all((after[name] == values).all() for name, values in before.items())
    owner.network.use_adapters()
    assert (owner.network.state_dict().keys() - before.keys()) == set(after) - set(before)
    loss = result.history["loss"][-1]
    owner.network.use_adapters("default")
    again = fine_tune(owner, rows, config(epochs=1, learning_rate=1e-5))
    assert again.history["loss"][0] < 2 * loss
    assert len(owner.network.adapters) == 1


def test_the_adapter_that_is_named_learns_and_no_other(tmp_path: Path) -> None:
    rows = [{"prompt": "Once upon", "completion": " a time"}] * 8
    pairs = [{"prompt": "Once upon", "chosen": " a cat", "rejected": " a time"}] * 8

    def moved(owner: LanguageModel, before: dict[str, Any]) -> set[str]:
        after = owner.network.state_dict()
        parts = {name: name.split(".")[-2] if "lora" in name else "own" for name in before}
        return {parts[name] for name, values in before.items() if (after[name] != values).any()}

    for used in ((), ("second",), ("first", "second")):
        for learn in (fine_tune, align):
            owner = model()
            net = owner.network.add_adapter("first", rank=2).add_adapter("second", rank=2)
            for layer in net.layers:
                for name in layer.parameters:
                    if name.endswith("second.lora_b"):
                        layer[name] = np.full(layer[name].shape, 0.05)
            net.use_adapters(*used)
            before = net.state_dict()
            result = learn(owner, rows if learn is fine_tune else pairs, config(epochs=2), adapter="first")
            assert moved(owner, before) == {"first"}
            assert {each.name for each in net.adapters.values() if each.active} == {"first", *used}
            assert all(each.trainable for each in net.adapters.values())
            if learn is align:
                # What is gone out from has all adapters but that which learns.
                assert result.history["loss"][0] == pytest.approx(np.log(2), abs=0.02)
    # One that was read from files, which leaves the network's own parameters to be trained.
    net.save_adapter(tmp_path / "first", "first")
    owner = model()
    owner.network.load_adapter(tmp_path / "first")
    before = owner.network.state_dict()
    fine_tune(owner, rows, config(epochs=2))
    assert moved(owner, before) == {"default"}


def test_packed_models_learn_beside_their_weights() -> None:
    owner = model()
    owner.network.morph("int4").drop_master()
    rows = [{"prompt": "Once upon", "completion": " a time"}] * 16
    result = fine_tune(owner, rows, config(epochs=25), rank=8)
    assert result.history["loss"][-1] < 0.3 * result.history["loss"][0]
    assert all(layer.weights.dropped for layer in owner.network.layers if layer.kind != "rms_norm")


def test_without_an_adapter_the_network_itself_learns() -> None:
    owner = model()
    before = owner.network.fingerprint()
    held = [{"prompt": "Once upon", "completion": " a mill"}]
    result = fine_tune(owner, ["The sons"] * 8, config(epochs=2), adapter=None, validation=held, length=12)
    assert owner.network.adapters == {}
    assert owner.network.fingerprint() != before
    assert "val_loss" in result.history


def test_a_failed_training_leaves_the_length_as_it_was() -> None:
    owner = model()
    with pytest.raises(InvalidValueError):
        fine_tune(owner, ["The sons"], config(), targets="nothing")
    assert owner.network.input_shape == (64,)
    assert owner.network.adapters == {}


TEXTS = ["The sons had to grind.", "Once upon a time", "the cat", "a mill, a donkey and a cat", "The mill"]


def test_rows_hold_several_texts_and_say_which(usual: LanguageModel) -> None:
    alone, data = examples(usual, TEXTS, length=40), examples(usual, TEXTS, length=40, pack=True)
    assert data.is_packed
    assert (alone.is_packed, data.length) == (False, 40)
    assert len(data.x) < len(TEXTS)
    numbers, tokens = data.x[:, :40], data.x[:, 40:]
    found = []
    for row in range(len(data.x)):
        for number in range(1, numbers[row].max() + 1):
            (at,) = np.nonzero(numbers[row] == number)
            assert (np.diff(at) == 1).all()
            found.append((tokens[row, at].tolist(), data.y[row, at].tolist(), data.weight[row, at].tolist()))
    wanted = []
    for x, y, weight in zip(*alone, strict=True):
        size = int(np.nonzero(weight)[0][-1]) + 1
        wanted.append((x[:size].tolist(), y[:size].tolist(), weight[:size].tolist()))
    assert sorted(found) == sorted(wanted)
    assert data.weight.sum() == alone.weight.sum()


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_packed_texts_are_learned_as_by_themselves(device: str, request: pytest.FixtureRequest) -> None:
    place = request.getfixturevalue("gpu") if device == "gpu" else "cpu"
    found = []
    for pack in (False, True):
        owner = model()
        rows = examples(owner, TEXTS, length=40, pack=pack)
        settings = config(epochs=4, batch_size=8, learning_rate=0.01, device=place, optimizer="sgd")
        result = fine_tune(owner, rows, settings, adapter=None)
        found.append((result.history["loss"], owner.network.state_dict()))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-5)
    for name, values in found[0][1].items():
        np.testing.assert_allclose(found[1][1][name], values, atol=1e-5, err_msg=name)


def test_a_run_of_packed_texts_goes_on_and_ends_as_one_that_nothing_has_ended(tmp_path: Path) -> None:
    def tuned(folder: str, *callbacks: loom.Callback) -> tuple[list[float], str]:
        owner = model()
        rows = examples(owner, TEXTS, length=40, pack=True)
        settings = config(epochs=4, batch_size=1, learning_rate=0.01)
        result = fine_tune(owner, rows, settings, rank=2, callbacks=callbacks, run=tmp_path / folder)
        return result.history["loss"], owner.network.fingerprint()

    def fail(epoch: int, logs: object) -> None:
        if epoch == 1:
            raise KeyError

    with pytest.raises(KeyError):
        tuned("ended", loom.callbacks.LambdaCallback(on_epoch_end=fail))
    whole = tuned("whole")
    assert tuned("ended") == whole
    # It has ended: the folder gives what it came to.
    assert tuned("ended") == whole


def test_what_would_mix_texts_refuses_packed_rows() -> None:
    layers = [nn.Embedding(400, 8), nn.GRU(8, return_sequences=True), nn.Dense(400)]
    owner = LanguageModel(loom.Sequential(layers, input_shape=16), byte_level(), capacity=16)
    with pytest.raises(InvalidValueError, match="gru would take a sequence for the beginning of the next"):
        fine_tune(owner, [[1, 2, 3]], config(), pack=True, length=16)
    assert owner.network.input_shape == (16,)
    with pytest.raises(ConfigError, match="two ways to fill rows"):
        examples(model(), ["a"], pack=True, join=True, length=8)


# Preferences


def reference(scores: Any, labels: Any, before: Any, beta: float) -> float:
    """The loss of DPO as its paper has it."""
    logs = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    now = [
        sum(row[step, label] for step, label in enumerate(told) if label >= 0)
        for row, told in zip(logs, labels, strict=True)
    ]
    ratios = np.array(now) - before
    margin = beta * (ratios[0::2] - ratios[1::2])
    return float(-np.log(1 / (1 + np.exp(-margin))).mean())


def test_dpo_is_its_formula_and_its_gradient_that_of_central_differences() -> None:
    draws = np.random.default_rng(0)
    scores = draws.normal(size=(4, 5, 6))
    labels = draws.integers(0, 6, (4, 5))
    labels[:, 0], labels[:, -1], labels[1, 2] = -1, -1, -1
    before = np.round(draws.normal(size=4) * 3 * 16384) / 16384
    loss = loom.losses.DPO(beta=0.7)
    target = loom.losses.DPO.targets(labels, before)
    value, gradient = loom.losses.value_and_gradient(loss, scores, target)
    assert value == pytest.approx(reference(scores, labels, before, 0.7), rel=1e-10)
    for place in np.ndindex(*scores.shape):
        step = np.zeros_like(scores)
        step[place] = 1e-6
        above, below = (reference(scores + sign * step, labels, before, 0.7) for sign in (1, -1))
        assert gradient[place] == pytest.approx((above - below) / 2e-6, abs=1e-8)


def test_dpo_refuses_what_are_no_pairs() -> None:
    with pytest.raises(ShapeError, match="last step"):
        loom.losses.DPO.targets([[1, 2]], [0.0])
    target = loom.losses.DPO.targets([[1, -1]] * 3, [0.0] * 3)
    with pytest.raises(ShapeError, match="even number"):
        loom.losses.value_and_gradient(loom.losses.DPO(), np.zeros((3, 2, 4)), target)
    with pytest.raises(ConfigError, match="beta"):
        loom.losses.DPO(beta=0.0)


def test_the_better_answer_becomes_the_likelier_one() -> None:
    owner = model()
    rows = [{"prompt": "Once upon", "chosen": " a cat", "rejected": " a time"}] * 8
    both = examples(
        owner, [{"prompt": "Once upon", "completion": text} for text in (" a cat", " a time")], length=64
    )

    def margin() -> float:
        scores = owner.network.predict(both.x).astype(np.float64)
        logs = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
        told = np.take_along_axis(logs, both.y[:, :, None].astype(np.int64), axis=-1)[:, :, 0]
        better, worse = (told * both.weight).sum(axis=1)
        return float(better - worse)

    before = margin()
    result = align(owner, rows, config(epochs=8, batch_size=4, learning_rate=0.01), rank=4)
    # Before the first step both are as probable as they were, and the loss of a pair is log 2.
    assert result.history["loss"][0] < np.log(2)
    assert result.history["loss"][-1] < 0.5 * result.history["loss"][0]
    assert margin() > before + 1
    with pytest.raises(ConfigError, match='must have "prompt", "chosen" and "rejected"'):
        align(owner, [{"prompt": "a", "chosen": "b"}])


# The command


@pytest.mark.parametrize("shards", [2, 3, 8])
def test_pairs_stay_together_in_the_shards_of_a_step(shards: int) -> None:
    rows = [
        {"prompt": "Once upon", "chosen": chosen, "rejected": rejected}
        for chosen, rejected in ((" a cat", " a time"), (" a mill", " time"), (" sons", " the cat had"))
    ]
    found = []
    for count in (None, shards):
        owner = model()
        # Steps of five pairs, and of one.
        config = loom.TrainingConfig(
            epochs=2, batch_size=5, optimizer="sgd", learning_rate=0.1, shards=count, verbose=False
        )
        result = align(owner, rows * 2, config, adapter=None, beta=0.5)
        found.append((result.history["loss"], owner.network.state_dict()))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    for name, array in found[0][1].items():
        np.testing.assert_allclose(found[1][1][name], array, atol=1e-5, err_msg=name)


def test_tune_writes_an_adapter_and_the_merged_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_folder(tmp_path / "model", decoder(400), byte_level())
    data = tmp_path / "rows.jsonl"
    rows = [{"prompt": "Once upon", "completion": " a time"}] * 6
    data.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    words = f"tune {folder} {data} --output {tmp_path / 'adapter'} --rank 2 --target query --target value"
    assert main([*words.split(), "--epochs", "2", "--merge", str(tmp_path / "whole.loom")]) == 0
    assert "saved" in capsys.readouterr().out
    net = loom.text.load(folder).network.load_adapter(tmp_path / "adapter")
    assert net.adapters["default"].rank == 2
    merged = loom.load(tmp_path / "whole.loom")
    x = np.arange(1, 1 + net.input_shape[0])[None] % 30
    np.testing.assert_allclose(merged.predict(x), net.predict(x), atol=1e-4)


@pytest.mark.parametrize("dtype", [None, "q8_0", "int4"])
def test_what_is_merged_into_a_gguf_file_is_a_model(
    dtype: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_folder(tmp_path / "model", decoder(400), byte_level("gpt-2"), **SETTINGS)
    data, adapter, whole = tmp_path / "rows.jsonl", tmp_path / "adapter", tmp_path / "whole.gguf"
    data.write_text("\n".join([json.dumps({"prompt": "Once upon", "completion": " a time"})] * 8))
    words = f"tune {folder} {data} --output {adapter} --rank 4 --learning-rate 0.03 --epochs 20"
    packed = [] if dtype is None else ["--dtype", dtype]
    assert main([*words.split(), "--merge", str(whole), *packed]) == 0
    beside = loom.text.load(folder, dtype)
    beside.network.load_adapter(adapter)
    merged = loom.text.load(whole)
    assert merged.network.layers[0].dtype == ("q8_0" if dtype == "q8_0" else "float32")
    talk = [{"role": "user", "content": "Once upon"}]
    assert merged.chat_text(talk) == beside.chat_text(talk)
    assert merged.encode("Once upon") == beside.encode("Once upon")
    x = np.arange(1, 1 + merged.network.input_shape[0])[None] % 30
    wanted = beside.network.predict(x)
    # Blocks are packed again from the sum; what has no blocks there is written as the sum itself.
    within = 0.1 * np.abs(wanted).max() if dtype == "q8_0" else 1e-4
    np.testing.assert_allclose(merged.network.predict(x), wanted, atol=within)
    capsys.readouterr()


@pytest.mark.parametrize("named", [True, False])
def test_tune_loses_nothing_of_what_it_has_learned(
    named: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # By default all products have an adapter, the head's among them.
    folder = write_folder(tmp_path / "model", decoder(400), byte_level())
    data = tmp_path / "rows.jsonl"
    data.write_text(json.dumps({"prompt": "Once upon", "completion": " a time"}))
    words = f"tune {folder} {data} --output {tmp_path / 'adapter'} --rank 2 --learning-rate 0.05"
    if not named:
        # Of a family whose weights have other names.
        monkeypatch.setitem(adapter_names.NAMINGS, "llama", lambda network: iter(()))
    assert main([*words.split(), "--epochs", "2", "--merge", str(tmp_path / "whole.loom")]) == 0
    assert ("names" in capsys.readouterr().out) is not named
    kept = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert ("lm_head" in kept["target_modules"]) is named
    plain = loom.text.load(folder).network
    x = np.arange(1, 1 + plain.input_shape[0])[None] % 30
    before = plain.predict(x)
    plain.load_adapter(tmp_path / "adapter")
    assert np.abs(plain.predict(x) - before).max() > 1e-3
    np.testing.assert_allclose(loom.load(tmp_path / "whole.loom").predict(x), plain.predict(x), atol=1e-4)


def test_what_was_tuned_writes_and_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    testing = pytest.importorskip("fastapi.testclient")
    pytest.importorskip("prometheus_client")
    folder = write_folder(tmp_path / "model", decoder(400), byte_level())
    data, adapter = tmp_path / "rows.jsonl", tmp_path / "adapter"
    data.write_text("\n".join([json.dumps({"prompt": "Once upon", "completion": " a time"})] * 8))
    words = f"tune {folder} {data} --output {adapter} --rank 4 --learning-rate 0.03 --epochs 20"
    assert main(words.split()) == 0
    model = loom.text.load(folder)
    before = model.complete("Once upon", max_tokens=4, temperature=0).text
    model = loom.text.load(folder)
    model.network.load_adapter(adapter)
    learned = model.complete("Once upon", max_tokens=4, temperature=0).text
    assert learned != before
    assert learned.startswith(" a time")
    capsys.readouterr()
    for more, told in (([], before), (["--adapter", str(adapter)], learned)):
        asked = ["generate", str(folder), "Once upon", "--max-tokens", "4", "--temperature", "0", *more]
        assert main(asked) == 0
        assert capsys.readouterr().out == f"{told}\n"
    with click.Context(serve.command):
        app, _, _ = serve._of_language(str(folder), "cpu", {"adapter": str(adapter)})
    with testing.TestClient(app) as client:
        body = {"model": "model", "prompt": "Once upon", "max_tokens": 4, "temperature": 0}
        answer = client.post("/v1/completions", json=body).json()
    assert answer["choices"][0]["text"] == learned
    assert main(["generate", str(folder), "Once", "--adapter", str(tmp_path / "none")]) == 1
    assert "none" in capsys.readouterr().err


def test_tune_reads_lines_as_other_programs_write_them(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    rows = [{"text": "one\u2028two\u0085three\x0c"}, {"text": "four"}]
    text = "\r\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\r\n"
    data.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert tune._rows(data) == rows
    (tmp_path / "text.txt").write_bytes(b"\xef\xbb\xbfone")
    assert tune._rows(tmp_path / "text.txt") == ["one"]


def test_tune_refuses_what_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "rows.jsonl"
    for text, told in (("", "no rows"), ("{", "line 1 is not JSON")):
        data.write_text(text)
        assert main(["tune", str(tmp_path), str(data), "--output", str(tmp_path / "adapter")]) == 1
        assert told in capsys.readouterr().err
    assert main(["tune", str(tmp_path), str(tmp_path / "none"), "--output", "x"]) == 1
