"""Finds what Keras, PyTorch and scikit-learn call something among what loom has; for error messages alone."""

from __future__ import annotations

from collections.abc import Iterable

from loom._settings.elsewhere import PLACES
from loom._settings.names_elsewhere import NAMES
from loom._settings.objects import HOOKS
from loom._settings.remarks import (
    ARGUMENTS,
    FUNCTIONS,
    INITIALIZERS,
    METHODS,
    MODULES,
    OF_LAYERS,
    OF_RESULTS,
    SETTINGS,
    VALUES,
)

__all__ = [
    "argument_remark",
    "attribute_error",
    "is_elsewhere",
    "layer_remark",
    "method_error",
    "remark",
    "result_remark",
    "spelling",
]

_LOSSES = frozenset(
    {
        "binary_cross_entropy",
        "binary_focal",
        "contrastive",
        "cosine",
        "cross_entropy",
        "ctc",
        "dice",
        "focal",
        "hinge",
        "huber",
        "kl_divergence",
        "log_cosh",
        "mae",
        "mse",
        "nll",
        "poisson",
        "quantile",
        "squared_hinge",
        "triplet",
    }
)


def spelling(given: str, known: Iterable[str]) -> str | None:
    """Returns loom's name for a name of somewhere else, where it is among those that are known."""
    names = set(known)
    key = given.rsplit(".", 1)[-1].lower()
    return next((name for name in (NAMES.get(key) or HOOKS.get(key, "")).split() if name in names), None)


def remark(what: str, given: str) -> str | None:
    """Returns what is said of a setting, or a value of one, that has no counterpart in loom."""
    if what.endswith((" setting", " argument")):
        return SETTINGS.get(given.lower())
    return VALUES.get((what.rsplit(" ", 1)[-1], given.lower()))


def argument_remark(name: str) -> str | None:
    """Returns what is said of an argument of a network's methods elsewhere that loom's do not have."""
    return ARGUMENTS.get(name)


def layer_remark(name: str) -> str | None:
    """Returns what stands for an attribute of layers elsewhere."""
    return OF_LAYERS.get(name)


def result_remark(name: str) -> str | None:
    """Returns what stands for an attribute of what training gives back elsewhere."""
    if name in OF_RESULTS:
        return OF_RESULTS[name]
    if name.startswith("val_") or name in ("acc", "accuracy", "mae", "mse"):
        return f'result.history["{name}"], one number an epoch'
    return None


def attribute_error(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """Returns the error for what a module of loom does not have; it says what loom has instead.

    Args:
        module: The module's name.
        name: What was asked for.
        known: What it has.
    """
    said = f"module '{module}' has no attribute '{name}'"
    if name.startswith("_"):
        return AttributeError(said)
    known = list(known)
    if (told := PLACES.get(module, {}).get(name)) is not None:
        return AttributeError(f"{said}; instead there is {told}")
    ours = spelling(name, known)
    if ours is not None:
        return AttributeError(f"{said}; loom's is {module}.{ours}")
    if module == "loom" and name in MODULES:
        return AttributeError(f"{said}; instead there is {MODULES[name]}")
    if (function := FUNCTIONS.get(name.lower())) is not None:
        return AttributeError(
            f'{said}; loom\'s is loom.nn.Activation("{function}"), or activation="{function}" of a layer'
        )
    if (loss := spelling(name, _LOSSES)) is not None:
        return AttributeError(f'{said}; losses are settings of training: loss="{loss}"')
    if (drawn := INITIALIZERS.get(name.lower().replace("_", "").rstrip("_"))) is not None:
        return AttributeError(f'{said}; of a layer it is weight_initializer="{drawn}"')
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1, cutoff=0.8)
    return AttributeError(f"{said}; did you mean {module}.{near[0]}?" if near else said)


_SET = frozenset(
    {"learning_rate", "loss", "lr", "metrics", "requires_grad", "stop_training", "trainable", "training"}
)


def is_elsewhere(name: str) -> bool:
    """Returns whether networks elsewhere are told something by an attribute of this name."""
    return name in _SET


def method_error(name: str) -> AttributeError:
    """Returns the error for what a network does not have; it says what loom has instead."""
    said = f"'Network' object has no attribute '{name}'"
    return AttributeError(f"{said}; instead there is {METHODS[name]}" if name in METHODS else said)
