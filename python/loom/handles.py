"""The public path of cells, layers in their places, and their parameters; see `loom.network`."""

from loom.grid import place_in_cell
from loom.network.cells import Cell
from loom.network.layers import LayerHandle
from loom.network.parameters import Parameters
from loom.network.text import brief

__all__ = ["Cell", "LayerHandle", "Parameters", "brief", "place_in_cell"]
