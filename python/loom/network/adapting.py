"""Adapters: products of low rank beside the weights of a network, which stay as they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom import _native
from loom._settings.checks import flag, real, sequence, whole
from loom._settings.suggestions import shown, unknown
from loom.engine import HasEngine, NetworkT, engine_of
from loom.errors import ConfigError
from loom.network.layers import LayerHandle, layers_of

__all__ = [
    "Adapter",
    "adapted",
    "adapters",
    "add_adapter",
    "is_adapted",
    "left_out",
    "merge_adapters",
    "put_adapter",
    "remove_adapters",
    "trained_alone",
    "use_adapters",
]

_WEIGHT = "weight"


@dataclass(frozen=True)
class Adapter:
    """What an adapter of a network is; `Network.adapters` tells.

    Args:
        name: What it is called.
        rank: How many numbers lie between its two factors; the largest, where layers differ.
        alpha: What its scale is made of.
        dropout: The probability that training zeroes what it reads.
        rank_stabilized: Whether its scale is `alpha / sqrt(rank)` instead of `alpha / rank`.
        decomposed: Whether it gives outputs lengths of its own (DoRA).
        weights: The weights beside which it stands, by the names that state dicts give them.
        parameters: How many numbers are trained.
        active: Whether the network computes with it.
        trainable: Whether an optimizer may move it.
    """

    name: str
    rank: int
    alpha: float
    dropout: float
    rank_stabilized: bool
    decomposed: bool
    weights: tuple[str, ...]
    parameters: int
    active: bool
    trainable: bool

    @property
    def scale(self) -> float:
        """What the product of its factors is multiplied by."""
        return self.alpha / (self.rank**0.5 if self.rank_stabilized else self.rank)


def add_adapter(
    self: NetworkT,
    name: str = "default",
    *,
    rank: int = 8,
    alpha: float | None = None,
    dropout: float = 0.0,
    targets: str | Iterable[str] | None = None,
    rank_stabilized: bool = False,
    decomposed: bool = False,
    freeze: bool = True,
) -> NetworkT:
    """Puts an adapter beside weights, and has training move that instead of them.

    Low-Rank Adaptation (LoRA, Hu et al. 2022): a product `x W^T` becomes
    `x W^T + scale (x A^T) B^T`, with `lora_a` A of (rank, inputs), drawn uniformly within
    `1 / sqrt(inputs)`, and `lora_b` B of (outputs, rank), of zeros: a new adapter changes nothing that is
    computed. The weights keep their numeric type and need no master, so that packed ones stay packed
    while the adapter is trained (QLoRA, Dettmers et al. 2023). Several adapters add up.

    Its factors are parameters of the layer, `layer["query_weight.default.lora_a"]`, in float; they are
    saved, trained and looked at as all others are. The optimizer starts anew.

    Args:
        name: What it is called: letters, digits, "_" and "-". One name may be given again for other
            layers.
        rank: How many numbers lie between A and B.
        alpha: `scale` is `alpha / rank`; twice the rank where None.
        dropout: The probability that training zeroes an element of what A reads.
        targets: Which weights: by the name of the product, "query", "gate" or, of a Dense, "weight"; by
            the kind of their layer, "dense" or "multi_head_attention"; by the names of state dicts,
            "0.0.0.3.layers.1.query_weight"; or patterns of these, such as "0.0.0.3.*". Every weight that
            takes an adapter where None: those of Dense, MultiHeadAttention, SwiGLU and GeGLU, of the
            products with the input in recurrent layers, and of routers and shared experts in
            MixtureOfExperts.
        rank_stabilized: Whether `scale` is `alpha / sqrt(rank)` (rsLoRA, Kalajdzievski 2023).
        decomposed: Whether weights are decomposed into lengths and directions (DoRA, Liu et al. 2024): the
            product is then one with the rows of `W + scale B A`, each brought to the length that
            `lora_magnitude` (outputs,) says, which starts as the length of W's row. Gradients take the
            length that is divided by as a constant, as the paper and peft do. Of adapters like that one
            alone may be in use beside a weight; others without lengths add to its outputs.
        freeze: Whether the network's own parameters stay as they are in training, as `Network.freeze()`
            has it; what is to be trained beside the adapter is let go afterwards, by
            `net.unfreeze("rms_norm")`.

    Returns:
        The network.

    Raises:
        ConfigError: A setting is out of range, or a target matches no weight that takes an adapter.
        InvalidValueError: A layer has an adapter of this name already, or one in use that is decomposed where
            this one is to be.
        StateError: The network is training.

    Examples:
        >>> net = loom.Sequential([nn.Dense(8), nn.Dense(2)], input_shape=4)
        >>> before = net.predict(np.ones((1, 4)))
        >>> _ = net.add_adapter(rank=2, targets="0.0.0.0.weight")
        >>> net.adapters["default"].weights, net.adapters["default"].parameters
        (('0.0.0.0.weight',), 24)
        >>> bool((net.predict(np.ones((1, 4))) == before).all())
        True
    """
    settings = {
        "name": _name(name),
        "rank": whole("add_adapter", "rank", rank, least=1, most=1 << 16),
        "alpha": 2.0 * rank if alpha is None else real("add_adapter", "alpha", alpha),
        "dropout": real("add_adapter", "dropout", dropout, least=0.0, below=1.0),
        "rank_stabilized": flag("add_adapter", "rank_stabilized", rank_stabilized),
        "decomposed": flag("add_adapter", "decomposed", decomposed),
    }
    keep = flag("add_adapter", "freeze", freeze)
    put_adapter(self, [(layer, names, settings) for layer, names in _targeted(self, targets)])
    if keep:
        for layer in layers_of(self):
            layer.trainable = False
    return self


def put_adapter(
    network: HasEngine, entries: Sequence[tuple[LayerHandle, Sequence[str], Mapping[str, Any]]]
) -> None:
    """Puts adapters beside weights of layers; all of them or, after an error, none.

    Args:
        network: The network.
        entries: Layers of cells, the names of weights in each, and settings as the engine has them.
    """
    engine = engine_of(network)
    done: list[tuple[tuple[int, int, int, int], str]] = []

    def change(native: Any) -> None:  # noqa: ANN401 - the native network
        try:
            for layer, names, settings in entries:
                native.add_adapter(layer.at, json.dumps({**settings, "parameters": list(names)}))
                done.append((layer.at, str(settings["name"])))
        except BaseException:
            for at, name in done:
                native.remove_adapter(at, name)
            raise

    engine.rearrange("adding an adapter", change)


def _name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ConfigError(
            f'add_adapter: the name of an adapter is a text such as "default", got {shown(name)}'
        )
    return name


def _targeted(network: HasEngine, targets: str | Iterable[str] | None) -> list[tuple[LayerHandle, list[str]]]:
    """Returns layers of cells with the names of the weights that are meant."""
    patterns = [targets] if isinstance(targets, str) else sequence(targets)
    if targets is not None and not (patterns and all(isinstance(each, str) for each in patterns)):
        raise ConfigError(_expected(targets))
    engine = engine_of(network)
    matched: set[str] = set()
    known: set[str] = set()
    found = []
    for layer in layers_of(network):
        names = engine.native.adaptable(layer.at)
        kinds = _kinds(layer, names)
        chosen = []
        for name in names:
            last = name.rpartition(".")[2]
            called = {
                last,
                last.removesuffix(f"_{_WEIGHT}"),
                kinds[name],
                f"{layer.path}.{name}",
            }
            known |= called
            hits = [each for each in patterns or () if any(fnmatchcase(one, each) for one in called)]
            matched.update(hits)
            if patterns is None or hits:
                chosen.append(name)
        if chosen:
            found.append((layer, chosen))
    for pattern in patterns or ():
        if pattern not in matched:
            raise unknown("weight that takes an adapter, or kind of layer with such,", pattern, known)
    if not found:
        raise ConfigError(
            "add_adapter: the network has no weight that takes an adapter: those are the weights of Dense, "
            "attention, gated and recurrent layers"
        )
    return found


def _kinds(layer: LayerHandle, names: Iterable[str]) -> dict[str, str]:
    """Returns the kind of the innermost layer that has each weight."""
    inside = layer.inner if layer.holds_layers else []
    kinds = {}
    for name in names:
        kinds[name] = layer.kind
        # Whatever is inside stands behind what it is in.
        for inner in inside:
            if name.startswith(inner.prefix):
                kinds[name] = inner.kind
    return kinds


def _expected(given: object) -> str:
    return (
        "add_adapter: targets are names or patterns of weights or kinds of layers, such as "
        f'["query", "value"], got {shown(given)}'
    )


def _settings(network: HasEngine) -> list[tuple[LayerHandle, dict[str, Any]]]:
    """Returns every adapter of every layer, with the layer."""
    native = engine_of(network).native
    return [
        (layer, settings)
        for layer in layers_of(network)
        for settings in json.loads(native.adapters(layer.at))
    ]


def adapters(self: HasEngine) -> dict[str, Adapter]:
    """The adapters of the network by name, in the order of the layers that have them."""
    found: dict[str, list[tuple[LayerHandle, dict[str, Any]]]] = {}
    for layer, settings in _settings(self):
        found.setdefault(settings["name"], []).append((layer, settings))
    return {name: _told(name, entries) for name, entries in found.items()}


def _told(name: str, entries: list[tuple[LayerHandle, dict[str, Any]]]) -> Adapter:
    first = max((settings for _, settings in entries), key=lambda settings: settings["rank"])
    weights = [f"{layer.path}.{weight}" for layer, settings in entries for weight in settings["parameters"]]
    numbers = 0
    for layer, settings in entries:
        for weight in settings["parameters"]:
            outputs, inputs = engine_of(layer).native.parameter_shape(layer.at, weight)
            numbers += settings["rank"] * (outputs + inputs) + outputs * settings.get("decomposed", False)
    return Adapter(
        name,
        first["rank"],
        first["alpha"],
        first["dropout"],
        first["rank_stabilized"],
        first.get("decomposed", False),
        tuple(weights),
        numbers,
        any(settings["active"] for _, settings in entries),
        any(settings["trainable"] for _, settings in entries),
    )


def _chosen(network: HasEngine, call: str, names: Sequence[str]) -> set[str]:
    """Returns the names of adapters that are there; a ConfigError for others."""
    known = list(dict.fromkeys(settings["name"] for _, settings in _settings(network)))
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(f"{call} takes names of adapters, got {shown(name)}")
        if name not in known:
            if not known:
                raise ConfigError(
                    f'{call}: the network has no adapter "{name}", nor any; add_adapter adds one'
                )
            raise unknown("adapter", name, known)
    return set(names)


def use_adapters(self: NetworkT, *names: str, trainable: bool = True) -> NetworkT:
    """Has the network compute with these adapters, and with no others; with none where none is named.

    Args:
        *names: Their names. What several add is added up.
        trainable: Whether an optimizer may move them.

    Returns:
        The network.

    Raises:
        ConfigError: There is no such adapter. Nothing has changed then.
        StateError: The network is training in another thread.

    Examples:
        >>> net = loom.Sequential([nn.Dense(2)], input_shape=4).add_adapter("a").add_adapter("b")
        >>> _ = net.use_adapters("b")
        >>> [adapter.name for adapter in net.adapters.values() if adapter.active]
        ['b']
    """
    train = flag("use_adapters", "trainable", trainable)
    chosen = _chosen(self, "use_adapters", names)
    engine = engine_of(self)

    def choose(native: _native.Network) -> None:
        for layer, settings in _settings(self):
            used = settings["name"] in chosen
            native.set_adapter(layer.at, settings["name"], used, train if used else settings["trainable"])

    engine.change(choose)
    return self


@contextmanager
def trained_alone(network: HasEngine, name: str) -> Iterator[None]:
    """Has a network compute with an adapter beside those in use, and training move that one of them alone.

    Afterwards it is in use still, and the others may be moved as before. Of a network whose adapter was there
    to be computed with, such as one that was read from files, the own parameters are frozen, as `add_adapter`
    does.

    Args:
        network: The network.
        name: The adapter.
    """
    others = [(at, told) for at, told in _told_of(network) if told["name"] != name]
    if not adapters(network)[name].trainable:
        for layer in layers_of(network):
            layer.trainable = False
    _switch(network, lambda told: (True, True) if told["name"] == name else (told["active"], False))
    try:
        yield
    finally:
        _set(network, [(at, told["name"], told["active"], told["trainable"]) for at, told in others])


@contextmanager
def left_out(network: HasEngine, name: str) -> Iterator[None]:
    """Has a network compute without one of the adapters in use meanwhile.

    Args:
        network: The network.
        name: The adapter.
    """

    def used(active: bool) -> None:
        _switch(network, lambda told: (active if told["name"] == name else told["active"], told["trainable"]))

    used(False)
    try:
        yield
    finally:
        used(True)


def is_adapted(network: HasEngine, at: tuple[int, int, int, int], weight: str) -> bool:
    """Returns whether adapters in use stand beside a weight.

    Args:
        network: The network, built, or a layer of it.
        at: The place of the layer of the cell.
        weight: The weight's name there, such as "layers.1.query_weight".
    """
    return bool(_in_use(network, at, weight))


def _in_use(network: HasEngine, at: tuple[int, int, int, int], weight: str) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = json.loads(engine_of(network).native.adapters(at))
    return [each for each in told if each["active"] and weight in each["parameters"]]


def adapted(
    network: HasEngine, at: tuple[int, int, int, int], weight: str, values: NDArray[Any]
) -> NDArray[Any]:
    """Returns a weight with what the adapters in use make of it: for files that have weights alone.

    Args:
        network: The network, built, or a layer of it.
        at: The place of the layer of the cell.
        weight: The weight's name there, such as "layers.1.query_weight".
        values: The weight itself, (outputs, inputs).

    Returns:
        (outputs, inputs), in float64; the values as they are where no adapter in use stands beside them.
    """
    in_use = _in_use(network, at, weight)
    if not in_use:
        return values
    native = engine_of(network).native
    total = values.astype(np.float64)
    beside = np.zeros_like(total)
    for told in in_use:

        def part(name: str, told: Mapping[str, Any] = told) -> NDArray[np.float64]:
            found: NDArray[Any] = native.parameter(at, f"{weight}.{told['name']}.{name}", True)
            return found.astype(np.float64)

        scale = told["alpha"] / (told["rank"] ** 0.5 if told["rank_stabilized"] else told["rank"])
        product = scale * (part("lora_b") @ part("lora_a"))
        if told.get("decomposed"):
            total += product
            lengths = np.linalg.norm(total, axis=1)
            shares = np.divide(part("lora_magnitude"), lengths, where=lengths > 0, out=np.zeros_like(lengths))
            total *= shares[:, None]
        else:
            beside += product
    return total + beside


def _told_of(network: HasEngine) -> list[tuple[tuple[int, int, int, int], dict[str, Any]]]:
    return [(layer.at, told) for layer, told in _settings(network)]


def _switch(network: HasEngine, wanted: Callable[[dict[str, Any]], tuple[bool, bool]]) -> None:
    """Says of each adapter whether it is in use and may be moved; of those that are so already nothing."""
    entries = [(at, told, *wanted(told)) for at, told in _told_of(network)]
    _set(
        network,
        [
            (at, told["name"], active, trainable)
            for at, told, active, trainable in entries
            if (active, trainable) != (told["active"], told["trainable"])
        ],
    )


def _set(network: HasEngine, entries: Sequence[tuple[tuple[int, int, int, int], str, bool, bool]]) -> None:
    def change(native: _native.Network) -> None:
        for at, name, active, trainable in entries:
            native.set_adapter(at, name, active, trainable)

    if entries:
        engine_of(network).change(change)


def merge_adapters(self: NetworkT, *names: str) -> NetworkT:
    """Adds what adapters add to the weights themselves, and takes the adapters away.

    The network computes the same but for rounding, at its former speed. Packed weights are packed again
    from the sum, whose rounding to few bits may cost some of what the adapter has learned; where their
    master was dropped, one is made, which `drop_master` frees again.

    Args:
        *names: Which; those in use where none is named.

    Returns:
        The network.

    Raises:
        ConfigError: There is no such adapter.
        StateError: The network is training.

    Examples:
        >>> net = loom.Sequential([nn.Dense(2, bias=False)], input_shape=4).add_adapter(rank=1, alpha=1.0)
        >>> net.layers[0]["weight.default.lora_b"] = np.ones((2, 1))
        >>> x = np.ones((1, 4))
        >>> before = net.predict(x)
        >>> bool(np.allclose(net.merge_adapters().predict(x), before, atol=1e-6)), net.adapters
        (True, {})
    """
    return _ended(self, "merge_adapters", names, lambda native, at, name: native.merge_adapter(at, name))


def remove_adapters(self: NetworkT, *names: str) -> NetworkT:
    """Takes adapters away; the weights stay as they are.

    Args:
        *names: Which; all where none is named.

    Returns:
        The network.

    Raises:
        ConfigError: There is no such adapter. Nothing has changed then.
        StateError: The network is training.
    """
    return _ended(self, "remove_adapters", names, lambda native, at, name: native.remove_adapter(at, name))


def _ended(self: NetworkT, call: str, names: Sequence[str], end: Any) -> NetworkT:  # noqa: ANN401
    chosen = _chosen(self, call, names)
    entries = [
        (layer.at, settings["name"])
        for layer, settings in _settings(self)
        if settings["name"] in chosen or (not names and (settings["active"] or call == "remove_adapters"))
    ]

    def change(native: Any) -> None:  # noqa: ANN401 - the native network
        for at, name in entries:
            end(native, at, name)

    engine_of(self).rearrange("taking an adapter away", change)
    return self
