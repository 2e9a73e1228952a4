"""Opens an allocator snapshot file: ``wb.memory("snapshot.pickle")``.

`workbench.allocator.decode` reads the file, so that nothing in it can run or take the machine's
memory; what it says is replayed (`workbench.memory.replayed`) and becomes a record.
"""

from __future__ import annotations

from pathlib import Path

from workbench.allocator.decode import read
from workbench.memory.replayed import replayed_record
from workbench.records import MemoryRecord


def read_snapshot(path: Path) -> MemoryRecord:
    """The record of an allocator snapshot file (``torch.cuda.memory._dump_snapshot``).

    Raises:
        RecordError: the file is too large, no snapshot, or asks for more than plain data.
    """
    return replayed_record(read(path), title=path.name)
