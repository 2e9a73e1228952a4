"""Steps to make twins of, as `between_steps` hands them out."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from workbench.experiment.recipe.losses import Loss
from workbench.experiment.runtime.step_boundary import NextStep
from workbench.modes import ModeSet


def next_step(
    model: nn.Module,
    batch: Any,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    modes: str = "",
    clip_grad_norm: float | None = None,
) -> NextStep:
    """The step that comes next of a training on the CPU, AdamW by default."""
    return NextStep(
        name="digits",
        step=3,
        model=model,
        optimizer=optimizer or torch.optim.AdamW(model.parameters()),
        loss=Loss(),
        modes=ModeSet.parse(modes, "cpu"),
        is_attached=False,
        clip_grad_norm=clip_grad_norm,
        device=torch.device("cpu"),
        batch=batch,
    )


def trained(step: NextStep, num_steps: int = 1) -> NextStep:
    """The same after some steps: the optimizer has its state, parameters their gradients."""
    inputs, targets = step.batch
    for _ in range(num_steps):
        step.optimizer.zero_grad()
        nn.functional.cross_entropy(step.model(inputs), targets).backward()
        step.optimizer.step()
    return step


def mlp(width: int = 32) -> NextStep:
    """A small network with a batch of 8 samples of 16 features."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 10))
    return next_step(model, (torch.randn(8, 16), torch.arange(8)))
