"""The endings of files' names, which say what is in them."""

from __future__ import annotations

from os import PathLike, fspath

from loom.errors import ConfigError

__all__ = ["check_ending"]

_OTHERS = {
    ".onnx": "loom.save_onnx(net, path) writes ONNX",
    ".gguf": "loom.save_gguf(net, path) writes GGUF",
    ".safetensors": "net.save_safetensors(path) writes the weights in that format",
    ".json": "net.to_json() is the network without its weights",
    ".npz": "np.savez(path, **net.state_dict()) writes the weights so",
    ".pt": "torch.save(loom.to_torch(net), path) writes a module of PyTorch",
    ".pth": "torch.save(loom.to_torch(net), path) writes a module of PyTorch",
    ".keras": "Keras' files are read by loom.load, and not written",
    ".h5": "Keras' files are read by loom.load, and not written",
    ".hdf5": "Keras' files are read by loom.load, and not written",
    ".pkl": "pickle.dump(net, file) writes one",
    ".pickle": "pickle.dump(net, file) writes one",
    ".tflite": "loom.save_onnx(net, path) writes what other programs read",
}


def check_ending(where: str, path: object) -> None:
    """Refuses the name of another format for a file of loom's own.

    Args:
        where: Who was asked, for the message.
        path: The file's path.

    Raises:
        ConfigError: The path ends as files of another format do.
    """
    if not isinstance(path, (str, PathLike)):
        return
    name = fspath(path)
    ending = f".{name.rsplit('.', 1)[-1].lower()}" if isinstance(name, str) and "." in name else ""
    if ending in _OTHERS:
        raise ConfigError(
            f'{where} writes loom\'s own format, as in "model.loom", and {name!r:.200} is named as another; '
            f"{_OTHERS[ending]}"
        )
