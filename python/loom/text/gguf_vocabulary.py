"""What a GGUF file says of a model's text: its metadata becomes a tokenizer of Hugging Face's library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from loom.errors import ConfigError, SerializationError
from loom.extras import require
from loom.text.pre_tokenizers import CUTS
from loom.text.templates import ChatTemplate
from loom.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["has_vocabulary", "read_metadata"]

# llama.cpp's numbers of what a token is.
_NORMAL, _UNKNOWN, _CONTROL, _OF_USERS, _BYTE = 1, 2, 3, 4, 6

_SPACE = "\u2581"
"""What SentencePiece writes for a space."""

_ENDS = frozenset(
    (
        "<|eot_id|>",
        "<|im_end|>",
        "<|end|>",
        "<end_of_turn>",
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|eom_id|>",
        "<|return|>",
        "<EOT>",
        "_<EOT>",
        "<|eot|>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
    )
)
"""Control tokens that end an answer, whatever else the file says."""

_KINDS = ("llama", "gpt2")


def has_vocabulary(metadata: Mapping[str, Any]) -> bool:
    """Whether a file has a vocabulary, be it one that is read or not."""
    return metadata.get("tokenizer.ggml.model") not in (None, "no_vocab", "none")


def read_metadata(metadata: Mapping[str, Any]) -> Vocabulary:
    """Makes a vocabulary of a GGUF file's metadata.

    Args:
        metadata: The file's, by name.

    Returns:
        The vocabulary.

    Raises:
        ConfigError: The file has no vocabulary, or one of a kind that is not read; the message names it.
        SerializationError: What it says makes no sense.
        MissingExtraError: tokenizers or Jinja is not installed.
    """
    require("tokenizers", extra="text", purpose="text")
    held = _Held(metadata)
    tokenizer = _sentence_pieces(held) if held.kind == "llama" else _byte_level(held)
    held.finish(tokenizer)
    special = {
        f"{name}_token": held.tokens[number]
        for name in ("bos", "eos", "unknown", "padding")
        if (number := held.number(f"{name}_token_id")) is not None
    }
    for name, usual in (("unknown_token", "unk_token"), ("padding_token", "pad_token")):
        if name in special:
            special[usual] = special.pop(name)
    source = metadata.get("tokenizer.chat_template")
    return Vocabulary(
        tokenizer,
        held.ends(),
        special,
        held.number("padding_token_id"),
        ChatTemplate(source, special) if isinstance(source, str) else None,
    )


class _Held:
    """The metadata, looked at."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        kind = metadata.get("tokenizer.ggml.model")
        if not has_vocabulary(metadata):
            raise ConfigError(
                "the GGUF file has no vocabulary (tokenizer.ggml.model): give loom.text.LanguageModel one"
            )
        if kind not in _KINDS:
            raise ConfigError(
                f'the GGUF file\'s vocabulary is of the kind "{kind}" (tokenizer.ggml.model); '
                f"read are: {', '.join(_KINDS)}"
            )
        self.kind = str(kind)
        self.tokens = self._list("tokens", str)
        if not self.tokens:
            raise SerializationError("the GGUF file has no tokens (tokenizer.ggml.tokens)")
        self.kinds = self._list("token_type", int) or [_NORMAL] * len(self.tokens)
        if len(self.kinds) != len(self.tokens):
            raise SerializationError(
                f"the GGUF file has {len(self.tokens)} tokens, but {len(self.kinds)} types of tokens"
            )
        # A text may stand there twice; the first place counts, and the others have names that no text makes.
        self.places: dict[str, int] = {}
        for place, token in enumerate(self.tokens):
            self.places.setdefault(token, place)
        self.vocabulary = {
            token if self.places[token] == place else f"{token}\0{place}": place
            for place, token in enumerate(self.tokens)
        }

    def get(self, name: str) -> Any:  # noqa: ANN401 - of any kind
        """Returns a value; None where there is none."""
        return self._metadata.get(f"tokenizer.ggml.{name}")

    def number(self, name: str) -> int | None:
        """Returns a token's number; None where the file has none, or one that is none."""
        value = self.get(name)
        known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(self.tokens)
        return value if known else None

    def _list(self, name: str, kind: type) -> list[Any]:
        value = self.get(name)
        if value is None:
            return []
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise SerializationError(f"the GGUF file's tokenizer.ggml.{name} is no list")
        if not all(isinstance(item, kind) for item in value):
            raise SerializationError(
                f"the GGUF file's tokenizer.ggml.{name} holds something else than {kind.__name__}"
            )
        return list(value)

    def scores(self) -> list[float]:
        """Returns the tokens' scores."""
        scores = self._list("scores", float)
        if len(scores) != len(self.tokens):
            raise SerializationError(
                f"the GGUF file has {len(self.tokens)} tokens, but {len(scores)} scores of tokens"
            )
        return scores

    def merges(self) -> list[tuple[str, str]]:
        """Returns which pairs become one, the first ones first."""
        merges = []
        for merge in self._list("merges", str):
            # The first of the two may begin with a space, but has no other.
            place = merge.find(" ", 1)
            if place < 0:
                raise SerializationError(
                    f"the GGUF file's tokenizer.ggml.merges has {merge!r:.60}, which is no pair"
                )
            merges.append((merge[:place], merge[place + 1 :]))
        return merges

    def cut(self) -> Any:  # noqa: ANN401 - a Cut
        """Returns how text is cut before bytes are merged."""
        name = self.get("pre")
        if name is None:
            raise ConfigError(
                "the GGUF file does not say how its text is cut into words (tokenizer.ggml.pre), as those of "
                "old converters: convert the model anew"
            )
        if name not in CUTS:
            raise ConfigError(
                f'the GGUF file\'s text is cut as by "{name}" (tokenizer.ggml.pre); known: {", ".join(CUTS)}'
            )
        return CUTS[name]

    def ends(self) -> frozenset[int]:
        """Returns the tokens that end an answer."""
        named = {self.number(f"{name}_token_id") for name in ("eos", "eot", "eom")}
        by_text = {
            place
            for place, token in enumerate(self.tokens)
            if token in _ENDS and self.kinds[place] in (_CONTROL, _OF_USERS)
        }
        return frozenset(number for number in named | by_text if number is not None)

    def finish(self, tokenizer: Tokenizer) -> None:
        """Makes tokens known that text is first searched for, and those around a text."""
        from tokenizers import AddedToken, processors

        control = [place for place, kind in enumerate(self.kinds) if kind in (_CONTROL, _UNKNOWN)]
        of_users = [place for place, kind in enumerate(self.kinds) if kind == _OF_USERS]
        names = {place: token for token, place in self.vocabulary.items()}
        tokenizer.add_special_tokens(
            [
                AddedToken(names[at], rstrip=self._takes_spaces(at), normalized=False, special=True)
                for at in control
            ]
        )
        tokenizer.add_tokens([AddedToken(names[at], normalized=False) for at in of_users])
        usual_begin = True if self.kind == "llama" else self.cut().begin
        before, after = self._around("bos", usual_begin), self._around("eos", False)
        if before or after:
            held = [(self.tokens[at], at) for at in (*before, *after)]
            single = [*(self.tokens[at] for at in before), "$A", *(self.tokens[at] for at in after)]
            tokenizer.post_processor = processors.TemplateProcessing(
                single=single, pair=[*single, "$B:1"], special_tokens=held
            )

    def _takes_spaces(self, at: int) -> bool:
        """Whether a token takes the spaces behind it: those of Phi 3 do, which files do not say."""
        of_phi = self.kind == "llama" and self._metadata.get("general.architecture") == "phi3"
        return of_phi and self.tokens[at] not in ("<unk>", "<s>", "<|endoftext|>")

    def _around(self, name: str, usual: bool) -> list[int]:
        wanted = self.get(f"add_{name}_token")
        number = self.number(f"{name}_token_id")
        return [number] if number is not None and (usual if wanted is None else wanted) else []


def _sentence_pieces(held: _Held) -> Tokenizer:
    """Returns the tokenizer of a SentencePiece model: pieces by their scores, and bytes for what is none."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    places = {token: at for token, at in held.places.items() if held.kinds[at] in (_NORMAL, _OF_USERS)}
    scores = held.scores()
    unknown = held.number("unknown_token_id")
    tokenizer = Tokenizer(
        models.BPE(
            held.vocabulary,
            _merges_of(places, scores),
            unk_token=None if unknown is None else held.tokens[unknown],
            fuse_unk=True,
            byte_fallback=_BYTE in held.kinds,
        )
    )
    prefix = held.get("add_space_prefix") is not False
    before = [normalizers.Prepend(_SPACE)] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*before, normalizers.Replace(" ", _SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return tokenizer


def _merges_of(places: Mapping[str, int], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Returns the merges that pieces and scores mean: SentencePiece joins the two that make the best piece.

    Pieces of one score are told apart by the scores of their parts, as transformers does it.
    """
    found: list[tuple[float, float, float, str, str]] = []
    for token, at in places.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in places and right in places:
                found.append((scores[at], scores[places[left]], scores[places[right]], left, right))
    found.sort(key=lambda entry: entry[:3], reverse=True)
    return [(left, right) for *_, left, right in found]


def _byte_level(held: _Held) -> Tokenizer:
    """Returns the tokenizer that merges bytes, as GPT-2 has begun it."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    cut, known = held.cut(), held.vocabulary
    merges = held.merges()
    lost = next((pair for pair in merges if not {*pair, "".join(pair)} <= known.keys()), None)
    if lost is not None:
        raise SerializationError(
            f"the GGUF file merges {lost[0]!r:.40} and {lost[1]!r:.40}, which are no tokens"
        )
    tokenizer = Tokenizer(models.BPE(known, merges, ignore_merges=cut.whole))
    if cut.composed:
        tokenizer.normalizer = normalizers.NFC()
    steps = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in cut.patterns]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
