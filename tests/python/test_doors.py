"""One model through all doors, as somebody would use them."""

from pathlib import Path

import numpy as np
import pytest

import loom

HUB = Path(__file__).parents[1] / "golden" / "hub"


def decoded(net: loom.Network, prompt: list[int], count: int) -> list[int]:
    """The likeliest words, one after the other."""
    session = net.session(capacity=len(prompt) + count)
    scores = session(np.array([prompt]))[0, -1]
    words = []
    for _ in range(count):
        words.append(int(scores.argmax()))
        scores = session(np.array([words[-1:]]))[0, -1]
    return words


@pytest.mark.parametrize("family", ["llama", "llama3", "mistral", "qwen2", "qwen3"])
def test_a_language_model_goes_from_the_hub_to_everywhere(family: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    (folder,) = {path.parent for path in (HUB / family).rglob("config.json")} or {HUB / family}
    net = loom.load(folder)
    x = np.random.default_rng(0).integers(0, 20, (2, *net.input_shape))
    expected, words = net.predict(x), decoded(net, [1, 2, 3], 6)

    names = ["model.onnx", "model.loom", "model.gguf"]
    # Llama has no windows in llama.cpp, Phi-3 has.
    loom.save_gguf(net, tmp_path / "model.gguf")
    loom.save_onnx(net, tmp_path / "model.onnx")
    net.save(tmp_path / "model.loom")
    net.save_safetensors(tmp_path / "model.safetensors")
    for name in names:
        # What a file is, its content says.
        (tmp_path / name).rename(tmp_path / "anything")
        other = loom.load(tmp_path / "anything")
        length = other.input_shape[0]
        difference = np.abs(other.predict(x[:, :length]) - expected[:, :length]).max()
        assert difference < 1e-5 * max(1, np.abs(expected).max()), name
        if name != "model.onnx":
            assert decoded(other, [1, 2, 3], 6) == words
        assert loom.inspect(tmp_path / "anything").to_dict()

    again = loom.Network.from_config(net.config)
    again.load_state_dict(loom.open_tensors(tmp_path / "model.safetensors"))
    np.testing.assert_array_equal(again.predict(x), expected)

    # Trained, packed, and handed on with no more than inference needs.
    y = np.random.default_rng(1).integers(0, 20, x.shape)
    config = loom.TrainingConfig(epochs=2, loss="cross_entropy", learning_rate=1e-3, verbose=False)
    loss = [loom.train(net, (x, y), config).final_loss for _ in range(2)]
    assert loss[1] < loss[0]
    net.morph("q8_0")
    net.save(tmp_path / "small.loom", deploy=True)
    small = loom.load(tmp_path / "small.loom")
    np.testing.assert_array_equal(small.predict(x), net.predict(x))
    assert decoded(small, [1, 2], 4) == decoded(net, [1, 2], 4)
    assert small.card.metadata["hub"]["model_type"] == net.card.metadata["hub"]["model_type"]
    assert small.evaluate((x, y)) == net.evaluate((x, y))
