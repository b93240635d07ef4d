"""Keeping a mesh that learns from a stream in a run's folder, and going on from it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from loom import _native
from loom.engine import engine_of
from loom.errors import SerializationError
from loom.mesh.mesh import Mesh, adopt, native_mesh
from loom.mesh.result import SteppingResult
from loom.training.notes import read_notes, write_notes
from loom.training.run_store import RunStore

__all__ = ["MeshKeeper"]

_KEY = "RunFolder"


class MeshKeeper:
    """Keeps a mesh's run in its folder.

    Args:
        store: The folder.
        mesh: What is trained; it becomes what the newest state holds, where there is one.
        identity: What makes the run the one that it is, the network aside.
    """

    def __init__(self, store: RunStore, mesh: Mesh, identity: Mapping[str, Any]) -> None:
        self.before = SteppingResult([], 0, 0, 0)
        """What the run had come to in processes before this one."""
        self.result: SteppingResult | None = None
        """What the run gave back, where the folder has that."""
        self.position: Any = None
        """Where the stream is, if it says so itself."""
        self.resumes = False
        """Whether there is a state to go on from."""
        self._store, self._mesh = store, mesh
        changed = store.open(mesh.network, identity)
        self.result = None if changed else store.result(SteppingResult)
        found = None if self.result is None else store.final(_read)
        if found is None:
            self.result = None
            found = store.newest(_read)
        if found is not None:
            data, state = found
            adopt(mesh, data)
            self.before = SteppingResult(**{**state["result"], "losses": state["result"]["losses"].tolist()})
            self.position = state["position"]
            self.resumes = True

    def total(self, since: SteppingResult) -> SteppingResult:
        """Returns what the run has come to, by what it did in this process."""
        before = self.before
        return replace(
            since,
            losses=before.losses + since.losses,
            samples=before.samples + since.samples,
            ticks=before.ticks + since.ticks,
            updates=before.updates + since.updates,
            skipped_updates=before.skipped_updates + since.skipped_updates,
            explosions=before.explosions + since.explosions,
            total_time=before.total_time + time.perf_counter() - self._store.began,
        )

    def is_due(self) -> bool:
        """Counts a sample; whether a state is to be written."""
        return self._store.is_due(1, between=True)

    def save(self, since: SteppingResult, position: object) -> None:
        """Writes a state, right after an update."""
        total = self.total(since)
        self._store.save(f"sample-{total.samples:012d}.loom", lambda: self._bytes(total, position))

    def finish(self, since: SteppingResult) -> SteppingResult:
        """Writes what the run gives back, and returns it."""
        result = self.total(since)
        self._store.finish(self._bytes(result, None), asdict(result))
        return result

    def _bytes(self, total: SteppingResult, position: object) -> bytes:
        state = {"result": {**asdict(total), "losses": np.array(total.losses)}, "position": position}
        write_notes(engine_of(self._mesh.network).native, [(_KEY, state)])
        return native_mesh(self._mesh).to_bytes(True)


def _read(data: bytes) -> tuple[bytes, Mapping[str, Any]]:
    state = dict(read_notes(_native.Network.from_bytes(data))).get(_KEY)
    if state is None:
        raise SerializationError("it holds no state of a run")
    return data, state
