"""DenseNet-201 (Huang et al., 2016, https://arxiv.org/abs/1608.06993), the variant with bottlenecks
and compression (DenseNet-BC)."""

from __future__ import annotations

import torch
from torch import nn

Tensor = torch.Tensor


class DenseLayer(nn.Module):
    """Takes every feature map of its block so far and adds one of ``growth`` channels."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, features: list[Tensor]) -> Tensor:
        x = self.conv1(self.relu1(self.norm1(torch.cat(features, 1))))
        return self.conv2(self.relu2(self.norm2(x)))


class DenseBlock(nn.ModuleDict):
    def __init__(self, layers: int, inputs: int, growth: int) -> None:
        super().__init__(
            {f"layer{i + 1}": DenseLayer(inputs + i * growth, growth) for i in range(layers)}
        )

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.values():
            features.append(layer(features))
        return torch.cat(features, 1)


class Transition(nn.Sequential):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(inputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(inputs, inputs // 2, 1, bias=False)
        self.pool = nn.AvgPool2d(2, 2)


class DenseNet(nn.Module):
    """Takes ``[batch, 3, height, width]``, gives logits ``[batch, classes]``."""

    def __init__(
        self,
        layers: tuple[int, ...] = (6, 12, 48, 32),
        growth: int = 32,
        channels: int = 64,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.features = nn.Sequential()
        self.features.add_module("conv0", nn.Conv2d(3, channels, 7, 2, 3, bias=False))
        self.features.add_module("norm0", nn.BatchNorm2d(channels))
        self.features.add_module("relu0", nn.ReLU(inplace=True))
        self.features.add_module("pool0", nn.MaxPool2d(3, 2, 1))
        for index, count in enumerate(layers, start=1):
            self.features.add_module(f"denseblock{index}", DenseBlock(count, channels, growth))
            channels += count * growth
            if index < len(layers):
                self.features.add_module(f"transition{index}", Transition(channels))
                channels //= 2
        self.features.add_module("norm5", nn.BatchNorm2d(channels))
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.pool(self.relu(self.features(x))).flatten(1))
