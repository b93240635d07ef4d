"""Models and scalers of scikit-learn."""

from __future__ import annotations

import numpy as np

from loom import nn
from loom.models.onnx.importing.graph import Graph, Made, Node, Unsupported
from loom.models.onnx.importing.operators.registry import reads
from loom.models.onnx.importing.steps import affine, dense

__all__ = ["linear", "normalizer", "scaler"]


@reads("Scaler")
def scaler(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """Scikit-learn's scalers."""
    offset, scale = (np.asarray(node.attributes[name], np.float32) for name in ("offset", "scale"))
    return affine(shape, scale, -offset * scale)


@reads("Normalizer")
def normalizer(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """Nothing, where probabilities sum to one already."""
    source = graph.producer.get(node.inputs[0])
    settings = {} if source is None else source.attributes
    after = settings.get("post_transform")
    numbers = np.asarray(settings.get("coefficients", []))
    halves = np.split(numbers, 2) if after == b"LOGISTIC" and numbers.size % 2 == 0 else []
    two = len(halves) == 2 and np.allclose(halves[0], -halves[1])
    if node.attributes.get("norm") != b"L1" or not (after == b"SOFTMAX" or two):
        raise Unsupported(node, "loom has no layer for it")
    return []


@reads("LinearRegressor", "LinearClassifier")
def linear(graph: Graph, node: Node, shape: tuple[int, ...]) -> list[Made]:
    """Scikit-learn's linear models."""
    weight = np.asarray(node.attributes["coefficients"], np.float32).reshape(-1, shape[-1])
    bias = np.asarray(node.attributes.get("intercepts", [0.0] * len(weight)), np.float32)
    after = node.attributes.get("post_transform", b"NONE").decode()
    functions: dict[str, list[Made]] = {
        "NONE": [],
        "LOGISTIC": [Made(nn.Activation("sigmoid"))],
        "SOFTMAX": [Made(nn.Softmax())],
    }
    if after not in functions:
        raise Unsupported(node, f"post_transform {after} for {len(weight)} scores is not read")
    return [dense(weight, bias), *functions[after]]
