"""One program as a user would write it: train, resume, look inside, graft, shrink, save, on every device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import loom
from loom import analysis, nn

Array = NDArray[Any]


def text(count: int, length: int = 8) -> tuple[Array, Array]:
    """Sequences of symbols, and after each symbol the next: one more, or one less after an odd first."""
    random = np.random.default_rng(0)
    start, sign = random.integers(0, 10, count), random.choice([1, -1], count)
    symbols = (start[:, None] + sign[:, None] * np.arange(length + 1)) % 10
    return symbols[:, :-1], symbols[:, 1:]


def model(seed: int) -> loom.Network:
    """A small language model: a shared table of symbols, attention in a skip, experts, a link over cells."""
    net = loom.Network(input_shape=8, grid=(1, 1, 3), seed=seed)
    net[0, 0, 0].add(nn.Embedding(10, 16), nn.PositionalEmbedding(8))
    net[0, 0, 1].add(
        nn.Residual([nn.LayerNorm(), nn.MultiHeadAttention(2, causal=True)]),
        nn.Residual([nn.LayerNorm(), nn.Parallel([nn.Dense(16, activation="gelu"), nn.Dense(16)], "filter")]),
    )
    net[0, 0, 2].add(nn.LayerNorm(), nn.TiedHead(10, tied_to=(0, 0, 0, 0)))
    net.link((0, 0, 0), (0, 0, 2), combine="add")
    return net


@pytest.mark.parametrize("on", ["cpu", "gpu"])
def test_a_language_model_is_trained_looked_into_shrunk_and_resumed(
    on: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    device = "cpu" if on == "cpu" else request.getfixturevalue("gpu")
    x, y = text(96)
    config = loom.TrainingConfig(
        epochs=4, batch_size=16, learning_rate=1e-2, loss="cross_entropy", device=device, verbose=False
    )
    net = model(seed=1)
    before = net.evaluate((x, y), loss="cross_entropy")["loss"]

    # Half of the run, a file, the other half: the same bits as in one go.
    whole = model(seed=1)
    whole.fit((x, y), config)
    checkpoint = loom.callbacks.ModelCheckpoint(tmp_path / "run.loom")

    class Stop(loom.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any) -> None:
            self.stop_training = epoch == 1

    net.fit((x, y), config, callbacks=[checkpoint, Stop()])
    resumed = loom.load(tmp_path / "run.loom")
    resumed.fit((x, y), config, resume=True)
    for path, values in whole.state_dict().items():
        np.testing.assert_array_equal(resumed.state_dict()[path], values, err_msg=path)
    net = resumed
    assert net.evaluate((x, y), loss="cross_entropy")["loss"] < 0.5 * before

    # Inside: attention's weights see nothing that comes later, and looking moves nothing.
    predicted = net.predict(x[:8])
    found = net.activations(
        x[:8], [net[0, 0, 1, 0].layers[1], "0.0.1.1.layers.1.branches.0.0"], attention=True
    )
    (weights,) = found.attention.values()
    assert weights.shape == (8, 2, 8, 8)
    np.testing.assert_array_equal(weights, np.tril(weights))
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, atol=1e-5)
    np.testing.assert_array_equal(net.predict(x[:8]), predicted)
    assert net.blueprint().parameter_count == sum(values.size for values in net.state_dict().values())

    # A head taken out, looked at and put back changes nothing; the experts of one network go on in another.
    norm = net[0, 0, 2].pop(0)
    assert norm.kind == "layer_norm"
    net[0, 0, 2].insert(0, norm)
    np.testing.assert_allclose(net.predict(x[:8]), predicted, atol=1e-6)
    experts = net[0, 0, 1, 1].layers[1]
    both = analysis.graft([experts, model(seed=2).build()[0, 0, 1, 1].layers[1]], combine="average")
    assert [len(branch) for branch in both.layers[0].branches] == [1, 1, 1, 1]
    hidden = net.activations(x[:8], [net[0, 0, 1, 1].layers[0]])["0.0.1.1.layers.0"]
    inner = [net.activations(x[:8], [branch])[branch.path] for (branch,) in experts.branches]
    made = both.activations(hidden, [branch for (branch,) in both.layers[0].branches])
    for wanted, given in zip(inner, list(made.values())[:2], strict=True):
        np.testing.assert_allclose(given, wanted, atol=1e-4)

    # Fewer bits for each layer, within a budget; the file of it infers the same.
    loss = net.evaluate((x, y), loss="cross_entropy")["loss"]
    # Each choice is judged by what it does to the loss: of few rows and types where that may be software.
    few = (slice(16), ["bfloat16", "int8", "uint4", "ternary"])
    judged, dtypes = few if on == "gpu" else (slice(None), None)
    plan = net.fit_bits((x[judged], y[judged]), max_bytes=net.weight_bytes // 3, dtypes=dtypes)
    assert net.weight_bytes <= plan.max_bytes
    assert net.evaluate((x, y), loss="cross_entropy")["loss"] < loss + 0.5
    net.save(tmp_path / "small.loom")
    small = loom.load(tmp_path / "small.loom")
    np.testing.assert_array_equal(small.predict(x[:8]), net.to("cpu").predict(x[:8]))

    # Frozen but for its norms, it learns on; nothing else moves.
    net.freeze().unfreeze("layer_norm")
    kept = {path: values.copy() for path, values in net.state_dict().items()}
    net.fit((x, y), loom.TrainingConfig(epochs=1, loss="cross_entropy", device=device, verbose=False))
    moved = {path for path, values in net.state_dict().items() if (values != kept[path]).any()}
    assert moved == {path for path in kept if ".layers.0." in path or path.startswith("0.0.2.0.")}
