"""Operators of one value, each as layers: a file for what is alike, whose functions enter themselves."""

from __future__ import annotations

from loom.models.onnx.importing.operators import (
    elementwise,
    norms,
    products,
    reductions,
    resizing,
    scikit_learn,
    windows,
)
from loom.models.onnx.importing.operators.registry import CONVERTERS, convert
from loom.models.onnx.importing.operators.windows import not_negative

__all__ = [
    "CONVERTERS",
    "convert",
    "elementwise",
    "norms",
    "not_negative",
    "products",
    "reductions",
    "resizing",
    "scikit_learn",
    "windows",
]
