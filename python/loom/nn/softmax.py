"""Softmax and its kin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from loom._settings.checks import items, whole
from loom._settings.suggestions import shown
from loom.errors import ConfigError
from loom.nn._layer import FAMILY, Layer

__all__ = [
    "AdaptiveSoftmax",
    "Entmax",
    "GridSoftmax",
    "GumbelSoftmax",
    "HierarchicalSoftmax",
    "MaskedSoftmax",
    "MixtureSoftmax",
    "Softmax",
    "Sparsemax",
]


@FAMILY.register("softmax")
@dataclass(frozen=True)
class Softmax(Layer):
    """Softmax over the class axis (the last; the channels of images): the shape stays.

    Args:
        temperature: What the logits are divided by; above zero.

    Raises:
        ConfigError: The temperature is out of range.

    Examples:
        >>> nn.Softmax(temperature=0.5).temperature
        0.5
    """

    temperature: float = 1.0


@FAMILY.register("grid_softmax")
@dataclass(frozen=True)
class GridSoftmax(Layer):
    """A softmax over each row of a grid: several independent choices in one layer.

    Reads the last axis as (rows, columns): input and output (..., rows * columns),
    every row of which sums to one.

    Args:
        rows: How many softmaxes.
        columns: Classes of each.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> nn.GridSoftmax(3, columns=4).rows
        3
    """

    rows: int
    columns: int


@FAMILY.register("hierarchical_softmax")
@dataclass(frozen=True)
class HierarchicalSoftmax(Layer):
    """Two levels of softmax: `p(leaf) = p(group) * p(leaf in group)`.

    Input (..., groups + leaves) logits, the groups' first and then each group's
    leaves; output (..., leaves), which sums to one.

    Args:
        groups: How many groups.
        leaves: How many leaves in all, a multiple of the groups; or a sequence of
            how many each group has.

    Raises:
        ConfigError: A setting is out of range, or leaves and groups do not fit.

    Examples:
        >>> nn.HierarchicalSoftmax(groups=2, leaves=(3, 5)).leaves
        (3, 5)
    """

    groups: int
    leaves: int | Sequence[int]

    def __post_init__(self) -> None:
        super().__post_init__()
        groups = self.groups
        each = items(self.leaves)
        given = (self.leaves,) if each is None else each
        counts = tuple(whole("HierarchicalSoftmax", "leaves", count, least=1) for count in given)
        fits = counts[0] % groups == 0 if each is None else len(counts) == groups
        if not fits:
            raise ConfigError(
                f"HierarchicalSoftmax: leaves must be a multiple of groups, or one number for each of the "
                f"{groups} groups, got {shown(self.leaves)}"
            )
        self._set(leaves=counts[0] if each is None else counts)


@FAMILY.register("adaptive_softmax")
@dataclass(frozen=True)
class AdaptiveSoftmax(Layer):
    """A softmax over many words, the frequent ones first, the others in clusters.

    The cutoffs part the words: those before the first are the shortlist; each
    cutoff starts a cluster, the last one reaching to the end. Input (..., words +
    clusters) logits: the shortlist's, one for each cluster, then the words' of each
    cluster; output (..., words): p(word), or p(cluster) * p(word in cluster).

    Args:
        cutoffs: Where the shortlist and each cluster but the last end; rising.

    Raises:
        ConfigError: The cutoffs do not rise.

    Examples:
        >>> nn.AdaptiveSoftmax([100, 1000]).cutoffs
        (100, 1000)
    """

    cutoffs: Sequence[int]

    def __post_init__(self) -> None:
        if items(self.cutoffs) is None:
            self._set(cutoffs=(self.cutoffs,))
        super().__post_init__()
        if not self.cutoffs or any(low >= high for low, high in pairwise(self.cutoffs)):
            raise ConfigError(f"AdaptiveSoftmax: cutoffs must rise, got {shown(self.cutoffs)}")


@FAMILY.register("mixture_softmax")
@dataclass(frozen=True)
class MixtureSoftmax(Layer):
    """A mixture of softmaxes: `sum(pi[k] * softmax(logits[k]))`.

    Input (..., K + K * n): K gate logits, whose softmax is pi, then the K
    softmaxes' logits; output (..., n), which sums to one.

    Args:
        components: How many softmaxes are mixed, K.

    Raises:
        ConfigError: The number of components is out of range.

    Examples:
        >>> nn.MixtureSoftmax(3).components
        3
    """

    components: int


@FAMILY.register("gumbel_softmax")
@dataclass(frozen=True)
class GumbelSoftmax(Layer):
    """A softmax of noisy logits: draws that gradients pass through.

    In training seeded Gumbel noise is added to the logits; at inference it is a
    softmax with this temperature. Over the last axis; the shape stays.

    Args:
        temperature: What the noisy logits are divided by; above zero. The lower,
            the closer to one-hot.

    Raises:
        ConfigError: The temperature is out of range.

    Examples:
        >>> nn.GumbelSoftmax(temperature=0.5).temperature
        0.5
    """

    temperature: float = 1.0


@FAMILY.register("masked_softmax")
@dataclass(frozen=True)
class MaskedSoftmax(Layer):
    """A softmax over what masks leave: masked places get exactly 0; the shape stays.

    Where everything is masked all is 0. Inside a masked sequence (time, ...) the
    padded steps are masked as well: as classes with `axis=0` or for (time,) alone,
    and otherwise by giving them zeros throughout.

    Args:
        mask: Which classes may have a probability, one truth value each; all of
            them by default.
        axis: The axis that sums to one: -1, the last, or 0, the first.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> nn.MaskedSoftmax([True, False, True]).mask
        (True, False, True)
    """

    mask: Sequence[bool] | None = None
    axis: int = -1

    def __post_init__(self) -> None:
        mask = self.mask
        if mask is not None:
            # Arrays are no sequences, but masks are often computed in one.
            each = items(mask.tolist() if hasattr(mask, "tolist") else mask)
            if not each:
                raise ConfigError(
                    f"MaskedSoftmax: mask must be a sequence of one or more truth values, got {shown(mask)}"
                )
            self._set(mask=each)
        if isinstance(self.axis, bool) or np.ndim(self.axis) or self.axis not in (-1, 0):
            raise ConfigError(f"MaskedSoftmax: axis must be -1 or 0, got {shown(self.axis)}")
        self._set(axis=int(self.axis))
        super().__post_init__()


@FAMILY.register("sparsemax")
@dataclass(frozen=True)
class Sparsemax(Layer):
    """Like a softmax, but small logits get exactly 0.

    The nearest distribution to the logits, over the last axis; the shape stays.

    Examples:
        >>> nn.Sparsemax().to_config()
        {'type': 'sparsemax'}
    """


@FAMILY.register("entmax")
@dataclass(frozen=True)
class Entmax(Layer):
    """Between softmax (alpha towards 1) and sparsemax (2): the larger, the more zeros.

    Over the last axis; the shape stays. Alpha 1.5 and 2 are exact, others found by
    bisection.

    Args:
        alpha: Above 1.

    Raises:
        ConfigError: Alpha is out of range.

    Examples:
        >>> nn.Entmax().alpha
        1.5
    """

    alpha: float = 1.5
