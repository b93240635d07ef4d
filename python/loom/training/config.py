"""How a training run goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, cast

from loom import losses, metrics, optimizers, schedules
from loom._settings.checks import choice, choice_or_real, flag, flag_or_name, real, whole
from loom._settings.encoding import Plain
from loom._settings.suggestions import shown, unknown
from loom._typing import JSON
from loom.callbacks import EarlyStopping
from loom.device import check_device
from loom.diagnosis.names import ignored
from loom.errors import ConfigError
from loom.losses import LossLike
from loom.metrics import MetricLike
from loom.optimizers import AdamW, OptimizerLike
from loom.schedules import Constant, Schedule, ScheduleLike

__all__ = ["TrainingConfig", "by_output", "check_training"]

_ON_NONFINITE = ("raise", "skip")
_ON_INTERRUPT = ("stop", "raise")
_EXCHANGES = ("float32", "float16", "int8")
_SHORT_FLOATS = ("float16", "bfloat16")
_METRIC_ALIASES = ("top_k",)
_DEPTH_SCALES = ("none", "geometric", "inv_sqrt")


@dataclass(frozen=True)
class TrainingConfig(Plain):
    """The settings of `loom.train`.

    Args:
        epochs: How often the data is gone through.
        batch_size: How many samples make one step; the last batch of an epoch
            may be smaller. Data that comes in batches keeps its own.
        learning_rate: The step size, before the schedule. Where None it is 1e-3, and
            `TweenConfig.base_rate` in learning by targets; see `rate`.
        optimizer: An optimizer, or the name of one: sgd, adafactor, adagrad, adadelta,
            adam, adamax, adamw, lamb, lion, muon, nadam, radam, rmsprop. In learning by targets, that of
            the `TweenConfig` counts.
        schedule: How the learning rate changes from step to step.
        loss: A loss, or the name of one: mse, mae, huber, log_cosh, quantile, poisson,
            cross_entropy, focal, nll, kl_divergence, binary_cross_entropy, binary_focal, hinge,
            squared_hinge, dice, cosine, triplet, contrastive, ctc.
            "auto" looks at the first targets: whole-number class labels under an
            output wider than one mean cross_entropy, anything else mse. Progress says which was chosen;
            receipts, run folders and files hold its name. A run in a folder is known before its data is
            gone through, so that data which is only iterated means mse there.
        gradient_clip: Scales all gradients together when their global L2 norm
            exceeds this; None or 0 leaves them alone.
        clip_value: Clamps each element of the gradients to this magnitude.
        regularizers: Penalties on weights: {"*.weight": {"l2": 1e-4}} adds 1e-4 times the sum of the squares
            of all parameters of that name to what is minimised, "l1" times the sum of their magnitudes. Keys
            are patterns of parameters' paths ("0.0.0.1.weight"), of layers' paths or of kinds of layers
            ("conv*"); where several name a parameter, they add up. The losses that are told are without
            them, and frozen parameters have none. Their gradients are part of those that are clipped.
        gradient_noise: The variance of normal noise that is added to every gradient in the first step; it
            falls with the step to the power of 0.55 (Neelakantan et al. 2015). It is drawn from the network's
            seed.
        device: Where training runs: "cpu"; "gpu" or "gpu:0", "gpu:1", ...; or "auto":
            where `Network.to` has placed the network, otherwise the first GPU that is
            hardware (for float32 networks), and the CPU where there is none. The
            environment variable LOOM_DEVICE names another device for "auto" to stand for.
        seed: What shuffling and dropout draw from.
        shuffle: Whether samples are shuffled anew for each epoch; batches that
            come from an iterable keep their order.
        verbose: Whether progress is shown: a live bar in terminals, a table that grows in notebooks, a line
            per epoch elsewhere. "auto" shows it to whoever watches: in notebooks, and where standard
            output or standard error is a terminal. In services and jobs it is quiet; there, Python's
            `logging` has the same lines, under the name "loom". 0 is False, 1 and 2 are True.
        track_perf: Whether the duration of every step is recorded.
        on_nonfinite: What becomes of a step whose loss or gradient is not finite, or
            that would leave anything so, be it a weight, an optimizer's moment, a
            layer's state, or a weight beyond what its packed type holds: "raise"
            stops with an error, "skip" leaves the step out, and either way all is as
            it was before it. In mixed precision on a
            GPU it is left out in any case while the loss scale may be the reason.
        on_interrupt: What Ctrl-C does. "stop" ends the run in good order: the step under way is finished,
            callbacks and run folders are told, and the result says "interrupted". "raise" does the same,
            and then raises KeyboardInterrupt, so that what comes after the training does not run. A second
            Ctrl-C, while the run is ending, raises it at once in either case.
        validation_split: The share of the samples, the last ones, held out for
            validation, where none is given.
        validation_batch_size: Samples at once in validation; `batch_size` by
            default.
        validation_frequency: Validates every so many epochs.
        class_weight: How much each class counts in cross_entropy, focal and nll: a
            mapping from class to weight (1 for those left out), or one weight
            per class. Texts are labels that the network learns, {"cat": 2.0}, and so are whole
            numbers that it has learned as labels, such as 3, 7 and 40. Of named outputs such by
            output, {"kind": {1: 5.0}}; a sample's loss then counts times the weight of its class,
            and the mean is over samples, as Keras has it, not over weights.
        label_smoothing: Share of each target spread evenly over all classes,
            in cross_entropy and nll; with class weights each class's part has its own, as in PyTorch.
        loss_weights: How much the loss of each named output counts; 1 where left out. `loss` is then a
            loss by output, loss={"kind": "cross_entropy", "age": "huber"}, and `metrics` lists by output.
        metrics: What else is measured at each epoch: names such as accuracy, f1, auc and r2, of which
            `loom.metrics.names()` lists all, those of scikit-learn behind "sklearn.", objects of
            `loom.metrics`, or any callable(outputs, targets) -> float. loom's own count what was
            predicted in a step that exploded, too.
        saved_activations: In what activations wait for the backward pass: "float16" or "bfloat16" take half
            of the memory that float32 does. The forward pass and all sums stay as they are; gradients are
            those at rounded activations, as with PyTorch's autocast. A float16 has 11 significant bits, and
            what is beyond 65,504 is infinite, so that such a step is not finite; a bfloat16 has 8, and
            the range of float32. In mixed precision on a GPU, whose products round to float16 anyway,
            "float16" changes nothing for these. Masks, indices and statistics stay as they are, and so
            do activations that somebody looks at. Of backpropagation alone; None keeps all as computed.
        accumulate: Over how many batches gradients add up before one update.
        depth_scale: How the learning rate changes with a layer's depth, layer i of
            N: "none", "geometric" (1.1 ** i), "inv_sqrt" (1 / sqrt(N - i)), or a number f above
            zero (f ** i). In learning by targets, that of the `TweenConfig` counts.
        early_stopping: When to stop before the last epoch.
        ignore_findings: Names of what `loom.doctor` finds that training shall not warn of, such as
            ("unscaled-inputs",); "all" for none at all. The names stand in docs/doctor.md.
        shards: Into how many parts the rows of a step are cut, each of which goes through the network by
            itself, and whose gradients add up: the unit that processes of one training share. The same
            number gives the same bits on any number of processes, one included. 8 by default where there
            are several; one process alone takes steps whole.
        split_moments: Whether each process of a shared training holds a part of the optimizer's moments
            alone (stage 1 of ZeRO, Rajbhandari and others, 2020): the same bits in less memory. On
            processors. Once the training has ended every process has all of them; with "always" none ever
            has, for networks whose moments one process has no room for, and nothing can go on from them:
            files hold none, and `run=` is refused.
        split_gradients: Whether each holds a part of the gradients alone, too (stage 2): most is saved with
            as many shards as processes.
        exchange: In which type the gradients of a step in shards travel: "float32" (as they are), "float16"
            or "int8", with error feedback. It is other arithmetic, of which the same holds: the same bits on
            any number of processes. A process sends what each of its shards has, so that it pays with about
            as many shards as processes. What rounding has taken away is not kept in files: a training that
            goes on begins without.

    Raises:
        ConfigError: A setting is out of range or a name unknown.

    Examples:
        >>> config = loom.TrainingConfig(epochs=5, loss="cross_entropy", optimizer=loom.AdamW())
        >>> loom.TrainingConfig.from_config(config.to_config()) == config
        True
    """

    epochs: int = 1
    batch_size: int = 32
    _: KW_ONLY
    learning_rate: float | None = None
    optimizer: OptimizerLike = field(default_factory=AdamW)
    schedule: ScheduleLike = field(default_factory=Constant)
    loss: LossLike | Literal["auto"] | Mapping[str, Any] = losses.AUTO
    loss_weights: Mapping[str, float] | None = None
    gradient_clip: float | None = None
    clip_value: float | None = None
    regularizers: Mapping[str, Mapping[str, float]] | None = None
    gradient_noise: float = 0.0
    device: str = "auto"
    seed: int = 0
    shuffle: bool = True
    verbose: bool | Literal["auto", 0, 1, 2] = "auto"
    track_perf: bool = False
    on_nonfinite: Literal["raise", "skip"] = "raise"
    on_interrupt: Literal["stop", "raise"] = "stop"
    validation_split: float = 0.0
    validation_batch_size: int | None = None
    validation_frequency: int = 1
    class_weight: (
        losses.ClassWeight | Mapping[str, Mapping[int, float] | Mapping[str, float] | Sequence[float]] | None
    ) = None
    label_smoothing: float = 0.0
    metrics: Sequence[MetricLike] | Mapping[str, Sequence[MetricLike]] = ()
    saved_activations: Literal["float16", "bfloat16"] | None = None
    accumulate: int = 1
    depth_scale: Literal["none", "geometric", "inv_sqrt"] | float = "none"
    early_stopping: EarlyStopping | Mapping[str, Any] | None = None
    ignore_findings: str | Sequence[str] = ()
    shards: int | None = None
    split_moments: bool | Literal["always"] = False
    split_gradients: bool = False
    exchange: Literal["float32", "float16", "int8"] = "float32"

    def __post_init__(self) -> None:
        where = "TrainingConfig"
        auto = isinstance(self.loss, str) and self.loss == losses.AUTO
        loss: Any = losses.AUTO if auto else _loss(self.loss)
        settings: dict[str, object] = {
            "optimizer": optimizers.resolve(self.optimizer),
            "schedule": schedules.resolve(self.schedule),
            "loss": loss,
            "device": check_device(where, self.device),
            "on_nonfinite": choice(where, "on_nonfinite", self.on_nonfinite, _ON_NONFINITE),
            "on_interrupt": choice(where, "on_interrupt", self.on_interrupt, _ON_INTERRUPT),
            "depth_scale": choice_or_real(where, "depth_scale", self.depth_scale, _DEPTH_SCALES, above=0.0),
            "seed": whole(where, "seed", self.seed, least=0),
            "validation_split": real(where, "validation_split", self.validation_split, least=0.0, below=1.0),
            "label_smoothing": real(where, "label_smoothing", self.label_smoothing, least=0.0, below=1.0),
            "class_weight": _class_weight(self.class_weight),
            "metrics": _metrics(self.metrics),
            "loss_weights": _loss_weights(self.loss_weights),
            "regularizers": _regularizers(self.regularizers),
            "gradient_noise": real(where, "gradient_noise", self.gradient_noise, least=0.0),
            "early_stopping": _early_stopping(self.early_stopping),
            "ignore_findings": ignored(f"{where}: ignore_findings", self.ignore_findings),
        }
        for name in ("epochs", "batch_size", "validation_frequency", "accumulate"):
            settings[name] = whole(where, name, getattr(self, name), least=1)
        # Keras's and scikit-learn's numbers: 1 and 2 are kinds of True.
        verbose: object = self.verbose
        if isinstance(verbose, int) and verbose in {0, 1, 2}:
            verbose = bool(verbose)
        settings["verbose"] = flag_or_name(where, "verbose", verbose, ("auto",))
        for name in ("shuffle", "track_perf"):
            settings[name] = flag(where, name, getattr(self, name))
        if isinstance(self.learning_rate, Schedule):
            raise ConfigError(
                f"{where}: learning_rate is a number, which a schedule multiplies: "
                f"learning_rate=1e-3, schedule={self.learning_rate!r}"
            )
        if self.learning_rate is not None:
            settings["learning_rate"] = real(where, "learning_rate", self.learning_rate, least=0.0)
        if self.gradient_clip is not None:
            limit = real(where, "gradient_clip", self.gradient_clip, least=0.0)
            settings["gradient_clip"] = limit or None
        if self.clip_value is not None:
            settings["clip_value"] = real(where, "clip_value", self.clip_value, above=0.0)
        if self.shards is not None:
            settings["shards"] = whole(where, "shards", self.shards, least=1, most=1 << 16)
        settings["split_moments"] = flag_or_name(where, "split_moments", self.split_moments, ("always",))
        flag(where, "split_gradients", self.split_gradients)
        choice(where, "exchange", self.exchange, _EXCHANGES)
        if self.split_gradients and self.exchange != "float32":
            raise ConfigError(
                f"{where}: gradients that are held in parts travel as they are; "
                'set exchange="float32", or split_gradients=False'
            )
        if self.saved_activations is not None:
            choice(where, "saved_activations", self.saved_activations, _SHORT_FLOATS)
        if self.validation_batch_size is not None:
            settings["validation_batch_size"] = whole(
                where, "validation_batch_size", self.validation_batch_size, least=1
            )
        named = isinstance(loss, Mapping)
        if not named and loss != losses.AUTO and not losses.is_classification(loss):
            for name in ("class_weight", "label_smoothing"):
                if settings[name]:
                    raise ConfigError(
                        f"{where}: {name} works with the losses cross_entropy and nll, "
                        f'not with "{losses.name_of(loss)}"'
                    )
        for name, value in settings.items():
            object.__setattr__(self, name, value)

    def to_config(self) -> dict[str, JSON]:
        """Returns the settings as plain JSON values."""
        settings = super().to_config()
        # What is as it always was is written as it always was.
        if settings["loss_weights"] is None:
            del settings["loss_weights"]
        if settings["on_interrupt"] == "stop":
            del settings["on_interrupt"]
        if settings["shards"] is None:
            del settings["shards"]
        for name in ("split_moments", "split_gradients"):
            if not settings[name]:
                del settings[name]
        if settings["exchange"] == "float32":
            del settings["exchange"]
        if settings["regularizers"] is None:
            del settings["regularizers"]
        if not settings["gradient_noise"]:
            del settings["gradient_noise"]
        if settings["saved_activations"] is None:
            del settings["saved_activations"]
        return settings

    @property
    def rate(self) -> float:
        """The learning rate of backpropagation: the one given, or else 1e-3."""
        return 1e-3 if self.learning_rate is None else self.learning_rate


def check_training(config: TrainingConfig | None) -> TrainingConfig:
    """Returns the settings of a training, the defaults where None; a ConfigError for anything else."""
    if config is None:
        return TrainingConfig()
    if hasattr(config, "__len__"):
        raise ConfigError(
            f"config must be a loom.TrainingConfig, got {type(config).__name__}; "
            "samples and targets go in as one argument, (x, y)"
        )
    if not isinstance(config, TrainingConfig):
        raise ConfigError(f"config must be a loom.TrainingConfig, got {shown(config)}")
    return config


def by_output(class_weight: object) -> bool:
    """Returns whether weights of classes are given for each named output."""
    return isinstance(class_weight, Mapping) and any(
        hasattr(weights, "__len__") for weights in class_weight.values()
    )


def _class_weight(value: object) -> dict[Any, Any] | tuple[float, ...] | None:
    where = "TrainingConfig"
    if value is None:
        return None
    if by_output(value):
        return {str(name): _class_weight(weights) for name, weights in cast("Any", value).items()}
    if isinstance(value, Mapping):
        return {_class_key(key): _weight(weight) for key, weight in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(_weight(weight) for weight in value)
    if hasattr(value, "tolist"):
        return _class_weight(value.tolist())
    raise ConfigError(
        f"{where}: class_weight must be a mapping from class to weight, or one weight per class, "
        f"got {shown(value)}{_BALANCED if value == 'balanced' else ''}"
    )


_BALANCED = "; that is len(y) / (classes * np.bincount(y)); loom.sklearn's LoomClassifier knows the name"


def _class_key(key: object) -> int | str:
    """Returns a class index or a label. JSON has only text for keys, so "3" is read as class 3."""
    if isinstance(key, str):
        return int(key) if key.isdecimal() else str(key)
    if isinstance(key, bool):
        return int(key)
    return whole("TrainingConfig", "a class of class_weight", key, least=0)


def _weight(value: object) -> float:
    return real("TrainingConfig", "class_weight", value, least=0.0)


def _loss(value: object) -> losses.Loss | str | dict[str, Any]:
    """Returns a loss, or losses by output where a mapping is not the JSON form of one loss."""
    if not isinstance(value, Mapping):
        return losses.resolve(cast("LossLike", value))
    entry = next(iter(value.items()), (None, None))
    if len(value) == 1 and entry[0] in losses.names() and isinstance(entry[1], Mapping):
        return losses.resolve(cast("LossLike", value))
    if not value or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"TrainingConfig: loss by output must be losses by name, got {shown(value)}")
    return {name: losses.resolve(loss) for name, loss in value.items()}


def _loss_weights(value: object) -> dict[str, float] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"TrainingConfig: loss_weights must be weights by output, got {shown(value)}")
    return {
        name: real("TrainingConfig", f'the weight of "{name}" in loss_weights', weight, least=0.0)
        for name, weight in value.items()
    }


def _regularizers(value: object) -> dict[str, dict[str, float]] | None:
    if value is None:
        return None
    where = "TrainingConfig"
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise ConfigError(
            f'{where}: regularizers must be penalties by pattern, such as {{"*.weight": {{"l2": 1e-4}}}}, '
            f"got {shown(value)}"
        )
    found: dict[str, dict[str, float]] = {}
    for pattern, penalty in value.items():
        if not isinstance(penalty, Mapping) or not penalty:
            raise ConfigError(
                f'{where}: the regularizer of "{pattern}" must be a mapping of "l1" and "l2", '
                f"got {shown(penalty)}"
            )
        for name in penalty:
            if name not in ("l1", "l2"):
                raise unknown("regularizer", name, ["l1", "l2"])
        found[pattern] = {
            name: real(where, f'{name} of the regularizer of "{pattern}"', factor, least=0.0)
            for name, factor in penalty.items()
        }
    return found


def _metrics(
    value: object,
) -> tuple[metrics.Metric | metrics.MetricFunction, ...] | dict[str, tuple[Any, ...]]:
    if isinstance(value, Mapping):
        known = {*metrics.names(), *_METRIC_ALIASES}
        if not (
            len(value) == 1 and next(iter(value)) in known and isinstance(next(iter(value.values())), Mapping)
        ):
            return {str(name): cast("tuple[Any, ...]", _metrics(entries)) for name, entries in value.items()}
    if isinstance(value, (str, Mapping)) or callable(value):
        return (metrics.resolve(cast("MetricLike", value)),)
    if not isinstance(value, Sequence):
        raise ConfigError(f"TrainingConfig: metrics must be a list of names or callables, got {shown(value)}")
    chosen = metrics.resolve_all(value)
    names = [metrics.name_of(metric) for metric in chosen]
    if len(set(names)) < len(names):
        raise ConfigError(f"TrainingConfig: metrics must have different names, got {', '.join(names)}")
    if "loss" in names:
        raise ConfigError('TrainingConfig: a metric called "loss" stands where the loss does; rename it')
    return chosen


def _early_stopping(value: object) -> EarlyStopping | None:
    if value is None or isinstance(value, EarlyStopping):
        return value
    if isinstance(value, Mapping):
        return EarlyStopping.from_config(value)
    patience = value if isinstance(value, int) and not isinstance(value, bool) else 3
    raise ConfigError(
        f"TrainingConfig: early_stopping must be an EarlyStopping, got {shown(value)}; "
        f"early_stopping=loom.EarlyStopping(patience={shown(patience)})"
    )
