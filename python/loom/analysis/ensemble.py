"""Networks that decide together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from loom import _native, losses, nn
from loom._settings.checks import choice, whole
from loom._typing import ArrayLike, Precision, RealArray
from loom.analysis.ensemble_files import foreign, read, write
from loom.analysis.members import (
    check_shapes,
    checked_members,
    classes_together,
    learned_logits,
    shares,
    thresholds_by_output,
)
from loom.analysis.votes import by_output, majority, weighted
from loom.callbacks._monitoring import improves, monitored
from loom.data import ArraySource, Data, TrainingBatch, as_source
from loom.data.batches import as_batch, check_iterable, is_single
from loom.data.frames import is_frame
from loom.engine import engine_of
from loom.engine.labels import as_indices, known_classes
from loom.engine.told import encoder_of
from loom.errors import ConfigError, ShapeError, StateError
from loom.network import Network, Sequential
from loom.network.network import from_native
from loom.reports.outputs import class_axis
from loom.reports.samples import as_names
from loom.training.automatic import settled_by_source
from loom.training.config import TrainingConfig
from loom.training.evaluation import evaluate
from loom.training.labelling import as_known, weighed
from loom.training.record import record_of

if TYPE_CHECKING:
    from typing_extensions import Self

    from loom.losses import LossLike
    from loom.metrics import MetricLike

__all__ = ["Ensemble"]

_VOTES = ("majority", "mean", "weighted")


class Ensemble:
    """Networks that decide together, by a vote.

    The votes:

    - "mean": the mean of all outputs, as they are. Of logits that is another thing than the mean of
      probabilities; for that let networks end in `nn.Softmax`.
    - "weighted": the same with a weight for each network, which `fit_weights` finds.
    - "majority": the share of networks that choose each class, which is the one of their largest output.
      Where several classes have most votes, the one among them with the largest mean output wins, then the
      first; its share is the next larger number, so that `predict` and `predict_classes` agree.

    With a single output, networks choose class 1 where it is above `threshold`.

    Labels are those that the networks have learned, or their cards name; networks that know none stand by
    those of the others.

    Args:
        networks: Networks of the same input and output shape; one is enough. They are not copied.
        vote: "majority", "mean" or "weighted".
        weights: For "weighted": a number for each network, not negative and not all 0; they are divided by
            their sum. All equal where None.
        names: The networks' names, for messages and reports; "network 0" and so on where None.
        threshold: For networks of a single output: 0.5 for probabilities, 0 for logits; of named outputs one
            for all, or by name. Where None, 0 for an output that all networks have learned by a loss of
            logits, such as binary_cross_entropy, and 0.5 for others.

    Raises:
        ConfigError: There are no networks, the vote is unknown, or weights do not fit; or a network tells
            other classes than another, or the same ones in another order.
        ShapeError: A network has another input or output shape than the first, or a majority is to be of
            outputs that are no classes.

    Examples:
        >>> nets = [loom.Sequential([nn.Dense(3)], input_shape=4, seed=seed) for seed in range(3)]
        >>> ensemble = loom.analysis.Ensemble(nets, vote="majority")
        >>> ensemble.predict(np.ones((2, 4))).shape, ensemble.predict_classes(np.ones((2, 4))).shape
        ((2, 3), (2,))
    """

    def __init__(
        self,
        networks: Sequence[Network],
        vote: Literal["majority", "mean", "weighted"] = "mean",
        weights: ArrayLike | None = None,
        *,
        names: Sequence[object] | None = None,
        threshold: float | Mapping[str, float] | None = None,
    ) -> None:
        self._networks = checked_members(networks)
        for network in self._networks:
            engine_of(network).check_fixed("Ensemble")
        self._names = as_names(names, len(self._networks), what="networks", prefix="network ")
        self._vote = choice("Ensemble", "vote", vote, _VOTES)
        check_shapes(self._networks, self._names)
        self._given_thresholds = thresholds_by_output(threshold, self._shapes)
        self._known = classes_together(self._networks, self._names)
        for shape in self._shapes.values():
            if self._vote == "majority" and len(shape) > 3:
                raise ShapeError(f"a majority needs outputs that are classes, got shape {shape}")
        if weights is not None and self._vote != "weighted":
            raise ConfigError(f'weights are for vote="weighted", got vote="{self._vote}"')
        self._weights = shares(weights, len(self._networks))
        precisions = {network.precision for network in self._networks}
        self._precision: Precision = "float64" if "float64" in precisions else "float32"

    @property
    def networks(self) -> tuple[Network, ...]:
        """The networks."""
        return self._networks

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return self._names

    @property
    def vote(self) -> str:
        """How they decide: "majority", "mean" or "weighted"."""
        return self._vote

    @property
    def weights(self) -> NDArray[np.float64]:
        """How much each network counts, all together 1."""
        return np.array(self._weights)

    @property
    def threshold(self) -> float | dict[str, float]:
        """What a single output is above for class 1; by name where named outputs have others."""
        found = {name: self._threshold(name) for name in self._shapes}
        return next(iter(found.values())) if len(set(found.values())) == 1 else found

    def _threshold(self, output: str) -> float:
        """What a single output is above for class 1, of those that have names by name."""
        if output in self._given_thresholds:
            return self._given_thresholds[output]
        return 0.0 if all(learned_logits(network, output) for network in self) else 0.5

    @property
    def input_shape(self) -> tuple[int, ...]:
        """One sample's extents as they come in."""
        return self._networks[0].input_shape

    @property
    def output_shape(self) -> tuple[int, ...]:
        """One sample's extents as they go out."""
        return self._networks[0].output_shape

    def __len__(self) -> int:
        return len(self._networks)

    def __iter__(self) -> Iterator[Network]:
        return iter(self._networks)

    def __repr__(self) -> str:
        return f"Ensemble({len(self)} network{'s' * (len(self) > 1)}, vote={self._vote!r})"

    def predict(self, x: ArrayLike, batch_size: int = 256) -> RealArray:
        """Returns the output for each sample, by the vote.

        Args:
            x: (rows, *input_shape) the samples.
            batch_size: How many are computed at a time.

        Returns:
            (rows, *output_shape): float64 where a network is of that precision, else float32. Of named
            outputs a dictionary of arrays.

        Raises:
            ShapeError: The samples do not have the networks' input shape.
            NonFiniteError: They hold NaN or infinity.
            StateError: A network is training in another thread.
        """
        made: RealArray = by_output([network.predict(x, batch_size) for network in self], self._together)
        return made

    def predict_classes(self, x: ArrayLike, batch_size: int = 256) -> NDArray[Any]:
        """Returns the class of each sample: that of the largest output, the first of several.

        Args:
            x: (rows, *input_shape) the samples.
            batch_size: How many are computed at a time.

        Returns:
            (rows,) the classes, by their labels where a network knows them; with images and sequences one for
            each place. Of a single output 0 or 1, or their labels. Of named outputs a dictionary of those
            that have several values, or labels.

        Raises:
            ShapeError: The samples do not have the networks' input shape.
            NonFiniteError: They hold NaN or infinity.
            StateError: A network is training in another thread.
        """
        output: Any = self.predict(x, batch_size)
        if isinstance(output, dict):
            several = [name for name, part in output.items() if part.shape[1:] != (1,) or name in self._known]
            return {name: self._classes(output[name], name) for name in several}  # type: ignore[return-value]
        return self._classes(output, "")

    def _classes(self, output: RealArray, name: str) -> NDArray[Any]:
        axis = class_axis(output.ndim)
        if output.shape[axis] > 1:
            chosen = np.asarray(output.argmax(axis=axis), dtype=np.int64)
        else:
            bound = 0.5 if self._vote == "majority" else self._threshold(name)
            chosen = np.asarray(np.take(output > bound, 0, axis=axis), dtype=np.int64)
        known = self._known.get(name)
        return chosen if known is None else known.labels(chosen)

    def evaluate(
        self,
        data: Data,
        config: TrainingConfig | None = None,
        *,
        loss: LossLike | Mapping[str, LossLike] | None = None,
        metrics: Sequence[MetricLike] | Mapping[str, Sequence[MetricLike]] | None = None,
        batch_size: int | None = None,
    ) -> dict[str, float]:
        """Measures loss and metrics as `loom.evaluate` does, of what the networks decide together.

        Where outputs are probabilities, of a majority or of networks that all end in `nn.Softmax`, the
        cross-entropy is that of probabilities.

        Args:
            data: (x, y) or (x, y, weight) arrays, a `TrainingBatch`, or an iterable of either; or a frame,
                where the first network has learned from a table.
            config: Its loss, metrics, class weights and batch size are used; those of the first network's
                last training where None.
            loss: Instead of the config's.
            metrics: Instead of the config's.
            batch_size: How many samples are computed at a time.

        Returns:
            "loss", and each metric by name.

        Raises:
            StateError: The first network was never trained in this process, and neither a config nor a loss
                is given; or a network is training in another thread.
            ConfigError: The loss takes logits, but a majority gives shares of votes.
            DataError: The data is empty, of unequal length, or of no known form.
            ShapeError: It does not fit the networks.
        """
        size = self._batch_size(batch_size, config)
        whole_set, batches = self._batches(data, config, loss)
        decided = (self._decided(batch, size) for batch in batches)
        return self._judge(next(decided) if whole_set else decided, config, loss, metrics, size)

    def fit_weights(
        self,
        data: Data,
        config: TrainingConfig | None = None,
        *,
        loss: LossLike | Mapping[str, LossLike] | None = None,
        metrics: Sequence[MetricLike] | Mapping[str, Sequence[MetricLike]] | None = None,
        monitor: str = "loss",
        mode: Literal["auto", "min", "max"] = "auto",
        rounds: int = 50,
        batch_size: int | None = None,
    ) -> Self:
        """Finds the weights of a weighted vote on validation data.

        Networks are added one after the other, each as often as it helps: in every round the one with which
        the mean of all added so far is best. A network's weight is its share (Caruana, Niculescu-Mizil, Crew
        and Ksikes 2004, "Ensemble Selection from Libraries of Models"). The rounds are kept up to the best
        mean, so on these data no single network is better. Give data that no network was trained on.

        Args:
            data: Validation data, as for `evaluate`.
            config: As for `evaluate`.
            loss: As for `evaluate`.
            metrics: As for `evaluate`.
            monitor: What is to be best: "loss", or a metric by its name.
            mode: "min" or "max"; "auto" takes max for accuracies and R2, and min for all others.
            rounds: How many networks are added.
            batch_size: How many samples are computed at a time.

        Returns:
            The ensemble.

        Raises:
            StateError: The vote is not "weighted"; or as for `evaluate`.
            ConfigError: Nothing of the monitor's name is measured, or a setting is out of range.
            DataError: The data is empty, of unequal length, or of no known form.
            ShapeError: It does not fit the networks.
        """
        if self._vote != "weighted":
            raise StateError(f'only vote="weighted" has weights to fit; this ensemble\'s is "{self._vote}"')
        rounds = whole("fit_weights", "rounds", rounds, least=1)
        choice("fit_weights", "mode", mode, ("auto", "min", "max"))
        size = self._batch_size(batch_size, config)
        whole_set, batches = self._batches(data, config, loss)
        seen = [([network.predict(batch.input, size) for network in self], batch) for batch in batches]
        counts = np.zeros(len(self))
        best, found = float("nan"), counts
        for _ in range(rounds):
            scores = []
            for place in range(len(self)):
                tried = counts.copy()
                tried[place] += 1.0
                decided = [
                    TrainingBatch(by_output(outputs, self._weighted, tried / tried.sum()), *told)
                    for outputs, told in ((outputs, (batch.target, batch.weight)) for outputs, batch in seen)
                ]
                given: Data = decided[0] if whole_set else decided
                scores.append(
                    monitored("fit_weights", monitor, self._judge(given, config, loss, metrics, size))
                )
            chosen = 0
            for place, score in enumerate(scores):
                if improves(score, scores[chosen], monitor, mode, 0.0):
                    chosen = place
            counts[chosen] += 1.0
            if improves(scores[chosen], best, monitor, mode, 0.0):
                best, found = scores[chosen], counts.copy()
        self._weights = shares(found if found.any() else counts, len(self))
        return self

    def save(self, path: str | PathLike[str]) -> None:
        """Writes all networks and the vote to one file: whole, or after an error not at all.

        The file is a ZIP archive: `ensemble.json`, and each network as `Network.save` writes it.

        Args:
            path: The file; an older one is replaced at the end.

        Raises:
            FileError: The file cannot be written.
            NonFiniteError: A weight or a layer's state is infinite or NaN; an older file stays as it is.
        """
        about = {
            "names": self._names,
            "vote": self._vote,
            "weights": self._weights.tolist(),
            "threshold": self.threshold,
        }
        write(path, about, (engine_of(network).native.to_bytes(False) for network in self._networks))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Reads an ensemble that `save` wrote.

        Args:
            path: The file.

        Returns:
            The ensemble.

        Raises:
            FileError: The file cannot be read.
            SerializationError: It is damaged, truncated, foreign, or of a later format.
        """
        about, contents = read(path)
        networks = [from_native(_native.Network.from_bytes(content)) for content in contents]
        try:
            ensemble = cls(
                networks,
                about["vote"],
                about["weights"] if about["vote"] == "weighted" else None,
                names=about["names"],
                threshold=about["threshold"],
            )
            # They are shares already, and stay the same bits.
            ensemble._weights = np.array(about["weights"], dtype=np.float64)
            return ensemble
        except (ConfigError, ShapeError, KeyError, TypeError, ValueError) as error:
            raise foreign(path, error) from error

    # Votes

    @property
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """One sample's extents of every output; of one without a name, of that."""
        ports = engine_of(self._networks[0]).ports
        return ports.output_shapes() if ports is not None and ports.outputs else {"": self.output_shape}

    def _together(self, stacked: RealArray, name: str) -> RealArray:
        if self._vote == "majority":
            return majority(stacked, self._threshold(name), self._precision)
        return self._weighted(stacked, name, self._weights)

    def _weighted(self, outputs: RealArray, _: str, weights: NDArray[np.float64]) -> RealArray:
        return weighted(outputs, weights, self._precision)

    # Evaluation

    def _batch_size(self, given: int | None, config: TrainingConfig | None) -> int:
        if given is None:
            return 256 if config is None else config.validation_batch_size or config.batch_size
        return whole("Ensemble", "batch_size", given, least=1)

    def _decided(self, batch: TrainingBatch, batch_size: int) -> TrainingBatch:
        return TrainingBatch(self.predict(batch.input, batch_size), batch.target, batch.weight)

    def _judge(
        self,
        decided: Any,  # noqa: ANN401 - data of any form
        config: TrainingConfig | None,
        loss: LossLike | Mapping[str, LossLike] | None,
        metrics: Sequence[MetricLike] | Mapping[str, Sequence[MetricLike]] | None,
        batch_size: int,
    ) -> dict[str, float]:
        """Measures outputs as those of a network that hands them on."""
        config = config or record_of(self._networks[0]).judged_by
        used = self._loss(config, loss)
        config = None if config is None else weighed(engine_of(self._teller), config)
        shapes = self._shapes
        single = "" in shapes
        if single and used == losses.AUTO:
            source = as_source(decided)
            config, source = settled_by_source(self._networks[0], config or TrainingConfig(loss=used), source)
            decided = source.batch if isinstance(source, ArraySource) else source.batches
            used = config.loss
        if single and used is not None and not isinstance(used, Mapping):
            loss = self._judged_by("", cast("Any", used))
        elif not single and used is not None and used != losses.AUTO:
            each = used if isinstance(used, Mapping) else dict.fromkeys(shapes, used)
            loss = {name: self._judged_by(name, one) if name in shapes else one for name, one in each.items()}
        if single:
            identity: Network = Sequential(
                [nn.Activation("linear")], self.output_shape, precision=self._precision
            )
        else:
            identity = Network(inputs=shapes, grid=(1, len(shapes)), precision=self._precision)
            for column, name in enumerate(shapes):
                identity.enter(name, (0, column))[0, column].add(nn.Activation("linear"))
                identity.output(name, (0, column))
        return evaluate(identity, decided, config, loss=loss, metrics=metrics, batch_size=batch_size)

    def _loss(self, config: TrainingConfig | None, loss: object) -> Any:  # noqa: ANN401 - of any kind
        """Returns what is measured: the loss that is given, or that of the settings."""
        config = config or record_of(self._networks[0]).judged_by
        return loss if loss is not None else None if config is None else config.loss

    @property
    def _teller(self) -> Network:
        """The network that knows the classes' labels; the first one where none does."""
        return next((net for net in self if known_classes(engine_of(net))), self._networks[0])

    def _judged_by(self, output: str, used: LossLike) -> LossLike:
        """The loss of what the networks decide together, where `used` is that of each of them."""
        name = losses.name_of(used)
        if self._vote == "majority" and name == "binary_cross_entropy":
            raise ConfigError(
                "binary_cross_entropy takes logits, but a majority gives shares of votes; "
                'measure loss="mse", or let the ensemble vote by "mean"'
            )
        if name == "focal" and self._gives_probabilities(output):
            raise ConfigError(
                'the focal loss takes logits, and these are probabilities; measure loss="nll" or metrics'
            )
        if name == "cross_entropy" and self._gives_probabilities(output):
            return "nll"
        return used

    def _gives_probabilities(self, output: str) -> bool:
        return self._vote == "majority" or all(
            _last_kind(network, output) == "softmax" for network in self._networks
        )

    def _batches(
        self, data: object, config: TrainingConfig | None, loss: object
    ) -> tuple[bool, Iterable[TrainingBatch]]:
        """Returns whether data is one batch in all, and the batches, whose labels are class indices."""
        whole_set, batches = self._given(data)
        used, shapes = self._loss(config, loss), self._shapes
        if used is None or not self._known:
            return whole_set, batches
        if "" not in shapes and not isinstance(used, Mapping):
            used = dict.fromkeys(shapes, used)
        engine = engine_of(self._teller)
        return whole_set, [
            TrainingBatch(batch.input, cast("Any", as_indices(engine, batch.target, used)), batch.weight)
            for batch in batches
        ]

    def _given(self, data: object) -> tuple[bool, Iterable[TrainingBatch]]:
        engine = engine_of(self._networks[0])
        if engine.ports is None or (is_frame(data) and encoder_of(engine.native) is not None):
            data = as_known(engine, cast("Data", data), None)
        if engine.ports is None:
            source = as_source(cast("Data", data))
            whole_set = isinstance(source, ArraySource)
            return whole_set, [source.batch] if isinstance(source, ArraySource) else list(source)
        # Of named inputs and outputs dictionaries, which the networks look at themselves.
        if is_single(data):
            return True, [as_batch(data)]
        return False, [as_batch(each) for each in check_iterable(data)]


def _last_kind(network: Network, output: str) -> str:
    """The kind of the layer that an output comes from; of one without a name, of the last."""
    if not output:
        return network.layers[-1].kind
    engine = engine_of(network)
    ports = engine.ports
    cells = {} if ports is None else {entry.name: tuple(entry.cell) for entry in ports.outputs}
    kinds = zip(engine.layer_places(), engine.layer_kinds(), strict=True)
    # A cell without layers hands on what the one before it has made.
    return next((kind for (at, _), kind in reversed([*kinds]) if at <= cells[output]), "")
