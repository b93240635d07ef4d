"""Sessions that draw their steps themselves: against the sampler that sees each step's scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.text import Sampling
from loom.text.sampling import Sampler

VOCABULARY = 61

SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.3},
    {"temperature": 0.0, "repetition_penalty": 1.4},
    {"temperature": 1e-200},
    {"top_k": 4},
    {"top_k": 10**12, "top_p": 0.5},
    {"top_p": 0.8, "min_p": 0.05},
    {"typical": 0.6, "temperature": 1.7},
    {"top_k": 20, "top_p": 0.9, "min_p": 0.01, "typical": 0.8},
    {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": -0.3},
    {"logit_bias": {3: 2.5, 8: -4.0}, "frequency_penalty": 0.2},
]


def language_model(precision: str = "float32") -> loom.Network:
    block = [
        nn.Residual([nn.RMSNorm(), nn.MultiHeadAttention(2, causal=True, rotary=nn.Rotary())]),
        nn.Residual([nn.RMSNorm(), nn.SwiGLU(40)]),
    ]
    # Scores as far apart as those of trained networks.
    head = nn.Dense(VOCABULARY, weight_initializer=loom.initializers.Normal(1.0))
    layers = [nn.Embedding(VOCABULARY, 16), *block, *block, nn.RMSNorm(), head]
    return loom.Sequential(layers, input_shape=(32,), seed=4, precision=precision)


def samplers(settings: dict[str, Any], prompts: np.ndarray) -> list[Sampler]:
    wanted = Sampling(**settings, seed=11)
    return [Sampler(wanted, prompt.tolist(), VOCABULARY, stream=row) for row, prompt in enumerate(prompts)]


def one_by_one(net: loom.Network, prompts: np.ndarray, drawing: list[Sampler], count: int) -> np.ndarray:
    """Returns what is drawn of each step's scores."""
    session = net.session(100, rows=len(prompts))
    scores, made = session(prompts)[:, -1], []
    for _ in range(count):
        chosen = [sampler.choose(row).token for sampler, row in zip(drawing, scores, strict=True)]
        made.append(chosen)
        scores = session(np.array(chosen)[:, None])[:, -1]
    return np.array(made).T


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("where", ["float32", "float64", "gpu"])
def test_they_draw_what_the_sampler_would(
    where: str, settings: dict[str, Any], rows: int, request: pytest.FixtureRequest
) -> None:
    net = language_model("float64" if where == "float64" else "float32")
    if where == "gpu":
        net.to(request.getfixturevalue("gpu"))
    prompts = np.random.default_rng(5).integers(0, VOCABULARY, (rows, 9))
    expected = one_by_one(net, prompts, samplers(settings, prompts), 30)
    drawing = samplers(settings, prompts)
    session = net.session(100, rows=rows)
    found = session.follow(prompts, 17, samplers=drawing)
    # Others may be brought between, and known ones are not brought again.
    more = session.follow(found[:, -1:], 13, samplers=drawing)
    assert np.array_equal(np.concatenate([found, more], axis=1), expected)
    # They have taken note: both draw the same from here on.
    scores = np.random.default_rng(6).normal(size=VOCABULARY)
    others = samplers(settings, prompts)
    for sampler, other, row in zip(drawing, others, expected, strict=True):
        other.took(row.tolist())
        assert sampler.choose(scores) == other.choose(scores)


def test_samplers_stop_with_their_rows(gpu: str) -> None:
    for device in ("cpu", gpu):
        net = language_model().to(device)
        prompts = np.random.default_rng(7).integers(0, VOCABULARY, (3, 6))
        whole = net.session(100, rows=3).follow(prompts, 40, samplers=samplers({}, prompts))
        stop = int(whole[1, 12])
        drawing = samplers({}, prompts)
        found = net.session(100, rows=3).follow(prompts, 40, stops=[stop], samplers=drawing)
        assert np.array_equal(found, whole[:, : found.shape[1]])
        for row, sampler, other in zip(found, drawing, samplers({}, prompts), strict=True):
            ends = np.flatnonzero(row == stop)
            other.took(row[: ends[0] + 1 if len(ends) else len(row)].tolist())
            assert sampler.draws(4).uniforms.tolist() == other.draws(4).uniforms.tolist()


def test_what_was_drawn_too_far_is_forgotten(gpu: str) -> None:
    """Frames of several steps go past a stop; the answer that goes on from there knows nothing of it."""
    net = language_model().to(gpu)
    prompt = np.random.default_rng(8).integers(0, VOCABULARY, (1, 6))
    settings = {"frequency_penalty": 1.5, "temperature": 1.2}
    drawing = samplers(settings, prompt)
    session = net.session(100)
    whole = one_by_one(net, prompt, samplers(settings, prompt), 30)[0]
    made: list[int] = session.follow(prompt, 30, stops=[int(whole[3])], samplers=drawing)[0].tolist()
    while len(made) < 30:
        made += session.follow([[made[-1]]], 30 - len(made), stops=[int(whole[9])], samplers=drawing)[
            0
        ].tolist()
    assert made == whole.tolist()


def test_kept_steps_are_what_layers_keep() -> None:
    net = language_model()
    session = net.session(40)
    prompt = np.random.default_rng(9).integers(0, VOCABULARY, (1, 30))
    session.follow(prompt, 5, samplers=samplers({"frequency_penalty": 1.0}, prompt))
    kept = session.kept()
    other = net.session(40)
    other.restore(kept)
    assert np.array_equal(other([[1]]), session([[1]]))


def test_samplers_that_do_not_fit_are_refused() -> None:
    net = language_model()
    prompts = np.zeros((2, 3), np.int64)
    session = net.session(20, rows=2)
    with pytest.raises(loom.ShapeError, match="each of 2 rows has a sampler"):
        session.follow(prompts, 2, samplers=samplers({}, prompts[:1]))
    with pytest.raises(loom.ShapeError, match="each of 2 rows has a sampler"):
        session.follow(prompts, 2, samplers=[])
    one, other = (Sampler(Sampling(), [1], count) for count in (VOCABULARY, VOCABULARY + 1))
    with pytest.raises(loom.ShapeError, match=r"\[61, 62\]"):
        session.follow(prompts, 2, samplers=[one, other])
    strange = [Sampler(Sampling(logit_bias={0: 1.0}), [1], VOCABULARY + 1) for _ in range(2)]
    with pytest.raises(loom.ShapeError, match=f"of {VOCABULARY} classes"):
        session.follow(prompts, 2, samplers=strange)
    assert session.position == 0
