"""All families, by what config.json calls their models."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping

from loom._settings.suggestions import unknown
from loom.errors import FileError, SerializationError
from loom.models.families.bert import BERT, DISTILBERT, ELECTRA, MPNET, ROBERTA
from loom.models.families.bloom import BLOOM
from loom.models.families.clip import CLIP
from loom.models.families.cohere import COHERE, COHERE2
from loom.models.families.convnext import CONVNEXT
from loom.models.families.exaone import EXAONE4
from loom.models.families.falcon import FALCON
from loom.models.families.family import Family
from loom.models.families.gemma import GEMMA, GEMMA2, GEMMA3, VAULT_GEMMA
from loom.models.families.glm import GLM, GLM4
from loom.models.families.gpt2 import GPT2
from loom.models.families.gpt_neo import GPT_NEO, GPTJ
from loom.models.families.gpt_neox import GPT_NEOX
from loom.models.families.granite import GRANITE, GRANITE_MOE
from loom.models.families.llama import ARCEE, ERNIE, HELIUM, LLAMA, SEED_OSS
from loom.models.families.mistral import MISTRAL
from loom.models.families.mixtures import MIXTRAL, OLMOE, QWEN2_MOE, QWEN3_MOE
from loom.models.families.modernbert import MODERNBERT
from loom.models.families.nemotron import NEMOTRON
from loom.models.families.olmo import OLMO, OLMO2, OLMO3
from loom.models.families.opt import OPT
from loom.models.families.phi import PHI, PHI3
from loom.models.families.qwen import QWEN2, QWEN3
from loom.models.families.resnet import RESNET
from loom.models.families.smollm import SMOLLM3
from loom.models.families.stablelm import STABLELM
from loom.models.families.starcoder import STARCODER2
from loom.models.families.vit import VIT

__all__ = ["FAMILIES", "family_of"]

FAMILIES = (
    LLAMA,
    MISTRAL,
    QWEN2,
    QWEN3,
    SMOLLM3,
    PHI,
    PHI3,
    OLMO,
    OLMO2,
    OLMO3,
    GEMMA,
    GEMMA2,
    GEMMA3,
    VAULT_GEMMA,
    GRANITE,
    GRANITE_MOE,
    COHERE,
    COHERE2,
    GLM,
    GLM4,
    STABLELM,
    STARCODER2,
    ARCEE,
    ERNIE,
    HELIUM,
    SEED_OSS,
    NEMOTRON,
    EXAONE4,
    FALCON,
    MIXTRAL,
    OLMOE,
    QWEN2_MOE,
    QWEN3_MOE,
    GPT2,
    GPT_NEO,
    GPTJ,
    GPT_NEOX,
    BLOOM,
    OPT,
    BERT,
    ROBERTA,
    DISTILBERT,
    ELECTRA,
    MPNET,
    MODERNBERT,
    VIT,
    CLIP,
    RESNET,
    CONVNEXT,
)


def family_of(config: object, tensors: Container[str]) -> Family:
    """Returns the family of what config.json tells of.

    Args:
        config: Its settings by name; None where there is none, as torchvision writes none.
        tensors: The names of the tensors beside it.

    Returns:
        The family.

    Raises:
        FileError: There is no config.json, and tensors do not tell.
        SerializationError: It does not say the kind of model.
        ConfigError: There is no such family here.
    """
    if config is None:
        for family in FAMILIES:
            if family.known_by and all(name in tensors for name in family.known_by):
                return family
        raise FileError("the folder has no config.json, and its tensors are none that torchvision names")
    if not isinstance(config, Mapping):
        raise SerializationError("config.json must hold settings by name")
    name = config.get("model_type", config.get("architecture"))
    if name is None:
        raise SerializationError('config.json has no "model_type", which says what model it is')
    for family in FAMILIES:
        if any(re.fullmatch(pattern, str(name)) for pattern in family.model_types):
            return family
    raise unknown("model type", name, (name for family in FAMILIES for name in family.model_types))
