"""Who started this process, and whether it is still there.

A process that asks for its parent's number gets another one where the parent ended before: a
child that imports torch first, which takes seconds, would look after that for ever. So whoever
starts one says its own number.
"""

from __future__ import annotations

import os

PARENT = "WORKBENCH_PARENT"
"""The environment's name for it."""


def parent() -> int:
    """The number of the process that started this one, as it said; once, for it is no heirloom."""
    told = os.environ.pop(PARENT, "")
    return int(told) if told.isdigit() else os.getppid()


def is_orphaned(by: int) -> bool:
    """Whether the process of that number, which started this one, is gone."""
    return os.getppid() != by
