"""What a network is made of, put together from what the engine knows of its layers."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod
from typing import Any, cast

from loom import _native, nn
from loom._settings.encoding import encode
from loom.architecture import LinkConfig, NetworkConfig, as_layer
from loom.engine import Engine, HasEngine, engine_of
from loom.network.multiply_adds import Shape, multiply_adds
from loom.reports.blueprint import Blueprint, LayerBlueprint, LinkBlueprint, ParameterBlueprint

__all__ = ["architecture_id", "blueprint"]

_BYTES = {"float32": 4, "float64": 8, "mixed": 4}


def blueprint(self: HasEngine) -> Blueprint:
    """Returns what the network is made of: shapes, parameters, bytes and multiply-adds of every layer.

    Layers inside Residual, Sequential, Parallel and Masked stand inside the entry of theirs. No
    weights are made for it, so that networks larger than memory can be looked at.

    Multiply-adds are those of matrix products, convolutions and distances for one sample at
    inference, a bias left out; a multiplication and an addition count as one. With n for elements
    out, c for features in and T for steps:

    - Dense, TiedHead, KMeans: n c. SwiGLU, GeGLU: three products.
    - Convolutions: n times kernel extents times channels in / groups; transposed ones: elements
      in times kernel extents times filters / groups.
    - RNN, LSTM, GRU: T times all their input and hidden weights.
    - MultiHeadAttention: its four products, and scores and weighted values with 2 T S heads
      head_dim, S being the steps that are looked at; masks save nothing.
    - Adapters in use beside these: both of their products, for each product that they add to.
    - Everything else, such as pooling, norms, softmaxes, activations, embeddings: 0.
    - Layers that hold others: the sum of these.

    Returns:
        The blueprint.

    Raises:
        ShapeError: The layers do not fit together.

    Examples:
        >>> net = loom.Sequential([nn.Dense(8, activation="relu"), nn.Dense(2)], input_shape=4)
        >>> plan = net.blueprint()
        >>> plan.parameter_count, plan.multiply_adds, plan.layers[0].activation
        (58, 48, 'relu')
        >>> plan.bytes == net.weight_bytes
        True
    """
    engine = engine_of(self)
    outline = engine.native.outline()
    if outline is not None:
        engine = Engine(outline)
    config = engine.config
    links = tuple(_link(engine, cast(LinkConfig, link)) for link in config.links)
    layers = tuple(_placed(engine, at, place, links) for at, place in engine.layer_places())
    return Blueprint(
        id=architecture_id(config),
        input_shape=cast("tuple[int, ...]", engine.input_shape),
        output_shape=tuple(engine.native.output_shape()),
        grid=engine.grid,
        precision=engine.precision,
        layers=layers,
        links=links,
        **_totals(layers, ()),
    )


def architecture_id(config: NetworkConfig) -> str:
    """Returns the hash of an architecture, as `Blueprint.id` says."""
    described = config.to_config()
    counted = {name: described[name] for name in ("input_shape", "grid", "cells", "links")}
    text = json.dumps(counted, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _link(engine: Engine, link: LinkConfig) -> LinkBlueprint:
    source, target = tuple(link.source), tuple(link.target)
    shape = tuple(engine.native.cell_output_shape(cast(Any, source)))
    return LinkBlueprint(source, target, link.combine, link.axis, shape)


def _totals(
    layers: Iterable[LayerBlueprint], parameters: Iterable[ParameterBlueprint], own: int = 0
) -> dict[str, int]:
    inside, held = list(layers), list(parameters)
    return {
        "parameter_count": sum(it.parameter_count for it in inside) + sum(it.size for it in held),
        "trainable_count": sum(it.trainable_count for it in inside)
        + sum(it.size for it in held if it.trainable),
        "bytes": sum(it.bytes for it in inside) + sum(it.bytes for it in held),
        "master_bytes": sum(it.master_bytes for it in inside) + sum(it.master_bytes for it in held),
        "multiply_adds": own + sum(it.multiply_adds for it in inside),
    }


def _placed(
    engine: Engine, at: tuple[int, int, int], place: int, links: Sequence[LinkBlueprint]
) -> LayerBlueprint:
    where = (*at, place)
    input_shape, output_shape = map(tuple, engine.native.layer_shapes(where))
    contexts = [link.shape for link in links if link.target == at and link.combine == "context"]
    maker = _Maker(
        where,
        _parameters(engine, where),
        contexts[0] if contexts else None,
        engine.adapter_parameters(where),
        {adapter["name"] for adapter in json.loads(engine.native.adapters(where)) if adapter["active"]},
    )
    last = place == engine.native.cell_len(at) - 1
    touching = tuple(
        link for link in links if (place == 0 and link.target == at) or (last and link.source == at)
    )
    layer = engine.layer_config(at, place)
    return maker.made(layer, "", input_shape, output_shape, touching)


def _parameters(engine: Engine, at: tuple[int, int, int, int]) -> dict[str, ParameterBlueprint]:
    native = engine.native
    names = native.parameter_names(at)
    if not names:
        return {}
    state = native.weights_state(at)
    packed = {name: dtype for name, dtype, *_ in state["versions"]}
    sizes = dict(state["sizes"])
    frozen = set(native.frozen(at))
    trained = native.trainable(at) and not state["dropped"]
    # Those of adapters have no packed versions, and are trained where the layer's own stand still.
    adapters = engine.adapter_parameters(at)
    found = {}
    for name in names:
        shape = tuple(native.parameter_shape(at, name))
        whole = prod(shape) * _BYTES[engine.precision]
        master = 0 if state["dropped"] and name in packed else whole
        found[name] = ParameterBlueprint(
            name=name,
            shape=shape,
            dtype=packed.get(name, engine.precision.replace("mixed", "float32")),
            bytes=whole if name in adapters else sizes[name],
            master_bytes=master,
            trainable=adapters.get(name, trained and name not in frozen),
            typed=name in packed or name in state["weights"],
        )
    return found


class _Maker:
    """Makes the entries of one layer of a cell and of those inside it.

    Args:
        place: Where the layer is.
        parameters: Its parameters by name, those of layers inside among them.
        context: The shape of the second input of the cell; None where there is none.
        adapters: The names of what adapters have of these parameters.
        active: The names of the adapters that are in use.
    """

    def __init__(
        self,
        place: tuple[int, int, int, int],
        parameters: Mapping[str, ParameterBlueprint],
        context: Shape | None,
        adapters: Iterable[str],
        active: Collection[str],
    ) -> None:
        self.adapters = frozenset(adapters)
        self.active = active
        self.place = place
        self.parameters = parameters
        self.context = context

    def made(
        self,
        layer: nn.Layer,
        prefix: str,
        input_shape: Shape,
        output_shape: Shape,
        links: tuple[LinkBlueprint, ...] = (),
    ) -> LayerBlueprint:
        """Returns the entry of a layer; `prefix` is what its parameters' names begin with."""
        described: Any = layer
        inside: list[LayerBlueprint] = []
        combine, branches = None, 0
        if layer.kind in ("sequential", "masked", "checkpoint", "residual", "spectral_norm", "weight_norm"):
            row = _inside(layer)
            begin = prefix if layer.kind != "residual" else f"{prefix}layers."
            inside = self.row(row, begin, input_shape)
            if layer.kind == "residual":
                combine, branches = "add", 2
                inside += self.row(described.projection, f"{prefix}projection.", input_shape)
                if not described.projection:
                    inside += self.implied(f"{prefix}projection.", input_shape, output_shape)
        elif layer.kind == "parallel":
            combine, branches = described.combine, len(described.branches)
            for number, branch in enumerate(described.branches):
                inside += self.row(branch, f"{prefix}branches.{number}.", input_shape)
            inside += self.row(described.gate, f"{prefix}gate.", input_shape)
            if combine == "filter" and not described.gate:
                inside += self.implied(f"{prefix}gate.", (prod(input_shape),), (branches,))
        held: tuple[ParameterBlueprint, ...] = ()
        own = 0
        if not inside and branches == 0:
            held = self.held(prefix)
            shapes = {entry.name: entry.shape for entry in held if prefix + entry.name not in self.adapters}
            # A weight's name, the adapter's, and which of its two parts it is.
            used = {
                entry.name: entry.shape
                for entry in held
                if entry.name not in shapes and entry.name.split(".")[-2] in self.active
            }
            own = multiply_adds(layer, input_shape, output_shape, self.context, shapes, used)
        elif layer.kind == "weight_norm":
            held = tuple(entry for entry in self.held(prefix) if entry.name == "gain")
        entry = self.entry(layer.kind, prefix, input_shape, output_shape, inside, held, own)
        return dataclasses.replace(
            entry, activation=_activation(layer), combine=combine, branches=branches, links=links
        )

    def held(self, prefix: str) -> tuple[ParameterBlueprint, ...]:
        """Returns the parameters whose names begin so, named without that."""
        return tuple(
            dataclasses.replace(entry, name=name.removeprefix(prefix))
            for name, entry in self.parameters.items()
            if name.startswith(prefix)
        )

    def entry(
        self,
        kind: str,
        prefix: str,
        input_shape: Shape,
        output_shape: Shape,
        inside: Iterable[LayerBlueprint],
        held: tuple[ParameterBlueprint, ...],
        own: int,
    ) -> LayerBlueprint:
        """Returns an entry without what only some layers have."""
        layers = tuple(inside)
        path = ".".join(map(str, self.place))
        return LayerBlueprint(
            place=self.place,
            path=f"{path}.{prefix}".rstrip("."),
            kind=kind,
            activation=None,
            input_shape=input_shape,
            output_shape=output_shape,
            parameters=held,
            combine=None,
            branches=0,
            layers=layers,
            links=(),
            **_totals(layers, held, own),
        )

    def row(self, layers: Any, prefix: str, shape: Shape) -> list[LayerBlueprint]:  # noqa: ANN401
        """Returns the entries of layers in a row, the first of which gets this shape."""
        made = []
        for number, layer in enumerate(layers):
            config = json.dumps(layer.to_config())
            after = tuple(_native.layer_output_shape(config, shape, self.context))
            made.append(self.made(layer, f"{prefix}{number}.", shape, after))
            shape = after
        return made

    def implied(self, prefix: str, input_shape: Shape, output_shape: Shape) -> list[LayerBlueprint]:
        """Returns the entry of a projection or gate that the engine has put there by itself."""
        places = dict.fromkeys(
            name.removeprefix(prefix).partition(".")[0] for name in self.parameters if name.startswith(prefix)
        )
        made = []
        for place in places:
            held = self.held(f"{prefix}{place}.")
            (weight,) = (entry.shape for entry in held if entry.name == "weight")
            kind = "dense" if len(weight) == 2 else f"conv{len(weight) - 2}d"
            own = prod(output_shape) * prod(weight[1:])
            made.append(self.entry(kind, f"{prefix}{place}.", input_shape, output_shape, (), held, own))
        return made


def _inside(layer: nn.Layer) -> list[nn.Layer]:
    # Also of layers that users composed, whose `layers` is a method.
    return [as_layer(config) for config in cast(Any, layer.to_config()["layers"])]


def _activation(layer: nn.Layer) -> str | None:
    given = encode(getattr(layer, "activation", getattr(layer, "function", None)))
    if isinstance(given, dict):
        ((name, settings),) = given.items()
        return f"{name}({', '.join(f'{key}={value}' for key, value in cast(Any, settings).items())})"
    return cast("str | None", given)
