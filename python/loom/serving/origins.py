"""Pages of other origins that may ask: CORS (https://fetch.spec.whatwg.org/#http-cors-protocol)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from loom._settings.checks import items
from loom._settings.suggestions import shown
from loom.errors import ConfigError

__all__ = ["allow", "origins"]

# As browsers write it: no path, and no slash at the end.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[^\s/?#@:\[\]A-Z]+)(:[0-9]{1,5})?")


def origins(where: str, value: object) -> tuple[str, ...]:
    """Checks the origins of a setting.

    Raises:
        ConfigError: They are no sequence of origins such as "https://example.com" or "*".
    """
    listed = None if isinstance(value, str) else items(value)
    if listed is None:
        raise ConfigError(f"{where}: allow_origins must be a sequence of origins, got {shown(value)}")
    for origin in listed:
        if origin != "*" and not (isinstance(origin, str) and _ORIGIN.fullmatch(origin)):
            raise ConfigError(
                f'{where}: an origin is "*" or as browsers say it, such as "https://example.com" or '
                f'"http://localhost:3000", in small letters and without a path, got {shown(origin)}'
            )
    return tuple(map(str, listed))


def allow(app: Any, listed: Sequence[str]) -> None:  # noqa: ANN401 - FastAPI's
    """Lets pages of these origins ask an application from the browser."""
    if not listed:
        return
    from starlette.middleware.cors import CORSMiddleware

    app.add_middleware(
        CORSMiddleware,
        allow_origins=listed,
        allow_methods=["GET", "POST"],
        # Clients say of themselves what they please.
        allow_headers=["*"],
        expose_headers=["Retry-After"],
    )
