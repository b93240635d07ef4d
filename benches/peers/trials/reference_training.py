"""Losses, optimizers and schedules in PyTorch."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from numpy.typing import NDArray
from torch import Tensor

from loom import losses, nn, optimizers, schedules
from trials.drawing import Drawn
from trials.drawing_training import Aim, Course, class_axis
from trials.reference import Reference


def loss_sum(
    aim: Aim, output: Tensor, target: NDArray[Any], weight: NDArray[Any] | None
) -> tuple[Tensor, float]:
    """Returns the weighted sum of all losses, and what it is divided by for the mean."""
    rows = torch.ones(len(output), dtype=output.dtype)
    if weight is not None:
        rows = torch.tensor(weight, dtype=output.dtype)
    shape = tuple(output.shape[1:])
    if not aim.over_classes:
        wanted = torch.tensor(target, dtype=output.dtype)
        if aim.name == "mse":
            each = (output - wanted) ** 2
        elif aim.name == "mae":
            each = (output - wanted).abs()
        elif aim.name == "log_cosh":
            apart = output - wanted
            each = torch.logaddexp(apart, -apart) - math.log(2.0)
        elif isinstance(aim.loss, losses.Huber):
            each = F.huber_loss(output, wanted, reduction="none", delta=aim.loss.delta)
        else:
            each = F.binary_cross_entropy_with_logits(output, wanted, reduction="none")
        count = math.prod(shape)
        return (each.flatten(1).sum(dim=1) * rows).sum(), float(rows.sum()) * count

    # Classes last, places within a row before them.
    scores = output.movedim(1 + class_axis(shape), -1)
    classes = scores.shape[-1]
    scores = scores.reshape(len(output), -1, classes)
    factors = torch.ones(classes, dtype=output.dtype)
    if isinstance(aim.class_weight, dict):
        for number, factor in aim.class_weight.items():
            factors[number] = factor
    elif aim.class_weight is not None:
        factors = torch.tensor(aim.class_weight, dtype=output.dtype)
    if aim.soft:
        given = torch.tensor(target, dtype=output.dtype).movedim(1 + class_axis(shape), -1)
        shares = given.reshape(scores.shape)
        divisor = rows.sum() * scores.shape[1]
    else:
        indices = torch.tensor(target, dtype=torch.int64).reshape(len(output), -1)
        shares = F.one_hot(indices, classes).to(output.dtype)
        divisor = (factors[indices].sum(dim=1) * rows).sum()
    shares = (1 - aim.label_smoothing) * shares + aim.label_smoothing / classes
    if aim.name == "nll":
        # Below that neither the value nor the divisor of the gradient goes on falling.
        bounded = scores.detach().clamp(min=aim.least)
        logarithms = torch.log(bounded) + (scores - scores.detach()) / bounded
    else:
        logarithms = torch.log_softmax(scores, dim=-1)
    each = -(shares * factors * logarithms).sum(dim=(1, 2))
    return (each * rows).sum(), float(divisor)


def mean_loss(aim: Aim, output: Tensor, target: NDArray[Any], weight: NDArray[Any] | None) -> Tensor:
    """Returns the mean loss."""
    total, divisor = loss_sum(aim, output, target, weight)
    return total / divisor


def fused(aim: Aim, exact: bool = False) -> Aim:
    """Returns the loss in terms of what the network gives: of probabilities behind a softmax.

    Args:
        aim: The loss.
        exact: Whether the softmax is part of the loss, which then knows its logits, as in `loom.train`.
    """
    if aim.absorbed and aim.over_classes:
        return replace(aim, loss="nll", least=1e-300 if exact else aim.least)
    return aim


def factor(schedule: schedules.Schedule, step: int, total: int) -> float:
    """Returns what a schedule multiplies the rate of a step by; steps count from 0."""

    def past(steps: int | None) -> float:
        return min(step / max(total if steps is None else steps, 1), 1.0)

    def cosine(progress: float, end: float) -> float:
        return end + (1 - end) * (1 + math.cos(math.pi * progress)) / 2

    if isinstance(schedule, schedules.Linear):
        return 1 + (schedule.end_factor - 1) * past(schedule.steps)
    if isinstance(schedule, schedules.Cosine):
        return cosine(past(schedule.steps), schedule.end_factor)
    if isinstance(schedule, schedules.CosineRestarts):
        at, length = float(step), float(schedule.period)
        while at >= length:
            at, length = at - length, length * schedule.period_factor
        return cosine(at / length, schedule.end_factor)
    if isinstance(schedule, schedules.Exponential):
        return float(schedule.gamma ** (step / schedule.steps))
    if isinstance(schedule, schedules.Step):
        return float(schedule.gamma ** (step // schedule.steps))
    if isinstance(schedule, schedules.Polynomial):
        return float(
            schedule.end_factor + (1 - schedule.end_factor) * (1 - past(schedule.steps)) ** schedule.power
        )
    if isinstance(schedule, schedules.OneCycle):
        return one_cycle(schedule, step, max(total if schedule.steps is None else schedule.steps, 1))
    if isinstance(schedule, schedules.Warmup):
        if step < schedule.steps:
            return (step + 1) / schedule.steps
        then: Any = schedule.then
        return factor(then, step - schedule.steps, total - schedule.steps)
    return 1.0


def one_cycle(schedule: schedules.OneCycle, step: int, total: int) -> float:
    """Returns what PyTorch's own scheduler says."""
    rule = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        rule,
        max_lr=1.0,
        total_steps=total,
        pct_start=schedule.rise,
        div_factor=schedule.div_factor,
        final_div_factor=schedule.final_div_factor,
        cycle_momentum=False,
    )
    rule.step()
    for _ in range(min(step, total - 1)):
        cycle.step()
    return float(cycle.get_last_lr()[0])


def is_exempt(name: str, drawn: Drawn) -> bool:
    """Whether a parameter is a bias or a norm's gain, which `decay_exempt` leaves out."""
    own = name.rsplit(".", 1)[-1]
    if "bias" in own or own.endswith("gain"):
        return True
    return own == "weight" and norm_at(name, drawn)


def norm_at(name: str, drawn: Drawn) -> bool:
    """Whether a parameter stands in a norm, however deep within other layers."""
    z, y, x, place, *within = name.split(".")[:-1]
    layer: Any = drawn.cells[int(z), int(y), int(x)][int(place)]
    while within:
        part = within.pop(0)
        if part == "layers":
            layer = layer.layers
        elif part == "projection":
            layer = layer.projection
        elif part == "gate":
            layer = layer.gate
        elif part == "branches":
            layer = layer.branches[int(within.pop(0))]
        else:
            layer = layer.layers if not isinstance(layer, (tuple, list)) else layer
            layer = layer[int(part)] if layer else None
    return isinstance(layer, (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.InstanceNorm, nn.BatchNorm))


class Update:
    """An optimizer over a reference's parameters.

    Args:
        reference: The network.
        course: The rule, and what is trained how fast.
        scaled: Whether depth scales the rate, as in `loom.train`.
    """

    def __init__(self, reference: Reference, course: Course, scaled: bool) -> None:
        self.reference = reference
        self.course = course
        self.rates: list[float] = []
        groups: list[dict[str, Any]] = []
        layers = [path for path, _ in reference.drawn.layers]
        decay = getattr(course.optimizer, "weight_decay", 0.0)
        exempt = getattr(course.optimizer, "decay_exempt", False)
        for name, value in reference.values.items():
            path = ".".join(name.split(".")[:4])
            own = name[len(path) + 1 :]
            if path in course.untrained or own in course.frozen.get(path, ()):
                continue
            number = layers.index(path)
            depth = 1.0
            if scaled and course.depth_scale == "geometric":
                depth = 1.1**number
            if scaled and course.depth_scale == "inv_sqrt":
                depth = 1 / math.sqrt(len(layers) - number)
            self.rates.append(course.factors.get(path, 1.0) * depth)
            share = 0.0 if exempt and is_exempt(name, reference.drawn) else decay
            groups.append({"params": [value], "weight_decay": share})
        self.rule = _rule(course.optimizer, groups) if groups else None

    def clip(self) -> float:
        """Clamps elements, then scales all gradients together; returns the norm between the two."""
        self.reference.disturb_gradients()
        course = self.course
        trained = [
            value
            for name, value in self.reference.values.items()
            if ".".join(name.split(".")[:4]) not in course.untrained and value.grad is not None
        ]
        with torch.no_grad():
            if course.clip_value is not None:
                for value in trained:
                    value.grad.clamp_(-course.clip_value, course.clip_value)
            norm = math.sqrt(sum(float(value.grad.square().sum()) for value in trained))
            if course.gradient_clip is not None and norm > course.gradient_clip:
                for value in trained:
                    value.grad.mul_(course.gradient_clip / norm)
        return norm

    def step(self, rate: float) -> None:
        """Moves every parameter that is trained, and forgets the gradients."""
        if self.rule is not None:
            for group, share in zip(self.rule.param_groups, self.rates, strict=True):
                group["lr"] = rate * share
                value = group["params"][0]
                if value.grad is None:
                    value.grad = torch.zeros_like(value)
            self.rule.step()
        for value in self.reference.values.values():
            value.grad = None


class GravesRMSprop:
    """RMSprop with epsilon below the root (Graves 2013), which PyTorch does not have.

    Args:
        groups: One parameter each, with its weight decay.
        rule: The settings.
    """

    def __init__(self, groups: list[dict[str, Any]], rule: optimizers.RMSprop) -> None:
        self.param_groups = groups
        self._settings = rule
        self._state = [[torch.zeros_like(group["params"][0]) for _ in range(3)] for group in groups]

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def step(self) -> None:
        """Moves every parameter."""
        rule = self._settings
        for group, (square, mean, velocity) in zip(self.param_groups, self._state, strict=True):
            value = group["params"][0]
            g = value.grad + group["weight_decay"] * value
            square.mul_(rule.alpha).add_((1 - rule.alpha) * g * g)
            variance = square
            if rule.centered:
                mean.mul_(rule.alpha).add_((1 - rule.alpha) * g)
                variance = square - mean**2
            velocity.mul_(rule.momentum).add_(g / (variance + rule.epsilon).sqrt())
            value.sub_(group["lr"] * velocity)


class Lion:
    """Lion as Chen et al. (2023) write it, which PyTorch does not have.

    Args:
        groups: One parameter each, with its weight decay.
        rule: The settings.
    """

    def __init__(self, groups: list[dict[str, Any]], rule: optimizers.Lion) -> None:
        self.param_groups = groups
        self._settings = rule
        self._means = [torch.zeros_like(group["params"][0]) for group in groups]

    @torch.no_grad()  # type: ignore[untyped-decorator,unused-ignore]
    def step(self) -> None:
        """Moves every parameter."""
        rule = self._settings
        for group, mean in zip(self.param_groups, self._means, strict=True):
            value = group["params"][0]
            direction = (rule.beta1 * mean + (1 - rule.beta1) * value.grad).sign()
            value.sub_(group["lr"] * (direction + group["weight_decay"] * value))
            mean.mul_(rule.beta2).add_((1 - rule.beta2) * value.grad)


def _rule(rule: optimizers.Optimizer, groups: list[dict[str, Any]]) -> Any:  # noqa: ANN401 - one of several
    plain = {"lr": 0.0, "foreach": False}
    if isinstance(rule, optimizers.SGD):
        return torch.optim.SGD(groups, momentum=rule.momentum, nesterov=rule.nesterov, **plain)
    if isinstance(rule, optimizers.Lion):
        return Lion([{**group, "lr": 0.0} for group in groups], rule)
    if isinstance(rule, optimizers.RMSprop):
        if rule.epsilon_in_root:
            return GravesRMSprop([{**group, "lr": 0.0} for group in groups], rule)
        settings = {"alpha": rule.alpha, "eps": rule.epsilon, "momentum": rule.momentum}
        return torch.optim.RMSprop(groups, centered=rule.centered, **settings, **plain)
    kind = torch.optim.AdamW if isinstance(rule, optimizers.AdamW) else torch.optim.Adam
    moments: Any = rule
    return kind(groups, betas=(moments.beta1, moments.beta2), eps=moments.epsilon, **plain)


def train(
    reference: Reference,
    course: Course,
    aim: Aim,
    data: tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None],
) -> dict[str, list[float]]:
    """Trains a network as `loom.train` documents it; returns the mean loss and metrics of each epoch."""
    x, target, weight = data
    update = Update(reference, course, scaled=True)
    total = len(course.steps) * course.epochs
    history: dict[str, list[float]] = {"loss": []}
    aim = fused(aim, exact=True)
    done = 0
    for _ in range(course.epochs):
        epoch_sum = epoch_weight = 0.0
        outputs: list[NDArray[Any]] = []
        for batches in course.steps:
            sums: list[Tensor] = []
            divisor = 0.0
            for rows in batches:
                output = reference.forward(reference.tensor(x[rows]), training=True)
                outputs.append(as_numpy(output))
                share = None if weight is None else weight[rows]
                part, count = loss_sum(aim, output, target[rows], share)
                sums.append(part)
                divisor += count
            loss = torch.stack(sums).sum() / divisor if divisor else 0.0 * torch.stack(sums).sum()
            loss.backward()
            update.clip()
            update.step(course.rate * factor(course.schedule, done, total))
            epoch_sum += float(loss.detach()) * divisor
            epoch_weight += divisor
            done += 1
        history["loss"].append(epoch_sum / epoch_weight if epoch_weight else math.nan)
        if not aim.over_classes:
            for name, value in metrics(np.concatenate(outputs), target).items():
                history.setdefault(name, []).append(value)
    return history


def metrics(given: NDArray[Any], wanted: NDArray[Any]) -> dict[str, float]:
    """Returns the metrics of values."""
    errors, spread = given - wanted, float(((wanted - wanted.mean()) ** 2).sum())
    return {
        "mae": float(np.abs(errors).mean()),
        "mse": float((errors**2).mean()),
        "r2": 1 - float((errors**2).sum()) / spread if spread else -math.inf,
    }


def as_numpy(x: Tensor) -> NDArray[Any]:
    """Returns a tensor's values."""
    return np.asarray(x.detach().numpy())
