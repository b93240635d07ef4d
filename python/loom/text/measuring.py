"""How well a model foretells a text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from loom._settings.checks import whole
from loom.errors import ConfigError
from loom.text.sampling import log_probabilities
from loom.text.scores import as_scores, makes_probabilities
from loom.text.sessions import PIECE
from loom.text.tokens import check_known, read_tokens

if TYPE_CHECKING:
    from loom.text.model import LanguageModel

__all__ = ["perplexity"]


def perplexity(
    model: LanguageModel,
    text: str | Sequence[int],
    *,
    window: int | None = None,
    stride: int | None = None,
) -> float:
    """Returns how many tokens a model wavers between, on average, at each place of a text.

    It is exp of the mean of -log p over all tokens but the first, each given those before it. A text longer
    than a window is read in several, which overlap: each tells of the tokens that the one before has not
    reached.

    Args:
        model: The model.
        text: The text, or its tokens.
        window: The most tokens that are read together; the model's capacity where None.
        stride: By how many tokens a window is behind the one before; half a window where None. Less gives
            each token more before it, and takes longer.

    Raises:
        ConfigError: The model is no language model; the text has less than two tokens, or one that the
            network does not know; or a setting is out of range.
    """
    if not hasattr(model, "tokens_behind"):
        raise ConfigError(
            "perplexity: expected a loom.text.LanguageModel, which loom.text.load(path) returns, got "
            f"{type(model).__name__}"
        )
    tokens = model.encode(text) if isinstance(text, str) else read_tokens(text)
    longest = model.capacity if window is None else window
    longest = whole("perplexity", "window", longest, least=2, most=model.capacity)
    step = whole("perplexity", "stride", max(1, longest // 2) if stride is None else stride, least=1)
    if step >= longest:
        raise ConfigError(f"perplexity: stride must be below the window of {longest} tokens, got {step}")
    if len(tokens) < 2:
        raise ConfigError(f"perplexity: a text of {len(tokens)} tokens has none to foretell")
    with model.lock:
        check_known("the text", tokens, model.network.output_shape[-1])
        probable = makes_probabilities(model.network)
        session = model.network.session(longest, cache_dtype=model.cache_dtype)
    sums: list[float] = []
    # Token 0 is foretold by nothing.
    reached, start = 1, 0
    while reached < len(tokens):
        stop = min(start + longest, len(tokens))
        with model.lock:
            session.reset()
        for begin in range(start, stop - 1, PIECE):
            piece = tokens[begin : min(begin + PIECE, stop - 1)]
            with model.lock:
                rows = session(np.asarray([piece]))[0]
            rows = as_scores(rows) if probable else rows
            for place, scores in enumerate(rows, begin + 1):
                if place >= reached:
                    sums.append(float(log_probabilities(scores.astype(np.float64))[tokens[place]]))
        reached, start = stop, start + step
    return math.exp(-math.fsum(sums) / len(sums))
