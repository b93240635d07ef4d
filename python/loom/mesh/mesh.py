"""Clock mode: every layer of a network fires at every tick, and links may point back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

from loom import _native
from loom._settings.checks import file_path, flag, whole
from loom._settings.suggestions import shown
from loom._typing import ArrayLike, RealArray
from loom.convert import as_real_array
from loom.device import check_device
from loom.engine import engine_of
from loom.engine.class_axis import noted
from loom.errors import ConfigError
from loom.grid import Coordinate, locate_given
from loom.network import Network
from loom.network.network import from_native

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Gradients", "Mesh"]

Gradients: TypeAlias = "Mapping[Any, ArrayLike | Sequence[ArrayLike | None]]"

_MOST_TICKS = 4096


class Mesh:
    """A network that is clocked.

    At a tick every layer reads what its source (the layer before it in its cell, the cell before,
    a link's source) held after the tick before; all fire at once. A cell without layers takes no
    tick: it hands on what arrives there. The input stays until it is changed. A signal needs as
    many ticks as there are layers on its path, and what a layer reads before anything has arrived
    is zeros. Links may point back, also to their own cell: that is how a mesh remembers.

    The network stays the caller's: its parameters can be read and set, its gradients clipped and
    applied. It must stay on its device, and keep its layers and links.

    Args:
        network: The network.
        rows: Samples side by side.
        window: Through how many ticks gradients can go back; 0 for a mesh that only infers. With
            any other number the mesh starts in training mode; see `training`.

    Raises:
        ConfigError: A setting is out of range.
        ShapeError: The layers do not fit together.
        StateError: Links lead in a circle that passes no layer.

    Examples:
        >>> net = loom.Network(input_shape=2, grid=(1, 2))
        >>> _ = net[0, 0].add(nn.Dense(3, activation="tanh"))
        >>> _ = net[0, 1].add(nn.Dense(1))
        >>> _ = net.link((0, 0), (0, 0), combine="concat")
        >>> mesh = loom.Mesh(net)
        >>> mesh.set_input(np.ones((1, 2)))
        >>> mesh.tick(5)
        >>> mesh.output((0, 1)).shape, mesh[0, 0, 0].shape, mesh.ticks
        ((1, 1), (1, 3), 5)
    """

    def __init__(self, network: Network, rows: int = 1, window: int = 0) -> None:
        checked = (whole("Mesh", "rows", rows, least=1), whole("Mesh", "window", window, least=0))
        engine = engine_of(network)
        engine.check_idle("a mesh")
        engine.build()
        self._adopt(network, _native.Mesh(engine.native, *checked))

    def _adopt(self, network: Network, native: _native.Mesh) -> None:
        self._network = network
        self._engine = engine_of(network)
        self._native = native

    # What it is

    @property
    def network(self) -> Network:
        """The network."""
        return self._network

    @property
    def rows(self) -> int:
        """Samples side by side."""
        return self._native.state()[0]

    @property
    def window(self) -> int:
        """Through how many ticks gradients can go back at most."""
        return self._native.state()[1]

    @property
    def ticks(self) -> int:
        """Ticks so far."""
        return self._native.state()[2]

    @property
    def reach(self) -> int:
        """Through how many ticks gradients could go back now."""
        return self._native.state()[3]

    @property
    def layers(self) -> int:
        """How many layers there are.

        Without links that point back, what each holds after as many ticks is what it makes of the
        input in `Network.predict`.
        """
        return self._native.layers()

    @property
    def training(self) -> bool:
        """Whether ticks are in training mode: dropout on, and to be gone back through.

        It can be set; only ticks since it was turned on can be gone back through.
        """
        return self._native.state()[4]

    @training.setter
    def training(self, training: bool) -> None:
        self._native.set_training(flag("Mesh", "training", training))

    # Running

    def set_input(self, x: ArrayLike | Mapping[str, ArrayLike]) -> None:
        """Replaces the network's input, which then stays; the next tick is the first that reads it.

        Args:
            x: (rows, *input_shape) the samples; of named inputs a dictionary of arrays.

        Raises:
            ShapeError: They do not have the network's input shape, or there are other rows.
            NonFiniteError: They hold NaN or infinity.
            StateError: The network has changed since the mesh was made.
        """
        self._engine.check_idle("a mesh")
        self._native.set_input(self._engine.as_input(x))

    def tick(self, count: int = 1) -> None:
        """Lets every layer fire.

        Args:
            count: How many times. On a GPU all of them are one frame.

        Raises:
            StateError: The network has changed since the mesh was made, or is training.
            DeviceError: The GPU failed.
        """
        count = whole("Mesh.tick", "count", count, least=0)
        self._engine.check_idle("a mesh")
        # One call a slice, so that Ctrl-C is heard between them.
        while count > _MOST_TICKS:
            self._native.tick(_MOST_TICKS)
            count -= _MOST_TICKS
        self._native.tick(count)

    def output(self, cell: Sequence[int] | str | None = None, age: int = 0) -> RealArray:
        """Returns what a cell hands on: what its last layer holds, or what arrives where there is none.

        Args:
            cell: (depth, row, column), or (row, column) where the depth is 1; or the name of an output. The
                last cell where None, or, where outputs have names, all of these.
            age: How many ticks ago; at most the window.

        Returns:
            (rows, ...) in the network's precision; of all named outputs a dictionary of arrays.

        Raises:
            CellIndexError: There is no such cell.
            ConfigError: No output has that name.
            InvalidValueError: That long ago is not kept.
        """
        ago = whole("Mesh.output", "age", age, least=0)
        if cell is None and (ports := self._engine.ports) is not None and ports.outputs:
            cells = {name: ports.cell_of(name) for name in ports.output_names}
            config = self._engine.config
            found = {
                name: noted(config, self._native.output(at, None, ago), at) for name, at in cells.items()
            }
            # Type checkers know networks with a single output.
            return cast("RealArray", found)
        at, layer = self._locate((-1, -1, -1) if cell is None else cell)
        made = self._native.output(at, layer, ago)
        return made if layer is not None else noted(self._engine.config, made, at)

    def __getitem__(self, index: tuple[int, ...] | str) -> RealArray:
        """Returns what a cell, [z, y, x], or an output hands on, or a layer, [z, y, x, layer], holds now."""
        return self.output(index)

    def reset(self) -> None:
        """Puts everything at rest: zeros everywhere, the input too, new sequences, and tick 0."""
        self._native.reset()

    # What stateful layers carry

    def states(self, layer: Sequence[int]) -> dict[str, RealArray]:
        """Returns what a stateful layer carries from tick to tick, by name.

        It is the mesh's own, beside what `Network.train` carries from batch to batch; `save` keeps it.

        Args:
            layer: (depth, row, column, place), or (row, column, place) where the depth is 1.

        Returns:
            (rows, ...) by name; empty for other layers.

        Raises:
            CellIndexError: There is no such layer.

        Examples:
            >>> net = loom.Sequential([nn.LSTM(3, stateful=True)], input_shape=(1, 2))
            >>> mesh = loom.Mesh(net, rows=4)
            >>> mesh.set_input(np.ones((4, 1, 2)))
            >>> mesh.tick(5)
            >>> mesh.states((0, 0, 0, 0))["state_l0"].shape  # hidden and cell
            (4, 2, 3)
        """
        at = self._layer(layer)
        return {name: self._native.carried(at, name) for name in self._native.state_names(at)}

    def set_state(self, layer: Sequence[int], name: str, values: ArrayLike) -> None:
        """Sets what a stateful layer carries into the next tick.

        Args:
            layer: As for `states`.
            name: One of `states`.
            values: (rows, ...) what it is to be.

        Raises:
            CellIndexError: There is no such layer.
            InvalidValueError: It carries nothing of that name.
            ShapeError: It has another shape.
            NonFiniteError: The values hold NaN or infinity.
        """
        self._engine.check_idle("a mesh")
        array = as_real_array(values, self._engine.precision, what=name)
        self._native.set_carried(self._layer(layer), name, array)

    def reset_states(self) -> None:
        """Lets stateful layers begin new sequences at the next tick; all else stays."""
        self._native.reset_states()

    # Learning

    def backward(self, gradients: Gradients | ArrayLike) -> RealArray:
        """Adds to all gradients those of a loss, going back through the window.

        Truncated backpropagation through time: what came before the window is a constant. Where
        weights have moved since an older tick, gradients pass through the weights as they are now.
        `Network.clip_gradients` and `apply_gradients` come next.

        Args:
            gradients: For each cell the gradient of the loss with respect to its output now, of
                the same shape; or a list of them, one for each of the newest ticks, the newest
                last, with None where there is none. Named outputs may stand for their cells. An array by
                itself is for the last cell.

        Returns:
            (ticks, rows, *input_shape) the gradient of the network's input at each tick that it went
            through, the oldest first; zeros where the input holds indices. Its sum over ticks is the
            gradient of an input that was held all through them. Of named inputs a dictionary of arrays,
            without those of whole numbers.

        Raises:
            StateError: There is no tick in training mode to go back through.
            ShapeError: A gradient does not have its output's shape.
            NonFiniteError: A gradient holds NaN or infinity.
            InvalidValueError: There are more gradients than ticks that can be reached.

        Examples:
            >>> net = loom.Network(input_shape=2, grid=(1, 2))
            >>> _ = net[0, 0].add(nn.Dense(3, activation="tanh"))
            >>> _ = net[0, 1].add(nn.Dense(1))
            >>> _ = net.link((0, 1), (0, 0), combine="concat")
            >>> mesh = loom.Mesh(net, window=4)
            >>> mesh.set_input(np.ones((1, 2)))
            >>> mesh.tick(6)
            >>> before = float(mesh.output()[0, 0])
            >>> to_input = mesh.backward({(0, 1): np.ones((1, 1))})
            >>> to_input.shape, to_input.sum(0).shape
            ((4, 1, 2), (1, 2))
            >>> mesh.apply_gradients(0.01)
            >>> mesh.tick(6)
            >>> float(mesh.output()[0, 0]) < before
            True
        """
        self._engine.check_idle("a mesh")
        ports = self._engine.ports
        if ports is not None and ports.outputs and not isinstance(gradients, Mapping):
            listed = ", ".join(f'"{name}"' for name in ports.output_names)
            raise ConfigError(
                f"the network has named outputs; give a dictionary of gradients by name ({listed})"
            )
        given = gradients if isinstance(gradients, Mapping) else {(-1, -1, -1): gradients}
        found = self._native.backward(
            [part for cell, value in given.items() for part in self._given(cell, value)]
        )
        return found if ports is None or not ports.inputs else cast("RealArray", ports.unpack_inputs(found))

    def _given(
        self, cell: Sequence[int] | str, value: ArrayLike | Sequence[ArrayLike | None]
    ) -> Iterator[tuple[Coordinate, int, RealArray]]:
        at, layer = self._locate(cell)
        if layer is not None:
            raise ConfigError(f"gradients are given for cells, not for layers; got {tuple(cell)}")
        several = isinstance(value, (list, tuple)) and all(
            part is None or hasattr(part, "shape") for part in value
        )
        parts: Sequence[ArrayLike | None] = value if several else [value]  # type: ignore[assignment]
        for age, part in enumerate(reversed(parts)):
            if part is not None:
                yield at, age, as_real_array(part, self._engine.precision, what="gradient")

    def clip_gradients(self, max_norm: float) -> float:
        """Scales the gradients down where their norm exceeds a limit; see `Network.clip_gradients`."""
        return self._network.clip_gradients(max_norm)

    def apply_gradients(self, learning_rate: float) -> None:
        """Moves the network's weights by the gradients and clears those; see `Network.apply_gradients`."""
        self._network.apply_gradients(learning_rate)

    # Keeping

    def save(self, path: str | PathLike[str], optimizer: bool = False) -> None:
        """Writes network and mesh to a file: it goes on from there bit for bit.

        `loom.load` reads the network alone from it.

        Args:
            path: The file; an older one is replaced at the end.
            optimizer: Whether the optimizer's state is written, too.

        Raises:
            FileError: The file cannot be written.
        """
        self._engine.check_idle("saving a mesh")
        self._native.save(file_path("Mesh.save", path), flag("Mesh.save", "optimizer", optimizer))

    @classmethod
    def load(cls, path: str | PathLike[str], device: str = "cpu") -> Self:
        """Reads what `save` wrote.

        Args:
            path: The file.
            device: Where network and mesh are to be; see `Network.to`.

        Returns:
            The mesh, with its network in `network`.

        Raises:
            FileError: The file cannot be read.
            SerializationError: It is damaged, foreign, or holds no mesh.
            DeviceError: The GPU is not there.

        Examples:
            >>> net = loom.Sequential([nn.Dense(2)], input_shape=3)
            >>> mesh = loom.Mesh(net)
            >>> mesh.set_input(np.ones((1, 3)))
            >>> mesh.tick(2)
            >>> import tempfile
            >>> from pathlib import Path
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     mesh.save(Path(folder) / "mesh.loom")
            ...     loaded = loom.Mesh.load(Path(folder) / "mesh.loom")
            >>> loaded.ticks, bool((loaded.output() == mesh.output()).all())
            (2, True)
        """
        where = check_device("Mesh.load", device)
        network, native = _native.Mesh.load(file_path("Mesh.load", path))
        wrapped = from_native(network)
        if where != "cpu":
            data = native.to_bytes(True)
            wrapped.to(where)
            native = _native.Mesh.restore(network, data)
        mesh = cls.__new__(cls)
        mesh._adopt(wrapped, native)
        return mesh

    def _layer(self, index: Sequence[int]) -> tuple[int, int, int, int]:
        at, layer = self._locate(index)
        if layer is None:
            raise ConfigError(f"a layer is its cell and its place there, got {tuple(index)}")
        return (*at, layer)

    def _locate(self, index: Sequence[int] | str) -> tuple[Coordinate, int | None]:
        if isinstance(index, str):
            ports = self._engine.ports
            if ports is None or not ports.outputs:
                raise ConfigError(f"the network's outputs have no names; name a cell, got {shown(index)}")
            return ports.cell_of(index), None
        at, layer = locate_given(self._engine.grid, index)
        if layer is not None and layer < 0:
            layer += self._engine.native.cell_len(at)
        return at, layer

    def __reduce__(self) -> NoReturn:
        raise TypeError("a mesh is not pickled: mesh.save(path) keeps it, and loom.Mesh.load(path) reads it")

    def __repr__(self) -> str:
        rows, window, ticks, _, training = self._native.state()
        mode = "training" if training else "inference"
        return f"Mesh(rows={rows}, window={window}, ticks={ticks}, {mode}, {self._network.device})"


def native_mesh(mesh: Mesh) -> _native.Mesh:
    """Returns the native half of a mesh."""
    return mesh._native


def adopt(mesh: Mesh, data: bytes) -> None:
    """Makes a mesh and its network what `Mesh.save` has put into bytes, on the device where they are."""
    engine = engine_of(mesh.network)
    engine.replace(_native.Network.from_bytes(data))
    mesh._adopt(mesh.network, _native.Mesh.restore(engine.native, data))
