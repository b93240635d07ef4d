"""Writes torch_*.onnx and torch_*.npz: small models as PyTorch exports them, with what they compute.

    python tests/golden/onnx/torch_models.py [NAME...]

needs torch 2.15.0, onnx 1.23.2 and onnxscript 0.7.2. Every model is written by both of PyTorch's exporters: by
torch.export (the default) and by tracing (`_traced`), some for two rows alone (`_fixed`). Weights are random.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from torch import nn

HERE = Path(__file__).parent
warnings.filterwarnings("ignore")


class Lambda(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Block(nn.Module):
    """ResNet's basic block."""

    def __init__(self, before, after, stride):
        super().__init__()
        self.one = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.norm_one = nn.BatchNorm2d(after)
        self.two = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm_two = nn.BatchNorm2d(after)
        self.down = (
            nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
            if stride > 1
            else nn.Identity()
        )

    def forward(self, x):
        y = F.relu(self.norm_one(self.one(x)))
        return F.relu(self.norm_two(self.two(y)) + self.down(x))


class Dense(nn.Module):
    """DenseNet's layers: each reads all before it."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(2 + 2 * i, 2, 3, padding=1) for i in range(3))

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(F.relu(layer(torch.cat(features, 1))))
        return torch.cat(features, 1)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.down, self.middle = (
            nn.Conv2d(1, 2, 3, padding=1),
            nn.MaxPool2d(2),
            nn.Conv2d(2, 4, 3, padding=1),
        )
        self.up, self.out = nn.ConvTranspose2d(4, 2, 2, 2), nn.Conv2d(4, 1, 1)

    def forward(self, x):
        first = F.relu(self.enter(x))
        second = F.relu(self.middle(self.down(first)))
        return self.out(torch.cat([first, self.up(second)], 1))


class Last(nn.Module):
    """A recurrent layer and what is made of its last step."""

    def __init__(self, inner, width):
        super().__init__()
        self.inner, self.head = inner, nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.inner(x)[0][:, -1])


class Every(Last):
    def forward(self, x):
        return self.head(self.inner(x)[0])


class Attention(nn.Module):
    """As GPT-2 and timm's vision transformers have it: one product for queries, keys and values."""

    def __init__(self, width, heads, causal):
        super().__init__()
        self.qkv, self.proj, self.heads, self.causal = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
            heads,
            causal,
        )

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(y.transpose(1, 2).reshape(b, t, w))


class Layer(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.one, self.two = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attention(self.one(x))
        return x + self.feed(self.two(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(11, 8), nn.Embedding(6, 8)
        self.layers = nn.Sequential(Layer(8, 2, True), Layer(8, 2, True))
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 11, bias=False)

    def forward(self, x):
        x = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        return self.head(self.norm(self.layers(x)))


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch, self.token = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.randn(1, 1, 8))
        self.places, self.layer = nn.Parameter(torch.randn(1, 5, 8)), Layer(8, 2, False)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.layer(x))[:, 0])


class Llama(nn.Module):
    """Rotary positions, grouped heads, RMS norms, gated feed-forward, as Hugging Face writes them."""

    def __init__(self, width=16, heads=4, groups=2, hidden=24, time=5):
        super().__init__()
        self.words = nn.Embedding(13, width)
        self.heads, self.groups, self.extent = heads, groups, width // heads
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, groups * self.extent, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)
        self.one, self.two = (nn.Parameter(1 + 0.3 * torch.randn(width)) for _ in range(2))
        self.register_buffer("frequency", 10_000.0 ** -(torch.arange(0, self.extent, 2) / self.extent))

    def norm(self, x, gain):
        return gain * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    def turned(self, x, cos, sin):
        half = x.shape[-1] // 2
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    def forward(self, tokens):
        x = self.words(tokens)
        b, t, w = x.shape
        angle = torch.arange(t)[:, None].float() * self.frequency[None]
        cos, sin = (torch.cat([f(angle)] * 2, -1)[None, None] for f in (torch.cos, torch.sin))
        y = self.norm(x, self.one)
        q, k, v = (f(y).view(b, t, -1, self.extent).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = self.turned(q, cos, sin), self.turned(k, cos, sin)
        k, v = (
            z[:, :, None]
            .expand(b, self.groups, self.heads // self.groups, t, self.extent)
            .reshape(b, self.heads, t, -1)
            for z in (k, v)
        )
        mask = torch.triu(torch.full((t, t), float("-inf")), 1)
        scores = q @ k.transpose(2, 3) * self.extent**-0.5 + mask
        x = x + self.o((F.softmax(scores, -1) @ v).transpose(1, 2).reshape(b, t, w))
        y = self.norm(x, self.two)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class ConvNeXt(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.deep = nn.Conv2d(3, 4, 2, 2), nn.Conv2d(4, 4, 7, padding=3, groups=4)
        self.norm, self.one, self.two = nn.LayerNorm(4, 1e-6), nn.Linear(4, 8), nn.Linear(8, 4)
        self.gamma, self.head = nn.Parameter(torch.randn(4)), nn.Linear(4, 2)

    def forward(self, x):
        x = self.enter(x)
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        y = (self.gamma * self.two(F.gelu(self.one(y)))).permute(0, 3, 1, 2)
        return self.head((x + y).mean([-2, -1]))


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places, self.kinds = nn.Embedding(9, 8), nn.Embedding(5, 8), nn.Embedding(2, 8)
        self.norm = nn.LayerNorm(8, eps=1e-12)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True)
        self.pool = nn.Linear(8, 8)

    def forward(self, x):
        places = torch.arange(x.shape[1])[None]
        x = self.words(x) + self.kinds(torch.zeros_like(places)) + self.places(places)
        return torch.tanh(self.pool(self.layer(self.norm(x))[:, 0]))


class Branches(nn.Module):
    """Inception's branches."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = nn.Conv2d(2, 2, 1), nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(2, 1, 1)

    def forward(self, x):
        x = F.relu(x)
        pooled = F.avg_pool2d(x, 3, 1, 1)
        return torch.cat([self.one(x), F.relu(self.two(x)), self.three(pooled), F.max_pool2d(x, 3, 1, 1)], 1)


def encoder(first, activation="relu"):
    return nn.TransformerEncoderLayer(8, 2, 12, activation=activation, batch_first=True, norm_first=first)


torch.manual_seed(0)
WHOLE = torch.randint(0, 9, (2, 5))


class Excited(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.Hardswish())
        self.depthwise = nn.Conv2d(6, 6, 3, 1, 1, groups=6)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 3, 1), nn.ReLU(), nn.Conv2d(3, 6, 1), nn.Hardsigmoid()
        )
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.last = nn.Linear(6, 5)

    def forward(self, x):
        x = self.first(x)
        y = self.depthwise(x)
        y = self.pool(x + y * self.gate(y))
        return self.last((y * torch.tanh(y.mean(1, keepdim=True))).mean([2, 3]))


class Shuffled(nn.Module):
    def __init__(self):
        super().__init__()
        self.branch = nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        kept, changed = x.chunk(2, dim=1)
        y = torch.cat((kept, self.branch(changed)), dim=1)
        y = y.view(-1, 2, 4, 6, 5).transpose(1, 2).reshape(-1, 8, 6, 5)
        return self.last(y.mean([2, 3]))


MODELS = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3), nn.Softmax(-1)),
        (4,),
    ),
    "activations": (
        lambda: nn.Sequential(
            nn.Linear(4, 6),
            nn.GELU(),
            nn.Linear(6, 6),
            nn.GELU("tanh"),
            nn.Linear(6, 6),
            nn.SiLU(),
            nn.Linear(6, 6),
            nn.Mish(),
            nn.Linear(6, 6),
            nn.Hardswish(),
            nn.Linear(6, 6),
            nn.ReLU6(),
            nn.Linear(6, 6),
            nn.ELU(0.7),
            nn.Linear(6, 6),
            nn.LeakyReLU(0.2),
            nn.Linear(6, 6),
            nn.Softplus(),
            nn.Linear(6, 6),
            nn.Hardsigmoid(),
            nn.Linear(6, 6),
            nn.SELU(),
            nn.PReLU(6),
            nn.Hardtanh(-0.5, 2.0),
        ),
        (4,),
    ),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 6, 3, groups=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, 3),
        ),
        (1, 8, 8),
    ),
    "conv1d": (
        lambda: nn.Sequential(
            nn.Conv1d(2, 4, 5, stride=2, padding=2, dilation=1),
            nn.Tanh(),
            nn.AvgPool1d(2),
            nn.GroupNorm(2, 4),
            nn.Conv1d(4, 4, 2),
            nn.InstanceNorm1d(4, affine=True),
            nn.Flatten(),
            nn.Linear(12, 2),
        ),
        (2, 16),
    ),
    "resnet": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 3, 2, 1),
            nn.MaxPool2d(3, 2, 1),
            Block(3, 3, 1),
            Block(3, 4, 2),
            Lambda(lambda x: x.mean([2, 3])),
            nn.Linear(4, 2),
        ),
        (1, 16, 16),
    ),
    "mobile": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU6(),
            nn.Conv2d(4, 4, 3, 1, 1, groups=4, bias=False),
            nn.BatchNorm2d(4),
            nn.Hardswish(),
            nn.Upsample(scale_factor=2),
            nn.ZeroPad2d((1, 0, 0, 1)),
            nn.Conv2d(4, 2, 2),
        ),
        (2, 4, 4),
    ),
    "densenet": (Dense, (2, 4, 4)),
    "unet": (UNet, (1, 8, 8)),
    "inception": (Branches, (2, 5, 5)),
    "convnext": (ConvNeXt, (3, 8, 8)),
    "lstm": (lambda: Last(nn.LSTM(3, 4, batch_first=True), 4), (5, 3)),
    "lstm_both": (lambda: Every(nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True), 8), (5, 3)),
    "gru": (lambda: Last(nn.GRU(3, 4, batch_first=True), 4), (5, 3)),
    "rnn": (lambda: Every(nn.RNN(3, 4, nonlinearity="relu", batch_first=True), 4), (5, 3)),
    "encoder": (lambda: encoder(False), (5, 8)),
    "encoder_first": (lambda: encoder(True, "gelu"), (5, 8)),
    "gpt": (GPT, torch.randint(0, 11, (2, 6))),
    "vit": (ViT, (3, 8, 8)),
    "llama": (Llama, WHOLE),
    "bert": (Bert, WHOLE),
    "excited": (Excited, (3, 13, 13)),
    "shuffled": (Shuffled, (8, 6, 5)),
}


# Also written for two rows alone, as exporters do unless told otherwise.
FIXED = {"lstm", "gpt", "encoder", "vit"}


def shaken(model):
    """Draws what starts at zeros and ones anew, so that nothing falls out."""
    for name, values in [*model.named_parameters(), *model.named_buffers()]:
        if values.is_floating_point() and "frequency" not in name and values.dim() == 1:
            with torch.no_grad():
                values.add_(0.2 * torch.rand_like(values))
    return model.eval()


def write(name):
    torch.manual_seed(len(name))
    make, shape = MODELS[name]
    model = shaken(make())
    x = torch.randn(2, *shape) if isinstance(shape, tuple) else shape
    endings = ["", "_traced"] + (["_fixed", "_fixed_traced"] if name in FIXED else [])
    for ending in endings:
        traced = ending.endswith("_traced")
        stem = HERE / f"torch_{name}{ending}"
        batch = {"dynamo": not traced}
        if not ending.startswith("_fixed"):
            if traced:
                batch["dynamic_axes"] = {"x": {0: "batch"}}
            else:
                batch["dynamic_shapes"] = ({0: torch.export.Dim("batch")},)
        try:
            torch.onnx.export(
                model,
                (x,),
                f"{stem}.onnx",
                input_names=["x"],
                output_names=["y"],
                opset_version=17 if traced else 18,
                verbose=False,
                external_data=False,
                **batch,
            )
        except Exception as error:
            print(stem.name, "is not exported:", str(error)[:200])
            continue
        found = onnx.load(f"{stem}.onnx")
        for node in found.graph.node:
            del node.metadata_props[:]
            node.doc_string = ""
        del found.graph.value_info[:]
        del found.graph.metadata_props[:]
        onnx.save(found, f"{stem}.onnx")
        np.savez(f"{stem}.npz", x=x.numpy(), y=model(x).detach().numpy())


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        write(name)
