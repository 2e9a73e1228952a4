"""What a benchmark looks for and does not find; listed at the end of the session.

A test that can do nothing without it skips with `pytest.skip`, which is listed too; a test that
only leaves out a part of its table notes it here.
"""

from __future__ import annotations

from importlib.util import find_spec

NOTES: dict[str, str] = {}
"""What was not there and how to get it -> what that left out."""


def note(what: str, left_out: str) -> None:
    """``what`` is not there, which leaves out ``left_out``."""
    NOTES[what] = left_out


def has_package(name: str, left_out: str) -> bool:
    """Whether ``name`` can be imported; noted where it cannot."""
    if find_spec(name) is not None:
        return True
    note(f"package {name} (pip install {name})", left_out)
    return False
