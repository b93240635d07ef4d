"""Layers from tensors alone: what names and shapes tell, what they leave open, and corrections."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import nn
from loom.models import guess

Tensors = dict[str, NDArray[np.float32]]
RANDOM = np.random.default_rng(0)


def tensor(*shape: int) -> NDArray[np.float32]:
    return RANDOM.normal(size=shape).astype(np.float32)


def named(net: loom.Network, names: dict[str, str]) -> Tensors:
    """The parameters of a network under other names of its layers."""
    return {f"{names[path[:7]]}{path[7:]}": values for path, values in net.state_dict().items()}


def same(net: loom.Network, guessed: loom.Network) -> None:
    shape = (3, *net.input_shape)
    reads_words = net.layers[0].kind == "embedding"
    x = RANDOM.integers(0, 5, shape) if reads_words else RANDOM.normal(size=shape)
    np.testing.assert_array_equal(guessed.predict(x), net.predict(x))


def test_a_path_is_told_how_it_is_opened() -> None:
    with pytest.raises(loom.DataError, match=r"loom\.open_tensors\(path\), got str"):
        loom.models.guess("net.safetensors")  # type: ignore[arg-type]


def test_a_perceptron_needs_to_know_its_activation() -> None:
    net = loom.Sequential([nn.Dense(8), nn.Activation("tanh"), nn.Dense(3, bias=False)], 4)
    found = guess(named(net, {"0.0.0.0": "fc1", "0.0.0.2": "fc2"}))
    assert [question.name for question in found.open] == ["network"]
    with pytest.raises(loom.ConfigError, match="activation"):
        found.build()
    same(net, found.replace(activation="tanh").build())


def test_names_are_in_natural_order() -> None:
    layers = [nn.Dense(6) for _ in range(12)]
    net = loom.Sequential(layers, 6)
    state = {f"net.{name.split('.', 3)[3]}": values for name, values in net.state_dict().items()}
    same(net, guess(dict(reversed(state.items())), {"activation": "linear", "skips": False}).build())


def test_norms_follow_their_layers_and_words_their_numbers() -> None:
    net = loom.Sequential(
        [
            nn.Conv2D(4, 3, padding=1),
            nn.BatchNorm(),
            nn.Activation("relu"),
            nn.Conv2D(8, 3, padding=1, stride=2, groups=2, bias=False),
            nn.BatchNorm(),
            nn.Activation("relu"),
            nn.Flatten(),
            nn.Dense(5),
        ],
        (2, 6, 6),
        seed=1,
    )
    names = {"0.0.0.0": "conv1", "0.0.0.1": "bn1", "0.0.0.3": "conv2", "0.0.0.4": "bn2", "0.0.0.7": "fc"}
    found = guess(named(net, names), {"activation": "relu", "input_shape": (2, 6, 6)})
    assert {question.name for question in found.open} == {"conv1", "conv2"}
    found = found.replace({"conv2": {"stride": 2}}, padding=1)
    same(net, found.build())


def test_what_reads_and_what_makes_decide_the_order() -> None:
    net = loom.Sequential([nn.LSTM(4, bidirectional=True, return_sequences=True), nn.Dense(2)], (7, 3))
    found = guess(named(net, {"0.0.0.0": "z", "0.0.0.1": "a"}), {"input_shape": (7, 3)})
    assert [part.name for part in found.parts] == ["z", "a"]
    same(net, found.build())


def test_images_that_become_channels_are_asked_for() -> None:
    state = {"conv.weight": tensor(4, 1, 1, 1), "fc.weight": tensor(3, 4)}
    found = guess(state, {"activation": "relu", "input_shape": (1, 5, 5)})
    assert "number of each" in found.questions()
    net = found.replace(name="fc", layer=[nn.GlobalAvgPool2D(), nn.Dense(3, bias=False)]).build()
    assert net.output_shape == (3,)


def transformer(words: int = 20, width: int = 16, time: int = 6, heads: int = 4) -> loom.Network:
    attention = nn.MultiHeadAttention(
        heads, key_value_heads=2, causal=True, rotary=nn.Rotary(layout="half_split"), bias=False
    )
    block = [
        nn.Residual([nn.RMSNorm(epsilon=1e-5), attention]),
        nn.Residual([nn.RMSNorm(epsilon=1e-5), nn.SwiGLU(24)]),
    ]
    head = nn.TiedHead(words)
    return loom.Sequential(
        [nn.Embedding(words, width), *block * 11, nn.RMSNorm(epsilon=1e-5), head], time, seed=9
    )


LLAMA = {
    "layers.0.weight": ("input_layernorm.weight", "post_attention_layernorm.weight"),
    "layers.1.query_weight": "self_attn.q_proj.weight",
    "layers.1.key_weight": "self_attn.k_proj.weight",
    "layers.1.value_weight": "self_attn.v_proj.weight",
    "layers.1.output_weight": "self_attn.o_proj.weight",
    "layers.1.gate_weight": "mlp.gate_proj.weight",
    "layers.1.up_weight": "mlp.up_proj.weight",
    "layers.1.down_weight": "mlp.down_proj.weight",
}


def as_llama(net: loom.Network) -> Tensors:
    last = len(net.layers) - 1
    ends = {0: "model.embed_tokens", last - 1: "model.norm", last: "lm_head"}
    state = {}
    for path, values in net.state_dict().items():
        number, name = int(path.split(".")[3]), path.split(".", 4)[4]
        if number in ends:
            state[f"{ends[number]}.{name}"] = values
            continue
        block, half = divmod(number - 1, 2)
        theirs = LLAMA[name]
        state[f"model.layers.{block}.{theirs if isinstance(theirs, str) else theirs[half]}"] = values
    return state


def test_a_llama_is_told_from_its_names() -> None:
    net = transformer()
    found = guess(as_llama(net))
    with pytest.raises(loom.ConfigError, match="num_attention_heads"):
        found.build()
    config = {"num_attention_heads": 4, "rope_theta": 1e4, "rms_norm_eps": 1e-5, "hidden_act": "silu"}
    found = guess(as_llama(net), config)
    assert found.questions() == "network: what comes in has the shape (time,): say input_shape"
    found = found.replace(input_shape=6)
    same(net, found.build())
    assert "model.layers.10" in str(found)


@pytest.mark.parametrize("before", [True, False])
def test_fused_and_turned_projections(before: bool) -> None:
    attention, feeding = nn.MultiHeadAttention(2), [nn.Dense(24, "gelu_tanh"), nn.Dense(8)]
    norm = nn.LayerNorm()
    inner: list[Any] = [[attention], feeding]
    blocks = [
        layer
        for row in inner
        for layer in ([nn.Residual([norm, *row])] if before else [nn.Residual(row), norm])
    ]
    net = loom.Sequential([nn.Embedding(20, 8), nn.PositionalEmbedding(6), *blocks, norm], 6, seed=4)
    parts = {name.split(".", 3)[3]: values for name, values in net.state_dict().items()}
    shift, second = (1, 3) if before else (0, 4)
    norms = ("2.layers.0", "3.layers.0") if before else ("3", "5")
    own = f"2.layers.{shift}"
    fused = {
        what: np.concatenate([parts[f"{own}.{name}_{what}"] for name in ("query", "key", "value")])
        for what in ("weight", "bias")
    }
    state = {
        "wte.weight": parts["0.weight"],
        "wpe.weight": parts["1.weight"],
        "h.0.attn.c_attn.weight": fused["weight"].T,
        "h.0.attn.c_attn.bias": fused["bias"],
        "h.0.attn.c_proj.weight": parts[f"{own}.output_weight"].T,
        "h.0.attn.c_proj.bias": parts[f"{own}.output_bias"],
        **{f"h.0.ln_1.{what}": parts[f"{norms[0]}.{what}"] for what in ("weight", "bias")},
        **{f"h.0.ln_2.{what}": parts[f"{norms[1]}.{what}"] for what in ("weight", "bias")},
        **{
            f"h.0.mlp.{name}.{what}": parts[f"{second}.layers.{number + shift}.{what}"].T
            for number, name in enumerate(("c_fc", "c_proj"))
            for what in ("weight", "bias")
        },
        **{f"ln_f.{what}": parts[f"{len(net.layers) - 1}.{what}"] for what in ("weight", "bias")},
    }
    config = {
        "n_head": 2,
        "activation_function": "gelu_new",
        "causal": False,
        "tie_word_embeddings": False,
        "norm_first": before,
    }
    same(net, guess(state, config).build())


def test_biases_of_queries_alone() -> None:
    net = transformer()
    state = as_llama(net)
    for name in [
        name for name in state if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
    ]:
        state[name.replace("weight", "bias")] = np.ones(len(state[name]), np.float32)
    config = {"num_attention_heads": 4, "rope_theta": 1e4, "hidden_act": "silu", "input_shape": 6}
    attention = guess(state, config).build().layers[1].layers[1]
    assert (attention.config.bias, attention.config.output_bias) == (True, False)
    assert attention.key_bias.tolist() == [1.0] * 8


def test_no_tensor_is_left_out_silently() -> None:
    state = as_llama(transformer())
    config = {"num_attention_heads": 4, "rope_theta": 1e4, "hidden_act": "silu", "input_shape": 6}
    state["model.segment_embeddings.weight"] = tensor(2, 16)
    found = guess(state, config)
    assert "segment_embeddings" in found.questions()
    assert not found.replace({"model.segment_embeddings": None}).open
    with pytest.raises(loom.ConfigError, match="belongs to a transformer"):
        found.replace({"lm_head": nn.Dense(20)})
    state = {"fc.weight": tensor(3, 4), "fc.weight_g": tensor(3)}
    assert "weight_g" in guess(state, {"input_shape": 4}).questions()


def test_blocks_that_may_have_sums_around_them_are_asked_for() -> None:
    names = [f"layer1.{block}.conv{number}.weight" for block in (0, 1) for number in (1, 2)]
    found = guess(
        {name: tensor(4, 4, 3, 3) for name in names}, {"activation": "relu", "input_shape": (4, 8, 8)}
    )
    assert "sums around them" in found.questions()


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"odd.weight_g": tensor(3, 1, 2, 2, 2, 2)}, "no layer that loom knows"),
        (
            {"a.weight": tensor(3, 4), "b.weight": tensor(90, 3), "c.weight": tensor(2, 90)},
            "embedding or dense",
        ),
        ({"a.weight": tensor(3, 4), "b.weight": tensor(2, 5)}, "reads"),
        ({"gn.weight": tensor(3), "gn.bias": tensor(3)}, "groups"),
    ],
)
def test_what_is_ambiguous_is_an_open_question(state: Tensors, told: str) -> None:
    found = guess(state, {"activation": "relu", "input_shape": 4})
    assert told in found.questions()
    with pytest.raises(loom.ConfigError, match="leave open"):
        found.build()


def test_an_embedding_is_first_and_tall() -> None:
    found = guess(
        {"a.weight": tensor(90, 4), "b.weight": tensor(3, 4)}, {"activation": "linear", "input_shape": 5}
    )
    assert [part.layers[0] for part in found.parts] == [nn.Embedding(90, 4), nn.Dense(3, bias=False)]


def test_corrections_that_do_not_fit_are_refused() -> None:
    found = guess({"a.weight": tensor(3, 4)})
    with pytest.raises(loom.ConfigError, match=r"unknown layer in the mapping .b.*Known: a"):
        found.replace({"b": None})
    with pytest.raises(loom.ConfigError, match="none of these has parameters"):
        found.replace({"a": nn.Flatten()})
    with pytest.raises(loom.DataError):
        guess({})
