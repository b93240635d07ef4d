"""How networks and language models are served: how much at once, and what is too much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loom._settings.checks import real, whole
from loom.errors import ConfigError
from loom.serving.origins import origins

__all__ = ["LanguageSettings", "ServingSettings"]


@dataclass(frozen=True)
class ServingSettings:
    """The settings of `loom.serving.create_app`.

    Args:
        batch_rows: How many samples are computed at once. On a GPU that many always are, the rest filled up,
            since a sample's bits may be others there in a batch of another size.
        wait: Milliseconds that a request waits for others to be computed with.
        max_rows: The most samples in a request.
        max_bytes: The most bytes of a request's body.
        max_requests: The most requests under way: that are read, wait, or are computed. Who comes then is
            told to come again.
        rate: The most requests a second of one address, on average and at once; None for any number.
        timeout: Seconds until a request that is not answered is given up.
        allow_origins: Of which origins pages may ask from a browser, such as "http://localhost:3000"; ("*",)
            for all. A page of the server's own origin always may.

    Raises:
        ConfigError: A setting is out of range.
    """

    batch_rows: int = 64
    wait: float = 2.0
    max_rows: int = 4096
    max_bytes: int = 16 << 20
    max_requests: int = 1024
    rate: float | None = None
    timeout: float = 30.0
    allow_origins: Sequence[str] = ()

    def __post_init__(self) -> None:
        where = "ServingSettings"
        for name in ("batch_rows", "max_rows", "max_bytes", "max_requests"):
            whole(where, name, getattr(self, name), least=1)
        real(where, "wait", self.wait, least=0.0)
        real(where, "timeout", self.timeout, above=0.0)
        if self.rate is not None:
            real(where, "rate", self.rate, above=0.0)
        object.__setattr__(self, "allow_origins", origins(where, self.allow_origins))


@dataclass(frozen=True)
class LanguageSettings:
    """The settings of `loom.serving.create_language_app`.

    Args:
        name: What the model is called in requests and answers.
        api_key: What requests must bring as "Authorization: Bearer KEY"; None where anyone may ask.
        max_running: The most answers that are made side by side, each with keys and values of its own. Who
            comes then waits.
        max_requests: The most requests under way: that are read, wait, or are computed. Who comes then is
            told to come again.
        max_tokens: The most tokens of an answer; None for as many as the model's capacity has room for.
        max_choices: The most answers, or texts, of one request.
        max_bytes: The most bytes of a request's body.
        rate: The most requests a second of one address, on average and at once; None for any number.
        timeout: Seconds until an answer that is not whole is given up.
        allow_origins: Of which origins pages may ask from a browser, such as "http://localhost:3000"; ("*",)
            for all. A page of the server's own origin always may.

    Raises:
        ConfigError: A setting is out of range.
    """

    name: str = "loom"
    api_key: str | None = None
    max_running: int = 4
    max_requests: int = 256
    max_tokens: int | None = None
    max_choices: int = 64
    max_bytes: int = 4 << 20
    rate: float | None = None
    timeout: float = 600.0
    allow_origins: Sequence[str] = ()

    def __post_init__(self) -> None:
        where = "LanguageSettings"
        for name in ("max_running", "max_requests", "max_choices", "max_bytes"):
            whole(where, name, getattr(self, name), least=1)
        if self.max_tokens is not None:
            whole(where, "max_tokens", self.max_tokens, least=1)
        real(where, "timeout", self.timeout, above=0.0)
        if self.rate is not None:
            real(where, "rate", self.rate, above=0.0)
        object.__setattr__(self, "allow_origins", origins(where, self.allow_origins))
        if not self.name:
            raise ConfigError(f"{where}: name must not be empty")
        if self.api_key is not None and not self.api_key:
            raise ConfigError(f"{where}: api_key must not be empty; None lets anyone ask")
