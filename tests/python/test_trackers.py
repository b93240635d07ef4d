"""Experiment trackers: what is written to them, over resuming and errors, and what is said without them."""

from __future__ import annotations

import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import loom
from loom import nn

RNG = np.random.default_rng(0)
X = RNG.normal(size=(96, 4))
Y = np.argmax(X[:, :3], axis=1)


def near(outputs: Any, targets: Any) -> float:
    return 1.0


near.__name__ = "near, in words"


def config(epochs: int) -> loom.TrainingConfig:
    return loom.TrainingConfig(
        epochs=epochs, loss="cross_entropy", learning_rate=0.25, metrics=["accuracy", near], verbose=False
    )


def network() -> loom.Network:
    return loom.Sequential([nn.Dense(8, activation="relu"), nn.Dense(3)], input_shape=4, seed=1)


class Store:
    """What the packages below were told, by run: settings, text, values over steps, and how it ended."""

    def __init__(self) -> None:
        self.settings: dict[str, dict[str, Any]] = {}
        self.network: dict[str, str] = {}
        self.values: dict[str, dict[str, list[tuple[int, float]]]] = {}
        self.ended: dict[str, list[str]] = {}

    def open(self, run: str | None) -> str:
        run = run or f"run-{len(self.values)}"
        self.values.setdefault(run, {})
        return run

    def write(self, run: str, name: str, step: int, value: float) -> None:
        assert np.isfinite(value)
        self.values[run].setdefault(name, []).append((step, value))

    def end(self, run: str, how: str) -> None:
        self.ended.setdefault(run, []).append(how)


class FakeWandb(ModuleType):
    """The part of wandb that is used, with its signatures."""

    def __init__(self, store: Store) -> None:
        super().__init__("wandb")
        self.store = store
        self.run: Any = None

    def init(
        self,
        project: str | None = None,
        name: str | None = None,
        id: str | None = None,  # noqa: A002
        resume: str = "",
    ) -> Any:
        assert (id is None) == (resume == "")
        self.run = FakeWandbRun(self, self.store.open(id))
        return self.run


class FakeWandbRun:
    def __init__(self, package: FakeWandb, run: str) -> None:
        self.package, self.id, self.summary, self.config = package, run, self, self
        self.over: dict[str, str] = {}

    def update(self, settings: dict[str, Any], allow_val_change: bool) -> None:
        assert allow_val_change
        self.package.store.settings[self.id] = settings

    def define_metric(self, name: str, step_metric: str) -> None:
        self.over[name] = step_metric

    def __setitem__(self, name: str, value: str) -> None:
        assert name == "network"
        self.package.store.network[self.id] = value

    def log(self, figures: dict[str, float]) -> None:
        for name in figures.keys() - {"epoch", "step"}:
            over = self.over.get(name, self.over["*"])
            self.package.store.write(self.id, name, int(figures[over]), figures[name])

    def finish(self, exit_code: int) -> None:
        self.package.run = None
        self.package.store.end(self.id, "FAILED" if exit_code else "FINISHED")


class FakeMLflow(ModuleType):
    """The part of MLflow that is used; like it, it refuses strange names and parameters that change."""

    def __init__(self, store: Store) -> None:
        super().__init__("mlflow")
        self.store, self.active = store, None
        self.entities = SimpleNamespace(Metric=lambda *entry: entry)
        self.experiments: dict[str, str] = {}

    def active_run(self) -> Any:
        return self.active

    def MlflowClient(self, tracking_uri: str | None) -> FakeMLflow:  # noqa: N802
        return self

    def get_experiment_by_name(self, name: str) -> Any:
        known = self.experiments.get(name)
        return None if known is None else SimpleNamespace(experiment_id=known)

    def create_experiment(self, name: str) -> str:
        assert name not in self.experiments
        return self.experiments.setdefault(name, "7")

    def create_run(self, experiment_id: str, tags: dict[str, str], run_name: str | None) -> Any:
        assert experiment_id in {"0", "7"}
        return self.get_run(self.store.open(None))

    def get_run(self, run: str) -> Any:
        params = self.store.settings.get(run, {})
        return SimpleNamespace(info=SimpleNamespace(run_id=run), data=SimpleNamespace(params=params))

    def update_run(self, run: str, status: str) -> None:
        assert status == "RUNNING"
        assert run in self.store.values

    def log_param(self, run: str, name: str, value: str) -> None:
        assert name not in self.store.settings.setdefault(run, {})
        assert isinstance(value, str)
        self.store.settings[run][name] = value

    def set_tag(self, run: str, name: str, value: str) -> None:
        assert name == "network"
        self.store.network[run] = value

    def log_batch(self, run: str, metrics: list[tuple[str, float, int, int]]) -> None:
        for name, value, _, step in metrics:
            assert re.fullmatch(r"[\w\-. /]+", name)
            self.store.write(run, name, step, value)

    def set_terminated(self, run: str, status: str) -> None:
        self.store.end(run, status)


class FakeAim(ModuleType):
    """The part of Aim that is used."""

    def __init__(self, store: Store) -> None:
        super().__init__("aim")
        self.store = store

    def Run(self, **given: Any) -> Any:  # noqa: N802
        assert given.pop("system_tracking_interval") is None
        assert given.pop("capture_terminal_logs") is False
        assert given.keys() <= {"run_hash", "repo", "experiment"}
        return FakeAimRun(self.store, self.store.open(given.get("run_hash")))


class FakeAimRun:
    def __init__(self, store: Store, run: str) -> None:
        self.store, self.hash, self.failed, self.name = store, run, False, ""

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "failed":
            self.failed = value
        else:
            {"settings": self.store.settings, "network": self.store.network}[name][self.hash] = value

    def track(
        self, value: float, name: str, step: int, epoch: int | None = None, *, context: dict[str, str]
    ) -> None:
        assert epoch in {None, step}
        known = name if context == {"subset": "train"} else f"{context['subset']}_{name}"
        self.store.write(self.hash, known, step, value)

    def close(self) -> None:
        self.store.end(self.hash, "FAILED" if self.failed else "FINISHED")


KINDS: dict[str, tuple[Any, Any]] = {
    "wandb": (FakeWandb, loom.WandbLogger),
    "mlflow": (FakeMLflow, loom.MLflowLogger),
    "aim": (FakeAim, loom.AimLogger),
}


@pytest.fixture(params=KINDS)
def tracker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    fake, logger = KINDS[request.param]
    store = Store()
    package = fake(store)
    monkeypatch.setitem(sys.modules, request.param, package)
    return SimpleNamespace(package=package, store=store, logger=logger, kind=request.param)


def test_a_run_is_written_and_gone_on_with(tracker: Any) -> None:
    net, store = network(), tracker.store
    first = tracker.logger("place", name="first", batches=2)
    result = loom.train(net, (X, Y), config(2), validation=(X, Y), callbacks=[first])
    second = tracker.logger("place", name="first", batches=2)
    more = loom.train(net, (X, Y), config(3), validation=(X, Y), callbacks=[second], resume=True)
    assert first.run_id == second.run_id == "run-0"
    values = store.values["run-0"]
    assert [step for step, _ in values["loss"]] == [1, 2, 3]
    expected = result.loss_history + more.loss_history
    assert [value for _, value in values["loss"]] == pytest.approx(expected)
    validation = result.metrics["val_accuracy"] + more.metrics["val_accuracy"]
    assert [value for _, value in values["val_accuracy"]] == pytest.approx(validation)
    assert [value for _, value in values["learning_rate"]] == [0.25] * 3
    assert all(value > 0 for _, value in values["samples_per_second"])
    # Three batches an epoch.
    assert [step for step, _ in values["batch_loss"]] == [2, 4, 6, 8]
    assert any("in words" in name for name in values)
    settings = store.settings["run-0"]
    kind = settings["optimizer.type"] if tracker.kind == "mlflow" else settings["optimizer"]["type"]
    assert kind == "adamw"
    assert str(settings["batch_size"]) == "32"
    assert "Dense" in store.network["run-0"] or "dense" in store.network["run-0"]
    assert store.ended["run-0"] == ["FINISHED", "FINISHED"]


def test_what_is_not_resumed_is_another_run(tracker: Any) -> None:
    logger = tracker.logger()
    loom.train(network(), (X, Y), config(1), callbacks=[logger])
    loom.train(network(), (X, Y), config(1), callbacks=[logger])
    assert list(tracker.store.values) == ["run-0", "run-1"]


def test_a_training_that_fails_is_a_run_that_failed(tracker: Any) -> None:
    def fail(epoch: int, logs: object) -> None:
        raise ZeroDivisionError

    hooks = [tracker.logger(), loom.LambdaCallback(on_epoch_end=fail)]
    with pytest.raises(ZeroDivisionError):
        loom.train(network(), (X, Y), config(3), callbacks=hooks)
    assert tracker.store.ended == {"run-0": ["FAILED"]}
    assert [step for step, _ in tracker.store.values["run-0"]["loss"]] == [1]


def test_training_is_the_same_with_a_tracker(tracker: Any) -> None:
    plain, tracked = network(), network()
    loom.train(plain, (X, Y), config(2))
    loom.train(tracked, (X, Y), config(2), callbacks=[tracker.logger(batches=1)])
    assert plain.fingerprint() == tracked.fingerprint()


@pytest.mark.parametrize("tracker", ["wandb", "mlflow"], indirect=True)
def test_a_run_of_the_users_own_is_written_to_and_left_open(tracker: Any) -> None:
    if tracker.kind == "wandb":
        own = tracker.package.init().id
    else:
        own = tracker.store.open(None)
        tracker.package.active = tracker.package.get_run(own)
        tracker.store.settings[own] = {"epochs": "written before"}
    loom.train(network(), (X, Y), config(1), callbacks=[tracker.logger()])
    assert list(tracker.store.values) == [own]
    assert [step for step, _ in tracker.store.values[own]["loss"]] == [1]
    assert tracker.store.ended == {}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_missing_is_said_with_the_command(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, kind, None)
    net = network()
    with pytest.raises(loom.MissingExtraError, match=rf"pip install 'loom-nn\[{kind}\]'"):
        loom.train(net, (X, Y), config(1), callbacks=[KINDS[kind][1]()])
    # Nothing was learned, and the network can be trained.
    assert loom.train(net, (X, Y), config(1)).stop_reason == "finished"


@pytest.mark.parametrize("kind", KINDS)
def test_batches_out_of_range_are_refused(kind: str) -> None:
    with pytest.raises(loom.ConfigError, match="Logger: batches must be a positive whole number"):
        KINDS[kind][1](batches=0)
