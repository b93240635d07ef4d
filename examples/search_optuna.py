"""Searches settings with Optuna: many trainings side by side, of which the hopeless ones end early.

Each trial is a training in a process or thread of its own; several programs that name the same storage share
one search, on one machine or on many. `pip install optuna loom-nn[sklearn]`.

    python examples/search_optuna.py [--trials N] [--jobs N] [--storage sqlite:///search.db]
"""

from __future__ import annotations

import argparse

import numpy as np
import optuna
from sklearn.datasets import load_digits

import loom
from loom import nn
from loom.callbacks import Logs

SEED = 0


class Pruned(loom.Callback):
    """Tells the trial how each epoch went, and ends the training where that is worse than that of others.

    Args:
        trial: The trial.
    """

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial = trial
        self.pruned = False

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Reports the accuracy on what is held out."""
        self.trial.report((logs or {})["val_accuracy"], epoch)
        self.pruned = self.stop_training = self.trial.should_prune()


def objective(trial: optuna.Trial) -> float:
    """One training; returns the accuracy on what is held out."""
    x, y = load_digits(return_X_y=True)
    learned, held = loom.data.split(((x / 16).astype("float32"), y), 0.25, stratify=True)
    width = trial.suggest_int("width", 8, 256, log=True)
    depth = trial.suggest_int("depth", 1, 3)
    activation = trial.suggest_categorical("activation", ["relu", "tanh", "gelu"])
    layers = [
        layer for _ in range(depth) for layer in (nn.Dense(width, activation=activation), nn.BatchNorm())
    ]
    dropout = nn.Dropout(trial.suggest_float("dropout", 0.0, 0.5))
    net = loom.Sequential([*layers, dropout, nn.Dense(10)], input_shape=64, seed=SEED)
    config = loom.TrainingConfig(
        epochs=12,
        batch_size=trial.suggest_categorical("batch_size", [16, 32, 64, 128]),
        learning_rate=trial.suggest_float("learning_rate", 1e-4, 1e-1, log=True),
        loss="cross_entropy",
        metrics=["accuracy"],
        ignore_findings="all",
        verbose=False,
    )
    pruned = Pruned(trial)
    # A trial takes its steps alone, also where the program runs in several processes.
    result = loom.train(net, learned, config, held, callbacks=[pruned], distributed=None)
    if pruned.pruned:
        raise optuna.TrialPruned
    return float(np.max(result.metrics["val_accuracy"]))


def main() -> None:
    """Searches, and prints what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=1, help="trials at a time, in threads of this process")
    parser.add_argument(
        "--storage", help="where programs that share a search meet; memory where none is named"
    )
    given = parser.parse_args()
    study = optuna.create_study(
        study_name="digits",
        direction="maximize",
        storage=given.storage,
        load_if_exists=True,
        sampler=optuna.samplers.TPESampler(seed=SEED),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=2),
    )
    study.optimize(objective, n_trials=given.trials, n_jobs=given.jobs)
    states = [trial.state.name for trial in study.trials]
    print(f"{states.count('COMPLETE')} trials ended, {states.count('PRUNED')} were ended early")
    print(f"best: {study.best_value:.4f} with {study.best_params}")


if __name__ == "__main__":
    main()
