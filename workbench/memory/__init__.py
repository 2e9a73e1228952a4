"""Where memory goes: every allocation and free, told apart by what it is for.

``memory()`` around any code, `MemoryProbe` in a training step, ``memory(path)`` for a file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from workbench.memory.chart import to_chart
from workbench.memory.probe import MemoryProbe
from workbench.memory.session import MemoryRecording
from workbench.memory.snapshot import read_snapshot
from workbench.memory.view import MemoryView
from workbench.records import MemoryRecord, RecordError

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["MemoryProbe", "MemoryRecording", "MemoryView", "memory", "open_file", "to_chart"]


@overload
def memory(target: None = None) -> MemoryRecording: ...
@overload
def memory(target: Any) -> MemoryView: ...
def memory(target: Any = None) -> MemoryView:
    """Show where memory goes.

    Args:
        target: nothing, for ``with wb.memory() as mem:`` around any code; an `Experiment`, for its
            next step (one step is run if it is idle); a path to a saved record or an allocator
            snapshot; or a `MemoryRecord`.

    Returns:
        A view with ``.record``, ``.save(path)``, ``.figure()`` and a rich display.

    Raises:
        TypeError: the target is none of these.
        FileNotFoundError: no file at the path.
        RecordError: the file is neither a memory record nor an allocator snapshot.
    """
    if target is None:
        return MemoryRecording()
    if isinstance(target, MemoryRecord):
        return MemoryView(target)
    if isinstance(target, (str, Path)):
        return MemoryView(open_file(target))
    if callable(getattr(target, "capture", None)):
        return MemoryView(target.capture(MemoryProbe()).wait())
    raise TypeError(
        f"memory() got a {type(target).__name__}; it takes nothing (as a `with` block), an "
        "Experiment, a path to a saved record or allocator snapshot, or a MemoryRecord"
    )


def open_file(path: str | PathLike[str]) -> MemoryRecord:
    """The record in a file: one saved by ``view.save``, or an allocator snapshot.

    Raises:
        FileNotFoundError: no file at ``path``.
        RecordError: the file is neither.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r} to read memory from")
    with file.open("rb") as stream:
        is_pickle = stream.read(2)[:1] == b"\x80"
    if is_pickle:
        return read_snapshot(file)
    try:
        return MemoryRecord.from_bytes(file.read_bytes())
    except RecordError as error:
        raise RecordError(
            f"{file.name} is no memory record or allocator snapshot: {error}"
        ) from None
