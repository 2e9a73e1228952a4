"""A copy of everything in a step, on which the step can run without changing the training.

A *fake* copy holds fake tensors (``torch._subclasses.FakeTensorMode``): they have shapes, dtypes
and storages, but no memory behind them, and operations on them compute only shapes. So the step of
a model that is too large for this machine can be run, in a fraction of the time. A *real* copy
holds copies of the tensors. Both are on the CPU, even if the training is not: in a torch build
without CUDA, a fake CUDA tensor that requires a gradient ends the process.

Parameters are copied first, and every other tensor when ``copy.deepcopy`` reaches it, so that what
is shared stays shared, also between model and optimizer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from workbench.experiment.data.data import batch_size_of, split
from workbench.experiment.recipe.losses import Loss
from workbench.experiment.runtime.step_boundary import NextStep
from workbench.modes import ModeSet
from workbench.torch_private.memory import fake_mode, original_module

Make = Callable[[torch.Tensor], torch.Tensor]
CPU = torch.device("cpu")


class StepCopyError(RuntimeError):
    """Raised if a step cannot be copied, or the copy cannot be run; the message says why."""


@dataclass(frozen=True, eq=False, kw_only=True)
class StepCopy:
    """The parts of a step, all of them the copy's own."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    loss: Loss
    modes: ModeSet
    """The modes of the step, as they are on the CPU, with nothing compiled."""
    clip_grad_norm: float | None
    inputs: Any
    targets: Any
    batch_size: int
    """Samples in the batch; -1 if unknown."""
    is_fake: bool
    context: AbstractContextManager[Any]
    """Must be entered while the copy runs."""


def copy_of_step(step: NextStep, *, fake: bool, batch: int | None = None) -> StepCopy:
    """Make a copy of a step.

    Args:
        step: the step to copy.
        fake: whether its tensors have no memory behind them.
        batch: samples in its batch; None: as many as in the step.

    Raises:
        StepCopyError: something in the step cannot be copied.
        ValueError: its batch has no samples that can be counted.
    """
    mode = fake_mode() if fake else None
    make: Make = _copied if mode is None else _Faking(mode)
    inputs, targets = split(step.batch)
    size = batch_size_of(inputs, targets)
    parts = (original_module(step.model), step.optimizer, step.loss, (inputs, targets))
    try:
        model, optimizer, loss, (inputs, targets) = _deep_copy(parts, make)
    except Exception as error:
        raise StepCopyError(f"the step cannot be copied ({_reason(error)})") from error
    for parameter in model.parameters():
        parameter.grad = None
    modes = _eager(step.modes)
    if not step.is_attached:
        modes.attach(model)
    context = nullcontext() if mode is None else mode
    if batch is not None and batch != size:
        with context:
            inputs, targets = (_resized(part, size, batch) for part in (inputs, targets))
        size = batch
    return StepCopy(
        model=model,
        optimizer=optimizer,
        loss=loss,
        modes=modes,
        clip_grad_norm=step.clip_grad_norm,
        inputs=inputs,
        targets=targets,
        batch_size=size,
        is_fake=fake,
        context=context,
    )


def _eager(modes: ModeSet) -> ModeSet:
    """Return the same modes on the CPU; nothing is compiled for a copy."""
    return ModeSet({mode.name: mode.value for mode in modes if mode.name != "compile"}, CPU)


def _deep_copy(parts: Any, make: Make) -> Any:
    model: nn.Module = parts[0]
    memo: dict[int, Any] = {}
    with torch.no_grad():
        for parameter in model.parameters():
            memo.setdefault(id(parameter), make(parameter))
        with _Copying(make):
            return copy.deepcopy(parts, memo)


class _Copying(TorchFunctionMode):
    """Make ``copy.deepcopy`` of a tensor return the result of ``make``."""

    def __init__(self, make: Make) -> None:
        super().__init__()
        self._make = make

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.Tensor.__deepcopy__:
            return func(*args, **(kwargs or {}))
        tensor, memo = args
        if id(tensor) not in memo:
            memo[id(tensor)] = self._make(tensor)
        return memo[id(tensor)]


class _Faking:
    """Make fake tensors; single numbers keep their value: optimizers read their step count."""

    def __init__(self, mode: Any) -> None:
        self._mode = mode

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        is_local = tensor.device.type == "cpu"
        if is_local and not (tensor.ndim or tensor.requires_grad or tensor.is_complex()):
            value = tensor.item()
            with self._mode:
                return torch.tensor(value, dtype=tensor.dtype, device="cpu")
        fake = self._mode.from_tensor(tensor)
        if is_local:
            return fake
        with self._mode:
            return _like(tensor, fake.detach().cpu())


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """Copy the values of a tensor into new memory, without its autograd history."""
    found = tensor.detach()
    return _like(tensor, found.clone() if found.device.type == "cpu" else found.cpu())


def _like(tensor: torch.Tensor, found: torch.Tensor) -> torch.Tensor:
    """Make ``found`` like ``tensor``: a parameter, a leaf that requires a gradient, or neither."""
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(found, tensor.requires_grad)
    return found.requires_grad_(tensor.requires_grad)


def _resized(value: Any, before: int, batch: int) -> Any:
    """Return a batch of another size: the same samples repeated, or the first of them."""
    if batch < 1 or before < 1:
        raise ValueError(
            f"a batch of {batch:,} samples was requested, and the step's has "
            f"{before if before > 0 else 'an unknown number'}; both need at least 1"
        )
    if isinstance(value, torch.Tensor):
        if not value.ndim or len(value) != before:
            return value
        return value[torch.arange(batch, device=value.device) % before]
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {key: _resized(item, before, batch) for key, item in items}
    if type(value) in (list, tuple):
        return type(value)(_resized(item, before, batch) for item in cast("list[Any]", value))
    return value


def _reason(error: Exception) -> str:
    first = str(error).partition("\n")[0][:200]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
