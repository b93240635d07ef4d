"""How a network is served: how many samples at once, and what is too much."""

from __future__ import annotations

from dataclasses import dataclass

from loom._settings.checks import real, whole

__all__ = ["ServingSettings"]


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

    def __post_init__(self) -> None:
        where = "ServingSettings"
        for name in ("batch_rows", "max_rows", "max_bytes", "max_requests"):
            whole(where, name, getattr(self, name), least=1)
        real(where, "wait", self.wait, least=0.0)
        real(where, "timeout", self.timeout, above=0.0)
        if self.rate is not None:
            real(where, "rate", self.rate, above=0.0)
