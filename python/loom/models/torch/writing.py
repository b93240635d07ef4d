"""Networks as modules of PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom.engine import engine_of
from loom.errors import StateError
from loom.extras import require
from loom.network import Network

if TYPE_CHECKING:
    from loom.models.torch.network_module import NetworkModule

__all__ = ["to_torch"]


def to_torch(net: Network) -> NetworkModule:
    """Makes a PyTorch module of a network, with copies of its weights.

    It computes what the network does, to rounding, with PyTorch's functions; it can be trained, moved to
    devices and exported there. Its parameters have loom's names: `module.state_dict()` has those that
    `net.state_dict()` has, "z.y.x.l.name", and either side loads the other's. What is frozen here asks for no
    gradient there.

    Packed weights become what they stand for. Stateful layers begin every call anew; in mixed precision the
    module is float32.

    Args:
        net: The network; it is built where it was not.

    Returns:
        A `torch.nn.Module` in eval mode; its forward takes (batch, ...), whole numbers where the network
        reads such, and of named inputs a dictionary of these; of named outputs it returns a dictionary. A
        network that is linked back to earlier cells has none.

    Raises:
        MissingExtraError: PyTorch is not installed.
        StateError: Links point back: such a network runs in clock mode alone; or adapters are in use.
    """
    engine_of(net)
    used = [name for name, adapter in net.adapters.items() if adapter.active]
    if used:
        raise StateError(
            f"to_torch: the network computes with {', '.join(used)}, and modules know no adapters: put them "
            "into the weights by net.merge_adapters(), or leave them out by net.use_adapters()"
        )
    torch: Any = require("torch", extra="torch", purpose="to_torch")
    from loom.models.torch.network_module import NetworkModule

    config = net.build().config
    states = [f"{layer.path}.{name}" for layer in net.layers for name in layer.states]
    parameters: dict[str, Any] = {}
    still: set[str] = set()
    for layer in net.layers:
        still |= {f"{layer.path}.{name}" for name in (layer.frozen if layer.trainable else layer.parameters)}
        carried = {name for name in layer.states if name.startswith("state_l")}
        states = [name for name in states if name not in {f"{layer.path}.{other}" for other in carried}]
        for name in layer.parameters:
            parameters[f"{layer.path}.{name}"] = torch.from_numpy(layer.decoded(name).copy())
        for name, values in layer.states.items():
            if name not in carried:
                parameters[f"{layer.path}.{name}"] = torch.from_numpy(values.copy())
    module = NetworkModule(config, parameters, states, still)
    module.eval()
    return module
