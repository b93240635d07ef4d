"""What Prometheus is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loom.extras import require

__all__ = ["LanguageMeasures", "Measures"]

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class _Measured:
    """What is counted in a registry of its own.

    Args:
        purpose: What Prometheus's library is needed for.
    """

    def __init__(self, purpose: str) -> None:
        self._library = require("prometheus_client", extra="serve", purpose=purpose)
        self._registry = self._library.CollectorRegistry()

    def text(self) -> bytes:
        """Returns all of it in Prometheus's format."""
        found: bytes = self._library.generate_latest(self._registry)
        return found


class Measures(_Measured):
    """Counts requests, samples and batches, and times them.

    Args:
        waiting: Says how many requests wait.
    """

    def __init__(self, waiting: Callable[[], int]) -> None:
        super().__init__("serving networks")
        library = self._library

        def made(kind: str, name: str, told: str, *labels: str, **more: object) -> Any:  # noqa: ANN401
            return getattr(library, kind)(name, told, labels, registry=self._registry, **more)

        self._requests = made(
            "Counter", "loom_requests", "Requests to predict, by the answer's status.", "status"
        )
        self._seconds = made(
            "Histogram", "loom_request_seconds", "Seconds until a request was answered.", buckets=_SECONDS
        )
        self._rows = made(
            "Histogram", "loom_batch_rows", "Samples that were computed together.", buckets=_ROWS
        )
        self._computing = made(
            "Histogram", "loom_batch_seconds", "Seconds that a batch was computed.", buckets=_SECONDS
        )
        made("Gauge", "loom_requests_waiting", "Requests that wait to be computed.").set_function(waiting)

    def request(self, status: int, seconds: float) -> None:
        """Counts a request."""
        self._requests.labels(str(status)).inc()
        self._seconds.observe(seconds)

    def batch(self, rows: int, seconds: float) -> None:
        """Counts a batch."""
        self._rows.observe(rows)
        self._computing.observe(seconds)


class LanguageMeasures(_Measured):
    """Counts requests to a language model and the tokens in them, and times them.

    Args:
        running: Says how many answers are made.
        waiting: Says how many requests wait for their turn.
    """

    def __init__(self, running: Callable[[], int], waiting: Callable[[], int]) -> None:
        super().__init__("serving language models")
        library, held = self._library, self._registry
        self._requests = library.Counter(
            "loom_requests", "Requests, by path and the answer's status.", ("path", "status"), registry=held
        )
        self._seconds = library.Histogram(
            "loom_request_seconds", "Seconds until an answer was whole.", registry=held, buckets=_SECONDS
        )
        self._tokens = library.Counter("loom_tokens", "Tokens, read and written.", ("kind",), registry=held)
        for name, told, count in (
            ("loom_answers_running", "Answers that are made.", running),
            ("loom_requests_waiting", "Requests that wait for their turn.", waiting),
        ):
            library.Gauge(name, told, registry=held).set_function(count)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Counts a request."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.observe(seconds)

    def tokens(self, read: int, reused: int, written: int) -> None:
        """Counts tokens: those that were read, that had been read before, and that were written."""
        for kind, count in (("read", read), ("reused", reused), ("written", written)):
            self._tokens.labels(kind).inc(count)
