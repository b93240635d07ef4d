"""Writes whole_parameters.json beside this file: trainings by optimizers that look at whole parameters, by Optax.

Run it with a Python that has jax and optax (0.2.8). A small network, 6 to 8 to 3 with tanh between, learns to map
12 rows onto 12 others by the mean squared error in float64; weights and data follow a fixed formula, which the
test repeats. Muon with Nesterov's look ahead is Jordan's own, transcribed here: Optax corrects the bias of both parts
of it, which Jordan's does not.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import optax
from optax._src import factorized

jax.config.update("jax_enable_x64", True)
# Optax has this share in single precision, whatever the weights are in.
*settings, _ = factorized.scale_by_factored_rms.__defaults__
factorized.scale_by_factored_rms.__defaults__ = (
    *settings,
    lambda step, exponent: 1 - (jnp.asarray(step, jnp.float64) + 1) ** -exponent,
)

CHECKPOINTS = [1, 2, 10, 60]
SHAPES = [(6, 8), (8,), (8, 3), (3,)]


def numbers(count, offset):
    return [((37 * i + 11 * offset) % 61 - 30) / 32 for i in range(count)]


def array(shape, offset, scale):
    return scale * jnp.asarray(numbers(int(jnp.prod(jnp.asarray(shape))), offset)).reshape(shape)


def loss(weights, x, y):
    first, bias, second, last = weights
    return jnp.mean((jnp.tanh(x @ first + bias) @ second + last - y) ** 2)


def jordan(rate, momentum, decay):
    """Muon as in Jordan's repository, with AdamW for what is no matrix and the scale of Liu et al."""

    def orthogonalized(matrix):
        x = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
        x = x / (jnp.linalg.norm(x) + 1e-8)
        for _ in range(5):
            square = x @ x.T
            x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
        return x if matrix.shape[0] <= matrix.shape[1] else x.T

    adam = optax.adamw(rate, weight_decay=decay)

    def init(weights):
        return [jnp.zeros_like(w) for w in weights], adam.init(weights)

    def update(gradients, state, weights):
        means, state = state
        by_adam, state = adam.update(gradients, state, weights)
        means = [momentum * m + (1 - momentum) * g for m, g in zip(means, gradients, strict=True)]
        changes = []
        for mean, gradient, weight, other in zip(means, gradients, weights, by_adam, strict=True):
            if weight.ndim == 2:
                ahead = momentum * mean + (1 - momentum) * gradient
                scale = 0.2 * max(weight.shape) ** 0.5
                other = -rate * (scale * orthogonalized(ahead) + decay * weight)
            changes.append(other)
        return changes, (means, state)

    return optax.GradientTransformation(init, update)


def rules():
    yield {"type": "lamb"}, 0.02, optax.lamb(0.02)
    settings = {"beta1": 0.8, "beta2": 0.98, "epsilon": 1e-3, "weight_decay": 0.1}
    yield {"type": "lamb", **settings}, 0.02, optax.lamb(0.02, b1=0.8, b2=0.98, eps=1e-3, weight_decay=0.1)
    yield {"type": "adafactor"}, 0.03, optax.adafactor(0.03, min_dim_size_to_factor=2)
    plain = optax.adafactor(
        0.01,
        min_dim_size_to_factor=2,
        decay_rate=0.5,
        multiply_by_parameter_scale=False,
        clipping_threshold=None,
        weight_decay_rate=0.01 * 0.1,
    )
    settings = {"decay_power": 0.5, "scale_by_weights": False, "clip_threshold": 0.0, "weight_decay": 0.1}
    yield {"type": "adafactor", **settings}, 0.01, plain
    # Optax corrects the bias of the mean before its norm is taken, which counts beside epsilon alone.
    theirs = optax.contrib.muon(0.02, nesterov=False, eps=1e-12)
    settings = {"nesterov": False, "match_adam": False, "weight_decay": 0.0, "epsilon": 1e-12}
    yield {"type": "muon", **settings}, 0.02, theirs
    theirs = optax.contrib.muon(
        0.01, nesterov=False, beta=0.9, eps=1e-12, weight_decay=0.1, adam_weight_decay=0.1, consistent_rms=0.2
    )
    settings = {"nesterov": False, "momentum": 0.9, "weight_decay": 0.1, "epsilon": 1e-12}
    yield {"type": "muon", **settings}, 0.01, theirs
    yield {"type": "muon"}, 0.01, jordan(0.01, 0.95, 0.01)


def main():
    x, y = array((12, 6), 5, 1.0), array((12, 3), 6, 0.5)
    cases = []
    for ours, rate, theirs in rules():
        weights = [array(shape, number, 0.5) for number, shape in enumerate(SHAPES)]
        state = theirs.init(weights)
        found = []
        for step in range(CHECKPOINTS[-1]):
            changes, state = theirs.update(jax.grad(loss)(weights, x, y), state, weights)
            weights = optax.apply_updates(weights, changes)
            if step + 1 in CHECKPOINTS:
                found.append([w.ravel().tolist() for w in weights])
        cases.append({"optimizer": ours, "rate": rate, "weights": found})
    path = Path(__file__).with_suffix(".json")
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    header = f'"optax":"{optax.__version__}","checkpoints":{CHECKPOINTS}'
    path.write_text(f'{{{header},"cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
