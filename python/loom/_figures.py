"""The figures that pictures are drawn in, and files of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from loom._settings.checks import file_path
from loom._settings.suggestions import shown
from loom.errors import ConfigError, FileError
from loom.extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["check_drawn", "empty_figure", "finished"]


def check_drawn(where: str, given: object, *kinds: type) -> None:
    """Refuses what a picture is not of.

    Args:
        where: What draws it, for error messages.
        given: What was given.
        *kinds: What it draws.

    Raises:
        ConfigError: It is none of these.
    """
    if not isinstance(given, kinds):
        names = " or a ".join(kind.__name__ for kind in kinds)
        raise ConfigError(f"{where} draws a {names}, got {shown(given)}")


def empty_figure(*, width: float, height: float) -> Figure:
    """Makes a figure of a size in inches, in the colours of all pictures.

    Args:
        width: Its width.
        height: Its height.

    Returns:
        The figure, without axes. Notebooks show it as SVG, and it follows their page, light or dark.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    # The object interface leaves pyplot's global state, and the user's backend, alone.
    require("matplotlib.figure", extra="plot", purpose="loom.plot")
    from loom._picture import Picture

    return Picture(figsize=(width, height), layout="constrained")


def finished(figure: Figure, path: str | Path | None) -> Figure:
    """Writes a figure where it is to be written.

    Args:
        figure: The figure.
        path: Where; its ending says the format, SVG where it has none. None for nowhere.

    Returns:
        The figure.

    Raises:
        ConfigError: The path is none.
        FileError: It cannot be written.
    """
    if path is not None:
        where = file_path("loom.plot", path)
        try:
            # A name without an ending gets the one of SVG, which is sharp at any size.
            where = where if where.suffix else where.with_name(f"{where.name}.svg")
            figure.savefig(where, dpi=150)
        except OSError as error:
            raise FileError(error.errno, f"cannot be written: {error.strerror}", str(path)) from error
    return figure
