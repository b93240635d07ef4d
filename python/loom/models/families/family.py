"""A family of models: what is told of it, in one object."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loom.errors import SerializationError, ShapeError
from loom.models.families.pieces import Piece
from loom.models.families.settings import MOST_LAYERS, Settings

__all__ = ["Composition", "Family", "Folder"]


@dataclass(frozen=True)
class Folder:
    """What a family sees of a folder.

    Args:
        settings: Those of config.json.
        shapes: The shapes of the file's tensors by name, without what all names of a base model begin with.
        architecture: The class that wrote the folder, such as "LlamaForCausalLM"; "" where it is not said.
        length: The steps that a sequence is to have; None for the most that the model knows.
        part: Which part of a model of several is asked for.
        image_size: The side of images, for models that read any; None for the usual one.
        modules: Further files of settings by their paths in the folder, as sentence encoders have them.
    """

    settings: Settings
    shapes: Mapping[str, tuple[int, ...]]
    architecture: str
    length: int | None = None
    part: str | None = None
    image_size: int | None = None
    modules: Callable[[str], Any] = lambda path: None

    def shape(self, name: str, axes: int) -> tuple[int, ...]:
        """Returns a tensor's shape, which must have so many axes."""
        shape = self.shapes.get(name)
        if shape is None:
            raise SerializationError(f"{self.settings.where}: the folder lacks {name}")
        if len(shape) != axes or 0 in shape:
            raise ShapeError(f"{self.settings.where}: {name} must have {axes} axes, and has shape {shape}")
        return shape

    def count(self, pattern: str) -> int:
        """Returns how many of the names that a pattern makes of 0, 1, ... begin those of tensors."""
        numbers = range(MOST_LAYERS)
        begun = {name[: end + 1] for name in self.shapes for end, sign in enumerate(name) if sign == "."}
        return next(number for number in numbers if f"{pattern.format(number)}." not in begun)

    def side(self, usual: int = 224) -> int:
        """Returns the side of images for a model that reads any."""
        if self.image_size is not None:
            return self.image_size
        told = self.settings.get("pretrained_cfg", {})
        size = told.get("input_size") if isinstance(told, dict) else None
        return size[-1] if isinstance(size, list) and size and isinstance(size[-1], int) else usual

    def fixed_side(self, side: int) -> int:
        """Returns the side of images for a model that reads no others."""
        if self.image_size not in (None, side):
            raise self.settings.unsupported("image_size", self.image_size, [side])
        return side

    def steps(self, most: int) -> int:
        """Returns how many steps a sequence has, at most so many."""
        if self.length is not None and self.length > most:
            raise self.settings.unsupported("length", self.length, [f"at most {most} steps"])
        return self.length or most


@dataclass(frozen=True)
class Composition:
    """A model as pieces.

    Args:
        input_shape: One sample's extents.
        pieces: The layers in a row, with what their parameters are made of.
        unused: Patterns of names of tensors that say nothing new.
    """

    input_shape: Sequence[int]
    pieces: Sequence[Piece]
    unused: Sequence[str] = ()


@dataclass(frozen=True)
class Family:
    """A family of models of the Hub.

    Args:
        name: What errors and tables call it.
        model_types: Patterns of what "model_type" in config.json says, or "architecture" in timm's.
        compose: Makes pieces of what a folder says.
        base: What the names of a base model's tensors begin with when a head stands on it.
        unused: Patterns of names of tensors that say nothing new, such as tables of masks.
        renamed: Patterns within older names, with what replaces them.
        known_by: Names of tensors that tell the family where there is no config.json.
        parts: The parts that can be asked for, where a model has several.
    """

    name: str
    model_types: Sequence[str]
    compose: Callable[[Folder], Composition]
    base: Sequence[str] = ()
    unused: Sequence[str] = ()
    renamed: Sequence[tuple[str, str]] = ()
    known_by: Sequence[str] = ()
    parts: Sequence[str] = ()
