"""Grids with links in plain NumPy, and random ones: what flows through them, and what they hold in time.

Nothing is shared with loom. Numbers may be complex: the imaginary part of a function at `x + 1e-20i v` is its
derivative along v, exact to the last digits (every layer here is analytic but at its corners).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

import loom
from loom import nn

Array = NDArray[Any]
Parameters = Mapping[str, Array]
Shape = tuple[int, ...]

STEP = 1e-20


@dataclass(frozen=True)
class Link:
    """From one cell, by its number, to another."""

    source: int
    target: int
    combine: str
    axis: int | None = None


@dataclass
class Plan:
    """A grid: its cells in the order data flows, each a list of layers, and its links in the order made."""

    input_shape: Shape
    grid: tuple[int, int, int]
    cells: list[list[nn.Layer]]
    links: list[Link] = field(default_factory=list)
    vocabulary: int | None = None

    def at(self, cell: int) -> tuple[int, int, int]:
        _, rows, columns = self.grid
        return cell // (rows * columns), cell // columns % rows, cell % columns

    def path(self, cell: int, layer: int) -> str:
        return ".".join(map(str, (*self.at(cell), layer)))

    def links_to(self, cell: int) -> list[Link]:
        return [link for link in self.links if link.target == cell]

    def build(self, precision: str = "float64", seed: int = 0) -> loom.Network:
        net = loom.Network(self.input_shape, self.grid, precision, seed)
        for number, layers in enumerate(self.cells):
            if layers:
                net[self.at(number)].add(*layers)
        for link in self.links:
            net.link(self.at(link.source), self.at(link.target), link.combine, link.axis)
        return net

    def inputs(self, rng: np.random.Generator, rows: int) -> Array:
        if self.vocabulary is not None:
            return rng.integers(0, self.vocabulary, (rows, *self.input_shape))
        return rng.normal(size=(rows, *self.input_shape))


# Layers: of parameters by name, the input and the context, which most do not have.


def activate(name: str, z: Array) -> Array:
    if name == "tanh":
        return np.tanh(z)
    if name == "sigmoid":
        return 1 / (1 + np.exp(-z))
    if name == "relu":
        return np.where(z.real > 0, z, 0)
    assert name == "linear", name
    return z


def softmax(z: Array) -> Array:
    powers = np.exp(z - z.real.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def apply(layer: Any, own: Parameters, x: Array, context: Array | None) -> Array:
    """What a layer makes of a batch."""
    if isinstance(layer, nn.Dense):
        return activate(layer.activation, x @ own["weight"].T + own["bias"])  # type: ignore[arg-type]
    if isinstance(layer, nn.Activation):
        return activate(layer.function, x)  # type: ignore[arg-type]
    if isinstance(layer, nn.Softmax):
        return softmax(x / layer.temperature)
    if isinstance(layer, nn.LayerNorm):
        centred = x - x.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + layer.epsilon)
        return np.asarray(centred / spread * own["weight"] + own["bias"])
    if isinstance(layer, nn.RMSNorm):
        return np.asarray(x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + layer.epsilon) * own["weight"])
    if isinstance(layer, nn.Flatten):
        return x.reshape(len(x), -1)
    if isinstance(layer, nn.Reshape):
        return x.reshape(len(x), *layer.shape)
    if isinstance(layer, nn.Embedding):
        return own["weight"][x.real.astype(int)]
    if isinstance(layer, nn.Residual):
        inner = {name.removeprefix("layers.0."): values for name, values in own.items()}
        return x + apply(layer.layers[0], inner, x, context)  # type: ignore[index]
    if isinstance(layer, nn.Conv2D):
        windows = sliding_window_view(x, own["weight"].shape[2:], axis=(2, 3))  # type: ignore[call-overload]
        made = np.einsum("bchwij,fcij->bfhw", windows, own["weight"]) + own["bias"][:, None, None]
        return activate(layer.activation, made)  # type: ignore[arg-type]
    if isinstance(layer, nn.RNN):
        return recur(layer, own, x, context)
    assert isinstance(layer, nn.MultiHeadAttention), layer
    return attend(layer, own, x, x if context is None else context)


def recur(layer: nn.RNN, own: Parameters, x: Array, context: Array | None) -> Array:
    hidden = np.zeros((len(x), layer.units)) if context is None else context.reshape(len(x), -1)
    states = []
    for step in range(x.shape[1]):
        z = x[:, step] @ own["weight_ih_l0"].T + own["bias_ih_l0"]
        hidden = np.tanh(z + hidden @ own["weight_hh_l0"].T + own["bias_hh_l0"])
        states.append(hidden)
    return np.stack(states, axis=1) if layer.return_sequences else hidden


def attend(layer: nn.MultiHeadAttention, own: Parameters, x: Array, seen: Array) -> Array:
    def heads(values: Array, name: str) -> Array:
        made = values @ own[f"{name}_weight"].T + own[f"{name}_bias"]
        return made.reshape(*made.shape[:2], layer.heads, -1).swapaxes(1, 2)

    queries, keys, values = heads(x, "query"), heads(seen, "key"), heads(seen, "value")
    scores = queries @ keys.swapaxes(2, 3) / np.sqrt(queries.shape[-1])
    mixed = (softmax(scores) @ values).swapaxes(1, 2)
    return mixed.reshape(*x.shape[:2], -1) @ own["output_weight"].T + own["output_bias"]


def arrive(link: Link, held: Array, linked: Array) -> Array:
    """What a cell's input becomes where a link arrives; batches come in."""
    if link.combine == "add":
        return held + linked
    axis = link.axis
    if axis is None:
        axis = 0 if held.ndim >= 4 else held.ndim - 2
    return np.concatenate([held, linked], axis=1 + axis)


# Once through


@dataclass
class Flow:
    """What a grid makes of a batch: of each layer by path, and what each cell hands on."""

    layers: dict[str, Array]
    cells: list[Array]

    @property
    def output(self) -> Array:
        return self.cells[-1]


def flow(plan: Plan, parameters: Parameters, x: Array, moved: Mapping[str, Array] | None = None) -> Flow:
    """Passes a batch through the cells in order; `moved` is added to what the layers of these paths make."""
    made: dict[str, Array] = {}
    cells: list[Array] = []
    value = x
    for number, layers in enumerate(plan.cells):
        context = None
        for link in plan.links_to(number):
            if link.combine == "context":
                context = cells[link.source]
            else:
                value = arrive(link, value, cells[link.source])
        for place, layer in enumerate(layers):
            path = plan.path(number, place)
            value = apply(layer, own_of(parameters, path), value, context_of(layer, context))
            if moved is not None and path in moved:
                value = value + moved[path]
            made[path] = value
        cells.append(value)
    return Flow(made, cells)


def own_of(parameters: Parameters, path: str) -> Parameters:
    return {
        name[len(path) + 1 :]: values for name, values in parameters.items() if name.startswith(path + ".")
    }


def takes_context(layer: Any) -> bool:
    return getattr(layer, "cross", False) or getattr(layer, "initial_state", "zeros") == "context"


def context_of(layer: Any, context: Array | None) -> Array | None:
    return context if takes_context(layer) else None


# Tick by tick


class Clock:
    """A grid that is clocked: two sets of what layers hold, the old one read and the new one written."""

    def __init__(self, plan: Plan, parameters: Parameters, rows: int) -> None:
        self.plan, self.parameters, self.rows = plan, parameters, rows
        self.input: Array = np.zeros((rows, *plan.input_shape))
        self.held = {path: np.zeros((rows, *shape)) for path, shape in shapes(plan)[0].items()}

    def hands_on(self, cell: int) -> Array:
        """What a cell's last layer holds; of a cell without layers what arrives there."""
        if self.plan.cells[cell]:
            return self.held[self.plan.path(cell, len(self.plan.cells[cell]) - 1)]
        return self.arrives(cell)

    def arrives(self, cell: int) -> Array:
        value = self.input if cell == 0 else self.hands_on(cell - 1)
        for link in self.plan.links_to(cell):
            if link.combine != "context":
                value = arrive(link, value, self.hands_on(link.source))
        return value

    def tick(self, x: Array) -> None:
        """All layers at once, each from what was held before; the input is this tick's own."""
        self.input = x
        new = {}
        for cell, layers in enumerate(self.plan.cells):
            contexts = [link.source for link in self.plan.links_to(cell) if link.combine == "context"]
            for place, layer in enumerate(layers):
                path = self.plan.path(cell, place)
                read = self.arrives(cell) if place == 0 else self.held[self.plan.path(cell, place - 1)]
                context = self.hands_on(contexts[0]) if contexts and takes_context(layer) else None
                new[path] = apply(layer, own_of(self.parameters, path), read, context)
        self.held = new


# Shapes, without loom: those of a batch of one, from cells whose loops do not change them.


def shapes(plan: Plan) -> tuple[dict[str, Shape], list[Shape]]:
    """Each layer's output by path, and what each cell hands on."""
    made: dict[str, Shape] = {}
    cells: list[Shape | None] = [None] * len(plan.cells)
    for _ in range(len(plan.cells) + 1):
        shape: Shape | None = plan.input_shape
        for number, layers in enumerate(plan.cells):
            for link in plan.links_to(number):
                linked = cells[link.source]
                if link.combine != "context" and shape is not None and linked is not None:
                    shape = arrive(link, np.zeros((1, *shape)), np.zeros((1, *linked))).shape[1:]
            for place, layer in enumerate(layers):
                assert shape is not None
                shape = shape_after(layer, shape)
                made[plan.path(number, place)] = shape
            cells[number] = shape
    return made, [shape for shape in cells if shape is not None]


def shape_after(layer: Any, shape: Shape) -> Shape:
    if isinstance(layer, nn.Dense):
        return (*shape[:-1], layer.units)
    if isinstance(layer, nn.Flatten):
        return (int(np.prod(shape)),)
    if isinstance(layer, nn.Reshape):
        return tuple(layer.shape)
    if isinstance(layer, nn.Embedding):
        return (*shape, layer.width)
    if isinstance(layer, nn.Conv2D):
        size = np.ravel(layer.kernel_size)
        return (layer.filters, shape[1] - int(size[0]) + 1, shape[2] - int(size[-1]) + 1)
    if isinstance(layer, nn.RNN):
        return (shape[0], layer.units) if layer.return_sequences else (layer.units,)
    return shape


# Losses, as means over the batch


def mse(output: Array, target: Array) -> Any:
    return ((output - target) ** 2).mean()


def cross_entropy(output: Array, target: Array) -> Any:
    """Of logits, the class axis last, against class indices."""
    return nll(softmax(output), target)


def nll(output: Array, target: Array) -> Any:
    """Of probabilities."""
    return -np.log(np.take_along_axis(output, target[..., None], axis=-1)).mean()


def derivative(function: Callable[[Parameters], Any], at: Parameters, along: Parameters) -> float:
    """How fast a function of some arrays changes along a direction."""
    moved = {
        name: values + 1j * STEP * along[name] if name in along else values for name, values in at.items()
    }
    return float(np.imag(function(moved)) / STEP)


# Random grids


def draw(
    rng: np.random.Generator, *, kind: str | None = None, clocked: bool = False, loops: bool = False
) -> Plan:
    """A grid of up to three cells each way, some empty, with links in the order of the flow and, where
    wanted, back; one that is `clocked` has no links to indices."""
    kinds = ["vector", "sequence", "image", "index"]
    kind = kind or str(rng.choice(kinds, p=[0.5, 0.25, 0.1, 0.15]))
    input_shape: Shape = {
        "vector": (int(rng.integers(1, 5)),),
        "sequence": (int(rng.integers(1, 4)), int(rng.integers(1, 4))),
        "image": (int(rng.integers(1, 3)), 4, 3),
        "index": (int(rng.integers(1, 4)),),
    }[kind]
    depth, rows, columns = (int(extent) for extent in rng.choice([1, 2, 3], 3, p=[0.4, 0.4, 0.2]))
    count = depth * rows * columns
    empty = rng.random(count) < rng.choice([0.2, 0.5, 0.8])
    # Behind the last layer, often.
    empty[count - int(rng.integers(0, min(count, 4))) :] = True
    if empty.all():
        empty[int(rng.integers(0, count))] = False
    plan = Plan(input_shape, (depth, rows, columns), [[] for _ in range(count)])
    plan.vocabulary = 5 if kind == "index" else None
    # Whether what a cell hands on is still the indices that came in.
    indices = kind == "index"
    shape, handed, raw = input_shape, [], []
    by_target: list[list[Link]] = []
    for cell in range(count):
        links = []
        for _ in range(int(rng.choice([0, 1, 2, 3], p=[0.45, 0.35, 0.15, 0.05])) if cell else 0):
            source = int(rng.integers(0, cell))
            link = joint(rng, source, cell, shape, handed[source], indices)
            if link is not None and not (indices and (clocked or not raw[source])):
                links.append(link)
                shape = arrive(link, np.zeros((1, *shape)), np.zeros((1, *handed[source]))).shape[1:]
        for _ in range(0 if empty[cell] else int(rng.integers(1, 3))):
            layer, link = one_layer(rng, shape, indices, handed, cell if not plan.cells[cell] else None)
            plan.cells[cell].append(layer)
            links += [link] if link is not None else []
            indices &= isinstance(layer, (nn.Flatten, nn.Reshape))
            shape = shape_after(layer, shape)
        handed.append(shape)
        raw.append(indices)
        by_target.append(links)
    # Links of several targets in any order, those of one in theirs.
    order = [target for target, links in enumerate(by_target) for _ in links]
    rng.shuffle(order)
    plan.links = [by_target[target].pop(0) for target in order]
    if loops:
        close_loops(rng, plan, handed)
    return plan


def joint(
    rng: np.random.Generator, source: int, target: int, held: Shape, linked: Shape, indices: bool
) -> Link | None:
    """A link that fits, if there is one."""
    if held == linked and not indices and rng.random() < 0.5:
        return Link(source, target, "add")
    if len(held) != len(linked):
        return None
    default = 0 if len(held) >= 3 else len(held) - 1
    fitting = [
        axis
        for axis in range(len(held))
        if held[axis] + linked[axis] <= 9
        and all(held[other] == linked[other] for other in range(len(held)) if other != axis)
    ]
    if not fitting:
        return None
    axis = int(rng.choice(fitting))
    return Link(source, target, "concat", None if axis == default and rng.random() < 0.5 else axis)


def one_layer(
    rng: np.random.Generator, shape: Shape, indices: bool, handed: list[Shape], cell: int | None
) -> tuple[nn.Layer, Link | None]:
    """A layer that takes this shape; for the first of a cell perhaps one with a context, and its link."""
    if indices:
        return nn.Embedding(5, int(rng.integers(1, 4))) if rng.random() < 0.8 else nn.Reshape(shape), None
    units = int(rng.integers(1, 5))
    activation = str(rng.choice(["linear", "tanh", "sigmoid", "relu"]))
    if len(shape) == 3:
        choices: list[nn.Layer] = [nn.Activation("tanh"), nn.Flatten()]
        if min(shape[1:]) > 1:
            choices += 2 * [nn.Conv2D(int(rng.integers(1, 3)), 2, activation=activation)]
        return choices[int(rng.integers(0, len(choices)))], None
    if len(shape) == 2 and cell is not None and rng.random() < 0.5:
        source = int(rng.integers(0, cell)) if cell else 0
        if cell and len(handed[source]) == 1:
            state = handed[source][0]
            layer: nn.Layer = nn.RNN(
                state, initial_state="context", return_sequences=bool(rng.random() < 0.5)
            )
            return layer, Link(source, cell, "context")
        if cell and len(handed[source]) == 2:
            return nn.MultiHeadAttention(shape[1], head_dim=2, cross=True), Link(source, cell, "context")
    choices = [
        nn.Dense(units, activation=activation),
        nn.Dense(shape[-1], activation=activation),
        nn.Activation(str(rng.choice(["tanh", "sigmoid"]))),
        nn.Softmax(float(rng.choice([1.0, 0.7]))),
        nn.LayerNorm(epsilon=0.1),
        nn.RMSNorm(epsilon=0.1),
        nn.Residual(nn.Dense(shape[-1], activation=activation)),
    ]
    weights = [4, 3, 1, 1, 1, 1, 1]
    if len(shape) == 2:
        choices += [nn.RNN(units, return_sequences=bool(rng.random() < 0.5)), nn.Flatten()]
        weights += [2, 1]
    return choices[int(rng.choice(len(choices), p=np.array(weights) / sum(weights)))], None


def close_loops(rng: np.random.Generator, plan: Plan, handed: list[Shape]) -> None:
    """Adds links that point back and leave all shapes as they are."""
    for _ in range(int(rng.integers(1, 4))):
        target = int(rng.integers(0, len(plan.cells)))
        source = int(rng.integers(target, len(plan.cells)))
        held = plan.input_shape if target == 0 else handed[target - 1]
        for link in plan.links_to(target):
            if link.combine != "context":
                held = arrive(link, np.zeros((1, *held)), np.zeros((1, *handed[link.source]))).shape[1:]
        layers = plan.cells[target]
        if any(isinstance(layer, nn.Embedding) for later in plan.cells[target:] for layer in later):
            continue
        link = None
        if held == handed[source]:
            link = Link(source, target, "add")
        elif layers and isinstance(layers[0], nn.Dense) and held[:-1] == handed[source][:-1]:
            link = Link(source, target, "concat", len(held) - 1)
        if link is None:
            continue
        plan.links.append(link)
        if circular(plan):
            plan.links.pop()


def circular(plan: Plan) -> bool:
    """Whether what some cell hands on depends on itself with no layer between."""

    def visit(cell: int, path: tuple[int, ...]) -> bool:
        if cell in path:
            return True
        if plan.cells[cell]:
            return False
        sources = [link.source for link in plan.links_to(cell)] + ([cell - 1] if cell else [])
        return any(visit(source, (*path, cell)) for source in sources)

    return any(visit(cell, ()) for cell in range(len(plan.cells)))
