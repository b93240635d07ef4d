"""Where a network computes, and who has said so."""

from __future__ import annotations

from loom import _native

__all__ = ["Placement"]


class Placement:
    """A network's device.

    Args:
        native: The native network.
    """

    def __init__(self, native: _native.Network) -> None:
        self._native = native
        self.device = native.device()
        # Whether somebody has said where the network is to be.
        self._chosen = False

    def stays_for(self, device: str) -> bool:
        """Whether training on a device leaves the network where it is: with "auto", if it was placed."""
        return device == "auto" and self._chosen

    def move(self, device: str) -> None:
        """Moves the network; "auto" also leaves it to training again where it is to be.

        Args:
            device: As `loom.Network.to` takes it.

        Raises:
            DeviceError: The GPU is not there, or cannot compute in the network's precision.
        """
        self._native.to(device)
        self._chosen = device != "auto"
        self.device = self._native.device()
