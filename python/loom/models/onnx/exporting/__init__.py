"""From a network to an ONNX graph: a function for each kind of layer."""
