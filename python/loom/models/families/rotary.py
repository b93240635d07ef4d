"""Rotary embeddings as config.json tells of them."""

from __future__ import annotations

import math
from typing import Any, Literal

from loom import nn
from loom.errors import ConfigError
from loom.models.families.family import Folder
from loom.models.families.settings import Settings

__all__ = ["longest", "rotary_of"]


def _rule(settings: Settings, kind: str | None, near: str | None = None) -> Settings:
    """Returns what is said of places: "rope_scaling", or "rope_parameters" of later folders.

    Args:
        settings: Those of config.json.
        kind: The type of the block, where types of blocks have parameters of their own.
        near: The setting that holds the base of blocks with a window, where it is another one.
    """
    found = settings.get("rope_parameters", settings.get("rope_scaling", {}))
    if isinstance(found, dict) and kind is not None and isinstance(found.get(kind), dict):
        found = found[kind]
    elif kind == "sliding_attention":
        # Blocks with a window see no further than in training.
        usual = found.get("rope_theta") if isinstance(found, dict) else None
        found = {"rope_theta": settings.get(near, 10_000.0) if near else usual}
    if not isinstance(found, dict):
        raise settings.unsupported("rope_scaling", found, ["null", "settings by name"])
    return Settings(found, f"{settings.where}: rope_scaling")


def _name(rule: Settings) -> Any:  # noqa: ANN401 - JSON
    return rule.get("rope_type", rule.get("type", "default"))


def longest(settings: Settings) -> int:
    """Returns the most steps that places are made for."""
    most = settings.whole("max_position_embeddings", 2048)
    rule = _rule(settings, None)
    return int(most * rule.real("factor", 1.0)) if _name(rule) == "dynamic" else most


def rotary_of(
    folder: Folder,
    head_dim: int,
    base: str = "rope_theta",
    share: str = "partial_rotary_factor",
    kind: str | None = None,
    *,
    near: str | None = None,
    usual_base: float = 10_000.0,
    usual_share: float = 1.0,
    layout: Literal["interleaved", "half_split"] = "half_split",
) -> nn.Rotary:
    """Returns the rotary embedding of a model.

    Args:
        folder: What config.json says.
        head_dim: Extent of a head.
        base: The setting that holds the base.
        share: The setting that holds the share of a head that turns.
        kind: The type of the block, where types of blocks have settings of their own.
        near: The setting that holds the base of blocks with a window, where it is another one.
        usual_base: The base where config.json does not say one.
        usual_share: The share of a head that turns where config.json does not say one.
        layout: Which elements turn together.
    """
    settings = folder.settings
    rule = _rule(settings, kind, near)
    part = rule.real("partial_rotary_factor", settings.real(share, usual_share))
    if not 0 <= part <= 1:
        raise ConfigError(
            f"{settings.where}: the share of a head that turns must be between 0 and 1, got {part}"
        )
    turning = int(head_dim * part)
    chosen: dict[str, Any] = {
        "base": rule.real("rope_theta", settings.real(base, usual_base)),
        "layout": layout,
    }
    if turning != head_dim:
        chosen["dim"] = turning
    makers = {
        "default": _default,
        "linear": _linear,
        "dynamic": _dynamic,
        "yarn": _yarn,
        "longrope": _long,
        "su": _long,
        "llama3": _llama3,
    }
    name = _name(rule)
    if not isinstance(name, str) or name not in makers:
        raise rule.unsupported("rope_type", name, sorted(makers))
    return nn.Rotary(**chosen, **makers[name](folder, rule))


def _default(folder: Folder, rule: Settings) -> dict[str, Any]:
    return {}


def _linear(folder: Folder, rule: Settings) -> dict[str, Any]:
    return {"scaling": rule.real("factor")}


def _dynamic(folder: Folder, rule: Settings) -> dict[str, Any]:
    """Up to the length of training nothing changes; beyond it rates are those of the network's length."""
    original = folder.settings.whole("max_position_embeddings", 2048)
    if folder.length is None or folder.length <= original:
        return {}
    return {"scaling": rule.real("factor"), "rule": nn.DynamicRule(original, folder.length)}


def _yarn(folder: Folder, rule: Settings) -> dict[str, Any]:
    factor = rule.real("factor")
    known = rule.whole("original_max_position_embeddings", folder.settings.whole("max_position_embeddings"))
    attention = rule.real("attention_factor") if "attention_factor" in rule else None
    if attention is None and rule.get("mscale") and rule.get("mscale_all_dim"):
        attention = _growth(factor, rule.real("mscale")) / _growth(factor, rule.real("mscale_all_dim"))
    made = nn.YarnRule(
        known,
        beta_fast=rule.real("beta_fast", 32.0),
        beta_slow=rule.real("beta_slow", 1.0),
        attention_factor=attention,
        whole_pairs=rule.flag("truncate", True),
    )
    return {"scaling": factor, "rule": made}


def _growth(factor: float, scale: float) -> float:
    return 0.1 * scale * math.log(factor) + 1.0 if factor > 1.0 else 1.0


def _long(folder: Folder, rule: Settings) -> dict[str, Any]:
    """The factors are those of the network's length: short up to that of training, long beyond it."""
    settings = folder.settings
    most = settings.whole("max_position_embeddings")
    if "original_max_position_embeddings" in settings:
        known = settings.whole("original_max_position_embeddings")
        factor = most / known
    else:
        known = rule.whole("original_max_position_embeddings", most)
        factor = rule.real("factor", most / known)
    name = "long_factor" if (folder.length or most) > known else "short_factor"
    factors = rule.get(name)
    if not isinstance(factors, list) or not factors:
        raise rule.unsupported(name, factors, ["a list of numbers"])
    attention = rule.real("attention_factor") if "attention_factor" in rule else None
    return {"scaling": factor, "rule": nn.LongRopeRule(known, factors, attention_factor=attention)}


def _llama3(folder: Folder, rule: Settings) -> dict[str, Any]:
    made = nn.Llama3Rule(
        rule.real("original_max_position_embeddings"),
        low_factor=rule.real("low_freq_factor", 1.0),
        high_factor=rule.real("high_freq_factor", 4.0),
    )
    return {"scaling": rule.real("factor"), "rule": made}
