"""What transformers makes of the GGUF files that loom writes, beside loom: the largest difference of scores.

    PYTHONPATH=python:tests/python python tests/golden/gguf_by_transformers.py

needs transformers, gguf and torch. transformers knows most of the architectures; the others are told.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

import loom
from loom.models.gguf import hub_config
from networks import decoders, llama


def compare(kind: str, net: loom.Network) -> str:
    """One architecture."""
    words = np.random.default_rng(0).integers(0, 50, (3, 12))
    expected = net.predict(words)
    with tempfile.TemporaryDirectory() as folder:
        loom.save_gguf(net, Path(folder) / "net.gguf")
        # transformers takes tensors from the file, but has values of its own for settings that GGUF leaves to
        # the architecture, such as Gemma's caps.
        with loom.open_tensors(Path(folder) / "net.gguf") as file:
            said = hub_config(file)
        try:
            config = transformers.AutoConfig.for_model(**{**said, "pad_token_id": 0})
            model = transformers.AutoModelForCausalLM.from_pretrained(
                folder, gguf_file="net.gguf", config=config, attn_implementation="eager"
            )
        except (
            ValueError,
            KeyError,
            IndexError,
            OSError,
            RuntimeError,
            TypeError,
            NotImplementedError,
            AssertionError,
        ) as error:
            return f"{kind}: transformers does not read it: {str(error).splitlines()[0][:100]}"
    # transformers 5 refuses its own `float` for what came from GGUF, though that is no longer quantized.
    torch.nn.Module.float(model).eval()
    with torch.no_grad():
        found = model(torch.from_numpy(words)).logits.numpy()
    apart = np.abs(found - expected).max() / max(1.0, np.abs(expected).max())
    return f"{kind}: {apart:.1e} ({type(model).__name__})"


def main() -> None:
    """All of them."""
    transformers.logging.set_verbosity_error()
    models = {"llama, dense": llama, "qwen2": lambda: llama(bias=True), "qwen3": lambda: llama(qk_norm=True)}
    for kind, make in {**models, **{f"{name}": make for name, make in decoders().items()}}.items():
        print(compare(kind, make()), flush=True)


if __name__ == "__main__":
    main()
