"""A step of a schedule that raises half-way leaves no trace.

Torch counts a step of a scheduler before it computes the rate, so one whose function raises would
go on behind the rate that was never used. What is put back: the attributes of the scheduler and of
those inside it, with their lists, dicts and sets, and what the parameter groups hold besides
parameters. What a function of the user's keeps elsewhere stays as it left it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

import torch

_PLAIN = frozenset((bool, int, float, str, tuple, type(None)))
"""Of these there is nothing to copy, and they are most of what is there."""
_MOST = 1024
"""Entries of a container that is copied before every step."""


@contextmanager
def undone_if_it_raises(parts: list[Any], optimizer: torch.optim.Optimizer) -> Generator[None]:
    """Around a step of the scheduler that is made of ``parts`` (`learning_rate.parts_of`)."""
    holders = [vars(part) for part in parts if hasattr(part, "__dict__")]
    kept = [_keep(holder) for holder in [*holders, *optimizer.param_groups]]
    try:
        yield
    except BaseException:
        for put_back in kept:
            put_back()
        raise


def _keep(holder: dict[str, Any]) -> Callable[[], None]:
    """Remember what ``holder`` holds, and what is in it; returns what puts it back, in place."""
    before = dict(holder)
    copies = [
        (value, _copy_of(value))
        for key, value in before.items()
        if type(value) not in _PLAIN and key != "params"
    ]

    def put_back() -> None:
        holder.update(before)  # first: other threads read the rates of groups
        for key in holder.keys() - before.keys():
            del holder[key]
        for value, copy in copies:
            if isinstance(copy, torch.Tensor):
                value.copy_(copy)
            elif isinstance(copy, list):
                value[:] = copy
            elif copy is not None:
                value.clear()
                (value.extend if isinstance(copy, deque) else value.update)(copy)

    return put_back


def _copy_of(value: Any) -> Any:
    """Of what can be changed in place and is small; else None."""
    if isinstance(value, (list, dict, set, deque)):
        found = cast("Any", value)
        return found.copy() if len(found) <= _MOST else None
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if value.numel() <= _MOST else None
    return None
