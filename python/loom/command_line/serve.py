"""`loom serve`: a network that answers over HTTP."""

from __future__ import annotations

import click

from loom.command_line.output import write

__all__ = ["command"]

_BACKLOG = 2048


@click.command("serve", epilog="Example: loom serve digits.loom --port 8000")
@click.argument("file", type=click.Path())
@click.option("--host", default="127.0.0.1", show_default=True, help="The address; 0.0.0.0 for all.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 for a free one."
)
@click.option("--device", default="cpu", show_default=True, help='"cpu", "gpu", "gpu:1", or "auto".')
@click.option("--batch-rows", type=int, default=64, show_default=True, help="Samples computed at once.")
@click.option(
    "--wait", type=float, default=2.0, show_default=True, help="Milliseconds to wait for requests to join."
)
@click.option("--max-rows", type=int, default=4096, show_default=True, help="Most samples in a request.")
@click.option("--max-bytes", type=int, default=16 << 20, show_default=True, help="Most bytes in a request.")
@click.option("--max-requests", type=int, default=1024, show_default=True, help="Most requests under way.")
@click.option("--rate", type=float, help="Most requests a second of one address; any number by default.")
@click.option("--timeout", type=float, default=30.0, show_default=True, help="Seconds to answer within.")
@click.option("--access-log", is_flag=True, help="Log every request.")
def command(
    file: str,
    host: str,
    port: int,
    device: str,
    batch_rows: int,
    wait: float,
    max_rows: int,
    max_bytes: int,
    max_requests: int,
    rate: float | None,
    timeout: float,
    *,
    access_log: bool,
) -> int:
    """Answer over HTTP with what the network in FILE predicts.

    POST /predict takes JSON or .npy; /docs explains it, /health, /model and /metrics tell the rest. SIGTERM
    and Ctrl-C end it once requests under way are answered. Needs the extra "serve".
    """
    import signal
    import socket

    from loom.errors import FileError
    from loom.extras import require
    from loom.models.loading import load
    from loom.serving import ServingSettings, create_app

    uvicorn = require("uvicorn", extra="serve", purpose="loom serve")
    settings = ServingSettings(batch_rows, wait, max_rows, max_bytes, max_requests, rate, timeout)
    app = create_app(load(file).to(device), settings)
    config = uvicorn.Config(
        app,
        log_level="info" if access_log else "warning",
        access_log=access_log,
        timeout_graceful_shutdown=round(timeout) + 1,
    )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # By the protocol asyncio knows that answers are not to be held back for more to send (TCP_NODELAY).
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
            # From here on requests are kept until the server takes them.
            listening.listen(_BACKLOG)
        except OSError as error:
            raise FileError(
                error.errno, f"{host}, port {port} cannot be listened on: {error.strerror}"
            ) from error
        shown = f"[{host}]" if ":" in host else host
        write(f"http://{shown}:{listening.getsockname()[1]}/docs  (Ctrl-C ends)")
        # uvicorn raises a signal that has ended it once more, for handlers from before.
        before = {name: signal.signal(name, lambda *_: None) for name in (signal.SIGTERM, signal.SIGINT)}
        try:
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)
    return 0
