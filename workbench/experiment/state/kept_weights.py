"""Restore weights exactly, to the last bit, after a temporary switch to eval mode.

``eval()`` and ``train()`` of a schedule-free optimizer write every parameter, and those of a module
may write some (LoRA merges its weights): ``(a + b) - b`` is not ``a`` in floating point. A plain
loop that validates has that difference, and so has an experiment; code that only inspects must not
cause it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.parameter import is_lazy

if TYPE_CHECKING:
    from workbench.experiment.training import Training


@contextmanager
def kept_weights(training: Training) -> Generator[None]:
    """Restore on exit the values that eval and train mode may write; they are copied to the CPU."""
    kept = [(p, p.detach().to("cpu", copy=True)) for p in _written(training) if not is_lazy(p)]
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, values in kept:
                parameter.copy_(values)


def _written(training: Training) -> list[nn.Parameter]:
    """Parameters that ``eval`` or ``train`` of an optimizer or of a module may write."""
    if callable(getattr(training.optimizer, "eval", None)):
        return training.parameters
    own = (module.parameters() for module in training.model.modules() if _has_own_modes(module))
    return list({id(p): p for p in chain.from_iterable(own)}.values())


def _has_own_modes(module: nn.Module) -> bool:
    one = type(module)
    overridden = one.train is not nn.Module.train or one.eval is not nn.Module.eval
    return overridden or not vars(module).keys().isdisjoint(("train", "eval"))
