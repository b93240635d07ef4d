"""The figures that pictures are drawn in, and files of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from loom.errors import FileError
from loom.extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["empty_figure", "finished"]


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
        FileError: It cannot be written.
    """
    if path is not None:
        try:
            # A name without an ending gets the one of SVG, which is sharp at any size.
            where = Path(path)
            where = where if where.suffix else where.with_name(f"{where.name}.svg")
            figure.savefig(where, dpi=150)
        except OSError as error:
            raise FileError(error.errno, f"cannot be written: {error.strerror}", str(path)) from error
    return figure
