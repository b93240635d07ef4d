"""What networks look at: saliency, attention weights, samples in the plane."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from loom._figures import check_drawn, empty_figure, finished
from loom._palette import COLORS, INK, MANY_POINTS, MARKERS, SOFT
from loom._settings.checks import whole
from loom._typing import ArrayLike
from loom.convert import as_real_array
from loom.errors import ConfigError, DataError, ShapeError
from loom.reports.embedding import Embedding
from loom.reports.saliency import Saliency

if TYPE_CHECKING:
    from matplotlib.figure import Figure


__all__ = ["attention", "embedding", "saliency"]

_MOST_COLORS = 20
"""So many labels have a colour and a mark of their own."""


def saliency(
    saliency: Saliency,
    inputs: ArrayLike | None = None,
    *,
    names: Sequence[str] | None = None,
    most: int = 12,
    columns: int = 6,
    path: str | Path | None = None,
) -> Figure:
    """Draws what an output owes to each element of samples: red for it, blue against it.

    Images, (height, width) or (channels, height, width), are drawn as images, the attributions of an
    image's channels added up; everything else as bars.

    Args:
        saliency: What `loom.analysis.saliency` returned.
        inputs: (samples, *input_shape) the samples, which are then drawn above.
        names: Of bars: the name of each element.
        most: How many samples are drawn, the first ones.
        columns: How many stand side by side.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ConfigError: Something else is given.
        ShapeError: The inputs or names do not fit.
        DataError: There are no samples.
        FileError: The picture cannot be written.
    """
    check_drawn("saliency", saliency, Saliency)
    values = saliency.values[: whole("saliency", "most", most, least=1)]
    if not len(values):
        raise DataError("there is nothing to draw: there are no samples")
    shown = None
    if inputs is not None:
        given = as_real_array(inputs, "float64", what="inputs")
        if given.shape != saliency.values.shape:
            raise ShapeError(f"inputs of shape {given.shape} are not those of {saliency.values.shape}")
        shown = given[: len(values)]
    columns = min(whole("saliency", "columns", columns, least=1), len(values))
    is_image = values.ndim == 3 or (values.ndim == 4 and values.shape[1] in (1, 3))
    each = 1 if shown is None else 2
    rows = each * -(-len(values) // columns)
    figure = empty_figure(
        width=(1.5 if is_image else 3.0) * columns, height=(1.6 if is_image else 2.0) * rows
    )
    for place in range(len(values)):
        row, column = divmod(place, columns)
        title = f"output {', '.join(map(str, saliency.targets[place]))}: {saliency.outputs[place]:.3g}"
        if shown is not None:
            axes = figure.add_subplot(rows, columns, each * row * columns + column + 1)
            _sample(axes, shown[place], is_image=is_image)
            axes.set_title(title, fontsize=8)
        axes = figure.add_subplot(rows, columns, (each * row + each - 1) * columns + column + 1)
        if shown is None:
            axes.set_title(title, fontsize=8)
        _attributions(axes, values[place], names, is_image=is_image)
    return finished(figure, path)


def _sample(axes: Any, sample: NDArray[Any], *, is_image: bool) -> None:  # noqa: ANN401
    if not is_image:
        axes.bar(range(sample.size), sample.reshape(-1), color=SOFT)
        axes.set_xticks([])
        return
    picture = sample if sample.ndim == 2 else sample[0] if len(sample) == 1 else np.moveaxis(sample, 0, -1)
    if picture.ndim == 3:
        least, most = picture.min(), picture.max()
        picture = (picture - least) / max(most - least, np.finfo(float).tiny)
    axes.imshow(picture, cmap="gray", interpolation="none")
    axes.set_axis_off()


def _attributions(
    axes: Any,  # noqa: ANN401
    values: NDArray[np.float64],
    names: Sequence[str] | None,
    *,
    is_image: bool,
) -> None:
    if is_image:
        picture = values if values.ndim == 2 else values.sum(axis=0)
        largest = max(float(np.abs(picture).max()), np.finfo(float).tiny)
        axes.imshow(picture, cmap="RdBu_r", vmin=-largest, vmax=largest, interpolation="none")
        axes.set_axis_off()
        return
    flat = values.reshape(-1)
    if names is not None and len(names) != flat.size:
        raise ShapeError(f"{len(names)} names do not fit {flat.size} elements")
    axes.bar(range(flat.size), flat, color=[COLORS[0] if value < 0 else COLORS[1] for value in flat])
    axes.axhline(0.0, color=INK, linewidth=0.5)
    if names is None:
        axes.set_xticks([])
    else:
        axes.set_xticks(range(flat.size), names, fontsize=7, rotation=90)


def embedding(embedding: Embedding, *, title: str | None = None, path: str | Path | None = None) -> Figure:
    """Draws samples in the plane, in the colours of their labels.

    Args:
        embedding: What `loom.analysis.embed` returned.
        title: What stands above.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ConfigError: Something else is given.
        FileError: The picture cannot be written.
    """
    check_drawn("embedding", embedding, Embedding)
    figure = empty_figure(width=6.0, height=5.0)
    axes = figure.add_subplot()
    x, y = embedding.points.T
    many = len(x) > MANY_POINTS
    labels = embedding.labels
    names = [] if labels is None else sorted(set(labels), key=lambda name: (len(name), name))
    if labels is None or len(names) > _MOST_COLORS:
        axes.scatter(x, y, s=9, rasterized=many)
    else:
        for number, name in enumerate(names):
            chosen = np.array([label == name for label in labels])
            color, marker = COLORS[number % len(COLORS)], MARKERS[number // len(COLORS)]
            axes.scatter(x[chosen], y[chosen], s=12, color=color, marker=marker, label=name, rasterized=many)
        axes.legend(fontsize=8, markerscale=2, loc="best")
    if embedding.method == "pca":
        axes.set_xlabel(f"first component ({embedding.explained[0]:.0%} of the variance)")
        axes.set_ylabel(f"second component ({embedding.explained[1]:.0%})")
    else:
        axes.set_xticks([])
        axes.set_yticks([])
    method = {"pca": "PCA", "tsne": "t-SNE"}.get(embedding.method, embedding.method)
    axes.set_title(title or f"{method} of {len(x)} samples of {embedding.features} features")
    return finished(figure, path)


def attention(
    weights: ArrayLike,
    *,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    columns: int = 4,
    path: str | Path | None = None,
) -> Figure:
    """Draws how much each query of one sample looks at each key, a picture for each head.

    Args:
        weights: (heads, queries, keys) one sample of the `.attention` of `net.activations`.
        queries: The name of each query, such as its word.
        keys: The name of each key; those of the queries where None and there are as many.
        columns: How many heads stand side by side.
        path: Where to write the picture; its ending says the format.

    Returns:
        The matplotlib figure.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        ShapeError: The weights are not those of one sample, or names do not fit.
        FileError: The picture cannot be written.
    """
    heads = as_real_array(weights, "float64", what="weights")
    if heads.ndim != 3:
        raise ShapeError(f"weights must be (heads, queries, keys) of one sample, got shape {heads.shape}")
    if keys is None and queries is not None and heads.shape[1] == heads.shape[2]:
        keys = queries
    for what, names, extent in (("queries", queries, heads.shape[1]), ("keys", keys, heads.shape[2])):
        if names is not None and len(names) != extent:
            raise ConfigError(f"{len(names)} names do not fit {extent} {what}")
    columns = min(whole("attention", "columns", columns, least=1), len(heads))
    rows = -(-len(heads) // columns)
    figure = empty_figure(width=2.4 * columns + 0.8, height=2.6 * rows)
    image = None
    for number, picture in enumerate(heads):
        axes = figure.add_subplot(rows, columns, number + 1)
        image = axes.imshow(picture, cmap="viridis", vmin=0.0, vmax=1.0, interpolation="none")
        axes.set_title(f"head {number}", fontsize=9)
        for ticks, names in ((axes.set_yticks, queries), (axes.set_xticks, keys)):
            if names is not None:
                rotation = 90 if ticks == axes.set_xticks else 0
                ticks(range(len(names)), names, fontsize=7, rotation=rotation)
    if image is not None:
        figure.colorbar(image, ax=figure.axes, shrink=0.7)
    return finished(figure, path)
