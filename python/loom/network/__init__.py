"""The network, its cells and layers, and what can be done with it."""

from loom.network.making import Sequential, load
from loom.network.network import Network

# Pickles of networks that were made while this was one module name these two here.
from loom.network.pickling import _begin as _begin
from loom.network.pickling import _restore as _restore

__all__ = ["Network", "Sequential", "load"]
