"""Stacks as one tree of calls, each call kept once.

Stacks of one program begin alike: `main` called `train`, which called `step`. Written as a tree, a
thousand stacks that share their outer calls share those rows, a block points to its innermost call
alone, and what a call is to blame for is the sum over what lies below it. Rows stand behind the row
that made them, so a tree is read from front to back.

A snapshot's stacks become a tree level by level from the outermost call, on whole columns
(`call_tree`). A recording meets its calls one after the other (`Calls`). Neither grows without
bound: a program that recurses, or whose every stack is another one, has its calls cut short, and a
block then points to the innermost call that was kept.

Nothing here needs PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MOST_CALLS = 1 << 19
"""Rows of a tree."""
MOST_DEEP = 256
"""Calls inside one another."""

Ints = npt.NDArray[np.int64]


class Line(NamedTuple):
    """A line of the user's code, not yet turned into a `SourceLine`."""

    filename: str
    line: int
    function: str


class Calls:
    """The tree of a recording, as its calls are met.

    ``parents[row]`` is the row of the call that made it, -1 for an outermost one.
    """

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.lines: list[Line] = []
        self.is_cut = False
        """Whether calls were left out because there are too many, or too many inside another."""
        self._rows: dict[tuple[int, Line], int] = {}

    def row(self, stack: Sequence[Line]) -> int:
        """The row of the innermost call of ``stack``, outermost first; -1 for an empty one."""
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
        """Add a whole tree behind these calls; what its rows have become larger by."""
        offset = len(self.lines)
        self.parents += [-1 if parent < 0 else parent + offset for parent in parents]
        self.lines += lines
        return offset


class Tree(NamedTuple):
    """The stacks of a snapshot as a tree."""

    parent: Ints
    """Of each call the row of the one that made it, -1 for an outermost one."""
    frame: Ints
    """Of each call the row of its frame."""
    innermost: Ints
    """Of each stack the row of its innermost call; one more for "no stack", which is -1."""
    is_cut: bool


def call_tree(stack_start: Ints, stack_frame: npt.NDArray[np.int32], num_frames: int) -> Tree:
    """The tree of stacks that are kept one after the other, each innermost call first.

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
    """The distinct keys in order, and the row of each key in them.

    Neighbouring stacks often share their outer calls, so runs of one key are sorted as one.
    """
    begins = np.flatnonzero(np.diff(keys, prepend=keys[0] - 1))
    distinct, rows = np.unique(keys[begins], return_inverse=True)
    return distinct, np.repeat(rows, np.diff(begins, append=len(keys)))
