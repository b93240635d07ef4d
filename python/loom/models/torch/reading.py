"""Networks from modules of PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from loom.errors import ConfigError, DataError
from loom.extras import require
from loom.models.plain import import_model
from loom.models.torch.arrays import array, keep_fixed, warn_of_shared, warn_of_tables
from loom.models.torch.graph import GraphReading
from loom.models.torch.modules import known
from loom.network import Network

if TYPE_CHECKING:
    from torch.fx import GraphModule

__all__ = ["from_torch"]


def from_torch(module: Any, example: Any) -> Network:  # noqa: ANN401 - of PyTorch
    """Makes a network of a PyTorch module, with its weights.

    Modules that loom has a layer for become that layer: Linear, convolutions and transposed ones, norms,
    Embedding, RNN, LSTM and GRU, MultiheadAttention, TransformerEncoder and its layers, pooling, activations,
    dropout, Flatten. In between values may be added, concatenated, reshaped and permuted, and functions of
    `torch.nn.functional` called; the graph of that is traced by torch.fx, and by torch.export where that
    cannot. A sum of a value and what is computed of it becomes a Residual, other branches a Parallel.

    What the module does in training alone, and layers here do not, is told in a warning: parameters that
    several of its layers share, `padding_idx` and `scale_grad_by_freq` of an Embedding.

    The module is read in eval mode, and left in the mode that it has. What the network makes of the example
    is compared with what the module does.

    Args:
        module: A `torch.nn.Module` of one input and one output, the batch first.
        example: What it reads: a tensor or an array, (batch, ...), of whole numbers where those are read.

    Returns:
        The network; float64 where the module is.

    Raises:
        ConfigError: The module uses what loom has no layer for (all of it is listed by name), or computes
            something else than the layers that were found.
        DataError: The example is no tensor of a batch, or the module does not take it.
        MissingExtraError: PyTorch is not installed.
    """
    torch = require("torch", extra="torch", purpose="from_torch")
    if not isinstance(module, torch.nn.Module):
        raise ConfigError(f"from_torch takes a torch.nn.Module, got {type(module).__name__}")
    example = torch.as_tensor(example)
    if example.dim() < 1 or example.shape[0] < 1:
        raise DataError(f"the example is a batch, (batch, ...), got shape {tuple(example.shape)}")
    # A batch of one hides what is an axis of extent one.
    example = torch.cat([example, example]) if example.shape[0] == 1 else example
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            return _read(module, example)
    finally:
        for part, mode in modes.items():
            part.training = mode


def _read(module: Any, example: Any) -> Network:  # noqa: ANN401
    try:
        expected = module(example)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise DataError(f"the module does not take the example: {error}") from error
    wide = expected.is_floating_point() if hasattr(expected, "is_floating_point") else False
    precision = "float64" if wide and expected.element_size() == 8 else "float32"
    failures: list[list[str]] = []
    for trace in (_traced, _exported):
        try:
            graph = trace(module, example)
        except Exception as error:  # noqa: BLE001 - whatever tracing runs into
            failures.append([f"{trace.__name__.strip('_')} failed: {str(error).splitlines()[0][:200]}"])
            continue
        reading = GraphReading(graph, example)
        row = reading.row()
        if not reading.failures:
            shape = list(example.shape[1:])
            net = import_model({"input_shape": shape, "precision": precision, "layers": row})
            _compare(net, example, expected)
            keep_fixed(net, row)
            warn_of_shared(row)
            warn_of_tables(module)
            return net
        failures.append(reading.failures)
    told = "\n".join(f"  {failure}" for failure in failures[0])
    if len(failures) > 1 and len(failures[0]) == 1 and "failed" in failures[0][0]:
        told += "\n" + "\n".join(f"  {failure}" for failure in failures[1])
    raise ConfigError(f"{type(module).__name__} uses what loom has no layer for:\n{told}")


def _compare(net: Network, example: Any, expected: Any) -> None:  # noqa: ANN401
    theirs = array(expected)
    own = net.predict(example.cpu().numpy() if not example.is_floating_point() else array(example))
    apart = float(np.abs(own - theirs).max(initial=0.0)) if own.shape == theirs.shape else np.inf
    # Written so that a NaN is too far away, too.
    if not apart <= 1e-3 * (1 + float(np.abs(theirs).max(initial=0.0))):
        raise ConfigError(
            f"the layers that were found make {own.shape} of the example, the module {theirs.shape}, "
            f"{apart:.2g} apart: it computes something that its graph does not show"
        )


def _traced(module: Any, example: Any) -> GraphModule:  # noqa: ANN401
    import torch.fx

    class Tracer(torch.fx.Tracer):
        def is_leaf_module(self, part: Any, name: str) -> bool:  # noqa: ANN401
            own = known(part) and not isinstance(part, torch.nn.Sequential)
            return own or super().is_leaf_module(part, name)

    if known(module):
        module = torch.nn.Sequential(module)
    return torch.fx.GraphModule(module, Tracer().trace(module))


def _exported(module: Any, example: Any) -> GraphModule:  # noqa: ANN401
    import torch.export

    exported: GraphModule = torch.export.export(module, (example,), strict=False).module()
    return exported
