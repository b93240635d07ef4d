"""Files of tensors, by whatever program: opened lazily, and written one tensor at a time.

`loom.open_tensors` is the door in; `net.save_safetensors` and `loom.save_gguf` write networks, and the two
functions here whatever arrays there are.
"""

from loom.tensors.entry import TensorEntry, TensorFile
from loom.tensors.opening import open_tensors
from loom.tensors.writing import write_gguf, write_safetensors

__all__ = ["TensorEntry", "TensorFile", "open_tensors", "write_gguf", "write_safetensors"]
