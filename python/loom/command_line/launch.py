"""`loom launch`: one script in several processes that share its trainings."""

from __future__ import annotations

import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from types import FrameType

import click

__all__ = ["command"]


@click.command(
    "launch",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="Example: loom launch -n 4 train.py --epochs 10",
)
@click.option("-n", "--processes", type=click.IntRange(1), required=True, help="How many processes.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(processes: int, script: str, arguments: tuple[str, ...]) -> None:
    """Run SCRIPT in processes that share its trainings.

    SCRIPT is a Python script that calls loom.train or net.fit; ARGUMENTS go to it. All processes come to the
    same bits, whatever their number. Where one ends with an error, all end. On several machines, and for
    large networks, an MPI is faster: mpiexec -n 4 python SCRIPT.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        **os.environ,
        "LOOM_SIZE": str(processes),
        "LOOM_ADDRESS": f"127.0.0.1:{port}",
        "LOOM_KEY": secrets.token_hex(32),
    }
    # Each has its part of the processors, unless somebody has said how many.
    shared.setdefault("LOOM_NUM_THREADS", str(max((os.cpu_count() or 1) // processes, 1)))
    started = [
        subprocess.Popen([sys.executable, script, *arguments], env={**shared, "LOOM_RANK": str(rank)})
        for rank in range(processes)
    ]

    def pass_on(number: int, _frame: FrameType | None) -> None:
        for process in started:
            if process.poll() is None:
                process.send_signal(number)

    # Whoever ends this process means those that it has started, which may have something to keep.
    signal.signal(signal.SIGTERM, pass_on)
    try:
        code = _wait(started)
    except KeyboardInterrupt:
        # They have heard it, too, and end in good order.
        code = max((process.wait() for process in started), default=0)
    sys.exit(code)


_GRACE = 10.0
"""Seconds that processes have to end by themselves once one has failed."""


def _wait(processes: list[subprocess.Popen[bytes]]) -> int:
    """Waits for all; ends the others where one has failed, and returns its code."""
    while True:
        codes = [process.poll() for process in processes]
        failed = next((code for code in codes if code), None)
        if failed is not None:
            # Who was asked to end keeps what it has, which takes its time.
            asked = failed == 128 + signal.SIGTERM
            end = math.inf if asked else time.monotonic() + _GRACE
            while time.monotonic() < end and any(process.poll() is None for process in processes):
                time.sleep(0.05)
            for process in processes:
                if process.poll() is None:
                    process.kill()
            return failed if failed > 0 else 128 - failed
        if all(code == 0 for code in codes):
            return 0
        time.sleep(0.05)
