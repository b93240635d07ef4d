"""How a chat is written as one text: the Jinja templates that models bring along."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from loom.errors import ConfigError, SerializationError
from loom.extras import require

__all__ = ["ChatTemplate"]

_MOST_MADE = 1 << 24
"""The most characters of a text that is repeated, or bits of a power."""


class ChatTemplate:
    r"""A chat template of the Hugging Face Hub's kind.

    It is rendered as transformers does, in a sandbox: a template reads what it is given, and can neither
    change it nor reach Python.

    Args:
        source: The template; or templates by name, of which "default" is the usual one, and "tool_use" is
            taken where there are tools.
        special: The texts of special tokens, such as {"bos_token": "<s>"}.

    Raises:
        MissingExtraError: Jinja is not installed.
        SerializationError: A template is none.

    Examples:
        >>> template = ChatTemplate("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
        >>> template.render([{"role": "user", "content": "Hello"}])
        'user: Hello\n'
    """

    def __init__(self, source: str | Mapping[str, str], special: Mapping[str, str] | None = None) -> None:
        sources = {"default": source} if isinstance(source, str) else dict(source)
        if not sources or not all(isinstance(text, str) for text in sources.values()):
            raise SerializationError("a chat template is a text, or several texts by name")
        environment = _environment()
        errors = require("jinja2", extra="text", purpose="chat templates").exceptions
        self.sources = sources
        self._special = dict(special or {})
        self._errors = (
            errors.TemplateError,
            ArithmeticError,
            TypeError,
            ValueError,
            LookupError,
            AttributeError,
            # What calls itself without end, and what is larger than memory.
            RecursionError,
            MemoryError,
        )
        self._compiled: dict[str, Any] = {}
        for name, text in sources.items():
            self._compiled[name] = self._compile(environment, name, text)

    def __reduce__(self) -> tuple[Any, ...]:
        # Jinja's templates are compiled anew.
        return type(self), (self.sources, self._special)

    @staticmethod
    def _compile(environment: Any, name: str, text: str) -> Any:  # noqa: ANN401 - Jinja's
        from jinja2 import TemplateSyntaxError

        try:
            return environment.from_string(text)
        except TemplateSyntaxError as error:
            raise SerializationError(
                f'the chat template "{name}" is no Jinja template: line {error.lineno}: {error.message}'
            ) from error
        except RecursionError as error:
            raise SerializationError(f'the chat template "{name}" is nested too deep to read') from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        answer: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        **values: object,
    ) -> str:
        """Returns a chat as one text.

        Args:
            messages: What has been said, each with a "role" and a "content", and whatever else the template
                reads.
            answer: Whether the text ends where an answer begins (transformers' `add_generation_prompt`).
            tools: What the model may call, as JSON schemas of functions.
            documents: What the model may cite.
            values: Whatever else this template reads, such as enable_thinking=False.

        Raises:
            ConfigError: The template refuses the chat, or fails.
        """
        given_messages: object = messages
        if not isinstance(given_messages, Sequence) or not all(
            isinstance(message, Mapping) for message in given_messages
        ):
            raise ConfigError('messages are a list of {"role": ..., "content": ...}')
        name = "tool_use" if tools and "tool_use" in self._compiled else "default"
        template = self._compiled.get(name)
        if template is None:
            raise ConfigError(f'the model has no chat template "default", only {", ".join(self._compiled)}')
        given = {**self._special, **values}
        try:
            text = template.render(
                messages=[dict(message) for message in messages],
                tools=list(tools) if tools else None,
                documents=list(documents) if documents else None,
                add_generation_prompt=answer,
                **given,
            )
        except self._errors as error:
            told = str(error) or type(error).__name__
            raise ConfigError(f"the model's chat template refuses this chat: {told}") from error
        return str(text)


def _environment() -> Any:  # noqa: ANN401 - Jinja's
    """Returns an environment with what transformers gives to templates."""
    jinja = require("jinja2", extra="text", purpose="chat templates")
    require("jinja2.sandbox", extra="text", purpose="chat templates")
    extensions = require("jinja2.ext", extra="text", purpose="chat templates")

    class Generation(extensions.Extension):  # type: ignore[misc, name-defined]
        """`{% generation %}`, around what an assistant has said, for those who train."""

        tags = {"generation"}  # noqa: RUF012 - as Jinja has it

        def parse(self, parser: Any) -> Any:  # noqa: ANN401
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja.nodes.CallBlock(self.call_method("_said"), [], [], body).set_lineno(line)

        def _said(self, caller: Callable[[], str]) -> str:
            return caller()

    def refuse(message: str) -> None:
        raise jinja.exceptions.TemplateError(message)

    class Sandbox(jinja.sandbox.ImmutableSandboxedEnvironment):  # type: ignore[misc, name-defined]
        """One in which neither powers nor repetitions make what takes hours, or all memory."""

        intercepted_binops = frozenset(("*", "**"))

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:  # noqa: ANN401
            if operator == "**" and isinstance(left, int) and isinstance(right, int):
                size = left.bit_length() * right
            elif operator == "*" and isinstance(right if isinstance(left, int) else left, Sequence):
                count, repeated = (left, right) if isinstance(left, int) else (right, left)
                size = len(repeated) * count if isinstance(count, int) else 0
            else:
                size = 0
            if size > _MOST_MADE:
                raise jinja.sandbox.SecurityError(f"{operator} makes more than {_MOST_MADE:,} characters")
            return super().call_binop(context, operator, left, right)

    environment = Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, extensions.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Writes JSON as it is: Jinja's own filter writes it for web pages."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
