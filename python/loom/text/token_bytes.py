"""The bytes that each token stands for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["TokenBytes"]

_MARK = "\x02"

_BROKEN = "\ufffd".encode()
"""What stands for bytes that are no character."""

_JOINING = {"Sequence", "ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Replace", "Strip"}
"""Decoders that put tokens one behind the other, as they are."""


class TokenBytes:
    """Says of single tokens what text they are, where text as a whole does not say which token gave what.

    Args:
        tokenizer: Whose tokens they are.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        decoder = tokenizer.decoder
        held = json.loads(decoder.__getstate__()) if decoder is not None else {}
        kinds = {held.get("type"), *(each.get("type") for each in _parts(held))}
        self.apart = "no decoder" if decoder is None else ", ".join(sorted(map(str, kinds - _JOINING)))
        """What puts something between tokens, or changes them, as their text is made; empty where nothing."""
        self._merged_bytes = "ByteLevel" in kinds
        self._fallback = "ByteFallback" in kinds
        self._spaces = any("\u2581" in json.dumps(each, ensure_ascii=False) for each in (held, *_parts(held)))
        added = tokenizer.get_added_tokens_decoder()
        self._added = {number: str(token.content) for number, token in added.items()}
        self._special = {number for number, token in added.items() if token.special}
        named = {
            byte: tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(256 if self._fallback else 0)
        }
        self._singles = {token: byte for byte, token in named.items() if token not in (None, *self._added)}
        mark = [named.get(byte) for byte in _BROKEN]
        self._mark = [token for token in mark if token is not None and token in self._singles]

    def of(self, token: int) -> bytes:
        """Returns the bytes of a token; none for one that the tokenizer does not know."""
        if token in self._added:
            return self._added[token].encode()
        text = self._tokenizer.id_to_token(token)
        if text is None:
            return b""
        if self._merged_bytes:
            alphabet = _alphabet()
            if all(each in alphabet for each in text):
                return bytes(alphabet[each] for each in text)
        if self._fallback and len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
            return bytes.fromhex(text[3:5])
        return str(text.replace("\u2581", " ") if self._spaces else text).encode()

    def text(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """Returns the text of tokens; more of them change nothing but a last character that is not yet whole.

        Bytes that are no part of a character are marks, U+FFFD, each by itself, as SentencePiece has it.
        Hugging Face's library would make marks of all single bytes beside such a one, whole characters, too.

        Args:
            tokens: Their ids.
            special: Whether special tokens are written, too.
        """
        if not tokens:
            return ""
        readable = list(tokens)
        if len(self._mark) == len(_BROKEN) and not self._singles.keys().isdisjoint(readable):
            readable = self._marked(readable, special=special)
        return str(self._tokenizer.decode(readable, skip_special_tokens=not special))

    def _marked(self, tokens: Sequence[int], *, special: bool) -> list[int]:
        """Returns tokens with a whole mark, of three bytes, in place of each byte that is no character's."""
        found: list[int] = []
        run: list[int] = []
        held = bytearray()

        def close() -> None:
            for begin, end in _characters(bytes(held)):
                found.extend(run[begin:end] if end > begin else self._mark)
            run.clear()
            held.clear()

        for token in tokens:
            byte = self._singles.get(token)
            if byte is not None:
                run.append(token)
                held.append(byte)
            elif special or not self._is_silent(token):
                close()
                found.append(token)
        close()
        return found

    def _is_silent(self, token: int) -> bool:
        """Whether a token has no text: a special one, or one that the tokenizer does not know."""
        return token in self._special or self._tokenizer.id_to_token(token) is None

    def behind(self, text: str) -> list[int] | None:
        """Returns the tokens of a text that goes on from other text; None where none say it as it is.

        Tokenizers may put a space before a text, which is none of it where other text is before.

        Args:
            text: The text.
        """
        raw = text.encode()
        # As it is, or else behind a character that no token is merged with.
        for before, most in (("", 0), (_MARK, 4)):
            ids = list(self._tokenizer.encode(before + text, add_special_tokens=False).ids)
            for begin in range(bool(before), min(len(ids), most) + 1):
                if b"".join(map(self.of, ids[begin:])) == raw:
                    return ids[begin:]
        return None


def _characters(held: bytes) -> Iterator[tuple[int, int]]:
    """Yields where bytes have characters; an empty place for each byte that is no part of one."""
    begin = 0
    while begin < len(held):
        try:
            held[begin:].decode()
            end = len(held)
        except UnicodeDecodeError as error:
            end = begin + error.start
        if end > begin:
            yield begin, end
        if end < len(held):
            yield end, end
            end += 1
        begin = end


def _parts(held: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the decoders of which a decoder consists."""
    parts = held.get("decoders")
    return parts if isinstance(parts, list) else []


@cache
def _alphabet() -> dict[str, int]:
    """Returns the bytes by the characters that GPT-2 writes for them."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + place): byte for place, byte in enumerate(others)}
