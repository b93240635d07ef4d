"""A language model to be served, and what an application of it answers, for tests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from loom.text import ChatTemplate, LanguageModel, Vocabulary
from text_models import CHAT, SETTINGS, byte_level, decoder, write_folder

TALK: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße, 森!"}]
SEEDED: dict[str, Any] = {
    "seed": 3,
    "temperature": 0.8,
    "max_tokens": 12,
    "logit_bias": {"1": -100, "5": -100},
}


def model(**settings: Any) -> LanguageModel:
    vocabulary = Vocabulary(byte_level(), frozenset({1, 5}), template=ChatTemplate(CHAT))
    return LanguageModel(decoder(400), vocabulary, **{"capacity": 200, **settings})


def folder_of_model(path: Path) -> Path:
    """Writes the same model as a folder of the Hub's shape."""
    settings = {**SETTINGS, "generation_config": {"eos_token_id": [1, 5]}}
    return write_folder(path, decoder(400), byte_level(), **settings)


def asked(app: Any, *requests: tuple[str, dict[str, Any]]) -> list[Any]:
    """What an application answers to requests that come at once."""
    import httpx

    async def ask() -> list[Any]:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://loom") as client:
            posts = [client.post(f"/v1/{path}", json=body) for path, body in requests]
            return list(await asyncio.gather(*posts))

    return asyncio.run(ask())
