"""Writes divergences.json beside this file: values and gradients of the Kullback-Leibler divergence, by JAX and Optax.

Run it with a Python that has jax and optax (0.2.8). The cases are in the form of `losses.py`'s, arrays in the engine's
layout, (rows, outer, classes, inner).
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

jax.config.update("jax_enable_x64", True)

LAYOUTS = {
    "rows": (3, 1, 7, 1),
    "wide rows": (2, 1, 37, 1),
    "images": (2, 1, 3, 6),
    "wide images": (2, 1, 4, 17),
    "sequences": (2, 3, 4, 1),
}


def flat(array):
    return [float(f"{value:.14g}") for value in np.asarray(array).ravel()]


def cases():
    random = np.random.default_rng(3)
    for layout, extents in LAYOUTS.items():
        for temperature in (1.0, 2.5):
            output = jnp.asarray(np.round(random.normal(size=extents) * 3, 3))
            shares = random.exponential(size=extents)
            # What has no share costs nothing.
            shares[0, 0, 1] = 0.0
            target = jnp.asarray(np.round(shares / shares.sum(axis=2, keepdims=True), 3))
            weight = jnp.asarray(np.round(random.uniform(0.1, 1.1, extents[0]), 3))

            def losses(output, target=target, temperature=temperature):
                logs = jax.nn.log_softmax(jnp.moveaxis(output, 2, -1) / temperature, axis=-1)
                return optax.losses.kl_divergence(logs, jnp.moveaxis(target, 2, -1))

            def weighted(output, losses=losses, weight=weight):
                found = losses(output)
                weights = jnp.broadcast_to(weight[:, None, None], found.shape)
                return (found * weights).sum() / weights.sum()

            for function, options in (
                (lambda output, losses=losses: losses(output).mean(), {}),
                (weighted, {"sample_weight": flat(weight)}),
            ):
                loss, gradient = jax.value_and_grad(function)(output)
                yield {
                    "name": f"kl_divergence {layout} temperature {temperature} {list(options)}",
                    "function": "kl_divergence",
                    "extents": list(extents),
                    "output": flat(output),
                    "target": flat(target),
                    "class_targets": False,
                    "loss": float(loss),
                    "gradient": flat(gradient),
                    "temperature": temperature,
                    **options,
                }


def main():
    path = Path(__file__).with_suffix(".json")
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases())
    path.write_text(f'{{"optax":"{optax.__version__}","cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
