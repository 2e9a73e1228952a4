"""Adds what was passed and what is valid, if the message of torch or Python leaves it out.

Only for errors that are common with data of one's own, and only from what the frames that raised
them still hold. Nothing is called except reductions of a tensor on the CPU.
"""

from __future__ import annotations

import re
from traceback import walk_tb
from types import FrameType
from typing import Any

import torch

from workbench.experiment.failure.values import describe
from workbench.experiment.state.user_code import is_user_file
from workbench.torch_private.modules import INNER_CALL

_MISSING = re.compile(r"forward\(\) missing \d+ required positional arguments?: (.+)")


def explained(error: BaseException, message: str) -> str:
    """Return one or two sentences to append to the ``message`` of ``error``, or ``""``."""
    try:
        if isinstance(error, IndexError) and message == "index out of range in self":
            return _of_embedding(error)
        if isinstance(error, TypeError) and (missing := _MISSING.search(message)):
            return _of_one_input(error, missing[1])
    except Exception:  # noqa: BLE001 - a tensor of the user's own class may raise anything
        return ""
    return ""


def _of_embedding(error: IndexError) -> str:
    for frame in _innermost_first(error):
        found, table = frame.f_locals.get("input"), frame.f_locals.get("weight")
        if frame.f_code.co_name != "embedding" or not isinstance(table, torch.Tensor):
            continue
        if not isinstance(found, torch.Tensor) or found.device.type != "cpu":
            continue
        rows = table.shape[0]
        return (
            f"The indices go from {int(found.min()):,} to {int(found.max()):,}; the table has "
            f"{rows:,} rows, so 0 to {rows - 1:,} are valid."
        )
    return ""


def _of_one_input(error: TypeError, missing: str) -> str:
    frames = _innermost_first(error)
    calls = [frame for frame in frames if frame.f_code is INNER_CALL]
    if len(calls) != 1 or any(is_user_file(frame.f_code.co_filename) for frame in frames):
        return ""  # a forward of the user's, or of a container, calls another one
    given: tuple[Any, ...] = calls[0].f_locals["args"]
    if len(given) != 1:
        return ""
    name = missing.partition(" and ")[0].partition(",")[0].strip("'")
    return (
        f"It was called with one input, {describe(given[0]) or type(given[0]).__name__}. For more "
        f"give batches as ((x, {name}), labels), by position, or as a mapping "
        f"{{'x': ..., '{name}': ..., 'labels': ...}}, by name."
    )


def _innermost_first(error: BaseException) -> list[FrameType]:
    return [frame for frame, _line in walk_tb(error.__traceback__)][::-1]
