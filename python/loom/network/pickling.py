"""Pickles and copies of a network: a file's bytes, and the attributes that its users gave it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from loom import _native
from loom.architecture import NetworkConfig
from loom.engine import Engine, NetworkT, engine_of
from loom.training.record import HasRecord, TrainingRecord, portable, record_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from loom.training.config import TrainingConfig

__all__ = ["OWN_ATTRIBUTES", "Restored", "around", "bare_copy", "reduced"]

OWN_ATTRIBUTES = frozenset({"_engine", "_record"})
"""What a network has that is made anew with it: all attributes but those that its users give it."""


def reduced(
    network: Any,  # noqa: ANN401 - a network of any class
    engine: Engine,
    record: TrainingRecord,
) -> tuple[Any, ...]:
    """Returns what `object.__reduce__` is to: how the network is made again."""
    kind, slots = type(network), _slots_of(network)
    # What the network itself, or a subclass's `__getstate__`, says is to be kept.
    own: dict[str, Any] = network.__getstate__()
    state = (own, slots) if slots else own or None
    if not engine.config.cells:
        return _begin, (kind, engine.config), state
    record.bring_up_to_date()
    return _restore, (kind, engine.native.to_bytes(True), portable(record.judged_by)), state


def _slots_of(network: object) -> dict[str, Any]:
    """Returns what a subclass keeps in `__slots__`."""
    named = [getattr(kind, "__slots__", ()) for kind in type(network).__mro__]
    names = [name for slots in named for name in ([slots] if isinstance(slots, str) else slots)]
    return {name: getattr(network, name) for name in names if hasattr(network, name)}


class Restored(HasRecord, Protocol):
    """What is asked of the class of a network that is made again, or of another one."""

    @classmethod
    def _wrap(cls, native: _native.Network) -> Self: ...


RestoredT = TypeVar("RestoredT", bound=Restored)


def around(kind: type[RestoredT], native: _native.Network) -> RestoredT:
    """Returns a network of a class around a native one."""
    return kind._wrap(native)


def bare_copy(network: NetworkT) -> NetworkT:
    """Returns a copy of a built network on the CPU, without optimizer's state and its user's attributes."""
    kind: Any = type(network)
    copy: NetworkT = kind._wrap(_native.Network.from_bytes(engine_of(network).native.to_bytes(False)))
    return copy


def _begin(kind: type[RestoredT], config: NetworkConfig) -> RestoredT:
    return kind._wrap(_native.Network(json.dumps(config.to_config())))


def _restore(kind: type[RestoredT], data: bytes, judged_by: TrainingConfig | None) -> RestoredT:
    network = kind._wrap(_native.Network.from_bytes(data))
    record_of(network).judged_by = judged_by
    return network
