"""Looking into networks and data: what they are, what they do, how to put them together.

Each tool is usable alone. What they return are reports: frozen, with `to_dict`, `to_json` and
`from_json`, `to_frame` where a table comes out, and a picture in `loom.plot`.
"""

from __future__ import annotations

from loom.analysis.ensemble import Ensemble
from loom.analysis.matching import best_group, correctness, match
from loom.analysis.similarities import similarity
from loom.analysis.units import cluster_units, initialize_kmeans, unit_activations
from loom.reports import (
    Block,
    Blocks,
    Clusters,
    CorrelatedPairs,
    Correlation,
    Group,
    Matches,
    Pair,
    Report,
    Similarity,
    SubBlock,
    blocks,
    cka,
    correlation,
    kmeans,
    natural_key,
    silhouettes,
)

__all__ = [
    "Block",
    "Blocks",
    "Clusters",
    "CorrelatedPairs",
    "Correlation",
    "Ensemble",
    "Group",
    "Matches",
    "Pair",
    "Report",
    "Similarity",
    "SubBlock",
    "best_group",
    "blocks",
    "cka",
    "cluster_units",
    "correctness",
    "correlation",
    "initialize_kmeans",
    "kmeans",
    "match",
    "natural_key",
    "silhouettes",
    "similarity",
    "unit_activations",
]
