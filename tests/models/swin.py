"""Swin-T (Liu et al., 2021, https://arxiv.org/abs/2103.14030)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

Tensor = torch.Tensor


def relative_index(window: int) -> Tensor:
    """``[window⁴]``: which of the ``(2·window - 1)²`` offsets each pair of tokens has."""
    place = torch.stack(torch.meshgrid(*[torch.arange(window)] * 2, indexing="ij")).flatten(1)
    offset = (place[:, :, None] - place[:, None, :]).permute(1, 2, 0) + window - 1
    return (offset[..., 0] * (2 * window - 1) + offset[..., 1]).flatten()


def split_windows(x: Tensor, window: int) -> Tensor:
    """``[batch, height, width, channels]`` -> ``[batch · windows, window², channels]``."""
    batch, height, width, channels = x.shape
    x = x.view(batch, height // window, window, width // window, window, channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, window * window, channels)


def join_windows(x: Tensor, window: int, height: int, width: int) -> Tensor:
    """The way back."""
    x = x.view(-1, height // window, width // window, window, window, x.shape[-1])
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, height, width, x.shape[-1])


def shift_mask(height: int, width: int, window: int, shift: int) -> Tensor:
    """``[windows, window², window²]``: -inf between tokens that the shift brought together."""
    region = torch.zeros(1, height, width, 1)
    cuts = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
    for row, rows in enumerate(cuts):
        for column, columns in enumerate(cuts):
            region[:, rows, columns] = 3 * row + column
    label = split_windows(region, window).squeeze(-1)
    differs = label[:, None, :] != label[:, :, None]
    return torch.zeros(differs.shape).masked_fill(differs, float("-inf"))


class WindowAttention(nn.Module):
    def __init__(self, channels: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)
        self.bias = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.02)
        self.register_buffer("index", relative_index(window), persistent=False)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        windows, tokens, channels = x.shape
        qkv = self.qkv(x).view(windows, tokens, 3, self.heads, channels // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q * (channels // self.heads) ** -0.5) @ k.transpose(-2, -1)
        scores = scores + self.bias[self.index].view(tokens, tokens, -1).permute(2, 0, 1)
        if mask is not None:
            scores = scores.view(-1, len(mask), self.heads, tokens, tokens) + mask[:, None]
            scores = scores.view(windows, self.heads, tokens, tokens)
        y = scores.softmax(-1) @ v
        return self.proj(y.transpose(1, 2).reshape(windows, tokens, channels))


class Block(nn.Module):
    def __init__(self, channels: int, heads: int, side: int, window: int, shift: int) -> None:
        super().__init__()
        self.window, self.shift = window, shift if side > window else 0
        self.norm1 = nn.LayerNorm(channels)
        self.attention = WindowAttention(channels, heads, window)
        self.norm2 = nn.LayerNorm(channels)
        self.mlp = nn.Sequential(
            nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels)
        )
        mask = shift_mask(side, side, window, self.shift) if self.shift else None
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))

    def attend(self, x: Tensor) -> Tensor:
        _, height, width, _ = x.shape
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        y = self.attention(split_windows(x, self.window), self.mask)
        y = join_windows(y, self.window, height, width)
        return torch.roll(y, (self.shift, self.shift), (1, 2)) if self.shift else y


class PatchMerging(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * channels)
        self.reduction = nn.Linear(4 * channels, 2 * channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        corners = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.reduction(self.norm(torch.cat(corners, -1)))


class Swin(nn.Module):
    """Takes ``[batch, 3, side, side]``, gives logits ``[batch, classes]``."""

    def __init__(
        self,
        side: int = 224,
        channels: int = 96,
        depths: tuple[int, ...] = (2, 2, 6, 2),
        heads: tuple[int, ...] = (3, 6, 12, 24),
        window: int = 7,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, channels, 4, 4)
        self.patch_norm = nn.LayerNorm(channels)
        side //= 4
        stages: list[nn.Module] = []
        for stage, depth in enumerate(depths):
            if stage:
                stages.append(PatchMerging(channels))
                channels, side = 2 * channels, side // 2
            shifts = [window // 2 * (block % 2) for block in range(depth)]
            blocks = [Block(channels, heads[stage], side, window, shift) for shift in shifts]
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.norm = nn.LayerNorm(channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch_norm(self.patch(x).permute(0, 2, 3, 1))
        x = self.norm(self.stages(x))
        return self.head(F.adaptive_avg_pool2d(x.permute(0, 3, 1, 2), 1).flatten(1))
