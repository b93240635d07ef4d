"""A copy of a network whose layers are tried in numeric types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from loom import metrics
from loom._settings.checks import whole
from loom._settings.suggestions import shown
from loom.callbacks._monitoring import rises
from loom.catalogue import dtypes as catalogue
from loom.data import Source
from loom.engine import engine_of
from loom.errors import ConfigError, DTypeError, InvalidValueError, LoomError, StateError
from loom.losses import LossLike
from loom.metrics import MetricLike
from loom.network.layers import LayerHandle, layers_of
from loom.network.pickling import bare_copy
from loom.reports.bits import SensitivityReport
from loom.training.config import TrainingConfig
from loom.training.evaluation import Evaluation
from loom.training.record import record_of
from loom.training.trainable import TrainableNetwork

__all__ = ["Measured", "Trial"]


class Trial:
    """A copy of a network whose layers are tried in numeric types.

    Args:
        net: The network.
        dtypes: The types' names.
        where: Which layers.
        metric: What is measured.
        loss: The loss.
        calibration: How scales are found.
        batch_size: How many samples are computed at a time.
    """

    def __init__(
        self,
        net: TrainableNetwork,
        dtypes: Iterable[str] | None,
        where: Callable[[LayerHandle], object] | None,
        metric: MetricLike | None,
        loss: LossLike | None,
        calibration: str,
        batch_size: int | None,
    ) -> None:
        engine = engine_of(net)
        engine.check_thread()
        engine.build()
        chosen = [layer for layer in layers_of(net) if _packable(layer) and (where is None or where(layer))]
        if not chosen:
            raise ConfigError("there is no layer to choose a numeric type for: none has weights to pack")
        for layer in chosen:
            if layer.weights.dropped:
                raise StateError(
                    f"layer {layer.path} ({layer.kind}): its master was dropped, so it cannot be packed in "
                    "other types; unpack() makes it again"
                )
        self.config = _judged_by(net, metric, loss, batch_size)
        judged = cast("Sequence[MetricLike]", self.config.metrics)
        self.measure = metrics.name_of(metrics.resolve(judged[0])) if judged else "loss"
        self.rising = bool(judged) and rises(self.measure)
        self.own = engine.precision.replace("mixed", "float32")
        known = {entry.name: entry.bits for entry in catalogue()}
        default = [self.own, *(name for name, bits in known.items() if bits < known[self.own])]
        self.dtypes = default if dtypes is None else list(dict.fromkeys(dtypes))
        if not self.dtypes or not all(isinstance(name, str) for name in self.dtypes):
            raise DTypeError(f"dtypes is a list of names of numeric types, got {shown(dtypes)}")
        self.calibration = calibration
        self.paths = tuple(layer.path for layer in chosen)
        self.kinds = tuple(layer.kind for layer in chosen)
        self.held = tuple(cast(str, layer.dtype) for layer in chosen)
        stored = [one for layer in chosen for one in layer.weights.stored.values()]
        self.packed = any(one.version is not None for one in stored)
        """Whether any of the layers has packed weights, by rules that only a copy of them keeps."""
        self._places = [layer.at for layer in chosen]
        if calibration != "absmax":
            # What no type takes is refused at once, and not as weights that do not fit.
            scratch = engine_of(bare_copy(net)).native
            scratch.morph("int8", [chosen[0].at], (None, calibration, "nearest"), None, None)
        self.copy = bare_copy(net)
        engine_of(self.copy).move(engine.device)
        self._taken: list[str] = list(self.held)
        self.rules: list[dict[str, str]] = [{} for _ in chosen]

    def include_own(self) -> None:
        """Has full precision among the types, and all layers in it."""
        if self.own not in self.dtypes:
            self.dtypes.insert(0, self.own)
        self.held = (self.own,) * len(self.paths)
        # Those that have it already, too: single parameters of theirs may be packed.
        for number in range(len(self.paths)):
            self._morph(number, self.own)

    def known(self, report: SensitivityReport) -> SensitivityReport:
        """Returns what was measured, full precision with it; refuses other layers, and packed ones."""
        if self.own not in report.dtypes:
            native = engine_of(self.copy).native
            sizes = [int(native.weights_nbytes(at, None)) for at in self._places]
            if len(sizes) == len(report.layers):
                report = replace(
                    report,
                    dtypes=(self.own, *report.dtypes),
                    values=np.insert(report.values, 0, report.base, axis=1),
                    sizes=np.insert(report.sizes, 0, sizes, axis=1),
                )
        if report.layers != self.paths or report.held != self.held or list(report.dtypes) != self.dtypes:
            raise ConfigError(
                "fit_bits: sensitivity is of other layers or types, or of a network that was packed; measure "
                f"layers {', '.join(self.paths)} in {self.own} and all other types"
            )
        return report

    def measure_of(self, found: dict[str, float]) -> float:
        """Returns what is measured of an evaluation; the worst there is where it is not finite."""
        value = float(found[self.measure])
        return value if np.isfinite(value) else -np.inf if self.rising else np.inf

    def take(self, types: Sequence[str]) -> None:
        """Gives each layer its type; a LoomError, and nothing has changed, where weights do not fit one."""
        before = list(self._taken)
        for number, dtype in enumerate(types):
            if dtype == self._taken[number]:
                continue
            try:
                self._morph(number, dtype)
            except LoomError:
                for earlier in range(number):
                    if self._taken[earlier] != before[earlier]:
                        self._morph(earlier, before[earlier])
                raise

    def _morph(self, number: int, dtype: str) -> None:
        """Packs one layer: by the calibration asked for, or, in a type that takes no other, "absmax"."""
        engine, at = engine_of(self.copy), [self._places[number]]
        rule = self.rules[number].get(dtype, self.calibration)

        def morph(calibration: str) -> None:
            engine.change(lambda native: native.morph(dtype, at, (None, calibration, "nearest"), None, None))

        try:
            morph(rule)
        except DTypeError:
            if rule == "absmax":
                raise
            rule = "absmax"
            morph(rule)
        self.rules[number][dtype] = rule
        self._taken[number] = dtype

    def sensitivity(self, measured: Measured, around: Sequence[str] | None = None) -> SensitivityReport:
        """Measures each layer in each type, the others as they are or as they are in `around`."""
        held = tuple(around or self.held)
        shape = (len(self.paths), len(self.dtypes))
        values, sizes = np.full(shape, np.nan), np.zeros(shape, np.int64)
        base = measured(held)
        self.take(held)
        native = engine_of(self.copy).native
        total = int(native.weight_bytes())
        own_sizes = [int(native.weights_nbytes(at, None)) for at in self._places]
        for number in range(shape[0]):
            for column, dtype in enumerate(self.dtypes):
                types = (*held[:number], dtype, *held[number + 1 :])
                # What a layer is held in may have been packed by another rule.
                anew = around is None and dtype == held[number]
                try:
                    if anew:
                        self._morph(number, dtype)
                    values[number, column] = measured(types, anew=anew)
                    self.take(types)
                except InvalidValueError:
                    continue
                sizes[number, column] = own_sizes[number] + native.weight_bytes() - total
        self.take(held)
        return SensitivityReport(
            self.paths,
            self.kinds,
            held,
            tuple(self.dtypes),
            self.measure,
            self.rising,
            base,
            values,
            sizes,
            total - sum(own_sizes),
        )


class Measured:
    """A data set that a trial's copy is measured on, each choice of types once.

    Args:
        trial: The copy.
        source: The data.
    """

    def __init__(self, trial: Trial, source: Source) -> None:
        self._trial = trial
        self._evaluation = Evaluation(trial.copy, trial.config, source)
        self._evaluation.check()
        self._known: dict[tuple[str, ...], float] = {}

    def __call__(self, types: Sequence[str], *, anew: bool = False) -> float:
        """Measures the copy in these types; a LoomError where weights do not fit them."""
        found = tuple(types)
        if anew or found not in self._known:
            self._trial.take(found)
            self._known[found] = self._trial.measure_of(self._evaluation.run())
        return self._known[found]


def _packable(layer: LayerHandle) -> bool:
    """Whether a layer has weights of its own that take on its type."""
    if getattr(layer.config, "tied_to", None) is not None:
        return False
    return bool(engine_of(layer).native.weights_state(layer.at).get("weights"))


def _judged_by(
    net: TrainableNetwork, metric: MetricLike | None, loss: LossLike | None, batch_size: int | None
) -> TrainingConfig:
    """Returns the settings that a network is measured by."""
    config = record_of(net).judged_by
    if config is None and loss is None:
        raise StateError(
            "there is no loss to measure: the network was not trained here; give loss=, such as "
            'loss="cross_entropy"'
        )
    changes: dict[str, Any] = {"metrics": () if metric is None else (metric,), "early_stopping": None}
    if loss is not None:
        changes["loss"] = loss
    size = 256 if batch_size is None else whole("fit_bits", "batch_size", batch_size, least=1)
    return replace(config or TrainingConfig(loss=cast(Any, loss)), **changes, validation_batch_size=size)
