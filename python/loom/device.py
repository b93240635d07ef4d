"""Devices: which there are, how they are named, and what a GPU has done.

A network computes on the processor ("cpu") or, through Vulkan, Metal or DX12, on a
GPU ("gpu" or "gpu:0", "gpu:1", ...). No GPU is touched before one of these functions,
`Network.to` or training asks for it.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Literal, cast

from loom import _native
from loom._forks import renewed
from loom._settings.checks import choice
from loom._settings.suggestions import shown, unknown
from loom._tables import settings_table, table
from loom.errors import ConfigError, DeviceError

__all__ = [
    "Device",
    "DeviceList",
    "FrameStatistics",
    "KernelTime",
    "check_device",
    "devices",
    "driver_hint",
    "frame_statistics",
    "init_gpu",
    "missing_driver_told",
    "release_gpu",
    "reset_frame_statistics",
    "time_frames",
]

_GPU = re.compile(r"gpu(:[0-9]{1,9})?")
# What a system with an NVIDIA GPU has, and a container that was given one.
_NVIDIA = (Path("/dev/nvidiactl"), Path("/proc/driver/nvidia/version"))
# What GPUs are called elsewhere.
_FOREIGN = frozenset({"cuda", "hip", "metal", "mps", "opencl", "rocm", "vulkan", "webgpu", "wgpu", "xpu"})


@dataclass(frozen=True)
class Device:
    """What a network can compute on.

    Args:
        name: As `Network.to` takes it: "cpu", "gpu:0".
        hardware: As its maker or driver calls it.
        backend: "cpu", "vulkan", "metal" or "dx12".
        driver: The driver with its version; for the processor, the instruction set and
            the number of threads.
        software: Whether it is a GPU that a program on the CPU plays; "auto" never
            chooses such a one.
        max_buffer: The bytes of the largest array; None where only memory limits it.
        max_binding: The bytes of an array that one kernel can see; None where only
            memory limits it.
        float16: Whether kernels can compute in 16-bit floats.
        subgroups: Whether threads of a kernel can exchange values directly.
        cooperative_matrices: Whether kernels can multiply small matrices of 16-bit
            floats as a whole (tensor cores).
        timestamps: Whether the time of frames can be measured on the device.
    """

    name: str
    hardware: str
    backend: str
    driver: str
    software: bool = False
    max_buffer: int | None = None
    max_binding: int | None = None
    float16: bool = False
    subgroups: bool = False
    cooperative_matrices: bool = False
    timestamps: bool = False

    def __str__(self) -> str:
        software = ", software" if self.software else ""
        return f"{self.name}: {self.hardware} ({self.backend}, {self.driver}{software})"

    def _repr_html_(self) -> str:
        """Returns what it can do as a table, for notebooks."""
        return settings_table(str(self), self)


class DeviceList(list[Device]):
    """Devices, and why there is no GPU among them where that is so.

    Args:
        found: The devices.
        reason: Why there is no GPU; None where there is one.
    """

    def __init__(self, found: list[Device], reason: str | None) -> None:
        super().__init__(found)
        self.reason = reason

    def __str__(self) -> str:
        lines = [str(device) for device in self]
        return "\n".join(lines if self.reason is None else [*lines, f"no GPU: {self.reason}"])

    def _repr_html_(self) -> str:
        """Returns the devices as a table, for notebooks."""
        rows = [
            (device.name, device.hardware, device.backend, device.driver, "yes" if device.software else "")
            for device in self
        ]
        head = ("name", "hardware", "backend", "driver", "software")
        return table("devices", head, rows, "" if self.reason is None else f"no GPU: {self.reason}")


@dataclass(frozen=True)
class KernelTime:
    """The time that one kernel has taken on a GPU.

    Args:
        label: What the kernel does.
        runs: How often it ran.
        seconds: All runs together.
    """

    label: str
    runs: int
    seconds: float


@dataclass(frozen=True)
class FrameStatistics:
    """What the command frames of a GPU have done since they were last reset.

    Args:
        frames: Frames recorded; one may hold many training steps.
        steps: Steps in them.
        dispatches: Kernels started.
        submits: Command buffers handed to the driver.
        bytes_up: Bytes copied to the GPU.
        bytes_down: Bytes read back.
        device_seconds: How long the GPU worked, where `time_frames` asks for it.
        memory: Bytes that loom holds there now.
        kernels: The time of each kernel, the longest first, where `time_frames` asks for it.
    """

    frames: int
    steps: int
    dispatches: int
    submits: int
    bytes_up: int
    bytes_down: int
    device_seconds: float
    memory: int
    kernels: tuple[KernelTime, ...] = ()


def devices() -> DeviceList:
    """Returns every device of this machine: the processor first, then the GPUs, hardware before software.

    Returns:
        The devices; `reason` says why there is no GPU, where there is none.

    Examples:
        >>> found = loom.devices()
        >>> found[0].name
        'cpu'
        >>> all(device.name.startswith("gpu:") for device in found[1:])
        True
        >>> (found.reason is None) == (len(found) > 1)
        True
    """
    with _QUIET:
        adapters, reason = _native.adapters()
    isa, threads = _native.machine()
    processor = Device(
        name="cpu",
        hardware=_processor(),
        backend="cpu",
        driver=f"{isa}, {threads} thread{'s' * (threads != 1)}",
    )
    found = DeviceList([processor, *(Device(**adapter) for adapter in adapters)], reason)
    if reason is not None:
        found.reason = "; ".join(filter(None, (reason, driver_hint(found))))
    return found


def driver_hint(found: list[Device]) -> str | None:
    """Says what a container lacks that was given an NVIDIA GPU, but not its Vulkan driver.

    Args:
        found: The devices there are.

    Returns:
        What to do; None where there is a GPU that is hardware, or no sign of one of NVIDIA's.
    """
    hardware = any(device.name != "cpu" and not device.software for device in found)
    if hardware or not any(path.exists() for path in _NVIDIA):
        return None
    return (
        "an NVIDIA GPU is here, but no Vulkan driver for it: containers get one by the environment variable "
        "NVIDIA_DRIVER_CAPABILITIES=graphics,compute,utility (docker run --gpus all -e ...), "
        "and need libvulkan1 beside it"
    )


class _Quiet:
    """Keeps Mesa's drivers from writing errors where there is no desktop, which concern nobody.

    They ask for the desktop's choice of a GPU when they are looked for, and where XDG_RUNTIME_DIR is not
    set, as in containers and over SSH, write "error: XDG_RUNTIME_DIR is invalid or not set". With any folder
    they find no desktop either, and say nothing. Of several threads the first one that looks for drivers
    sets it, and the last one sets it back.
    """

    _NAME = "XDG_RUNTIME_DIR"

    def __init__(self) -> None:
        self._lock = Lock()
        self._looking = 0
        self._before: str | None = None
        self._is_set = False

    def __enter__(self) -> None:
        with self._lock:
            self._looking += 1
            if self._looking > 1:
                return
            self._before = os.environ.get(self._NAME)
            is_folder = (self._before or "").startswith("/")
            self._is_set = sys.platform.startswith("linux") and not is_folder
            if self._is_set:
                os.environ[self._NAME] = "/"

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._looking -= 1
            if not self._looking:
                self._set_back()

    def _set_back(self) -> None:
        if self._is_set and self._before is None:
            os.environ.pop(self._NAME, None)
        elif self._is_set:
            os.environ[self._NAME] = cast("str", self._before)
        self._is_set = False

    def renew(self) -> None:
        """Forgets, in the child of a fork, threads that are not there."""
        self._lock = Lock()
        self._looking = 0
        self._set_back()


_QUIET = _Quiet()
renewed.add(_QUIET)


@contextmanager
def missing_driver_told(device: str) -> Iterator[None]:
    """Adds `driver_hint` to an error about a GPU that is not there.

    Args:
        device: What is asked for.
    """
    try:
        with _QUIET:
            yield
    except DeviceError as error:
        hint = driver_hint(devices()) if device.startswith("gpu") else None
        if hint is None:
            raise
        raise DeviceError(f"{error}; {hint}") from error


def init_gpu(device: str = "gpu") -> Device:
    """Opens a GPU now, instead of when a network first moves to it.

    Args:
        device: "gpu" for the first one, "gpu:1" for the second, and so on.

    Returns:
        The GPU.

    Raises:
        DeviceError: It is not there: says what is, and what to install.
        ConfigError: The name is no GPU's.
    """
    name = _check_gpu("init_gpu", device)
    with missing_driver_told(name):
        return Device(**_native.open_gpu(name))


def release_gpu() -> None:
    """Lets go of every GPU that is open; networks that are on one keep it open until they leave it."""
    _native.release_gpus()


def frame_statistics(device: str = "gpu") -> FrameStatistics:
    """Returns what the frames of a GPU have done since they were last reset; opens it if need be.

    Args:
        device: The GPU.

    Returns:
        The counts, over all networks on it.

    Raises:
        DeviceError: It is not there.
        ConfigError: The name is no GPU's.
    """
    name = _check_gpu("frame_statistics", device)
    with missing_driver_told(name):
        found: dict[str, Any] = _native.frame_statistics(name)
    kernels = tuple(KernelTime(*kernel) for kernel in found.pop("kernels"))
    return FrameStatistics(**found, kernels=kernels)


def reset_frame_statistics(device: str = "gpu") -> None:
    """Counts the frames of a GPU from zero again.

    Args:
        device: The GPU.

    Raises:
        DeviceError: It is not there.
        ConfigError: The name is no GPU's.
    """
    name = _check_gpu("reset_frame_statistics", device)
    with missing_driver_told(name):
        _native.reset_frame_statistics(name)


def time_frames(what: Literal["frames", "kernels", "off"] = "frames", device: str = "gpu") -> None:
    """Measures from here on how long a GPU works, for `frame_statistics`.

    Args:
        what: "frames"; "kernels", which keeps them from running side by side and so
            slows them down; or "off".
        device: The GPU.

    Raises:
        DeviceError: It is not there, or cannot measure that.
        ConfigError: A name is unknown.
    """
    known = ("frames", "kernels", "off")
    name = _check_gpu("time_frames", device)
    measured = choice("time_frames", "what", what, known)
    with missing_driver_told(name):
        _native.time_frames(name, measured)


def check_device(where: str, device: object) -> str:
    """Returns a device's name if it is one; whether the device is there is not looked at.

    Args:
        where: Who asks, for the message.
        device: "auto", "cpu", "gpu" or "gpu:<number>".

    Returns:
        The name, as it came.

    Raises:
        ConfigError: The name is unknown, or what another framework calls a GPU.
    """
    if isinstance(device, str):
        if device in ("auto", "cpu") or _GPU.fullmatch(device):
            return device
        name, _, number = device.lower().partition(":")
        if name in _FOREIGN or name == "gpu":
            ours = f"gpu:{number}" if _GPU.fullmatch(f"gpu:{number}") else "gpu"
            raise ConfigError(
                f'{where}: unknown device "{device}"; GPUs are called "gpu" here, whatever drives them, '
                f'or "gpu:<number>": try "{ours}"'
            )
    if hasattr(device, "type") and hasattr(device, "index"):
        # PyTorch's own.
        return check_device(where, str(device))
    if isinstance(device, int) and not isinstance(device, bool):
        raise ConfigError(f'{where}: a GPU goes by its name, got {shown(device)}; try "gpu:{device}"')
    if isinstance(device, type) or str(device) in (
        "float16",
        "float32",
        "float64",
        "bfloat16",
        "half",
        "int8",
    ):
        raise ConfigError(
            f"{where}: expected a device, got {shown(device)}; numbers are the network's: precision= when it "
            'is made, and net.morph("float16") packs the weights'
        )
    raise unknown(f"{where} device", device, ("auto", "cpu", "gpu", "gpu:<number>"))


def describe(name: str) -> str:
    """Returns a device's name with what its hardware is called."""
    for device in devices() if name.startswith("gpu") else ():
        if device.name == name:
            return f"{name}, {device.hardware} ({device.backend})"
    return name


def _check_gpu(where: str, device: object) -> str:
    name = check_device(where, device)
    if not name.startswith("gpu"):
        raise ConfigError(f'{where}: "{name}" is no GPU; GPUs are called "gpu" or "gpu:<number>"')
    return name


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.processor() or platform.machine()
