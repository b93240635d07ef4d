"""`loom info`: what is here, and what is missing."""

from __future__ import annotations

import os
import re

import click

from loom.command_line.output import table, write, write_json

__all__ = ["command"]

_EXTRA = re.compile(r"""^([\w.-]+)[^;]*;.*\bextra\s*==\s*["']([\w-]+)["']""")


@click.command("info", epilog="Example: loom info")
@click.option("--json", "as_json", is_flag=True, help="As JSON, for programs.")
def command(*, as_json: bool) -> None:
    """Show devices, versions and extras, and what is missing."""
    from dataclasses import asdict
    from platform import machine, python_version, system

    import numpy as np

    from loom._native import __version__
    from loom.device import devices, driver_hint

    found = devices()
    hint = driver_hint(found)
    extras = _extras()
    settings = {
        # A key is nobody's business.
        name: "(set)" if name.endswith("_KEY") else value
        for name, value in sorted(os.environ.items())
        if name.startswith("LOOM_")
    }
    if as_json:
        write_json(
            {
                "version": __version__,
                "python": python_version(),
                "numpy": np.__version__,
                "system": f"{system()} {machine()}",
                "devices": [asdict(device) for device in found],
                "no_gpu": found.reason,
                "hint": hint,
                "extras": extras,
                "environment": settings,
            }
        )
        return
    write(f"loom {__version__}, Python {python_version()}, NumPy {np.__version__}, {system()} {machine()}")
    write()
    table(
        ("device", "hardware", "driven by"),
        [
            (
                device.name + (" (software)" if device.software else ""),
                device.hardware,
                device.driver if device.name == "cpu" else f"{device.backend}, {device.driver}",
            )
            for device in found
        ],
    )
    if found.reason is not None:
        write(f"\nno GPU: {found.reason}")
    elif hint is not None:
        write(f"\n{hint}")
    if settings:
        write()
        table(("environment", "value"), list(settings.items()))
    if extras:
        write()
        rows = []
        for extra, packages in extras.items():
            missing = [name for name, version in packages.items() if version is None]
            told = ", ".join(f"{name} {version}" for name, version in packages.items() if version is not None)
            lacking = f"missing {', '.join(missing)}: pip install 'loom-nn[{extra}]'" if missing else ""
            rows.append((extra, "; ".join(filter(None, (told, lacking)))))
        table(("extra", "packages"), rows)


def _extras() -> dict[str, dict[str, str | None]]:
    """Of every extra that people use: its packages, and their versions where they are installed."""
    from importlib.metadata import PackageNotFoundError, requires, version

    try:
        wanted = requires("loom-nn") or []
    except PackageNotFoundError:
        return {}
    extras: dict[str, dict[str, str | None]] = {}
    for requirement in wanted:
        found = _EXTRA.match(requirement)
        if found is None or found[2] == "dev" or found[1].startswith("loom"):
            continue
        installed: str | None
        try:
            installed = version(found[1])
        except PackageNotFoundError:
            installed = None
        extras.setdefault(found[2], {})[found[1]] = installed
    return extras
