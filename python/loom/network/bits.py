"""Numeric types by what they cost: each layer's sensitivity, and a type for each layer within a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from loom._settings.checks import flag, real, whole
from loom.engine import engine_of
from loom.errors import ConfigError

if TYPE_CHECKING:
    # A network that only predicts loads nothing of training.
    from loom.data import Data
    from loom.losses import LossLike
    from loom.metrics import MetricLike
    from loom.network.layers import LayerHandle
    from loom.reports.bits import BitsReport, SensitivityReport
    from loom.training.config import TrainingConfig
    from loom.training.trainable import TrainableNetwork

__all__ = ["fit_bits", "sensitivity"]


def sensitivity(
    net: TrainableNetwork,
    data: Data,
    *,
    dtypes: Iterable[str] | None = None,
    where: Callable[[LayerHandle], object] | None = None,
    metric: MetricLike | None = None,
    loss: LossLike | None = None,
    calibration: str = "absmax",
    batch_size: int | None = None,
) -> SensitivityReport:
    """Measures what each layer costs in each numeric type, the others as they are.

    All is done on a copy, on the network's device; the network stays as it is. Layers whose weights
    all stay in full precision are left out, as are heads that use another layer's table: they are
    measured with the layer that owns it.

    Args:
        net: The network.
        data: What it is measured on: (x, y) or (x, y, weight) arrays, a `TrainingBatch`, or an
            iterable of either that can be gone through many times. Some hundreds of samples will do.
        dtypes: The types; where None the network's own precision and all that have fewer bits.
        where: Which layers, as a function of the layer; all where None.
        metric: What is measured, a name or a callable as in `metrics=`; the loss where None. More is
            better of accuracies, r2 and scores, and worse of all others.
        loss: The loss; that of the last training in this process where None.
        calibration: How scales are found, as in `Network.morph`; "absmax" in types that take no other.
        batch_size: How many samples are computed at a time.

    Returns:
        The report.

    Raises:
        StateError: Masters were dropped; the network was never trained in this process, and no loss is
            given; or it is training.
        DataError: The data is empty, of no known form, or can be gone through only once.
        ConfigError: There is no layer to measure, or a setting is out of range.
        DTypeError: A type is unknown.

    Examples:
        >>> net = loom.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(2)], input_shape=3)
        >>> data = (np.eye(3), [0, 1, 0])
        >>> report = loom.analysis.sensitivity(net, data, loss="cross_entropy", dtypes=["int8", "binary"])
        >>> report.values.shape, report.dtypes
        ((2, 2), ('int8', 'binary'))
    """
    from loom.network.bit_choice import repeatable
    from loom.network.bit_trials import Measured, Trial
    from loom.training.labelling import as_known

    source = repeatable(as_known(engine_of(net), data, None))
    names = None if dtypes is None else list(dtypes)
    whole = Trial(net, names, where, metric, loss, calibration, batch_size)
    if not whole.packed:
        return whole.sensitivity(Measured(whole, source))
    rows: list[SensitivityReport] = []
    for chosen in whole.paths:
        # A copy for each layer, so that the others stay packed by rules of their own.
        alone = Trial(net, names, _at(chosen), metric, loss, calibration, batch_size)
        rows.append(alone.sensitivity(Measured(alone, source)))
    total = int(engine_of(net).native.weight_bytes())
    return replace(
        rows[0],
        layers=whole.paths,
        kinds=whole.kinds,
        held=whole.held,
        values=np.concatenate([row.values for row in rows]),
        sizes=np.concatenate([row.sizes for row in rows]),
        other_bytes=total - sum(total - row.other_bytes for row in rows),
    )


def fit_bits(
    self: TrainableNetwork,
    data: Data,
    *,
    max_bytes: int | None = None,
    max_drop: float | None = None,
    validation: Data | None = None,
    dtypes: Iterable[str] | None = None,
    where: Callable[[LayerHandle], object] | None = None,
    metric: MetricLike | None = None,
    loss: LossLike | None = None,
    calibration: str = "absmax",
    sensitivity: SensitivityReport | None = None,
    refinements: int = 2,
    apply: bool = True,
    training: TrainingConfig | None = None,
    batch_size: int | None = None,
) -> BitsReport:
    """Chooses a numeric type for each layer: the best in a budget of bytes, or the smallest in a drop.

    On a copy it measures each layer in each type, the others in full precision, and takes what these
    drops add up to as a first guess at every choice of types: the best of all choices within the budget
    is then found exactly. The best guesses and every single type for all layers are measured as they
    are. Fewer bits help by chance alone, so that a drop counts by its magnitude, and the best within a
    budget stays nearest to what full precision has. From the best of these on, each layer is measured
    in each type again, the others in theirs, and the best guess at that is measured, as long as this
    helps; see `refinements`. What was chosen is measured on samples that were held out from all that.

    Args:
        data: What types are chosen by; as in `analysis.sensitivity`.
        max_bytes: The bytes that all weights of the network may take, as in `weight_bytes`.
        max_drop: By how much the measure may be worse than in full precision: of the loss how much
            higher, of a metric in its own terms, 0.01 for one point of accuracy. It holds on
            `data` and on what is held out.
        validation: What the choice is verified on. Where None, every fifth sample of `data` is held out,
            which then must be arrays.
        dtypes: The types to choose from, as in `analysis.sensitivity`.
        where: Which layers; the others keep their types, and count as they are.
        metric: What is measured, as in `analysis.sensitivity`; the loss where None.
        loss: The loss; that of the last training in this process where None.
        calibration: How scales are found, as in `analysis.sensitivity`.
        sensitivity: What `analysis.sensitivity`, or an earlier report's `sensitivity`, says of the network
            in full precision, to save the time; it is only a first guess, and names the types.
        refinements: How often layers are measured again around the best choice; each time takes as long
            as `analysis.sensitivity`. 0 for never.
        apply: Whether the layers get their types; the report's `apply` does so later otherwise.
        training: Trains the network, on `data` without what is held out, through its new types.
        batch_size: How many samples are computed at a time.

    Returns:
        What was chosen, and what it comes to; `loom.plot.bits` draws it.

    Raises:
        ConfigError: Not one of the limits is given, the budget is too small for any choice, or a setting
            is out of range.
        StateError: As in `analysis.sensitivity`.
        DataError: As in `analysis.sensitivity`; or the data comes in batches and there is no `validation`.

    Examples:
        >>> net = loom.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(2)], input_shape=3)
        >>> x = np.random.default_rng(0).normal(size=(50, 3))
        >>> report = net.fit_bits((x, np.where(x[:, 0] > 0, 1, 0)), max_bytes=150, loss="cross_entropy")
        >>> net.weight_bytes == report.chosen.bytes <= 150
        True
        >>> [layer.dtype for layer in net.layers] == list(report.plan.values())
        True
    """
    from loom.network.bit_choice import Search, parted
    from loom.network.bit_trials import Measured, Trial
    from loom.training.config import check_training
    from loom.training.labelling import as_known

    if (max_bytes is None) == (max_drop is None):
        raise ConfigError("fit_bits takes either max_bytes= or max_drop=")
    if training is not None:
        check_training(training)
    budget = None if max_bytes is None else whole("fit_bits", "max_bytes", max_bytes, least=0)
    allowed = None if max_drop is None else real("fit_bits", "max_drop", max_drop, least=0.0)
    rounds = whole("fit_bits", "refinements", refinements, least=0)
    if training is not None and not flag("fit_bits", "apply", apply):
        raise ConfigError("fit_bits: training goes on in the chosen types, so leave apply=False out")
    engine_of(self).check_idle("fit_bits")
    known = [
        None if given is None else as_known(engine_of(self), given, None) for given in (data, validation)
    ]
    learned, held_out = parted(cast("Data", known[0]), known[1])
    types = dtypes if sensitivity is None else sensitivity.dtypes
    trial = Trial(self, types, where, metric, loss, calibration, batch_size)
    trial.include_own()
    if sensitivity is not None:
        sensitivity = trial.known(sensitivity)
    search = Search(trial, Measured(trial, learned), Measured(trial, held_out), budget, allowed)
    report = search.run(sensitivity or trial.sensitivity(search.learned), rounds)
    if not apply:
        return report
    report.apply(cast(Any, self))
    if training is None:
        return report
    from loom.data import ArraySource
    from loom.training.backpropagation import train
    from loom.training.evaluation import Evaluation

    train(self, learned.batch if isinstance(learned, ArraySource) else learned.batches, training)
    found = Evaluation(self, trial.config, held_out).run()
    return replace(report, trained=trial.measure_of(found))


def _at(path: str) -> Callable[[LayerHandle], bool]:
    return lambda layer: layer.path == path
