"""Modules of PyTorch as networks and back: how far apart their outputs are.

Usage: torch_models.py, with an interpreter that has PyTorch, numpy and rich, and loom on its path. Prints a
row for each module: the largest difference of `loom.from_torch(module, example)` from the module, of
`loom.to_torch(net)` from the network, and the layers. Ends with 1 where one is above 1e-5 of the largest
output.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it
from torch import Tensor, nn

import loom

Case = tuple[nn.Module, Tensor]


class Block(nn.Module):
    """A ResNet's basic block, with or without a projection."""

    def __init__(self, channels: int, out: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        changed = channels != out or stride != 1
        parts = [nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out)]
        self.downsample = nn.Sequential(*parts) if changed else None

    def forward(self, x: Tensor) -> Tensor:
        """Returns the output."""
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        return F.relu(y)


class ResNet(nn.Module):
    """A small one."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.blocks = nn.Sequential(Block(8, 8), Block(8, 16, 2), Block(16, 16))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the output."""
        return self.fc(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


class Inception(nn.Module):
    """Branches side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 4, 1)
        self.two = nn.Sequential(nn.Conv2d(3, 2, 1), nn.ReLU(), nn.Conv2d(2, 4, 3, padding="same"))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the output."""
        pooled = F.avg_pool2d(x, 3, 1, 1)
        return torch.cat([self.one(x), self.two(x), pooled], dim=1).mean(dim=(2, 3))


class UNet(nn.Module):
    """Skips over what is inside."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.last = nn.ConvTranspose2d(8, 4, 2, 2), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the output."""
        a = self.a(x).relu()
        b = self.b(F.max_pool2d(a, 2)).relu()
        return self.last(torch.cat([a, self.up(b)], 1)).sigmoid()


class Reader(nn.Module):
    """Words, a recurrent layer, a class."""

    def __init__(self, kind: type[nn.Module], how: str, **options: object) -> None:
        super().__init__()
        self.words, self.how = nn.Embedding(20, 6), how
        self.rnn = kind(6, 7, batch_first=True, **options)
        self.head = nn.Linear(14 if options.get("bidirectional") else 7, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the output."""
        out, state = self.rnn(self.words(x))
        hidden = state[0] if isinstance(self.rnn, nn.LSTM) else state
        if self.how == "all":
            return self.head(out)
        if self.how == "both":
            return self.head(torch.cat([hidden[-2], hidden[-1]], dim=1))
        return self.head(hidden[-1] if self.how == "hidden" else out[:, -1])


class Transformer(nn.Module):
    """Words, positions, blocks that see what was before them, scores."""

    def __init__(self, norm_first: bool, positions: str) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(20, 8), positions
        self.table = nn.Embedding(6, 8)
        self.pos = nn.Parameter(torch.randn(1, 6, 8))
        layer = nn.TransformerEncoderLayer(
            8, 2, 12, activation="gelu", batch_first=True, norm_first=norm_first
        )
        self.blocks = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8), enable_nested_tensor=False)
        self.head = nn.Linear(8, 20, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(6))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the output."""
        table = self.table(torch.arange(6)) if self.positions == "table" else self.pos
        return self.head(self.blocks(self.words(x) + table, mask=self.mask))


class Attending(nn.Module):
    """Attention with a mask of one's own, in a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attn = nn.RMSNorm(8, eps=1e-6), nn.MultiheadAttention(8, 4, batch_first=True)
        self.register_buffer("mask", ~torch.ones(5, 5, dtype=torch.bool).tril(1))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the output."""
        y = self.norm(x)
        return x + self.attn(y, y, y, attn_mask=self.mask, need_weights=False)[0]


class Llama(nn.Module):
    """Gated layers, and a head that is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 20, bias=False)
        self.head.weight = self.words.weight
        self.norm, self.gate, self.up = nn.RMSNorm(8), nn.Linear(8, 12), nn.Linear(8, 12)
        self.down = nn.Linear(12, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the output."""
        x = self.words(x)
        y = self.norm(x)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return self.head(x)


class Dynamic(nn.Module):
    """What torch.fx cannot trace, and torch.export can."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.norm, self.conv = nn.LayerNorm(6), nn.Conv1d(4, 2, 3, padding=1)
        self.bn = nn.BatchNorm1d(2)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the output."""
        for layer in self.layers:
            x = x + F.gelu(layer(self.norm(x))) if x.shape[1] > 2 else x
        if x.dim() != 3 or x.shape[-1] % 2:
            raise ValueError("no")
        return F.softmax(self.bn(self.conv(x)).flatten(1), dim=-1)


def real(*shape: int) -> Tensor:
    """Returns random numbers."""
    return torch.randn(*shape)


def words(*shape: int) -> Tensor:
    """Returns random words."""
    return torch.randint(0, 20, shape)


class Excited(nn.Module):
    """Squeeze-and-excitation behind a depthwise convolution, as MobileNet and EfficientNet have it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.Hardswish())
        self.depthwise = nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 4, 1), nn.ReLU6(), nn.Conv2d(4, 8, 1), nn.Hardsigmoid()
        )
        self.last = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the output."""
        x = self.first(x)
        y = self.depthwise(x)
        y = x + y * self.gate(y)
        return self.last(F.max_pool2d(y, 3, 2, ceil_mode=True).mean([2, 3]) / 0.5 - 0.25)


class Shuffled(nn.Module):
    """Halves of the channels, of which one goes through layers, and shuffled channels."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        """Returns the output."""
        kept, changed = x.chunk(2, dim=1)
        y = torch.cat((kept, self.branch(changed)), dim=1)
        batch, channels, height, width = y.shape
        y = y.view(batch, 2, channels // 2, height, width).transpose(1, 2).contiguous()
        first, second, third = y.view(batch, channels, height, width).split([2, 5, 1], dim=1)
        return torch.cat((third, first[:, 1:], torch.tanh(second)), dim=1)[:, :, 1:, ::2]


def read(kind: type[nn.Module], how: str, **options: object) -> Case:
    """A reader and what it reads."""
    return Reader(kind, how, **options), words(3, 5)


def transform(norm_first: bool, positions: str) -> Case:
    """A transformer and what it reads."""
    return Transformer(norm_first, positions), words(2, 6)


def cases() -> dict[str, Callable[[], Case]]:
    """Every module, by name."""
    row = nn.Sequential
    found: dict[str, Callable[[], Case]] = {
        "Linear": lambda: (nn.Linear(4, 3), real(5, 4)),
        "perceptron": lambda: (
            row(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.1), nn.Linear(8, 3, bias=False)),
            real(5, 4),
        ),
        "double": lambda: (row(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double(), real(5, 4).double()),
        "Conv1d": lambda: (
            row(nn.Conv1d(4, 6, 5, 2, 2, 1, 2), nn.LeakyReLU(0.2), nn.MaxPool1d(2), nn.Flatten()),
            real(2, 4, 16),
        ),
        "Conv2d": lambda: (
            row(nn.Conv2d(3, 4, (3, 5), (1, 2), (1, 2)), nn.BatchNorm2d(4), nn.ReLU(), nn.AvgPool2d(2)),
            real(2, 3, 8, 8),
        ),
        "Conv3d": lambda: (
            row(
                nn.Conv3d(2, 4, 3, padding=1, dilation=1),
                nn.GroupNorm(2, 4),
                nn.SiLU(),
                nn.AdaptiveMaxPool3d(2),
            ),
            real(2, 2, 4, 4, 4),
        ),
        "ConvTranspose": lambda: (
            row(nn.ConvTranspose1d(4, 6, 4, 2, 1, groups=2), nn.ELU(0.7)),
            real(2, 4, 8),
        ),
        "ConvTranspose2d": lambda: (
            row(nn.ConvTranspose2d(3, 2, 3, 2, 1, output_padding=1), nn.InstanceNorm2d(2, affine=True)),
            real(2, 3, 4, 4),
        ),
        "norms": lambda: (
            row(
                nn.LayerNorm((4, 6)), nn.Linear(6, 6), nn.LayerNorm(6, bias=False), nn.RMSNorm(6), nn.PReLU()
            ),
            real(2, 4, 6),
        ),
        "BatchNorm1d": lambda: (
            row(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Hardswish(), nn.Softmax(dim=1)),
            real(3, 4),
        ),
        "padding, Unflatten": lambda: (
            row(nn.ZeroPad2d((1, 2, 0, 1)), nn.Flatten(), nn.Unflatten(1, (5, 14)), nn.PReLU(5)),
            real(2, 2, 4, 4),
        ),
        "Embedding": lambda: (row(nn.Embedding(20, 6), nn.Linear(6, 2), nn.Mish()), words(2, 5)),
        "ResNet": lambda: (ResNet(), real(2, 3, 32, 32)),
        "Inception": lambda: (Inception(), real(2, 3, 8, 8)),
        "U-Net": lambda: (UNet(), real(2, 1, 8, 8)),
        "squeeze-and-excitation": lambda: (Excited(), real(2, 3, 13, 13)),
        "shuffled channels": lambda: (Shuffled(), real(2, 8, 6, 5)),
        "attention": lambda: (Attending(), real(2, 5, 8)),
        "encoder layer": lambda: (nn.TransformerEncoderLayer(8, 2, 12, batch_first=True), real(2, 5, 8)),
        "gated, tied": lambda: (Llama(), words(2, 6)),
        "torch.export": lambda: (Dynamic(), real(2, 4, 6)),
    }
    for kind in (nn.RNN, nn.LSTM, nn.GRU):
        for how in ("all", "hidden", "last"):
            name = f"{kind.__name__}, {how}"
            found[name] = partial(read, kind, how, num_layers=2)
        name = f"{kind.__name__}, both directions"
        found[name] = partial(read, kind, "both", bidirectional=True)
    for first in (True, False):
        for positions in ("table", "parameter"):
            name = f"transformer, norm {'first' if first else 'last'}, {positions}"
            found[name] = partial(transform, first, positions)
    return found


def moved(module: nn.Module) -> nn.Module:
    """Gives every parameter and running statistic another value than that it begins with."""
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.add_(0.1 * torch.randn_like(tensor))
        for name, tensor in module.named_buffers():
            if "running" in name:
                tensor.copy_(torch.rand_like(tensor) + 0.5)
    return module.eval()


def main() -> int:
    """Prints the table."""
    worst = 0.0
    print(f"{'module':34} {'from_torch':>10} {'to_torch':>10}  layers")
    for name, make in cases().items():
        torch.manual_seed(0)
        module, example = make()
        with torch.no_grad():
            expected = moved(module)(example).numpy()
            net = loom.from_torch(module, example)
            own = net.predict(example.numpy())
            back = loom.to_torch(net)(example).numpy()
        scale = max(1.0, float(np.abs(expected).max()))
        apart = [
            float(np.abs(values - other).max()) / scale for values, other in ((own, expected), (back, own))
        ]
        worst = max(worst, *apart)
        kinds = " ".join(layer.kind for layer in net.layers)
        print(f"{name:34} {apart[0]:10.1e} {apart[1]:10.1e}  {kinds[:80]}")
    print(f"worst {worst:.1e}")
    return int(worst > 1e-5)


if __name__ == "__main__":
    sys.exit(main())
