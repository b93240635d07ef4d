"""A network and its layers as one would write them."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from typing import Any

from loom import nn
from loom.architecture import NetworkConfig
from loom.errors import ConfigError

__all__ = ["brief", "described"]


def brief(layer: nn.Layer) -> str:
    """Returns a layer as one would write it: without the settings that have their defaults."""
    described: Any = layer
    fields = dataclasses.fields(described)
    required = {field.name for field in fields if field.default is dataclasses.MISSING}
    values = {field.name: getattr(layer, field.name) for field in fields}
    usual = {field.name: field.default for field in fields}
    # What is required may want another setting than its default, as an expression wants what it names.
    with suppress(ConfigError):
        # Defaults in the form that they are kept in, some of which depend on what is required.
        made = type(layer)(**{name: values[name] for name in required})
        usual = {name: getattr(made, name) for name in values}
    settings = [
        f"{name}={value!r}" for name, value in values.items() if name in required or value != usual[name]
    ]
    return f"{type(layer).__name__}({', '.join(settings)})"


def described(config: NetworkConfig) -> str:
    """Returns a network's extents, every layer with its place, and the links."""
    seed = f", seed={config.seed}" if config.seed else ""
    precision = "" if config.precision == "float32" else f', precision="{config.precision}"'
    lines = [f"Network(input_shape={config.input_shape}, grid={config.grid}{precision}{seed})"]
    for entry in config.cells:
        cell: Any = entry
        lines.append(f"  {tuple(cell.at)}")
        lines += [f"    {place}: {brief(layer)}" for place, layer in enumerate(cell.layers)]
    for joined in config.links:
        link: Any = joined
        axis = "" if link.axis is None else f", axis={link.axis}"
        lines.append(f"  {tuple(link.source)} -> {tuple(link.target)}: {link.combine}{axis}")
    return "\n".join(lines)
