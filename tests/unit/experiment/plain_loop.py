"""The loop that PyTorch's documentation has: the judge of what an experiment computes.

Nothing of the package is used here, so equal numbers are numbers that a person would have had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import nn

Model = TypeVar("Model", bound=nn.Module)
Pair = tuple[torch.Tensor, torch.Tensor]
NUM_SAMPLES, BATCH, FEATURES, CLASSES = 64, 16, 6, 3
STEPS_PER_EPOCH = NUM_SAMPLES // BATCH


def data(count: int = NUM_SAMPLES, seed: int = 1) -> Pair:
    """``count`` samples of 6 features with labels of 3 classes, which can be learnt in part."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, FEATURES, generator=generator)
    noise = torch.randn(count, CLASSES, generator=generator)
    return x, (x[:, :CLASSES] + noise).argmax(1)


def batches(pair: Pair, size: int = BATCH) -> list[Pair]:
    """The samples in their order, cut into batches; the last may be short."""
    return list(zip(*(part.split(size) for part in pair), strict=True))


def seeded(make: Callable[[], Model], seed: int = 3) -> Model:
    """A model with the same weights every time."""
    torch.manual_seed(seed)
    return make()


def linear() -> nn.Linear:
    """The smallest model that learns `data`."""
    return nn.Linear(FEATURES, CLASSES)


def plain_loop(
    model: nn.Module,
    loader: Iterable[Any],
    optimizer: torch.optim.Optimizer,
    *,
    epochs: int = 1,
    loss_of: Callable[..., torch.Tensor] = F.cross_entropy,
    seed: int = 0,
    before_update: Callable[[], object] = lambda: None,
    after_step: Callable[[], object] = lambda: None,
    after_epoch: Callable[[], object] = lambda: None,
) -> list[float]:
    """Train, and give the loss of every step."""
    losses: list[float] = []
    torch.manual_seed(seed)
    for _ in range(epochs):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            before_update()
            optimizer.step()
            losses.append(loss.item())
            after_step()
        after_epoch()
    return losses


def evaluated(model: nn.Module, loader: Iterable[Any]) -> tuple[float, float]:
    """Loss and accuracy in eval mode; batches are of one size."""
    model.eval()
    losses: list[float] = []
    right: list[float] = []
    with torch.no_grad():
        for x, y in loader:
            logits = model(x)
            losses.append(F.cross_entropy(logits, y).item())
            right.append((logits.argmax(1) == y).float().mean().item())
    model.train()
    return sum(losses) / len(losses), sum(right) / len(right)


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """A copy of everything that a model keeps."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def assert_equal(found: nn.Module, expected: nn.Module) -> None:
    """Equal to the last bit."""
    torch.testing.assert_close(found.state_dict(), expected.state_dict(), rtol=0, atol=0)
