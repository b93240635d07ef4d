"""The network: a grid of cells that hold layers, their weights, and the manual loop."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import IO, TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from loom import _native, nn
from loom._base import OWN_ATTRIBUTES
from loom._checks import flag, whole
from loom._manual import ManualLoop
from loom._morphing import Morphing
from loom._typing import ArrayLike, Precision, RealArray
from loom.architecture import LinkConfig, NetworkConfig, as_layer
from loom.convert import as_real_array
from loom.device import check_device
from loom.errors import ConfigError, SerializationError, ShapeError, StateError
from loom.grid import Coordinate, Extents, coordinates, locate
from loom.handles import Cell, LayerHandle, brief, place_in_cell
from loom.measuring import Measures, Observe
from loom.metrics import Metric

if TYPE_CHECKING:
    from typing_extensions import Self

    from loom.callbacks import Callback
    from loom.config import TrainingConfig
    from loom.data import Data
    from loom.losses import LossLike
    from loom.metrics import MetricLike
    from loom.result import TrainingResult
    from loom.session import Session

__all__ = ["Network", "Sequential", "load"]


class Network(Morphing, ManualLoop):
    """A 3-D grid of cells that hold layers.

    `net[z, y, x]` is a cell, `net[z, y, x, l]` a layer in it; `net[y, x]` a cell where
    the depth is 1. Data enters cell (0, 0, 0) and flows depth, row, column, layer; an
    empty cell hands it on. Shapes are inferred and weights drawn when they are first
    needed, or by `build`.

    Args:
        input_shape: One sample's extents, without the batch; images are channels,
            height, width.
        grid: (depth, rows, columns), or (rows, columns) where the depth is 1.
        precision: "float32" or "float64": of weights, activations and gradients; or
            "mixed": float32 in memory and in every sum, with the operands of matrix
            products and convolutions rounded to 16 bits: float16 on a GPU, whose loss is
            scaled for it (see `loss_scale`), bfloat16 on the CPU.
        seed: What initial weights and, in the manual loop, dropout are drawn from.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> net = loom.Network(input_shape=(1, 8, 8), grid=(1, 1, 2))
        >>> _ = net[0, 0, 0].add(nn.Conv2D(4, kernel_size=3, activation="relu"), nn.Flatten())
        >>> _ = net[0, 0, 1].add(nn.Dense(10))
        >>> net.predict(np.zeros((5, 1, 8, 8))).shape
        (5, 10)
    """

    def __init__(
        self,
        input_shape: int | Sequence[int],
        grid: Sequence[int] = (1, 1, 1),
        precision: str = "float32",
        seed: int = 0,
    ) -> None:
        config = NetworkConfig(input_shape=input_shape, grid=grid, precision=precision, seed=seed)
        self._adopt(_native.Network(json.dumps(config.to_config())), config)

    @classmethod
    def _wrap(cls, native: _native.Network) -> Self:
        network = cls.__new__(cls)
        network._adopt(native, None)
        return network

    # What it is

    @property
    def input_shape(self) -> tuple[int, ...]:
        """One sample's extents as they come in."""
        return self._input_shape

    @property
    def output_shape(self) -> tuple[int, ...]:
        """One sample's extents as they go out; builds the network."""
        return tuple(self._native.output_shape())

    @property
    def grid(self) -> Extents:
        """Depth, rows and columns."""
        return self._grid

    @property
    def precision(self) -> Precision:
        """The arithmetic of weights, activations and gradients: "float32", "float64" or "mixed"."""
        return self._precision

    @property
    def loss_scale(self) -> float | None:
        """What gradients are scaled by while they are computed; None where they are not.

        In mixed precision on a GPU it keeps them within float16: it starts at 65,536, a
        step whose loss or gradients are not finite is left out and halves it, and 2,000
        good steps in a row double it. The gradients that one sees are never scaled. It is
        saved with the training state.
        """
        return self._native.loss_scale()

    @property
    def measures(self) -> Measures:
        """What the newest measured step has shown of every layer, and the steps that were kept.

        Learning by targets measures; backpropagation does with `observe=`.
        """
        return Measures(self)

    @property
    def cells(self) -> list[Cell]:
        """Every cell, in the order data flows."""
        return [Cell(self, at) for at in coordinates(self._grid)]

    @property
    def layers(self) -> list[LayerHandle]:
        """Every layer, in the order data flows."""
        return [layer for cell in self.cells for layer in cell]

    @property
    def weight_bytes(self) -> int:
        """The bytes of the weights that the forward pass reads; builds the network."""
        return self._native.weight_bytes()

    @overload
    def __getitem__(self, index: tuple[int, int] | tuple[int, int, int]) -> Cell: ...
    @overload
    def __getitem__(self, index: tuple[int, int, int, int]) -> LayerHandle: ...
    def __getitem__(self, index: tuple[int, ...]) -> Cell | LayerHandle:
        """Returns a cell, or a layer in one; negative numbers count from the end.

        Raises:
            CellIndexError: There is no such cell or layer.
        """
        at, layer = locate(self._grid, index)
        if layer is None:
            return Cell(self, at)
        return LayerHandle(self, at, place_in_cell(at, layer, self._native.cell_len(at)))

    def __iter__(self) -> Iterator[Cell]:
        """Yields the cells in the order data flows."""
        return iter(self.cells)

    def __repr__(self) -> str:
        """Returns the extents, every layer with its place, and the links."""
        seed = f", seed={self.config.seed}" if self.config.seed else ""
        precision = "" if self._precision == "float32" else f', precision="{self._precision}"'
        lines = [f"Network(input_shape={self._input_shape}, grid={self._grid}{precision}{seed})"]
        for cell in self.config.cells:
            described: Any = cell
            lines.append(f"  {tuple(described.at)}")
            lines += [f"    {place}: {brief(layer)}" for place, layer in enumerate(described.layers)]
        for joined in self.config.links:
            link: Any = joined
            axis = "" if link.axis is None else f", axis={link.axis}"
            lines.append(f"  {tuple(link.source)} -> {tuple(link.target)}: {link.combine}{axis}")
        return "\n".join(lines)

    def summary(self, file: IO[str] | None = None) -> None:
        """Writes a table: cell, layer, output shape, parameters, numeric type, bytes; then the links.

        The type is that of the weights; where they have several, or biases, gains or positions were
        morphed by name, each type with what is held in it. A link stands with what becomes of it
        and the shape of its target's input once it has arrived. "(frozen)" are parameters that
        no optimizer moves, "(dropped)" those of layers whose masters `drop_master` has freed.

        Args:
            file: Where to; standard output by default.

        Raises:
            ShapeError: The layers do not fit together.
        """
        (file or sys.stdout).write(self._native.summary() + "\n")

    def to_json(self, indent: int | None = None) -> str:
        """Returns the network without its weights as JSON."""
        return json.dumps(self.config.to_config(), indent=indent)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Builds the network that `to_json` described, with initial weights.

        Args:
            text: JSON.

        Returns:
            The network.

        Raises:
            SerializationError: It is not JSON.
            ConfigError: A key is unknown or missing, or a value out of range.
        """
        try:
            described = json.loads(text)
        except ValueError as error:
            raise SerializationError(f"a network's configuration must be JSON: {error}") from error
        return cls.from_config(described)

    @classmethod
    def from_config(cls, config: NetworkConfig | Mapping[str, Any]) -> Self:
        """Builds the network that a configuration describes, with initial weights.

        Args:
            config: The configuration, or its JSON form.

        Returns:
            The network.

        Raises:
            ConfigError: A key is unknown or missing, or a value out of range.
        """
        described = config if isinstance(config, NetworkConfig) else NetworkConfig.from_config(config)
        return cls._wrap(_native.Network(json.dumps(described.to_config())))

    # Changing

    def to(self, device: str) -> Self:
        """Moves the network to a device, where it stays; weights, gradients and moments go along.

        Parameters can be read and set as before wherever the network is. Files and copies
        do not remember the device: what is loaded or copied starts on the CPU.

        Args:
            device: "cpu"; "gpu" for the first GPU, "gpu:1" for the second; or "auto" for
                the first GPU that is hardware, and the CPU where there is none. "auto"
                also leaves it to training again where the network is to be.

        Returns:
            The network.

        Raises:
            DeviceError: The GPU is not there, or cannot compute in the network's
                precision; the network stays where it was.
            ConfigError: The name is unknown.

        Examples:
            >>> net = loom.Sequential([nn.Dense(2)], input_shape=3)
            >>> net.to("cpu").device
            'cpu'
        """
        self._check_thread()
        self._move(check_device("Network.to", device))
        return self

    def link(
        self, source: Sequence[int], target: Sequence[int], combine: str = "add", axis: int | None = None
    ) -> Self:
        """Hands a cell's output to a later cell, beside what flows there anyway: a skip across the grid.

        Several links into one cell are taken in the order in which they were made. A cell without
        layers hands on what has arrived; behind the last layer that is the network's output. A link
        that points back is for clock mode only: the network then cannot run as a feed-forward one.

        Args:
            source: The cell whose output is handed over: (depth, row, column), or (row, column)
                where the depth is 1.
            target: The cell that gets it.
            combine: "add" to the target's input, of equal shape; "concat" behind it; or
                "context": the second input of the target's layers that take one, such as
                cross-attention.
            axis: For concat: the axis; the last, or the channels of images, where None.

        Returns:
            The network.

        Raises:
            CellIndexError: There is no such cell.
            ConfigError: The mode is unknown, or an axis is given without concat.

        Examples:
            >>> net = loom.Network(input_shape=4, grid=(1, 3))
            >>> for column in range(3):
            ...     _ = net[0, column].add(nn.Dense(4))
            >>> net.link((0, 0), (0, 2)).predict(np.ones((1, 4))).shape
            (1, 4)
        """
        self._check_idle("adding a link")
        ends = [locate(self._grid, tuple(cell)) for cell in (source, target)]
        if any(layer is not None for _, layer in ends):
            raise ConfigError("link connects cells, (depth, row, column), not layers")
        described = LinkConfig(ends[0][0], ends[1][0], combine, axis)
        self._native.link(json.dumps(described.to_config()))
        self._built = False
        self._direct = False
        self._config = None
        self._revision += 1
        return self

    def session(self, capacity: int, rows: int = 1) -> Session:
        """Begins inference that goes on from where its last call ended; see `loom.Session`.

        Args:
            capacity: The most steps there will be in all.
            rows: Sequences side by side.

        Returns:
            The session.

        Raises:
            StateError: A layer or a link needs whole sequences.
            ShapeError: The network's input has no time axis.
        """
        from loom.session import Session

        return Session(self, capacity, rows)

    def reset_states(self) -> None:
        """Forgets what stateful layers carry from batch to batch of training: new sequences begin.

        While `loom.train` trains the network a callback may call it, between two epochs say. Data in
        arrays that is shuffled begins new sequences in every batch of itself.
        """
        self._check_thread()
        self._native.reset_states()

    def _add(self, at: Coordinate, layers: Sequence[nn.Layer | Mapping[str, Any]]) -> None:
        self._check_idle("adding layers")
        described = [json.dumps(as_layer(layer).to_config()) for layer in layers]
        self._native.add(at, described)
        self._built = False
        self._direct = False
        self._config = None
        self._revision += 1

    def _layer_config(self, at: Coordinate, place: int) -> nn.Layer:
        for cell in self.config.cells:
            described: Any = cell
            if tuple(described.at) == at:
                layer: nn.Layer = described.layers[place]
                return layer
        raise StateError(f"cell {at} has no layers any more")

    # Weights by name

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Returns copies of all parameters in full precision, and of what layers keep beside them.

        They are named "z.y.x.l.name"; running statistics and the like are among them, and what
        stateful layers carry from batch to batch, (rows, ...), once they carry anything. Layers that
        use another one's parameters have none of their own.
        """
        state: dict[str, NDArray[Any]] = {}
        for layer in self.layers:
            for name in self._native.parameter_names(layer.at):
                state[f"{layer.path}.{name}"] = self._native.parameter(layer.at, name, False)
            for name in self._native.state_names(layer.at):
                state[f"{layer.path}.{name}"] = self._native.state(layer.at, name)
        return state

    def load_state_dict(self, state: Mapping[str, ArrayLike]) -> Self:
        """Sets all parameters; after an error none has changed.

        What stateful layers carry may be left out: then they begin new sequences.

        Args:
            state: Arrays by name, as `state_dict` returns them.

        Returns:
            The network.

        Raises:
            ConfigError: Names are missing or unknown.
            ShapeError: An array has another shape than its parameter.
            NonFiniteError: An array holds NaN or infinity.
            StateError: What two stateful layers carry is of different numbers of rows.
        """
        self._check_thread()
        before = self.state_dict()
        carried = [f"{layer.path}.{name}" for layer in self.layers for name in layer._carried]
        fixed = [name for name in before if name not in carried]
        _check_names(fixed, [name for name in state if name not in carried])
        names = [*fixed, *(name for name in carried if name in state)]
        arrays = {name: as_real_array(state[name], self._precision, what=name) for name in names}
        for name in fixed:
            if arrays[name].shape != before[name].shape:
                raise ShapeError(f"{name}: expected shape {before[name].shape}, got {arrays[name].shape}")
        try:
            self._set_parameters(arrays, resets=bool(carried))
        except BaseException:
            self._set_parameters(before, resets=bool(carried))
            raise
        return self

    def _set_parameters(self, arrays: Mapping[str, NDArray[Any]], *, resets: bool) -> None:
        if resets:
            self._native.reset_states()
        for path, array in arrays.items():
            *numbers, name = path.split(".", 4)
            at = [int(number) for number in numbers]
            if name in self._native.parameter_names(at):
                self._native.set_parameter(at, name, array)
            else:
                self._native.set_state(at, name, array)

    # Inference

    def predict(self, x: ArrayLike, batch_size: int = 256) -> RealArray:
        """Returns the output for each sample, dropout off.

        On the CPU a sample's result is the same bits alone and in any batch; on a GPU it is
        the same bits each time, and may round differently in batches of other sizes.
        Several threads may predict at once.

        Args:
            x: (rows, *input_shape) the samples.
            batch_size: How many are computed at a time.

        Returns:
            (rows, *output_shape) in the network's precision.

        Raises:
            ShapeError: The samples do not have the network's input shape.
            NonFiniteError: They hold NaN or infinity.
            StateError: The network is training in another thread.
        """
        if self._direct:
            if not (type(x) is np.ndarray and x.dtype is self._dtype and x.flags.c_contiguous):
                x = as_real_array(x, self._precision)
            if x.ndim and x.shape[0] <= batch_size:
                return self._predict(x, batch_size)
        size = whole("predict", "batch_size", batch_size, least=1)
        return self._predict_in_batches(self._as_input(x), size)

    def _predict_in_batches(self, x: RealArray, batch_size: int) -> RealArray:
        self.build()
        if x.ndim == 0 or x.shape[0] <= batch_size or x.shape[1:] != self._input_shape:
            return self._predict_batch(x, batch_size)
        # One call a batch, so that Ctrl-C is heard between them.
        output = np.empty((x.shape[0], *self.output_shape), self._dtype)
        for start in range(0, x.shape[0], batch_size):
            rows = slice(start, start + batch_size)
            output[rows] = self._predict_batch(x[rows], batch_size)
        return output

    def _predict_batch(self, x: RealArray, batch_size: int) -> RealArray:
        if not self._observers:
            return self._predict(x, batch_size)
        output, passes = self._native.predict_observed(x, batch_size)
        for figures in passes:
            self._tell_observers(figures)
        return output

    def evaluate(
        self,
        data: Data,
        config: TrainingConfig | None = None,
        *,
        loss: LossLike | None = None,
        metrics: Sequence[MetricLike] | None = None,
        batch_size: int | None = None,
    ) -> dict[str, float]:
        """Measures loss and metrics; see `loom.evaluate`."""
        from loom.evaluation import evaluate

        return evaluate(self, data, config, loss=loss, metrics=metrics, batch_size=batch_size)

    # Training

    def fit(
        self,
        data: Data,
        config: TrainingConfig | None = None,
        validation: Data | None = None,
        callbacks: Iterable[Callback] = (),
        resume: bool = False,
        observe: bool | Observe = False,
    ) -> TrainingResult:
        """Trains the network; see `loom.train`."""
        from loom.training import train

        return train(self, data, config, validation, callbacks, resume, observe)

    # Keeping work

    def save(self, path: str | PathLike[str], optimizer: bool = False) -> None:
        """Writes the network to a file: whole, or after an error not at all.

        Args:
            path: The file; an older one is replaced at the end.
            optimizer: Whether the optimizer's state, the place in the data and the callbacks'
                states are written too, so that `loom.train(..., resume=True)` goes on bit for bit.

        Raises:
            FileError: The file cannot be written.
            NonFiniteError: A weight or a layer's state is infinite or NaN, which
                `loom.load` would refuse; an older file stays as it is.
        """
        training = flag("save", "optimizer", optimizer)
        if training and self._take_notes is not None:
            self._take_notes()
        self._native.save(path, training)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies through a file's bytes, with the optimizer's state and the user's attributes."""
        kind = type(self)
        own, slots = self.__getstate__(), _slots_of(self)
        state = (own, slots) if slots else own or None
        if not self.config.cells:
            return _begin, (kind, self.config), state
        if self._take_notes is not None:
            self._take_notes()
        return _restore, (kind, self._native.to_bytes(True), _portable(self._judged_by)), state

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes that are not loom's own, for pickles and copies."""
        return {name: value for name, value in vars(self).items() if name not in OWN_ATTRIBUTES}


def Sequential(  # noqa: N802 - reads like the network it makes
    layers: Iterable[nn.Layer | Mapping[str, Any]],
    input_shape: int | Sequence[int],
    precision: str = "float32",
    seed: int = 0,
) -> Network:
    """Makes a network of one cell: layers in a row.

    Args:
        layers: The layers, in order.
        input_shape: One sample's extents, without the batch.
        precision: "float32", "float64" or "mixed"; see `Network`.
        seed: What initial weights are drawn from.

    Returns:
        A network with a 1x1x1 grid.

    Raises:
        ConfigError: A setting is out of range, or something is no layer.

    Examples:
        >>> net = loom.Sequential([nn.Dense(16, activation="relu"), nn.Dense(3)], input_shape=4)
        >>> net.output_shape
        (3,)
    """
    network = Network(input_shape, precision=precision, seed=seed)
    network[0, 0, 0].add(*layers)
    return network


def load(path: str | PathLike[str]) -> Network:
    """Reads a network that `Network.save` wrote.

    Args:
        path: The file.

    Returns:
        The network.

    Raises:
        FileError: The file cannot be read.
        SerializationError: It is damaged, truncated, foreign, or of a later format.
    """
    return Network._wrap(_native.Network.load(path))


def _slots_of(network: Network) -> dict[str, Any]:
    """Returns what a subclass keeps in `__slots__`."""
    named = [getattr(kind, "__slots__", ()) for kind in type(network).__mro__]
    names = [name for slots in named for name in ([slots] if isinstance(slots, str) else slots)]
    return {name: getattr(network, name) for name in names if hasattr(network, name)}


def _begin(kind: type[Network], config: NetworkConfig) -> Network:
    return kind._wrap(_native.Network(json.dumps(config.to_config())))


def _restore(kind: type[Network], data: bytes, judged_by: TrainingConfig | None) -> Network:
    network = kind._wrap(_native.Network.from_bytes(data))
    network._judged_by = judged_by
    return network


def _portable(config: TrainingConfig | None) -> TrainingConfig | None:
    """Leaves out metrics that are functions, which need not be known elsewhere."""
    if config is None:
        return None
    return replace(config, metrics=[metric for metric in config.metrics if isinstance(metric, Metric)])


def _check_names(expected: Iterable[str], given: Iterable[str]) -> None:
    missing = sorted(set(expected) - set(given))
    unexpected = sorted(set(given) - set(expected))
    if missing or unexpected:
        parts = [
            f"{word} {', '.join(names)}"
            for word, names in (("missing", missing), ("unknown", unexpected))
            if names
        ]
        raise ConfigError(f"the state does not fit the network: {'; '.join(parts)}")
