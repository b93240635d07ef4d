"""Padding of sequences, which Keras hands on beside values, as layers that leave it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from loom.models.branches import Join, Row
from loom.models.keras.training import Notes
from loom.models.keras.values import Mask, Unsupported, Value, refuse
from loom.models.pieces import Graph

__all__ = ["Masking"]

_CONSUMERS = ("SimpleRNN", "LSTM", "GRU", "Bidirectional", "MultiHeadAttention", "GlobalAveragePooling1D")
_HAND_ON = {
    *(
        "Dense",
        "Dropout",
        "Activation",
        "ReLU",
        "LeakyReLU",
        "ELU",
        "PReLU",
        "LayerNormalization",
        "Identity",
    ),
    *("RMSNormalization", "GaussianNoise", "GaussianDropout", "AlphaDropout", "ActivityRegularization"),
    *(
        "SpatialDropout1D",
        "TimeDistributed",
        "BatchNormalization",
        "GroupNormalization",
        "UnitNormalization",
        "Rescaling",
    ),
    *("Normalization", "Masking", "Embedding"),
}
"""Layers that make each step of the one at its place, and leave masks as they are."""
_MERGES = {"Multiply", "Maximum", "Minimum"}
"""Layers that leave out of several values those that are padding."""
Add = Callable[[str, Sequence[str], Row | Join, Value], None]


class Masking:
    """The masks in a graph.

    Args:
        graph: The graph.
        values: Its values.
        notes: What takes what is different from Keras in training.
    """

    def __init__(self, graph: Graph, values: dict[str, Value], notes: Notes) -> None:
        self._graph = graph
        self._values = values
        self._notes = notes
        self._told: dict[str, tuple[str, float] | None] = {}

    def told(self, key: str, kind: str, node: Mapping[str, Any], read: str) -> None:
        """Notes what tells padding: elements that are not one number, in any place of a step."""
        if kind == "NotEqual":
            numbers = [each for each in node["args"] if isinstance(each, int | float)]
            self._told[key] = (read, float(numbers[0])) if len(numbers) == 1 else None
        else:
            self._told[key] = self._told.get(read)

    def refuse_others(self, kind: str, masks: Sequence[str], read: str) -> None:
        """Refuses masks that are not what the value that is read has with it."""
        mask = self._values[read].mask
        if mask is not None and mask.row is None:
            # Of several masks, which is refused where it matters.
            return
        own = None if mask is None else (mask.origin, mask.value)
        refuse(
            any(own is None or self._told.get(key) != own for key in masks),
            f"a mask of its own that {kind} is called with: give sequences of their own lengths "
            "(docs/guides/any-length.md)",
        )

    def check(self, kind: str, reads: Sequence[str]) -> None:
        """Refuses what reads steps of padding that hold something else here."""
        for key in reads:
            mask = self._values[key].mask
            refuse(mask is not None and mask.differs, _differs(kind))
            refuse(
                mask is not None and kind in _MERGES,
                f"{kind} of masked values, of which Keras takes no padding: leave out mask_zero",
            )

    def brought_together(self, key: str, reads: Sequence[str]) -> None:
        """Notes that a value is of several, of which some are masked."""
        masks = [mask for mask in (self._values[other].mask for other in reads) if mask is not None]
        if masks:
            value = replace(self._values[key], mask=replace(masks[0], row=None))
            self._values[key] = value

    def layer(self, key: str, layer: Mapping[str, Any], read: str, row: Row, value: Value, add: Add) -> None:
        """Adds a layer, behind all that is computed of a masked value where it has to know the mask."""
        kind, config = layer["class_name"], layer["config"]
        mask = self._values[read].mask
        if kind == "Embedding" and config.get("mask_zero"):
            mask = Mask(read, 0.0, [])
        elif kind == "Masking":
            mask = Mask(read, float(config.get("mask_value", 0.0)), [])
        if mask is None:
            add(key, [read], row, value)
            return
        inside = None if mask.row is None else [*mask.row, *row]
        if kind in _CONSUMERS:
            refuse(
                inside is None,
                f"{kind} behind a mask of several values that were brought together: leave out mask_zero, or "
                "put it behind one Embedding alone",
            )
            assert inside is not None
            if kind == "GlobalAveragePooling1D":
                inside = [*(mask.row or []), *_averaged(row)]
            keeps = value.rank > 1
            # At padding Keras hands on the step before, and attention looks anywhere; here are zeros.
            differs = keeps and not _zeros(config)
            wrapped: Row = [{"type": "masked", "layers": inside, "value": mask.value}]
            made = replace(value, mask=replace(mask, row=inside, differs=differs) if keeps else None)
            add(key, [mask.origin], wrapped, made)
            return
        refuse(
            kind == "Softmax",
            f"{kind} behind mask_zero or Masking: build it without, and give sequences of their own lengths "
            "(docs/guides/any-length.md)",
        )
        if kind in _HAND_ON:
            refuse(mask.differs and kind == "GroupNormalization", _differs(kind))
            add(key, [read], row, replace(value, mask=replace(mask, row=inside)))
            return
        refuse(mask.differs, _differs(kind))
        add(key, [read], row, value)

    def leave(self, key: str) -> None:
        """Notes what is different in what a masked output tells."""
        mask = self._values[key].mask
        if mask is not None:
            differs = " and hold something else" if mask.differs else ""
            self._notes.add(
                f"a mask: steps of padding count in losses and metrics{differs}; give them a weight of 0",
                key.partition("#")[0],
            )


def _differs(kind: str) -> str:
    return (
        f"{kind} of what a recurrent layer or attention makes of padding, zeros here and something else in "
        "Keras: set zero_output_for_mask=True of recurrent layers before save, or leave out mask_zero"
    )


def _zeros(config: Mapping[str, Any]) -> bool:
    inner = config["layer"]["config"] if isinstance(config.get("layer"), Mapping) else config
    return bool(inner.get("zero_output_for_mask"))


def _averaged(row: Row) -> Row:
    """A mean over the steps that are no padding."""
    (pool,) = (layer for layer in row if layer["type"] != "permute")
    if pool["type"] != "global_avg_pool1d":
        raise Unsupported("keepdims of a GlobalAveragePooling1D behind mask_zero or Masking")
    return [
        {
            **{name: value for name, value in pool.items() if name != "type"},
            "type": "sequence_pool",
            "steps": "mean",
        }
    ]
