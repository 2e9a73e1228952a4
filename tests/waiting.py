"""Waiting for what has to happen; the deadline matters only where it never does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 180.0
"""Of whatever is waited for: far more than it takes on a machine that is slow and busy."""


def wait_until(condition: Callable[[], T], what: str = "what is waited for") -> T:
    """Ask until ``condition()`` is true, and return what it gave."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} has not come within {DEADLINE_S:g} s"
        time.sleep(0.01)
    return found
