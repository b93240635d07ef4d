"""Scores of tokens, also of networks that make probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loom.engine import engine_of
from loom.network.probabilities import ending

if TYPE_CHECKING:
    from loom.network import Network

__all__ = ["as_scores", "makes_probabilities"]

_LEAST = float(np.finfo(np.float64).tiny)


def makes_probabilities(network: Network) -> bool:
    """Whether a network ends in a softmax, so that what it makes are probabilities and no scores.

    Args:
        network: The network.
    """
    return ending(engine_of(network)) == "softmax"


def as_scores(probabilities: NDArray[Any]) -> NDArray[np.float64]:
    """Returns scores of which a softmax makes these probabilities: their logarithms.

    Args:
        probabilities: Any shape; of those that are zero the scores are the least that there are.
    """
    scores: NDArray[np.float64] = np.log(np.maximum(probabilities.astype(np.float64), _LEAST))
    return scores
