"""The layers of a Keras model as a graph of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom.errors import ConfigError
from loom.models.branches import Join, Row
from loom.models.keras.calls import Call, Tensor, calls_of, ends_of, layers_in, starts_of
from loom.models.keras.layers import layers_of, rank_after
from loom.models.keras.masks import Masking
from loom.models.keras.merging import MERGES, is_operation, merged, operation, refuse_foreign
from loom.models.keras.training import Notes, bare, marked, policy_of
from loom.models.keras.values import Unsupported, Value, moved, refuse
from loom.models.keras.weights import Weights, snake_names
from loom.models.pieces import Context, Graph
from loom.models.plain import shape_after

__all__ = ["ModelGraph"]

_MODELS = ("Sequential", "Functional", "Model")


class ModelGraph:
    """A model as a graph.

    Args:
        config: The model, as JSON.
        weights: Its weights.

    Attributes:
        graph: The graph.
        outputs: The value of each output, by its name.
        notes: What a network does not keep of training.
        policies: The names of layers with weights, by their policy of types.

    Raises:
        ConfigError: An input has extents that loom wants and the model leaves open.
        SerializationError: No order computes the layers.
    """

    def __init__(self, config: Mapping[str, Any], weights: Weights) -> None:
        self.graph = Graph()
        self.outputs: dict[str, str] = {}
        self._refused: dict[str, tuple[str, str]] = {}
        self.notes = Notes()
        self.policies: dict[str, list[str]] = {}
        self._values: dict[str, Value] = {}
        self._broken: set[str] = set()
        self._masking = Masking(self.graph, self._values, self.notes)
        self._arrays: dict[tuple[str, str], list[NDArray[Any]]] = {}
        given = self._inputs(config)
        trainable = bool(_settings(config).get("trainable", True))
        ends = self._model(config, weights, given, ("", ""), trainable)
        self.outputs = {name: self._laid(key) for name, key in ends.items()}
        for key in ends.values():
            self._masking.leave(key)

    @property
    def refused(self) -> dict[str, list[str]]:
        """What loom has no layer for, with the layers that need it and that outputs are computed from."""
        found: dict[str, list[str]] = {}
        needed = set(self.graph.needed(list(self.outputs.values())))
        for key, (why, name) in self._refused.items():
            if key in needed or key not in self.graph.steps:
                names = found.setdefault(why, [])
                if name not in names:
                    names.append(name)
        return found

    def _inputs(self, config: Mapping[str, Any]) -> dict[str | int, str]:
        """Enters what the model reads, and returns its keys."""
        layers = layers_in(config)
        if config["class_name"] == "Sequential":
            first = layers[0]["config"]
            shape = first.get("batch_shape", first.get("batch_input_shape"))
            return {0: self._input("input", shape or _settings(config).get("build_input_shape"))}
        held = {layer["config"]["name"]: layer["config"] for layer in layers}
        found: dict[str | int, str] = {}
        for place, name in starts_of(config).items():
            settings = held[name]
            shape = settings.get("batch_shape", settings.get("batch_input_shape"))
            found[place] = self._input(name, shape)
        return found

    def _input(self, name: str, shape: Sequence[int | None] | None) -> str:
        sample = None if shape is None else list(shape[1:])
        if sample is None or None in sample[1:]:
            raise ConfigError(
                f"the model reads {shape}: loom wants every extent but the batch and the steps of sequences; "
                "build it with an Input of a fixed shape, and save it again"
            )
        key = f"{name}>"
        self.graph.inputs[key], self.graph.names[key] = sample or [1], name
        known = tuple(extent for extent in sample if extent is not None) or (1,)
        self._enter(key, Value(len(sample), False, None if None in sample else known))
        return key

    def _enter(self, key: str, value: Value) -> None:
        self._values[key] = value
        self.graph.shapes[key] = value.shape

    def _add(self, key: str, reads: Sequence[str], step: Row | Join, value: Value) -> None:
        self.graph.steps[key] = (list(reads), step)
        self._enter(key, value)

    def _laid(self, key: str) -> str:
        """A value as Keras has it, its channels last."""
        value = self._values[key]
        row = moved(value, first=False)
        if not row:
            return key
        laid = f"{key} laid"
        if laid not in self._values:
            self._add(laid, [key], row, value.laid(first=False))
        return laid

    def _model(
        self,
        config: Mapping[str, Any],
        weights: Weights,
        given: Mapping[str | int, str],
        where: tuple[str, str],
        trainable: bool,
    ) -> dict[str, str]:
        """Adds the layers of a model, and returns the keys of what it makes.

        Args:
            config: The model, as JSON.
            weights: Its weights.
            given: The keys of what it reads, by name or place.
            where: What its layers' names and keys begin with; those of a model that is called twice differ.
            trainable: Whether the models around it are trained.
        """
        layers = layers_in(config)
        counted = snake_names(layers)
        keys: dict[Tensor, str] = {}
        if config["class_name"] == "Sequential":
            keys[Tensor("")] = given[0]
        else:
            starts = starts_of(config)
            order = list(starts)
            if given.keys() != starts.keys():
                given = dict(zip(order, given.values(), strict=True))
            keys |= {Tensor(name): given[place] for place, name in starts.items()}
        last = Tensor("")
        for call in calls_of(config):
            name = call.layer["config"]["name"]
            last = Tensor(name, call.number)
            reads = {place: keys[tensor] for place, tensor in call.reads.items() if tensor in keys}
            if len(reads) < len(call.reads):
                missing = next(tensor for tensor in call.reads.values() if tensor not in keys)
                told = f"what {missing.layer} returns beside its output"
                self._refused[f"{where[1]}{name}#{call.number} reads"] = (told, where[0] + name)
                reads = reads or {0: next(iter(keys.values()))}
            if call.layer["class_name"] in _MODELS:
                inside = weights.inside(name, counted[name])
                begin = (f"{where[0]}{name}/", f"{where[1]}{name}#{call.number}/")
                trained = trainable and bool(_settings(call.layer).get("trainable", True))
                if call.is_for_inference:
                    self.notes.add("that it is called with training=False, as in inference", where[0] + name)
                made = self._model(call.layer, inside, reads, begin, trained)
                for place, key in enumerate(made.values()):
                    keys[Tensor(name, call.number, place)] = key
            else:
                key = f"{where[1]}{name}#{call.number}"
                masks = [keys[tensor] for tensor in call.masks]
                held = (weights, counted[name])
                self._layer(call, held, (list(reads.values()), masks), (where[0] + name, key), trainable)
                keys[last] = key
        if config["class_name"] == "Sequential":
            return {"output": keys[last]}
        ends = ends_of(config)
        if not ends:
            return {"output": keys[last]}
        for name, tensor in ends.items():
            if tensor not in keys:
                told = f"what {tensor.layer} returns beside its output"
                self._refused[f"{where[1]}{name} made"] = (told, where[0] + tensor.layer)
        return {name: keys.get(tensor, keys[last]) for name, tensor in ends.items()}

    def _layer(
        self,
        call: Call,
        held: tuple[Weights, str],
        given: tuple[list[str], list[str]],
        where: tuple[str, str],
        trainable: bool,
    ) -> None:
        """Adds the call of a layer: of values, and with masks."""
        name, key = where
        reads, masks = given
        if call.layer["class_name"] == "Masking":
            # Padding is found in steps, which are the first axis.
            reads = [self._laid(other) for other in reads]
        layer, kind = call.layer, call.layer["class_name"]
        values = [self._values[other] for other in reads]
        broken = not self._broken.isdisjoint(reads)
        try:
            refuse_foreign(layer)
            if kind in ("NotEqual", "Any") and is_operation(layer):
                source = self._laid(reads[0]) if kind == "NotEqual" else reads[0]
                self._masking.told(key, kind, call.node, source)
            self._masking.refuse_others(kind, masks, reads[0])
            if is_operation(layer) or kind in MERGES:
                self._masking.check(kind, reads)
                if is_operation(layer):
                    join, row, value = operation(kind, layer["config"], call.node, values)
                else:
                    join, row, value = merged(kind, layer["config"], values)
                self._join(key, reads, join, row, value)
                self._masking.brought_together(key, reads)
                return
            attends = kind == "MultiHeadAttention" and len(set(reads)) > 1
            refuse(len(set(reads)) != 1 and not attends, f"{kind} of {len(set(reads))} values")
            if (name, held[1]) not in self._arrays:
                self._arrays[name, held[1]] = held[0].of(layer["config"]["name"], held[1])
            arrays = self._arrays[name, held[1]]
            if arrays:
                self._note_policy(layer["config"], name)
            if attends:
                self._attend(call, arrays, reads, where, trainable)
                return
            row, value = layers_of(kind, layer["config"], arrays, values[0], call.options)
            row = marked(
                row,
                layer,
                name,
                trainable=trainable,
                inference=call.is_for_inference,
                notes=self.notes,
            )
            value = replace(value, shape=shape_after(bare(row), None if broken else values[0].shape))
            self._masking.layer(key, layer, reads[0], row, value, self._add)
        except Unsupported as error:
            if not (broken and "extents are open" in str(error)):
                self._refused[key] = (str(error), name)
            self._broken.add(key)
            rank = rank_after(kind, layer["config"], values[0].rank)
            self._add(key, reads, [], Value(rank, values[0].first and rank > 1))
        if broken:
            self._broken.add(key)

    def _attend(
        self,
        call: Call,
        arrays: Sequence[NDArray[Any]],
        reads: Sequence[str],
        where: tuple[str, str],
        trainable: bool,
    ) -> None:
        """Adds attention of one sequence to another."""
        name, key = where
        query, other, *rest = reads
        refuse(rest != [] and rest != [other], "a MultiHeadAttention whose keys are not of its values")
        for each in (query, other):
            refuse(self._values[each].mask is not None, "a MultiHeadAttention of masked values to others")
        query, other = self._laid(query), self._laid(other)
        row, value = layers_of(
            "MultiHeadAttention", call.layer["config"], arrays, self._values[query], call.options
        )
        refuse(row[0]["causal"], "use_causal_mask of a MultiHeadAttention to another value")
        row = [{**row[0], "cross": True}]
        row = marked(
            row,
            call.layer,
            name,
            trainable=trainable,
            inference=call.is_for_inference,
            notes=self.notes,
        )
        self.graph.steps[key] = ([query, other], Context(row))
        self._enter(key, replace(value, shape=self._values[query].shape))

    def _note_policy(self, config: Mapping[str, Any], name: str) -> None:
        names = self.policies.setdefault(policy_of(config), [])
        if name not in names:
            names.append(name)

    def _join(self, key: str, reads: Sequence[str], join: Join | None, row: Row, value: Value) -> None:
        value = replace(value, mask=None)
        if join is None:
            self._add(key, reads[:1], row, value)
        elif not row:
            self._add(key, reads, join, value)
        else:
            shapes = [
                shape_after(end, self._values[other].shape)
                for other, end in zip(reads, join.ends, strict=True)
            ]
            self._add(f"{key} joined", reads, join, Value(value.rank, value.first, _side(shapes, join)))
            self._add(key, [f"{key} joined"], row, value)


def _side(shapes: Sequence[tuple[int, ...] | None], join: Join) -> tuple[int, ...] | None:
    """What several values come to before what is behind their join."""
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return None
    if join.combine == "concat" and join.axis is not None:
        first = list(known[0])
        first[join.axis] = sum(shape[join.axis] for shape in known)
        return tuple(first)
    return tuple(int(extent) for extent in np.broadcast_shapes(*known))


def _settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    inner = config["config"]
    return inner if isinstance(inner, Mapping) else {}
