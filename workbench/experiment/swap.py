"""Hot swap: a new model takes over what fits of the old one, by name and shape."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from workbench.records import CarryRow


def swap(
    old: nn.Module, new: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device
) -> tuple[torch.optim.Optimizer, tuple[CarryRow, ...]]:
    """Carry weights, buffers and optimizer state from ``old`` to ``new``.

    Parameters and buffers of the same name and shape are copied; a parameter's optimizer state goes
    with it. A new parameter joins the optimizer group of its old namesake, else the first group.

    Returns:
        The optimizer of the new model (same class and settings, live learning rate included) and
        one row per parameter.
    """
    new.to(device)
    before, after = dict(old.named_parameters()), dict(new.named_parameters())
    rows = [_row(name, before.get(name), after.get(name)) for name in {**after, **before}]
    carried = [row.name for row in rows if row.outcome == "carried"]
    with torch.no_grad():
        for name in carried:
            after[name].copy_(before[name])
        _copy_buffers(old, new)
    fresh = _rebuilt(optimizer, before, after)
    for name in carried:
        state = optimizer.state.get(before[name])
        if state is not None and after[name].requires_grad:
            fresh.state[after[name]] = state
    return fresh, tuple(rows)


def _row(name: str, old: nn.Parameter | None, new: nn.Parameter | None) -> CarryRow:
    old_shape = "" if old is None else shape_text(old)
    new_shape = "" if new is None else shape_text(new)
    if new is None:
        return CarryRow(name=name, outcome="dropped", old_shape=old_shape)
    if old is None:
        return CarryRow(name=name, outcome="new", new_shape=new_shape)
    same = old.shape == new.shape
    outcome = "carried" if same else "reshaped"
    return CarryRow(name=name, outcome=outcome, old_shape=old_shape, new_shape=new_shape)


def shape_text(tensor: torch.Tensor) -> str:
    """``64×3×3×3``, or ``scalar``."""
    return "×".join(map(str, tensor.shape)) or "scalar"


def _copy_buffers(old: nn.Module, new: nn.Module) -> None:
    before = dict(old.named_buffers())
    for name, buffer in new.named_buffers():
        same = before.get(name)
        if same is not None and same.shape == buffer.shape:
            buffer.copy_(same)


def _rebuilt(
    optimizer: torch.optim.Optimizer,
    before: dict[str, nn.Parameter],
    after: dict[str, nn.Parameter],
) -> torch.optim.Optimizer:
    """An optimizer like ``optimizer`` over the new parameters, group by group."""
    home = {id(p): at for at, group in enumerate(optimizer.param_groups) for p in group["params"]}
    groups: list[dict[str, Any]] = [
        {**{key: value for key, value in group.items() if key != "params"}, "params": []}
        for group in optimizer.param_groups
    ]
    for name, parameter in after.items():
        if parameter.requires_grad:
            at = home.get(id(before[name]), 0) if name in before else 0
            groups[at]["params"].append(parameter)
    accepted = inspect.signature(type(optimizer)).parameters
    defaults = {key: value for key, value in optimizer.defaults.items() if key in accepted}
    # a group left without parameters stays: schedulers count the groups
    return type(optimizer)(groups, **defaults)
