"""Sentence encoders: what modules.json says follows a transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loom import activations, nn
from loom.models.families.family import Folder
from loom.models.families.pieces import Piece, plain, weight_and_bias
from loom.models.families.settings import Settings

__all__ = ["classes", "kind_of", "modules_of", "path_of", "pooling", "usual_steps"]

_STEPS = {
    "pooling_mode_cls_token": "first",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}
_MODES = {"cls": "first", "mean": "mean", "lasttoken": "last"}
_FUNCTIONS = {
    "Identity": "linear",
    "Tanh": "tanh",
    "ReLU": "relu",
    "GELU": "gelu",
    "SiLU": "silu",
    "Sigmoid": "sigmoid",
}
"""loom's names of PyTorch's activations."""


def classes(settings: Settings) -> int:
    """Returns how many classes a classifier tells apart."""
    labels = settings.get("id2label", {})
    if not isinstance(labels, Mapping):
        raise settings.unsupported("id2label", labels, ["names by number"])
    return len(labels) or settings.whole("num_labels", 2)


def usual_steps(folder: Folder, most: int) -> int:
    """Returns how many steps a text has: as asked for, or as sentence encoders say, at most so many."""
    if folder.length:
        return folder.steps(most)
    settings = Settings(folder.modules("sentence_bert_config.json") or {}, folder.settings.where)
    return min(most, settings.whole("max_seq_length", most))


def pooling(folder: Folder) -> list[Piece] | None:
    """Returns what makes one vector of a text, or None where the folder is no sentence encoder's."""
    modules = folder.modules("modules.json")
    if modules is None:
        return None
    pieces: list[Piece] = []
    for module in modules_of(modules, folder.settings):
        kind, path = kind_of(module), path_of(module, folder.settings)
        if kind == "Pooling":
            pieces.append(_pool(folder, f"{path}/config.json"))
        elif kind == "Dense":
            pieces.append(_dense(folder, path))
        elif kind == "Normalize":
            pieces.append(plain(nn.L2Norm()))
        elif kind != "Transformer":
            known = ["Transformer", "Pooling", "Dense", "Normalize"]
            raise folder.settings.unsupported("modules.json", kind, known)
    return pieces


def modules_of(modules: object, settings: Settings) -> list[Mapping[str, Any]]:
    """Returns what modules.json lists, which must be settings by name."""
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise settings.unsupported("modules.json", modules, ["a list of modules"])
    return modules


def kind_of(module: Mapping[str, Any]) -> str:
    """Returns the class of a module, without where it stands."""
    return str(module.get("type", "")).rsplit(".", 1)[-1]


def path_of(module: Mapping[str, Any], settings: Settings) -> str:
    """Returns the name of a module's folder, "" for the folder itself; it leads nowhere else."""
    path = module.get("path", "")
    if not isinstance(path, str) or any(sign in path for sign in "/\\:") or path in (".", ".."):
        raise settings.unsupported("modules.json: path", path, ["the name of a folder inside"])
    return path


def _dense(folder: Folder, path: str) -> Piece:
    """Returns a Dense layer, whose tensors stand in a folder of its own."""
    settings = Settings(folder.modules(f"{path}/config.json") or {}, f"{folder.settings.where}: {path}")
    function = str(settings.get("activation_function", "Tanh")).rsplit(".", 1)[-1]
    if function not in _FUNCTIONS:
        raise settings.unsupported("activation_function", function, sorted(_FUNCTIONS))
    units, bias = settings.whole("out_features"), settings.flag("bias", True)
    layer = nn.Dense(units, bias=bias, activation=activations.resolve(_FUNCTIONS[function]))
    return Piece(layer, weight_and_bias(f"{path}.linear", bias, units))


def _pool(folder: Folder, path: str) -> Piece:
    settings = Settings(folder.modules(path) or {}, f"{folder.settings.where}: {path}")
    if "pooling_mode" in settings:
        return plain(nn.SequencePool(settings.one_of("pooling_mode", _MODES, "mean")))
    chosen = [name for name in settings.values if name.startswith("pooling_mode") and settings.get(name)]
    if len(chosen) != 1 or chosen[0] not in _STEPS:
        raise settings.unsupported("pooling_mode", chosen, [f"one of {', '.join(_STEPS)}"])
    return plain(nn.SequencePool(_STEPS[chosen[0]]))
