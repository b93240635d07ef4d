"""EXAONE 4: norms behind and of heads; where some blocks have a window, the others have no places."""

from __future__ import annotations

from collections.abc import Iterable

from loom.models.families.decoder import Decoder
from loom.models.families.family import Composition, Family, Folder
from loom.models.families.pieces import Piece

__all__ = ["EXAONE4"]


def _compose(folder: Folder) -> Composition:
    decoder = Decoder(folder, usual_epsilon=1e-5)
    settings = folder.settings
    rotary = decoder.rotary()
    windows = decoder.windows(lambda place: (place + 1) % settings.whole("sliding_window_pattern", 4) != 0)
    hybrid = "sliding_window" in settings

    def block(place: int, at: str) -> Iterable[Piece]:
        attention = decoder.attention(
            f"{at}.self_attn",
            rotary=rotary if windows[place] is not None or not hybrid else None,
            window=windows[place],
            norms=True,
        )
        return decoder.behind(at, attention, decoder.feed_forward(f"{at}.mlp", bias=False))

    return decoder.model(block)


EXAONE4 = Family("EXAONE 4", ("exaone4",), _compose, base=("model.",))
