"""Writes peft/ and peft_dora/: adapters on the Llama of hub/, what they compute, and what training makes of them.

    python tests/golden/peft_adapters.py peft peft_dora

needs PyTorch, transformers and peft. peft/ is rsLoRA by peft 0.17.1 and transformers 4.57.1, peft_dora/ is DoRA by peft
0.21.2 and transformers 5.24.0. adapter_config.json and adapter_model.safetensors are what peft saves; expected.npz
holds tokens, the logits with the adapter and without, and the adapter's tensors after three steps of gradient descent
on the mean cross-entropy of the next tokens.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from peft.utils import get_peft_model_state_dict
from transformers import AutoModelForCausalLM

HERE = Path(__file__).parent
STEPS, RATE = 3, 0.5


def write(folder: Path, *, dora: bool) -> None:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(HERE / "hub" / "llama", dtype=torch.float32)
    tokens = torch.randint(0, model.config.vocab_size, (3, 10))
    with torch.no_grad():
        plain = model(tokens).logits.numpy()
    config = LoraConfig(
        r=3,
        lora_alpha=5,
        lora_dropout=0.0,
        use_rslora=not dora,
        use_dora=dora,
        target_modules=["q_proj", "k_proj", "v_proj", "gate_proj", "down_proj"],
        task_type="CAUSAL_LM",
    )
    adapted = get_peft_model(model, config)
    for name, values in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(values, std=0.3)
        elif "magnitude" in name:
            values.data *= 1 + 0.3 * torch.randn(values.shape)
    adapted.eval()
    with torch.no_grad():
        logits = adapted(tokens).logits.numpy()
    adapted.peft_config["default"].base_model_name_or_path = "llama"
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink()
    optimizer = torch.optim.SGD([each for each in adapted.parameters() if each.requires_grad], lr=RATE)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            adapted(tokens[:, :-1]).logits.flatten(0, 1), tokens[:, 1:].flatten()
        )
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    trained = {name: values.numpy() for name, values in get_peft_model_state_dict(adapted).items()}
    np.savez_compressed(
        folder / "expected.npz",
        tokens=tokens.numpy(),
        plain=plain,
        logits=logits,
        losses=np.array(losses),
        **trained,
    )


if __name__ == "__main__":
    for name in sys.argv[1:]:
        write(HERE / name, dora="dora" in name)
