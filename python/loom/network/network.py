"""The network: a grid of cells that hold layers.

What it does with its weights and with data stands in files of its own, as functions that are its methods.
"""

from __future__ import annotations

import html
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Literal, NoReturn, cast, overload

from loom import _native
from loom._settings.calls import explained
from loom._settings.checks import flag, whole
from loom._settings.spellings import is_elsewhere, method_error
from loom._settings.suggestions import shown
from loom._typing import CacheTypeName, Precision
from loom.architecture import Categories, LinkConfig, NetworkConfig
from loom.card import ModelCard
from loom.device import check_device
from loom.engine import Engine
from loom.engine.told import encoder_of, remember_encoder
from loom.errors import ConfigError, SerializationError, ShapeError, StateError
from loom.grid import Extents, coordinates, locate, locate_given, place_in_cell
from loom.introspection import describe, has_method, signature
from loom.measuring import Measures
from loom.network import (
    adapter_files,
    adapting,
    bits,
    fitting,
    inference,
    learning,
    looking,
    manual_loop,
    morphing,
    naming,
    probabilities,
    saving,
    state_dicts,
    surgery,
)
from loom.network import blueprint as blueprints
from loom.network.cells import Cell
from loom.network.layers import LayerHandle, layers_of
from loom.network.listing import Listed
from loom.network.pickling import OWN_ATTRIBUTES, reduced
from loom.network.session import Session
from loom.network.text import described
from loom.training.record import TrainingRecord

if TYPE_CHECKING:
    from typing_extensions import Self

    from loom.data import ColumnEncoder, Data
    from loom.introspection import Description
    from loom.losses import LossLike
    from loom.metrics import MetricLike
    from loom.training import evaluation
    from loom.training.config import TrainingConfig
    from loom.training.receipt import Receipt

__all__ = ["Network", "from_native"]


class Network:
    """A 3-D grid of cells that hold layers.

    `net[z, y, x]` is a cell, `net[z, y, x, l]` a layer in it; `net[y, x]` a cell where
    the depth is 1. Data enters cell (0, 0, 0) and flows depth, row, column, layer; an
    empty cell hands it on. Shapes are inferred and weights drawn when they are first
    needed, or by `build`.

    Args:
        input_shape: One sample's extents, without the batch; images are channels,
            height, width. None leaves an extent open: (None, 3) takes sequences of any length, also of
            different ones together, (3, None, None) images of any size.
        grid: (depth, rows, columns), or (rows, columns) where the depth is 1.
        precision: "float32" or "float64": of weights, activations and gradients; or
            "mixed": float32 in memory and in every sum, with the operands of matrix
            products and convolutions rounded to 16 bits: float16 on a GPU, whose loss is
            scaled for it (see `loss_scale`), bfloat16 on the CPU.
        seed: What initial weights and, in the manual loop, dropout are drawn from.
        inputs: Several inputs by name, instead of `input_shape`: one sample's extents of each, which may be
            open as well, or `loom.Categories` for whole numbers. The first enters the first cell, the others
            the cells that `enter` names.
        outputs: The cells that outputs with names come from; see `output`.

    Raises:
        ConfigError: A setting is out of range.

    Examples:
        >>> net = loom.Network(input_shape=(1, 8, 8), grid=(1, 1, 2))
        >>> _ = net[0, 0, 0].add(nn.Conv2D(4, kernel_size=3, activation="relu"), nn.Flatten())
        >>> _ = net[0, 0, 1].add(nn.Dense(10))
        >>> net.predict(np.zeros((5, 1, 8, 8))).shape
        (5, 10)
    """

    @explained()
    def __init__(
        self,
        input_shape: int | Sequence[int | None] | None = None,
        grid: Sequence[int] = (1, 1, 1),
        precision: Precision = "float32",
        seed: int = 0,
        *,
        inputs: Mapping[str, int | Sequence[int | None] | Categories] | None = None,
        outputs: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        config = naming.configured(input_shape, grid, precision, seed, inputs, outputs)
        self._compose(Engine(_native.Network(json.dumps(config.to_config())), config))

    def _compose(self, engine: Engine) -> None:
        self._engine = engine
        self._record = TrainingRecord()

    @classmethod
    def _wrap(cls, native: _native.Network) -> Self:
        network = cls.__new__(cls)
        network._compose(Engine(native))
        saving.recall(network._engine, network._record)
        return network

    # What it is

    @property
    def config(self) -> NetworkConfig:
        """The network without its weights."""
        return self._engine.config

    @property
    def card(self) -> ModelCard:
        """What is told of the network: the names of its classes, a licence; files keep it."""
        return saving.read_card(self._engine)

    @card.setter
    def card(self, card: ModelCard) -> None:
        saving.write_card(self._engine, card)

    @property
    def encoder(self) -> ColumnEncoder | None:
        """What makes of a frame what the network reads; None where it has learned from no table.

        Training on a table of `loom.data.columns` sets it, files keep it, and `predict`, `evaluate` and `fit`
        read frames by it.
        """
        return encoder_of(self._engine.native)

    @encoder.setter
    def encoder(self, encoder: ColumnEncoder | None) -> None:
        remember_encoder(self._engine.native, encoder)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """One sample's extents as they come in; None, whatever types say, where they are open."""
        return cast("tuple[int, ...]", self._engine.input_shape)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """One sample's extents as they go out, None where they follow open ones; builds the network."""
        sizing = self._engine.sizing
        if sizing is not None:
            return cast("tuple[int, ...]", sizing.output_shape)
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
        return self._engine.device

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
        """Every layer, in the order data flows; cells are what is changed."""
        return Listed(layers_of(self))

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
        return iter(self.cells)

    def __repr__(self) -> str:
        return described(self.config)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if hasattr(type(self), name):
                # What is there has itself asked for something that is not.
                return object.__getattribute__(self, name)
            raise method_error(name)

        def __setattr__(self, name: str, value: object) -> None:
            # Elsewhere these are set; here that would be kept and do nothing.
            if not hasattr(type(self), name) and is_elsewhere(name):
                raise method_error(name)
            if name == "device":
                raise AttributeError(
                    'a network is moved by net.to("gpu"), or "cpu"; net.device tells where it is'
                )
            if name == "optimizer":
                raise AttributeError(
                    "an optimizer is set by net.set_optimizer(loom.Adam()), or for a training, "
                    "net.fit(x, y, optimizer=...); net.optimizer tells which it is"
                )
            object.__setattr__(self, name, value)

        def __call__(self, *_: object, **__: object) -> NoReturn:
            """Says what is called instead."""
            raise TypeError(
                "a network is not called: net.predict(x) gives outputs, net.forward(x) those of a manual "
                "loop, whose gradients net.backward(...) finds"
            )

    @explained()
    def summary(self, file: IO[str] | None = None, *, depth: int | None = None, flops: bool = False) -> None:
        """Writes a table: cell, layer, output shape, parameters, numeric type, bytes; then the links.

        The type is that of the weights; where they have several, or biases, gains or positions were
        morphed by name, each type with what is held in it. A link stands with what becomes of it
        and the shape of its target's input once it has arrived. "(frozen)" are parameters that
        no optimizer moves, "(dropped)" those of layers whose masters `drop_master` has freed.

        Args:
            file: Where to; standard output by default.
            depth: How deep to go into layers that hold layers: 1, the default, shows those of cells,
                2 what these hold, and so on. What a layer holds counts in its own row, too.
            flops: Whether there is a column of multiply-adds for one sample; see `blueprint`.

        Raises:
            ShapeError: The layers do not fit together.
            ConfigError: The depth is not a positive whole number.
        """
        flops = flag("summary", "flops", flops)
        levels = 1 if depth is None else whole("summary", "depth", depth, least=1)
        plain = levels == 1 and not flops
        text = self._engine.native.summary() if plain else self.blueprint().text(levels, flops)
        if file is not None and not hasattr(file, "write"):
            raise ConfigError(f"summary: file must be something that texts are written to, got {shown(file)}")
        (sys.stdout if file is None else file).write(text + "\n")

    blueprint = blueprints.blueprint

    def _repr_html_(self) -> str:
        """Returns the blueprint as HTML, for notebooks; as text while the layers do not fit together."""
        try:
            return self.blueprint()._repr_html_()
        except (ShapeError, StateError):
            return f"<pre>{html.escape(repr(self))}</pre>"

    # What can be asked of it

    def describe(self) -> Description:
        """Describes every public method and property of a network; see `loom.describe`."""
        return describe(type(self))

    def has_method(self, name: str) -> bool:
        """Returns whether a network has a public method of this name.

        Args:
            name: The name, such as "predict".
        """
        return has_method(name, type(self))

    def signature(self, name: str) -> str:
        """Returns the signature of a method as one writes it, such as "summary(file=None)".

        Args:
            name: The name of the method.

        Raises:
            ConfigError: There is no such method.
        """
        return signature(name, type(self))

    def to_json(self, indent: int | None = None) -> str:
        """Returns the network without its weights as JSON; `loom.json_schema` describes it.

        Args:
            indent: Spaces by level; one line where None.
        """
        if indent is not None:
            indent = whole("to_json", "indent", indent, least=0, most=1 << 10)
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
        except (TypeError, ValueError, RecursionError) as error:
            raise SerializationError(f"a network's configuration must be JSON: {error}") from None
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

    @explained(device='net.to("gpu"), or "cpu"', dtype="numbers are the network's: precision=, and net.morph")
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
        self,
        source: Sequence[int],
        target: Sequence[int],
        combine: Literal["add", "multiply", "concat", "context", "replace"] = "add",
        axis: int | None = None,
    ) -> Self:
        """Hands a cell's output to a later cell, beside what flows there anyway: a skip across the grid.

        Several links into one cell are taken in the order in which they were made. A cell without
        layers hands on what has arrived; behind the last layer that is the network's output. A link
        that points back is for clock mode only: the network then cannot run as a feed-forward one.

        Args:
            source: The cell whose output is handed over: (depth, row, column), or (row, column)
                where the depth is 1.
            target: The cell that gets it.
            combine: "add" to the target's input, of equal shape; "multiply" it; "concat" behind it;
                "context": the second input of the target's layers that take one, such as
                cross-attention; or "replace": in place of what the cell before the target hands on, so
                that a branch begins there. It then is the first link to that cell.
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
        ends = [locate_given(self._engine.grid, cell) for cell in (source, target)]
        if any(layer is not None for _, layer in ends):
            raise ConfigError("link connects cells, (depth, row, column), not layers")
        self._engine.link(LinkConfig(ends[0][0], ends[1][0], combine, axis))
        return self

    enter = naming.enter
    output = naming.output

    def reset_states(self) -> None:
        """Forgets what stateful layers carry from batch to batch of training: new sequences begin.

        While `loom.train` trains the network a callback may call it, between two epochs say. Data in
        arrays that is shuffled begins new sequences in every batch of itself.
        """
        self._engine.check_thread()
        self._engine.native.reset_states()

    cut = surgery.cut
    resized = surgery.resized

    # What is learned, and how fast

    freeze = learning.freeze
    unfreeze = learning.unfreeze
    scale_rates = learning.scale_rates

    # Adapters

    add_adapter = adapting.add_adapter
    use_adapters = adapting.use_adapters
    merge_adapters = adapting.merge_adapters
    remove_adapters = adapting.remove_adapters
    adapters = property(adapting.adapters)
    save_adapter = adapter_files.save_adapter
    load_adapter = adapter_files.load_adapter

    # Weights by name

    state_dict = state_dicts.state_dict
    load_state_dict = state_dicts.load_state_dict
    save_safetensors = state_dicts.save_safetensors

    # Numeric types

    morph = morphing.morph
    calibrate = morphing.calibrate
    drop_master = morphing.drop_master
    unpack = morphing.unpack
    fit_bits = bits.fit_bits

    # Inference

    predict = inference.predict
    predict_classes = probabilities.predict_classes
    predict_probabilities = probabilities.predict_probabilities

    def session(self, capacity: int, rows: int = 1, *, cache_dtype: CacheTypeName | None = None) -> Session:
        """Begins inference that goes on from where its last call ended; see `loom.Session`.

        Args:
            capacity: The most steps there will be in all.
            rows: Sequences side by side.
            cache_dtype: What keys and values are kept as, "float16" or "q8_0"; None keeps them as the network
                computes.

        Returns:
            The session.

        Raises:
            StateError: A layer or a link needs whole sequences.
            ShapeError: The network's input has no time axis.
        """
        return Session(self, capacity, rows, cache_dtype=cache_dtype)

    if TYPE_CHECKING:
        evaluate = evaluation.evaluate
    else:

        @explained(
            x="samples and targets go in as one argument, (x, y)",
            y="samples and targets go in as one argument, (x, y)",
        )
        def evaluate(
            self,
            data: Data,
            config: TrainingConfig | None = None,
            *,
            loss: LossLike | None = None,
            metrics: Sequence[MetricLike] | None = None,
            batch_size: int | None = None,
            deviation: bool = False,
        ) -> dict[str, Any]:
            """Measures loss and metrics; see `loom.evaluate`."""
            from loom.training.evaluation import evaluate

            options = {"loss": loss, "metrics": metrics, "batch_size": batch_size, "deviation": deviation}
            return evaluate(self, data, config, **options)

    activations = looking.activations
    input_gradients = looking.input_gradients
    observe = inference.observe
    unobserve = inference.unobserve

    # Training

    fit = fitting.fit

    @property
    def receipt(self) -> Receipt | None:
        """What the newest training was made of and came to, where that was asked for; files keep it.

        It is of the network as it is while `receipt.final_weights == net.fingerprint()`.
        """
        return self._record.receipt

    # The manual loop

    @property
    def last_forward_time(self) -> float | None:
        """The seconds that the newest `forward` took; None before any."""
        return self._engine.last_forward_time

    forward = manual_loop.forward
    backward = manual_loop.backward
    clip_gradients = manual_loop.clip_gradients
    apply_gradients = manual_loop.apply_gradients
    zero_gradients = manual_loop.zero_gradients
    set_optimizer = manual_loop.set_optimizer
    optimizer = property(manual_loop.current_optimizer)
    gradient_stats = manual_loop.gradient_stats

    # Keeping work

    save = saving.save
    to_bytes = saving.to_bytes
    fingerprint = saving.fingerprint

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles and copies through a file's bytes, with the optimizer's state and the user's attributes."""
        return reduced(self, self._engine, self._record)

    def __getstate__(self) -> dict[str, Any]:
        """Returns the attributes that are not loom's own, for pickles and copies."""
        return {name: value for name, value in vars(self).items() if name not in OWN_ATTRIBUTES}


def from_native(native: _native.Network) -> Network:
    """Returns the network around a native one that was read from a file."""
    return Network._wrap(native)
