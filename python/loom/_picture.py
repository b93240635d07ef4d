"""A figure in colours that everybody tells apart, whose SVG follows the page around it, light or dark."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from loom._palette import COLORS, INK, PANEL, PAPER

__all__ = ["Picture"]

_DARK = {INK: "#e3e6ea", PAPER: "#1e2129", PANEL: "#2a2e38"}
"""What stands for a colour where the page is dark."""
# The same figure gives the same file; words stay words, which are small, searched and read aloud.
_FONTS = ["DejaVu Sans", "Verdana", "Arial"]
_SVG: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "loom",
    "font.sans-serif": _FONTS,
}
_STYLE = "</style>"


def _dark() -> str:
    rules = "".join(
        f'[style*="{kind}: {light}"]{{{kind}: {dark} !important}}'
        for light, dark in _DARK.items()
        for kind in ("fill", "stroke")
    )
    return f"@media (prefers-color-scheme: dark){{{rules}}}"


class Picture(Figure):
    """What the functions of `loom.plot` return; a figure of matplotlib like any other."""

    def add_subplot(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - matplotlib's own arguments
        """Adds axes, with the colours of all pictures."""
        axes = super().add_subplot(*args, **kwargs)
        axes.set_prop_cycle(color=list(COLORS))
        return axes

    def savefig(self, fname: Any, **kwargs: Any) -> None:  # noqa: ANN401 - matplotlib's own arguments
        """Writes the picture; SVG holds its colours for dark pages, too."""
        self._paint()
        named = fname if isinstance(fname, str | Path) else None
        ending = Path(named).suffix[1:] if named is not None else ""
        if str(kwargs.get("format") or ending).lower() != "svg":
            super().savefig(fname, **kwargs)
            return
        written = self._svg(**kwargs)
        if named is None:
            fname.write(written.encode() if not isinstance(fname, io.TextIOBase) else written)
        else:
            Path(named).write_text(written, encoding="utf-8")

    def _repr_svg_(self) -> str:
        """Returns the picture for notebooks."""
        self._paint()
        return self._svg()

    def _svg(self, **kwargs: Any) -> str:  # noqa: ANN401
        held = io.BytesIO()
        settings = {"dpi": 150, "metadata": {"Date": None, "Creator": None}, **kwargs, "format": "svg"}
        with rc_context(_SVG):
            super().savefig(held, **settings)
        fonts = f"font-family: {', '.join(map(repr, _FONTS))}, sans-serif"
        # What every word has is said once.
        text = held.getvalue().decode().replace(f"{fonts}; ", "")
        return text.replace(_STYLE, f"text{{{fonts}}}{_dark()}{_STYLE}", 1)

    def _paint(self) -> None:
        """Gives ground, frames and words of all axes the colours that have a dark form."""
        _on_paper(self.patch)
        legends = list(self.legends)
        # Words on the cells of a heat map have the colour that the cell wants.
        kept = {id(text) for axes in self.axes if axes.images for text in axes.texts}
        for axes in self.axes:
            _on_paper(axes.patch)
            legends += [legend for legend in (axes.get_legend(),) if legend is not None]
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_tick_params(which="both", color=INK, labelcolor=INK)
            for spine in axes.spines.values():
                if _is(spine.get_edgecolor(), "black"):
                    spine.set_edgecolor(INK)
        for legend in legends:
            _on_paper(legend.get_frame())
        for text in self.findobj(Text):
            if id(text) not in kept and _is(text.get_color(), "black"):
                text.set_color(INK)


def _is(color: Any, name: str) -> bool:  # noqa: ANN401 - whatever matplotlib takes for one
    return bool(to_hex(color) == to_hex(name))


def _on_paper(patch: Any) -> None:  # noqa: ANN401 - any of matplotlib's patches
    if _is(patch.get_facecolor(), "white"):
        patch.set_facecolor(PAPER)
