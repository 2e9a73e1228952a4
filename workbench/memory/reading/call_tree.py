"""Stacks as one tree of calls, each call stored once.

Stacks of one program begin alike: `main` called `train`, which called `step`. In a tree, a thousand
stacks that share their outer calls share those rows, a block points only to its innermost call, and
what a call accounts for is the sum over everything below it. A row comes after the row of its
caller, so a tree is read from front to back.

A snapshot's stacks become a tree level by level from the outermost call, on whole columns
(`call_tree`). A recording adds its calls one after the other (`Calls`). Neither grows without
bound: if a program recurses, or if all its stacks differ, its calls are truncated, and a block then
points to the innermost call that was kept.

Nothing here needs PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MOST_CALLS = 1 << 19
"""The largest number of rows in a tree."""
MOST_DEEP = 256
"""The largest depth of nested calls."""

Ints = npt.NDArray[np.int64]


class Line(NamedTuple):
    """A line of the user's code, not yet turned into a `SourceLine`."""

    filename: str
    line: int
    function: str


class Calls:
    """The tree of a recording's calls, in the order in which they are first seen.

    ``parents[row]`` is the row of the caller, -1 for an outermost call.
    """

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.lines: list[Line] = []
        self.is_cut = False
        """Whether calls were left out because there are too many, or too many nested in one
        another."""
        self._rows: dict[tuple[int, Line], int] = {}

    def row(self, stack: Sequence[Line]) -> int:
        """Return the row of the innermost call of ``stack`` (outermost first); -1 if empty."""
        parent = -1
        for depth, line in enumerate(stack):
            found = self._rows.get((parent, line))
            if found is None:
                found = len(self.lines)
                if depth == MOST_DEEP or found >= MOST_CALLS:
                    self.is_cut = True
                    break
                self._rows[parent, line] = found
                self.parents.append(parent)
                self.lines.append(line)
            parent = found
        return parent

    def extend(self, parents: Sequence[int], lines: Sequence[Line]) -> int:
        """Append a whole tree to these calls; return the offset added to its rows."""
        offset = len(self.lines)
        self.parents += [-1 if parent < 0 else parent + offset for parent in parents]
        self.lines += lines
        return offset


class Tree(NamedTuple):
    """The stacks of a snapshot as a tree."""

    parent: Ints
    """For each call, the row of its caller, -1 for an outermost call."""
    frame: Ints
    """For each call, the row of its frame."""
    innermost: Ints
    """For each stack, the row of its innermost call; one more entry for "no stack", which is -1."""
    is_cut: bool


def call_tree(stack_start: Ints, stack_frame: npt.NDArray[np.int32], num_frames: int) -> Tree:
    """Return the tree of stacks that are stored one after the other, each innermost call first.

    Args:
        stack_start: where each stack begins, and one past the end of the last.
        stack_frame: rows of frames.
        num_frames: how many frames there are.
    """
    length = np.diff(stack_start)
    innermost = np.full(len(length) + 1, -1, dtype=np.int64)
    parents: list[Ints] = []
    frames: list[Ints] = []
    num_calls, depth, is_cut = 0, 0, False
    deeper = np.flatnonzero(length > 0)
    while len(deeper):
        frame = stack_frame[stack_start[deeper + 1] - 1 - depth]
        pairs, rows = _distinct((innermost[deeper] + 1) * num_frames + frame)
        if depth == MOST_DEEP or num_calls + len(pairs) > MOST_CALLS:
            is_cut = True
            break
        parents.append(pairs // num_frames - 1)
        frames.append(pairs % num_frames)
        innermost[deeper] = num_calls + rows
        num_calls, depth = num_calls + len(pairs), depth + 1
        deeper = deeper[length[deeper] > depth]
    nothing = np.zeros(0, dtype=np.int64)
    return Tree(
        np.concatenate(parents or [nothing]), np.concatenate(frames or [nothing]), innermost, is_cut
    )


def _distinct(keys: Ints) -> tuple[Ints, Ints]:
    """Return the distinct keys in order, and the row of each key in them.

    Neighbouring stacks often share their outer calls, so runs of one key are sorted as one.
    """
    begins = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
    distinct, rows = np.unique(keys[begins], return_inverse=True)
    return distinct, np.repeat(rows, np.diff(begins, append=len(keys)))
