"""Types shared by the package's signatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Precision: TypeAlias = Literal["float32", "float64", "mixed"]
TargetKind: TypeAlias = Literal["numbers", "classes", "indices", "labels"]
"""What a loss takes: numbers like the output; class indices, or a number for each class; class indices alone;
or any whole numbers, which say what is alike or where labels end."""
# The names that settings take, so that editors offer them and find what is misspelled; a test compares
# them with what the engine knows.
ActivationName: TypeAlias = Literal[
    "elu",
    "gelu",
    "gelu_tanh",
    "hardsigmoid",
    "hardswish",
    "identity",
    "leaky_relu",
    "linear",
    "mish",
    "relu",
    "relu_squared",
    "scaled_relu",
    "selu",
    "sigmoid",
    "silu",
    "softplus",
    "swish",
    "tanh",
]
InitializerName: TypeAlias = Literal[
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "kaiming_normal",
    "kaiming_uniform",
    "lecun_normal",
    "ones",
    "orthogonal",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
]
LossName: TypeAlias = Literal[
    "binary_cross_entropy",
    "binary_focal",
    "contrastive",
    "cosine",
    "cross-entropy",
    "cross_entropy",
    "crossentropy",
    "ctc",
    "dice",
    "dpo",
    "focal",
    "hinge",
    "huber",
    "kl_divergence",
    "log_cosh",
    "mean_output",
    "mae",
    "mse",
    "nll",
    "poisson",
    "quantile",
    "squared_hinge",
    "triplet",
]
MetricName: TypeAlias = Literal[
    "accuracy",
    "auc",
    "f1",
    "iou",
    "mae",
    "mse",
    "perplexity",
    "precision",
    "r2",
    "recall",
    "top_k",
    "top_k_accuracy",
]
ScikitLearnMetricName: TypeAlias = Literal[
    "sklearn.accuracy_score",
    "sklearn.adjusted_mutual_info_score",
    "sklearn.adjusted_rand_score",
    "sklearn.average_precision_score",
    "sklearn.balanced_accuracy_score",
    "sklearn.brier_score_loss",
    "sklearn.cohen_kappa_score",
    "sklearn.completeness_score",
    "sklearn.coverage_error",
    "sklearn.d2_absolute_error_score",
    "sklearn.d2_brier_score",
    "sklearn.d2_log_loss_score",
    "sklearn.d2_pinball_score",
    "sklearn.d2_tweedie_score",
    "sklearn.dcg_score",
    "sklearn.explained_variance_score",
    "sklearn.f1_score",
    "sklearn.fbeta_score",
    "sklearn.fowlkes_mallows_score",
    "sklearn.hamming_loss",
    "sklearn.hinge_loss",
    "sklearn.homogeneity_score",
    "sklearn.jaccard_score",
    "sklearn.label_ranking_average_precision_score",
    "sklearn.label_ranking_loss",
    "sklearn.log_loss",
    "sklearn.matthews_corrcoef",
    "sklearn.max_error",
    "sklearn.mean_absolute_error",
    "sklearn.mean_absolute_percentage_error",
    "sklearn.mean_gamma_deviance",
    "sklearn.mean_pinball_loss",
    "sklearn.mean_poisson_deviance",
    "sklearn.mean_squared_error",
    "sklearn.mean_squared_log_error",
    "sklearn.mean_tweedie_deviance",
    "sklearn.median_absolute_error",
    "sklearn.mutual_info_score",
    "sklearn.ndcg_score",
    "sklearn.normalized_mutual_info_score",
    "sklearn.precision_score",
    "sklearn.r2_score",
    "sklearn.rand_score",
    "sklearn.recall_score",
    "sklearn.roc_auc_score",
    "sklearn.root_mean_squared_error",
    "sklearn.root_mean_squared_log_error",
    "sklearn.top_k_accuracy_score",
    "sklearn.v_measure_score",
    "sklearn.zero_one_loss",
]
OptimizerName: TypeAlias = Literal[
    "adadelta",
    "adafactor",
    "adagrad",
    "adam",
    "adamax",
    "adamw",
    "lamb",
    "lion",
    "muon",
    "nadam",
    "radam",
    "rmsprop",
    "sgd",
]
ScheduleName: TypeAlias = Literal[
    "constant",
    "cosine",
    "linear",
    "one_cycle",
    "polynomial",
]
CacheTypeName: TypeAlias = Literal["float16", "q8_0"]
NumericTypeName: TypeAlias = Literal[
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3",
    "float8_e5m2",
    "float4_e2m1",
    "int64",
    "int32",
    "int16",
    "int8",
    "int4",
    "int2",
    "uint64",
    "uint32",
    "uint16",
    "uint8",
    "uint4",
    "uint2",
    "ternary",
    "binary",
    "q4_0",
    "q8_0",
    "mxfp8_e4m3",
    "mxfp8_e5m2",
    "mxfp4",
    "nf4",
    "uint8_min",
    "uint4_min",
    "uint2_min",
]
RealArray: TypeAlias = "NDArray[np.floating[Any]]"
LabelArray: TypeAlias = "NDArray[np.int64]"
JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | bool | None"


@runtime_checkable
class SupportsArray(Protocol):
    """Anything that NumPy can view or convert through `__array__`."""

    def __array__(self) -> NDArray[Any]:
        """Returns the contents as a NumPy array."""
        ...


@runtime_checkable
class SupportsDLPack(Protocol):
    """Anything that hands over its memory through the DLPack protocol."""

    def __dlpack__(self, *, stream: None = None) -> object:
        """Returns a DLPack capsule."""
        ...

    def __dlpack_device__(self) -> tuple[int, int]:
        """Returns the device type and number."""
        ...


ArrayLike: TypeAlias = "NDArray[Any] | SupportsArray | SupportsDLPack | Sequence[Any] | float"

Foreign: TypeAlias = Any
"""What packages make of which none need be installed, or what users' own code hands over."""
