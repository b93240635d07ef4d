"""Attention, found around its softmax; what lies between its products is computed rather than parsed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from loom import nn
from loom.models.angles import turning_rates
from loom.models.onnx.importing.checking import LARGE, accept, close, computed
from loom.models.onnx.importing.graph import Graph, Made, Node, is_movement
from loom.models.onnx.importing.patterns import ELEMENTWISE
from loom.models.onnx.importing.projections import Projection, following, projection

__all__ = ["find_attention"]

MAGNITUDES = (1e-2, 1.0, 4.0)
PLAIN = ELEMENTWISE | {"Concat", "IsNaN", "Identity"}


@dataclass
class Operand:
    """Queries, keys or values as one product makes them.

    Args:
        source: What the product reads.
        weight: (heads, head_dim, features).
        bias: (heads, head_dim).
        gain: The gain of a norm of each head; None without.
        scale: What everything is multiplied by afterwards.
        rotary: How pairs turn; None where they do not.
        epsilon: What is added to the mean square of the norm.
    """

    source: str
    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    gain: NDArray[np.float32] | None
    scale: float
    rotary: nn.Rotary | None
    epsilon: float


def find_attention(graph: Graph) -> list[str]:
    """Puts MultiHeadAttention in the place of what computes it; returns why some softmaxes are none."""
    reasons = []
    for node in list(graph.nodes):
        if node.op == "Softmax" and node in graph.nodes:
            why = _attention(graph, node)
            if why:
                reasons.append(f'{node.op} "{node.name}": {why}')
    return reasons


def _products(graph: Graph, node: Node) -> tuple[Node, Node] | None:
    """Returns the product before a softmax and the one after it."""
    value = node.inputs[0]
    for _ in range(12):
        before = graph.producer.get(value)
        if before is None:
            return None
        if before.op == "MatMul":
            break
        # Activations that were found are looked at with what lies around them.
        passed = not before.op or before.op in PLAIN or is_movement(graph, before)
        if not passed or len(graph.data(before)) != 1:
            return None
        value = graph.data(before)[0]
    else:
        return None
    reached, waiting = [], [node.outputs[0]]
    for _ in range(12):
        if not waiting:
            break
        for reader in graph.consumers.get(waiting.pop(), []):
            if reader.op == "MatMul":
                reached.append(reader)
            elif not reader.op or reader.op in PLAIN or is_movement(graph, reader):
                waiting.append(reader.outputs[0])
    if len(set(map(id, reached))) != 1 or len(graph.data(before)) != 2 or len(graph.data(reached[0])) != 2:
        return None
    return before, reached[0]


def _attention(graph: Graph, node: Node) -> str | None:
    found = _products(graph, node)
    if found is None:
        return None
    first, second = found
    rank = len(graph.single.shapes.get(node.inputs[0]) or ())
    if rank < 3 or node.attributes.get("axis", -1 if graph.opset >= 13 else 1) not in (-1, rank - 1):
        return "its softmax goes over another axis than the last"
    seen = _scores(graph, first.outputs[0], node.inputs[0])
    if isinstance(seen, str):
        return seen
    scale, keep, cap = seen
    if not _handed_on(graph, node.outputs[0], second.inputs[0], keep):
        return "what its softmax makes is changed before values are multiplied by it"
    time = keep.shape[-1]
    query = _operand(graph, first.inputs[0], time, turn=False)
    key = _operand(graph, first.inputs[1], time, turn=True)
    value = _operand(graph, second.inputs[1], time, turn=False)
    if isinstance(query, str):
        return f"its queries {query}"
    if isinstance(key, str):
        return f"its keys {key}"
    if isinstance(value, str):
        return f"its values {value}"
    if len({query.source, key.source, value.source}) != 1:
        return "its queries, keys and values are made of different inputs"
    heads, head_dim, width = query.weight.shape
    groups = _groups(key.weight, value.weight, key.bias, value.bias)
    alike = (query.gain is None) == (key.gain is None) and query.epsilon == key.epsilon
    if not alike or query.rotary != key.rotary or groups is None:
        return "its queries and keys are not treated alike"
    settings: dict[str, Any] = {"heads": heads, "head_dim": head_dim, "rotary": query.rotary}
    if groups != heads:
        settings["key_value_heads"] = groups
    settings |= _sight(keep) | ({} if cap is None else {"soft_cap": cap})
    factor = np.float32(scale * query.scale * key.scale * math.sqrt(head_dim))
    factor = np.float32(1) if abs(factor - 1) < 1e-6 else factor
    picked = slice(None, None, heads // groups)
    tensors: dict[str, NDArray[Any]] = {
        "query_weight": query.weight,
        "query_bias": query.bias,
        "key_weight": key.weight[picked],
        "key_bias": key.bias[picked],
        "value_weight": value.weight[picked] * np.float32(value.scale),
        "value_bias": value.bias[picked] * np.float32(value.scale),
    }
    if query.gain is not None and key.gain is not None:
        if query.gain.size != head_dim:
            return "its queries are normalised over more than a head"
        settings |= {"qk_norm": True, "qk_norm_epsilon": query.epsilon}
        tensors |= {"query_gain": query.gain * factor, "key_gain": key.gain}
    else:
        tensors["query_weight"], tensors["query_bias"] = query.weight * factor, query.bias * factor
    for name, array in tensors.items():
        if name.endswith("weight"):
            tensors[name] = array.reshape(-1, width)
        elif name.endswith("bias"):
            tensors[name] = array.reshape(-1)
    end = _output(graph, second.outputs[0], (heads, time, head_dim), tensors)
    if end is None:
        return "what is done with its result is not read"
    if tensors["output_weight"].shape[0] != width or graph.sample(end) != graph.sample(query.source):
        return "its output is of another width than its input"
    settings["bias"] = any(tensors[name].any() for name in tensors if name.endswith("bias"))
    if not settings["bias"]:
        tensors = {name: array for name, array in tensors.items() if not name.endswith("bias")}
    if not accept(graph, end, query.source, [Made(nn.MultiHeadAttention(**settings), tensors)], MAGNITUDES):
        return "loom's attention computes something else"
    return None


def _scores(graph: Graph, product: str, value: str) -> tuple[float, NDArray[np.bool_], float | None] | str:
    """Returns what scores are multiplied by, who may see whom, and what scores are held under."""
    shape = graph.single.shapes.get(product)
    if shape is None or len(shape) < 3 or shape[-1] != shape[-2]:
        return "its scores are of an unknown shape"

    def made(x: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(all="ignore"):
            return np.asarray(graph.compute({product: x}, value)).reshape(-1, *shape[-2:])

    zero, small = made(np.zeros(shape)), made(np.full(shape, 1e-3))
    keep = zero > -1e4
    if (keep != keep[:1]).any() or np.abs(zero[keep]).max(initial=0) > 1e-6:
        return "something other than a mask, the same for all heads, is added to its scores"
    scales = small[keep] / 1e-3
    if not scales.size or np.ptp(scales) > 1e-6 * np.abs(scales).max():
        return "its scores are not multiplied by one number"
    scale = float(scales[0])
    # What holds scores back shows far out alone.
    far = float(np.abs(made(np.full(shape, LARGE * 1e4))[keep]).max())
    drawn = np.random.default_rng(0).normal(size=shape)
    found = [(size, made(size * drawn)) for size in (1e-2, 1.0, 1e2, LARGE / 8)]
    drawn = drawn.reshape(-1, *shape[-2:])
    for cap in (None, float(f"{far:.7g}")):
        bent = scale if not cap else cap * math.atanh(np.clip(scale * 1e-3 / cap, -0.5, 0.5)) * 1e3
        straight = [bent * size * drawn for size, _ in found]
        expected = straight if not cap else [cap * np.tanh(each / cap) for each in straight]
        if all(close(e[:, keep[0]], y[:, keep[0]]) for e, (_, y) in zip(expected, found, strict=True)):
            return bent, keep[0], cap
    return "something other than a factor, a mask and a soft cap lies between its scores and its softmax"


def _handed_on(graph: Graph, weights: str, value: str, keep: NDArray[np.bool_]) -> bool:
    """Whether weights come to a product as they are, but for those of what is hidden."""
    shape = graph.single.shapes.get(weights) or ()
    drawn = np.random.default_rng(0).random(shape)
    made = computed(graph, {weights: drawn}, value)
    if made is None or made.size != drawn.size or made.shape[-2:] != keep.shape:
        return False
    return close(made.reshape(-1, *keep.shape)[:, keep], drawn.reshape(-1, *keep.shape)[:, keep])


def _sight(keep: NDArray[np.bool_]) -> dict[str, Any]:
    """Returns the settings of a mask."""
    if keep.all():
        return {}
    apart = np.arange(len(keep))[:, None] - np.arange(len(keep))
    causal = not keep[apart < 0].any()
    distance = np.abs(apart)
    window = int(distance[keep].max()) + 1
    expected = (distance < window) & ((apart >= 0) if causal else True)
    if np.array_equal(expected, keep):
        return {"causal": causal, "window": window if window < len(keep) else None}
    return {"mask": keep.astype(int).tolist()}


def _groups(*arrays: NDArray[Any]) -> int | None:
    """Returns how many heads keys and values have, if they are repeated in turn."""
    heads = len(arrays[0])
    for groups in range(1, heads + 1):
        if heads % groups == 0:
            repeated = [np.repeat(each[:: heads // groups], heads // groups, axis=0) for each in arrays]
            if all(np.array_equal(one, two) for one, two in zip(arrays, repeated, strict=True)):
                return groups
    return None


def _back(graph: Graph, value: str) -> str | None:
    """Returns what a value is made of by movements and single elements: a product, or a norm of heads."""
    for _ in range(40):
        if projection(graph, value) is not None:
            return value
        node = graph.producer.get(value)
        if node is None:
            return None
        if not node.op:
            return value
        data = set(graph.data(node))
        if not (node.op in PLAIN or is_movement(graph, node)):
            return None
        if len(data) == 1:
            (value,) = data
            continue
        before = graph.before.get(value)
        nodes = graph.between(before, value) if before else None
        if before is None or nodes is None or not all(n.op in PLAIN or is_movement(graph, n) for n in nodes):
            return None
        value = before
    return None


def _operand(graph: Graph, value: str, time: int, *, turn: bool) -> Operand | str:
    start = _back(graph, value)
    if start is None:
        return "do not come from a product with a constant"
    node = graph.producer[start]
    gain, epsilon = None, 0.0
    begin = start
    if not node.op:
        if len(node.made) != 1 or not isinstance(node.made[0].layer, nn.RMSNorm):
            return "come from something other than a product or a norm of each head"
        epsilon = float(node.made[0].layer.epsilon)
        gain = np.asarray(node.made[0].tensors["weight"])
        found = _back(graph, node.inputs[0])
        if found is None or projection(graph, found) is None:
            return "are normalised in no way that loom has"
        begin = found
    made = projection(graph, begin)
    if made is None:
        return "do not come from a product with a constant"
    # From the product to each head's elements, and from there, past a norm, to what is multiplied.
    first = _map(graph, begin, node.inputs[0] if gain is not None else value, turn and gain is None)
    if isinstance(first, str):
        return first
    places, scale, shift, rotary = first
    if gain is not None:
        inner = graph.single.shapes[node.inputs[0]] or ()
        if abs(scale - 1) > 1e-6 or shift.any():
            return "are changed before they are normalised"
        second = _map(graph, start, value, turn, chunk=inner[-1])
        if isinstance(second, str):
            return second
        places = places.reshape(-1)[second[0]]
        scale, shift, rotary = second[1], second[2], second[3]
    units = len(made.weight)
    at, unit = np.divmod(places, units)
    steps = places.shape[1]
    if steps != time or (at != np.arange(time)[None, :, None]).any() or (unit != unit[:, :1]).any():
        return "are arranged in no way that heads are"
    columns = unit[:, 0]
    bias = np.zeros(units, np.float32) if made.bias is None else made.bias
    moved = bias[columns] + shift / np.float32(scale)
    if shift.any() and (rotary is not None or gain is not None):
        return "have something added to them after they were turned"
    return Operand(made.source, made.weight[columns], moved.astype(np.float32), gain, scale, rotary, epsilon)


Mapping = tuple[NDArray[np.int64], float, NDArray[np.float32], "nn.Rotary | None"]


def _map(graph: Graph, start: str, value: str, turn: bool, chunk: int | None = None) -> Mapping | str:
    """Returns where each (head, step, element) stands in another value, scale, shift, and how it is turned.

    `turn` is for keys, which stand with steps last; `chunk` tells that places count from a norm's output.
    """
    shape = graph.single.shapes[start] or ()

    def at(x: NDArray[Any]) -> NDArray[Any]:
        y = np.asarray(graph.compute({start: x.reshape(shape).astype(np.float64)}, value))
        y = y.reshape(-1, *y.shape[-2:])
        return y.swapaxes(1, 2) if turn else y

    count = math.prod(shape)
    zero = at(np.zeros(count))
    one = at(np.ones(count)) - zero
    rng = np.random.default_rng(0)
    # A pair whose angle is zero is where it was: that of the first step, whether or not others turn.
    index = at(np.arange(count)) - zero
    drawn = rng.normal(size=count)
    y = at(drawn)
    for magnitude in (1e-3, 1e2, LARGE):
        if not close((at(magnitude * drawn) - zero) / magnitude, y - zero, 1e-6):
            return "are changed by more than a factor"
    first = one[:, :1]
    scale = float(first.reshape(-1)[0])
    if np.abs(first - scale).max() > 1e-6 * abs(scale) or abs(scale) < 1e-12:
        return "are not scaled by one number"
    places = np.rint(index[:, :1] / scale).astype(np.int64)
    if places.min() < 0 or places.max() >= count:
        return "are arranged in no way that heads are"
    plain = np.rint(index / scale).astype(np.int64)
    if plain.min() >= 0 and plain.max() < count and close(drawn[plain] * scale + zero, y, 1e-9):
        shift = zero[:, 0]
        if np.abs(zero - shift[:, None]).max() > 1e-6:
            return "have something added to them that differs from step to step"
        return plain, scale, shift.astype(np.float32), None
    if np.abs(zero).max() > 1e-6:
        return "have something added to them after they were turned"
    steps = y.shape[1]
    arranged = False
    # Steps stand a row apart or, where heads come before them, a head's elements.
    for stride in dict.fromkeys((shape[-1], count // steps)):
        everywhere = places + stride * np.arange(steps)[None, :, None]
        # Groups of heads may share keys, so that only a head's elements all differ.
        if everywhere.max() >= count or any(np.unique(head).size != head.size for head in everywhere):
            continue
        arranged = True

        def turned(x: NDArray[Any], everywhere: NDArray[np.int64] = everywhere) -> NDArray[Any]:
            """What elements of each head become, given for one head."""
            given = np.zeros(count)
            given[everywhere] = x
            return np.asarray(at(given)[0] / scale)

        rotary = _rotary(turned, drawn[everywhere], y / scale)
        if rotary is not None:
            return everywhere, scale, np.zeros(y[:, 0].shape, np.float32), rotary
    return f"are {'turned in no way that Rotary says' if arranged else 'arranged in no way that heads are'}"


def _rotary(
    turned: Callable[[NDArray[Any]], NDArray[Any]], x: NDArray[Any], y: NDArray[Any]
) -> nn.Rotary | None:
    """Returns the rotation that makes y of x, both (heads, time, head_dim).

    `turned` computes it for the elements of one head, which all heads have.
    """
    _, time, width = x.shape
    moving = np.flatnonzero(np.abs(y - x).max(axis=(0, 1)) > 1e-12)
    if time < 2 or not moving.size:
        return None
    extent = int(moving[-1]) + 1
    extent += extent % 2
    if extent > width:
        return None
    pair = np.arange(extent // 2)
    for layout in ("interleaved", "half_split"):
        one = 2 * pair if layout == "interleaved" else pair
        two = one + 1 if layout == "interleaved" else pair + extent // 2
        # A pair of one and zero becomes the cosine and the sine of its angle.
        unit = np.zeros((time, width))
        unit[:, one] = 1
        made = turned(unit)
        angles = np.arctan2(made[:, two], made[:, one])
        rates = angles[1]
        if rates.min() <= 0:
            continue
        for step in [2**power for power in range(1, (time - 1).bit_length())]:
            # Farther steps tell the rate to more digits; whole turns are those that nearer ones leave.
            rates = (angles[step] + 2 * np.pi * np.rint((step * rates - angles[step]) / (2 * np.pi))) / step
        rotary = _rule(rates, extent, None if extent == width else extent, layout)
        found, factor = turning_rates(rotary, extent)
        angle = np.arange(time)[:, None] * found
        cosine, sine, expected = np.cos(angle), np.sin(angle), x.copy()
        expected[..., one] = x[..., one] * cosine - x[..., two] * sine
        expected[..., two] = x[..., one] * sine + x[..., two] * cosine
        if factor == 1.0 and np.abs(expected - y).max() < 1e-5 + 1e-6 * time:
            return rotary
    return None


def _rule(rates: NDArray[np.float64], extent: int, dim: int | None, layout: str) -> nn.Rotary:
    """Returns the base and scaling that make these rates, or a rule with a factor for each of them."""
    pair = np.arange(extent // 2)
    scaling = float(1 / rates[0])
    rounded = float(np.rint(scaling * 1000) / 1000)
    scaling = rounded if rounded > 0 and abs(rounded / scaling - 1) < 1e-6 else scaling
    bases = [10_000.0]
    if extent > 2:
        base = float((rates[-1] * scaling) ** (-extent / (2 * (extent // 2 - 1))))
        bases = [float(f"{base:.3g}"), float(np.rint(base)), float(f"{base:.8g}")]
    for base in bases:
        if base > 0 and np.abs(base ** (-2.0 * pair / extent) / scaling / rates - 1).max() < 1e-6:
            return nn.Rotary(base=base, scaling=scaling, layout=cast("Any", layout), dim=dim)
    factors = [float(f"{factor:.8g}") for factor in 10_000.0 ** (-2.0 * pair / extent) / rates]
    rule = nn.LongRopeRule(original_length=2.0, factors=factors, attention_factor=1.0)
    return nn.Rotary(rule=rule, layout=cast("Any", layout), dim=dim)


def _output(
    graph: Graph, value: str, shape: tuple[int, int, int], tensors: dict[str, NDArray[Any]]
) -> str | None:
    """Enters the product that gathers heads, and returns its result, or what heads lie side by side in."""
    heads, time, head_dim = shape
    after = following(graph, value)
    if after is not None:
        reads, made = after
    else:
        reads, made = value, None
        for _ in range(6):
            readers = graph.consumers.get(reads, [])
            if graph.sample(reads) == (time, heads * head_dim):
                break
            if len(readers) != 1 or not is_movement(graph, readers[0]):
                return None
            reads = readers[0].outputs[0]
    count = math.prod(graph.single.shapes[value] or ())
    places = graph.moved(value, reads)
    if count != math.prod(shape) or places.size != count:
        return None
    places = places.reshape(time, heads * head_dim)
    head, rest = np.divmod(places, time * head_dim)
    step, element = np.divmod(rest, head_dim)
    columns = head[0] * head_dim + element[0]
    if (step != np.arange(time)[:, None]).any() or (head * head_dim + element != columns).any():
        return None
    weight = np.eye(heads * head_dim, dtype=np.float32) if made is None else made.weight
    ordered = np.empty_like(weight)
    ordered[:, columns] = weight
    tensors["output_weight"] = ordered
    bias = None if made is None else made.bias
    tensors["output_bias"] = np.zeros(len(weight), np.float32) if bias is None else bias
    return reads if made is None else made.value


__all__ += ["Operand", "Projection"]
