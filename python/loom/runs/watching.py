"""A page that shows a run while it is written, served on this machine alone."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from loom.errors import FileError
from loom.runs.events import EVENTS

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["RunServer"]

_HOSTS = ("127.0.0.1", "localhost")


class RunServer:
    """Serves one page, and what a run has written since the page last asked.

    It listens on 127.0.0.1 alone, and the page loads nothing from elsewhere. It serves from when
    it is made until `close`, or the end of a `with`.

    Args:
        path: The run's directory; the run may begin later.
        port: The port; 0 for any that is free.

    Raises:
        FileError: There is no such directory, or the port is taken.
    """

    def __init__(self, path: str | Path, port: int = 0) -> None:
        directory = Path(path)
        if not directory.is_dir():
            raise FileError(2, "there is no run's directory", str(directory))
        events = directory / EVENTS

        class Handler(_Handler):
            file = events

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except (OSError, OverflowError) as error:
            raise FileError(
                getattr(error, "errno", None) or 22,
                f"port {port} cannot be listened on: {error}",
                str(directory),
            ) from error
        self._server.daemon_threads = True
        self._ended = Event()
        self._thread = Thread(target=self._server.serve_forever, name="loom watch", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/"

    def wait(self) -> None:
        """Waits until the server is closed."""
        # In slices: Ctrl-C is not heard in an endless wait on every system.
        while not self._ended.wait(0.5):
            pass

    def close(self) -> None:
        """Ends serving."""
        self._ended.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Handler(BaseHTTPRequestHandler):
    file: Path

    def do_GET(self) -> None:
        """Answers with the page, or with the lines from an offset on."""
        # Another site's name that leads here would let its pages read the run.
        if self.headers.get("Host", "").rpartition(":")[0] not in _HOSTS:
            self._answer(403, "text/plain", b"only 127.0.0.1")
            return
        parts = urlsplit(self.path)
        if parts.path == "/":
            page = resources.files("loom.runs").joinpath("page.html").read_bytes()
            self._answer(200, "text/html", page.replace(b"{{name}}", _escaped(self.file.parent.name)))
        elif parts.path == "/events":
            offset = parse_qs(parts.query).get("from", ["0"])[0]
            found = _since(self.file, int(offset) if offset.isdecimal() else 0)
            self._answer(200, "application/json", json.dumps(found).encode())
        else:
            self._answer(404, "text/plain", b"not found")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        rules = (
            "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
        )
        self.send_header("Content-Security-Policy", rules)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's own name
        """Says nothing."""


def _since(file: Path, offset: int) -> dict[str, object]:
    """Returns the whole lines from an offset on, and where the next ones begin.

    A file that is shorter than that was begun anew, and is sent from its start.
    """
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, 2)
            again = size < offset
            opened.seek(0 if again else offset)
            data = opened.read()
    except FileNotFoundError:
        return {"lines": [], "next": 0, "again": offset > 0}
    data = data[: data.rfind(b"\n") + 1]
    lines = data.decode("utf-8", "replace").splitlines()
    return {"lines": lines, "next": (0 if again else offset) + len(data), "again": again}


def _escaped(name: str) -> bytes:
    return name.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;").encode()
