"""The public path of inference that goes on from its last call; see `loom.network.session`."""

from loom.network.session import Session

__all__ = ["Session"]
