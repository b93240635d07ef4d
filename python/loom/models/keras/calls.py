"""Which layers a Keras model calls, with what, and in which order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from loom.errors import SerializationError

__all__ = ["Call", "Tensor", "calls_of", "ends_of", "layers_in", "starts_of"]

Layer = Mapping[str, Any]
_MODELS = ("Functional", "Model")
_MASKS = ("mask", "query_mask", "value_mask", "key_mask")


@dataclass(frozen=True)
class Tensor:
    """What a call of a layer made.

    Args:
        layer: The layer's name.
        call: Which of its calls.
        place: Which of the values that the call made.
    """

    layer: str
    call: int = 0
    place: int = 0


@dataclass(frozen=True)
class Call:
    """A layer that is called.

    Args:
        layer: The layer, as JSON.
        number: Which of its calls.
        reads: The values that it reads, in order; by name where they were given as a dictionary.
        options: With what else it is called.
        node: The call as it stands in the file; empty in sequential models.
        masks: What says which steps are padding.
    """

    layer: Layer
    number: int
    reads: Mapping[str | int, Tensor]
    options: Mapping[str, Any]
    node: Mapping[str, Any]
    masks: Sequence[Tensor] = ()

    @property
    def is_for_inference(self) -> bool:
        """Whether the layer works as in inference while others train; Keras 3 says training=False of any."""
        return not self.node and self.options.get("training") is False


def layers_in(config: Layer) -> Sequence[Layer]:
    """Returns the layers of a model."""
    inner = config["config"]
    found: Sequence[Layer] = inner["layers"] if isinstance(inner, Mapping) else inner
    return found


def starts_of(config: Layer) -> dict[str | int, str]:
    """Returns the input layers of a functional model, by name or place as values are given to it."""
    inner = config["config"]
    told = inner.get("input_layers") if isinstance(inner, Mapping) else None
    if isinstance(told, Mapping):
        return {name: _leaf(entry).layer for name, entry in told.items()}
    if told:
        return {place: tensor.layer for place, (_, tensor) in enumerate(_leaves(told, ""))}
    starts = [layer["config"]["name"] for layer in layers_in(config) if layer["class_name"] == "InputLayer"]
    return dict(enumerate(starts))


def ends_of(config: Layer) -> dict[str, Tensor]:
    """Returns what a functional model makes, by name: that in a dictionary, or else the layer's.

    They stand in the order in which Keras counts them: dictionaries by their sorted names.
    """
    inner = config["config"]
    kinds = {layer["config"]["name"]: layer for layer in layers_in(config)}
    found: dict[str, Tensor] = {}
    for key, tensor in _leaves(inner.get("output_layers") or [], ""):
        layer = kinds.get(tensor.layer)
        name, number = key or tensor.layer, 1
        while name in found:
            name, number = f"{key or tensor.layer}_{number}", number + 1
        # A model inside this one has a call of its own before all others, which is not in the file.
        before = layer is not None and (
            layer["class_name"] in _MODELS or (layer["class_name"] == "Sequential" and not _is_new(layer))
        )
        found[name] = replace(tensor, call=max(tensor.call - 1, 0)) if before else tensor
    return found


def calls_of(config: Layer) -> Iterator[Call]:
    """Yields every call of a layer, in an order that computes them.

    Raises:
        SerializationError: There is no such order.
    """
    layers = layers_in(config)
    if config["class_name"] == "Sequential":
        before = Tensor("")
        for layer in layers:
            if layer["class_name"] != "InputLayer":
                yield Call(layer, 0, {0: before}, {}, {})
                before = Tensor(layer["config"]["name"])
        return
    known = {(name, 0) for name in starts_of(config).values()}
    waiting = [
        call for layer in layers if layer["class_name"] != "InputLayer" for call in _calls_of_layer(layer)
    ]
    waiting = _counted_from_zero(waiting, layers)
    while waiting:
        left = []
        for call in waiting:
            if all((tensor.layer, tensor.call) in known for tensor in (*call.reads.values(), *call.masks)):
                known.add((call.layer["config"]["name"], call.number))
                yield call
            else:
                left.append(call)
        if len(left) == len(waiting):
            names = dict.fromkeys(call.layer["config"]["name"] for call in left)
            raise SerializationError(f"no order computes {', '.join(names)}")
        waiting = left


def _is_new(layer: Layer) -> bool:
    """Whether calls are told as Keras 3 tells them."""
    return any(isinstance(node, Mapping) for node in layer.get("inbound_nodes") or [{}])


def _counted_from_zero(calls: list[Call], layers: Sequence[Layer]) -> list[Call]:
    """Calls of models inside the model may count from one: some of Keras's versions have one before all."""
    many = Counter(call.layer["config"]["name"] for call in calls)
    kinds = {layer["config"]["name"]: layer["class_name"] for layer in layers}
    old = {
        name for name in many if not all(_is_new(c.layer) for c in calls if c.layer["config"]["name"] == name)
    }
    shifted = {
        tensor.layer
        for call in calls
        for tensor in call.reads.values()
        if tensor.call >= many.get(tensor.layer, tensor.call + 1)
    } | {name for name in old if kinds[name] in (*_MODELS, "Sequential")}

    def own(tensor: Tensor) -> Tensor:
        return replace(tensor, call=max(tensor.call - 1, 0)) if tensor.layer in shifted else tensor

    return [replace(call, reads={key: own(tensor) for key, tensor in call.reads.items()}) for call in calls]


def _calls_of_layer(layer: Layer) -> Iterator[Call]:
    """What a layer of a functional model is called with: as Keras 3 tells it, and Keras 2."""
    for number, node in enumerate(layer["inbound_nodes"]):
        if isinstance(node, Mapping):
            given, options = node["args"], dict(node["kwargs"])
            masks = tuple(_histories([options.pop(name, None) for name in _MASKS]))
            if layer["class_name"] == "MultiHeadAttention":
                yield Call(layer, number, _attended(given, options), options, node, masks)
                continue
            first = given[0] if given else None
            if isinstance(first, Mapping) and first.get("class_name") != "__keras_tensor__":
                reads: dict[str | int, Tensor] = dict(_named(first))
            else:
                reads = dict(enumerate(_histories([given, options])))
            yield Call(layer, number, reads, options, node, masks)
            continue
        entries = [node] if node and isinstance(node[0], str) else node
        if isinstance(entries, Mapping):
            reads = {name: Tensor(*entry[:3]) for name, entry in entries.items()}
            yield Call(layer, number, reads, {}, {})
            continue
        options = dict(entries[0][3]) if len(entries[0]) > 3 else {}
        masks = tuple(_old([options.pop(name, None) for name in _MASKS]))
        tensors = [*(Tensor(*entry[:3]) for entry in entries), *_old(list(options.values()))]
        yield Call(layer, number, dict(enumerate(tensors)), options, {}, masks)


def _attended(given: Sequence[Any], options: Mapping[str, Any]) -> dict[str | int, Tensor]:
    """What attention reads, in the order of its arguments however they are given."""
    names = ("query", "value", "key")
    told = {**dict(zip(names, given, strict=False)), **options}
    return {name: tensor for name in names for tensor in _histories(told.get(name))}


def _old(value: Any) -> Iterator[Tensor]:  # noqa: ANN401 - of JSON
    """The values among a call's further arguments, as Keras 2 tells them."""
    if isinstance(value, list):
        if (
            len(value) in (3, 4)
            and isinstance(value[0], str)
            and all(type(each) is int for each in value[1:3])
        ):
            yield _leaf(value)
            return
        for entry in value:
            yield from _old(entry)


def _named(given: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    for name, value in given.items():
        for tensor in _histories(value):
            yield name, tensor


def _histories(value: Any) -> Iterator[Tensor]:  # noqa: ANN401 - of JSON
    if isinstance(value, Mapping):
        if value.get("class_name") == "__keras_tensor__":
            yield Tensor(*value["config"]["keras_history"])
            return
        value = list(value.values())
    if isinstance(value, list):
        for entry in value:
            yield from _histories(entry)


def _leaf(entry: Any) -> Tensor:  # noqa: ANN401 - of JSON
    return Tensor(*entry[:3])


def _leaves(told: Any, name: str) -> Iterator[tuple[str, Tensor]]:  # noqa: ANN401 - of JSON
    """Every value in a structure of values, with its name in the dictionary that holds it."""
    if isinstance(told, Mapping):
        for key in sorted(told):
            yield from _leaves(told[key], key)
    elif len(told) == 3 and isinstance(told[0], str) and isinstance(told[1], int):
        yield name, _leaf(told)
    else:
        for entry in told:
            yield from _leaves(entry, name)
