"""Texts as rows to train from: tokens, the tokens after them, and which of those count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import flag, whole
from loom._settings.suggestions import shown
from loom.errors import ConfigError
from loom.text.tokens import read_tokens

if TYPE_CHECKING:
    from loom.text.model import LanguageModel

__all__ = ["Examples", "Row", "Spelled", "completed", "examples", "filled", "packed", "spell"]

Row: TypeAlias = "str | Mapping[str, Any] | Sequence[int]"
"""A text; {"prompt": ..., "completion": ...}; {"messages": [...]}; {"text": ...}; or tokens."""


class Examples(NamedTuple):
    """Rows of one length, as `loom.train` takes them.

    Args:
        x: (rows, length) tokens; behind the end of a text any. Of rows that are packed (rows, 2 length):
            before the tokens stands for each the number of its text in the row, from 1 on, and 0 behind the
            last.
        y: (rows, length) the token after each.
        weight: (rows, length) 1 where that is to be foretold, 0 where not.
    """

    x: NDArray[np.int32]
    y: NDArray[np.int32]
    weight: NDArray[np.float32]

    @property
    def length(self) -> int:
        """How many tokens a row has."""
        return int(self.y.shape[1])

    @property
    def is_packed(self) -> bool:
        """Whether rows hold several texts each."""
        return bool(self.x.shape[1] == 2 * self.y.shape[1])


class Spelled(NamedTuple):
    """A text in tokens.

    Args:
        tokens: All of them.
        counts: Of each whether it is to be foretold.
    """

    tokens: list[int]
    counts: list[bool]


def examples(
    model: LanguageModel,
    rows: Iterable[Row],
    *,
    length: int | None = None,
    completions: bool = True,
    join: bool = False,
    pack: bool = False,
    cut: bool = False,
) -> Examples:
    """Makes rows to train from of texts.

    - A text, or {"text": ...}: all of it is learned, and the token that ends an answer behind it.
    - {"prompt": ..., "completion": ...}: the completion and its end are learned; the prompt is read.
    - {"messages": [...]}: what the assistant says is learned, with the end of each turn, of the chat as the
      model's template writes it.
    - Tokens: all are learned.

    Args:
        model: The model whose tokenizer and template are used.
        rows: The texts.
        length: The most tokens that the network reads of a row, and the length of all rows; that of the
            longest where None.
        completions: Whether only completions and what the assistant says count; else all does.
        join: Whether texts are put one behind the other and cut into rows of `length`, so that no row is
            padded: for running text. A row then begins anywhere, and is read as if texts went on from those
            before them.
        pack: Whether a row holds as many texts as have room in it, each of which is read by itself: attention
            sees its own text alone, and what is computed is what it is with a row for each, but for rounding.
            For `fine_tune`; a network with recurrent layers or trained positions refuses such rows.
        cut: Whether longer texts are cut; they are refused where not.

    Returns:
        The rows, for `fine_tune`, or `loom.train` of a network that reads as many steps.

    Raises:
        ConfigError: A row is none of these, is longer than `length`, or has nothing to learn; or the model
            has no template for chats, or one that says of earlier turns something else once more was said.

    Examples:
        >>> rows = [{"prompt": "2 + 3 =", "completion": " 5"}]
        >>> data = loom.text.examples(model, rows, length=64)  # doctest: +SKIP
    """
    alone, together = flag("examples", "completions", completions), flag("examples", "join", join)
    packs, cuts = flag("examples", "pack", pack), flag("examples", "cut", cut)
    if packs and together:
        raise ConfigError("examples: join=True and pack=True are two ways to fill rows; take one of them")
    most = None if length is None else whole("examples", "length", length, least=1, most=1 << 24)
    spelled = [spell(model, row, number) for number, row in enumerate(_listed(rows))]
    if not spelled:
        raise ConfigError("examples: there are no rows")
    if not alone:
        spelled = [Spelled(tokens, [True] * len(tokens)) for tokens, _ in spelled]
    if together:
        if most is None:
            raise ConfigError("examples: join=True needs a length, by which what is joined is cut into rows")
        whole_text = Spelled(
            [token for tokens, _ in spelled for token in tokens],
            [counts for _, each in spelled for counts in each],
        )
        # The last token of a row is the first of the next, which is told by it and tells.
        spelled = [
            Spelled(whole_text.tokens[at : at + most + 1], whole_text.counts[at : at + most + 1])
            for at in range(0, max(len(whole_text.tokens) - 1, 1), most)
        ]
        spelled = [row for row in spelled if any(row.counts[1:])]
    made = filled(spelled, most, cut=cuts, pad=model.vocabulary.pad)
    return packed(made, [len(row.tokens) - 1 for row in spelled]) if packs else made


def filled(spelled: Sequence[Spelled], length: int | None, *, cut: bool, pad: int | None) -> Examples:
    """Puts texts of different lengths into rows of one.

    Args:
        spelled: The texts.
        length: The length; that of the longest where None.
        cut: Whether longer ones are cut.
        pad: The token behind the ends of texts; 0 where None, which nothing is learned of either way.

    Raises:
        ConfigError: One is longer, or has nothing to learn.
    """
    longest = max((len(row.tokens) - 1 for row in spelled), default=0)
    steps = longest if length is None else length
    x = np.full((len(spelled), max(steps, 1)), pad or 0, np.int32)
    y, weight = x.copy(), np.zeros(x.shape, np.float32)
    for number, (tokens, counts) in enumerate(spelled):
        read = len(tokens) - 1
        if read > steps and not cut:
            raise ConfigError(
                f"examples: row {number} has {read} tokens to read, more than the length of {steps}: give a "
                "longer one, or cut=True for the beginning alone"
            )
        read = min(read, steps)
        if not any(counts[1 : read + 1]):
            raise ConfigError(
                f"examples: row {number} has nothing to learn: no token after its first counts"
                + (f" among the first {steps + 1}" if len(tokens) - 1 > steps else "")
            )
        x[number, :read] = tokens[:read]
        y[number, :read] = tokens[1 : read + 1]
        weight[number, :read] = counts[1 : read + 1]
    return Examples(x, y, weight)


def packed(data: Examples, lengths: Sequence[int]) -> Examples:
    """Puts several texts into each row: the longest first, each into the first row that has room for it.

    Args:
        data: A row for each.
        lengths: How many tokens are read of each, where it is not cut.
    """
    steps = data.length
    sizes = [min(length, steps) for length in lengths]
    room: list[int] = []
    places: list[list[int]] = []
    for text in sorted(range(len(sizes)), key=lambda text: -sizes[text]):
        row = next((row for row, free in enumerate(room) if free >= sizes[text]), len(room))
        if row == len(room):
            room.append(steps)
            places.append([])
        room[row] -= sizes[text]
        places[row].append(text)
    x = np.full((len(places), 2 * steps), data.x.flat[-1], np.int32)
    x[:, :steps] = 0
    y, weight = np.zeros((len(places), steps), np.int32), np.zeros((len(places), steps), np.float32)
    for row, texts in enumerate(places):
        at = 0
        for number, text in enumerate(texts, 1):
            size = sizes[text]
            x[row, at : at + size] = number
            x[row, steps + at : steps + at + size] = data.x[text, :size]
            y[row, at : at + size] = data.y[text, :size]
            weight[row, at : at + size] = data.weight[text, :size]
            at += size
    return Examples(x, y, weight)


def spell(model: LanguageModel, row: Row, number: int) -> Spelled:
    """Returns a row's tokens, and which of them are to be foretold.

    Args:
        model: The model.
        row: The row.
        number: Its number, for messages.

    Raises:
        ConfigError: It is no row.
    """
    if isinstance(row, str):
        return _all(model.encode(row) + _end(model))
    if isinstance(row, Mapping):
        if "messages" in row:
            return _chat(model, row, number)
        if "prompt" in row and "completion" in row:
            return completed(model, row["prompt"], row["completion"], number)
        if isinstance(row.get("text"), str):
            return _all(model.encode(row["text"]) + _end(model))
        raise ConfigError(
            f'examples: row {number} must have "messages", "prompt" and "completion", or "text"; it has '
            f"{', '.join(map(str, row)) or 'nothing'}"
        )
    try:
        return _all(read_tokens(row))
    except (TypeError, ValueError):
        raise ConfigError(f"examples: row {number} is no text, chat or tokens: {shown(row)}") from None


def completed(model: LanguageModel, prompt: object, completion: object, number: int) -> Spelled:
    """Returns a prompt, which is read, and what completes it, which is learned.

    Args:
        model: The model.
        prompt: A text, or messages.
        completion: A text, or messages.
        number: The row's number, for messages.

    Raises:
        ConfigError: They are none.
    """
    if isinstance(prompt, str) and isinstance(completion, str):
        before, after = model.encode(prompt), _going_on(model, prompt, completion) + _end(model)
        return Spelled(before + after, [False] * len(before) + [True] * len(after))
    if _are_messages(prompt) and (isinstance(completion, str) or _are_messages(completion)):
        said = [{"role": "assistant", "content": completion}] if isinstance(completion, str) else completion
        messages: list[Any] = [*prompt, *said]  # type: ignore[misc]
        return _turns(model, messages, {}, number, range(len(messages) - len(said), len(messages)))  # type: ignore[arg-type]
    raise ConfigError(
        f"examples: row {number}: a prompt and what completes it are texts, or messages with a text or "
        f"messages, got {shown(prompt)} and {shown(completion)}"
    )


def _going_on(model: LanguageModel, prompt: str, completion: str) -> list[int]:
    """Returns the tokens of what completes a prompt, as the model is to write them behind it."""
    # Both checks of texts, and what is left where no tokens say it as it is.
    alone = model.encode(completion, special=False)
    behind = model.tokens_behind(completion) if prompt else None
    return alone if behind is None else behind


def _are_messages(given: object) -> bool:
    return (
        isinstance(given, Sequence)
        and not isinstance(given, str)
        and all(isinstance(message, Mapping) and "role" in message for message in given)
    )


def _listed(rows: object) -> Iterable[Row]:
    if isinstance(rows, (str, Mapping)) or not isinstance(rows, Iterable):
        raise ConfigError(f"examples takes a list of rows, got {shown(rows)}")
    return rows


def _all(tokens: list[int]) -> Spelled:
    return Spelled(tokens, [True] * len(tokens))


def _end(model: LanguageModel) -> list[int]:
    """Returns the token that ends a text, in a list; an empty one where the model has none."""
    vocabulary = model.vocabulary
    told = vocabulary.special.get("eos_token")
    found = None if told is None else model.tokenizer.token_to_id(told)
    if found is None:
        return sorted(vocabulary.end)[:1]
    return [int(found)]


def _chat(model: LanguageModel, row: Mapping[str, Any], number: int) -> Spelled:
    messages = row["messages"]
    if not _are_messages(messages) or not messages:
        raise ConfigError(f'examples: row {number}: messages are a list of {{"role": ..., "content": ...}}')
    said = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    if not said:
        raise ConfigError(
            f"examples: row {number} has no message of the assistant, so there is nothing to learn"
        )
    given = {name: row[name] for name in ("tools", "documents") if row.get(name)}
    return _turns(model, messages, given, number, said)


def _turns(
    model: LanguageModel,
    messages: Sequence[Mapping[str, Any]],
    given: Mapping[str, Any],
    number: int,
    said: Iterable[int],
) -> Spelled:
    """Returns a chat in tokens, of which those of some messages count."""
    template = model.vocabulary.template
    if template is None:
        raise ConfigError(
            f"examples: row {number} is a chat, and the model has no chat template; give prompts and "
            "completions"
        )
    chat = model.chats.marked(template, messages, {**given, "answer": False})
    text = chat.text
    spans = []
    for place in said:
        before = template.render(chat.messages[:place], **{**chat.given, "answer": True})
        after = template.render(chat.messages[: place + 1], **chat.given)
        if not (after.startswith(before) and text.startswith(after)):
            raise ConfigError(
                f"examples: row {number}: the model's chat template writes what comes before message {place} "
                "otherwise once that is there, so its place is not known; end the chat with this message, or "
                'give it as "prompt" and "completion"'
            )
        spans.append((len(before), len(after)))
    encoding = model.chats.encode(text, chat.mark)
    counts = [any(start <= first < stop for start, stop in spans) for first, _ in encoding.offsets]
    return Spelled(list(encoding.ids), counts)
