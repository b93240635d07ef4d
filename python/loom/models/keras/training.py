"""What Keras says about training a layer: kept where networks have it, and else told in a warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from loom._typing import Precision
from loom.errors import ConfigError
from loom.models.branches import Row
from loom.models.keras.values import name_of
from loom.models.plain import rows_in
from loom.network import Network

__all__ = ["FIXED", "Notes", "bare", "keep", "marked"]

FIXED = "~fixed"
"""The entry of a layer whose parameters are constants in Keras, and are not trained here."""
_MARK = "~of"
_LOST = {
    "GaussianDropout": "its noise, GaussianDropout, which no layer of loom makes",
    "AlphaDropout": "its noise, AlphaDropout, which no layer of loom makes",
    "ActivityRegularization": "its penalty on what layers make",
}
_DIFFERENT = ("BatchNormalization", "Dropout", "SpatialDropout1D", "SpatialDropout2D", "GaussianNoise")
"""Layers that work otherwise in training."""
_STEPS = {"kernel": "weight_ih_l0", "recurrent": "weight_hh_l0", "bias": "bias_ih_l0"}
_PARTS = ("query", "key", "value", "output")


class _Mark(NamedTuple):
    """Where a layer comes from.

    Args:
        name: What Keras calls the layer, with the models around it.
        part: Which of the layers that this became.
        trainable: Whether Keras trains it.
        penalties: What Keras adds to the loss for each kind of its weights.
    """

    name: str
    part: int
    trainable: bool
    penalties: Mapping[str, Mapping[str, float]]


class Notes:
    """What has no place in a network, by what it is, each with the layers that have it."""

    def __init__(self) -> None:
        self._places: dict[str, list[str]] = {}

    def add(self, what: str, name: str) -> None:
        """Notes something of a layer."""
        names = self._places.setdefault(what, [])
        if name not in names:
            names.append(name)

    def lines(self) -> list[str]:
        """Returns a line for each."""
        return [f"{what} ({_listed(names)})" for what, names in self._places.items()]


def marked(
    row: Row, layer: Mapping[str, Any], name: str, *, trainable: bool, inference: bool, notes: Notes
) -> Row:
    """Returns a layer's row with marks by which `keep` finds it again, and notes what has no place there.

    Args:
        row: What the layer became.
        layer: The layer, as JSON.
        name: What it is called, with the models around it.
        trainable: Whether the models around it are trained.
        inference: Whether it is called to work as in inference while others train.
        notes: What takes the rest.
    """
    config, kind = layer["config"], layer["class_name"]
    trainable = trainable and bool(config.get("trainable", True))
    penalties: dict[str, Mapping[str, float]] = {}
    for part, settings in _inner(config):
        trainable = trainable and bool(settings.get("trainable", True))
        _note(settings, f"{name}{part}", penalties, notes)
    if kind in _LOST:
        notes.add(_LOST[kind], name)
    if inference and kind in _DIFFERENT:
        notes.add("that it is called with training=False, as in inference", name)
    if kind == "BatchNormalization" and not trainable:
        notes.add(
            "that it works as in inference while its weights are frozen; here it goes on by the batch "
            '(docs/from/keras.md, "What is different")',
            name,
        )
    return [{**made, _MARK: _Mark(name, part, trainable, penalties)} for part, made in enumerate(row)]


def _inner(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A layer's settings, and those of the layers that it wraps."""
    yield "", config
    for key in ("layer", "backward_layer"):
        wrapped = config.get(key)
        if isinstance(wrapped, Mapping):
            yield f"/{key}", wrapped["config"]


def _note(
    config: Mapping[str, Any], name: str, penalties: dict[str, Mapping[str, float]], notes: Notes
) -> None:
    for key, value in config.items():
        what, _, end = key.rpartition("_")
        if end == "regularizer" and value is not None:
            numbers = _penalty(value)
            if what == "activity":
                notes.add("a penalty on what it makes", name)
            elif numbers is None:
                notes.add(f"{key} {name_of(value)}: training takes l1 and l2 (regularizers=)", name)
            elif numbers:
                penalties[what] = numbers
        elif end == "constraint" and value is not None:
            told = name_of(value)
            instead = "; loom.MaxNorm is a callback of training" if told.lower() == "maxnorm" else ""
            notes.add(f"{key} {told}{instead}", name)
    for key in ("dropout", "recurrent_dropout"):
        if "recurrent_dropout" in config and config.get(key):
            notes.add(f"{key} {config[key]} of a recurrent layer: nn.Dropout before it is alike", name)
    if config.get("noise_shape") is not None and any(extent is not None for extent in config["noise_shape"]):
        notes.add(f"noise_shape {config['noise_shape']}: every element is drawn by itself", name)
    if config.get("stateful"):
        notes.add("that it carries its state from batch to batch (stateful)", name)


def _penalty(value: Any) -> dict[str, float] | None:  # noqa: ANN401 - of JSON
    """Factors of a penalty; None where it is none of absolute values and squares."""
    kind = name_of(value).lower()
    if kind not in ("l1", "l2", "l1l2", "l1_l2"):
        return None
    settings = value.get("config") if isinstance(value, Mapping) else None
    settings = settings if isinstance(settings, Mapping) else {kind: 0.01}
    return {name: float(settings[name]) for name in ("l1", "l2") if settings.get(name)}


def bare(row: Row) -> Row:
    """Returns layers without their marks, as `loom.import_model` reads them."""
    found: Row = []
    for layer in row:
        plain = {name: value for name, value in layer.items() if name not in (_MARK, FIXED)}
        for name in ("layers", "branches"):
            held = plain.get(name)
            if isinstance(held, list) and held:
                plain[name] = bare(held) if name == "layers" else [bare(branch) for branch in held]
        found.append(plain)
    return found


def keep(net: Network, rows: Sequence[Row], path: Path, notes: Notes) -> None:
    """Freezes what Keras does not train, and warns of what the network has not.

    Args:
        net: The network.
        rows: The layers of its cells, with marks.
        path: The model's file.
        notes: What is told besides.
    """
    places: dict[tuple[str, int], list[str]] = {}
    penalties: dict[str, Mapping[str, float]] = {}
    for column, row in enumerate(rows):
        for number, layer in enumerate(row):
            handle = net[0, 0, column, number]
            names, fixed = set(handle.parameters), set()
            for begin, inner in _all(layer, ""):
                mark = inner.get(_MARK)
                own = {name for name in names if name.startswith(begin)}
                if mark is None or not own:
                    continue
                where = f"{handle.path}.{begin}"
                places.setdefault((mark.name, mark.part), []).append(where.rstrip("."))
                if inner.get(FIXED) or not mark.trainable:
                    fixed |= own
                    continue
                if inner["type"] in ("rnn", "lstm") or inner.get("reset_after") is False:
                    # Keras has one bias where two stand here, which would both move.
                    fixed |= {name for name in own if "bias_hh_l" in name}
                for what, numbers in mark.penalties.items():
                    found = _penalised(what, inner["type"], mark.part, own, begin)
                    penalties.update({f"{handle.path}.{name}": numbers for name in found})
            if fixed and fixed == names:
                handle.trainable = False
            elif fixed:
                handle.freeze(*sorted(fixed))
    lines = notes.lines()
    if penalties:
        lines.append(f"penalties on weights, which training takes: regularizers={_short(penalties)}")
    shared = {f"{name}: {' and '.join(where)}" for (name, _), where in places.items() if len(where) > 1}
    if shared:
        lines.append(
            "layers that are called several times: each place has a copy of the weights, and training moves "
            f"them apart ({_listed(sorted(shared))})"
        )
    if lines:
        told = "\n".join(f"  {line}" for line in lines)
        warnings.warn(
            f"{path}: of training the network lacks what the Keras model says:\n{told}", stacklevel=5
        )


def _all(layer: Mapping[str, Any], begin: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The innermost layers that marks are on, with what names of their parameters begin with."""
    if _MARK in layer:
        yield begin, layer
        return
    for row, name in rows_in(layer):
        for number, inner in enumerate(row):
            yield from _all(inner, f"{begin}{name}{number}.")


def _penalised(what: str, kind: str, part: int, own: set[str], begin: str) -> list[str]:
    """The parameters that Keras has a penalty on."""
    if kind in ("rnn", "lstm", "gru"):
        names = [_STEPS.get(what, what), f"{_STEPS.get(what, what)}_reverse"]
    elif kind == "multi_head_attention":
        names = [f"{each}_{'bias' if what == 'bias' else 'weight'}" for each in _PARTS]
    elif (what, part) in (("depthwise", 1), ("pointwise", 0)):
        names = []
    else:
        names = ["bias" if what in ("bias", "beta") else "weight"]
    return [f"{begin}{name}" for name in names if f"{begin}{name}" in own]


def _short(penalties: Mapping[str, Mapping[str, float]]) -> str:
    first = dict(list(penalties.items())[:6])
    more = f", and {len(penalties) - len(first)} more" if len(penalties) > len(first) else ""
    return f"{first}{more}"


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{', '.join(names[:4])}{more}"


def precision_of(policies: Mapping[str, Sequence[str]], notes: Notes) -> Precision:
    """Returns the precision that layers' policies mean.

    Args:
        policies: The names of layers with weights, by the name of their policy.
        notes: What takes the rest.
    """
    wide = policies.get("float64", ())
    others = [name for policy, names in policies.items() if policy != "float64" for name in names]
    for policy, names in policies.items():
        if policy in ("float16", "bfloat16"):
            for name in names:
                notes.add(f"weights in {policy}, which are float32 here", name)
    if wide and others:
        for name in others:
            notes.add("that it is not of float64, as others are; the whole network is", name)
    if wide:
        return "float64"
    return "mixed" if any(policy.startswith("mixed_") for policy in policies) else "float32"


def policy_of(config: Mapping[str, Any]) -> str:
    """Returns what a layer's policy of types is called, such as "mixed_bfloat16"."""
    policy = config.get("dtype")
    if isinstance(policy, Mapping):
        held = policy.get("config")
        policy = held.get("name") if isinstance(held, Mapping) else None
    if policy is None:
        return "float32"
    if not isinstance(policy, str):
        raise ConfigError(f"a layer's dtype is {policy!r}, and no policy")
    return policy
