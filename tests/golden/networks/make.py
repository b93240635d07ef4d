"""Writes files of this version's format that are not there yet, and what is to come of them: once, and never again.

Later versions read these files; a change of the format gets files of its own beside them.
"""

import hashlib
import json
from pathlib import Path

import numpy as np

import loom
from loom import nn

HERE = Path(__file__).parent


def trained(net: loom.Network) -> loom.Network:
    """A few steps, so that moments and counters are there."""
    x = np.random.default_rng(0).normal(size=(4, *net.input_shape))
    config = loom.TrainingConfig(
        epochs=2, batch_size=2, loss="cross_entropy", optimizer="adam", verbose=False
    )
    loom.train(net, (x, np.arange(4) % 3), config)
    return net


def networks() -> dict[str, tuple[loom.Network, dict[str, bool]]]:
    """The networks, each with how it is saved."""
    dense = loom.Sequential([nn.Dense(6, activation="tanh"), nn.LayerNorm(), nn.Dense(3)], 4, seed=1)
    dense.card = loom.ModelCard(labels=["a", "b", "c"], license="MIT", metadata={"year": 2026})
    image = loom.Network((2, 6, 6), grid=(1, 1, 2), precision="float64", seed=2)
    image[0, 0].add(nn.Conv2D(4, 3, padding=1, activation="relu"), nn.BatchNorm(), nn.MaxPool2D(2))
    image[0, 1].add(nn.Residual([nn.Conv2D(4, 3, padding=1)]), nn.Flatten(), nn.Dense(3))
    steps = loom.Sequential([nn.LSTM(5, stateful=True), nn.Dense(3)], (3, 2), seed=3)
    attention = nn.Residual([nn.RMSNorm(), nn.MultiHeadAttention(2, causal=True, rotary=nn.Rotary())])
    sequence = loom.Sequential([attention, nn.SwiGLU(6), nn.Flatten(), nn.Dense(3)], (4, 4), seed=4)
    packed = loom.Sequential([nn.Dense(32, activation="silu"), nn.Dense(3)], 64, seed=5)
    packed.morph("int4", granularity="block(16)", where=lambda layer: layer.at[3] == 0)
    packed.morph("uint8", where=lambda layer: layer.at[3] == 1)
    deployed = loom.Sequential([nn.Dense(32, activation="gelu"), nn.Dense(3)], 64, seed=6)
    deployed.morph("q4_0", where=lambda layer: layer.at[3] == 0)
    deployed.morph("mxfp4", where=lambda layer: layer.at[3] == 1)
    checked = loom.Sequential([nn.Dense(8, activation="tanh"), nn.BatchNorm(), nn.Dense(3)], 4, seed=7)
    checked.morph("int8", where=lambda layer: layer.at[3] == 0)
    return {
        "dense": (trained(dense), {"optimizer": True}),
        "image": (trained(image), {"optimizer": True}),
        "steps": (trained(steps), {"optimizer": True}),
        "sequence": (sequence, {}),
        "packed": (packed, {}),
        "deployed": (deployed, {"deploy": True}),
        # Of format 2, with checksums; those above are of format 1.
        "checked": (trained(checked), {"optimizer": True}),
    }


def main() -> None:
    """Writes them."""
    told = HERE / "expected.json"
    expected = json.loads(told.read_text()) if told.exists() else {}
    for name, (made, how) in networks().items():
        if name in expected:
            continue
        made.save(HERE / f"{name}.loom", **how)
        net = loom.load(HERE / f"{name}.loom")
        x = np.random.default_rng(0).normal(size=(4, *net.input_shape))

        def outputs() -> str:
            return hashlib.sha256(net.predict(x).tobytes()).hexdigest()

        expected[name] = {
            "fingerprint": net.fingerprint(),
            "outputs": outputs(),
            "resumes": bool(how.get("optimizer")),
        }
        if how.get("optimizer"):
            config = loom.TrainingConfig(
                epochs=2, batch_size=2, loss="cross_entropy", optimizer="adam", verbose=False
            )
            loom.train(net, (x, np.arange(4) % 3), config, resume=True)
            expected[name]["trained"] = outputs()
    told.write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
