"""Writes ctc.json beside this file: values and gradients of connectionist temporal classification, by Optax.

Run it with a Python that has jax and optax (0.2.8).
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

jax.config.update("jax_enable_x64", True)

# Steps, classes, and the labels of each row: repeats, as many as fit, one, none.
CASES = [
    (8, 5, 0, [[1, 2, 3], [4, 4, 4, 4], [2], []]),
    (6, 4, 2, [[0, 1, 0], [3, 3, 1], [1, 0, 1, 0, 1, 3]]),
    (1, 3, 0, [[2], []]),
    (30, 12, 0, [[1, 1, 2, 2, 3, 3, 4, 4, 5, 5], [11, 10, 9, 8, 7]]),
]


def main():
    random = np.random.default_rng(5)
    found = []
    for steps, classes, blank, labels in CASES:
        logits = np.round(random.normal(size=(len(labels), steps, classes)) * 2, 3)
        most = max(map(len, labels))
        padded = np.zeros((len(labels), most), np.int32)
        paddings = np.ones((len(labels), most))
        for row, sequence in enumerate(labels):
            padded[row, : len(sequence)] = sequence
            paddings[row, : len(sequence)] = 0.0

        def losses(logits, padded=padded, paddings=paddings, blank=blank):
            return optax.ctc_loss(
                logits, jnp.zeros(logits.shape[:2]), padded, paddings, blank_id=blank, log_epsilon=-1e30
            )

        gradient = jax.grad(lambda logits, losses=losses: losses(logits).sum())(jnp.asarray(logits))
        found.append(
            {
                "blank": blank,
                "labels": labels,
                "logits": logits.tolist(),
                "losses": np.asarray(losses(jnp.asarray(logits))).tolist(),
                "gradient": np.asarray(gradient).tolist(),
            }
        )
    path = Path(__file__).with_suffix(".json")
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in found)
    path.write_text(f'{{"optax":"{optax.__version__}","cases":[\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
