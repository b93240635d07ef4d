"""timm's models through ONNX: PyTorch's export read by loom, and loom's export run by ONNX Runtime.

    PYTHONPATH=python PYTHON_WITH_TIMM benches/peers/timm_models.py [NAME ...]

Weights are random. Printed are the largest differences of outputs, over the largest output or 1; a model
that loom refuses is printed with what it says first.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import timm
import torch
from numpy.typing import NDArray

import loom

NAMES = [
    "resnet18",
    "mobilenetv3_small_050",
    "efficientnet_lite0",
    "regnetx_002",
    "regnety_002",
    "convnext_atto",
    "vit_tiny_patch16_224",
    "mixer_s32_224",
    "densenet121",
    "repvgg_a0",
    "deit_tiny_patch16_224",
    "resnetv2_50",
    "seresnet50",
    "ghostnet_100",
    "mnasnet_small",
    "hardcorenas_a",
    "tf_efficientnet_b0",
    "gmlp_s16_224",
    "resmlp_12_224",
    "dla34",
    "res2net50_14w_8s",
]


def model(name: str) -> tuple[Any, Any]:
    """A model with random weights and statistics, and an input."""
    torch.manual_seed(0)
    made = timm.create_model(name, num_classes=10).eval()
    for module in made.modules():
        if getattr(module, "running_mean", None) is not None:
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    for parameter in made.parameters():
        # Heads and gains that begin as one number would show nothing.
        if parameter.unique().numel() == 1:
            parameter.data += 0.05 * torch.randn_like(parameter)
    extent = made.default_cfg["input_size"][1]
    flexible = not made.default_cfg.get("fixed_input_size") and "it_" not in name
    return made, torch.randn(1, 3, *(2 * [64 if flexible else extent]))


def apart(found: NDArray[Any], expected: NDArray[Any]) -> str:
    """The largest difference, in proportion."""
    return f"{np.abs(found - expected).max() / max(1.0, np.abs(expected).max()):.0e}"


def compare(name: str, folder: Path) -> str:
    """Both ways."""
    made, x = model(name)
    with torch.no_grad():
        expected = made(x).numpy()
    torch.onnx.export(made, (x,), folder / "in.onnx", opset_version=17, dynamo=False)
    try:
        net = loom.load(folder / "in.onnx")
    except loom.LoomError as error:
        return "refused: " + " ".join(str(error).splitlines()[:2])
    found = net.predict(x.numpy())
    loom.save_onnx(net, folder / "out.onnx")
    session = onnxruntime.InferenceSession(folder / "out.onnx", providers=["CPUExecutionProvider"])
    (run,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    return f"read {apart(found, expected)}, written {apart(run, found)}"


def main() -> None:
    """Compares the models that are named, or all."""
    for name in sys.argv[1:] or NAMES:
        with tempfile.TemporaryDirectory() as folder:
            print(f"{name:24}", compare(name, Path(folder)), flush=True)


if __name__ == "__main__":
    main()
