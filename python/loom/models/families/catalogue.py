"""All families, by what config.json calls their models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loom._settings.suggestions import unknown
from loom.errors import SerializationError
from loom.models.families.family import Family
from loom.models.families.bert import BERT, DISTILBERT, ROBERTA
from loom.models.families.gpt2 import GPT2
from loom.models.families.gpt_neox import GPT_NEOX
from loom.models.families.llama import LLAMA
from loom.models.families.mistral import MISTRAL
from loom.models.families.olmo import OLMO2
from loom.models.families.phi import PHI3
from loom.models.families.qwen import QWEN2, QWEN3
from loom.models.families.smollm import SMOLLM3

__all__ = ["FAMILIES", "family_of"]

FAMILIES = (LLAMA, MISTRAL, QWEN2, QWEN3, SMOLLM3, PHI3, OLMO2, GPT2, GPT_NEOX, BERT, ROBERTA, DISTILBERT)
_BY_TYPE = {name: family for family in FAMILIES for name in family.model_types}


def family_of(config: Mapping[str, Any]) -> Family:
    """Returns the family of what config.json tells of.

    Args:
        config: Its settings by name.

    Returns:
        The family.

    Raises:
        SerializationError: It does not say the kind of model.
        ConfigError: There is no such family here.
    """
    name = config.get("model_type", config.get("architecture"))
    if name is None:
        raise SerializationError('config.json has no "model_type", which says what model it is')
    if not isinstance(name, str) or name not in _BY_TYPE:
        raise unknown("model type", name, _BY_TYPE)
    return _BY_TYPE[name]
