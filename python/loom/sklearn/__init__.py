"""Networks as estimators of scikit-learn: in pipelines, searches over settings, cross-validation.

They follow scikit-learn's conventions to the letter (its own `check_estimator` passes) and learn as
`loom.train` does; `network_` is the network. scikit-learn is the extra `loom-nn[sklearn]`, and is imported
when a name here is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom._forks import loading
from loom._settings.spellings import attribute_error
from loom.extras import require

if TYPE_CHECKING:
    from loom.sklearn.classifier import LoomClassifier
    from loom.sklearn.regressor import LoomRegressor
    from loom.sklearn.transformer import LoomTransformer

__all__ = ["LoomClassifier", "LoomRegressor", "LoomTransformer"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise attribute_error(__name__, name, __all__)
    with loading.turn():
        require("sklearn", extra="sklearn", purpose="loom.sklearn")
        from loom.sklearn import classifier, regressor, transformer

    homes = {"LoomClassifier": classifier, "LoomRegressor": regressor, "LoomTransformer": transformer}
    return getattr(homes[name], name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
