"""Devices: what may be asked for, and what this build has."""

from __future__ import annotations

from loom._checks import choice
from loom.errors import DeviceError

__all__ = ["check_device"]

_GPU_NAMES = ("gpu", "cuda", "metal", "mps", "rocm", "hip", "vulkan", "wgpu", "xpu", "tpu")


def check_device(where: str, device: object) -> str:
    """Returns the device if this build can run on it.

    Args:
        where: Who asks, for the message.
        device: "auto" or "cpu".

    Returns:
        The device, as it came.

    Raises:
        DeviceError: It is a GPU: this build has no GPU engine.
        ConfigError: The name is unknown.
    """
    if isinstance(device, str) and device.lower().partition(":")[0] in _GPU_NAMES:
        raise DeviceError(
            f'{where}: device "{device}" is not there: this build of loom has no GPU engine; '
            'use device="cpu", or device="auto" for the best there is'
        )
    return choice(where, "device", device, ("auto", "cpu"))
