"""What a run leaves at every step, to be compared bit by bit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass
class Trace:
    """Of a whole run."""

    losses: list[float] = field(default_factory=list[float])
    states: list[dict[str, torch.Tensor]] = field(default_factory=list[dict[str, torch.Tensor]])
    """After every step: parameters, buffers and the random state."""
    moments: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    """At the end: what the optimizer keeps."""
    rates: list[tuple[float, ...]] = field(default_factory=list[tuple[float, ...]])
    validations: list[tuple[float, float | None]] = field(
        default_factory=list[tuple[float, "float | None"]]
    )
    """Loss and accuracy of each."""

    def took(
        self, loss: float, model: nn.Module, loss_of: Any, optimizer: torch.optim.Optimizer
    ) -> None:
        """A step has gone through."""
        self.losses.append(loss)
        state = {name: tensor.detach().clone() for name, tensor in tensors(model, loss_of)}
        state["random numbers"] = torch.get_rng_state()
        if torch.cuda.is_initialized():
            state["random numbers on the GPU"] = torch.cuda.get_rng_state()
        self.states.append(state)
        self.rates.append(tuple(float(group["lr"]) for group in optimizer.param_groups))

    def ended(self, optimizer: torch.optim.Optimizer) -> None:
        """The run is over."""
        held = [p for group in optimizer.param_groups for p in group["params"]]
        for at, parameter in enumerate(held):
            state = optimizer.state.get(parameter, {})
            if isinstance(state.get("step"), torch.Tensor) and not state["step"]:
                continue  # made by a fused optimizer for an update that a scaler skipped
            for name, value in state.items():
                if isinstance(value, torch.Tensor):
                    self.moments[f"{at}.{name}"] = value.detach().clone()


def tensors(model: nn.Module, loss_of: Any) -> list[tuple[str, torch.Tensor]]:
    """Parameters and buffers, of a loss as well."""
    found = [*model.named_parameters(), *model.named_buffers()]
    if isinstance(loss_of, nn.Module):
        found += [(f"loss.{name}", one) for name, one in loss_of.named_parameters()]
    return found


def difference(ours: Trace, plain: Trace) -> str:
    """The first thing that differs, in a sentence; ``""`` where nothing does."""
    return _in_steps(ours, plain) or _in_moments(ours, plain) or _in_validations(ours, plain)


def _in_steps(ours: Trace, plain: Trace) -> str:
    for at, (mine, theirs) in enumerate(zip(ours.losses, plain.losses, strict=False), 1):
        if not _same(torch.tensor(mine), torch.tensor(theirs)):
            return f"the loss of step {at} is {mine!r}, and {theirs!r} in a plain loop"
        if ours.rates[at - 1] != plain.rates[at - 1]:
            return f"the rates of step {at} are {ours.rates[at - 1]}, not {plain.rates[at - 1]}"
        for name, value in plain.states[at - 1].items():
            if name not in ours.states[at - 1]:
                return f"there is no {name} after step {at}"
            if not _same(ours.states[at - 1][name], value):
                return f"{name} differs after step {at}"
    if len(ours.losses) != len(plain.losses):
        return f"there are {len(ours.losses)} steps, and {len(plain.losses)} in a plain loop"
    return ""


def _in_moments(ours: Trace, plain: Trace) -> str:
    if ours.moments.keys() != plain.moments.keys():
        return f"the optimizer keeps {sorted(ours.moments)}, not {sorted(plain.moments)}"
    for name, value in plain.moments.items():
        if not _same(ours.moments[name], value):
            return f"the optimizer's {name} differs at the end"
    return ""


def _in_validations(ours: Trace, plain: Trace) -> str:
    if len(ours.validations) != len(plain.validations):
        return f"{len(ours.validations)} validations, and {len(plain.validations)} in a plain loop"
    for at, (mine, theirs) in enumerate(zip(ours.validations, plain.validations, strict=True), 1):
        if not _close(mine[0], theirs[0]):
            return f"validation {at} has a loss of {mine[0]!r}, not {theirs[0]!r}"
        known = mine[1] is not None and theirs[1] is not None
        if (known and abs(mine[1] - theirs[1]) > 1e-6) or (mine[1] is None) != (theirs[1] is None):
            return f"validation {at} has an accuracy of {mine[1]!r}, not {theirs[1]!r}"
    return ""


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.is_complex():
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    equal = one == other
    if one.is_floating_point():
        equal |= one.isnan() & other.isnan()
    return bool(equal.all())


def _close(one: float, other: float) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other or abs(one - other) <= 2e-5 * max(abs(one), abs(other))
