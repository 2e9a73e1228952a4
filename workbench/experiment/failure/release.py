"""Releases what a failed step still holds while its exception is alive.

A traceback keeps every frame that it passed through, a frame keeps its locals, and those keep the
graph with all activations: as long as the exception is referenced, and a notebook does reference
it, nothing would fit any more. So the frames are cleared; what they contained is in the text of the
failure by then.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import CellType, FrameType

from workbench.torch_private.modules import INNER_CALL


def release_frames(error: BaseException) -> None:
    """Clear the frames that ``error``, its causes and contexts hold, and collect their cycles."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        for frame, _ in traceback.walk_tb(one.__traceback__):
            caller: FrameType | None = frame
            # frames that a shortened traceback leaves out are still callers of those that it shows
            while caller is not None and _clear(caller):
                caller = caller.f_back
        waiting += [one.__cause__, one.__context__]
    gc.collect()


@contextmanager
def collecting_only_new() -> Generator[None]:
    """Within this context, garbage is only looked for among objects that were created since.

    A process with torch has a million objects, and a pass over all of them stops every thread for a
    third of a second: if a pass is needed after each of many attempts, most of their time would go
    there. What was garbage before is found afterwards.
    """
    if gc.get_freeze_count():  # the user's own freeze, which this would end
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _clear(frame: FrameType) -> bool:
    """Clear the frame; return whether it has ended, and so could be cleared."""
    cells: list[CellType] = []
    if frame.f_code is INNER_CALL:
        # a function in it, whose frame keeps it, shares these: arguments and result of a module
        cells = [one for one in gc.get_referents(frame) if isinstance(one, CellType)]
    try:
        frame.clear()
    except RuntimeError:
        return False  # it still runs: it is one of ours
    for cell in cells:
        with suppress(ValueError):  # empty already
            del cell.cell_contents
    # up to Python 3.12 a frame whose locals were read keeps the result until they are read again
    _ = frame.f_locals
    return True
