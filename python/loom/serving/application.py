"""The application: its paths, and what becomes of a request."""

# Without postponed annotations: FastAPI reads those of functions here, whose classes are imported inside.
import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from math import ceil
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._native import __version__
from loom._settings.encoding import encode
from loom.convert import as_real_array
from loom.engine import engine_of
from loom.errors import (
    CellIndexError,
    ConfigError,
    DataError,
    DTypeError,
    InvalidValueError,
    LoomError,
    NonFiniteError,
    ShapeError,
)
from loom.network import Network
from loom.network.probabilities import threshold
from loom.serving.batching import Batcher
from loom.serving.bodies import NPY, BodyError, body_within, from_json, from_npy, named_from_json, to_npy
from loom.serving.limits import RateLimit
from loom.serving.measures import Measures
from loom.serving.origins import allow
from loom.serving.settings import ServingSettings

__all__ = ["application"]

_REFUSED = (CellIndexError, ConfigError, DataError, DTypeError, InvalidValueError, NonFiniteError, ShapeError)
_JSON = "application/json"
# Bodies that are longer are read in a thread, so that others are heard meanwhile.
_LONG = 1 << 16


class _Refusal(Exception):  # noqa: N818 - an answer rather than an error
    """An answer that is no prediction."""

    def __init__(self, status: int, message: str, wait: float | None = None, kind: str = "HTTPError") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.headers = {} if wait is None else {"Retry-After": str(max(1, ceil(wait)))}


def application(net: Network, settings: ServingSettings) -> Any:  # noqa: ANN401 - FastAPI's
    """Makes the application; see `loom.serving.create_app`."""
    from fastapi import FastAPI, Request, Response
    from fastapi.responses import JSONResponse
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect

    net.build()
    measures = Measures(lambda: batcher.waiting)
    engine = engine_of(net)
    indices, ports = engine.reads_indices, engine.ports
    rows_of = None if ports is None else engine.native.predict
    batcher = Batcher(net, settings.batch_rows, settings.wait / 1000, measures.batch, rows_of)
    limit = RateLimit(settings.rate)
    # What reads samples by name: of a table's columns, or of inputs with names.
    named = net.encoder is not None or (ports is not None and bool(ports.inputs))
    outputs = ports if ports is not None and ports.outputs else None
    card = net.card
    shapes = {"": net.output_shape} if outputs is None else outputs.output_shapes()
    labels = _labels_by_output(card.labels, shapes)
    # Where two classes have one output, and from where on it means the second.
    cuts = {
        name: threshold(net, name)
        for name, listed in labels.items()
        if shapes[name] == (1,) and len(listed) == 2
    }
    description = _description(net)
    under_way = 0

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await batcher.close()

    app = FastAPI(
        title="loom",
        summary="A network that answers.",
        description=card.description,
        version=__version__,
        lifespan=lifespan,
    )

    def refusal(error: _Refusal) -> Response:
        content = {"error": {"type": error.kind, "message": str(error)}}
        return JSONResponse(content, error.status, error.headers)

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> Response:
        told = refusal(_Refusal(error.status_code, str(error.detail)))
        # Such as which methods there are.
        told.headers.update(error.headers or {})
        return told

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> Response:
        return refusal(
            _Refusal(500, "something that should not happen; the log says what", None, type(error).__name__)
        )

    async def body_of(request: Request) -> bytes:
        body = await body_within(request, settings.max_bytes)
        if body is None:
            raise _Refusal(413, f"a body has {settings.max_bytes:,} bytes at most")
        return body

    async def samples_of(request: Request) -> tuple[NDArray[Any], str]:
        kind = request.headers.get("content-type", _JSON).partition(";")[0].strip().lower()
        if kind not in (_JSON, NPY, "application/octet-stream"):
            raise _Refusal(415, f"a body is {_JSON} or {NPY}, not {kind}")
        body = await body_of(request)

        def read() -> NDArray[Any]:
            by_name = named_from_json(body) if named and kind == _JSON else None
            if by_name is not None:
                found = _read_by_name(net, by_name)
            elif ports is not None and ports.inputs:
                raise BodyError(f"the network has named inputs ({', '.join(ports.input_names)}), as {_JSON}")
            else:
                found = from_json(body) if kind == _JSON else from_npy(body)
            rows = found.shape[0] if found.ndim else 0
            if rows > settings.max_rows:
                raise _Refusal(413, f"a request has {settings.max_rows:,} samples at most, not {rows:,}")
            if rows == 0:
                raise BodyError("the body has no samples")
            if by_name is not None:
                return found
            # Whole numbers stay such where they are places in a vocabulary.
            return found if indices else as_real_array(found, net.precision)

        return await run_in_threadpool(read) if len(body) > _LONG else read(), kind

    def answer_of(y: NDArray[Any], request: Request, kind: str) -> Response:
        wanted = request.headers.get("accept", "*/*").lower()
        if outputs is not None and (NPY in wanted or kind != _JSON):
            raise _Refusal(406, f"outputs with names are answered as {_JSON}")
        if NPY in wanted or (kind != _JSON and _JSON not in wanted):
            return Response(to_npy(y), media_type=NPY)
        if not np.isfinite(y).all():
            raise _Refusal(
                500, f"outputs are not finite, which JSON cannot say; ask for {NPY}", None, "NonFiniteError"
            )
        parts = None if outputs is None else outputs.unpack(y)
        told: dict[str, Any] = {
            "outputs": y.tolist() if parts is None else {name: part.tolist() for name, part in parts.items()}
        }
        if labels:
            by_name = {"": y} if parts is None else parts
            places = {
                name: (by_name[name][:, 0] > cuts[name]).astype(int)
                if name in cuts
                else by_name[name].argmax(-1)
                for name in labels
            }
            found = {name: [listed[place] for place in places[name]] for name, listed in labels.items()}
            told["labels"] = found.get("", found)
        if card.preprocessing is not None:
            told["preprocessing"] = encode(card.preprocessing)
        return Response(json.dumps(told), media_type=_JSON)

    async def predicted(request: Request) -> Response:
        wait = limit.wait(request.client.host if request.client else "")
        if wait:
            raise _Refusal(429, f"more than {settings.rate:g} requests a second", wait)
        x, kind = await samples_of(request)
        return answer_of(await batcher.predict(x), request, kind)

    @app.post(
        "/predict",
        summary="What the network says to samples",
        **_documented(net, labelled=bool(labels), by_name=outputs is not None),
    )
    async def predict(request: Request) -> Response:
        nonlocal under_way
        began = perf_counter()
        under_way += 1
        try:
            if under_way > settings.max_requests:
                raise _Refusal(503, f"{settings.max_requests} requests are under way already", 1.0)
            answer = await asyncio.wait_for(predicted(request), settings.timeout)
        except asyncio.TimeoutError:
            answer = refusal(_Refusal(504, f"not answered within {settings.timeout:g} seconds"))
        except _Refusal as error:
            answer = refusal(error)
        except ClientDisconnect:
            # Nobody reads it, but it is counted.
            answer = refusal(_Refusal(400, "the client has gone"))
        except LoomError as error:
            status = 400 if isinstance(error, BodyError) else 422 if isinstance(error, _REFUSED) else 500
            answer = refusal(_Refusal(status, str(error), None, type(error).__name__))
        finally:
            under_way -= 1
        measures.request(answer.status_code, perf_counter() - began)
        return answer

    @app.get("/health", summary="Whether it answers")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/model", summary="What the network is: shapes, device, card")
    async def model() -> dict[str, Any]:
        return description

    @app.get("/metrics", summary="Measures for Prometheus", response_class=Response)
    async def metrics() -> Response:
        return Response(measures.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    allow(app, settings.allow_origins)
    return app


def _read_by_name(net: Network, samples: dict[str, Any]) -> NDArray[Any]:
    """Returns rows of what was given by name, of a table's columns or of named inputs."""
    engine = engine_of(net)
    encoder = net.encoder
    read: Any = samples
    if encoder is not None:
        read = encoder(samples)
    elif engine.ports is not None:
        try:
            read = {name: np.asarray(values) for name, values in samples.items()}
        except (ValueError, OverflowError) as error:
            raise BodyError(f"inputs: rows of different lengths do not make an array ({error})") from error
    return engine.as_input(read)


def _description(net: Network) -> dict[str, Any]:
    ports, encoder = engine_of(net).ports, net.encoder
    more: dict[str, Any] = {}
    if ports is not None and ports.inputs:
        more["inputs"] = {entry.name: entry.shape for entry in ports.inputs}
    if ports is not None and ports.outputs:
        more["outputs"] = ports.output_shapes()
    if encoder is not None:
        more["columns"] = list(encoder.columns)
    return {
        "loom": __version__,
        "fingerprint": net.fingerprint(),
        "input_shape": list(net.input_shape),
        "output_shape": list(net.output_shape),
        **more,
        "precision": net.precision,
        "device": net.device,
        "card": net.card.to_config(),
    }


def _labels_by_output(told: object, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Sequence[str]]:
    """Returns the labels of outputs that have a value for each, or one for two; one without a name is ""."""
    given: Any = told if isinstance(told, Mapping) else {"": told or ()}
    known = {name: given[name] for name in shapes if name in given}
    return {
        name: labels
        for name, labels in known.items()
        if shapes[name] == (len(labels),) or (shapes[name] == (1,) and len(labels) == 2)
    }


def _documented(net: Network, *, labelled: bool, by_name: bool) -> dict[str, Any]:
    """Returns what the OpenAPI page says of `/predict`: bodies are read by hand."""

    def array(extents: tuple[int, ...]) -> dict[str, Any]:
        if not extents:
            return {"type": "number"}
        return {"type": "array", "items": array(extents[1:]), "minItems": extents[0], "maxItems": extents[0]}

    def content(name: str, extents: tuple[int, ...], more: dict[str, Any]) -> dict[str, Any]:
        rows = {"type": "array", "items": array(extents), "minItems": 1}
        schema = {"type": "object", "required": [name], "properties": {name: rows, **more}}
        return {_JSON: {"schema": schema}, NPY: {"schema": {"type": "string", "format": "binary"}}}

    texts_of = {"type": "array", "items": {"type": "string"}}
    listed = {"type": "object", "additionalProperties": texts_of} if by_name else texts_of
    more = {"labels": listed} if labelled else {}
    texts = {"type": {"type": "string"}, "message": {"type": "string"}}
    error = {"type": "object", "properties": {"error": {"type": "object", "properties": texts}}}
    refusals = {
        400: "The body is not what it says it is.",
        413: "Too many bytes or samples.",
        415: "The body is of another kind.",
        422: "The network cannot take the samples.",
        429: "Too many requests; Retry-After says when to come again.",
        500: "The network failed.",
        503: "Too many are under way; Retry-After says when to come again.",
        504: "Not answered in time.",
    }
    return {
        "responses": {
            200: {"description": "The outputs.", "content": content("outputs", net.output_shape, more)},
            **{
                status: {"description": told, "content": {_JSON: {"schema": error}}}
                for status, told in refusals.items()
            },
        },
        "openapi_extra": {
            "requestBody": {"required": True, "content": content("inputs", net.input_shape, {})}
        },
    }
