"""What can be told about data, outputs and weights: plain figures, computed from arrays.

Nothing here knows networks; `loom.analysis` is the public face.
"""

from __future__ import annotations

from loom.reports.base import Report, TabularReport
from loom.reports.clustering import Clusters, kmeans, silhouettes
from loom.reports.correlations import CorrelatedPairs, Correlation, correlation
from loom.reports.matching import Group, Matches, Pair
from loom.reports.parameter_names import Block, Blocks, SubBlock, blocks, natural_key
from loom.reports.similarity import Similarity, cka

__all__ = [
    "Block",
    "Blocks",
    "Clusters",
    "CorrelatedPairs",
    "Correlation",
    "Group",
    "Matches",
    "Pair",
    "Report",
    "Similarity",
    "SubBlock",
    "TabularReport",
    "blocks",
    "cka",
    "correlation",
    "kmeans",
    "natural_key",
    "silhouettes",
]
