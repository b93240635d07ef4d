"""What tests of ONNX share: small models, and ONNX's own evaluator."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import loom
from loom.models.onnx import load


def computed(model: Any, x: NDArray[Any]) -> NDArray[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(ReferenceEvaluator(model).run(None, {"input": x})[0])


def built(nodes: list[Any], tensors: list[Any] = [], shape: tuple[int, ...] = (3,), opset: int = 17) -> bytes:  # noqa: B006
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", *shape])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        tensors,
    )
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]).SerializeToString())


def reread(model: Any) -> loom.Network:
    return load(model.SerializeToString())
