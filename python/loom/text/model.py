"""A language model: a network, and what stands between its tokens and text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from os import PathLike
from typing import TYPE_CHECKING, Any

from loom._settings.checks import flag, whole
from loom._settings.suggestions import shown
from loom._typing import CacheTypeName
from loom.errors import ConfigError, LoomError, ShapeError
from loom.network import Network
from loom.network.session import cache_type
from loom.text.batch import Batch
from loom.text.cache_files import load_cache, save_cache
from loom.text.chats import Chats
from loom.text.constraints import FORMS, Constraints, Form, form_of
from loom.text.embedding import Embedder
from loom.text.errors import ContextLengthError
from loom.text.generation import ENDLESS, Completion, Generation, Plan
from loom.text.guessing import guesser_of
from loom.text.options import Options, stop_texts
from loom.text.sampling import Sampler, Sampling
from loom.text.scores import makes_probabilities
from loom.text.sessions import Lease, Sessions
from loom.text.token_bytes import TokenBytes
from loom.text.tokens import check_characters, check_known, read_texts, read_tokens
from loom.text.tool_calls import ToolCall, ToolReader, functions_of, style_of
from loom.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from tokenizers import Tokenizer
    from typing_extensions import Unpack

__all__ = ["LanguageModel", "Options"]

_USUAL_CAPACITY = 4096

_SETTINGS = tuple(entry.name for entry in fields(Sampling))


class LanguageModel:
    """A network that reads and writes text.

    `loom.text.load` makes one of a folder or file; a network of one's own, with a tokenizer of Hugging Face's
    library, makes one here. Threads may use it side by side: they take turns, step by step.

    Args:
        network: Reads token ids, (time,). A decoder makes scores of the next token after each step, or
            where it ends in a softmax probabilities; an encoder is for `embed` alone.
        vocabulary: The tokenizer, or that and what else there is to say of the text.
        capacity: The most tokens of a prompt and its answer together; the network's steps, at most 4096,
            where None, and 4096 of a network that reads any number. Each answer under way has keys and values
            for so many tokens.
        kept: How many sessions are kept whose answers have ended, so that a text that goes on from theirs is
            read from there on.
        cache_dtype: What keys and values are kept as, "float16" or "q8_0", as in `loom.Session`: half or a
            quarter of the memory. On processors.

    Raises:
        ShapeError: The network does not read token ids.
        ConfigError: A setting is out of range.
        StateError: There is a `cache_dtype`, and the network is on a GPU, or no layer keeps keys and values.
    """

    def __init__(
        self,
        network: Network,
        vocabulary: Vocabulary | Tokenizer,
        *,
        capacity: int | None = None,
        kept: int = 1,
        cache_dtype: CacheTypeName | None = None,
    ) -> None:
        if not isinstance(vocabulary, Vocabulary) and not hasattr(vocabulary, "id_to_token"):
            raise ConfigError(
                "LanguageModel: a tokenizer of Hugging Face's library, tokenizers.Tokenizer, or a "
                f"loom.text.Vocabulary says what tokens are, got {shown(vocabulary)}; of transformers' it is "
                "tokenizer.backend_tokenizer, and loom.text.load(folder) reads it along with the network"
            )
        if len(network.input_shape) != 1 or not network.output_shape:
            raise ShapeError(
                f"a language model reads token ids, (time,); this network reads {network.input_shape}"
            )
        self.network = network
        """The network; it may be trained and morphed as any other."""
        self.vocabulary = vocabulary if isinstance(vocabulary, Vocabulary) else Vocabulary(vocabulary)
        """The tokenizer, special tokens, the chat template."""
        # Of a network that reads any number of steps, None.
        steps: int | None = network.input_shape[0]
        usual = _USUAL_CAPACITY if steps is None else min(steps, _USUAL_CAPACITY)
        self.capacity = (
            usual if capacity is None else whole("LanguageModel", "capacity", capacity, least=1, most=1 << 32)
        )
        """The most tokens of a prompt and its answer together."""
        self.cache_dtype = cache_type("LanguageModel", cache_dtype)
        """What keys and values are kept as; None where that is as the network computes."""
        if self.cache_dtype is not None:
            # Where there is no such cache, that is told now, and not with the first answer.
            network.session(1, cache_dtype=self.cache_dtype)
        self._kept = whole("LanguageModel", "kept", kept, least=0, most=1 << 20)
        self._sessions = Sessions(network, self.capacity, self._kept, self.cache_dtype)
        self.lock = self._sessions.lock
        """Is held while the network computes; who uses it from another thread beside the model takes it."""
        self._token_bytes = TokenBytes(self.tokenizer)
        self._chats = Chats(self.vocabulary)
        self._constraints: Constraints | None = None
        self._embedder = Embedder(network, self.vocabulary.pad)

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, of Hugging Face's library."""
        return self.vocabulary.tokenizer

    @property
    def chats(self) -> Chats:
        """What writes chats, and makes tokens of them."""
        if self._chats.vocabulary is not self.vocabulary:
            self._chats = Chats(self.vocabulary)
        return self._chats

    @property
    def generates(self) -> bool:
        """Whether the network writes text: it makes a score for each token after each step."""
        with self.lock:
            try:
                return len(self.network.output_shape) == 2 and self.network.session(1).capacity == 1
            except LoomError:
                return False

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Returns a text's tokens.

        Args:
            text: The text. Special tokens that it spells out become such.
            special: Whether those that the model wants around a text are added, such as one that begins it.

        Raises:
            ConfigError: It is no text, or has half a pair of surrogates, which is no character.
        """
        given: object = text
        if not isinstance(given, str):
            raise ConfigError(f"encode takes a text, got {shown(given)}")
        check_characters(text)
        return list(self.tokenizer.encode(text, add_special_tokens=special).ids)

    def decode(self, tokens: Iterable[int], *, special: bool = False) -> str:
        """Returns the text of tokens: that of an answer with these tokens, in pieces and as a whole.

        Bytes that are no part of a character are U+FFFD, each by itself, as SentencePiece has it; by Hugging
        Face's library one of them turns all single bytes beside it into such marks, whole characters, too.

        Args:
            tokens: Their ids.
            special: Whether special tokens are written, too.

        Raises:
            ConfigError: They are no whole numbers, or no tokenizer has such.
        """
        ids = read_tokens(tokens, "decode takes tokens as whole numbers")
        beyond = [token for token in ids if not 0 <= token < 1 << 32]
        if beyond:
            raise ConfigError(f"decode: there is no token {beyond[0]}")
        return self._token_bytes.text(ids, special=special)

    def token_bytes(self, token: int) -> bytes:
        """Returns the bytes that a token stands for, which may be a part of a character.

        Args:
            token: Its id; one that the tokenizer does not know stands for none.

        Raises:
            ConfigError: It is no whole number, or no tokenizer has such.
        """
        (number,) = read_tokens([token], "token_bytes takes a token as a whole number")
        if not 0 <= number < 1 << 32:
            raise ConfigError(f"token_bytes: there is no token {number}")
        return self._token_bytes.of(number)

    def tokens_behind(self, text: str) -> list[int] | None:
        """Returns the tokens of a text that goes on from other text; None where none say it as it is.

        `encode` may put a space before a text, as many tokenizers of SentencePiece's do.

        Args:
            text: The text.
        """
        return self._token_bytes.behind(text)

    def forget(self) -> None:
        """Forgets the texts that were read: what was made of them is no more what the network makes of them.

        Whoever trains or changes the network of a model that has answered calls this; `fine_tune` does.
        """
        self._sessions.forget()

    def generate(self, prompt: str | Sequence[int], **options: Unpack[Options]) -> Generation:
        """Goes on from a text, and tells what comes piece by piece.

        Args:
            prompt: The text, or its tokens.
            options: See `Options` and `Sampling`. What is left out, or None, is what the model's files
                recommend; where they say nothing, temperature 1 and nothing left out.

        Returns:
            An iterator over pieces of text, which has `tokens`, `text` and `finish_reason` besides.

        Raises:
            ConfigError: A setting is out of range.
            ContextLengthError: The prompt and the answer are longer than the capacity; it is a ConfigError.
            StateError: The network makes no text; or it has recurrent layers, and there is a draft.
        """
        return self._begun(self._tokens(prompt), options)

    def complete(self, prompt: str | Sequence[int], **options: Unpack[Options]) -> Completion:
        """Goes on from a text to the end; see `generate`.

        Args:
            prompt: The text, or its tokens.
            options: As for `generate`.
        """
        return self.generate(prompt, **options).finish()

    def complete_all(
        self, prompts: Iterable[str | Sequence[int]], *, together: int = 8, **options: Unpack[Options]
    ) -> list[Completion]:
        """Goes on from several texts side by side; on a processor each gives what it gives alone.

        Args:
            prompts: The texts, or their tokens.
            together: How many are made at once, each with keys and values of its own; see `Batch`.
            options: As for `generate`.
        """
        generations = [self.generate(prompt, **options) for prompt in read_texts("complete_all", prompts)]
        whole("complete_all", "together", together, least=1, most=1 << 16)
        for generation in generations:
            generation.check_ends()
        if generations:
            # No more memory than the longest of them needs.
            longest = max(generation.longest for generation in generations)
            most = min(together, len(generations))
            batch = Batch(self.network, longest, self.lock, most, self.cache_dtype)
            for generation in generations:
                batch.add(generation)
            for told in batch:
                if told.error is not None:
                    raise told.error
        return [generation.completion() for generation in generations]

    def batch(self, most: int = 8) -> Batch:
        """Returns a batch, in which answers are made side by side, and which they join and leave at any time.

        Args:
            most: How many are made at once, each with keys and values for the model's capacity.
        """
        return Batch(self.network, self.capacity, self.lock, most, self.cache_dtype)

    def lease(self, tokens: Sequence[int]) -> Lease:
        """Returns a session for a text, which has read its beginning where one has; for guesses ahead.

        Args:
            tokens: The text's tokens.
        """
        return self._sessions.lease(tokens)

    def save_cache(self, path: str | PathLike[str], prompt: str | Sequence[int]) -> int:
        """Reads a text, and stores what layers keep of it: another process need not read it again.

        Args:
            path: A file, in safetensors' format.
            prompt: The text, such as what all prompts begin with, or its tokens.

        Returns:
            How many tokens it has.

        Raises:
            StateError: A recurrent layer keeps nothing by token.
            ContextLengthError: The text is longer than the capacity.
        """
        tokens = self._tokens(prompt)
        self._most(tokens, None, self.network.output_shape[-1])
        lease = self._sessions.lease([*tokens, 0])
        # By the weights as they are now.
        lease.restart()
        try:
            while len(lease.seen) < len(tokens):
                lease.feed(tokens[len(lease.seen) :][: lease.piece])
            save_cache(path, self.network, lease.session, tokens)
        finally:
            lease.give_back()
        return len(tokens)

    def load_cache(self, path: str | PathLike[str]) -> int:
        """Takes up what `save_cache` has stored: a prompt that begins with that text is read from its end.

        One of the kept sessions has it until others take its place: see `kept`.

        Args:
            path: The file.

        Returns:
            How many tokens the text has.

        Raises:
            FileError: It cannot be read.
            SerializationError: It is no such file, or of another network, or of other weights.
            ContextLengthError: The text is longer than the capacity.
        """
        with self.lock:
            session = self._sessions.made()
            tokens = load_cache(path, self.network, session)
        self._sessions.keep(tokens, session)
        return len(tokens)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: str = "auto",
        documents: Sequence[Mapping[str, Any]] | None = None,
        values: Mapping[str, Any] | None = None,
        **options: Unpack[Options],
    ) -> Generation:
        """Answers in a chat, written as the model's chat template says.

        Where the chat goes on from what an earlier call has read and answered, only what is new is read.
        Special tokens are those that the template writes: what messages spell out of such is read as text.

        Args:
            messages: What has been said, such as [{"role": "user", "content": "Hello"}].
            tools: What the model may call, as JSON schemas of functions, for templates that tell of them.
                What it calls stands in its text: `read_tools` reads it.
            tool_choice: "auto" leaves it to the model, "none" tells it of no tools; with "required" the
                answer is a call of one of them, and with a function's name of that one, with arguments by
                its schema.
            documents: What the model may cite, likewise.
            values: Whatever else the template reads, such as {"enable_thinking": False}.
            options: As for `generate`.

        Raises:
            ConfigError: The model has no chat template, or it refuses the chat, or does more with a special
                token that a message spells out than to write it; the template tells of no tools where one is
                to be called, or there is no such tool; or as in `generate`.
        """
        if tool_choice == "none" or not tools:
            if tool_choice not in ("auto", "none"):
                raise ConfigError(f'chat: tool_choice="{tool_choice}" needs tools')
            tools = None
        form = None
        if tools and tool_choice != "auto":
            name = None if tool_choice == "required" else tool_choice
            grammar = style_of(self.vocabulary).grammar(functions_of(tools), name)
            if any(options.get(name) for name in FORMS):
                raise ConfigError(
                    f'chat: with tool_choice="{tool_choice}" the tool says what form an answer has'
                )
            form = form_of(grammar=grammar)
        tokens = self.chats.tokens(messages, {"tools": tools, "documents": documents}, values)
        return self._begun(tokens, options, form)

    def tool_reader(self) -> ToolReader:
        """Returns what reads calls of tools out of an answer as its text comes.

        Raises:
            ConfigError: The model's template tells of no tools.
        """
        return ToolReader(style_of(self.vocabulary))

    def read_tools(self, text: str) -> tuple[str, list[ToolCall]]:
        """Reads calls of tools out of an answer.

        Args:
            text: The answer's text.

        Returns:
            What of it is no call, and the calls.

        Raises:
            ConfigError: The model's template tells of no tools.
        """
        reader = self.tool_reader()
        rest = reader.add(text)
        rest += reader.finish()
        return rest.strip(), reader.calls

    def chat_text(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> str:
        """Returns a chat as the text that the model goes on from; see `chat`.

        `chat` reads special tokens that messages spell out as text; who gives this text to `generate` has
        them read as such.
        """
        return self.chats.text(messages, {"tools": tools, "documents": documents}, values)

    def embed(self, texts: Iterable[str | Sequence[int]], pooling: str | None = None) -> NDArray[Any]:
        """Returns a vector for each text.

        An encoder's own pooling counts where it has one. Of a decoder the vectors before its head are taken,
        by a copy of all layers but that; the copy is made by the first call, and again where the network has
        changed.

        Args:
            texts: The texts, or their tokens.
            pooling: What of a text's steps makes its vector: "mean", "first" or "last"; None for the
                network's own, or else "mean".

        Returns:
            (texts, width).

        Raises:
            ConfigError: There is no such pooling, the network has one already, or a text is empty or longer
                than it reads.
        """
        rows = [self._tokens(text) for text in read_texts("embed", texts)]
        with self.lock:
            return self._embedder.embed(rows, self.capacity, pooling)

    def _tokens(self, text: str | Sequence[int]) -> list[int]:
        return self.encode(text) if isinstance(text, str) else read_tokens(text)

    def _begun(self, tokens: list[int], options: Options, form: Form | None = None) -> Generation:
        unknown = set(options) - set(Options.__annotations__)
        if unknown:
            raise ConfigError(
                f"generate has no option {sorted(unknown)[0]!r}; "
                f"there are {', '.join(Options.__annotations__)}"
            )
        with self.lock:
            made = self.network.output_shape
        if len(made) != 2:
            raise ConfigError(f"the network makes {made} of a text, and no scores of a next token")
        given: Mapping[str, Any] = options
        told = {name: given[name] for name in _SETTINGS if given.get(name) is not None}
        settings = Sampling(**{**self.vocabulary.sampling, **told})
        logprobs = options.get("logprobs")
        if logprobs is not None:
            whole("generate", "logprobs", logprobs, least=0, most=1 << 20)
        stream = whole("generate", "stream", options.get("stream") or 0, least=0, most=(1 << 32) - 1)
        goes_on = flag("generate", "ignore_end", options.get("ignore_end") or False)
        end = frozenset[int]() if goes_on else self.vocabulary.end
        sinks = options.get("sinks")
        if sinks is not None:
            whole("generate", "sinks", sinks, least=0, most=max(0, self.capacity - 2))
        most = self._most(tokens, options.get("max_tokens"), made[-1], endless=sinks is not None)
        form = form or form_of(**{name: options.get(name) for name in FORMS})
        if form is not None and self._constraints is None:
            self._constraints = Constraints(self.tokenizer, self._token_bytes, made[-1])
        plan = Plan(
            Sampler(settings, tokens, made[-1], logprobs, stream),
            most,
            end,
            stop_texts(options.get("stop")),
            self.capacity,
            None if form is None or self._constraints is None else self._constraints.made(form, end),
            guesser_of(options.get("draft"), self),
            sinks,
            makes_probabilities(self.network),
        )
        return Generation(self._sessions, self._token_bytes, tokens, plan)

    def _most(self, tokens: Sequence[int], wanted: int | None, words: int, *, endless: bool = False) -> int:
        """Returns the most tokens of the answer to a prompt; `endless` where it may go past the capacity."""
        # The last token is told, but not read.
        room = self.capacity - len(tokens) + 1
        if not tokens:
            raise ConfigError("the prompt has no tokens: begin with some text")
        check_known("the prompt", tokens, words)
        if wanted is not None:
            whole("generate", "max_tokens", wanted, least=1)
        if room < (1 if endless else wanted or 1):
            asked = "" if wanted is None else f" and max_tokens={wanted}"
            raise ContextLengthError(
                f"a prompt of {len(tokens)} tokens{asked} is more than the model's capacity of "
                f"{self.capacity} tokens: shorten it, or load the model with a larger capacity"
            )
        if wanted is not None:
            return wanted
        return ENDLESS if endless else room

    def __reduce__(self) -> tuple[Any, ...]:
        # Texts that were read stay behind.
        settings = {"capacity": self.capacity, "kept": self._kept, "cache_dtype": self.cache_dtype}
        return _remade, (type(self), self.network, self.vocabulary, settings)

    def __repr__(self) -> str:
        words = self.tokenizer.get_vocab_size()
        return f"LanguageModel(layers={len(self.network.layers)}, tokens={words}, capacity={self.capacity})"


def _remade(
    kind: type[LanguageModel], network: Network, vocabulary: Vocabulary, settings: dict[str, Any]
) -> LanguageModel:
    """Makes a model of what a copy or a pickle has of one."""
    return kind(network, vocabulary, **settings)
