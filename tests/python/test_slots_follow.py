"""Sequences at places of their own that go on by themselves: each as in a session of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loom
from loom import nn
from loom.network.slots import Slots
from loom.text import Sampling
from loom.text.sampling import Sampler

VOCABULARY = 61
CAPACITY = 90

SETTINGS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"top_k": 7, "temperature": 1.3},
    {"top_p": 0.8, "repetition_penalty": 1.3, "frequency_penalty": 0.4},
    {"typical": 0.6, "logit_bias": {3: 2.5}},
]


def language_model(precision: str = "float32", **attention: Any) -> loom.Network:
    block = [
        nn.Residual([nn.RMSNorm(), nn.MultiHeadAttention(4, causal=True, **attention)]),
        nn.Residual([nn.RMSNorm(), nn.SwiGLU(40)]),
    ]
    # Scores as far apart as those of trained networks.
    head = nn.Dense(VOCABULARY, weight_initializer=loom.initializers.Normal(1.0))
    layers = [nn.Embedding(VOCABULARY, 16), *block, *block, nn.RMSNorm(), head]
    return loom.Sequential(layers, input_shape=(32,), seed=4, precision=precision)


def sampler(settings: dict[str, Any], prompt: list[int], stream: int) -> Sampler:
    return Sampler(Sampling(**settings, seed=11), prompt, VOCABULARY, stream=stream)


KINDS: dict[str, dict[str, Any]] = {
    "rotary": {"rotary": nn.Rotary()},
    "grouped": {"rotary": nn.Rotary(layout="interleaved"), "key_value_heads": 2, "window": 20},
    "biased": {"position_bias": nn.ALiBi()},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", ["float32", "float64", "gpu"])
def test_each_goes_on_as_alone(where: str, kind: str, request: pytest.FixtureRequest) -> None:
    """Random programs: sequences read, go on by as many steps as each wants, go back, and are copied."""
    net = language_model("float64" if where == "float64" else "float32", **KINDS[kind])
    if where == "gpu":
        net.to(request.getfixturevalue("gpu"))
    draws = np.random.default_rng(3)
    slots = Slots(net, 6, CAPACITY)
    held = [net.session(CAPACITY) for _ in range(6)]
    texts: list[list[int]] = [[] for _ in range(6)]
    made = 0
    for turn in range(60):
        rows = [int(row) for row in draws.permutation(6)[: draws.integers(1, 7)]]
        room = CAPACITY - max(len(texts[row]) for row in rows)
        action = draws.random()
        if not room or action < 0.1:
            for row in rows:
                place = int(draws.integers(len(texts[row]) + 1))
                slots.rewind(row, place)
                held[row].rewind(place)
                del texts[row][place:]
        elif action < 0.2 and len(rows) > 1:
            source, target = rows[:2]
            count = int(draws.integers(len(texts[source]) + 1))
            slots.copy(source, target, count)
            held[target].restore([array[:, :count] for array in held[source].kept()])
            texts[target] = texts[source][:count]
        elif action < 0.4:
            tokens = draws.integers(0, VOCABULARY, (len(rows), int(draws.integers(1, min(room, 11) + 1))))
            slots(tokens, rows, last=True)
            for row, brought in zip(rows, tokens, strict=True):
                held[row](brought[None], last=True)
                texts[row] += brought.tolist()
        else:
            # Up to the capacity of each, beyond which some go on for nobody.
            counts = [int(draws.integers(1, min(CAPACITY - len(texts[row]), 30) + 1)) for row in rows]
            tokens = draws.integers(0, VOCABULARY, len(rows)).tolist()
            stops = draws.integers(0, VOCABULARY, draws.integers(0, 3)).tolist()
            drawn = draws.random() < 0.7
            settings = [SETTINGS[int(draws.integers(len(SETTINGS)))] for _ in rows]
            both = [
                [sampler(setting, texts[row], turn) for row, setting in zip(rows, settings, strict=True)]
                for _ in range(2)
            ]
            found = slots.follow(tokens, rows, counts, stops=stops, samplers=both[0] if drawn else None)
            for place, row in enumerate(rows):
                own = [both[1][place]] if drawn else None
                count, token = counts[place], tokens[place]
                expected = held[row].follow([[token]], count, stops=stops, samplers=own)[0].tolist()
                assert found[place] == expected, (turn, place)
                texts[row] += [token, *expected[:-1]]
                made += len(expected)
                # Both draw the same from here on.
                scores = draws.normal(size=VOCABULARY)
                one, other = (samplers[place].choose(scores).token for samplers in both)
                assert one == other or not drawn
        assert slots.positions == [session.position for session in held] == [len(text) for text in texts]
    assert made > 300


def test_more_steps_than_one_frame_has(gpu: str) -> None:
    net = language_model(rotary=nn.Rotary())
    wanted = net.session(400).follow([[5]], 200)[0].tolist()
    for device in ("cpu", gpu):
        slots = Slots(net.to(device), 3, 400)
        slots([[1, 2, 3]], [0])
        assert slots.follow([5, 6], [2, 0], [200, 1])[0] == wanted
        assert slots.positions == [4, 0, 200]


def test_what_it_refuses(gpu: str) -> None:
    net = language_model(rotary=nn.Rotary())
    for device in ("cpu", gpu):
        slots = Slots(net.to(device), 2, capacity=9)
        slots([[1, 2, 3]], [1])
        for tokens, rows, counts, reason in (
            ([1], [0], [10], "capacity of 9"),
            ([1], [1], [7], "capacity of 9"),
            ([1, 1], [0, 0], [1, 1], "sequence 0 is there twice"),
            ([1], [2], [1], "no sequence 2"),
            ([1, 2], [0], [1], "a row for each"),
            ([1], [0], [1, 1], "one step and makes one"),
            (1, [0], [1], "shape"),
            ([VOCABULARY], [0], [1], str(VOCABULARY)),
        ):
            with pytest.raises(loom.LoomError, match=reason):
                slots.follow(tokens, rows, counts)
        with pytest.raises(loom.ConfigError, match="counts"):
            slots.follow([1], [0], [0])
        with pytest.raises(loom.ShapeError, match="sampler"):
            slots.follow([1, 2], [0, 1], [1, 1], samplers=[sampler({}, [1], 0)])
        assert slots.positions == [0, 3]
        # As much as there is room for; the last of them is not brought.
        assert len(slots.follow([1], [1], [6])[0]) == 6
        assert slots.positions == [0, 9]
    strange = loom.Sequential([nn.Embedding(5, 4), nn.Dense(12)], input_shape=8)
    with pytest.raises(loom.LoomError, match="whole numbers"):
        Slots(strange, 2, capacity=9).follow([1], [0], [1])


def test_scores_that_are_not_finite_leave_all_where_they_were(gpu: str) -> None:
    for device in ("cpu", gpu):
        net = language_model(rotary=nn.Rotary())
        state = net.state_dict()
        name = "0.0.0.6.weight"
        state[name] = np.full_like(state[name], 3e38)
        net.load_state_dict(state)
        net.to(device)
        slots = Slots(net, 2, capacity=20)
        slots([[1, 2]], [0])
        with pytest.raises(loom.NonFiniteError):
            slots.follow([7, 7], [0, 1], [4, 4])
        assert slots.positions == [2, 0]
