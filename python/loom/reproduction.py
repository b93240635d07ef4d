"""Training again what a receipt is of, and proving that it comes to the same bits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

from loom._settings.calls import explained
from loom.device import devices
from loom.engine import engine_of
from loom.errors import ConfigError, DataError, DeviceError, StateError
from loom.losses import AUTO
from loom.network import Network
from loom.training.backpropagation import train
from loom.training.config import TrainingConfig
from loom.training.identity import callbacks_identity, data_identity, differences, settings_identity
from loom.training.named_targets import settled_by_targets
from loom.training.ported import packed, settled_outputs
from loom.training.receipt import Receipt, require_receipt
from loom.training.sized import dealt, told

if TYPE_CHECKING:
    from loom.callbacks import Callback
    from loom.data import Data
    from loom.measuring import Observe

__all__ = ["Reproduction", "reproduce"]


@dataclass(frozen=True)
class Reproduction:
    """What training again has shown.

    Args:
        difference: Where it came to something else, the first such place; None where all hashes are the same.
        receipt: The receipt of the training that was done now.
        network: The network that it has made.
    """

    difference: str | None
    receipt: Receipt
    network: Network

    @property
    def matches(self) -> bool:
        """Whether every hash is the same."""
        return self.difference is None

    def __str__(self) -> str:
        final = self.receipt.final_weights
        if self.difference is None:
            return f"reproduced: the final weights are {final}, as the receipt says"
        return f"not reproduced: {self.difference}; the final weights are {final}"


@explained(data="a receipt holds no data, only its hash: loom.reproduce(receipt, (x, y))")
def reproduce(
    receipt: Receipt | str | PathLike[str],
    data: Data,
    validation: Data | None = None,
    *,
    network: Network | None = None,
    config: TrainingConfig | None = None,
    callbacks: Iterable[Callback] = (),
    observe: bool | Observe = False,
    verbose: bool = False,
) -> Reproduction:
    """Trains again what a receipt is of, and compares every hash.

    The network is made from the receipt's configuration and seed, and trains by the receipt's settings: on
    any processor where the receipt is of one, and on the same kind of GPU otherwise.

    Args:
        receipt: The receipt, or the path of one.
        data: The data that the receipt is of.
        validation: What was measured on, where something was.
        network: The network as it was before training, where that is not what its configuration and seed
            make; it is not changed.
        config: The training's settings, where functions are among them, which a receipt knows by their
            names alone.
        callbacks: The callbacks of that training, such as averages of weights, made anew; those that only
            look on, such as loggers, need not be there.
        observe: As it was in that training.
        verbose: Whether progress is shown.

    Returns:
        Whether it came to the same bits, or where it first did not.

    Raises:
        ConfigError: The settings or callbacks are others than the receipt's, or cannot be made from it alone.
        DataError: The data is other than the receipt's.
        DeviceError: The receipt is of a GPU that is not there.
        StateError: The network begins with other weights than the receipt's.
        FileError: The receipt cannot be read.
        SerializationError: The file holds no receipt.

    Examples:
        >>> data = np.eye(2), np.array([0, 1])
        >>> net = loom.Sequential([nn.Dense(8, activation="tanh"), nn.Dense(2)], input_shape=2)
        >>> config = loom.TrainingConfig(epochs=3, loss="cross_entropy", device="cpu", verbose=False)
        >>> receipt = loom.train(net, data, config, receipt=True).receipt
        >>> loom.reproduce(receipt, data).matches
        True
    """
    known = require_receipt(receipt)
    if known.resumed:
        raise StateError(
            "the receipt is of a training that went on from another, of which it knows nothing; it can be "
            "compared with that of a run that did the same, by receipt.difference(other)"
        )
    if known.learning["learning"] != "backpropagation":
        raise ConfigError(
            f"the receipt is of {known.learning['learning']}: train again with loom.TweenTrainer, fit(..., "
            "receipt=True), and compare by receipt.difference(other)"
        )
    if known.learning["observe"] is not None and observe is False:
        raise ConfigError(
            "that training was observed, and may have taken steps back: give observe= as it was"
        )
    began = list(callbacks)
    wanted, there = known.learning.get("callbacks", []), callbacks_identity(began).get("callbacks", [])
    if wanted != there:
        raise ConfigError(
            f"that training had callbacks that may change what is learned, {', '.join(wanted) or 'none'}, "
            f"and here are {', '.join(there) or 'none'}: give the same, callbacks=[...]"
        )
    settings = replace(_settings(known, config), device=_device(known), verbose=verbose)
    net = Network.from_config(known.network) if network is None else deepcopy(network)
    if net.fingerprint() != known.initial_weights:
        made = "its configuration and seed make" if network is None else "network= has"
        raise StateError(
            f"the training began with other weights than {made}; give the network as it was before, network="
            "loom.load(path), whose fingerprint() is " + known.initial_weights
        )
    _check_same(known, net, settings, data, validation)
    steps = "steps" if len(known.marks) > len(known.loss_history) else "epochs"
    # In steps as the receipt has them, whatever processes this one belongs to.
    result = train(net, data, settings, validation, began, observe=observe, receipt=steps, distributed=None)
    if result.receipt is None:
        raise StateError("training has left no receipt")
    return Reproduction(known.difference(result.receipt), result.receipt, net)


def _settings(receipt: Receipt, config: TrainingConfig | None) -> TrainingConfig:
    """Returns the settings of the receipt's training."""
    told: Mapping[str, Any] = receipt.learning["training"]
    if config is None:
        known = {field.name for field in fields(TrainingConfig)}
        try:
            config = TrainingConfig.from_config({name: told[name] for name in told if name in known})
        except ConfigError as error:
            raise ConfigError(
                f"the training's settings cannot be made from the receipt alone ({error}); give them: config="
            ) from error
    if config.loss == AUTO:
        # The receipt knows which loss was chosen by the data.
        config = replace(config, loss=told["loss"])
    return config


def _check_same(
    known: Receipt, network: Network, settings: TrainingConfig, data: Data, validation: Data | None
) -> None:
    """Refuses settings and data that are others than the receipt's: both as training takes them.

    Of inputs and outputs with names that is one row for each sample, and a loss and metrics for all outputs.
    """
    engine = engine_of(deepcopy(network))
    config, seen = settled_by_targets(engine, settled_outputs(engine, settings), data, learns=True)
    found = differences(known.learning["training"], settings_identity(config), "training")
    if found:
        raise ConfigError("the settings are not the receipt's:\n  " + "\n  ".join(found))
    taken = packed(engine, config, seen, learns=True)
    held = packed(engine, config, validation)
    if engine.sizing is not None:
        config = told(engine, config, cast("Data", taken))
        taken, cut_off = dealt(engine, config, taken, learns=True)
        held = cut_off if held is None else dealt(engine, config, held)[0]
    for name, given, wanted in (("data", taken, known.data), ("validation", held, known.validation)):
        found = differences(wanted, data_identity(given, whole=True), name)
        if found:
            raise DataError("the data is not what the receipt is of:\n  " + "\n  ".join(found))


def _device(receipt: Receipt) -> str:
    """Returns the device that has the receipt's bits."""
    if receipt.device["kind"] == "cpu":
        return "cpu"
    for device in devices():
        if (device.hardware, device.driver) == (receipt.device["hardware"], receipt.device["driver"]):
            return device.name
    raise DeviceError(
        f"the receipt is of {receipt.device['hardware']} with driver {receipt.device['driver']}, which is "
        "not here; bits of a GPU are the same within one adapter and driver"
    )
