"""Networks that complement each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from loom._settings.checks import whole
from loom._typing import ArrayLike, RealArray
from loom.analysis.evaluation import answers_of_open_extents
from loom.data import ArraySource, Classes, Data, as_source
from loom.engine import engine_of
from loom.engine.labels import indexed, known_classes
from loom.errors import ConfigError
from loom.metrics import correct
from loom.network import Network
from loom.reports.matching import Group, Masks, Matches, as_masks, group_of, matches_of
from loom.training.labelling import as_known

__all__ = ["Predictor", "best_group", "correctness", "match"]


class Predictor(Protocol):
    """What predicts: a `loom.Network`, an `Ensemble`."""

    def predict(self, x: ArrayLike, batch_size: int = ...) -> RealArray:
        """Returns the output for each sample."""
        ...


def correctness(
    networks: Sequence[Predictor], data: Data, *, threshold: float | None = None, batch_size: int = 256
) -> NDArray[np.bool_]:
    """Says which samples each network classifies right, as the metric "accuracy" counts.

    Args:
        networks: Networks or ensembles.
        data: (x, y) arrays, a `TrainingBatch`, or an iterable of either that can be gone through once for
            all networks; or a frame, where the first network has learned from a table. Labels are those that
            each network has learned; where one has learned none, those of the others.
        threshold: A single output above it means class 1; needed for such: 0 for logits, 0.5 for
            probabilities.
        batch_size: How many samples are computed at a time.

    Returns:
        (networks, samples) booleans; of images and sequences a sample for each place.

    Raises:
        ConfigError: Something is no network, or there is none.
        DataError: The data is empty, of unequal length, or of no known form.
        ShapeError: It does not fit a network.
    """
    size = whole("correctness", "batch_size", batch_size, least=1)
    given: object = networks
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence) or not given:
        raise ConfigError(f"networks must be a list of networks, got {given!r}")
    for network in networks:
        if not hasattr(network, "predict"):
            raise ConfigError(f"expected a loom.Network or an Ensemble, got {type(network).__name__}")
    opened = [
        each for network in networks for each in _members(network) if engine_of(each).sizing is not None
    ]
    if opened:
        return np.stack([_of_open_extents(network, data, threshold, size) for network in networks])
    found = [_classes_of(network) for network in networks]
    told = next((known for known in found if known is not None), None)
    classes = [told if known is None else known for known in found]
    source = as_source(_as_known(networks, data))
    batches = [source.batch] if isinstance(source, ArraySource) else source
    parts = [
        [
            correct(
                network.predict(batch.input, size),
                cast("ArrayLike", indexed(batch.target, known)),
                threshold,
            )
            for network, known in zip(networks, classes, strict=True)
        ]
        for batch in batches
    ]
    return np.concatenate([np.stack(part) for part in parts], axis=1)


def _of_open_extents(
    network: object, data: Data, threshold: float | None, batch_size: int
) -> NDArray[np.bool_]:
    """Says which samples, or steps of them, a network has right whose samples have extents of their own."""
    if not isinstance(network, Network):
        raise ConfigError(
            f"networks of open extents are compared with each other, got {type(network).__name__} beside one"
        )
    return correct(*answers_of_open_extents(network, data, batch_size), threshold)


def _members(network: object) -> list[Network]:
    """Returns the networks that something predicts by, as far as they are loom's."""
    members = getattr(network, "networks", (network,))
    return [each for each in members if isinstance(each, Network)]


def _classes_of(network: object) -> Classes | None:
    """Returns the classes of what predicts; None where nobody has named them."""
    known = (known_classes(engine_of(each)).get("") for each in _members(network))
    return next((classes for classes in known if classes is not None), None)


def _as_known(networks: Sequence[Predictor], data: Data) -> Data:
    """Returns data in a form that all networks take: frames by the encoder of the first one."""
    members = [each for network in networks for each in _members(network)]
    return as_known(engine_of(members[0]), data, None) if members else data


def match(
    models: Masks | Sequence[Predictor],
    data: Data | None = None,
    *,
    minimum: float = 0.0,
    names: Sequence[object] | None = None,
    threshold: float | None = None,
    batch_size: int = 256,
) -> Matches:
    """Lists pairs of models by how well they complement each other.

    Args:
        models: (models, samples) booleans, which samples each model has right; such a row by each model's
            name; or, with data, networks.
        data: What networks are tried on; see `correctness`.
        minimum: The least coverage, the share of samples that either has right, of a pair that is listed.
        names: The models' names; "model 0" and so on where None.
        threshold: For networks of a single output: what is above it means class 1.
        batch_size: How many samples networks compute at a time.

    Returns:
        The pairs: by coverage downwards, then by overlap, the share that both have right, upwards, then in
        the models' order.

    Raises:
        DataError: There are fewer than two models, or a mask is empty.
        ShapeError: Masks are of different lengths.
        DTypeError: A mask holds no booleans.
        ConfigError: A setting is out of range, or names do not fit.

    Examples:
        >>> masks = {"a": [1, 1, 0, 0], "b": [1, 1, 1, 0], "c": [0, 0, 1, 1]}
        >>> for pair in loom.analysis.match(masks, minimum=0.9).pairs:
        ...     print(pair.first, pair.second, pair.coverage, pair.overlap)
        a c 1.0 0.0
        b c 1.0 0.25
    """
    masks, called = _masks(models, data, names, threshold, batch_size)
    return matches_of(masks, called, minimum)


def best_group(
    models: Masks | Sequence[Predictor],
    k: int,
    data: Data | None = None,
    *,
    names: Sequence[object] | None = None,
    threshold: float | None = None,
    batch_size: int = 256,
) -> Group:
    """Picks k models that cover much together, greedily.

    The best one first, then whichever has most samples right that all before have wrong; of several the
    more accurate one, then the earlier. A greedy choice covers at least 1 - 1/e, 63 %, of what the best k
    would (Nemhauser, Wolsey and Fisher 1978).

    Args:
        models: As for `match`.
        k: How many.
        data: What networks are tried on; see `correctness`.
        names: The models' names; "model 0" and so on where None.
        threshold: For networks of a single output: what is above it means class 1.
        batch_size: How many samples networks compute at a time.

    Returns:
        The models in the order in which they were taken, with the coverage so far.

    Raises:
        DataError: There are no models, or a mask is empty.
        ShapeError: Masks are of different lengths.
        DTypeError: A mask holds no booleans.
        ConfigError: k is larger than the number of models, or names do not fit.

    Examples:
        >>> masks = {"a": [1, 1, 0, 0], "b": [1, 1, 1, 0], "c": [0, 0, 1, 1]}
        >>> found = loom.analysis.best_group(masks, 2)
        >>> found.names, found.coverage
        (('b', 'c'), 1.0)
    """
    masks, called = _masks(models, data, names, threshold, batch_size)
    return group_of(masks, called, k)


def _masks(
    models: Any,  # noqa: ANN401 - masks or networks
    data: Data | None,
    names: Sequence[object] | None,
    threshold: float | None,
    batch_size: int,
) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    if data is not None:
        if isinstance(models, Mapping):
            names, models = names or list(models), list(models.values())
        models = correctness(models, data, threshold=threshold, batch_size=batch_size)
    elif isinstance(models, (list, tuple)) and any(hasattr(model, "predict") for model in models):
        raise ConfigError("networks are matched on data; give match(networks, (x, y))")
    return as_masks(models, names)
