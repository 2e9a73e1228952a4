"""The six models on which a capture is proved, at the sizes of their papers, with small inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.models.densenet import DenseNet
from tests.models.recurrent import LSTMLoop
from tests.models.resnet import ResNet
from tests.models.swin import Swin
from tests.models.vit import ViT


class Logits(nn.Module):
    """A Hugging Face classifier that returns its logits alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=ids).logits


def bert_base() -> nn.Module:
    """BERT-base with a head for two classes, from its configuration: nothing is downloaded."""
    transformers = pytest.importorskip("transformers", reason="pip install transformers")
    return Logits(transformers.BertForSequenceClassification(transformers.BertConfig()))


@dataclass(frozen=True)
class Case:
    """A model and what it takes."""

    name: str
    build: Callable[[], nn.Module]
    num_parameters: int
    """As published for 1000 classes (BERT: two)."""
    shape: tuple[int, ...]
    vocabulary: int = 0
    """Number of tokens where the input is integers."""

    def make(self) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
        """The model, a batch and its labels; the same each time."""
        torch.manual_seed(0)
        model = self.build()
        x = torch.randint(self.vocabulary, self.shape) if self.vocabulary else None
        return model, torch.randn(self.shape) if x is None else x, torch.zeros(self.shape[0]).long()

    def __str__(self) -> str:
        return self.name


def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(x), y)


SIX = (
    Case("ResNet-50", ResNet, 25_557_032, (2, 3, 64, 64)),
    Case("ViT-B/16", ViT, 86_567_656, (1, 3, 224, 224)),
    Case("Swin-T", Swin, 28_288_354, (1, 3, 224, 224)),
    Case("BERT-base", bert_base, 109_483_778, (1, 32), vocabulary=30_522),
    Case("DenseNet-201", DenseNet, 20_013_928, (2, 3, 32, 32)),
    Case("LSTMCell x 660", LSTMLoop, 6_730, (4, 660, 16)),
)
