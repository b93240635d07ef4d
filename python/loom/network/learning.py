"""Which layers and parameters training may move, and how fast."""

from __future__ import annotations

from collections.abc import Mapping

from loom._settings.checks import real
from loom._settings.suggestions import shown
from loom.engine import HasEngine, NetworkT, engine_of
from loom.errors import ConfigError
from loom.network.selecting import Where, select

__all__ = ["freeze", "learning_parameters", "scale_rates", "unfreeze"]


def freeze(self: NetworkT, where: Where | None = None) -> NetworkT:
    """Keeps layers, or single parameters, as they are while the others are trained.

    Layers then have `trainable` off, parameters are among a layer's `frozen`: two settings that can be
    set by themselves, too. Files and copies keep them.

    Of a frozen BatchNorm weight and bias stay alone: in training it normalises by the batch, and its running
    statistics move, as PyTorch's do with requires_grad=False; Keras's with trainable=False work as in
    inference instead. To have that, let what is frozen compute once, by predict, and train the others on it:
    `base.predict(x)`, with `base = net.cut(until=...)`. `nn.BatchNorm(momentum=0.0)` keeps its running
    statistics, and normalises by the batch all the same.

    Of a layer that is frozen in part all gradients count in `gradient_clip` and `clip_gradients`; of one that
    is frozen as a whole, none.

    Args:
        where: A pattern such as "0.0.0.*" or "conv*", of layers' names and kinds; or, where no layer
            matches, of parameters' names, such as "*.bias" or "0.0.0.2.branches.1.*"; a layer, such as
            `net.layers[0]`; several of these; or a function that takes a layer and says whether it is
            meant. All layers where None.

    Returns:
        The network.

    Raises:
        ConfigError: It is none of these, a pattern matches nothing, or a layer is of another network.
            Nothing has changed then.
        StateError: The network is training in another thread.

    Examples:
        >>> net = loom.Sequential([nn.Dense(8), nn.Dense(8), nn.Dense(2)], input_shape=3)
        >>> _ = net.freeze(net.layers[:2]).unfreeze("0.0.0.1")
        >>> [layer.trainable for layer in net.layers]
        [False, True, True]
        >>> net.freeze("*.bias").layers[1].frozen
        ('bias',)
    """
    return _set(self, "freeze", where, frozen=True)


def unfreeze(self: NetworkT, where: Where | None = None) -> NetworkT:
    """Lets training move layers, or single parameters, again; of layers every parameter.

    Of a layer that was frozen as a whole the parameters that are not meant stay as they are:
    `net.freeze().unfreeze("layer_norm")` trains nothing but norms, those inside other layers, too.

    What is frozen keeps its moments. Adam and its kin correct moments by the steps of the whole run: what has
    learned nothing before and is let go in the middle of a long one moves by several learning rates a step at
    first. A training that begins anew, without `resume`, counts from there, and `scale_rates` slows it down.

    Args:
        where: What is meant, as `freeze` takes it; all layers where None.

    Returns:
        The network.

    Raises:
        ConfigError: As for `freeze`.
        StateError: The network is training in another thread.
    """
    return _set(self, "unfreeze", where, frozen=False)


def _set(network: NetworkT, call: str, where: Where | None, *, frozen: bool) -> NetworkT:
    engine_of(network).check_thread()
    for layer, names in select(network, call, where):
        if names is not None:
            if not frozen and not layer.trainable:
                # Of what was kept as a whole these alone are let go.
                beside = engine_of(network).adapter_parameters(layer.at)
                layer.freeze(*(name for name in layer.parameters if name not in beside))
                layer.trainable = True
            (layer.freeze if frozen else layer.unfreeze)(*names)
            continue
        layer.trainable = not frozen
        if not frozen and layer.frozen:
            layer.unfreeze(*layer.frozen)
    return network


def scale_rates(self: NetworkT, factors: Mapping[str, float]) -> NetworkT:
    """Sets what the learning rate is multiplied by in some layers: their `rate_factor`.

    `loom.train(..., rate_scale=)` does this before it begins. What is set stays: files and copies keep
    it, and 1.0 undoes it. Layers that use another one's parameters are left out: the factor there holds.

    Args:
        factors: Factors of at least 0 by pattern: of layers' names, "0.0.0.*", or kinds, "conv*". A later
            pattern holds over an earlier one.

    Returns:
        The network.

    Raises:
        ConfigError: A factor is out of range, or a pattern matches no layer. Nothing has changed then.
        StateError: The network is training in another thread.

    Examples:
        >>> net = loom.Sequential([nn.Dense(8), nn.Dense(8), nn.Dense(2)], input_shape=3)
        >>> _ = net.scale_rates({"dense": 0.1, "0.0.0.2": 1.0})
        >>> [layer.rate_factor for layer in net.layers]
        [0.1, 0.1, 1.0]
    """
    engine_of(self).check_thread()
    if not isinstance(factors, Mapping):
        raise ConfigError(
            f'rate_scale is factors by pattern, such as {{"0.0.0.*": 0.1}}, got {shown(factors)}'
        )
    chosen = []
    for pattern, given in factors.items():
        factor = real("rate_scale", str(pattern), given, least=0.0)
        for layer, names in select(self, "rate_scale", pattern):
            if names is not None:
                raise ConfigError(
                    f'rate_scale: "{pattern}" names parameters; a factor is of a whole layer, such as '
                    f'"{layer.path}". To keep parameters as they are, freeze them'
                )
            if getattr(layer.config, "tied_to", None) is None:
                chosen.append((layer, factor))
    for layer, factor in chosen:
        layer.rate_factor = factor
    return self


def learning_parameters(network: HasEngine) -> set[str]:
    """Returns the parameters that an optimizer may move, by the names of state dicts.

    Those of layers and parameters that are frozen, of weights without masters, and of adapters that are out
    of use or kept as they are, are none of them.

    Args:
        network: The network, built.
    """
    engine = engine_of(network)
    native, found = engine.native, set[str]()
    for at, place in engine.layer_places():
        where = (*at, place)
        names = native.parameter_names(where)
        if not names:
            continue
        adapters, frozen = engine.adapter_parameters(where), set(native.frozen(where))
        own = native.trainable(where) and not native.weights_state(where)["dropped"]
        path = ".".join(map(str, where))
        found |= {f"{path}.{name}" for name in names if adapters.get(name, own and name not in frozen)}
    return found
