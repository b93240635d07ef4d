"""One network in both: everything that either can say of it, side by side."""

from __future__ import annotations

import json
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import loom
from loom import metrics, optimizers
from trials.chance import Chance
from trials.drawing import draw
from trials.drawing_training import Aim, Course, aim, class_axis, course, targets, weights
from trials.findings import TINY, Difference, Findings, relative, subjects
from trials.reference import Reference
from trials.reference_training import Update, as_numpy, factor, fused, mean_loss, train
from trials.reference_training import metrics as reference_metrics

# Relative to the largest element of what is compared.
_TOLERANCE = 1e-10
_GRADIENT_TOLERANCE = 1e-9
_TRAINED_TOLERANCE = 1e-8
_FLOAT32_TOLERANCE = 2e-5
# What one rounding moves is shown by moving everything that much more, and dividing again.
_MOVED = {torch.float64: 1e-12, torch.float32: 1e-6}
_AS_SINGLE = 5.0
# Quantities that an optimizer has made.
_STEPPED = ("manual norm", "manual steps", "trained", "history")
# As `TINY`, in float32: what is left of zero where numbers are about 1.
_TINY_SINGLE = 0.1
_ALLOWED = {torch.float64: 0.3, torch.float32: 10.0}
# Lion takes signs: what rounding leaves of a zero gradient moves a weight as far as any other.
_ALLOWED_OF_SIGNS = 10.0

Values = dict[str, NDArray[Any]]
State = dict[str, NDArray[Any]]


@dataclass
class Trial:
    """One network, and what is drawn for it.

    Args:
        seed: The run's.
        number: The network's.
        findings: Where differences are noted.
    """

    seed: int
    number: int
    findings: Findings

    def __post_init__(self) -> None:
        self.drawn, self.chance = draw(self.seed, self.number)
        self.random = np.random.default_rng([self.seed, self.number])
        self.net = self.drawn.network("float64")
        self.state = self._state()
        self.net.load_state_dict(self.state)
        self.of_layer = {
            path: subjects(_all(layer.to_config()), _defaults()) for path, layer in self.drawn.layers
        }
        self.subjects = set().union(*self.of_layer.values()) | {
            f"link {combine}" for _, _, combine, _ in self.drawn.links
        }
        if len(self.drawn.places) > len(self.drawn.cells):
            self.subjects.add("empty cell")
        self.subjects |= {"all"} | {name for name in ("tied", "wide") if self._is(name)}
        for subject in self.subjects:
            self.findings.seen[subject] = self.findings.seen.get(subject, 0) + 1
        # One row makes no variance for a norm over the batch.
        least = 2 if self.drawn.has("batch_norm") else 1
        self.rows = self.chance.whole(least, 9)
        self.x = self.drawn.samples(self.random, self.rows)

    def _state(self) -> State:
        """Draws parameters, near those that a network starts with and the same in float32."""
        state: State = {}
        for name, value in self.net.state_dict().items():
            noise = self.random.normal(size=value.shape)
            if name.endswith("running_var"):
                drawn = 0.5 + np.abs(noise)
            elif name.endswith(("running_mean", "bias")) or "bias" in name.rsplit(".", 1)[-1]:
                drawn = value + 0.3 * noise
            else:
                drawn = value + 0.1 * noise
            state[name] = drawn.astype(np.float32).astype(np.float64)
        return state

    def _is(self, name: str) -> bool:
        return bool({"tied": self.drawn.tied, "wide": self.chance.wide}[name])

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """What the network makes of one sample."""
        return self.net.output_shape

    def reference(self, moved: float = 0.0, dtype: torch.dtype = torch.float64) -> Reference:
        """Returns the network in PyTorch, with all numbers moved by at most this share of themselves."""
        return Reference(self.drawn, self.state, moved, dtype)

    def check(
        self,
        quantity: str,
        ours: Values,
        theirs: Callable[[float], Values],
        tolerance: float,
        precision: torch.dtype = torch.float64,
        extra: set[str] | None = None,
        single: Callable[[], Values] | None = None,
    ) -> None:
        """Compares arrays by name.

        Args:
            quantity: What they are.
            ours: loom's.
            theirs: Returns PyTorch's, of parameters moved by a share of themselves.
            tolerance: What they may differ by, relative to the largest of all of them.
            precision: loom's.
            extra: What else they depend on.
            single: Returns PyTorch's own in float32.
        """
        exact = theirs(0.0)
        if set(ours) != set(exact):
            raise Difference(f"{quantity}: loom has {sorted(ours)}, PyTorch {sorted(exact)}")
        largest = max((float(np.abs(value).max()) for value in exact.values() if value.size), default=0.0)
        scale = max(largest, TINY if precision == torch.float64 else _TINY_SINGLE)
        differences: dict[str, float] = {}
        for name, value in ours.items():
            try:
                own = relative(value, exact[name])
            except Difference as found:
                raise Difference(f"{quantity} {name}: {found}") from None
            among = float(np.abs(exact[name]).max()) if exact[name].size else 0.0
            differences[name] = own * max(among, TINY) / scale
        for name, difference in differences.items():
            if difference > tolerance and single is not None:
                # Where PyTorch's own float32 is as far away, the formula is what loses digits.
                lost = float(np.abs(single()[name] - exact[name]).max()) / scale
                if difference <= _AS_SINGLE * lost:
                    self.findings.note_ill(quantity, self.number)
                    continue
            if difference > tolerance and not self._is_ill(
                name, quantity, difference, exact, theirs, precision, scale
            ):
                raise Difference(
                    f"{quantity} {name}: differs by {difference:.2e} of the largest ({scale:.3g})\n"
                    f"loom:\n{ours[name]!r}\nPyTorch:\n{exact[name]!r}"
                )
            if difference > tolerance:
                continue
            path = ".".join(name.split(".")[:4])
            of = self.of_layer.get(path, self.subjects) | {"all"} | (extra or set())
            self.findings.note(of, quantity, difference, self.number)

    def _is_ill(
        self,
        name: str,
        quantity: str,
        difference: float,
        exact: Values,
        theirs: Callable[[float], Values],
        precision: torch.dtype,
        scale: float,
    ) -> bool:
        """Whether roundings alone move a quantity as far."""
        moved = _MOVED[precision]
        reach = max(
            float(np.abs(theirs(share)[name] - exact[name]).max()) / scale
            for share in (moved, -moved, 0.37 * moved)
        )
        signs = quantity in _STEPPED and isinstance(self.course.optimizer, optimizers.Lion)
        if difference > (_ALLOWED_OF_SIGNS if signs else _ALLOWED[precision]) * reach:
            return False
        self.findings.note_ill(quantity, self.number)
        return True

    # What is compared

    def run(self) -> None:
        """Compares everything."""
        self.predict()
        if self.chance.happens(0.1):
            self.save()
        if not self.drawn.draws:
            self.aim = aim(self.chance, self.drawn, self.shape)
            self.target = targets(self.random, self.aim, self.shape, self.rows)
            self.weight = weights(self.random, self.aim, self.rows)
            self.backward()
            names = [name for name in self.state if not name.endswith(("running_mean", "running_var"))]
            self.course = course(self.chance, self.drawn, names)
            self.measure()
            if names:
                self.manual()
                self.train()
            self.single()

    def predict(self) -> None:
        """Inference: the values, and the same bits row by row."""
        ours = self.net.predict(self.x)

        @cache
        def theirs(moved: float) -> Values:
            reference = self.reference(moved)
            with torch.no_grad():
                found = {"output": as_numpy(reference.forward(reference.tensor(self.x), training=False))}
            if reference.unasked():
                raise Difference(f"loom has parameters without a use: {sorted(reference.unasked())}")
            return found

        self.check("predict", {"output": ours}, theirs, _TOLERANCE)
        cut = self.chance.whole(1, self.rows)
        parts = [self.net.predict(part) for part in np.split(self.x, [cut]) if len(part)]
        if not np.array_equal(np.concatenate(parts), ours):
            raise Difference(f"predict: {cut} rows and the others give other bits than all {self.rows}")

    def save(self) -> None:
        """Saving and loading: the same bits."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "network.loom"
            self.net.save(path)
            again = loom.load(path)
        if not np.array_equal(again.predict(self.x), self.net.predict(self.x)):
            raise Difference("a network that was saved and loaded gives other bits")
        again = loom.Network.from_config(json.loads(self.net.to_json()))
        again.load_state_dict(self.state)
        if not np.array_equal(again.predict(self.x), self.net.predict(self.x)):
            raise Difference("a network that was described and built anew gives other bits")

    def loss(self, output: NDArray[Any]) -> tuple[float, NDArray[Any]]:
        """Returns loom's loss of an output, and its gradient."""
        name, settings = self.aim.name, {"weight": self.weight}
        if name == "huber":
            return loom.losses.huber(output, self.target, self.aim.loss.delta, **settings)
        if not self.aim.over_classes:
            function: Any = getattr(loom.losses, name)
            return function(output, self.target, **settings)  # type: ignore[no-any-return]
        more: dict[str, Any] = {
            "label_smoothing": self.aim.label_smoothing,
            "class_weight": self.aim.class_weight,
            **settings,
        }
        if name == "nll":
            return loom.losses.nll(output, self.target, **more)
        if self.aim.absorbed:
            return loom.losses.cross_entropy(output, self.target, from_logits=False, **more)
        return loom.losses.cross_entropy(output, self.target, **more)

    def backward(self) -> None:
        """Training forward, loss, and one pass back."""
        net = self.net
        output = net.forward(self.x)
        loss, gradient = self.loss(output)
        into_input = net.backward(gradient)
        made: Values = {
            f"{layer.path}.{name}": np.array(value)
            for layer in net.layers
            for name, value in layer.gradients.items()
        }
        moved_on = {name: value for name, value in net.state_dict().items() if _is_state(name)}
        names = {*self._aim_subjects()}

        @cache
        def theirs(moved: float) -> tuple[Values, Values, Values, Values, Values]:
            reference = self.reference(moved)
            x = reference.tensor(self.x)
            y = reference.forward(x, training=True)
            value = mean_loss(fused(self.aim), y, self.target, self.weight)
            if value.requires_grad:
                value.backward()
            inner = {} if self.drawn.vocabulary else {"input": _gradient(x)}
            return (
                {"output": as_numpy(y)},
                {"loss": np.array(float(value.detach()))},
                inner,
                {name: _gradient(leaf) for name, leaf in reference.values.items()},
                {name: as_numpy(value) for name, value in reference.states.items()},
            )

        self.check("forward", {"output": output}, lambda m: theirs(m)[0], _TOLERANCE)
        self.check("loss", {"loss": np.array(loss)}, lambda m: theirs(m)[1], _TOLERANCE, extra=names)
        if not self.drawn.vocabulary:
            self.check(
                "input", {"input": into_input}, lambda m: theirs(m)[2], _GRADIENT_TOLERANCE, extra=names
            )
        self.check("gradient", made, lambda m: theirs(m)[3], _GRADIENT_TOLERANCE, extra=names)
        self.check("statistics", moved_on, lambda m: theirs(m)[4], _TOLERANCE)

    def measure(self) -> None:
        """Loss and metrics by `loom.evaluate`, in batches of a few rows."""
        net, over_classes = self.drawn.network("float64"), self.aim.over_classes
        net.load_state_dict(self.state)
        classes = self.shape[class_axis(self.shape)]
        measured: list[Any] = ["mae", "mse", "r2"]
        if over_classes:
            measured = ["accuracy", metrics.TopKAccuracy(2)] if classes > 1 else []
        config = self.course.config(self.aim, seed=0)
        data = (self.x, self.target) if self.weight is None else (self.x, self.target, self.weight)
        ours = loom.evaluate(net, data, config, metrics=measured, batch_size=self.course.batch_size)
        output = net.predict(self.x)

        @cache
        def theirs(moved: float) -> Values:
            reference = self.reference(moved)
            with torch.no_grad():
                y = reference.forward(reference.tensor(self.x), training=False)
                judged = fused(self.aim, exact=True)
                found = {"loss": float(mean_loss(judged, y, self.target, self.weight))}
            values = as_numpy(y)
            if not over_classes:
                found.update(reference_metrics(values, self.target))
            elif classes > 1:
                # Which of equal outputs comes first is a matter of bits, so that these are loom's.
                scores = np.moveaxis(output, 1 + class_axis(self.shape), -1).reshape(-1, classes)
                labels = self.target
                if self.aim.soft:
                    labels = np.moveaxis(labels, 1 + class_axis(self.shape), -1).argmax(axis=-1)
                best = np.argsort(-scores, axis=1, kind="stable")
                hits = best == labels.reshape(-1, 1)
                found["accuracy"] = float(hits[:, 0].mean())
                found["top_k_accuracy"] = float(hits[:, :2].any(axis=1).mean())
            return {name: np.array(value) for name, value in found.items()}

        self.check("evaluate", {n: np.array(v) for n, v in ours.items()}, theirs, _TOLERANCE)

    def _aim_subjects(self) -> list[str]:
        found = [f"loss {self.aim.name}"]
        options = ("soft", "class_weight", "label_smoothing", "weighted", "absorbed")
        found += [f"loss {self.aim.name} {name}" for name in options if getattr(self.aim, name)]
        for subject in found:
            self.findings.seen[subject] = self.findings.seen.get(subject, 0) + 1
        return found

    def _course_subjects(self) -> set[str]:
        course = self.course
        described = course.optimizer.to_config()
        kind = f"optimizer {described.pop('type')}"
        usual = type(course.optimizer)().to_config()
        found = {kind} | {f"{kind} {name}" for name, value in described.items() if value != usual[name]}
        for name in ("accumulate", "gradient_clip", "clip_value", "untrained", "frozen", "factors"):
            if getattr(course, name) not in (1, None, [], {}):
                found.add(f"training {name}")
        if course.depth_scale != "none":
            found.add(f"training depth_scale={course.depth_scale}")
        if course.sizes:
            found.add("training batches")
        elif course.rows % course.batch_size:
            found.add("training ragged batch")
        schedule: Any = course.schedule
        found.add(f"schedule {schedule.kind}")
        if hasattr(schedule, "then"):
            found.add(f"schedule warmup {schedule.then.kind}")
        for subject in found:
            self.findings.seen[subject] = self.findings.seen.get(subject, 0) + 1
        return found

    def manual(self) -> None:
        """Steps of a loop written by hand."""
        net = self.drawn.network("float64")
        net.load_state_dict(self.state)
        self.course.set_up(net)
        if not self._trains(net):
            return
        net.set_optimizer(self.course.optimizer)
        norms = []
        steps, repeats = self.chance.whole(1, 3), min(self.course.accumulate, 2)
        rate = [self.course.rate * factor(self.course.schedule, step, steps) for step in range(steps)]
        for step in range(steps):
            for _ in range(repeats):
                _, gradient = self.loss(net.forward(self.x))
                net.backward(gradient)
            if self.course.gradient_clip is not None:
                norms.append(net.clip_gradients(self.course.gradient_clip))
            net.apply_gradients(rate[step])
        by_hand = Course(**{**vars(self.course), "clip_value": None})

        @cache
        def theirs(moved: float) -> tuple[Values, Values]:
            reference = self.reference(moved)
            update = Update(reference, by_hand, scaled=False)
            found = []
            for step in range(steps):
                for _ in range(repeats):
                    y = reference.forward(reference.tensor(self.x), training=True)
                    mean_loss(fused(self.aim), y, self.target, self.weight).backward()
                norm = update.clip()
                if self.course.gradient_clip is not None:
                    found.append(norm)
                update.step(rate[step])
            return _values(reference), {"norms": np.array(found)}

        self.check("manual norm", {"norms": np.array(norms)}, lambda m: theirs(m)[1], _TRAINED_TOLERANCE)
        self.check("manual steps", _kept(net), lambda m: theirs(m)[0], _TRAINED_TOLERANCE)

    def _trains(self, net: loom.Network) -> bool:
        """Whether any parameter is left to train."""
        return any(layer.trainable and len(layer.parameters) for layer in net.layers)

    def train(self) -> None:
        """A whole run of `loom.train`."""
        course = self.course
        x = self.drawn.samples(self.random, course.rows)
        target = targets(self.random, self.aim, self.shape, course.rows)
        weight = weights(self.random, self.aim, course.rows)
        if weight is not None:
            weight = np.maximum(weight, 0.25)
        net = self.drawn.network("float64")
        net.load_state_dict(self.state)
        course.set_up(net)
        if not self._trains(net):
            return
        data: Any = (x, target) if weight is None else (x, target, weight)
        if course.sizes:
            # Weights may come with some batches and not with others.
            data = []
            for rows in course.batches:
                own = None if weight is None or self.chance.happens(0.3) else weight[rows]
                if weight is not None and own is None:
                    weight[rows] = 1.0
                data.append(loom.TrainingBatch(x[rows], target[rows], own))
        result = loom.train(net, data, course.config(self.aim, seed=self.number))
        names = self._course_subjects()

        @cache
        def theirs(moved: float) -> tuple[Values, Values]:
            reference = self.reference(moved)
            history = train(reference, course, self.aim, (x, target, weight))
            return _values(reference), {name: np.array(values) for name, values in history.items()}

        measured = {"loss": result.loss_history, **result.metrics}
        history = {name: np.array(values) for name, values in measured.items()}
        self.check("history", history, lambda m: theirs(m)[1], _TRAINED_TOLERANCE, extra=names)
        self.check("trained", _kept(net), lambda m: theirs(m)[0], _TRAINED_TOLERANCE, extra=names)

    def single(self) -> None:
        """The same in float32, against PyTorch in float64."""
        net = self.drawn.network("float32")
        net.load_state_dict(self.state)
        inputs = self.x if self.drawn.vocabulary else self.x.astype(np.float32)
        predicted = net.predict(inputs)
        output = net.forward(inputs)
        _, gradient = self.loss(output.astype(np.float64))
        into_input = net.backward(gradient.astype(np.float32))
        made: Values = {
            f"{layer.path}.{name}": np.array(value)
            for layer in net.layers
            for name, value in layer.gradients.items()
        }
        if output.dtype != np.float32 or into_input.dtype != np.float32:
            raise Difference("a float32 network gives another type")

        @cache
        def theirs(moved: float, dtype: torch.dtype = torch.float64) -> tuple[Values, Values]:
            reference = self.reference(moved, dtype)
            with torch.no_grad():
                first = reference.forward(reference.tensor(self.x), training=False)
            x = reference.tensor(self.x)
            y = reference.forward(x, training=True)
            value = mean_loss(fused(self.aim), y, self.target, self.weight)
            if value.requires_grad:
                value.backward()
            found = {name: _gradient(leaf) for name, leaf in reference.values.items()}
            if not self.drawn.vocabulary:
                found["input"] = _gradient(x)
            return {"predict": as_numpy(first), "forward": as_numpy(y)}, found

        if not self.drawn.vocabulary:
            made["input"] = into_input
        outputs = {"predict": predicted, "forward": output}
        single = torch.float32
        self.check(
            "float32 output",
            outputs,
            lambda m: theirs(m)[0],
            _FLOAT32_TOLERANCE,
            single,
            single=lambda: theirs(0.0, single)[0],
        )
        self.check(
            "float32 grad",
            made,
            lambda m: theirs(m)[1],
            10 * _FLOAT32_TOLERANCE,
            single,
            single=lambda: theirs(0.0, single)[1],
        )


def _all(config: object) -> list[dict[str, Any]]:
    from trials.drawing import gather

    found: list[dict[str, Any]] = []
    gather(config, found)
    return found


def _defaults() -> dict[str, dict[str, Any]]:
    global _KNOWN  # noqa: PLW0603 - asked for once
    if _KNOWN is None:
        _KNOWN = {kind.kind: kind.settings for kind in loom.layers()}
    return _KNOWN


_KNOWN: dict[str, dict[str, Any]] | None = None


def _is_state(name: str) -> bool:
    return name.endswith(("running_mean", "running_var"))


def _gradient(leaf: torch.Tensor) -> NDArray[Any]:
    return as_numpy(torch.zeros_like(leaf) if leaf.grad is None else leaf.grad)


def _values(reference: Reference) -> Values:
    carried = {
        f"{prefix}state_{suffix}": torch.stack(parts, dim=1)
        for prefix, states in reference.carried.items()
        for suffix, parts in states.items()
    }
    held = {**reference.values, **reference.states, **carried}
    return {name: as_numpy(value) for name, value in held.items()}


def _kept(net: loom.Network) -> Values:
    return dict(net.state_dict())


def compare(seed: int, number: int, findings: Findings) -> str:
    """Compares one network; returns what differed, or nothing.

    Args:
        seed: The run's.
        number: The network's.
        findings: Where differences within the tolerance are noted.
    """
    torch.set_num_threads(1)
    trial: Trial | None = None
    try:
        trial = Trial(seed, number, findings)
        trial.run()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as found:  # noqa: BLE001 - a panic of the engine is no Exception, and is one to report
        said = "" if isinstance(found, Difference) else traceback.format_exc(limit=-4)
        what = f"{type(found).__name__}: {found}"
        return f"network {number}: {what}\n{said}{describe(seed, number, trial)}"
    return ""


def describe(seed: int, number: int, trial: Trial | None) -> str:
    """Writes down a network, and how it was trained."""
    if trial is None:
        try:
            drawn = draw(seed, number)[0]
        except loom.LoomError as found:
            return f"  cannot be drawn: {found}"
    else:
        drawn = trial.drawn
    lines = [f"  input {drawn.input_shape}, vocabulary {drawn.vocabulary}, grid {drawn.grid}"]
    lines += [f"  {path}: {layer}" for path, layer in drawn.layers]
    lines += [f"  link {link}" for link in drawn.links]
    if trial is not None:
        lines.append(f"  rows {trial.rows}")
        lines += [f"  {getattr(trial, name)}" for name in ("aim", "course") if hasattr(trial, name)]
    return "\n".join(lines)


__all__ = ["Aim", "Chance", "Trial", "compare", "describe"]
