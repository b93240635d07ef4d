"""How byte-level tokenizers cut text before they merge bytes, by the names that GGUF files have for it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CUTS", "Cut"]

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BEHIND = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_BEHIND_PATHS = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_ANY_WORD = r"|[^\r\n\p{L}\p{N}]?\p{L}+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"

_LLAMA3 = _ENDINGS + _ANY_WORD + r"|\p{N}{1,3}" + _BEHIND
_QWEN2 = _ENDINGS + _ANY_WORD + r"|\p{N}" + _BEHIND
_TEKKEN = rf"{_BEFORE}{_UPPER}*{_LOWER}+|{_BEFORE}{_UPPER}+{_LOWER}*|\p{{N}}" + _BEHIND_PATHS
_GPT4O = (
    rf"{_BEFORE}{_UPPER}*{_LOWER}+{_ENDINGS}?|{_BEFORE}{_UPPER}+{_LOWER}*{_ENDINGS}?|\p{{N}}{{1,3}}"
    + _BEHIND_PATHS
)
_DEEPSEEK = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Cut:
    """How a tokenizer cuts.

    Args:
        patterns: Regular expressions, one after the other: each cuts what those before have left.
        whole: Whether a word that is a token itself is taken as it is, however merges would make it.
        begin: Whether texts begin with the begin token, where the file does not say.
        composed: Whether characters are composed first (Unicode's NFC).
    """

    patterns: tuple[str, ...]
    whole: bool = False
    begin: bool = False
    composed: bool = False


_OF_LLAMA3 = Cut((_LLAMA3,), whole=True, begin=True)
_OF_GPT2 = Cut((_GPT2,))
_OF_QWEN2 = Cut((_QWEN2,), composed=True)
_DIGITS_FIRST = Cut((r"\p{N}", _GPT2))
_OF_GPT4O = Cut((_GPT4O,))

CUTS = {
    # What llama.cpp does where its converter did not know.
    "default": Cut((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2"), _OF_LLAMA3),
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "jais", "gigachat", "exaone4", "trillion"), _OF_GPT2),
    "olmo": Cut((_GPT2,), composed=True),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "hunyuan"), _OF_QWEN2),
    "stablelm2": Cut((_QWEN2,)),
    **dict.fromkeys(("dbrx", "smaug-bpe", "chatglm-bpe", "glm4"), Cut((_LLAMA3,))),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"), _DIGITS_FIRST
    ),
    "tekken": Cut((_TEKKEN,), whole=True, begin=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2"), _OF_GPT4O),
    **dict.fromkeys(
        ("deepseek-v3", "hunyuan-dense"),
        Cut((r"\p{N}{1,3}", r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", _DEEPSEEK)),
    ),
}
"""How each tokenizer cuts, by `tokenizer.ggml.pre`."""
