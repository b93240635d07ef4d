"""Settings that cases share."""

# ruff: noqa: C408 - settings are named as the reference names them

from __future__ import annotations

from typing import Any

__all__ = ["ENCODER", "HEADS", "LLAMA", "having"]

LLAMA = dict(
    vocab_size=31, hidden_size=16, intermediate_size=24, num_hidden_layers=2, max_position_embeddings=64
)
HEADS = [
    dict(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False),
    dict(num_attention_heads=3, num_key_value_heads=3, tie_word_embeddings=True, hidden_size=18),
    dict(
        num_attention_heads=6,
        num_key_value_heads=1,
        tie_word_embeddings=False,
        intermediate_size=37,
        hidden_size=24,
    ),
]

ENCODER = dict(
    vocab_size=31,
    hidden_size=16,
    intermediate_size=23,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=32,
)


def having(**added: Any) -> list[dict[str, Any]]:
    """Returns the usual configurations of heads, with more settings."""
    return [{**each, **added} for each in HEADS]
