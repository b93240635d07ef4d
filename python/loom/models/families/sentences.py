"""Sentence encoders: what modules.json says follows a transformer."""

from __future__ import annotations

from loom import nn
from loom.models.families.family import Folder
from loom.models.families.pieces import Piece, plain
from loom.models.families.settings import Settings

__all__ = ["classes", "pooling", "usual_steps"]

_STEPS = {
    "pooling_mode_cls_token": "first",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}
_MODES = {"cls": "first", "mean": "mean", "lasttoken": "last"}


def classes(settings: Settings) -> int:
    """Returns how many classes a classifier tells apart."""
    labels = settings.get("id2label", {})
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
    settings = folder.settings
    pieces: list[Piece] = []
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise settings.unsupported("modules.json", modules, ["a list of modules"])
    for module in modules:
        kind = str(module.get("type", "")).rsplit(".", 1)[-1]
        if kind == "Pooling":
            pieces.append(_pool(folder, f"{module.get('path', '')}/config.json"))
        elif kind == "Normalize":
            pieces.append(plain(nn.L2Norm()))
        elif kind != "Transformer":
            raise settings.unsupported("modules.json", kind, ["Transformer", "Pooling", "Normalize"])
    return pieces


def _pool(folder: Folder, path: str) -> Piece:
    settings = Settings(folder.modules(path) or {}, f"{folder.settings.where}: {path}")
    if "pooling_mode" in settings:
        return plain(nn.SequencePool(settings.one_of("pooling_mode", _MODES, "mean")))
    chosen = [name for name in settings.values if name.startswith("pooling_mode") and settings.get(name)]
    if len(chosen) != 1 or chosen[0] not in _STEPS:
        raise settings.unsupported("pooling_mode", chosen, [f"one of {', '.join(_STEPS)}"])
    return plain(nn.SequencePool(_STEPS[chosen[0]]))
