"""`loom serve` of a language model in a process of its own, for tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

KEY = "a secret"


class Server:
    """`loom serve` in a process of its own."""

    def __init__(self, path: Path, *words: str) -> None:
        command = [sys.executable, "-m", "loom", "serve", str(path), "--port", "0", *words]
        environment = {**os.environ, "LOOM_API_KEY": KEY}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.match(r"(http://127\.0\.0\.1:\d+)/  \(Ctrl-C ends\)", line)
        assert found, line
        self.url = found[1]

    def client(self, **settings: Any) -> Any:
        import openai

        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=KEY, timeout=60, max_retries=0, **settings)

    def measure(self, name: str) -> float:
        import httpx

        told = httpx.get(f"{self.url}/metrics").text
        found = re.search(rf"^{re.escape(name)} ([\d.e+]+)$", told, re.MULTILINE)
        return float(found[1]) if found else 0.0

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
