"""The network: a grid of cells that hold layers, composed of small objects around one engine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import IO, TYPE_CHECKING, Any, overload

from numpy.typing import NDArray

from loom import _native
from loom._settings.checks import flag
from loom._typing import ArrayLike, Precision, RealArray
from loom.architecture import LinkConfig, NetworkConfig
from loom.device import check_device
from loom.engine import Engine
from loom.engine.statistics import LayerGradient
from loom.errors import ConfigError, SerializationError
from loom.grid import Extents, coordinates, locate
from loom.measuring import Measures, Observe
from loom.network.cells import Cell, place_in_cell
from loom.network.inference import Inference
from loom.network.layers import LayerHandle
from loom.network.manual_loop import ManualLoop
from loom.network.morphing import Chosen, Morphing
from loom.network.pickling import OWN_ATTRIBUTES, reduced
from loom.network.session import Session
from loom.network.state_dict import StateDict
from loom.network.text import described
from loom.observers import Observer
from loom.optimizers import OptimizerLike
from loom.training.record import TrainingRecord

if TYPE_CHECKING:
    from typing_extensions import Self

    from loom.callbacks import Callback
    from loom.data import Data
    from loom.losses import LossLike
    from loom.metrics import MetricLike
    from loom.training.config import TrainingConfig
    from loom.training.result import TrainingResult

__all__ = ["Network", "from_native"]


class Network:
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
        self._compose(Engine(_native.Network(json.dumps(config.to_config())), config))

    def _compose(self, engine: Engine) -> None:
        self._engine = engine
        self._record = TrainingRecord()
        self._inference = Inference(engine)
        self._loop = ManualLoop(engine)
        self._morphing = Morphing(engine)
        self._state = StateDict(engine)

    @classmethod
    def _wrap(cls, native: _native.Network) -> Self:
        network = cls.__new__(cls)
        network._compose(Engine(native))
        return network

    # What it is

    @property
    def config(self) -> NetworkConfig:
        """The network without its weights."""
        return self._engine.config

    @property
    def input_shape(self) -> tuple[int, ...]:
        """One sample's extents as they come in."""
        return self._engine.input_shape

    @property
    def output_shape(self) -> tuple[int, ...]:
        """One sample's extents as they go out; builds the network."""
        return tuple(self._engine.native.output_shape())

    @property
    def grid(self) -> Extents:
        """Depth, rows and columns."""
        return self._engine.grid

    @property
    def precision(self) -> Precision:
        """The arithmetic of weights, activations and gradients: "float32", "float64" or "mixed"."""
        return self._engine.precision

    @property
    def device(self) -> str:
        """What the network computes on: "cpu", or a GPU such as "gpu:0"."""
        return self._engine.placement.device

    @property
    def loss_scale(self) -> float | None:
        """What gradients are scaled by while they are computed; None where they are not.

        In mixed precision on a GPU it keeps them within float16: it starts at 65,536, a
        step whose loss or gradients are not finite is left out and halves it, and 2,000
        good steps in a row double it. The gradients that one sees are never scaled. It is
        saved with the training state.
        """
        return self._engine.native.loss_scale()

    @property
    def measures(self) -> Measures:
        """What the newest measured step has shown of every layer, and the steps that were kept.

        Learning by targets measures; backpropagation does with `observe=`.
        """
        return Measures(self)

    @property
    def cells(self) -> list[Cell]:
        """Every cell, in the order data flows."""
        return [Cell(self, at) for at in coordinates(self._engine.grid)]

    @property
    def layers(self) -> list[LayerHandle]:
        """Every layer, in the order data flows."""
        return [layer for cell in self.cells for layer in cell]

    @property
    def weight_bytes(self) -> int:
        """The bytes of the weights that the forward pass reads; builds the network."""
        return self._engine.native.weight_bytes()

    @overload
    def __getitem__(self, index: tuple[int, int] | tuple[int, int, int]) -> Cell: ...
    @overload
    def __getitem__(self, index: tuple[int, int, int, int]) -> LayerHandle: ...
    def __getitem__(self, index: tuple[int, ...]) -> Cell | LayerHandle:
        """Returns a cell, or a layer in one; negative numbers count from the end.

        Raises:
            CellIndexError: There is no such cell or layer.
        """
        at, layer = locate(self._engine.grid, index)
        if layer is None:
            return Cell(self, at)
        return LayerHandle(self, at, place_in_cell(at, layer, self._engine.native.cell_len(at)))

    def __iter__(self) -> Iterator[Cell]:
        """Yields the cells in the order data flows."""
        return iter(self.cells)

    def __repr__(self) -> str:
        """Returns the extents, every layer with its place, and the links."""
        return described(self.config)

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
        (file or sys.stdout).write(self._engine.native.summary() + "\n")

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

    def build(self) -> Self:
        """Infers every shape and draws initial weights, unless that was done.

        Returns:
            The network.

        Raises:
            ShapeError: Layers do not fit together: names the cell, the layer, what it
                expected and what it got.
        """
        self._engine.build()
        return self

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
        self._engine.check_thread()
        self._engine.move(check_device("Network.to", device))
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
        self._engine.check_idle("adding a link")
        ends = [locate(self._engine.grid, tuple(cell)) for cell in (source, target)]
        if any(layer is not None for _, layer in ends):
            raise ConfigError("link connects cells, (depth, row, column), not layers")
        self._engine.link(LinkConfig(ends[0][0], ends[1][0], combine, axis))
        return self

    def reset_states(self) -> None:
        """Forgets what stateful layers carry from batch to batch of training: new sequences begin.

        While `loom.train` trains the network a callback may call it, between two epochs say. Data in
        arrays that is shuffled begins new sequences in every batch of itself.
        """
        self._engine.check_thread()
        self._engine.native.reset_states()

    # Weights by name

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Returns copies of all parameters in full precision, and of what layers keep beside them.

        They are named "z.y.x.l.name"; running statistics and the like are among them, and what
        stateful layers carry from batch to batch, (rows, ...), once they carry anything. Layers that
        use another one's parameters have none of their own.
        """
        return self._state.read()

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
        self._state.write(state)
        return self

    # Numeric types

    def morph(
        self,
        dtype: str,
        where: Callable[[LayerHandle], object] | None = None,
        granularity: str | None = None,
        calibration: str = "absmax",
        rounding: str = "nearest",
        activations: str | None = None,
        parameters: str | Sequence[str] | None = None,
    ) -> Self:
        """Changes the numeric type that layers compute from.

        The weights are packed as that type and the forward pass reads them; training
        goes on through them to the full-precision master, which is kept. The network's
        own precision goes back to the master. Scales are found anew, by the same rule,
        whenever a master has moved, so after each step of training, too; files keep the
        rule.

        Args:
            dtype: The name of a numeric type, such as "int8", "bfloat16" or "ternary"; `loom.dtypes()`
                lists them. "float32" ("float64" in a network of that precision) is the masters.
            where: Which layers, as a function of the layer; all where None.
            granularity: Which weights share a scale: "channel" (each output), "tensor", or
                "block(n)" (each n inputs of an output); as the type has it where None.
            calibration: How the scales are found. "absmax": by the type's own rule, from
                the largest magnitude (`loom.dtypes()` has it). "percentile(99.9)": from
                that percentile of the magnitudes, as `numpy.percentile` has it; what lies
                beyond saturates. "mse": so that the squared error of the weights that
                share the scale is least; once `calibrate` has measured what they multiply,
                each error counts as much as the mean square of that. Types with scales by
                a published format (q4_0, q8_0, mxfp8, mxfp4) or without scales take
                "absmax" alone.
            rounding: "nearest", ties to even; or "stochastic": up or down at random, so that
                the mean of many draws is the weight itself. Draws are keyed by the network's
                seed and the number of updates: each step of training draws anew, any device
                draws the same, and so does a training that is resumed.
            activations: "int8" has inference quantise each row of what a product reads to eight
                bits (of a convolution each sample, of a recurrence its state before every step),
                for weights of int8, int4, int2, ternary, binary, q8_0 or q4_0, and sum the
                products exactly in integers; files keep it. None leaves activations in float.
                Training does so in any case, as does a head that is tied to an Embedding;
                transposed convolutions refuse "int8".
            parameters: The name of a parameter of the chosen layers, or several: just those
                change, and biases, gains of norms and positions may be among them. None for
                all weights of the layers; what was chosen by name before is forgotten then.

        Returns:
            The network.

        Raises:
            DTypeError: The type is unknown, or cannot have that granularity, calibration,
                rounding or those activations.
            InvalidValueError: The granularity, calibration or rounding is unknown, weights do
                not fit the type, a layer cannot quantise its activations or has no parameter
                of such a name. Nothing has changed then.

        Examples:
            >>> net = loom.Sequential([nn.Dense(8), nn.Dense(2)], input_shape=4)
            >>> _ = net.calibrate(np.ones((3, 4))).morph("int4", calibration="mse")
            >>> net[0, 0, 0, 1].weights.versions["int4"].calibration
            'mse'
            >>> _ = net.morph("int8", parameters="bias")
            >>> {name: stored.dtype for name, stored in net[0, 0, 0, 0].weights.stored.items()}
            {'weight': 'int4', 'bias': 'int8'}
        """
        self._morphing.morph(
            dtype, self._chosen(where), granularity, calibration, rounding, activations, parameters
        )
        return self

    def calibrate(self, x: ArrayLike, percentile: float = 99.9, batch_size: int = 256) -> Self:
        """Measures what every layer is given to read, in inference over samples of the data.

        `layer.input_range` then has the largest magnitude, a percentile of the magnitudes, and
        the mean square of each feature. From here on `morph(..., calibration="mse")` weighs the
        error of each weight of a matrix product or a convolution by the mean square of what it
        multiplies; weights that are packed so already are packed anew. What was measured before
        is replaced; files keep it.

        Args:
            x: (rows, *input_shape) samples that are like what the network will see; some
                hundreds will do.
            percentile: Which percentile of the magnitudes, above 0 and up to 100.
            batch_size: How many are computed at a time.

        Returns:
            The network.

        Raises:
            ShapeError: The samples do not have the network's input shape.
            ConfigError: A setting is out of range.
            NonFiniteError: They hold NaN or infinity, or a layer makes such of them.
            StateError: The network is training.
        """
        self._morphing.calibrate(x, percentile, batch_size)
        return self

    def drop_master(self) -> Self:
        """Frees the full-precision masters of packed weights, to deploy a network that is trained.

        Inference goes on as it was, and files hold the packed weights alone. Training, other
        numeric types and reading or setting the full-precision weights are refused from here
        on, until `unpack` makes masters again. Gradients and the optimizer's moments go too.

        Returns:
            The network.

        Raises:
            StateError: A layer's weights are not packed; nothing has changed then.
        """
        self._morphing.drop_master()
        return self

    def unpack(self, where: Callable[[LayerHandle], object] | None = None) -> Self:
        """Makes masters again of packed weights after `drop_master`: the network can be trained again.

        Each weight of the new master is what its code stands for; what the network computes
        stays the same until a weight moves.

        Args:
            where: Which layers, as a function of the layer; all where None.

        Returns:
            The network.

        Raises:
            StateError: No master of those layers was dropped, so there is nothing to unpack.

        Examples:
            >>> net = loom.Sequential([nn.Dense(2)], input_shape=3).morph("int8")
            >>> net.drop_master().unpack()[0, 0, 0, 0].weights.dropped
            False
        """
        self._morphing.unpack(self._chosen(where))
        return self

    def _chosen(self, where: Callable[[LayerHandle], object] | None) -> Chosen:
        def places() -> list[tuple[int, int, int, int]] | None:
            return None if where is None else [layer.at for layer in self.layers if where(layer)]

        return places

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
        return self._inference.predict(x, batch_size)

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
        return Session(self, capacity, rows)

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
        from loom.training.evaluation import evaluate

        return evaluate(self, data, config, loss=loss, metrics=metrics, batch_size=batch_size)

    def observe(self, observer: Observer) -> Self:
        """Shows each layer's activation statistics to an observer after each forward pass.

        Args:
            observer: `loom.observers.Console()`, `Recorder()`, or any callable that takes
                a list of `LayerActivation`.

        Returns:
            The network.

        Raises:
            ConfigError: The observer cannot be called.
        """
        self._engine.observe(observer)
        return self

    def unobserve(self, observer: Observer | None = None) -> Self:
        """Takes an observer away, or all of them where None.

        Raises:
            StateError: The observer is not observing.
        """
        self._engine.unobserve(observer)
        return self

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
        from loom.training.backpropagation import train

        return train(self, data, config, validation, callbacks, resume, observe)

    # The manual loop

    @property
    def last_forward_time(self) -> float | None:
        """The seconds that the newest `forward` took; None before any."""
        return self._loop.last_forward_time

    def forward(self, x: ArrayLike, training: bool = True) -> RealArray:
        """Returns the output, and keeps what every layer has made: for `backward`, and to be looked at.

        In training, dropout and Gumbel noise are drawn anew in every pass, and running
        statistics move. The draws go by the seed, the committed step and the passes since it,
        so that a network which was saved with its optimizer's state goes on as it would have.
        Passes that `backward` follows, one after the other before `apply_gradients`, draw as
        the parts of one batch, as `loom.train` does with `accumulate`.

        With `training=False` the pass is that of `predict`: it draws nothing and moves nothing.
        `layer.activation` then shows what inference makes of these rows, and `backward` gives
        the gradients of what was computed: dropout off, running statistics fixed. All rows go
        through at once; for many rows whose layers nobody looks at, `predict` needs less memory.

        Args:
            x: (rows, *input_shape) the samples.
            training: Whether dropout is on and running statistics move.

        Returns:
            (rows, *output_shape) in the network's precision.

        Raises:
            ShapeError: The samples do not have the network's input shape.
            NonFiniteError: They hold NaN or infinity.
            StateError: The network is being trained: by `loom.train`, where `training` is on, or
                by another thread.

        Examples:
            >>> net = loom.Sequential([nn.Dense(4), nn.Dropout(0.5)], input_shape=3, seed=1)
            >>> samples = np.stack([net.forward(np.ones((1, 3))) for _ in range(200)])
            >>> bool(samples.std(axis=0).max() > 0)  # Monte Carlo dropout
            True
            >>> output = net.forward(np.ones((1, 3)), training=False)
            >>> bool((output == net[0, 0, 0, 1].activation).all())
            True
        """
        return self._loop.forward(x, training)

    def backward(self, gradient: ArrayLike) -> RealArray:
        """Adds to all gradients, from the newest `forward` back, in training or not.

        Args:
            gradient: (rows, *output_shape) of the loss with respect to the output.

        Returns:
            (rows, *input_shape) that of the loss with respect to the input.

        Raises:
            StateError: There was no forward pass, or the weights, or the running statistics that it
                read, have moved since.
            ShapeError: The gradient does not have the output's shape.
            NonFiniteError: It holds NaN or infinity.
        """
        return self._loop.backward(gradient)

    def clip_gradients(self, max_norm: float) -> float:
        """Scales all gradients together where their global L2 norm exceeds a limit.

        Args:
            max_norm: The limit; above zero.

        Returns:
            The norm before.

        Raises:
            StateError: There are no gradients.
            NonFiniteError: The norm is infinite or NaN; the gradients stay as they are.
        """
        return self._loop.clip_gradients(max_norm)

    def apply_gradients(self, learning_rate: float) -> None:
        """Moves every trainable parameter by its gradient, and clears the gradients.

        Args:
            learning_rate: The step size.

        Raises:
            StateError: There are no gradients.
        """
        self._loop.apply_gradients(learning_rate)

    def zero_gradients(self) -> None:
        """Forgets all gradients."""
        self._loop.zero_gradients()

    def set_optimizer(self, optimizer: OptimizerLike) -> None:
        """Chooses the rule that `apply_gradients` follows, with fresh moments; AdamW before.

        Args:
            optimizer: An optimizer, or the name of one.

        Raises:
            ConfigError: The name is unknown or a setting out of range.
        """
        self._loop.set_optimizer(optimizer)

    def gradient_stats(self) -> list[LayerGradient]:
        """Returns each trainable layer's gradient in figures, with flags for vanishing and exploding.

        Raises:
            StateError: There are no gradients.
        """
        return self._loop.gradient_stats()

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
        if training:
            self._record.bring_up_to_date()
        self._engine.native.save(path, training)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies through a file's bytes, with the optimizer's state and the user's attributes."""
        return reduced(self, self._engine, self._record)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes that are not loom's own, for pickles and copies."""
        return {name: value for name, value in vars(self).items() if name not in OWN_ATTRIBUTES}


def from_native(native: _native.Network) -> Network:
    """Returns the network around a native one that was read from a file."""
    return Network._wrap(native)
