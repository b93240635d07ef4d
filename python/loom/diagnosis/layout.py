"""Findings about the order of axes, which other libraries have otherwise: channels, and steps."""

from __future__ import annotations

from collections.abc import Iterator

from loom.diagnosis import thresholds
from loom.diagnosis.case import Case, Stage
from loom.diagnosis.names import finding
from loom.reports.findings import Finding

__all__ = ["look_at_layout"]

_CHANNELS_FIRST = frozenset(
    {
        "adaptive_avg_pool1d",
        "adaptive_max_pool1d",
        "avg_pool1d",
        "conv1d",
        "conv_transpose1d",
        "crop1d",
        "global_avg_pool1d",
        "global_max_pool1d",
        "max_pool1d",
        "up_sampling1d",
        "zero_padding1d",
    }
)
"""Layers that read (channels, length)."""

_STEPS_FIRST = frozenset(
    {
        "gru",
        "lstm",
        "multi_head_attention",
        "positional_embedding",
        "rnn",
        "sequence_pool",
        "sinusoidal_positions",
    }
)
"""Layers that read (steps, features)."""

_MAKES_STEPS = _STEPS_FIRST | {"embedding"}

_KEEPS = frozenset(
    {
        "activation",
        "batch_norm",
        "dropout",
        "gaussian_noise",
        "group_norm",
        "instance_norm",
        "l2_norm",
        "layer_norm",
        "prelu",
        "rms_norm",
        "scale",
        "spatial_dropout1d",
    }
)
"""Layers after which axes mean what they did before."""


def look_at_layout(case: Case) -> Iterator[Finding]:
    """Finds layers that take one axis for another."""
    yield from _images(case)
    yield from _signals(case)
    yield from _exchanged(case.stages)


def _images(case: Case) -> Iterator[Finding]:
    """Finds images whose channels seem to be the last extent."""
    if not case.stages or case.stages[0].config.kind != "conv2d" or len(case.stages[0].input_shape) != 3:
        return
    first, height, last = case.stages[0].input_shape
    if first == height and first >= thresholds.IMAGE_EXTENT and last in (1, 3, 4):
        yield finding(
            "channels-last",
            f"The first convolution reads {first} channels of {height} x {last} pixels: the input seems to "
            "be (height, width, channels), but channels come first.",
            f"input_shape=({last}, {first}, {height}), and np.moveaxis(x, -1, 1) for the images.",
            layer=case.stages[0].path,
            channels=first,
        )


def _signals(case: Case) -> Iterator[Finding]:
    """Finds series whose features seem to be the last extent."""
    if not case.stages or case.stages[0].config.kind != "conv1d" or len(case.stages[0].input_shape) != 2:
        return
    channels, length = case.stages[0].input_shape
    if channels >= thresholds.TURNED_SERIES * length:
        yield finding(
            "channels-last",
            f"The first convolution reads {channels} channels of {length} moments: the input seems to be "
            "(steps, features), but Conv1D reads (channels, length).",
            f"input_shape=({length}, {channels}), and np.swapaxes(x, 1, 2) for the series; or "
            "`nn.Permute((1, 0))` first.",
            layer=case.stages[0].path,
            channels=channels,
        )


def _exchanged(stages: tuple[Stage, ...]) -> Iterator[Finding]:
    """Finds a convolution that reads steps for channels, and what reads steps behind a convolution."""
    before: Stage | None = None
    steps = False
    for stage in stages:
        kind = stage.config.kind
        if before is not None and before.path.rpartition(".")[0] != stage.path.rpartition(".")[0]:
            # Links may bring anything into a cell.
            before = None
        turned = len(stage.input_shape) == 2 and kind in (_CHANNELS_FIRST if steps else _STEPS_FIRST)
        if before is not None and turned:
            first, last = ("steps", "features") if steps else ("channels", "length")
            other = "(channels, length)" if steps else "(steps, features)"
            yield finding(
                "steps-for-channels",
                f"{type(stage.config).__name__} reads {other}, but {type(before.config).__name__} before it "
                f"gives ({first}, {last}), here {stage.input_shape}.",
                "Put `nn.Permute((1, 0))` between them.",
                layer=stage.path,
            )
        if kind in _MAKES_STEPS or kind in _CHANNELS_FIRST:
            before, steps = stage, kind in _MAKES_STEPS
        elif kind not in _KEEPS:
            before = None
