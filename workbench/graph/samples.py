"""Some values of a gradient that stand for all of them, where counting all would take too long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

EXACT_ZEROS = 2**13
"""Gradients of at most this many values have their zeros counted, larger ones are sampled."""
NUM_SAMPLES = 2**11
"""Evenly spaced values looked at in a larger one: a standard error of at most 1.1 % of all."""


def evenly_spaced(values: Tensor, step: int) -> Tensor:
    """About `NUM_SAMPLES` values. The step is odd, so that it does not stay in one channel."""
    positions = torch.arange(0, values.numel(), step, device=values.device)
    return values[torch.unravel_index(positions, values.shape)]


def sample_of(values: Tensor, most: int = NUM_SAMPLES) -> Tensor:
    """A copy of about ``most`` evenly spaced values, of all where those are few; on the device."""
    count = values.numel()
    if count <= min(2 * most, EXACT_ZEROS):
        return values.reshape(-1).clone()
    step = count // most | 1
    if is_dense(values):
        return values.as_strided((count,), (1,))[::step].clone()
    return evenly_spaced(values, step)


def is_dense(values: Tensor) -> bool:
    """Whether its elements fill one stretch of memory, in any order of the dimensions."""
    if values.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(values.stride(), values.shape, strict=True)):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True
