"""The workloads in JAX with optax, on the CPU, each step compiled as a whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
import optax

from workloads import Workload

_RANDOM = np.random.default_rng(0)


def step(work: Workload) -> Callable[[], object] | None:
    """Builds one step of a workload."""
    if work.is_product:
        a, b = _weights(work.sizes[0], work.sizes[0]), _weights(work.sizes[0], work.sizes[0])
        multiply = jax.jit(jnp.matmul)
        return lambda: multiply(a, b).block_until_ready()
    if work.kind not in {"train_mlp", "train_cnn", "infer_mlp"}:
        # JAX has no such layers of its own.
        return None
    convolutional = work.kind == "train_cnn"
    parameters: Any = _cnn_parameters() if convolutional else _mlp_parameters(work.sizes)
    forward: Callable[[Any, Any], Any] = _cnn if convolutional else _mlp
    # JAX is given the image layout that it is fastest with.
    x = _weights(work.batch, *((28, 28, 1) if convolutional else work.sizes[:1]))
    if work.kind == "infer_mlp":
        infer = jax.jit(forward)
        return lambda: infer(parameters, x).block_until_ready()
    y = jnp.asarray(_RANDOM.integers(0, 10 if convolutional else work.sizes[-1], work.batch))
    optimizer = optax.adamw(1e-3)

    def loss(parameters: Any) -> Any:  # noqa: ANN401 - a tree of arrays
        logits = forward(parameters, x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    def update(parameters: Any, moments: Any) -> tuple[Any, Any, Any]:  # noqa: ANN401 - as above
        value, gradients = jax.value_and_grad(loss)(parameters)
        updates, moments = optimizer.update(gradients, moments, parameters)
        return optax.apply_updates(parameters, updates), moments, value

    compiled = jax.jit(update)
    held = [parameters, optimizer.init(parameters)]

    def train() -> object:
        held[0], held[1], value = compiled(*held)
        return value.block_until_ready()

    return train


def describe() -> str:
    """Names the version."""
    return f"JAX {jax.__version__}, optax {optax.__version__}"


def _weights(*shape: int) -> Any:  # noqa: ANN401 - jax.Array, which is not typed everywhere
    return jnp.asarray(_RANDOM.standard_normal(shape, np.float32) * 0.05)


def _mlp_parameters(sizes: tuple[int, ...]) -> list[Any]:
    return [(_weights(fan_in, fan_out), _weights(fan_out)) for fan_in, fan_out in pairwise(sizes)]


def _mlp(parameters: Any, x: Any) -> Any:  # noqa: ANN401 - trees of arrays
    for weight, bias in parameters[:-1]:
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = parameters[-1]
    return x @ weight + bias


def _cnn_parameters() -> list[Any]:
    shapes = ((3, 3, 1, 32), (3, 3, 32, 64), (3136, 128), (128, 10))
    return [(_weights(*shape), _weights(shape[-1])) for shape in shapes]


def _cnn(parameters: Any, x: Any) -> Any:  # noqa: ANN401 - trees of arrays
    for weight, bias in parameters[:2]:
        x = jax.lax.conv_general_dilated(
            x, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.lax.reduce_window(
            jax.nn.relu(x + bias), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
        )
    return _mlp(parameters[2:], x.reshape(len(x), -1))
