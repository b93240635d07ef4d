"""What a `loom.Trainer` says where somebody treats it as an optimizer or a trainer of elsewhere."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import loom
from loom import nn

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(24, 4)), RNG.integers(0, 3, 24)
CONFIG = loom.TrainingConfig(loss="cross_entropy", optimizer="adam", learning_rate=0.01, device="cpu")


def made() -> loom.Network:
    layers = [nn.Dense(8, activation="tanh"), nn.Dense(3)]
    return loom.Sequential(layers, input_shape=4, seed=1, precision="float64")


@pytest.mark.parametrize("name", ["learning_rate", "lr", "config", "optimizer", "gradient_clip"])
def test_a_setting_that_would_count_for_nothing_cannot_be_set(name: str) -> None:
    trainer = loom.Trainer(made(), CONFIG)
    with pytest.raises(AttributeError, match="resume=True"):
        setattr(trainer, name, 0.5)
    assert trainer.config == CONFIG
    trainer.note = "whoever uses it may keep things beside it"
    assert trainer.note.startswith("whoever")


@pytest.mark.parametrize("name", ["learning_rate", "param_groups", "zero_grad", "state_dict", "backward"])
def test_what_optimizers_elsewhere_have_is_told(name: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; instead there is"):
        getattr(loom.Trainer(made(), CONFIG), name)


def test_a_new_trainer_goes_on_with_another_rate() -> None:
    """By Adam as its authors write it."""
    net = made()
    trainer = loom.Trainer(net, CONFIG)
    twin = made()
    twin.set_optimizer("adam")
    for step in range(6):
        if step == 3:
            trainer = loom.Trainer(net, replace(trainer.config, learning_rate=0.002), resume=True)
        trainer.step(X, Y)
        _, gradient = loom.losses.cross_entropy(twin.forward(X), Y)
        twin.backward(gradient)
        twin.apply_gradients(0.01 if step < 3 else 0.002)
    for name, values in twin.state_dict().items():
        np.testing.assert_allclose(net.state_dict()[name], values, rtol=1e-12, atol=1e-14)


def test_another_optimizer_since_the_last_step_is_told() -> None:
    net = made()
    first = loom.Trainer(net, CONFIG)
    first.step(X, Y)
    loom.Trainer(net, replace(CONFIG, optimizer="sgd")).step(X, Y)
    before = net.fingerprint()
    with pytest.raises(loom.StateError, match=r"learned by SGD since.*Adam"):
        first.step(X, Y)
    assert net.fingerprint() == before
    assert np.isfinite(loom.Trainer(net, CONFIG).step(X, Y))


@pytest.mark.parametrize("by", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_copy_is_refused_with_what_goes_on(by: object, tmp_path: Path) -> None:
    net = made()
    trainer = loom.Trainer(net, CONFIG)
    trainer.step(X, Y)
    with pytest.raises(TypeError, match=r"resume=True\) goes on"):
        by(trainer)  # type: ignore[operator]
    other = copy.deepcopy(net)
    again = loom.Trainer(other, trainer.config, resume=True)
    assert [again.step(X, Y) for _ in range(3)] == [trainer.step(X, Y) for _ in range(3)]

    state = loom.TweenState(net, loom.TweenConfig.tween(), loss="cross_entropy")
    state.step(X, Y)
    with pytest.raises(TypeError, match=r"state\.save"):
        by(state)  # type: ignore[operator]
    state.save(tmp_path / "state.loom")
    later = loom.TweenState(loom.load(tmp_path / "state.loom"), state.config, state.training, resume=True)
    assert [later.step(X, Y) for _ in range(3)] == [state.step(X, Y) for _ in range(3)]
