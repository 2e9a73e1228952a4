"""Creation of many long-lived objects without repeated runs of Python's garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Generator[None]:
    """Disable automatic garbage collection inside; for Workbench's code, never around the user's.

    Python collects when objects have been added, and in the end traverses every object of the
    process. A capture of 30,000 nodes adds some hundred thousand objects that are not garbage,
    which would trigger half a dozen of these traversals, each of a tenth of a second and more.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
