"""Kinds of models that are compared: how a reference is made, what it reads, and what of its output counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

import loom

OURS = ("model", "config", "loom_image_size", "pooling", "dense", "steps", "decodes")


@dataclass(frozen=True)
class Case:
    """A kind of model, in several configurations."""

    name: str
    title: str
    model_type: str
    config: str
    model: str
    configurations: Sequence[dict[str, Any]]
    common: dict[str, Any] = field(default_factory=dict)
    decodes: bool = True
    parts: Sequence[str | None] = (None,)
    files: Sequence[str] = ("config.json",)
    steps: int | None = 11

    def settings(self, index: int) -> dict[str, Any]:
        """Returns all settings of a configuration."""
        return {
            name: value
            for name, value in {**self.common, **self.configurations[index]}.items()
            if name not in OURS
        }

    def model_of(self, index: int) -> str:
        """Returns the reference's class."""
        return self.configurations[index].get("model", self.model)

    def build(self, index: int) -> torch.nn.Module:
        """Returns the reference."""
        name = self.configurations[index].get("config", self.config)
        config = getattr(transformers, name)(**self.settings(index))
        config._attn_implementation = "eager"
        return getattr(transformers, self.model_of(index))(config)

    def save(self, model: torch.nn.Module, index: int, folder: Path) -> None:
        """Writes the folder that loom opens; later configurations in shards."""
        model.save_pretrained(folder, max_shard_size="5GB" if index == 0 else "8KB")

    def length(self, index: int) -> int | None:
        """Returns the steps of a sequence."""
        return self.configurations[index].get("steps", self.steps)

    def options(self, index: int) -> dict[str, Any]:
        """Returns what else `from_hub` is told."""
        return {}

    def inputs(self, net: loom.Network, index: int) -> np.ndarray:
        """Returns two samples."""
        random = np.random.default_rng(index)
        if len(net.input_shape) == 1:
            return random.integers(3, self.settings(index)["vocab_size"], size=(2, *net.input_shape))
        return random.standard_normal((2, *net.input_shape)).astype(np.float16).astype(np.float32)

    def kept(self, x: np.ndarray, index: int) -> Any:
        """Returns which places of the output are compared."""
        return slice(None)

    def reference(self, model: torch.nn.Module, x: np.ndarray, part: str | None, index: int) -> torch.Tensor:
        """Returns the reference's output."""
        return model(torch.as_tensor(x)).logits


class TextCase(Case):
    """An encoder of text, whose inputs end in padding."""

    def inputs(self, net: loom.Network, index: int) -> np.ndarray:
        x = super().inputs(net, index)
        x[1, -4:] = self.padding(index)
        return x

    def padding(self, index: int) -> int:
        """Returns the padding token."""
        return self.settings(index)["pad_token_id"]

    def kept(self, x: np.ndarray, index: int) -> Any:
        return (
            x != self.padding(index) if "SequenceClassification" not in self.model_of(index) else slice(None)
        )

    def reference(self, model: torch.nn.Module, x: np.ndarray, part: str | None, index: int) -> torch.Tensor:
        ids = torch.as_tensor(x)
        out = model(ids, attention_mask=(ids != self.padding(index)).long())
        if "start_logits" in out:
            return torch.stack([out.start_logits, out.end_logits], dim=-1)
        if self.model_of(index) == "ElectraForPreTraining":
            return out.logits.unsqueeze(-1)
        return out.logits if "logits" in out else out.last_hidden_state


class SentenceCase(TextCase):
    """An encoder with the files that sentence-transformers writes beside it.

    "pooling" says which steps make the vector, and "dense" how wide modules behind it are, with their activations.
    """

    def build(self, index: int) -> torch.nn.Module:
        model = super().build(index)
        width = model.config.hidden_size
        model.behind = torch.nn.ModuleList()
        for units, function in self.configurations[index].get("dense", ()):
            model.behind.append(
                torch.nn.Sequential(torch.nn.Linear(width, units, bias=function != "Identity"))
            )
            model.behind[-1].append(getattr(torch.nn, function)())
            width = units
        return model

    def save(self, model: torch.nn.Module, index: int, folder: Path) -> None:
        behind, model.behind = model.behind, torch.nn.ModuleList()
        super().save(model, index, folder)
        model.behind = behind
        # What is read of it may be other than what is told.
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | self.settings(index), indent=2))
        kinds = ["Transformer", "Pooling", *("Dense" for _ in behind), "Normalize"]
        modules = [
            {
                "idx": place,
                "name": str(place),
                "path": f"{place}_{kind}" if place else "",
                "type": f"sentence_transformers.models.{kind}",
            }
            for place, kind in enumerate(kinds)
        ]
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "1_Pooling").mkdir()
        modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "lasttoken")
        chosen = (self.common | self.configurations[index])["pooling"]
        pooling = {f"pooling_mode_{mode}": mode == chosen for mode in modes}
        (folder / "1_Pooling" / "config.json").write_text(
            json.dumps({"word_embedding_dimension": 24, **pooling})
        )
        (folder / "sentence_bert_config.json").write_text(
            json.dumps({"max_seq_length": 16, "do_lower_case": False})
        )
        for place, (layer, function) in enumerate(behind, 2):
            (folder / f"{place}_Dense").mkdir()
            told = {
                "in_features": layer.in_features,
                "out_features": layer.out_features,
                "bias": layer.bias is not None,
                "activation_function": f"{type(function).__module__}.{type(function).__name__}",
            }
            (folder / f"{place}_Dense" / "config.json").write_text(json.dumps(told))
            tensors = {f"linear.{name}": tensor.contiguous() for name, tensor in layer.state_dict().items()}
            save_file(tensors, folder / f"{place}_Dense" / "model.safetensors")

    def inputs(self, net: loom.Network, index: int) -> np.ndarray:
        return super().inputs(net, index) if self.padding(index) >= 0 else Case.inputs(self, net, index)

    def padding(self, index: int) -> int:
        """Returns the padding token; -1 where there is none."""
        return self.settings(index).get("pad_token_id", -1)

    def kept(self, x: np.ndarray, index: int) -> Any:
        return slice(None)

    def reference(self, model: torch.nn.Module, x: np.ndarray, part: str | None, index: int) -> torch.Tensor:
        steps = super().reference(model, x, part, index)
        mask = torch.as_tensor(x != self.padding(index)).unsqueeze(-1).float()
        pooled = {
            "mean_tokens": (steps * mask).sum(1) / mask.sum(1),
            "cls_token": steps[:, 0],
            "lasttoken": steps[range(len(x)), mask.squeeze(-1).sum(1).long() - 1],
        }[(self.common | self.configurations[index])["pooling"]]
        for layers in model.behind:
            pooled = layers(pooled)
        return torch.nn.functional.normalize(pooled, dim=-1)


class ImageCase(Case):
    """A model of images, whose side is a setting or, for convolutional networks, anything."""

    def length(self, index: int) -> int | None:
        return None

    def options(self, index: int) -> dict[str, Any]:
        size = {**self.common, **self.configurations[index]}.get("loom_image_size")
        return {} if size is None else {"image_size": size}

    def reference(self, model: torch.nn.Module, x: np.ndarray, part: str | None, index: int) -> torch.Tensor:
        out = model(torch.as_tensor(x))
        if isinstance(out, torch.Tensor):
            return out
        return out.logits if "logits" in out else out.last_hidden_state


class ClipCase(ImageCase):
    """CLIP, part by part."""

    def length(self, index: int) -> int | None:
        return None

    def inputs(self, net: loom.Network, index: int) -> np.ndarray:
        random = np.random.default_rng(index)
        if len(net.input_shape) == 1:
            return random.integers(3, 31, size=(2, *net.input_shape))
        return super().inputs(net, index)

    def reference(self, model: torch.nn.Module, x: np.ndarray, part: str | None, index: int) -> torch.Tensor:
        if part == "vision":
            return model.visual_projection(model.vision_model(torch.as_tensor(x)).pooler_output)
        return model.text_projection(model.text_model(torch.as_tensor(x)).last_hidden_state)


class ModuleCase(ImageCase):
    """A model of timm or torchvision, made by a function; timm says an architecture, torchvision nothing."""

    def build(self, index: int) -> torch.nn.Module:
        return self.configurations[index]["make"]()

    def save(self, model: torch.nn.Module, index: int, folder: Path) -> None:
        save_file(
            {name: tensor.contiguous() for name, tensor in model.state_dict().items()},
            folder / "model.safetensors",
        )
        told = self.configurations[index].get("told")
        if told:
            (folder / "config.json").write_text(json.dumps(told))
