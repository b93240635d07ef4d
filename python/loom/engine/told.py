"""What is told of a network beside its weights, as the native one keeps it: JSON that goes into files.

Classes are the labels that outputs stand for; an encoder is what makes of a frame what the network reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from loom._typing import Foreign
from loom.errors import ConfigError, SerializationError

if TYPE_CHECKING:
    from loom import _native
    from loom.data import Classes, ColumnEncoder

__all__ = [
    "classes_by_output",
    "classes_of",
    "encoded",
    "encoder_of",
    "forget_classes",
    "remember_classes",
    "remember_classes_by_output",
    "remember_encoder",
    "tell",
    "told",
]


def told(native: _native.Network) -> dict[str, Any]:
    """Returns everything that is told of a network.

    Args:
        native: The native network.

    Raises:
        SerializationError: The file that it came from tells what is no JSON object.
    """
    text = native.card()
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise SerializationError(f"the network's card is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise SerializationError(f"the network's card is no JSON object, but {type(found).__name__}")
    return found


def tell(native: _native.Network, everything: dict[str, Any]) -> None:
    """Tells something of a network, in place of everything that was told before.

    Args:
        native: The native network.
        everything: Plain JSON values by name; empty ones are left out.
    """
    kept = {name: value for name, value in everything.items() if value}
    native.set_card(json.dumps(kept, sort_keys=True) if kept else "")


def classes_of(native: _native.Network) -> Classes | None:
    """Returns the classes that outputs stand for; None where nobody has named them.

    Texts are the labels of the network's card; what is no text stands beside it.

    Args:
        native: The native network.

    Raises:
        SerializationError: What its file told is damaged.
    """
    found = told(native)
    card = found.get("card")
    kept, names = found.get("classes"), card.get("labels") if isinstance(card, dict) else None
    if isinstance(names, dict):
        # They are of outputs with names.
        names = None
    if not kept and not names:
        return None
    from loom.data import Classes

    try:
        return Classes.from_config(kept or {"kind": "text", "values": names})
    except ConfigError as error:
        raise SerializationError(str(error)) from error


def remember_classes(native: _native.Network, classes: Classes) -> None:
    """Has the network remember its classes, and its card their names where it has none.

    Args:
        native: The native network.
        classes: The classes.
    """
    found = told(native)
    card = found.get("card") or {}
    if not card.get("labels"):
        found["card"] = {**card, "labels": list(classes.names)}
    found["classes"] = None if classes.kind == "text" else classes.to_config()
    tell(native, found)


def forget_classes(native: _native.Network) -> None:
    """Has the network forget its classes, and its card their names: they were those of another head.

    Args:
        native: The native network.
    """
    found = told(native)
    card = found.get("card")
    if isinstance(card, dict) and isinstance(card.get("labels"), list):
        found["card"] = {name: value for name, value in card.items() if name != "labels"}
    found.pop("classes", None)
    tell(native, found)


def classes_by_output(native: _native.Network) -> dict[str, Classes]:
    """Returns the classes of those named outputs of which somebody has named them.

    Texts are the labels of the network's card, by output; what is no text stands beside it.

    Args:
        native: The native network.

    Raises:
        SerializationError: What its file told is damaged.
    """
    if not native.card():
        return {}
    found = told(native)
    card, kept = found.get("card"), found.get("output_classes") or {}
    names = card.get("labels") if isinstance(card, dict) else None
    if not isinstance(kept, dict):
        raise SerializationError("the network's classes are damaged")
    by_name = names.items() if isinstance(names, dict) else ()
    texts = {name: {"kind": "text", "values": labels} for name, labels in by_name}
    from loom.data import Classes

    try:
        return {name: Classes.from_config(config) for name, config in {**texts, **kept}.items()}
    except ConfigError as error:
        raise SerializationError(str(error)) from error


def remember_classes_by_output(native: _native.Network, classes: Mapping[str, Classes]) -> None:
    """Has the network remember the classes of named outputs, beside those that it remembers already.

    Args:
        native: The native network.
        classes: The classes of each output.
    """
    found = told(native)
    card = found.get("card") or {}
    labels = card.get("labels")
    labels = labels if isinstance(labels, dict) else {}
    new = {name: list(each.names) for name, each in classes.items() if name not in labels}
    found["card"] = {**card, "labels": {**labels, **new}}
    others = {name: each.to_config() for name, each in classes.items() if each.kind != "text"}
    found["output_classes"] = {**(found.get("output_classes") or {}), **others}
    tell(native, found)


def encoder_of(native: _native.Network) -> ColumnEncoder | None:
    """Returns what makes of a frame what the network reads; None where there is no such thing.

    Args:
        native: The native network.

    Raises:
        SerializationError: What its file told is damaged.
    """
    kept = told(native).get("encoder")
    if not kept:
        return None
    from loom.data import ColumnEncoder

    try:
        return ColumnEncoder.from_config(kept)
    except ConfigError as error:
        raise SerializationError(str(error)) from error


def remember_encoder(native: _native.Network, encoder: ColumnEncoder | None) -> None:
    """Has the network remember what makes of a frame what it reads.

    Args:
        native: The native network.
        encoder: The encoder; none from now on where None.
    """
    found = told(native)
    found["encoder"] = None if encoder is None else encoder.to_config()
    tell(native, found)


def encoded(native: _native.Network, x: Foreign) -> Foreign:
    """Returns what the network reads of a frame, by its encoder; anything else as it is.

    Args:
        native: The native network.
        x: What was given as samples.
    """
    if isinstance(x, (np.ndarray, list, tuple)) or not native.card():
        return x
    encoder = encoder_of(native)
    if encoder is None:
        return x
    from loom.data.frames import is_frame

    return encoder(x) if is_frame(x) and not encoder.has_made(x) else x
