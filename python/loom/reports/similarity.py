"""How alike two representations of the same samples are: linear centred kernel alignment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loom._typing import ArrayLike
from loom.errors import DataError
from loom.reports.base import TabularReport
from loom.reports.samples import as_samples, centred

__all__ = ["Similarity", "alignments", "cka"]


@dataclass(frozen=True, eq=False)
class Similarity(TabularReport):
    """How alike the layers of two networks are, pair by pair.

    Args:
        samples: How many samples both networks were shown.
        first: The first network's layers.
        second: The second network's layers.
        matrix: (first, second) the linear CKA, from 0 to 1; NaN where a layer gives the same for every
            sample.
    """

    samples: int
    first: tuple[str, ...]
    second: tuple[str, ...]
    matrix: NDArray[np.float64]

    def columns(self) -> dict[str, Any]:
        """Returns a row for each pair of layers: first, second, cka."""
        return {
            "first": [name for name in self.first for _ in self.second],
            "second": [*self.second] * len(self.first),
            "cka": self.matrix.reshape(-1),
        }

    def most_alike(self) -> dict[str, str | None]:
        """Returns for each layer of the first network that of the second which is most like it.

        Where several are, the earliest; None for a layer that is like none, for it gives always the same.
        """
        return {
            name: None if np.isnan(row).all() else self.second[int(np.nanargmax(row))]
            for name, row in zip(self.first, self.matrix, strict=True)
        }


def cka(a: ArrayLike, b: ArrayLike) -> float:
    """Measures how alike two representations of the same samples are, by linear CKA.

    With centred features, |B^T A|^2 / (|A^T A| |B^T B|) in Frobenius norms: 1 where one is the other turned,
    mirrored, moved or scaled as a whole, 0 where no feature of one is correlated with any of the other. The
    numbers of features may differ. With fewer samples than features everything looks alike, so give several
    times as many (Kornblith, Norouzi, Lee and Hinton 2019, "Similarity of Neural Network Representations
    Revisited").

    Args:
        a: (samples, ...) one representation, such as a layer's activations.
        b: (samples, ...) another, of the same samples in the same order.

    Returns:
        The alignment, from 0 to 1; NaN where either gives the same for every sample.

    Raises:
        ShapeError: An array has no axis beside the samples.
        DataError: There are fewer than two samples, or of one more than of the other.
        NonFiniteError: A value is NaN or infinite.

    Examples:
        >>> a = np.random.default_rng(0).normal(size=(50, 3))
        >>> round(loom.analysis.cka(a, 2 * a[:, [2, 0, 1]] + 1), 6)
        1.0
    """
    return float(alignments([a], [b])[0, 0])


def alignments(first: Sequence[ArrayLike], second: Sequence[ArrayLike]) -> NDArray[np.float64]:
    """Measures linear CKA of every representation of the first with every one of the second.

    Args:
        first: (samples, ...) each.
        second: (samples, ...) each, of the same samples.

    Returns:
        (first, second) the alignments, as `cka` gives them.
    """
    mine = [_reduced(array, what=f"representation {i} of the first") for i, array in enumerate(first)]
    other = [_reduced(array, what=f"representation {i} of the second") for i, array in enumerate(second)]
    counts = {len(array.values) for array in [*mine, *other]}
    if len(counts) > 1:
        raise DataError(
            f"representations are of {' and '.join(map(str, sorted(counts)))} samples; "
            "CKA compares what is made of the same ones"
        )
    own = np.sqrt([_shared(a, a) for a in mine])
    others = np.sqrt([_shared(b, b) for b in other])
    shared = np.array([[_shared(a, b) for b in other] for a in mine])
    norms = np.outer(own, others)
    found = np.full(norms.shape, np.nan)
    np.divide(shared, norms, out=found, where=norms > 0.0)
    return np.asarray(np.clip(found, 0.0, 1.0))


@dataclass(frozen=True)
class _Reduced:
    """Centred features; or, where that is smaller, their products of samples with each other."""

    values: NDArray[np.float64]
    products: bool


def _reduced(array: ArrayLike, what: str) -> _Reduced:
    samples = as_samples(array, what=what, least=2)
    constant = samples.min(axis=0) == samples.max(axis=0)
    differences, _, exponents = centred(samples)
    if constant.all():
        return _Reduced(np.zeros((len(samples), 1)), products=False)
    # All features keep their size to each other; the whole is scaled, which CKA does not see.
    features = np.ldexp(differences, exponents - exponents[~constant].max())[:, ~constant]
    features = features / np.abs(features).max()
    if features.shape[1] > len(features):
        return _Reduced(features @ features.T, products=True)
    return _Reduced(features, products=False)


def _shared(a: _Reduced, b: _Reduced) -> float:
    """|B^T A|^2 of centred features A and B."""
    if a.products and b.products:
        return float((a.values * b.values).sum())
    if a.products:
        a, b = b, a
    if b.products:
        return float((a.values * (b.values @ a.values)).sum())
    return float(np.linalg.norm(b.values.T @ a.values) ** 2)
