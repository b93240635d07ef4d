"""ONNX: networks to files that other runtimes run, and networks from such files."""

from loom.models.onnx.export import save_onnx
from loom.models.onnx.load import load

__all__ = ["load", "save_onnx"]
