"""What stands between text and tokens: the tokenizer, its special tokens, how a chat is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from loom.text.templates import ChatTemplate

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["Vocabulary"]


@dataclass(frozen=True)
class Vocabulary:
    """What a model's files say of its text.

    Args:
        tokenizer: From text to tokens and back, of Hugging Face's library.
        end: Tokens that end an answer.
        special: The texts of special tokens by their names, such as "bos_token", as templates ask for them.
        pad: The token that fills up shorter texts; None where there is none.
        template: How a chat is written; None where the files do not say.
        sampling: The settings of `Sampling` that the files recommend.
    """

    tokenizer: Tokenizer
    end: frozenset[int] = frozenset()
    special: Mapping[str, str] = field(default_factory=dict)
    pad: int | None = None
    template: ChatTemplate | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
