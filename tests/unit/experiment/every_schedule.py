"""Every class of scheduler that torch has, made for rates of any size over two groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler, swa_utils

STEPS = 40
FIRST, SECOND = 0.5, 0.125
"""Rates of the two groups that schedules are made for."""

Make = Callable[[torch.optim.Optimizer, float], Any]
"""Makes a schedule whose rates are all a factor times those it is usually made with."""


def two_groups(factor: float = 1.0, kind: Callable[[float], Any] = float) -> torch.optim.Optimizer:
    model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    groups = [
        {"params": model[0].parameters(), "lr": kind(FIRST * factor)},
        {"params": model[1].parameters(), "lr": kind(SECOND * factor)},
    ]
    return torch.optim.SGD(groups, lr=kind(0.01), momentum=0.9)


def rates(optimizer: torch.optim.Optimizer) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


def momenta(optimizer: torch.optim.Optimizer) -> list[float]:
    return [float(group["momentum"]) for group in optimizer.param_groups]


def one_cycle(optimizer: torch.optim.Optimizer, factor: float, **options: Any) -> Any:
    peaks = [FIRST * factor, SECOND * factor]
    return lr_scheduler.OneCycleLR(optimizer, peaks, total_steps=STEPS, **options)


def cyclic(optimizer: torch.optim.Optimizer, factor: float, **options: Any) -> Any:
    low, high = [0.1 * factor, 0.02 * factor], [FIRST * factor, SECOND * factor]
    return lr_scheduler.CyclicLR(optimizer, low, high, step_size_up=6, **options)


def plateau(optimizer: torch.optim.Optimizer, factor: float, **options: Any) -> Any:
    options.setdefault("min_lr", [0.06 * factor, 0.03 * factor])
    return lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=1, eps=1e-3 * factor, **options
    )


def sequential(optimizer: torch.optim.Optimizer, factor: float) -> Any:
    parts = [
        lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5),
        lr_scheduler.CosineAnnealingLR(optimizer, STEPS - 15, eta_min=0.01 * factor),
        lr_scheduler.ExponentialLR(optimizer, 0.9),
    ]
    return lr_scheduler.SequentialLR(optimizer, parts, [5, STEPS - 10])


def chained(optimizer: torch.optim.Optimizer, _factor: float) -> Any:
    parts = [
        lr_scheduler.ConstantLR(optimizer, 0.25, total_iters=4),
        lr_scheduler.ExponentialLR(optimizer, 0.95),
    ]
    return lr_scheduler.ChainedScheduler(parts, optimizer=optimizer)


def nested(optimizer: torch.optim.Optimizer, factor: float) -> Any:
    warm = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5)
    rest = lr_scheduler.SequentialLR(
        optimizer,
        [
            lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 7, eta_min=0.02 * factor),
            lr_scheduler.StepLR(optimizer, 4, 0.5),
        ],
        [20],
    )
    return lr_scheduler.ChainedScheduler([warm, rest], optimizer=optimizer)


def swa(optimizer: torch.optim.Optimizer, factor: float, **options: Any) -> Any:
    return swa_utils.SWALR(optimizer, [0.05 * factor, 0.02 * factor], anneal_epochs=12, **options)


def plain(cls: Any, *args: Any, **options: Any) -> Make:
    return lambda optimizer, _factor: cls(optimizer, *args, **options)


SCHEDULES: dict[str, Make] = {
    "lambda": plain(lr_scheduler.LambdaLR, lambda step: 0.9**step),
    "lambdas": plain(lr_scheduler.LambdaLR, [lambda step: 0.9**step, lambda step: 1 / (1 + step)]),
    "multiplicative": plain(lr_scheduler.MultiplicativeLR, lambda step: 0.95),
    "step": plain(lr_scheduler.StepLR, 7, 0.5),
    "multi step": plain(lr_scheduler.MultiStepLR, [5, 9, 9, 30], 0.5),
    "constant": plain(lr_scheduler.ConstantLR, 0.25, 12),
    "linear": plain(lr_scheduler.LinearLR, 0.1, 0.9, 30),
    "exponential": plain(lr_scheduler.ExponentialLR, 0.93),
    "polynomial": plain(lr_scheduler.PolynomialLR, 35, 2.0),
    "cosine": plain(lr_scheduler.CosineAnnealingLR, STEPS),
    "cosine, eta_min": lambda o, f: lr_scheduler.CosineAnnealingLR(o, STEPS, eta_min=0.05 * f),
    "cosine past its end": lambda o, f: lr_scheduler.CosineAnnealingLR(o, 12, eta_min=0.05 * f),
    "restarts": lambda o, f: lr_scheduler.CosineAnnealingWarmRestarts(o, 9, 2, eta_min=0.05 * f),
    "one cycle": one_cycle,
    "one cycle, 3 phases": lambda o, f: one_cycle(
        o, f, three_phase=True, anneal_strategy="linear", final_div_factor=100.0
    ),
    "cyclic": cyclic,
    "cyclic, exp_range": lambda o, f: cyclic(o, f, mode="exp_range", gamma=0.97),
    "cyclic, own": lambda o, f: cyclic(o, f, scale_fn=lambda x: 1 / (1 + x), scale_mode="cycle"),
    "plateau": plateau,
    "plateau, one bound": lambda o, f: plateau(o, f, min_lr=0.06 * f),
    "swa": swa,
    "swa, linear": lambda o, f: swa(o, f, anneal_strategy="linear"),
    "sequential": sequential,
    "chained": chained,
    "nested": nested,
}
