"""What can be told about data, outputs and weights: plain figures, computed from arrays.

Nothing here knows networks; `loom.analysis` is the public face.
"""

from __future__ import annotations

from loom.reports.base import Report, TabularReport
from loom.reports.classification import ClassAverages, ClassErrors, ClassificationReport
from loom.reports.curves import CalibrationCurve, PrecisionRecallCurve, RocCurve
from loom.reports.deviation import DeviationBucket, DeviationCourse, DeviationReport, WorstDeviation
from loom.reports.regression import RegressionErrors, RegressionReport

__all__ = [
    "CalibrationCurve",
    "ClassAverages",
    "ClassErrors",
    "ClassificationReport",
    "DeviationBucket",
    "DeviationCourse",
    "DeviationReport",
    "PrecisionRecallCurve",
    "RegressionErrors",
    "RegressionReport",
    "Report",
    "RocCurve",
    "TabularReport",
    "WorstDeviation",
]
