"""Training settings: defaults, checks, JSON and back."""

from __future__ import annotations

import json

import numpy as np
import pytest

import loom
from loom import ConfigError, TrainingConfig, losses, metrics, optimizers, schedules

OPTIMIZERS = {
    optimizers.SGD(momentum=0.9, nesterov=True): {
        "type": "sgd",
        "momentum": 0.9,
        "nesterov": True,
        "weight_decay": 0.0,
        "decay_exempt": False,
    },
    optimizers.Adam(): {
        "type": "adam",
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "weight_decay": 0.0,
        "decay_exempt": False,
    },
    optimizers.Adamax(): {
        "type": "adamax",
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "weight_decay": 0.0,
        "decay_exempt": False,
    },
    optimizers.NAdam(): {
        "type": "nadam",
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "weight_decay": 0.0,
        "decay_exempt": False,
    },
    optimizers.RAdam(): {
        "type": "radam",
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "weight_decay": 0.0,
        "decay_exempt": False,
    },
    optimizers.LAMB(): {
        "type": "lamb",
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-6,
        "weight_decay": 0.0,
        "decay_exempt": False,
    },
    optimizers.Adafactor(): {
        "type": "adafactor",
        "decay_power": 0.8,
        "clip_threshold": 1.0,
        "epsilon": 1e-30,
        "scale_by_weights": True,
        "least_scale": 1e-3,
        "weight_decay": 0.0,
        "decay_exempt": False,
    },
    optimizers.Muon(): {
        "type": "muon",
        "momentum": 0.95,
        "nesterov": True,
        "match_adam": True,
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "weight_decay": 0.01,
        "decay_exempt": False,
    },
    optimizers.Adagrad(): {
        "type": "adagrad",
        "epsilon": 1e-10,
        "weight_decay": 0.0,
        "decay_exempt": False,
    },
    optimizers.Adadelta(): {
        "type": "adadelta",
        "rho": 0.9,
        "epsilon": 1e-6,
        "weight_decay": 0.0,
        "decay_exempt": False,
    },
    optimizers.AdamW(): {
        "type": "adamw",
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "weight_decay": 0.01,
        "decay_exempt": False,
    },
    optimizers.Lion(): {
        "type": "lion",
        "beta1": 0.9,
        "beta2": 0.99,
        "weight_decay": 0.0,
        "decay_exempt": False,
    },
    optimizers.RMSprop(centered=True): {
        "type": "rmsprop",
        "alpha": 0.99,
        "epsilon": 1e-8,
        "momentum": 0.0,
        "centered": True,
        "weight_decay": 0.0,
        "decay_exempt": False,
        "epsilon_in_root": False,
    },
}

SCHEDULES = {
    schedules.Constant(): {"type": "constant"},
    schedules.Linear(0.1, steps=100): {"type": "linear", "end_factor": 0.1, "steps": 100},
    schedules.Cosine(): {"type": "cosine", "end_factor": 0.0, "steps": None},
    schedules.CosineRestarts(10, period_factor=2): {
        "type": "cosine_restarts",
        "period": 10,
        "period_factor": 2.0,
        "end_factor": 0.0,
    },
    schedules.Exponential(0.9, steps=5): {"type": "exponential", "gamma": 0.9, "steps": 5},
    schedules.Step(30): {"type": "step", "steps": 30, "gamma": 0.1},
    schedules.Polynomial(power=2): {"type": "polynomial", "power": 2.0, "end_factor": 0.0, "steps": None},
    schedules.OneCycle(): {
        "type": "one_cycle",
        "rise": 0.3,
        "div_factor": 25.0,
        "final_div_factor": 10000.0,
        "steps": None,
    },
    schedules.Warmup(10, then=schedules.Cosine()): {
        "type": "warmup",
        "steps": 10,
        "then": {"type": "cosine", "end_factor": 0.0, "steps": None},
    },
    schedules.Epochs(schedules.Step(30)): {
        "type": "epochs",
        "schedule": {"type": "step", "steps": 30, "gamma": 0.1},
        "steps_per_epoch": None,
    },
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers_to_json_and_back(optimizer: optimizers.Optimizer) -> None:
    assert optimizer.to_config() == OPTIMIZERS[optimizer]
    assert optimizers.resolve(json.loads(json.dumps(optimizer.to_config()))) == optimizer


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules_to_json_and_back(schedule: schedules.Schedule) -> None:
    assert schedule.to_config() == SCHEDULES[schedule]
    assert schedules.resolve(json.loads(json.dumps(schedule.to_config()))) == schedule


def test_every_optimizer_and_schedule_is_tried() -> None:
    for module, base, tried in (
        (optimizers, optimizers.Optimizer, OPTIMIZERS),
        (schedules, schedules.Schedule, SCHEDULES),
    ):
        exported = {getattr(module, name) for name in module.__all__}
        kinds = {
            cls for cls in exported if isinstance(cls, type) and issubclass(cls, base) and cls is not base
        }
        assert kinds == {type(entry) for entry in tried}


def test_defaults() -> None:
    assert TrainingConfig().to_config() == {
        "epochs": 1,
        "batch_size": 32,
        "learning_rate": None,
        "optimizer": optimizers.AdamW().to_config(),
        "schedule": {"type": "constant"},
        "loss": "auto",
        "gradient_clip": None,
        "clip_value": None,
        "device": "auto",
        "seed": 0,
        "shuffle": True,
        "verbose": "auto",
        "track_perf": False,
        "on_nonfinite": "raise",
        "validation_split": 0.0,
        "validation_batch_size": None,
        "validation_frequency": 1,
        "class_weight": None,
        "label_smoothing": 0.0,
        "metrics": [],
        "accumulate": 1,
        "depth_scale": "none",
        "early_stopping": None,
        "ignore_findings": [],
    }


def test_a_learning_rate_that_is_not_given_is_known_as_such() -> None:
    assert TrainingConfig().rate == 1e-3
    assert TrainingConfig(learning_rate=0).rate == 0.0
    given = TrainingConfig(learning_rate=1e-3)
    assert given != TrainingConfig()
    assert TrainingConfig.from_config(given.to_config()) == given


def test_a_full_configuration_to_json_and_back() -> None:
    config = TrainingConfig(
        epochs=3,
        batch_size=64,
        learning_rate=0.1,
        optimizer="sgd",
        schedule=schedules.Warmup(5, then="cosine"),
        loss="cross-entropy",
        gradient_clip=1.0,
        clip_value=0.5,
        seed=7,
        shuffle=False,
        on_nonfinite="skip",
        validation_split=0.1,
        validation_batch_size=100,
        validation_frequency=2,
        class_weight={2: 0.5, 0: 2},
        label_smoothing=0.1,
        metrics=["accuracy", metrics.TopKAccuracy(3)],
        accumulate=4,
        early_stopping=loom.EarlyStopping(patience=2),
    )
    assert config.loss == "cross_entropy"
    read = json.loads(json.dumps(config.to_config()))
    assert read["class_weight"] == {"2": 0.5, "0": 2.0}
    assert read["metrics"] == ["accuracy", {"top_k_accuracy": {"k": 3}}]
    assert TrainingConfig.from_config(read) == config


def test_class_weights_may_be_an_array() -> None:
    config = TrainingConfig(loss="nll", class_weight=np.array([1.0, 3.0]))  # type: ignore[arg-type]
    assert config.class_weight == (1.0, 3.0)


def test_losses_with_a_parameter() -> None:
    assert losses.resolve("huber") == losses.Huber(1.0)
    assert losses.Huber(2).to_config() == {"huber": {"delta": 2.0}}
    assert TrainingConfig(loss={"huber": {"delta": 2}}).loss == losses.Huber(2.0)


def test_a_callable_metric_cannot_go_to_json() -> None:
    config = TrainingConfig(metrics=[lambda outputs, targets: 0.0])
    with pytest.raises(ConfigError, match="cannot be written"):
        config.to_config()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "TrainingConfig: batch_size must be a positive whole number, got 0"),
        ({"epochs": -1}, "epochs must be a positive whole number"),
        ({"learning_rate": -1}, "learning_rate must be a finite number at least 0"),
        ({"learning_rate": float("inf")}, "got inf"),
        ({"learning_rate": "fast"}, "got 'fast'"),
        ({"optimizer": "adamm"}, 'unknown optimizer "adamm"; did you mean "adam'),
        ({"optimizer": {"type": "adam", "beta3": 1}}, 'unknown Adam setting "beta3"; did you mean "beta'),
        ({"optimizer": {"type": "sgd", "nesterov": True}}, "nesterov needs a momentum"),
        ({"optimizer": {"type": "sgd", "momentum": 1.0}}, "below 1"),
        ({"schedule": "cosin"}, 'unknown schedule "cosin"; did you mean "cosine"'),
        ({"schedule": "step"}, "Step: missing setting steps"),
        (
            {"schedule": {"type": "warmup", "steps": 2, "then": {"type": "warmup", "steps": 1}}},
            "another Warmup",
        ),
        ({"loss": "crossentrpy"}, 'unknown loss "crossentrpy"; did you mean "cross_entropy"'),
        ({"loss": None}, 'unknown loss "None"'),
        ({"device": "cpus"}, 'unknown TrainingConfig device "cpus"; did you mean "cpu"'),
        ({"on_nonfinite": "ignore"}, "on_nonfinite"),
        ({"depth_scale": "geometrical"}, 'did you mean "geometric"'),
        ({"gradient_clip": -1}, "gradient_clip must be a finite number at least 0"),
        ({"validation_split": 1.0}, "validation_split"),
        ({"shuffle": 1}, "shuffle must be True or False"),
        ({"metrics": ["acuracy"]}, 'unknown metric "acuracy"; did you mean "accuracy"'),
        ({"metrics": 3}, "metrics must be a list"),
        (
            {"loss": "mse", "class_weight": {0: 1.0}},
            'class_weight works with the losses cross_entropy and nll, not with "mse"',
        ),
        ({"loss": "mae", "label_smoothing": 0.1}, "label_smoothing works with"),
        ({"loss": "nll", "class_weight": {-1: 1}}, "a class of class_weight"),
        ({"loss": "nll", "class_weight": [-1.0]}, "class_weight must be a finite number at least 0"),
        ({"loss": "nll", "class_weight": "even"}, "class_weight must be a mapping"),
        ({"early_stopping": True}, "must be an EarlyStopping"),
        ({"early_stopping": {"patience": -1}}, "patience must be a whole number that is not negative"),
        ({"epoch": 3}, 'unknown TrainingConfig setting "epoch"; did you mean "epochs"'),
    ],
)
def test_what_is_wrong_is_refused_with_a_reason(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainingConfig.from_config(settings)


@pytest.mark.parametrize("device", ["auto", "cpu", "gpu", "gpu:0", "gpu:12"])
def test_devices_are_names_until_training_starts(device: str) -> None:
    config = TrainingConfig(device=device)
    assert TrainingConfig.from_config(config.to_config()).device == device


@pytest.mark.parametrize(
    ("device", "ours"),
    [
        ("cuda", "gpu"),
        ("cuda:1", "gpu:1"),
        ("Metal", "gpu"),
        ("mps", "gpu"),
        ("GPU:0", "gpu:0"),
        ("gpu:x", "gpu"),
    ],
)
def test_other_frameworks_names_for_a_gpu_are_answered_with_ours(device: str, ours: str) -> None:
    with pytest.raises(ConfigError, match=rf'GPUs are called "gpu" here.*try "{ours}"'):
        TrainingConfig(device=device)


def test_metrics_need_different_names() -> None:
    with pytest.raises(ConfigError, match="different names, got accuracy, accuracy"):
        TrainingConfig(metrics=["accuracy", metrics.Accuracy()])


def test_a_metric_does_not_stand_where_the_loss_does() -> None:
    def loss(output: object, target: object) -> float:
        return 0.0

    for given in ([loss], {"kind": ["accuracy", loss]}):
        with pytest.raises(ConfigError, match='called "loss" stands where the loss does'):
            TrainingConfig(metrics=given)  # type: ignore[arg-type]
