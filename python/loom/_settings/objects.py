"""What objects of Keras and PyTorch can do, and who does it in loom; for error messages alone."""

from __future__ import annotations

__all__ = ["HOOKS", "hook_remark", "layer_error", "optimizer_error", "trainer_error", "trainer_setting_error"]

_RATE = "learning_rate= of training, which schedules change"
_STEP = "net.apply_gradients(rate) in a loop by hand, or loom.Trainer(net, config).step(x, y)"

_OF_OPTIMIZERS = {
    "step": _STEP,
    "update": _STEP,
    "apply": _STEP,
    "apply_gradients": _STEP,
    "minimize": _STEP,
    "zero_grad": "net.zero_gradients()",
    "learning_rate": _RATE,
    "lr": _RATE,
    "param_groups": "net.freeze(...), and rate_scale= of training for rates by layer",
    "add_param_group": "net.freeze(...), and rate_scale= of training for rates by layer",
    "state_dict": "net.save(path, optimizer=True), which keeps its state",
    "load_state_dict": "loom.train(..., resume=True) of a network saved with optimizer=True",
    "get_config": "optimizer.to_config()",
    "iterations": "callbacks are told of every step",
}

_RESUMED = "loom.Trainer(net, dataclasses.replace(trainer.config, learning_rate=1e-4), resume=True)"
_OF_RATES = f"trainer.config.learning_rate, and {_RESUMED} to go on with another one"

_OF_TRAINERS = {
    "fit": "net.fit(x, y, epochs=...), or trainer.step(x, y) for each batch",
    "train": "net.fit(x, y, epochs=...), or trainer.step(x, y) for each batch",
    "validate": "net.evaluate((x, y))",
    "test": "net.evaluate((x, y))",
    "evaluate": "net.evaluate((x, y))",
    "predict": "net.predict(x)",
    "save": "net.save(path, optimizer=True)",
    "save_model": "net.save(path)",
    "save_checkpoint": "net.save(path, optimizer=True)",
    "train_step": "trainer.step(x, y)",
    "update": "trainer.step(x, y)",
    "model": "trainer.network",
    "optimizer": "trainer.config.optimizer",
    "learning_rate": _OF_RATES,
    "lr": _OF_RATES,
    "set_learning_rate": _OF_RATES,
    "param_groups": _OF_RATES,
    "zero_grad": "nothing to call: every step has gradients of its own",
    "zero_gradients": "nothing to call: every step has gradients of its own",
    "forward": "net.forward(x), in a loop by hand",
    "backward": "net.backward(gradient), in a loop by hand",
    "state_dict": "net.save(path, optimizer=True), and loom.Trainer(net, config, resume=True)",
    "load_state_dict": "net.save(path, optimizer=True), and loom.Trainer(net, config, resume=True)",
}

_OF_NETWORKS = frozenset(
    {
        "backward",
        "compile",
        "eval",
        "evaluate",
        "fit",
        "forward",
        "parameters",
        "predict",
        "save",
        "state_dict",
    }
    | {"summary", "to", "train"}
)
_OF_NETWORKS_TOLD = "loom.Sequential([...], input_shape=...), a network: nn.Sequential is a layer of one"

_OF_LAYERS = {
    "weights": "net.layers[0].parameters, once it stands in a network",
    "weight": "net.layers[0].weight, once it stands in a network",
    "get_weights": "net.layers[0].parameters, once it stands in a network",
    "set_weights": "net.layers[0].weight = array, once it stands in a network",
    "kernel": "net.layers[0].weight, once it stands in a network",
    "trainable": "net.layers[0].trainable, once it stands in a network; net.freeze(...)",
    "build": "nothing to call: a network builds its layers, net.build()",
    "call": "nn.Function, a layer of your own",
    "output": "net.activations(x), what every layer makes",
    "output_shape": "net.layers[0].output_shape, once it stands in a network",
    "input_shape": "net.layers[0].input_shape, once it stands in a network",
    "name": "nothing: a layer's path is where it stands in a network",
    "get_config": "layer.to_config()",
    "add": "net[0, 0, 0].add(...), or all layers in the list at first",
    "append": "net[0, 0, 0].add(...), or all layers in the list at first",
}

HOOKS = {
    "on_fit_start": "on_train_begin",
    "on_fit_end": "on_train_end",
    "on_train_start": "on_train_begin",
    "on_fit_begin": "on_train_begin",
    "on_train_epoch_start": "on_epoch_begin",
    "on_train_epoch_end": "on_epoch_end",
    "on_epoch_start": "on_epoch_begin",
    "on_train_batch_start": "on_train_batch_begin",
    "on_batch_start": "on_train_batch_begin",
    "on_step_begin": "on_train_batch_begin",
    "on_step_end": "on_train_batch_end",
    "on_batch_finish": "on_train_batch_end",
    "on_validation_start": "on_test_begin",
    "on_validation_begin": "on_test_begin",
    "on_validation_epoch_start": "on_test_begin",
    "on_validation_end": "on_test_end",
    "on_validation_epoch_end": "on_test_end",
    "on_evaluate": "on_test_end",
    "on_log": "on_epoch_end",
    "on_save": "on_epoch_end",
    "on_test_batch_begin": "on_test_begin",
    "on_test_batch_end": "on_test_end",
    "on_predict_begin": "on_test_begin",
    "on_predict_end": "on_test_end",
    "on_before_optimizer_step": "on_train_batch_end",
    "on_after_backward": "on_train_batch_end",
}
"""Hooks of Lightning, Transformers and Keras that nothing here would call."""


def _error(kind: str, name: str, told: str | None) -> AttributeError:
    said = f"'{kind}' object has no attribute '{name}'"
    return AttributeError(said if told is None else f"{said}; instead there is {told}")


def optimizer_error(kind: str, name: str) -> AttributeError:
    """Returns the error for what an optimizer's settings do not have; it says who does it."""
    return _error(kind, name, _OF_OPTIMIZERS.get(name))


def layer_error(kind: str, name: str) -> AttributeError:
    """Returns the error for what the description of a layer does not have; it says who does it."""
    network = name in _OF_NETWORKS
    return _error(kind, name, _OF_NETWORKS_TOLD if network else _OF_LAYERS.get(name))


def trainer_error(name: str) -> AttributeError:
    """Returns the error for what a trainer does not have; it says who does it."""
    return _error("Trainer", name, _OF_TRAINERS.get(name))


def trainer_setting_error(name: str) -> AttributeError:
    """Returns the error for a setting that a trainer is given after it was made; it says how to go on."""
    return AttributeError(
        f"'{name}' of a trainer cannot be set: its settings are those it was made with. To go on with "
        f"others, from what the optimizer keeps in the network: {_RESUMED}"
    )


def hook_remark(names: list[str], known: list[str]) -> str | None:
    """Returns what is said of a hook that nothing calls; None where all are called, or names of one's own.

    Args:
        names: What a callback defines.
        known: The hooks that there are.
    """
    from difflib import get_close_matches

    for name in names:
        if not name.startswith("on_") or name in known:
            continue
        near = [HOOKS[name]] if name in HOOKS else get_close_matches(name, known, n=1, cutoff=0.85)
        if near:
            return f"nothing calls {name}; the hook is {near[0]}"
    return None
