"""The allocator's names for what it did and what it holds.

Separate from `workbench.allocator.snapshot.snapshot`, because the process that reads a snapshot
file (`workbench.allocator.snapshot.unpickle`) has the standard library and nothing else.
"""

from __future__ import annotations

ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "oom",
)
"""Actions of a trace; `Snapshot.action` holds the index. Unknown ones are left out, and counted."""
ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE = range(5)
SEGMENT_MAP, SEGMENT_UNMAP, SNAPSHOT, OOM = range(5, 9)

STATES = ("allocated", "pending", "free")
"""States of a block; `Snapshot.block_state` holds the index. ``pending``: freed by the program,
still used by a stream."""
ALLOCATED, PENDING, FREE = range(3)

FILE_STATES = {
    "active_allocated": ALLOCATED,
    "active_pending_free": PENDING,
    "active_awaiting_free": PENDING,
    "inactive": FREE,
}
"""The names of these states in a file; ``active_awaiting_free`` is the name in PyTorch's
documentation."""
