"""Looking into networks and data: what they are, what they do, how to put them together.

Each tool is usable alone. What they return are reports: frozen, with `to_dict`, `to_json` and
`from_json`, `to_frame` where a table comes out, and a picture in `loom.plot`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom._settings.spellings import attribute_error
from loom.analysis.attribution import saliency
from loom.analysis.ensemble import Ensemble
from loom.analysis.evaluation import classification, deviation, regression
from loom.analysis.grafting import graft
from loom.analysis.matching import best_group, correctness, match
from loom.analysis.similarities import similarity
from loom.analysis.units import cluster_units, initialize_kmeans, unit_activations
from loom.network.bits import sensitivity
from loom.reports import (
    BitsReport,
    Block,
    Blocks,
    CalibrationCurve,
    ClassAverages,
    ClassErrors,
    ClassificationReport,
    Clusters,
    CorrelatedPairs,
    Correlation,
    DeviationBucket,
    DeviationCourse,
    DeviationReport,
    Group,
    Matches,
    MeasuredTypes,
    Pair,
    PrecisionRecallCurve,
    RegressionErrors,
    RegressionReport,
    Report,
    RocCurve,
    SensitivityReport,
    Similarity,
    SubBlock,
    WorstDeviation,
    blocks,
    cka,
    correlation,
    kmeans,
    natural_key,
    silhouettes,
)
from loom.reports.blueprint import Blueprint
from loom.reports.embedding import Embedding, embed
from loom.reports.saliency import Saliency

__all__ = [
    "BitsReport",
    "Block",
    "Blocks",
    "Blueprint",
    "CalibrationCurve",
    "ClassAverages",
    "ClassErrors",
    "ClassificationReport",
    "Clusters",
    "CorrelatedPairs",
    "Correlation",
    "DeviationBucket",
    "DeviationCourse",
    "DeviationReport",
    "Embedding",
    "Ensemble",
    "Group",
    "Matches",
    "MeasuredTypes",
    "Pair",
    "PrecisionRecallCurve",
    "RegressionErrors",
    "RegressionReport",
    "Report",
    "RocCurve",
    "Saliency",
    "SensitivityReport",
    "Similarity",
    "SubBlock",
    "WorstDeviation",
    "best_group",
    "blocks",
    "cka",
    "classification",
    "cluster_units",
    "correctness",
    "correlation",
    "deviation",
    "embed",
    "graft",
    "initialize_kmeans",
    "kmeans",
    "match",
    "natural_key",
    "regression",
    "saliency",
    "sensitivity",
    "silhouettes",
    "similarity",
    "unit_activations",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise attribute_error(__name__, name, __all__)
