"""StarCoder 2: layer norms, two Dense layers, biases, a window."""

from __future__ import annotations

from collections.abc import Iterable

from loom.models.families.decoder import Decoder
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece, layer_norm

__all__ = ["STARCODER2"]


def _compose(folder: Folder) -> Composition:
    decoder = Decoder(folder, epsilons="norm_epsilon", usual_epsilon=1e-5, normalize=layer_norm)
    rotary, windows = decoder.rotary(), decoder.windows()
    bias = folder.settings.flag("use_bias", True)

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(f"{at}.self_attn", rotary=rotary, window=windows[place], bias=bias)
        layers = decoder.two_layers((f"{at}.mlp.c_fc", f"{at}.mlp.c_proj"), "gelu_pytorch_tanh", bias)
        return decoder.block(at, attention, layers)

    return decoder.model(block, tied=True)


STARCODER2 = Family("StarCoder 2", ("starcoder2",), _compose, base=("model.",))
