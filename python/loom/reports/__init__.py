"""What can be told about data, outputs and weights: plain figures, computed from arrays.

Nothing here knows networks; `loom.analysis` is the public face.
"""

from __future__ import annotations

from loom.reports.base import Report, TabularReport
from loom.reports.bits import BitsReport, MeasuredTypes, SensitivityReport
from loom.reports.classification import ClassAverages, ClassErrors, ClassificationReport
from loom.reports.clustering import Clusters, kmeans, silhouettes
from loom.reports.correlations import CorrelatedPairs, Correlation, correlation
from loom.reports.curves import CalibrationCurve, PrecisionRecallCurve, RocCurve
from loom.reports.deviation import DeviationBucket, DeviationCourse, DeviationReport, WorstDeviation
from loom.reports.matching import Group, Matches, Pair
from loom.reports.parameter_names import Block, Blocks, SubBlock, blocks, natural_key
from loom.reports.regression import RegressionErrors, RegressionReport
from loom.reports.similarity import Similarity, cka

__all__ = [
    "BitsReport",
    "Block",
    "Blocks",
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
    "Group",
    "Matches",
    "MeasuredTypes",
    "Pair",
    "PrecisionRecallCurve",
    "RegressionErrors",
    "RegressionReport",
    "Report",
    "RocCurve",
    "SensitivityReport",
    "Similarity",
    "SubBlock",
    "TabularReport",
    "WorstDeviation",
    "blocks",
    "cka",
    "correlation",
    "kmeans",
    "natural_key",
    "silhouettes",
]
