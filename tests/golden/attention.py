"""Writes attention.json: PyTorch's attention, gated layers and embeddings in float64.

    python tests/golden/attention.py

needs PyTorch. Each case holds a layer's config, its weights by loom's names, the
input, the gradient of the output, and what comes out: the output and the
gradients of the input and of the weights. With cross attention the input is the
context, and what is attended from is a product of it with a fixed matrix,
`asked`. Numbers are rounded to three decimals before they are used,
so that the file holds them exactly.
"""

import json
from pathlib import Path

import torch
import torch.nn.functional as F

torch.manual_seed(21)
torch.set_default_dtype(torch.float64)

BATCH = 2


def random(*shape, scale=1.0):
    return ((torch.randn(*shape) * scale * 1000).round() / 1000).requires_grad_()


def flat(tensor):
    """As a list, with 14 significant digits."""
    return [float(f"{value:.14g}") for value in tensor.detach().reshape(-1).tolist()]


def rotate(x, base, scaling, layout, dim=None):
    """Rotary embedding of (batch, heads, time, head_dim), through complex numbers."""
    if dim is not None:
        return torch.cat([rotate(x[..., :dim], base, scaling, layout), x[..., dim:]], -1)
    time, head_dim = x.shape[-2:]
    rates = base ** (-torch.arange(0, head_dim, 2) / head_dim) / scaling
    turns = torch.polar(torch.ones(()), torch.outer(torch.arange(time).double(), rates))
    if layout == "interleaved":
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * turns
        return torch.view_as_real(pairs).flatten(-2)
    pairs = torch.complex(*x.chunk(2, -1)) * turns
    return torch.cat([pairs.real, pairs.imag], -1)


def attention(config, weights, x, context):
    """Multi-head attention over `scaled_dot_product_attention`."""
    heads = config["heads"]
    key_value_heads = config.get("key_value_heads", heads)
    context = x if context is None else context

    def project(name, x, heads):
        y = F.linear(x, weights[f"{name}_weight"], weights.get(f"{name}_bias"))
        return y.unflatten(-1, (heads, -1)).transpose(1, 2)

    q = project("query", x, heads)
    k, v = project("key", context, key_value_heads), project("value", context, key_value_heads)

    def norm(x, gain):
        epsilon = config.get("qk_norm_epsilon", 1e-6)
        if config["qk_norm"] != "width":
            return F.rms_norm(x, x.shape[-1:], gain, epsilon)
        wide = x.transpose(1, 2).flatten(-2)
        return (
            F.rms_norm(wide, wide.shape[-1:], gain, epsilon).unflatten(-1, (x.shape[1], -1)).transpose(1, 2)
        )

    if config.get("qk_norm"):
        q, k = norm(q, weights["query_gain"]), norm(k, weights["key_gain"])
    if rotary := config.get("rotary"):
        q, k = rotate(q, **rotary), rotate(k, **rotary)
    queries, keys = torch.arange(q.shape[2])[:, None], torch.arange(k.shape[2])
    seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    if config.get("causal"):
        seen &= keys <= queries
    if window := config.get("window"):
        seen &= (queries - keys).abs() < window
    if mask := config.get("mask"):
        seen &= torch.tensor(mask, dtype=torch.bool)
    if cap := config.get("soft_cap"):
        k, v = (part.repeat_interleave(heads // key_value_heads, 1) for part in (k, v))
        scores = q @ k.mT * config.get("scale", q.shape[-1] ** -0.5)
        scores = (cap * torch.tanh(scores / cap)).masked_fill(~seen, -torch.inf)
        y = scores.softmax(-1) @ v
    else:
        grouped = key_value_heads != heads
        scale = config.get("scale")
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=grouped, scale=scale)
    return F.linear(y.transpose(1, 2).flatten(-2), weights["output_weight"], weights.get("output_bias"))


def attention_weights(config, width, context_width, head_dim):
    asking = config["heads"] * head_dim
    answering = config.get("key_value_heads", config["heads"]) * head_dim
    shapes = {
        "query": (asking, width),
        "key": (answering, context_width),
        "value": (answering, context_width),
        "output": (width, asking),
    }
    weights = {f"{name}_weight": random(*shape, scale=0.4) for name, shape in shapes.items()}
    if config.get("bias", True):
        weights |= {f"{name}_bias": random(shape[0], scale=0.2) for name, shape in shapes.items()}
        if not config.get("output_bias", True):
            del weights["output_bias"]
    if config.get("qk_norm") == "width":
        weights |= {"query_gain": random(asking), "key_gain": random(answering)}
    elif config.get("qk_norm"):
        weights |= {name: random(head_dim) for name in ("query_gain", "key_gain")}
    return weights


def case(name, config, weights, x, output, **more):
    gradient = random(*output.shape)
    inputs = [x] if x.requires_grad else []
    found = torch.autograd.grad(output, [*inputs, *weights.values()], gradient)
    record = {
        "name": name,
        "config": config,
        "weights": {key: {"shape": list(w.shape), "elements": flat(w)} for key, w in weights.items()},
        "input": {"shape": list(x.shape), "elements": flat(x)},
        "output": {"shape": list(output.shape), "elements": flat(output)},
        "output_gradient": flat(gradient),
        "weight_gradients": {
            key: flat(part) for key, part in zip(weights, found[len(inputs) :], strict=True)
        },
    }
    if inputs:
        record["input_gradient"] = flat(found[0])
    return {**record, **more}


def attention_case(name, time, width, head_dim=None, **config):
    config = {"type": "multi_head_attention", **config}
    if head_dim is not None:
        config["head_dim"] = head_dim
    weights = attention_weights(config, width, width, head_dim or width // config["heads"])
    x = random(BATCH, time, width)
    return case(name, config, weights, x, attention(config, weights, x, None))


def cross_case(name, time, width, context_time, context_width, **config):
    config = {"type": "multi_head_attention", "cross": True, **config}
    weights = attention_weights(config, width, context_width, width // config["heads"])
    context = random(BATCH, context_time, context_width)
    asked = random(time * width, context_time * context_width, scale=0.4).detach()
    x = F.linear(context.flatten(1), asked).reshape(BATCH, time, width)
    output = attention(config, weights, x, context)
    more = {"asked": {"shape": list(asked.shape), "elements": flat(asked)}}
    return case(name, config, weights, context, output, **more)


def packed_case():
    """PyTorch's own layer, with its weights taken apart."""
    layer = torch.nn.MultiheadAttention(4, 2, batch_first=True)
    for parameter in layer.parameters():
        parameter.data = random(*parameter.shape, scale=0.4).detach()
    names = ["query", "key", "value"]
    weights = {
        f"{name}_weight": part.clone().detach().requires_grad_()
        for name, part in zip(names, layer.in_proj_weight.chunk(3), strict=True)
    }
    weights |= {
        f"{name}_bias": part.clone().detach().requires_grad_()
        for name, part in zip(names, layer.in_proj_bias.chunk(3), strict=True)
    }
    weights |= {"output_weight": layer.out_proj.weight, "output_bias": layer.out_proj.bias}
    packed = {
        "in_proj_weight": torch.cat([weights[f"{name}_weight"] for name in names]),
        "in_proj_bias": torch.cat([weights[f"{name}_bias"] for name in names]),
    }
    x = random(BATCH, 3, 4)
    output, _ = torch.func.functional_call(layer, packed, (x, x, x))
    config = {"type": "multi_head_attention", "heads": 2}
    return case("torch.nn.MultiheadAttention", config, weights, x, output)


def gated_case(name, kind, function, bias):
    width, hidden = 4, 6
    shapes = {"gate": (hidden, width), "up": (hidden, width), "down": (width, hidden)}
    weights = {f"{part}_weight": random(*shape, scale=0.5) for part, shape in shapes.items()}
    if bias:
        weights |= {f"{part}_bias": random(shape[0], scale=0.5) for part, shape in shapes.items()}
    x = random(BATCH, 3, width)

    def linear(part, x):
        return F.linear(x, weights[f"{part}_weight"], weights.get(f"{part}_bias"))

    output = linear("down", function(linear("gate", x)) * linear("up", x))
    return case(name, {"type": kind, "hidden": hidden, "bias": bias}, weights, x, output)


def embedding_case():
    weights = {"weight": random(7, 3)}
    x = torch.tensor([[3, 0, 6, 3], [3, 3, 1, 0]])
    output = F.embedding(x, weights["weight"])
    config = {"type": "embedding", "vocabulary": 7, "width": 3}
    return case("torch.nn.Embedding", config, weights, x, output)


def main():
    interleaved = {"base": 10000.0, "scaling": 1.0, "layout": "interleaved"}
    half_split = {"base": 100.0, "scaling": 2.0, "layout": "half_split"}
    cases = [
        packed_case(),
        attention_case(
            "grouped queries, rotary",
            5,
            6,
            4,
            heads=4,
            key_value_heads=2,
            causal=True,
            bias=False,
            rotary=interleaved,
        ),
        attention_case(
            "grouped queries, rotary in halves, window",
            6,
            5,
            4,
            heads=2,
            key_value_heads=1,
            causal=True,
            window=3,
            rotary=half_split,
        ),
        attention_case("window both ways", 5, 4, heads=2, window=2),
        attention_case("mask", 3, 4, heads=2, mask=[[1, 0, 1], [1, 1, 0], [0, 0, 1]]),
        attention_case("norm of queries and keys", 4, 6, heads=2, qk_norm=True, causal=True),
        cross_case("cross attention", 2, 4, 3, 2, heads=2),
        gated_case("SwiGLU", "swiglu", F.silu, False),
        gated_case("GeGLU", "geglu", F.gelu, True),
        embedding_case(),
        attention_case(
            "scale, capped scores, no bias of the output",
            5,
            6,
            heads=2,
            causal=True,
            window=3,
            scale=1.5,
            soft_cap=0.75,
            output_bias=False,
        ),
        attention_case(
            "norm of queries and keys over their width",
            4,
            6,
            4,
            heads=4,
            key_value_heads=2,
            qk_norm="width",
            qk_norm_epsilon=0.01,
            scale=0.3,
        ),
        *(
            attention_case(
                f"rotary of a part, {layout}",
                5,
                6,
                6,
                heads=2,
                causal=True,
                rotary={"base": 100.0, "scaling": 1.5, "layout": layout, "dim": 4},
            )
            for layout in ("interleaved", "half_split")
        ),
    ]
    Path(__file__).with_suffix(".json").write_text(
        "[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n"
    )


if __name__ == "__main__":
    main()
