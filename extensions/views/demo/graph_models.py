# ruff: noqa: D102, FBT003, N812 - models to look at, not a library
"""Models whose graphs the demo draws: small in width, real in shape."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Bottleneck(nn.Module):
    """A residual block of ResNet-50."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * 4, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * 4)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride > 1 or inputs != width * 4:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, width * 4, 1, stride, bias=False), nn.BatchNorm2d(width * 4)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        skip = x if self.downsample is None else self.downsample(x)
        return self.relu(y + skip)


class ResNet(nn.Module):
    """ResNet-50."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inputs = width
        for stage, depth in enumerate((3, 4, 6, 3)):
            blocks: list[nn.Module] = []
            for block in range(depth):
                stride = 2 if stage and not block else 1
                blocks.append(Bottleneck(inputs, width * 2**stage, stride))
                inputs = width * 2**stage * 4
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


class Block(nn.Module):
    """A convolution beside a skip."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.conv(x))
        return F.relu(y + self.skip(x))


class Head(nn.Module):
    """The mean over the image and a linear layer."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.fc = nn.Linear(inputs, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x.mean((2, 3)))


class EarlyExit(nn.Module):
    """Two losses; one block is frozen, a head is cut off by `detach`, another is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.block1 = Block(3, 32, 1)
        self.block2 = Block(32, 64, 2)
        self.block3 = Block(64, 128, 2)
        self.aux = Head(64)
        self.head = Head(128)
        self.rotation = Head(128)
        self.confidence = nn.Linear(10, 1)
        self.block3.skip.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = self.block2(self.block1(x))
        early = self.aux(x)
        late = self.head(self.block3(x))
        sure = self.confidence(late).sigmoid().detach()
        return early, late, sure


class Asking(EarlyExit):
    """Leaves after the first exit when it is sure; a loop of tests inside, and one at the end."""

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.block2(self.block1(x))
        early = self.aux(x)
        sure = early.softmax(1).amax(1).mean()
        if sure > self.threshold:
            return early, early
        x = self.block3(x)
        scale = x.detach().abs().mean()
        while scale > 0.2:
            scale = scale / 2
        late = self.head(x * scale)
        if not late.isfinite().all() or late.abs().max().item() > 1e4:
            raise FloatingPointError("the late exit is not finite, or nearly")
        return early, late


class DenseLayer(nn.Module):
    """A layer of DenseNet: all features so far, concatenated."""

    def __init__(self, inputs: int, growth: int = 16) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, 1, 1, bias=False)

    def forward(self, features: list[torch.Tensor]) -> torch.Tensor:
        x = self.conv1(F.relu(self.norm1(torch.cat(features, 1))))
        return self.conv2(F.relu(self.norm2(x)))


class DenseBlock(nn.Module):
    """Layers that each see all the ones before."""

    def __init__(self, inputs: int, depth: int, growth: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(inputs + at * growth) for at in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


class DenseNet(nn.Module):
    """DenseNet-201's blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 7, 2, 3, bias=False)
        width, parts = 32, []
        for depth in (6, 12, 48, 32):
            parts.append(DenseBlock(width, depth))
            width += 16 * depth
            parts.append(nn.Conv2d(width, width // 2, 1, bias=False))
            width //= 2
        self.features = nn.Sequential(*parts)
        self.classifier = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(self.stem(x)).mean((2, 3)))


class Distance(nn.Module):
    """A metric loss with the classic mistake: the root of a distance that may be zero."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (self.embed(a) - self.embed(b)).pow(2).sum(1).sqrt()


class Chain(nn.Module):
    """A recurrence written out in Python."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length
        self.scale = nn.Parameter(torch.ones(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.length // 2):
            x = torch.tanh(x * self.scale)
        return x


class Encoder(nn.Module):
    """A small transformer encoder with a classifier."""

    def __init__(self, width: int = 64, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


class EncoderLayer(nn.Module):
    """Attention and a feed-forward part, each with its norm first."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        heads = (part.transpose(1, 2) for part in (q, k, v))
        mixed = F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x))))
