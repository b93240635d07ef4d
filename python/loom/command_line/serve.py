"""`loom serve`: a network or a language model that answers over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from loom.command_line.completion import numeric_types
from loom.command_line.output import write
from loom.command_line.text_options import guessing_by

__all__ = ["command"]

_BACKLOG = 2048
# Answers of language models that take longer are not waited for when the server ends.
_LONGEST_END = 30.0


@click.command("serve", epilog="Example: loom serve digits.loom --port 8000")
@click.argument("file", type=click.Path())
@click.option("--host", default="127.0.0.1", show_default=True, help="The address; 0.0.0.0 for all.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 for a free one."
)
@click.option("--device", default="cpu", show_default=True, help='"cpu", "gpu", "gpu:1", or "auto".')
@click.option(
    "--as",
    "kind",
    type=click.Choice(["auto", "network", "language-model"]),
    default="auto",
    show_default=True,
    help="What FILE is served as; by default what it holds.",
)
@click.option("--max-bytes", type=int, help="Most bytes in a request.  [default: 16 MiB, or 4 MiB]")
@click.option("--max-requests", type=int, help="Most requests under way.  [default: 1024, or 256]")
@click.option("--rate", type=float, help="Most requests a second of one address; any number by default.")
@click.option("--timeout", type=float, help="Seconds to answer within.  [default: 30, or 600]")
@click.option(
    "--allow-origin",
    "allow_origins",
    multiple=True,
    metavar="ORIGIN",
    help='Pages of this origin may ask from a browser; may be repeated, and "*" is all.',
)
@click.option("--access-log", is_flag=True, help="Log every request.")
@click.option("--batch-rows", type=int, help="Networks: samples computed at once.  [default: 64]")
@click.option("--wait", type=float, help="Networks: milliseconds to wait for requests to join.  [default: 2]")
@click.option("--max-rows", type=int, help="Networks: most samples in a request.  [default: 4096]")
@click.option(
    "--dtype", shell_complete=numeric_types, help='Language models: pack the weights, such as "int8".'
)
@click.option(
    "--activations",
    type=click.Choice(["int8"]),
    help="Language models: quantise activations, too: faster on a processor with packed weights.",
)
@click.option(
    "--adapter", type=click.Path(), help="Language models: the folder of an adapter beside the weights."
)
@click.option(
    "--capacity", type=int, help="Language models: most tokens of a prompt and its answer together."
)
@click.option(
    "--cache-dtype",
    type=click.Choice(["float16", "q8_0"]),
    help="Language models: keep keys and values in fewer bits, on a processor.",
)
@click.option("--name", help="Language models: what it is called.  [default: the file's name]")
@click.option(
    "--api-key", envvar="LOOM_API_KEY", help="Language models: what requests must bring; also LOOM_API_KEY."
)
@click.option(
    "--draft",
    metavar="MODEL",
    help='Language models: guesses ahead while one answer is made, a smaller model or "lookup".',
)
@click.option("--max-running", type=int, help="Language models: answers made side by side.  [default: 4]")
@click.option("--max-tokens", type=int, help="Language models: most tokens of an answer.")
def command(
    file: str, host: str, port: int, device: str, kind: str, *, access_log: bool, **options: object
) -> int:
    """Answer over HTTP with the network or model in FILE.

    A network: POST /predict takes JSON or .npy; /docs explains it, /health, /model and /metrics tell
    the rest.

    A language model, a folder of the Hugging Face Hub or a GGUF file: OpenAI's /v1/completions,
    /v1/chat/completions, /v1/embeddings and /v1/models, and a page to chat on. Needs the extra "text", too.

    SIGTERM and Ctrl-C end it once requests under way are answered. Needs the extra "serve".
    """
    from loom.extras import require
    from loom.text import is_language_model

    require("uvicorn", extra="serve", purpose="loom serve")
    given = {name: value for name, value in options.items() if value is not None and value != ()}
    speaks = kind == "language-model" or (kind == "auto" and is_language_model(file))
    app, timeout, page = (_of_language if speaks else _of_network)(file, device, given)
    return _run(app, host, port, timeout, page, access_log=access_log)


_OF_NETWORKS = ("batch_rows", "wait", "max_rows")
_OF_LANGUAGE = (
    "dtype",
    "activations",
    "adapter",
    "capacity",
    "cache_dtype",
    "name",
    "draft",
    "api_key",
    "max_running",
    "max_tokens",
)


def _check_none(given: dict[str, Any], names: tuple[str, ...], what: str) -> None:
    """Refuses options that are for something else; a key in the environment is none."""
    context = click.get_current_context()
    from_words = click.core.ParameterSource.COMMANDLINE
    for name in names:
        if context.get_parameter_source(name) == from_words:
            raise click.UsageError(f"--{name.replace('_', '-')} is not for {what}")
        given.pop(name, None)


def _of_network(file: str, device: str, given: dict[str, Any]) -> tuple[Any, float, str]:
    """Returns the application of a network, the seconds that its end waits, and its page."""
    from loom.models.loading import load
    from loom.serving import ServingSettings, create_app

    _check_none(given, _OF_LANGUAGE, "a network")
    settings = ServingSettings(**given)
    return create_app(load(file).to(device), settings), settings.timeout, "/docs"


def _of_language(file: str, device: str, given: dict[str, Any]) -> tuple[Any, float, str]:
    """Returns the application of a language model, the seconds that its end waits, and its page."""
    from loom.serving import LanguageSettings, create_language_app
    from loom.text import load

    _check_none(given, _OF_NETWORKS, "a language model")
    names = ("dtype", "activations", "capacity", "cache_dtype")
    loading = {name: given.pop(name) for name in names if name in given}
    draft = guessing_by(given.pop("draft", None))
    adapter = given.pop("adapter", None)
    path = Path(file)
    usual = path.stem if path.suffix == ".gguf" else path.resolve().name
    settings = LanguageSettings(**{"name": usual, **given})
    model = load(file, **loading, device=device)
    if adapter is not None:
        model.network.load_adapter(adapter)
    app = create_language_app(model, settings, draft=draft)
    return app, min(settings.timeout, _LONGEST_END), "/"


def _run(app: Any, host: str, port: int, timeout: float, page: str, *, access_log: bool) -> int:  # noqa: ANN401
    """Serves an application until a signal ends it."""
    import signal
    import socket

    import uvicorn

    from loom.errors import FileError

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
        write(f"http://{shown}:{listening.getsockname()[1]}{page}  (Ctrl-C ends)")
        # uvicorn raises a signal that has ended it once more, for handlers from before.
        before = {name: signal.signal(name, lambda *_: None) for name in (signal.SIGTERM, signal.SIGINT)}
        try:
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)
    return 0
