"""The process that started this one, and whether it is still running.

A process that queries its parent's id gets a different one if the parent has already ended: a child
that imports torch first, which takes seconds, would then watch that one forever. So a process that
starts another one passes its own id.
"""

from __future__ import annotations

import os

PARENT = "WORKBENCH_PARENT"
"""Environment variable with the process id of the parent."""


def parent() -> int:
    """Return the id that the parent passed; removed here, as children must not inherit it."""
    given = os.environ.pop(PARENT, "")
    return int(given) if given.isdigit() else os.getppid()


def is_orphaned(by: int) -> bool:
    """Whether the process with the id ``by``, which started this one, is gone."""
    return os.getppid() != by
