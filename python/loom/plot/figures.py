"""The figures that pictures are drawn in; see `loom._figures`."""

from loom._figures import empty_figure, finished

__all__ = ["empty_figure", "finished"]
