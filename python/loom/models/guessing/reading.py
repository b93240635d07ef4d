"""Tensors put together as layers: blocks of a transformer, or layers one behind the other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

import numpy as np

from loom import activations, nn
from loom._settings.suggestions import unknown
from loom._typing import ArrayLike
from loom.errors import ConfigError
from loom.grid import as_shape
from loom.models.guessing.blocks import ACTIVATION, Stack, block_part, norm_layer
from loom.models.guessing.kinds import CONVOLUTIONS, EMBEDDING, NORMS, POSITIONS, kinds_of, makes_of, reads_of
from loom.models.guessing.parts import Part, Placed, Question, first_of
from loom.models.spelling import activation_name, inferred, own_parameters
from loom.nn._layer import FAMILY
from loom.nn.composite import as_layer
from loom.reports.parameter_names import blocks, natural_key

__all__ = ["Reading"]

_HEAD = re.compile(r"(^|\.)(lm_head|head|output|classifier|score|cls|logits|fc_out|embed_out)$", re.I)


class Reading:
    """One guess in the making."""

    def __init__(
        self, tensors: Mapping[str, ArrayLike], config: Mapping[str, Any], mapping: Mapping[str, Any]
    ) -> None:
        self.shapes = {
            name: tuple(tensor.shape if hasattr(tensor, "shape") else np.shape(cast(Any, tensor)))
            for name, tensor in tensors.items()
        }
        self.config = config
        self.mapping = dict(mapping)
        self.open: list[Question] = []

    def ask(self, name: str, asked: str) -> None:
        """Notes something that is open, and what is to be said of it."""
        self.open.append(Question(name, asked))

    def parts(self) -> list[Part]:
        """Returns the parts of the network, in order; what stays open is in `open`."""
        every = self._modules()
        for name in self.mapping:
            if name not in every:
                raise unknown("layer in the mapping", name, every)
        modules = {name: held for name, held in every.items() if self.mapping.get(name, held) is not None}
        parts = self._with_activations(self._transformer(modules) or self._in_a_row(modules))
        used = {tensor for part in parts for tensor in part.tensors()}
        left = [name for held in modules.values() for name in held.values() if name not in used]
        if left and not self.open:
            self.ask(
                left[0], f"no layer has a place for {', '.join(left)}: leave them out by a mapping to None"
            )
        return parts

    def _modules(self) -> dict[str, dict[str, str]]:
        """Names of tensors by their last part, for each module, in natural order."""
        found: dict[str, dict[str, str]] = {}
        for name in sorted(self.shapes, key=natural_key):
            bare = re.sub(r":\d+$", "", name.replace("/", "."))
            module, _, leaf = bare.rpartition(".")
            if leaf != "num_batches_tracked" and not leaf.endswith("inv_freq"):
                found.setdefault(module or leaf, {})[leaf] = name
        return found

    # Transformers

    def _transformer(self, modules: dict[str, dict[str, str]]) -> list[Part]:
        """The parts of a transformer; none where no block is one."""
        found = blocks(self.shapes)
        attending = [block for block in found.numbered if block.part("attention")]
        if not attending or any(block.family != attending[0].family for block in attending):
            return []
        inside = {block.name: block for block in attending}
        held: dict[str, dict[str, dict[str, str]]] = {name: {} for name in inside}
        outside: dict[str, dict[str, str]] = {}
        for module, leaves in modules.items():
            own = next((name for name in inside if module.startswith(f"{name}.")), None)
            (outside if own is None else held[own])[module] = leaves
        told = [name for name, layer in self.mapping.items() if layer is not None]
        if told:
            raise ConfigError(
                f"mapping: {', '.join(told)} belongs to a transformer, whose layers follow from its config; "
                "a mapping leaves tensors out of it, by None"
            )
        begin, end, stack = self._ends(outside)
        parts = [block_part(name, held[name], self.shapes, stack) for name in inside]
        if None in parts:
            return []
        self.open += stack.open
        return [*begin, *(part for part in parts if part is not None), *end]

    def _ends(self, outside: dict[str, dict[str, str]]) -> tuple[list[Part], list[Part], Stack]:
        """What stands before and behind the blocks."""
        begin: dict[str, Part] = {}
        end: dict[str, Part] = {}
        for name, held in outside.items():
            (tensor,) = list(held.values())[:1]
            shape = self.shapes[tensor]
            role, layer = self._outside(name, shape, held)
            ends = end if role == "head" or (role == "norm" and not re.search("emb", name, re.I)) else begin
            if layer is None or role in ends:
                self.ask(
                    name, f"of shape {shape}, outside of all blocks: the {role} is another, or it is none"
                )
            else:
                ends[role] = self._part(name, layer, held)
        if "embedding" not in begin:
            self.ask("embedding", "no embedding of words was found")
        elif "head" not in end:
            tied = self.config.get("tie_word_embeddings")
            if tied is None:
                self.ask(
                    "head",
                    "none was found: say tie_word_embeddings=True where the embedding's table is the head's, "
                    "False where the network ends without one",
                )
            if tied:
                rows = self.shapes[begin["embedding"].tensors()[0]][0]
                end["head"] = Part("head", (nn.TiedHead(rows, (0, 0, 0, 0)),), ())
        stack = Stack(self.config, "positions" in begin, "head" in end, "norm" in end)
        ordered = [begin[name] for name in ("embedding", "positions", "norm") if name in begin]
        return ordered, [end[name] for name in ("norm", "head") if name in end], stack

    def _outside(
        self, name: str, shape: tuple[int, ...], held: Mapping[str, str]
    ) -> tuple[str, nn.Layer | None]:
        """What tensors outside of all blocks are for, and their layer."""
        if len(shape) == 2 and "bias" not in held and _HEAD.search(name):
            return "head", nn.TiedHead(shape[0])
        if len(shape) == 2 and POSITIONS.search(name):
            return "positions", nn.PositionalEmbedding(shape[0])
        if len(shape) == 2 and EMBEDDING.search(name):
            return "embedding", nn.Embedding(*shape)
        if len(shape) == 1 and _NORM.search(name):
            return "norm", norm_layer(held, self.config)
        return "embedding, head or norm", None

    # Layers one behind the other

    def _in_a_row(self, modules: dict[str, dict[str, str]]) -> list[Part]:
        several = [
            block.name
            for block in blocks(self.shapes).numbered
            if sum(len(self.shapes[name]) > 1 for name in block.names) > 1
        ]
        if several and self.config.get("skips") is None:
            self.ask(
                several[0],
                f"{len(several)} blocks of several layers: sums around them are in no tensor; say "
                "skips=False where there are none, and otherwise build the network in code "
                "(loom.from_torch reads modules)",
            )
        parts: list[Part] = []
        width: int | None = None
        spatial = False
        rows = self._ordered(modules)
        for place, name in enumerate(rows):
            part = self._layers(name, modules[name], first=place == 0, last=place == len(rows) - 1)
            if part is None:
                width = None
                continue
            kind, own = part.placed[0].kind, self._own(part.placed[0])
            reads = reads_of(kind, own)
            if width is not None and reads and width % reads == 0 and kind in CONVOLUTIONS and width != reads:
                grouped = as_layer({**part.layers[0].to_config(), "groups": width // reads})
                part = Part(name, (grouped, *part.layers[1:]), part.placed)
            elif width is not None and reads is not None and reads != width:
                if not (spatial and kind == "dense" and reads % width == 0):
                    self.ask(
                        name,
                        f"it reads {reads} features, and {parts[-1].name} makes {width}: another order, or "
                        "something between them, is to be said by building the network in code",
                    )
                parts.append(Part("", (nn.Flatten(),), ()))
            elif spatial and kind == "dense" and not self._is_given(name):
                self.ask(
                    name,
                    "it reads channels, and images come in: say what makes one number of each, in a mapping "
                    f'such as {{"{name}": [nn.GlobalAvgPool2D(), nn.Dense(...)]}}',
                )
            parts.append(part)
            width = makes_of(kind, own) or reads or width
            spatial = (spatial or kind.startswith("conv")) and kind != "dense"
        return parts

    def _ordered(self, modules: Mapping[str, dict[str, str]]) -> list[str]:
        """Modules in the order in which what one makes is what the next reads."""
        natural = sorted(modules, key=lambda name: bool(_HEAD.search(name)))
        reads: dict[str, int | None] = {}
        makes: dict[str, int | None] = {}
        spatial: set[str] = set()
        for name, held in modules.items():
            shapes = {leaf: self.shapes[tensor] for leaf, tensor in held.items()}
            kinds = kinds_of(name, shapes, first=False, last=False)
            if kinds:
                own = self._own(Placed("0", kinds[-1], held))
                reads[name], makes[name] = reads_of(kinds[-1], own), makes_of(kinds[-1], own)
                spatial |= {name} if kinds[-1].startswith("conv") else set()

        def follows(width: int | None, image: bool, name: str) -> bool:
            wanted = reads.get(name)
            if width is None or wanted is None or wanted == width:
                return True
            # Groups of a convolution read a part of the channels each, and images are laid out flat.
            groups, flat = name in spatial, image and makes.get(name) is not None
            return (groups and width % wanted == 0) or (flat and not groups and wanted % width == 0)

        def chains(rest: list[str], width: int | None, image: bool) -> Iterator[list[str]]:
            if not rest:
                yield []
            for name in rest:
                if follows(width, image, name):
                    made = makes.get(name)
                    images = name in spatial or (image and made is None)
                    others = [other for other in rest if other != name]
                    for row in chains(others, made or reads.get(name) or width, images):
                        yield [name, *row]

        def fits(order: list[str]) -> bool:
            width: int | None = None
            image = False
            for name in order:
                if not follows(width, image, name):
                    return False
                image = name in spatial or (image and makes.get(name) is None)
                width = makes.get(name) or reads.get(name) or width
            return True

        def number(name: str) -> tuple[float, bool]:
            digits = re.findall(r"\d+", name)
            return float(digits[-1]) if digits else np.inf, makes.get(name) is None

        for order in (natural, sorted(natural, key=number)):
            if fits(order):
                return order
        found = list(islice(chains(natural, None, False), 2)) if len(natural) <= _FEW else []
        return found[0] if len(found) == 1 else natural

    def _own(self, placed: Placed) -> dict[str, tuple[int, ...]]:
        """The shapes of a layer's parameters as loom has them."""
        # Zeros without memory stand for the tensors, of which only shapes count here.
        empty = {
            leaf: np.broadcast_to(np.float32(0), self.shapes[tensor])
            for leaf, tensor in placed.tensors.items()
        }
        return {name: array.shape for name, array in own_parameters(placed.kind, empty).items()}

    def _layers(self, name: str, held: dict[str, str], *, first: bool, last: bool) -> Part | None:
        """The layer that the tensors of one module become."""
        shapes = {leaf: self.shapes[tensor] for leaf, tensor in held.items()}
        given = self.mapping.get(name)
        if given is not None and not isinstance(given, Mapping | str):
            return self._given(name, given, held)
        kinds = [given] if isinstance(given, str) else kinds_of(name, shapes, first=first, last=last)
        settings = dict(given) if isinstance(given, Mapping) else {}
        kinds = [settings.pop("type")] if "type" in settings else kinds
        if len(kinds) != 1:
            told = ", ".join(f"{leaf} {shape}" for leaf, shape in shapes.items())
            what = f"may be {' or '.join(kinds)}" if kinds else "is of no layer that loom knows"
            self.ask(name, f"{told} {what}: say which in a mapping, or None to leave it out")
            return None
        kind = kinds[0]
        own = self._own(Placed("0", kind, held))
        strange = [name for name in own if not _PARAMETER.fullmatch(name)]
        if strange:
            self.ask(name, f"{kind} has no {', '.join(strange)}: the tensors are of another kind of layer")
            return None
        empty = {leaf: np.broadcast_to(np.float32(0), shape) for leaf, shape in own.items()}
        made = {**inferred(kind, empty), "type": kind}
        if kind.startswith("conv"):
            self._window(name, made, settings)
        if kind in ("rnn", "lstm", "gru"):
            made.setdefault("return_sequences", not last and not self.config.get("last_step", False))
        try:
            return self._part(name, as_layer({**made, **settings}), held)
        except ConfigError as error:
            self.ask(name, f"{error}: say so in a mapping, and what it may lack in settings")
            return None

    def _window(self, name: str, made: dict[str, Any], settings: Mapping[str, Any]) -> None:
        """Stride and padding of a convolution, of which its weight tells nothing."""
        for setting in ("stride", "padding"):
            if setting in self.config:
                made[setting] = self.config[setting]
        given = {*made, *settings}
        if "padding" not in given and set(made["kernel_size"]) != {1}:
            same = tuple(extent // 2 for extent in made["kernel_size"])
            self.ask(
                name,
                f"a convolution's padding and stride are not in its tensors: say padding ({same} keeps the "
                "extent, 0 is none) and stride (1 where it is left out), for all or in a mapping such as "
                f'{{"{name}": {{"stride": 2, "padding": 1}}}}',
            )

    def _is_given(self, name: str) -> bool:
        """Whether a mapping says all layers for a name, not settings alone."""
        return not isinstance(self.mapping.get(name), Mapping | str | None)

    def _given(self, name: str, given: object, held: dict[str, str]) -> Part:
        """What a mapping says."""
        row = list(given) if isinstance(given, Sequence) else [given]
        layers = tuple(as_layer(layer) for layer in row)
        wanting = [place for place, layer in enumerate(layers) if layer.kind not in _WITHOUT]
        if not wanting:
            raise ConfigError(
                f"mapping: tensors of {name} are to go to a layer, and none of these has parameters"
            )
        return Part(name, layers, (Placed(f"{wanting[0]}", layers[wanting[0]].kind, held),))

    def _part(self, name: str, layer: nn.Layer, held: Mapping[str, str]) -> Part:
        return Part(name, (layer,), (Placed("0", layer.kind, held),))

    def _with_activations(self, parts: list[Part]) -> list[Part]:
        """Puts an activation behind each Dense and convolution but the last, or behind its norm."""
        places = [
            place
            for place, part in enumerate(parts)
            if part.layers and part.layers[-1].kind in _ACTIVATED and not self._is_given(part.name)
        ]
        last = max((place for place, part in enumerate(parts) if part.placed), default=0)
        places = [place for place in places if place < last]
        given = first_of(self.config, *ACTIVATION)
        if places and given is None:
            self.ask(
                "network",
                "tensors do not tell activations: say activation (relu, gelu, tanh, linear...)",
            )
        if given is None or given == "linear":
            return parts
        function = activation_name(given) or given if isinstance(given, str) else given
        made = list(parts)
        for place in places:
            normed = (
                place + 1 < len(parts)
                and parts[place + 1].layers[-1:]
                and (parts[place + 1].layers[-1].kind in NORMS and not self._is_given(parts[place + 1].name))
            )
            at = place + 1 if normed else place
            activation = nn.Activation(activations.resolve(function))
            made[at] = Part(made[at].name, (*made[at].layers, activation), made[at].placed)
        return made

    def input_shape(self, parts: Sequence[Part]) -> tuple[int, ...] | None:
        """One sample's extents, where they are told."""
        given = self.config.get("input_shape")
        if given is not None:
            return as_shape(given)
        first = next((part for part in parts if part.placed), None)
        if first is None:
            return None
        kind, own = first.placed[0].kind, self._own(first.placed[0])
        reads = reads_of(kind, own)
        if kind in ("dense", "batch_norm", "layer_norm", "rms_norm") and reads is not None:
            return (reads,)
        time = first_of(self.config, "max_position_embeddings", "n_positions", "max_time")
        tables = [self._own(part.placed[0])["weight"] for part in parts if _is_table(part)]
        time = tables[0][0] if tables else time
        if kind == "embedding" and time is not None:
            return (int(time),)
        extents = {"embedding": "(time,)", "rnn": f"(time, {reads})", "lstm": f"(time, {reads})"}
        wanted = extents.get(kind, f"({reads}, ...)")
        self.ask("network", f"what comes in has the shape {wanted}: say input_shape")
        return None


_RECURRENT_NAMES = r"(weight|bias)_(ih|hh)_l\d+(_reverse)?"
_PARAMETER = re.compile(rf"weight|bias|running_mean|running_var|centroids|{_RECURRENT_NAMES}")
_NORM = re.compile(r"norm|(^|[._])ln|_ln", re.I)
_FEW = 12
"""Of more layers than these not every order is tried."""
_ACTIVATED = ("dense", *CONVOLUTIONS, *(kind.replace("conv", "conv_transpose") for kind in CONVOLUTIONS))
_WITHOUT = frozenset(
    kind
    for kind in FAMILY.kinds
    if re.search("pool|padding|softmax|dropout|activation|flatten|reshape|permute|max$|sinus", kind)
)


def _is_table(part: Part) -> bool:
    return any(layer.kind == "positional_embedding" for layer in part.layers)
