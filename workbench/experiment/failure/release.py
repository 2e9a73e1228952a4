"""What a failed step still holds, let go of while its exception lives on.

A traceback keeps every frame it passed, a frame its locals, and those the graph with all
activations: as long as somebody holds the exception, and a notebook does, nothing would fit any
more. So the frames are cleared; what they said is in the failure's text by then.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import CellType, FrameType

from workbench.torch_private.modules import CALL as MODULE_CALL


def let_go_of(error: BaseException) -> None:
    """Clear the frames that ``error``, its causes and contexts hold, and what they made a cycle."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        for frame, _ in traceback.walk_tb(one.__traceback__):
            caller: FrameType | None = frame
            # whom a shortened traceback leaves out, those it shows still have as their callers
            while caller is not None and _clear(caller):
                caller = caller.f_back
        waiting += [one.__cause__, one.__context__]
    gc.collect()


@contextmanager
def collecting_only_new() -> Generator[None]:
    """While this is open, garbage is looked for among objects that were made since, and no others.

    A process with torch in it has a million of them, and a look at them all stops every thread for
    a third of a second: where one is needed after each of many attempts, that would be most of what
    these take. What was garbage before is found afterwards.
    """
    if gc.get_freeze_count():  # somebody's own, whose end this would be
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _clear(frame: FrameType) -> bool:
    """Whether it has ended, and so could be cleared."""
    cells: list[CellType] = []
    if frame.f_code is MODULE_CALL:
        # a function in it, whose frame keeps it, shares these: arguments and result of a module
        cells = [one for one in gc.get_referents(frame) if isinstance(one, CellType)]
    try:
        frame.clear()
    except RuntimeError:
        return False  # it still runs: it is one of ours
    for cell in cells:
        with suppress(ValueError):  # empty already
            del cell.cell_contents
    # up to Python 3.12 a frame whose locals somebody read keeps what it gave, until asked again
    _ = frame.f_locals
    return True
