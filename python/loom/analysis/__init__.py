"""Looking into networks and data: what they are, what they do, how to put them together.

Each tool is usable alone. What they return are reports: frozen, with `to_dict`, `to_json` and
`from_json`, `to_frame` where a table comes out, and a picture in `loom.plot`.
"""

from __future__ import annotations

from loom.analysis.evaluation import classification, deviation, regression
from loom.reports import (
    CalibrationCurve,
    ClassAverages,
    ClassErrors,
    ClassificationReport,
    DeviationBucket,
    DeviationCourse,
    DeviationReport,
    PrecisionRecallCurve,
    RegressionErrors,
    RegressionReport,
    Report,
    RocCurve,
    WorstDeviation,
)

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
    "WorstDeviation",
    "classification",
    "deviation",
    "regression",
]
