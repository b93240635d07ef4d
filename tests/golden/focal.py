"""Writes focal.json beside this file: values and gradients of the focal loss over classes, by JAX.

Run it with a Python that has jax. The formula is equation 4 of Lin et al. 2017 for a softmax, as Keras's
`CategoricalFocalCrossentropy` without alpha has it; a weight for each class stands for alpha. The cases are in the form
of `losses.py`'s, arrays in the engine's layout, (rows, outer, classes, inner).
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

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


def focal(output, target, temperature, gamma):
    """What each position costs: (rows, outer, inner)."""
    share = jax.nn.softmax(output / temperature, axis=2)
    return -(target * (1 - share) ** gamma * jnp.log(share)).sum(axis=2)


def cases():
    random = np.random.default_rng(4)
    for number, (layout, extents) in enumerate(LAYOUTS.items()):
        rows, outer, classes, inner = extents
        temperature, gamma = ((1.0, 2.0), (2.5, 0.7), (1.0, 3.5))[number % 3]
        output = jnp.asarray(np.round(random.normal(size=extents) * 3, 3))
        labels = random.integers(0, classes, (rows, outer, inner))
        one_hot = jnp.moveaxis(jax.nn.one_hot(labels, classes), -1, 2)
        shares = random.exponential(size=extents)
        shares = jnp.asarray(np.round(shares / shares.sum(axis=2, keepdims=True), 3))
        of_rows = jnp.asarray(np.round(random.uniform(0.1, 1.1, rows), 3))
        of_classes = jnp.asarray(np.round(random.uniform(0.2, 3.0, classes), 3))
        by_class = of_classes[None, None, :, None]

        def plain(output, target):
            return focal(output, target, temperature, gamma).mean()

        def by_row(output, target):
            found = focal(output, target, temperature, gamma)
            weights = jnp.broadcast_to(of_rows[:, None, None], found.shape)
            return (found * weights).sum() / weights.sum()

        def by_label(output, target):
            found = focal(output, target * by_class, temperature, gamma)
            return found.sum() / (target * by_class).sum()

        for target, told, function, options in (
            (one_hot, labels, plain, {}),
            (one_hot, labels, by_row, {"sample_weight": flat(of_rows)}),
            (one_hot, labels, by_label, {"class_weight": flat(of_classes)}),
            (shares, None, plain, {}),
            (shares * 0.8 + 0.2 / classes, shares, plain, {"label_smoothing": 0.2}),
        ):
            loss, gradient = jax.value_and_grad(function)(output, target)
            classed = told is labels
            yield {
                "name": f"focal {layout} {'classes' if classed else 'shares'} {list(options)}",
                "function": "focal",
                "extents": list(extents),
                "output": flat(output),
                "target": flat(labels) if classed else flat(shares),
                "class_targets": classed,
                "loss": float(loss),
                "gradient": flat(gradient),
                "temperature": temperature,
                "gamma": gamma,
                **options,
            }


def main():
    path = Path(__file__).with_suffix(".json")
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases())
    path.write_text(f'{{"jax":"{jax.__version__}","cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
