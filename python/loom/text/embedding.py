"""Vectors of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import choice
from loom.engine import engine_of
from loom.errors import ConfigError, ShapeError, StateError
from loom.network import Network
from loom.text.sessions import PIECE

__all__ = ["POOLINGS", "Embedder"]

POOLINGS = ("mean", "first", "last")

_HEADS = ("dense", "tied_head")


class Embedder:
    """Makes vectors of tokens by a network.

    Args:
        network: The network.
        pad: The token that fills up texts for networks that read a number of steps at once, and leave it out.
    """

    def __init__(self, network: Network, pad: int | None) -> None:
        self._network = network
        self._pad = pad
        self._features: Network | None = None
        self._watch: Any = None

    def embed(self, rows: Sequence[Sequence[int]], capacity: int, pooling: str | None) -> NDArray[Any]:
        """Returns a vector for each row of tokens, (rows, width).

        Args:
            rows: The tokens of each text.
            capacity: The most tokens of a text, for decoders.
            pooling: One of `POOLINGS`, or None.
        """
        if pooling is not None:
            choice("embed", "pooling", pooling, POOLINGS)
        made = self._network.output_shape
        if len(made) == 1 and pooling is not None:
            raise ConfigError(f'the network pools by itself: leave out pooling="{pooling}"')
        if not rows:
            raise ConfigError("embed: there are no texts")
        if any(not row for row in rows):
            raise ConfigError("embed: a text has no tokens")
        if self._reads_steps():
            return np.stack([self._decoded(row, capacity, pooling or "mean") for row in rows])
        return self._encoded(rows, pooling or "mean")

    def _reads_steps(self) -> bool:
        """Whether the network reads texts of any length, step by step."""
        try:
            self._network.session(1)
        except StateError:
            return False
        return True

    def _encoded(self, rows: Sequence[Sequence[int]], pooling: str) -> NDArray[Any]:
        """Returns the vectors that an encoder makes."""
        # Of a network that reads any number of steps, None.
        steps: int | None = self._network.input_shape[0]
        longest = max(len(row) for row in rows)
        if steps is not None and longest > steps:
            raise ConfigError(f"embed: a text has {longest} tokens; the network reads {steps}: shorten it")
        if steps is None:
            y: Any = self._network.predict([np.asarray(row) for row in rows])
        elif min(len(row) for row in rows) == steps or self._leaves_out_padding():
            x = np.full((len(rows), steps), self._pad or 0, np.int64)
            for place, row in enumerate(rows):
                x[place, : len(row)] = row
            y = self._network.predict(x)
        else:
            y = self._by_length(rows)
        if len(self._network.output_shape) == 1:
            return np.stack(list(y))
        return np.stack([_pooled(found[: len(row)], pooling) for found, row in zip(y, rows, strict=True)])

    def _leaves_out_padding(self) -> bool:
        """Whether the network leaves out the padding token."""
        masks = [layer.config for layer in self._network.layers if layer.config.kind == "masked"]
        return self._pad is not None and any(getattr(each, "value", None) == self._pad for each in masks)

    def _by_length(self, rows: Sequence[Sequence[int]]) -> list[NDArray[Any]]:
        """Returns what the network makes of texts that it reads as long as they are: it knows no padding."""
        engine, before = engine_of(self._network), tuple(self._network.input_shape)
        made: dict[int, NDArray[Any]] = {}
        try:
            for length in sorted({len(row) for row in rows}):
                places = [place for place, row in enumerate(rows) if len(row) == length]
                engine.resize((length,))
                made |= zip(
                    places, self._network.predict(np.asarray([rows[place] for place in places])), strict=True
                )
        except ShapeError as error:
            told = (
                "the model has no padding token to fill up a shorter text with"
                if self._pad is None
                else f"the network does not leave out padding: put its layers in nn.Masked(value={self._pad})"
            )
            raise ConfigError(f"embed: {told}, and it reads texts of {before[0]} tokens alone") from error
        finally:
            engine.resize(before)
        return [made[place] for place in range(len(rows))]

    def _decoded(self, row: Sequence[int], capacity: int, pooling: str) -> NDArray[Any]:
        """Returns the vector that a decoder has before its head."""
        if len(row) > capacity:
            raise ConfigError(
                f"embed: a text has {len(row)} tokens, more than the model's capacity of {capacity}: "
                "shorten it, or load the model with a larger capacity"
            )
        session = self._cut(row[0]).session(capacity)
        pieces = [session(np.asarray([row[at : at + PIECE]]))[0] for at in range(0, len(row), PIECE)]
        return _pooled(np.concatenate(pieces), pooling)

    def _cut(self, token: int) -> Network:
        """Returns the network without its head."""
        if self._features is not None:
            try:
                self._watch(np.asarray([[token]]))
                self._watch.reset()
            except StateError:
                # It is not what it was when the copy was made.
                self._features = None
        if self._features is None:
            layers = self._network.layers
            heads = [place for place, layer in enumerate(layers) if layer.config.kind in _HEADS]
            if not heads or heads[-1] == 0:
                raise ConfigError(
                    "embed: the network has no head, so nothing says which layer makes its vectors"
                )
            # A copy begins on the processor.
            self._features = self._network.cut(layers[heads[-1] - 1]).to(str(self._network.device))
            self._watch = self._network.session(1)
        return self._features


def _pooled(steps: NDArray[Any], pooling: str) -> NDArray[Any]:
    """Returns one vector of those of a text's steps, (steps, width)."""
    if pooling == "mean":
        mean: NDArray[Any] = steps.mean(axis=0)
        return mean
    vector: NDArray[Any] = steps[0 if pooling == "first" else -1]
    return vector
