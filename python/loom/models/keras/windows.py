"""Layers of Keras that go over windows: convolutions, pooling, edges and resizing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from loom.models.branches import Row
from loom.models.keras.activations import activation
from loom.models.keras.values import Value, extents, refuse

__all__ = ["convolution", "depthwise", "edges", "globally", "pool", "separable", "transposed", "up_sampling"]

Config = Mapping[str, Any]
Arrays = Sequence[NDArray[Any]]
Make = Callable[[Config, Arrays, Value, Config], Row]


def _padding(config: Config, kernel: Sequence[int]) -> tuple[Row, Any]:
    """Zeros that go before a convolution, and its padding."""
    padding = config["padding"]
    if padding == "causal":
        reach = config["dilation_rate"][0] * (kernel[0] - 1)
        return [{"type": "zero_padding1d", "before": reach, "after": 0}], 0
    return [], padding


def convolution(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    """A convolution."""
    kernel, *bias = arrays
    before, padding = _padding(config, kernel.shape[:-2])
    layer = {
        "type": f"conv{kernel.ndim - 2}d",
        "stride": config["strides"],
        "padding": padding,
        "dilation": config.get("dilation_rate", 1),
        "groups": config.get("groups", 1),
        "kernel": kernel,
        **({"bias": bias[0]} if bias else {}),
    }
    return [*before, layer, *activation(config.get("activation"), value)]


def transposed(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    """A transposed convolution."""
    kernel, *bias = arrays
    refuse(config.get("output_padding") is not None, "output_padding of a transposed convolution")
    # Keras's kernels of these have outputs before inputs.
    layer = {
        "type": f"conv_transpose{kernel.ndim - 2}d",
        "stride": config["strides"],
        "padding": config["padding"],
        "dilation": config.get("dilation_rate", 1),
        "kernel": kernel,
        **({"bias": bias[0]} if bias else {}),
    }
    if config["padding"] == "valid":
        # No output is shorter than the input times the stride, however small windows are.
        axes = kernel.ndim - 2
        strides, dilations = (extents(config.get(name, 1), axes) for name in ("strides", "dilation_rate"))
        reaches = [
            distance * (size - 1) + 1 for distance, size in zip(dilations, kernel.shape[:axes], strict=True)
        ]
        added = [max(step - reach, 0) for step, reach in zip(strides, reaches, strict=True)]
        if any(added):
            layer["output_padding"] = added
    return [layer, *activation(config.get("activation"), value)]


def depthwise(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    """A convolution of each channel by itself."""
    kernel, *bias = arrays
    before, padding = _padding(config, kernel.shape[:-2])
    return [
        *before,
        _by_channel(config, kernel, padding, bias),
        *activation(config.get("activation"), value),
    ]


def _by_channel(config: Config, kernel: NDArray[Any], padding: Any, bias: Arrays) -> dict[str, Any]:  # noqa: ANN401
    *window, channels, many = kernel.shape
    axes = len(window)
    weight = kernel.transpose(axes, axes + 1, *range(axes)).reshape(channels * many, 1, *window)
    settings = {"stride": config["strides"], "padding": padding, "dilation": config.get("dilation_rate", 1)}
    held = {"bias": bias[0]} if bias else {}
    return {"type": f"conv{axes}d", "groups": channels, **settings, "weight": weight, **held}


def separable(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    """A convolution of each channel by itself, and one across channels."""
    by_channel, across, *bias = arrays
    before, padding = _padding(config, by_channel.shape[:-2])
    axes = by_channel.ndim - 2
    layer = {"type": f"conv{axes}d", "kernel": across, **({"bias": bias[0]} if bias else {})}
    first = _by_channel(config, by_channel, padding, ())
    return [*before, first, layer, *activation(config.get("activation"), value)]


def pool(kind: str) -> Make:
    """Returns what makes a pooling of one kind."""

    def make(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
        axes = value.rank - 1
        window = extents(config["pool_size"], axes)
        stride = extents(config["strides"] or window, axes)
        layer: dict[str, Any] = {"type": f"{kind}{axes}d", "pool_size": window, "stride": stride}
        if config["padding"] != "same":
            return [layer]
        settings, cut = _same(window, stride, value)
        if kind.startswith("avg"):
            settings["count_include_pad"] = False
        after: Row = [{"type": f"crop{axes}d", "before": cut, "after": [0] * axes}] if any(cut) else []
        return [layer | settings, *after]

    return make


def _same(window: Sequence[int], stride: Sequence[int], value: Value) -> tuple[dict[str, Any], list[int]]:
    """The padding that gives ceil(extent / stride), and how many outputs are then cut off in front.

    Where it is odd Keras has one more at the end. With strides the last window reaches there by itself, with
    `ceil_mode`; without, one more stands in front, too, and what the first window makes is cut off.
    """
    rims, cut, reaches = [], [], False
    for axis, (size, step) in enumerate(zip(window, stride, strict=True)):
        if step == 1:
            total = size - 1
        elif size == 1 or size == step == 2:
            # Whatever the extent is, nothing stands before it, and the last window may be cut.
            total, reaches = 0, True
        else:
            extent = value.extents('padding="same" of a pooling with strides')[axis + 1]
            total = max((-(-extent // step) - 1) * step + size - extent, 0)
            reaches = reaches or total % 2 == 1
        odd = step == 1 and total % 2 == 1
        rims.append(total // 2 + odd)
        cut.append(int(odd))
    return {"padding": rims, **({"ceil_mode": True} if reaches else {})}, cut


def globally(kind: str) -> Make:
    """Returns what makes a pooling over all places."""

    def make(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
        axes = value.rank - 1
        if config.get("keepdims"):
            return [{"type": f"adaptive_{kind}_pool{axes}d", "size": [1] * axes}]
        return [{"type": f"global_{kind}_pool{axes}d"}]

    return make


def edges(kind: str, setting: str) -> Make:
    """Returns what adds or takes away something before and after each axis."""

    def make(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
        given = config[setting]
        pairs = [given] if isinstance(given[0], int) else given
        ends = [list(side) for side in zip(*pairs, strict=True)]
        return [{"type": f"{kind}{value.rank - 1}d", "before": ends[0], "after": ends[1]}]

    return make


def up_sampling(config: Config, arrays: Arrays, value: Value, options: Config) -> Row:
    """Places that are repeated, or put between others."""
    mode = config.get("interpolation", "nearest")
    refuse(mode not in ("nearest", "bilinear"), f"interpolation {mode} of an UpSampling2D")
    axes = value.rank - 1
    size = config["size"]
    scale = [size] * axes if isinstance(size, int) else list(size)
    return [{"type": f"up_sampling{axes}d", "scale": scale, "mode": mode}]
