"""Networks as estimators of scikit-learn."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import (
    check_sample_weight_equivalence_on_dense_data,
    parametrize_with_checks,
)

from loom.sklearn import LoomClassifier, LoomRegressor, LoomTransformer

QUICK: dict[str, Any] = {"hidden": (16,), "epochs": 30, "learning_rate": 0.05}

ESTIMATORS = [LoomClassifier(**QUICK), LoomRegressor(**QUICK), LoomTransformer(2, **QUICK)]

# The same sums in another order: float32 agrees to 1e-5, and the check asks for 1e-7, which float64 has.
EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": "float32 rounds otherwise where sums are added otherwise"
}


# Some of their samples are anything but scaled.
@pytest.mark.filterwarnings("ignore::loom.DoctorWarning")
@parametrize_with_checks(ESTIMATORS, expected_failed_checks=lambda _: EXPECTED)
def test_scikit_learn_s_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("kind", [LoomClassifier, LoomRegressor, LoomTransformer])
def test_weights_stand_for_repetition(kind: type[Any]) -> None:
    check_sample_weight_equivalence_on_dense_data(kind.__name__, kind(**QUICK, precision="float64"))
