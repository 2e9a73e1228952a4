"""Opens an allocator snapshot file: ``wb.memory("snapshot.pickle")``.

`workbench.allocator.decode` reads the file, so that nothing in it can run or take the machine's
memory; what it says becomes a record in `workbench.memory.from_snapshot`.
"""

from __future__ import annotations

from pathlib import Path

from workbench.allocator.decode import read
from workbench.memory.from_snapshot import record_of_snapshot
from workbench.memory.replayed import replayed
from workbench.records import MemoryRecord


def read_snapshot(path: Path) -> MemoryRecord:
    """The record of an allocator snapshot file (``torch.cuda.memory._dump_snapshot``).

    Raises:
        RecordError: the file is too large, no snapshot, or asks for more than plain data.
    """
    snapshot = read(path)
    found = replayed(snapshot)
    return record_of_snapshot(
        snapshot,
        title=path.name,
        sizes=found.sizes,
        certificate=found.certificate,
        notes=found.notes,
    )
