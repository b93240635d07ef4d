"""Layers that only several of PyTorch's together tell: gated ones, tied heads, last steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loom.models.branches import Row

__all__ = ["settled"]


def settled(row: Row, *, inner: bool = False) -> Row:
    """A row, and those in it, without the marks that only several layers together can settle.

    Recurrent layers learn whether all of their steps are wanted, products become gated layers, and a head
    whose weights are an embedding's is tied to it.
    """
    made: Row = []
    tables: dict[int, int] = {}
    for layer in row:
        layer = dict(layer)
        if isinstance(layer.get("layers"), list):
            layer["layers"] = settled(layer["layers"], inner=True)
        if "branches" in layer:
            layer["branches"] = [settled(branch, inner=True) for branch in layer["branches"]]
        tensor = layer.pop("~tensor", None)
        if layer.get("~") == "last":
            made[-1] = {**made[-1], "return_sequences": False}
        elif layer.get("combine") == "multiply" and (silu := _silu(layer["branches"])):
            made.append(silu)
        elif (
            made and made[-1].get("combine") == "multiply" and (gated := _gated(made[-1]["branches"], layer))
        ):
            made[-1] = gated
        elif layer["type"] == "dense" and tensor in tables and "bias" not in layer:
            head = {
                "type": "tied_head",
                "vocabulary": len(layer["weight"]),
                "tied_to": [0, 0, 0, tables[tensor]],
            }
            made.append(head)
        else:
            # Heads name the place of an embedding in its cell.
            if layer["type"] == "embedding" and not inner:
                tables[tensor] = len(made)
            made.append(layer)
    return made


def _silu(branches: Sequence[Row]) -> dict[str, Any] | None:
    """The activation that a value times its own logistic function is."""
    if sorted(map(len, branches)) != [0, 1] or len(branches) != 2:
        return None
    (only,) = (branch[0] for branch in branches if branch)
    return {"type": "activation", "function": "silu"} if only.get("function") == "sigmoid" else None


def _gated(branches: Sequence[Row], down: dict[str, Any]) -> dict[str, Any] | None:
    """The gated layer that a product of two branches and the Dense layer behind it are; None for others."""
    gate, up = sorted(branches, key=len, reverse=True)[:2]
    kinds = [[layer["type"] for layer in row] for row in (gate, up, [down])]
    if len(branches) != 2 or kinds != [["dense", "activation"], ["dense"], ["dense"]]:
        return None
    parts = {"gate": gate[0], "up": up[0], "down": down}
    if len({"bias" in part for part in parts.values()}) > 1:
        return None
    held = {
        f"{name}_{what}": part[what]
        for name, part in parts.items()
        for what in ("weight", "bias")
        if what in part
    }
    return {"type": "swiglu", "activation": gate[1]["function"], **held}
