"""The application for language models: OpenAI's interface, and a page to chat on."""

# Without postponed annotations: FastAPI reads those of functions here, whose classes are imported inside.
import asyncio
import hmac
import html
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager
from functools import partial
from importlib import resources
from math import ceil
from time import monotonic
from typing import Any, Literal, TypeVar

from loom._native import __version__
from loom.errors import InvalidValueError, LoomError
from loom.serving.bodies import body_within
from loom.serving.limits import RateLimit
from loom.serving.measures import LanguageMeasures
from loom.serving.openai_answers import Answer, embeddings, error_of, usage_of
from loom.serving.openai_requests import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    RequestError,
    read_request,
)
from loom.serving.origins import allow
from loom.serving.settings import LanguageSettings
from loom.serving.turns import Turns
from loom.text import ContextLengthError, Generation, LanguageModel, Options
from loom.text.errors import FormError, OptionError
from loom.text.guessing import guesser_of

__all__ = ["language_application"]

T = TypeVar("T")

_PATHS = ("completions", "chat/completions", "embeddings")

# Nothing from elsewhere, and nothing that others could put in.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"


class _Gone(Exception):  # noqa: N818 - no error
    """Nobody listens any more."""


def language_application(
    model: LanguageModel,
    settings: LanguageSettings,
    draft: LanguageModel | Literal["lookup"] | None = None,
) -> Any:  # noqa: ANN401 - FastAPI's
    """Makes the application; see `loom.serving.create_language_app`."""
    from fastapi import FastAPI, Request, Response
    from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect

    # What cannot guess is told now, and not to whoever asks first.
    guesser_of(draft, model)
    under_way = 0

    class Stream(StreamingResponse):
        """An answer that is under way until the last of it is sent."""

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's
            nonlocal under_way
            try:
                await super().__call__(scope, receive, send)
            finally:
                under_way -= 1

    turns = Turns(model.batch(settings.max_running), settings.max_running)
    measures = LanguageMeasures(lambda: turns.running, lambda: turns.waiting)
    limit = RateLimit(settings.rate)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        turns.close()

    app = FastAPI(
        title="loom", summary="A language model that answers.", version=__version__, lifespan=lifespan
    )

    def refusal(error: RequestError, wait: float | None = None) -> Response:
        headers = {} if wait is None else {"Retry-After": str(max(1, ceil(wait)))}
        if error.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse(error_of(error), error.status, headers)

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> Response:
        told = refusal(RequestError(str(error.detail), None, error.status_code))
        # Such as which methods there are.
        told.headers.update(error.headers or {})
        return told

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> Response:
        told = f"something that should not happen; the log says what ({type(error).__name__})"
        return refusal(RequestError(told, None, 500))

    def check_key(request: Request) -> None:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        # The scheme's letters may be of either case; a header may hold any bytes.
        given = key.strip().encode() if scheme.lower() == "bearer" else b""
        if settings.api_key is not None and not hmac.compare_digest(given, settings.api_key.encode()):
            raise RequestError(
                "Incorrect API key provided: this server asks for one, as Authorization: Bearer KEY",
                None,
                401,
                "invalid_api_key",
            )

    def begun(request: CompletionRequest | ChatRequest) -> list[Generation]:
        """Makes an answer of each choice, of which nothing is computed yet."""
        made = []
        if isinstance(request, ChatRequest) and request.tools:
            # A model that knows no tools says so.
            try:
                model.tool_reader()
            except LoomError as error:
                raise RequestError(str(error), "tools") from error
        prompts: list[Any] = [None] if isinstance(request, ChatRequest) else request.prompts
        for prompt in prompts:
            for choice in range(request.choices):
                options: Options = {**request.options, "stream": choice, "draft": draft}
                if isinstance(request, ChatRequest):
                    made.append(
                        model.chat(
                            request.messages,
                            tools=request.tools or None,
                            tool_choice=request.tool_choice,
                            values=request.values,
                            **options,
                        )
                    )
                else:
                    made.append(model.generate(prompt, **options))
        if settings.max_tokens is not None:
            for each in made:
                each.limit(settings.max_tokens)
        return made

    def echoes(request: CompletionRequest | ChatRequest) -> list[str]:
        """Returns what is told before each answer."""
        if isinstance(request, ChatRequest):
            return [""] * request.choices
        texts = [
            "" if not request.echo else prompt if isinstance(prompt, str) else model.decode(prompt)
            for prompt in request.prompts
        ]
        return [text for text in texts for _ in range(request.choices)]

    async def written(generation: Generation, deadline: float) -> None:
        async with turns.place(deadline), aclosing(turns.pieces(generation, deadline)) as pieces:
            async for _ in pieces:
                pass
        count(generation)

    def count(generation: Generation) -> None:
        read, reused = generation.prompt_tokens, generation.reused_tokens
        measures.tokens(read - reused, reused, len(generation.tokens))

    async def whole(
        request: CompletionRequest | ChatRequest, generations: list[Generation], deadline: float
    ) -> Response:
        for generation in generations:
            await written(generation, deadline)
        chat = isinstance(request, ChatRequest)
        answer = Answer(
            model, settings.name, chat=chat, tools=isinstance(request, ChatRequest) and bool(request.tools)
        )
        logprobs = request.options.get("logprobs") is not None
        choices = [
            answer.choice(index, generation, echo, logprobs=logprobs)
            for index, (generation, echo) in enumerate(zip(generations, echoes(request), strict=True))
        ]
        return JSONResponse(answer.whole(choices, usage_of(generations, request.choices)))

    async def events(
        request: CompletionRequest | ChatRequest, generations: list[Generation], deadline: float
    ) -> AsyncIterator[str]:
        chat = isinstance(request, ChatRequest)
        answer = Answer(
            model, settings.name, chat=chat, tools=isinstance(request, ChatRequest) and bool(request.tools)
        )
        logprobs = request.options.get("logprobs") is not None
        # With usage at the end each piece before it says that it has none.
        usage: dict[str, Any] = {"usage": None} if request.usage else {}

        def event(choice: dict[str, Any]) -> str:
            return _event({**answer.piece([choice]), **usage})

        try:
            for index, (generation, echo) in enumerate(zip(generations, echoes(request), strict=True)):
                async with turns.place(deadline), aclosing(turns.pieces(generation, deadline)) as pieces:
                    begin = answer.begin(index, echo)
                    if begin is not None:
                        yield event(begin)
                    told = 0
                    async for piece in pieces:
                        if piece.text or piece.last:
                            yield event(answer.part(index, piece, told, logprobs=logprobs))
                            told = piece.tokens
                count(generation)
        except (asyncio.TimeoutError, LoomError) as error:
            yield _event(error_of(_as_refusal(error, settings)))
            return
        if request.usage:
            yield _event(answer.piece([], usage_of(generations, request.choices)))
        yield "data: [DONE]\n\n"

    async def embedded(request: EmbeddingRequest, deadline: float) -> Response:
        rows = await run_in_threadpool(
            lambda: [model.encode(text) if isinstance(text, str) else text for text in request.texts]
        )
        vectors = []
        async with turns.place(deadline):
            # A text is a turn.
            for row in rows:
                made = await turns.run(partial(model.embed, [row]), deadline)
                vectors.append(made[0])
        tokens = sum(map(len, rows))
        measures.tokens(tokens, 0, 0)
        return JSONResponse(embeddings(vectors, tokens, settings.name, packed=request.packed))

    async def answered(path: str, request: Request, deadline: float) -> Response:
        # Who sends no more of it has a place among those under way.
        body = await asyncio.wait_for(body_within(request, settings.max_bytes), deadline - monotonic())
        if body is None:
            raise RequestError(f"a body has {settings.max_bytes:,} bytes at most", None, 413)
        asked = read_request(path, body, settings.name, settings.max_tokens, settings.max_choices)
        try:
            if isinstance(asked, EmbeddingRequest):
                return await _while_listening(request, embedded(asked, deadline))
            # Long texts take a while to become tokens.
            generations = await asyncio.wait_for(run_in_threadpool(begun, asked), deadline - monotonic())
        except InvalidValueError as error:
            raise _blamed(error, asked) from error
        if asked.stream:
            return Stream(
                events(asked, generations, deadline),
                media_type="text/event-stream",
                headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
            )
        return await _while_listening(request, whole(asked, generations, deadline))

    async def served(path: str, request: Request) -> Response:
        nonlocal under_way
        began = monotonic()
        under_way += 1
        wait, answer = None, None
        try:
            check_key(request)
            wait = limit.wait(request.client.host if request.client else "") or None
            if wait:
                raise RequestError(
                    f"more than {settings.rate:g} requests a second", None, 429, "rate_limit_exceeded"
                )
            if under_way > settings.max_requests:
                wait = 1.0
                raise RequestError(f"{settings.max_requests} requests are under way already", None, 503)
            answer = await answered(path, request, began + settings.timeout)
        except (_Gone, ClientDisconnect):
            # Nobody reads it, but it is counted.
            answer = refusal(RequestError("the client has gone", None, 400))
        except (asyncio.TimeoutError, LoomError) as error:
            answer = refusal(_as_refusal(error, settings), wait)
        finally:
            if not isinstance(answer, Stream):
                under_way -= 1
        measures.request(f"/v1/{path}", answer.status_code, monotonic() - began)
        return answer

    def route(path: str) -> None:
        @app.post(f"/v1/{path}", summary=f"OpenAI's /v1/{path}")
        async def serve(request: Request) -> Response:
            return await served(path, request)

    for path in _PATHS:
        route(path)

    described = {"id": settings.name, "object": "model", "created": 0, "owned_by": "loom"}

    @app.get("/v1/models", summary="The model")
    async def models(request: Request) -> Response:
        try:
            check_key(request)
        except RequestError as error:
            return refusal(error)
        return JSONResponse({"object": "list", "data": [described]})

    @app.get("/v1/models/{name:path}", summary="The model")
    async def named(name: str, request: Request) -> Response:
        try:
            check_key(request)
            if name != settings.name:
                raise RequestError(f"The model '{name}' does not exist", "model", 404, "model_not_found")
        except RequestError as error:
            return refusal(error)
        return JSONResponse(described)

    @app.get("/health", summary="Whether it answers")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/metrics", summary="Measures for Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(measures.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    page = resources.files("loom.serving").joinpath("chat.html").read_text(encoding="utf-8")
    page = page.replace("{{name}}", html.escape(settings.name, quote=True))
    page = page.replace("{{chat}}", "true" if model.vocabulary.template is not None else "false")

    @app.get("/", summary="A page to chat on", response_class=HTMLResponse)
    async def chat() -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": _POLICY})

    allow(app, settings.allow_origins)
    return app


# Characters that clients which read line by line may take for ends of lines.
_ENDS_OF_LINES = str.maketrans({each: f"\\u{ord(each):04x}" for each in "\x85\u2028\u2029"})


def _event(told: dict[str, Any]) -> str:
    """Writes a server-sent event."""
    return f"data: {json.dumps(told, ensure_ascii=False).translate(_ENDS_OF_LINES)}\n\n"


def _as_refusal(error: BaseException, settings: LanguageSettings) -> RequestError:
    """Returns what is told of an error."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, FormError):
        return RequestError(str(error), "response_format")
    if isinstance(error, asyncio.TimeoutError):
        return RequestError(f"not answered within {settings.timeout:g} seconds", None, 504)
    # What a request asks for is wrong by its value, or the network has failed.
    return RequestError(str(error), None, 400 if isinstance(error, ValueError) else 500)


# What options are called in requests, where that is not their own name.
_ASKED = {
    **dict.fromkeys(("regex", "json_schema", "grammar"), "response_format"),
    "values": "chat_template_kwargs",
}


# What requests call their texts.
_TEXTS = {ChatRequest: "messages", CompletionRequest: "prompt", EmbeddingRequest: "input"}


def _blamed(
    error: InvalidValueError, request: CompletionRequest | ChatRequest | EmbeddingRequest
) -> RequestError:
    """Returns what is told of a request that the model refuses, with what of it is wrong."""
    if isinstance(error, OptionError):
        return RequestError(str(error), _ASKED.get(error.option, error.option))
    code = "context_length_exceeded" if isinstance(error, ContextLengthError) else None
    return RequestError(str(error), _TEXTS[type(request)], 400, code)


async def _while_listening(request: Any, work: Coroutine[Any, Any, T]) -> T:  # noqa: ANN401 - Starlette's
    """Returns what some work makes; ends it where the client goes.

    Raises:
        _Gone: It has gone.
    """

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise _Gone
        return await working
    finally:
        leaving.cancel()
        # A cancellation that meets a result just there is lost in `wait_for`, before Python 3.12.
        while not working.done():
            working.cancel()
            await asyncio.wait({working}, timeout=0.01)
        if not working.cancelled():
            # Nobody asks for it any more where the client has gone; asyncio would complain.
            working.exception()
