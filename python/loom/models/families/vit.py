"""Vision transformers, by the names of transformers and timm."""

from __future__ import annotations

from math import isqrt

from loom import nn
from loom.models.families.decoder import ACTIVATIONS, PROJECTIONS
from loom.models.families.encoder import Encoder, class_token, patches, places
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece, dense, layer_norm, plain, residual, weight_and_bias

__all__ = ["VIT"]


def _compose(folder: Folder) -> Composition:
    return _compose_timm(folder) if "pos_embed" in folder.shapes else _compose_hub(folder)


def _compose_hub(folder: Folder) -> Composition:
    settings = folder.settings
    width = settings.whole("hidden_size")
    epsilon = settings.real("layer_norm_eps", 1e-12)
    bias = settings.flag("qkv_bias", True)
    attention = "attention.attention"
    encoder = Encoder(
        width,
        settings.whole("num_attention_heads"),
        settings.whole("intermediate_size"),
        settings.one_of("hidden_act", ACTIVATIONS, "gelu"),
        epsilon,
        (
            *(f"{attention}.{name}" for name in PROJECTIONS[:3]),
            "attention.output.dense",
            "intermediate.dense",
            "output.dense",
            "layernorm_before",
            "layernorm_after",
        ),
        biases=(bias, bias, bias, True),
        norm_first=True,
    )
    image = folder.fixed_side(settings.whole("image_size", 224))
    colours = settings.whole("num_channels", 3)
    steps, made = patches(
        "embeddings.patch_embeddings.projection", width, image, settings.whole("patch_size", 16)
    )
    pieces = [
        *made,
        class_token("embeddings.cls_token"),
        places("embeddings.position_embeddings", steps + 1),
        *encoder.blocks("encoder.layer", settings.layers()),
        layer_norm("layernorm", epsilon),
    ]
    if folder.architecture.endswith("ForImageClassification"):
        classes = folder.shape("classifier.weight", 2)[0]
        pieces += [plain(nn.SequencePool("first")), dense("classifier", classes)]
    elif not (folder.architecture or "Model").endswith("Model"):
        known = ["ViTModel", "ViTForImageClassification"]
        raise settings.unsupported("architectures", folder.architecture, known)
    return Composition((colours, image, image), pieces, (r"pooler\..*", r"embeddings\.mask_token"))


def _compose_timm(folder: Folder) -> Composition:
    """The settings are those of the tensors; a head is 64 wide in all models of timm's names."""
    width, colours, patch, _ = folder.shape("patch_embed.proj.weight", 4)
    steps = folder.shape("pos_embed", 3)[1]
    image = folder.fixed_side(patch * isqrt(steps - 1))
    heads = folder.settings.whole("num_heads", width // 64 or 1)
    _, made = patches("patch_embed.proj", width, image, patch)
    pieces = [*made, class_token("cls_token"), places("pos_embed", steps)]
    for place in range(folder.count("blocks.{}")):
        at = f"blocks.{place}"
        tensors = {f"output_{name}": source for name, source in weight_and_bias(f"{at}.attn.proj").items()}
        for third, projection in enumerate(PROJECTIONS[:3]):
            for name, source in weight_and_bias(f"{at}.attn.qkv").items():
                tensors[f"{projection}_{name}"] = source.part(third * width, (third + 1) * width)
        hidden = folder.shape(f"{at}.mlp.fc1.weight", 2)[0]
        grown, shrunk = dense(f"{at}.mlp.fc1", hidden, activation="gelu"), dense(f"{at}.mlp.fc2", width)
        pieces += [
            residual(layer_norm(f"{at}.norm1", 1e-6), Piece(nn.MultiHeadAttention(heads), tensors)),
            residual(layer_norm(f"{at}.norm2", 1e-6), grown, shrunk),
        ]
    pieces += [layer_norm("norm", 1e-6), plain(nn.SequencePool("first"))]
    if "head.weight" in folder.shapes:
        pieces.append(dense("head", folder.shape("head.weight", 2)[0]))
    return Composition((colours, image, image), pieces)


VIT = Family("ViT", ("vit", r"vit_(tiny|small|base|large)_patch\d+_\d+"), _compose, base=("vit.",))
