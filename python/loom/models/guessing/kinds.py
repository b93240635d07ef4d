"""Kinds of layers, by the names and shapes of their tensors, and how many features they read and make."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["CONVOLUTIONS", "EMBEDDING", "NORMS", "POSITIONS", "kinds_of", "makes_of", "reads_of"]

EMBEDDING = re.compile(r"emb|wte|wpe|vocab|^token", re.I)
POSITIONS = re.compile(r"wpe$|pos", re.I)
NORMS = ("batch_norm", "layer_norm", "rms_norm", "group_norm")
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
_RECURRENT = {4: "lstm", 3: "gru", 1: "rnn"}
_WEIGHTS = ("weight", "kernel", "gamma", "embeddings", "scale")


def kinds_of(name: str, shapes: Mapping[str, tuple[int, ...]], *, first: bool, last: bool) -> list[str]:
    """The kinds of layer that have tensors of such names and shapes.

    Args:
        name: What the tensors' names begin with.
        shapes: Their shapes by the rest of their names.
        first: Whether no other comes before.
        last: Whether none comes behind.
    """
    leaves = set(shapes)
    weight = next((shapes[leaf] for leaf in _WEIGHTS if leaf in shapes), ())
    hidden = next((shapes[leaf] for leaf in ("weight_hh_l0", "recurrent_kernel") if leaf in shapes), None)
    if hidden is not None:
        return [_RECURRENT[gates] for gates in (max(hidden) // min(hidden),) if gates in _RECURRENT]
    if {"running_mean", "moving_mean"} & leaves:
        return ["batch_norm"]
    if len(weight) == 1:
        if weight == (1,):
            return ["prelu"]
        if re.search(r"(^|\.)gn|group", name, re.I):
            return ["group_norm"]
        biased = {"bias", "beta"} & leaves
        return ["layer_norm"] if biased else ["rms_norm"]
    if len(weight) == 2:
        tall = weight[0] > 4 * weight[1] and not {"bias"} & leaves
        if POSITIONS.search(name) or "embeddings" in leaves or EMBEDDING.search(name):
            return ["positional_embedding" if POSITIONS.search(name) else "embedding"]
        if tall and not last and not first and "weight" in leaves:
            return ["embedding", "dense"]
        return ["embedding"] if tall and first and not last and "weight" in leaves else ["dense"]
    if len(weight) in (3, 4, 5):
        turned = re.search(r"transpose|deconv|upconv", name, re.I)
        return [f"{'conv_transpose' if turned else 'conv'}{len(weight) - 2}d"]
    return []


def reads_of(kind: str, own: Mapping[str, tuple[int, ...]]) -> int | None:
    """How many features or channels a layer reads."""
    shape = own.get("weight", own.get("weight_ih_l0", own.get("running_mean")))
    if shape is None or kind in ("embedding", "group_norm", "prelu", "positional_embedding"):
        return None
    if kind in ("batch_norm", "layer_norm", "rms_norm"):
        return shape[-1]
    if kind.startswith("conv_transpose"):
        return shape[0]
    return shape[1]


def makes_of(kind: str, own: Mapping[str, tuple[int, ...]]) -> int | None:
    """How many features or channels a layer makes; None where as many as it reads, or it is not told."""
    if kind in ("rnn", "lstm", "gru"):
        return own["weight_hh_l0"][1] * (2 if "weight_hh_l0_reverse" in own else 1)
    if "weight" not in own or kind in (*NORMS, "prelu", "positional_embedding"):
        return None
    return own["weight"][1 if kind == "embedding" or kind.startswith("conv_transpose") else 0]
