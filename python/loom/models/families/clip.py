"""CLIP's two towers, each a network of its own."""

from __future__ import annotations

from loom import nn
from loom.models.families.decoder import ACTIVATIONS
from loom.models.families.encoder import Encoder, class_token, patches, places
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece, dense, embedding, layer_norm, plain
from loom.models.families.settings import Settings

__all__ = ["CLIP"]

_BLOCK = (
    *(f"self_attn.{name}_proj" for name in ("q", "k", "v", "out")),
    "mlp.fc1",
    "mlp.fc2",
    "layer_norm1",
    "layer_norm2",
)
_SLOPES = {"quick_gelu": 1.702}


def _compose(folder: Folder) -> Composition:
    towers = {"vision": _vision, "text": _text}
    part = folder.part
    alone = {"CLIPVisionModel": "vision", "CLIPTextModel": "text"}
    for beginning, tower in alone.items():
        if part is None and folder.architecture.startswith(beginning):
            part = tower
    if not isinstance(part, str) or part not in towers:
        raise folder.settings.unsupported("part", part, sorted(towers))
    settings = folder.settings
    inner = settings.inner(f"{part}_config") if f"{part}_config" in settings else settings
    composition = towers[part](folder, inner)
    other = "text" if part == "vision" else "vision"
    unused = (
        *composition.unused,
        "logit_scale",
        rf"{other}_(model|projection)\..*|{_PROJECTIONS[other]}\..*",
    )
    return Composition(composition.input_shape, composition.pieces, unused)


_PROJECTIONS = {"vision": "visual_projection", "text": "text_projection"}


def _encoder(settings: Settings, causal: bool) -> Encoder:
    slope = _SLOPES.get(settings.get("hidden_act", "quick_gelu"), 1.0)
    activation = "silu" if slope != 1.0 else settings.one_of("hidden_act", ACTIVATIONS, "gelu")
    return Encoder(
        settings.whole("hidden_size"),
        settings.whole("num_attention_heads"),
        settings.whole("intermediate_size"),
        activation,
        settings.real("layer_norm_eps", 1e-5),
        _BLOCK,
        norm_first=True,
        causal=causal,
        slope=slope,
    )


def _projected(folder: Folder, name: str) -> list[Piece]:
    """Returns what leads to the space that both towers share, where the folder has it."""
    weight = folder.shapes.get(f"{name}.weight")
    return [] if weight is None else [dense(name, weight[0], bias=False)]


def _vision(folder: Folder, settings: Settings) -> Composition:
    """Images to their vectors."""
    encoder = _encoder(settings, causal=False)
    image = folder.fixed_side(settings.whole("image_size", 224))
    colours = settings.whole("num_channels", 3)
    at = "vision_model.embeddings"
    size = settings.whole("patch_size", 32)
    steps, made = patches(f"{at}.patch_embedding", encoder.width, image, size, bias=False)
    pieces = [
        *made,
        class_token(f"{at}.class_embedding"),
        places(f"{at}.position_embedding.weight", steps + 1),
        layer_norm("vision_model.pre_layrnorm", encoder.epsilon),
        *encoder.blocks("vision_model.encoder.layers", settings.layers()),
        plain(nn.SequencePool("first")),
        layer_norm("vision_model.post_layernorm", encoder.epsilon),
        *_projected(folder, "visual_projection"),
    ]
    return Composition((colours, image, image), pieces, (rf"{at}\.position_ids",))


def _text(folder: Folder, settings: Settings) -> Composition:
    """Ids to a vector after each step; that of a text is where its end stands."""
    encoder = _encoder(settings, causal=True)
    most = settings.whole("max_position_embeddings", 77)
    at = "text_model.embeddings"
    pieces = [
        embedding(f"{at}.token_embedding", settings.whole("vocab_size"), encoder.width),
        places(f"{at}.position_embedding.weight", most),
        *encoder.blocks("text_model.encoder.layers", settings.layers()),
        layer_norm("text_model.final_layer_norm", encoder.epsilon),
        *_projected(folder, "text_projection"),
    ]
    return Composition((folder.steps(most),), pieces, (rf"{at}\.position_ids",))


CLIP = Family("CLIP", ("clip", "clip_vision_model", "clip_text_model"), _compose, parts=("vision", "text"))
