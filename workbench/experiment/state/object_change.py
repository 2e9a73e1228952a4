"""Changes in an object since it was inspected, and how they are applied to another object.

The two are copies of one another: one is in this process and one on a rank.
"""

from __future__ import annotations

import types
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from workbench.experiment.state.random_generators import is_generator, set_state, state_of


class Change(NamedTuple):
    """Difference between an object and what it was."""

    own: dict[Any, Any]
    """Attributes that are new or have another value; of a tensor of a module ("_buffers", name), of
    a function ("variable", name) or ("global", name)."""
    gone: list[Any]
    """Attributes that no longer exist."""
    inside: list[Any] | None
    """All elements of a container, if they have changed; pairs of a mapping."""
    whole: Any
    """Values of a tensor or an array, or state of a generator."""


def generator_state(value: Any) -> Any:
    """Return the state of a random number generator; None for anything else."""
    return state_of(value) if is_generator(value) else None


def fill(value: Any, change: Change, device: torch.device | None = None) -> None:
    """Give an object the contents of its copy.

    Args:
        value: the object.
        change: the change of the copy.
        device: device for tensors that are new and were on a rank's device; None leaves them there.
    """
    if isinstance(value, torch.Tensor):
        _fill_tensor(value, change.whole)
    elif isinstance(value, np.ndarray):
        array = cast("Any", value)
        if array.shape != change.whole.shape:
            array.resize(change.whole.shape, refcheck=False)
        np.copyto(array, change.whole)
    elif isinstance(value, types.FunctionType):
        _bind(value, change)
    elif is_generator(value):
        set_state(value, change.whole)
    else:
        _refill(value, change, device)


@torch.no_grad()
def _fill_tensor(tensor: torch.Tensor, given: torch.Tensor) -> None:
    if tensor.shape == given.shape and tensor.dtype == given.dtype:
        tensor.data.copy_(given)
    else:
        tensor.data = given.to(tensor.device)


def _bind(function: types.FunctionType, change: Change) -> None:
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for (kind, name), one in change.own.items():
        if kind == "variable":
            cells[name].cell_contents = one
        else:
            function.__globals__[name] = one
    for kind, name in change.gone:
        if kind == "variable":
            del cells[name].cell_contents
        else:
            function.__globals__.pop(name, None)


def _refill(value: Any, change: Change, device: torch.device | None) -> None:
    if change.inside is not None:
        value.clear()
        if isinstance(value, dict):  # `update` of a Counter would add counts
            for key, one in change.inside:
                value[key] = _placed(one, device)
        else:
            items = [_placed(one, device) for one in change.inside]
            (value.update if isinstance(value, set) else value.extend)(items)
    own = getattr(value, "__dict__", None)
    for name, given in change.own.items():
        one = _placed(given, device)
        if isinstance(name, tuple):
            vars(value)[name[0]][name[1]] = one
        elif isinstance(own, dict) and not _is_slot(value, name):
            own[name] = one  # bypassing a `__setattr__` of its own, as pickle does
        else:
            object.__setattr__(value, name, one)
    for name in change.gone:
        if isinstance(name, tuple):
            vars(value)[name[0]].pop(name[1], None)
        elif isinstance(own, dict):
            own.pop(name, None)


def _is_slot(value: Any, name: str) -> bool:
    return isinstance(getattr(type(value), name, None), types.MemberDescriptorType)


def _placed(value: Any, device: torch.device | None) -> Any:
    """Move a new tensor to the device of this training if it was on a rank's."""
    if isinstance(value, torch.Tensor) and device is not None and value.device.type != "cpu":
        return value.to(device)
    return value
