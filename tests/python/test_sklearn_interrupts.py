"""Ctrl-C at any moment of what an estimator does leaves an estimator that can be used."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

import loom
import loom.sklearn
from loom.sklearn import LoomClassifier, LoomRegressor, LoomTransformer

HERE = str(Path(loom.sklearn.__file__).parent)
X, Y = (array[::5] for array in load_iris(return_X_y=True))
OTHER, LABELS = X[:, :3], np.where(Y > 0, "yes", "no")
QUICK: dict[str, Any] = {"hidden": (4,), "epochs": 2, "random_state": 0}


class AtLine:
    """Ctrl-C before the n-th line of loom's estimators."""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(HERE):
            return None
        # Its end is in the hands of what is proved here.
        if event == "line" and frame.f_code.co_name not in ("_whole", "fit", "partial_fit"):
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
        return self

    def interrupted(self, work: Callable[[], object]) -> bool:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            work()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False


def outcome(model: Any) -> bytes:
    found = model.transform(X) if hasattr(model, "transform") else model.predict(X)
    return bytes(np.ascontiguousarray(found)) if found.dtype != object else repr(found).encode()


@pytest.mark.parametrize(
    "make",
    [
        lambda: LoomClassifier(**QUICK),
        lambda: LoomClassifier(**QUICK, early_stopping=True, validation_fraction=0.3),
        lambda: LoomRegressor(**QUICK),
        lambda: LoomTransformer(n_components=2, **QUICK),
    ],
)
def test_a_fit_that_ctrl_c_ends_anywhere_leaves_what_was_fitted_before(make: Callable[[], Any]) -> None:
    """The second fit has other features and other labels: nothing of it may be mixed with the first."""
    labels = Y if isinstance(make(), LoomRegressor) else LABELS
    model, ends = make().fit(X, Y), 0
    before, known = outcome(model), dict(vars(model))
    for number in range(1, 1000):
        with warnings.catch_warnings():
            # Within the training it is told by a warning, and the training ends with what it has.
            warnings.filterwarnings("ignore", "Ctrl-C ended")
            if not AtLine(number).interrupted(lambda: model.fit(OTHER, labels)):
                break
        ends += 1
        assert vars(model) == known
        assert outcome(model) == before
    assert ends > 20
    whole = make().fit(OTHER, labels)
    np.testing.assert_array_equal(whole.network_.predict(OTHER), model.network_.predict(OTHER))


@pytest.mark.parametrize("make", [LoomClassifier, LoomRegressor])
def test_a_pass_that_ctrl_c_ends_anywhere_can_be_made_again(make: type) -> None:
    labels = {"classes": [0, 1, 2]} if make is LoomClassifier else {}
    model, ends = make(**QUICK).partial_fit(X, Y, **labels), 0
    for number in range(1, 1000):
        passes = model.n_iter_
        if not AtLine(number).interrupted(lambda: model.partial_fit(X, Y)):
            break
        ends += 1
        assert model.n_iter_ == len(model.loss_curve_) == passes
        assert np.isfinite(model.network_.predict(X)).all()
    assert ends > 20
    assert model.n_iter_ == 2


class FirstStep(loom.Callback):
    """Ctrl-C before the first epoch has come to its end."""

    def on_batch_end(self, batch: int, logs: Any = None) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(
    "make", [LoomClassifier, LoomRegressor, lambda **options: LoomTransformer(n_components=2, **options)]
)
def test_ctrl_c_in_the_first_epoch_leaves_an_estimator_of_no_epoch(make: Any, early: bool) -> None:
    options = QUICK | {"early_stopping": early, "validation_fraction": 0.3}
    with pytest.warns(UserWarning, match="Ctrl-C ended the training"):
        model = make(**options, callbacks=[FirstStep()]).fit(X, Y)
    assert (model.n_iter_, model.loss_curve_, model.best_loss_) == (0, [], None)
    if early:
        assert (model.validation_scores_, model.best_validation_score_) == ([], None)
    assert len(outcome(model)) > 0
    # It goes on from there as any other.
    model.set_params(callbacks=None)
    assert model.fit(X, Y).n_iter_ == 2
