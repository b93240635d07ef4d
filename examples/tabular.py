"""Predicts from a table with gaps and categories: loom beside scikit-learn's own network and boosted trees.

The table is made here: flats, with numbers of very different scales, three categories and gaps, some of
which tell something. Whether a flat is let within a week is drawn from a probability that follows from them,
so it is known how good the best prediction could be.

    python examples/tabular.py [--rows N] [--folds N] [--jobs N] [--seed SEED]
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_validate
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from loom.sklearn import LoomClassifier

SCORES = ["accuracy", "roc_auc", "neg_log_loss"]


def flats(rows: int, seed: int) -> tuple[pd.DataFrame, NDArray[Any], NDArray[np.float64]]:
    """Draws a table, whether each flat is let within a week, and how likely that was."""
    random = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "area": random.lognormal(4.2, 0.4, rows),
            "rooms": random.integers(1, 6, rows).astype(float),
            "year": random.integers(1880, 2025, rows).astype(float),
            "metres_to_station": random.exponential(700, rows),
            "floor": random.integers(0, 9, rows).astype(float),
            "district": random.choice(["north", "east", "south", "west", "harbour"], rows),
            "heating": random.choice(["gas", "district", "heat pump"], rows, p=[0.5, 0.3, 0.2]),
            "lift": random.choice(["yes", "no"], rows),
        }
    )
    appeal = table["district"].map({"north": -0.3, "east": 0.2, "south": 0.0, "west": 0.4, "harbour": 1.0})
    rent = table["area"] * (11 + 3 * appeal + 0.02 * (table["year"] - 1950).clip(lower=0))
    table["rent"] = rent * random.lognormal(0, 0.2, rows)
    # What counts: rent against what is usual, the way, old houses with gas, and stairs.
    logit = (
        4 * np.log(rent / table["rent"])
        + appeal
        - table["metres_to_station"] / 700
        - 1.5 * ((table["year"] < 1940) & (table["heating"] == "gas"))
        - 0.4 * table["floor"] * (table["lift"] == "no")
        + 1.8
    )
    likely = 1 / (1 + np.exp(-logit.to_numpy()))
    let = np.where(random.random(rows) < likely, "at once", "later")
    # Who has a long way does not say so; other gaps are by chance.
    silent = random.random(rows) < table["metres_to_station"] / 4000
    table.loc[silent, "metres_to_station"] = np.nan
    for column in ("year", "heating", "floor"):
        table.loc[random.random(rows) < 0.1, column] = np.nan
    return table, let, likely


def columns() -> ColumnTransformer:
    """Fills gaps and notes where they were, scales numbers, and makes a column of each category."""
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    kinds = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="unknown", missing_values=np.nan),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False),
    )
    return ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_include="number")),
            ("kinds", kinds, make_column_selector(dtype_exclude="number")),
        ]
    )


def codes() -> ColumnTransformer:
    """Leaves gaps as they are, and numbers the categories: what trees take."""
    kinds = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
    return ColumnTransformer(
        [
            ("kinds", kinds, make_column_selector(dtype_exclude="number")),
            ("numbers", "passthrough", make_column_selector(dtype_include="number")),
        ]
    )


def models(seed: int) -> dict[str, Pipeline]:
    """Returns what is compared; the networks have the same layers, and stop in the same way."""
    stopping: dict[str, Any] = {"early_stopping": True, "n_iter_no_change": 10, "random_state": seed}
    loom = LoomClassifier((64, 64), dropout=0.2, **stopping)
    plain = LoomClassifier((64, 64), optimizer="adam", **stopping)
    peer = MLPClassifier((64, 64), **stopping)
    trees = HistGradientBoostingClassifier(
        categorical_features=[0, 1, 2], early_stopping=True, random_state=seed
    )
    return {
        "logistic regression": make_pipeline(columns(), LogisticRegression(max_iter=1000)),
        "MLPClassifier": make_pipeline(columns(), peer),
        "LoomClassifier, as that": make_pipeline(columns(), plain),
        "LoomClassifier, dropout": make_pipeline(columns(), loom),
        "HistGradientBoosting": make_pipeline(codes(), trees),
    }


def main() -> None:
    """Compares what was not learned from, over several folds."""
    parser = argparse.ArgumentParser(description="Predicts from a table with gaps and categories.")
    parser.add_argument("--rows", type=int, default=4000, help="flats; 4000")
    parser.add_argument("--folds", type=int, default=5, help="of cross-validation; 5")
    parser.add_argument("--jobs", type=int, default=None, help="processes; one")
    parser.add_argument("--seed", type=int, default=0, help="of the table, the weights and the folds; 0")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    table, let, likely = flats(options.rows, options.seed)
    gaps = table.isna().to_numpy().mean()
    print(f"{len(table)} flats, {table.shape[1]} columns, {100 * gaps:.0f} % gaps")
    print(f"{'':<24} accuracy  ROC AUC  log loss  seconds a fit")
    folds = StratifiedKFold(options.folds, shuffle=True, random_state=options.seed)
    for name, model in models(options.seed).items():
        found = cross_validate(model, table, let, scoring=SCORES, cv=folds, n_jobs=options.jobs)
        accuracy, area, loss = (found[f"test_{score}"].mean() for score in SCORES)
        print(f"{name:<24} {accuracy:8.3f} {area:8.3f} {-loss:9.3f} {np.median(found['fit_time']):14.2f}")
    soon = let == "at once"
    known = accuracy_score(soon, likely > 0.5), roc_auc_score(soon, likely), log_loss(soon, likely)
    print(f"{'who knows everything':<24} {known[0]:8.3f} {known[1]:8.3f} {known[2]:9.3f}")


if __name__ == "__main__":
    main()
