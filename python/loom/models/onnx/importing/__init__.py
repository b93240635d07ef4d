"""From an ONNX graph to a network: read, fold constants, find patterns, nest."""
