"""Undo a step of a schedule that raises half-way.

Torch counts a step of a scheduler before it computes the rate, so a scheduler whose function raises
would continue after the rate that was never used. Restored are the attributes of the scheduler and
of those inside it, with their lists, dicts and sets, and the options of the parameter groups.
What the user's function keeps elsewhere stays as the function left it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

import torch

_PLAIN = frozenset((bool, int, float, str, tuple, type(None)))
"""Types that need no copy; most of the values are of these types."""
_MOST = 1024
"""Maximum number of entries of a container that is copied before every step."""


@contextmanager
def undone_if_it_raises(parts: list[Any], optimizer: torch.optim.Optimizer) -> Generator[None]:
    """Undo a step of the scheduler made of ``parts`` (`learning_rate.parts_of`) if it raises."""
    holders = [vars(part) for part in parts if hasattr(part, "__dict__")]
    kept = [_keep(holder) for holder in [*holders, *optimizer.param_groups]]
    try:
        yield
    except BaseException:
        for put_back in kept:
            put_back()
        raise


def _keep(holder: dict[str, Any]) -> Callable[[], None]:
    """Save what ``holder`` holds, and its contents; return a function that restores it in place."""
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
    """Copy a value that can be changed in place and is small; return None for others."""
    if isinstance(value, (list, dict, set, deque)):
        found = cast("Any", value)
        return found.copy() if len(found) <= _MOST else None
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if value.numel() <= _MOST else None
    return None
