"""Metrics: accuracy, top_k_accuracy, precision, recall, f1, iou, auc, mae, mse, r2, perplexity, a callable.

A callable takes outputs and targets and returns a float.

Those of scikit-learn have names such as "sklearn.f1_score", or come from `sklearn`.
Class metrics look at the class axis of the outputs, which is the last, or axis 1 for
images; targets are class indices, one-hot rows or soft rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom._settings.spellings import attribute_error
from loom.metrics.by_class import AUC, F1, AverageName, Counted, IoU, Precision, Recall
from loom.metrics.expression import Expr
from loom.metrics.own import MAE, MSE, R2, Accuracy, Metric, Perplexity, TopKAccuracy, correct
from loom.metrics.resolving import (
    MetricFunction,
    MetricLike,
    in_engine,
    name_of,
    names,
    resolve,
    resolve_all,
)
from loom.metrics.scikit_learn import ScikitLearnMetric, is_score, sklearn

__all__ = [
    "AUC",
    "F1",
    "MAE",
    "MSE",
    "R2",
    "Accuracy",
    "AverageName",
    "Counted",
    "Expr",
    "IoU",
    "Metric",
    "MetricFunction",
    "MetricLike",
    "Perplexity",
    "Precision",
    "Recall",
    "ScikitLearnMetric",
    "TopKAccuracy",
    "correct",
    "in_engine",
    "is_score",
    "name_of",
    "names",
    "resolve",
    "resolve_all",
    "sklearn",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise attribute_error(__name__, name, __all__)
