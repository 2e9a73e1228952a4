"""Building many objects that stay without Python looking through them again and again."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Generator[None]:
    """No automatic collection of garbage inside; for code of ours, never around the user's.

    Python collects when objects have been added, and in the end looks through every object of the
    process. A capture of 30,000 nodes adds some hundred thousand that are no garbage, which would
    set off half a dozen of these looks, each of a tenth of a second and more.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
