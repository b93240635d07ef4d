"""ONNX: networks to files that other runtimes run, and networks from such files."""

from loom.models.onnx.export import save_onnx

__all__ = ["save_onnx"]
