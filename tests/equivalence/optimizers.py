"""Optimizers and schedules of a recipe: all of torch's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler

Make = Callable[[Any], torch.optim.Optimizer]

DENSE: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "sgd, momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "sgd, maximize": lambda p: torch.optim.SGD(p, lr=0.01, weight_decay=0.1, maximize=True),
    "sgd, fused": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, fused=True),
    "sgd, tensor rate": lambda p: torch.optim.SGD(p, lr=torch.tensor(0.05), foreach=False),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adam, amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True, foreach=False),
    "adam, fused": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "adamw, at once": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.005, momentum=0.5, centered=True),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.05),
}
SPARSE: dict[str, Make] = {
    "sgd": DENSE["sgd"],
    "sparse adam": lambda p: torch.optim.SparseAdam(p, lr=0.01),
    "adagrad": DENSE["adagrad"],
}
"""For models all of whose gradients are sparse, or an optimizer that takes both."""
NOT_COMPLEX = ("adafactor", "sgd, fused", "adam, fused")
NOT_MIXED = ("sparse adam",)
"""Sparse gradients alone."""

OVER = ("all", "groups", "head")
"""Which parameters: all, in two groups of different rates, or the last layer's alone."""


def make_optimizer(
    name: str, over: str, model: nn.Module, more: Iterable[nn.Parameter]
) -> torch.optim.Optimizer:
    """An optimizer over what trains of ``model``, and ``more``."""
    make = {**DENSE, **SPARSE}[name]
    trained = [p for p in model.parameters() if p.requires_grad]
    if over == "head":
        trained = trained[-2:]
    trained += list(more)
    if name == "sparse adam":
        trained = [p for p in trained if p.ndim == 2 and p.shape[1] == 8][:1]
    if over == "groups" and len(trained) > 2:
        first = make([trained[0]])
        rest = {"params": trained[1:], "lr": first.param_groups[0]["lr"] * 0.5}
        first.add_param_group(rest)
        return first
    return make(trained)


@dataclass(frozen=True)
class ScheduleOf:
    """How to make one for a run of so many steps, and after what it steps."""

    make: Callable[[torch.optim.Optimizer, int], Any]
    every: str
    fed: str = ""
    """``loss`` or ``accuracy``, where it goes by one."""
    changes_momentum: bool = False


def _each(make: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[..., Any]:
    return lambda optimizer, steps: make(optimizer, *arguments, **options)


def _warm_up_then_cosine(optimizer: torch.optim.Optimizer, steps: int) -> Any:
    warm = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3)
    rest = lr_scheduler.CosineAnnealingLR(optimizer, max(2, steps - 3))
    return lr_scheduler.SequentialLR(optimizer, [warm, rest], [3])


def _chained(optimizer: torch.optim.Optimizer, steps: int) -> Any:
    first = lr_scheduler.ConstantLR(optimizer, 0.5, total_iters=2)
    return lr_scheduler.ChainedScheduler([first, lr_scheduler.ExponentialLR(optimizer, 0.95)])


SCHEDULES: dict[str, ScheduleOf] = {
    "step": ScheduleOf(_each(lr_scheduler.StepLR, 2, 0.5), "epoch"),
    "multi step": ScheduleOf(_each(lr_scheduler.MultiStepLR, [1, 2], 0.5), "epoch"),
    "constant": ScheduleOf(_each(lr_scheduler.ConstantLR, 0.5, 1), "epoch"),
    "linear": ScheduleOf(_each(lr_scheduler.LinearLR, 0.1, 1.0, 4), "step"),
    "exponential": ScheduleOf(_each(lr_scheduler.ExponentialLR, 0.9), "step"),
    "cosine": ScheduleOf(lr_scheduler.CosineAnnealingLR, "step"),
    "cosine, restarts": ScheduleOf(_each(lr_scheduler.CosineAnnealingWarmRestarts, 3), "step"),
    "polynomial": ScheduleOf(_each(lr_scheduler.PolynomialLR, 5, 2.0), "step"),
    "lambda": ScheduleOf(_each(lr_scheduler.LambdaLR, lambda at: 1 / (1 + at)), "step"),
    "multiplicative": ScheduleOf(_each(lr_scheduler.MultiplicativeLR, lambda at: 0.9), "epoch"),
    "cyclic": ScheduleOf(
        _each(lr_scheduler.CyclicLR, 0.001, 0.05, step_size_up=3, cycle_momentum=False), "step"
    ),
    "one cycle": ScheduleOf(
        lambda o, steps: lr_scheduler.OneCycleLR(o, 0.05, steps + 1, cycle_momentum=False), "step"
    ),
    "plateau": ScheduleOf(
        _each(lr_scheduler.ReduceLROnPlateau, patience=0, threshold=0.05), "epoch", "loss"
    ),
    "plateau, accuracy": ScheduleOf(
        _each(lr_scheduler.ReduceLROnPlateau, mode="max", patience=0), "epoch", "accuracy"
    ),
    "warm-up, cosine": ScheduleOf(_warm_up_then_cosine, "step"),
    "chained": ScheduleOf(_chained, "step"),
}
