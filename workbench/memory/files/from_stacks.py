"""A snapshot's stacks as columns of a record: a block's line, and the tree of calls.

A block's line is the innermost frame of its stack that is in the user's own Python; its call is the
innermost frame of all, a library's too, so that what a library does can also be seen.

The text of a line is never read: a snapshot names files of the machine that wrote it, and what is
at such a path here is another file, a later one, or a pipe that never ends.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from workbench.allocator.snapshot.snapshot import Frame, Snapshot
from workbench.memory.reading.call_tree import MOST_CALLS, MOST_DEEP, call_tree
from workbench.records import SourceLine
from workbench.records.source import cell_number

_TYPED = ("<ipython", "<stdin>", "<cell")
_LIBRARY_PARTS = ("site-packages", "dist-packages", "/torch/", "<frozen", "??")

Ints = npt.NDArray[np.int64]

CUT = (
    f"Stacks of more than {MOST_DEEP} calls inside one another, or more than {MOST_CALLS:,} "
    "different calls in all: the tree of calls leaves out the innermost."
)


class StackColumns(NamedTuple):
    """A record's columns about stacks; -1, which is also the last entry of a column, is "none"."""

    line: Ints
    """For each stack, the row in `sources` of its own line."""
    call: Ints
    """For each stack, the row of its innermost call."""
    parent: Ints
    """For each call, the row of its caller."""
    source: Ints
    """For each call, the row in `sources`."""
    sources: tuple[SourceLine, ...]
    is_cut: bool

    def of_blocks(self, stack: Ints) -> dict[str, Any]:
        """Return the columns of a record whose blocks have these stacks."""
        return {
            "sources": self.sources,
            "block_source": self.line[stack],
            "block_call": self.call[stack],
            "call_parent": self.parent,
            "call_source": self.source,
        }


def stack_columns(snapshot: Snapshot) -> StackColumns:
    """Return the lines and the calls of a snapshot's stacks."""
    own = np.array([is_own(frame.filename) for frame in snapshot.frames], dtype=np.bool_)
    line = _own_frames(snapshot, own)
    tree = call_tree(snapshot.stack_start, snapshot.stack_frame, len(own))
    used = np.union1d(line[line >= 0], tree.frame)
    row = np.full(len(own) + 1, -1, dtype=np.int64)
    row[used] = np.arange(len(used))
    sources = tuple(_source(snapshot.frames[frame], bool(own[frame])) for frame in used.tolist())
    return StackColumns(
        row[line], tree.innermost, tree.parent, row[tree.frame], sources, tree.is_cut
    )


def is_own(filename: str) -> bool:
    """Return whether a file is the user's own Python; it may be a file of another machine."""
    is_python = filename.endswith(".py") or filename.startswith(_TYPED)
    return is_python and not any(part in filename for part in _LIBRARY_PARTS)


def _own_frames(snapshot: Snapshot, own: npt.NDArray[np.bool_]) -> Ints:
    """Return the innermost own frame of each stack, -1 for none, and -1 as the last entry."""
    start, frame = snapshot.stack_start, snapshot.stack_frame
    found = np.full(len(start), -1, dtype=np.int64)
    places = np.flatnonzero(own[frame])
    first = np.searchsorted(places, start[:-1])
    there = np.append(places, len(frame))[first]
    has_one = there < start[1:]
    found[:-1][has_one] = frame[there[has_one]]
    return found


def _source(frame: Frame, own: bool) -> SourceLine:
    name, line, function = frame.filename, frame.line, frame.name
    if not own:
        return SourceLine(filename=name, line=line, function=function)
    function = "" if function == "<module>" else function
    return SourceLine(filename=name, line=line, cell=cell_number(name), function=function)
