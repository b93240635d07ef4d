"""A server on this machine under several clients at once, beside a plain loop of `net.predict`.

Usage: load.py [SECONDS [CLIENTS...]]

Starts `loom serve` with a 784-512-512-10 perceptron, asks it for one sample at a time by so many clients
(1, 8 and 32 by default), each with a connection that stays, for so many seconds each (3), and prints answers
a second, and the latency that half and 99 in 100 of the answers had. The plain loop predicts the same
samples one by one, and by 64. Every answer is compared with that of the loop, bit for bit.
"""

from __future__ import annotations

import http.client
import io
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Thread

import numpy as np
from numpy.typing import NDArray

import loom
from loom import nn

_SAMPLES = 64
_NPY = {"Content-Type": "application/x-npy"}


def packed(array: NDArray[np.float32]) -> bytes:
    """Returns an array as .npy."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


class Client(Thread):
    """Asks until the time is over.

    Args:
        port: The server's.
        requests: Bodies, and the answers that they have to get.
        seconds: How long.
    """

    def __init__(self, port: int, requests: list[tuple[bytes, bytes]], seconds: float) -> None:
        super().__init__()
        self.port, self.requests, self.seconds = port, requests, seconds
        self.times: list[float] = []
        self.wrong = 0

    def run(self) -> None:
        """Asks."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        end = time.perf_counter() + self.seconds
        turn = 0
        while time.perf_counter() < end:
            body, wanted = self.requests[turn % len(self.requests)]
            began = time.perf_counter()
            connection.request("POST", "/predict", body, _NPY)
            found = connection.getresponse().read()
            self.times.append(time.perf_counter() - began)
            self.wrong += found != wanted
            turn += 1
        connection.close()


def loop_rate(net: loom.Network, x: NDArray[np.float32], rows: int, seconds: float) -> float:
    """Returns the samples a second of a plain loop."""
    end, done = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        net.predict(x[:rows])
        done += rows
    return done / seconds


def served(port: int, clients: int, requests: list[tuple[bytes, bytes]], seconds: float) -> str:
    """Asks with so many clients, and returns what came out."""
    asking = [Client(port, requests[place:] + requests[:place], seconds) for place in range(clients)]
    for client in asking:
        client.start()
    for client in asking:
        client.join()
    times = sorted(1000 * taken for client in asking for taken in client.times)
    wrong = sum(client.wrong for client in asking)
    return (
        f"{clients:3} clients: {len(times) / seconds:8,.0f} answers/s, "
        f"{statistics.median(times):6.1f} ms half, {times[len(times) * 99 // 100]:6.1f} ms 99 %, "
        f"{wrong} wrong"
    )


def main(arguments: list[str]) -> int:
    """Prints a line for the loop, and one for each number of clients."""
    seconds = float(arguments[0]) if arguments else 3.0
    counts = [int(count) for count in arguments[1:]] or [1, 8, 32]
    layers = [nn.Dense(512, activation="relu"), nn.Dense(512, activation="relu"), nn.Dense(10)]
    net = loom.Sequential(layers, input_shape=784)
    x = np.random.default_rng(0).normal(size=(_SAMPLES, 784)).astype(np.float32)
    requests = [(packed(x[row : row + 1]), packed(net.predict(x[row : row + 1]))) for row in range(_SAMPLES)]
    one, many = loop_rate(net, x, 1, seconds), loop_rate(net, x, _SAMPLES, seconds)
    print(f"plain loop: {one:8,.0f} samples/s one by one, {many:8,.0f} by {_SAMPLES}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.loom"
        net.save(path)
        command = [sys.executable, "-m", "loom", "serve", str(path), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            port = int(server.stdout.readline().split("/docs")[0].rpartition(":")[2])
            lines = [served(port, count, requests, seconds) for count in counts]
            server.terminate()
    print("\n".join(lines))
    return int(any(not line.endswith(" 0 wrong") for line in lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
